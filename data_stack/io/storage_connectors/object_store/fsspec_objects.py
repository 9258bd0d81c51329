"""Requests for single files to a file system of fsspec."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from data_stack.io.storage_connectors.object_store.errors import is_unreachable
from data_stack.io.storage_connectors.object_store.file_system import (
    MISSING_ERRORS,
    RemoteFileSystem,
)
from data_stack.io.storage_connectors.object_store.layout import TEMPORARIES
from data_stack.io.storage_connectors.object_store.object_client import FileRange, ObjectClient
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.owners import this_process


class FsspecObjects(ObjectClient):
    """The files of a file system of fsspec.

    A file system that cannot put files atomically writes a temporary file, and renames it.

    Args:
        file_system: the file system.
    """

    _file_system: RemoteFileSystem

    def __init__(self, file_system: RemoteFileSystem) -> None:
        self._file_system = file_system

    def read_ranges(self, ranges: Sequence[FileRange], etag: str | None) -> Sequence[Any]:
        names = [self._file_system.name_of(file_range.path) for file_range in ranges]
        starts = [file_range.start for file_range in ranges]
        stops = [file_range.stop for file_range in ranges]
        answers = self._file_system.run("cat_ranges", names, starts, stops, on_error="return")
        return list(answers)

    def describe(self, path: str) -> RemoteFile | None:
        info = self._file_system.run("info", self._file_system.name_of(path))
        return self._file_system.file_of(info)

    def put(self, path: str, data: bytes) -> None:
        if self._file_system.is_atomic:
            self._pipe_file(path, data)
        else:
            self._put_by_renaming(path, data)

    def create(self, path: str, data: bytes) -> None:
        if self._file_system.is_atomic:
            self._file_system.run("pipe_file", self._file_system.name_of(path), data, mode="create")
        else:
            self._in_folder_of(path, lambda: self._file_system.open_new_file(path, data))

    def delete(self, path: str) -> None:
        self._file_system.run("rm_file", self._file_system.name_of(path))

    def read_version(self, path: str, max_bytes: int) -> tuple[bytes, str | None]:
        data = self._file_system.run("cat_file", self._file_system.name_of(path), end=max_bytes)
        return bytes(data), None

    def put_over(self, path: str, data: bytes, version: str) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not name versions")

    def _pipe_file(self, path: str, data: bytes) -> None:
        """Write or replace a file by one request."""
        self._file_system.run("pipe_file", self._file_system.name_of(path), data)

    def _put_by_renaming(self, path: str, data: bytes) -> None:
        """Write a temporary, and rename it to the file once all bytes have arrived."""
        temporary_path = new_temporary_path()
        temporary_name = self._file_system.name_of(temporary_path)
        name = self._file_system.name_of(path)
        try:
            self._in_folder_of(temporary_path, lambda: self._pipe_file(temporary_path, data))
            n_written = self._file_system.run("info", temporary_name)["size"]
            if n_written != len(data):
                raise OSError(
                    errno.ENOSPC, f"only {n_written:,} of {len(data):,} bytes were stored"
                )
            self._in_folder_of(path, lambda: self._file_system.run("mv", temporary_name, name))
        except BaseException as error:
            # If the server is away, garbage collection removes the temporary later.
            if not is_unreachable(error):
                with contextlib.suppress(Exception):
                    self._file_system.run("rm_file", temporary_name)
            raise

    def _in_folder_of(self, path: str, write: Callable[[], object]) -> None:
        """Write a file. If its folder is missing, create that first."""
        try:
            write()
        except MISSING_ERRORS:
            folder = os.path.dirname(self._file_system.name_of(path))
            # Another process may create it at once. Other errors show in the second attempt.
            with contextlib.suppress(OSError):
                self._file_system.run("makedirs", folder, exist_ok=True)
            write()


def new_temporary_path() -> str:
    """Return a path for an unfinished file, which names this process as its writer."""
    return f"{TEMPORARIES}/{this_process()}.{secrets.token_hex(8)}"
