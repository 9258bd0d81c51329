"""A folder in a file system of pyarrow or fsspec."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow.fs as pafs

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageError
from data_stack.io.folder import Folder
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.unfinished import TEMPORARY
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.storage_errors import storage_errors
from data_stack.io.url import scheme_of


class ArrowFolder(Folder):
    """A folder in a file system of pyarrow, which reads without the GIL.

    Args:
        filesystem: of pyarrow.
        path: of the folder in it, without a slash at the end.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        self.filesystem = filesystem
        self.name = path

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFolder, (self.filesystem, self.name)

    def open_for_arrow(self, file: str) -> Any:
        """Open a file for pyarrow."""
        path = self.full_name(file)
        with errors_of_filesystem(path):
            return self.filesystem.open_input_file(path)

    def version(self, file: str, source: Any) -> Any:
        """Return the version of an open file, so far as the file system has one.

        It is the ETag, else size and modification time; None without these.
        """
        metadata = source.metadata() or {}  # of S3 and others, from when the file was opened
        tag = metadata.get(b"ETag") or metadata.get("ETag")
        if tag is not None:
            return tag
        info = self._info(file)
        if info.mtime_ns is None:
            return None
        return (info.size, info.mtime_ns)

    def has_file(self, file: str) -> bool:
        return bool(self._info(file).type == pafs.FileType.File)

    def _info(self, file: str) -> Any:
        path = self.full_name(file)
        with errors_of_filesystem(path):
            return self.filesystem.get_file_info(path)

    def open(self, file: str) -> StreamedResource:
        # files of pyarrow do not accept a negative size, nor more than 2**63 - 1 bytes
        stream = io.BufferedReader(self.open_for_arrow(file))
        return StreamedResource(self.full_name(file), stream).reopen_by(self)

    def list_files(self) -> list[str]:
        selector = pafs.FileSelector(self.name, allow_not_found=True, recursive=True)
        with errors_of_filesystem(self.name):
            infos = self.filesystem.get_file_info(selector)
        start = len(self.full_name(""))
        return sorted(info.path[start:] for info in infos if info.type == pafs.FileType.File)

    def subfolder(self, name: str) -> Folder:
        return ArrowFolder(self.filesystem, self.full_name(name))

    @contextlib.contextmanager
    def create(self, file: str) -> Iterator[ResourceWriter]:
        """Write a small file: hold it in memory, store it under another name, and rename it."""
        path = self.full_name(file)
        folder, slash, _ = path.rpartition("/")
        temporary = f"{folder}{slash}{TEMPORARY}{secrets.token_hex(8)}"
        data = io.BytesIO()
        writer = ResourceWriter(path, data)
        yield writer
        writer.close()
        with errors_of_filesystem(path, "write"):
            try:
                if folder:
                    self.filesystem.create_dir(folder, recursive=True)
                with self.filesystem.open_output_stream(temporary) as stream:
                    stream.write(data.getvalue())
                self.filesystem.move(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.filesystem.delete_file(temporary)
                raise


@contextlib.contextmanager
def errors_of_filesystem(name: str, verb: str = "read") -> Iterator[None]:
    """Raise errors of pyarrow's file systems as ours.

    Args:
        name: of the file or folder, for messages.
        verb: what was tried.
    """
    with storage_errors(verb, name):
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ResourceNotFoundError(
                f"could not {verb} {name!r}: the file or folder does not exist"
            ) from error


def is_of_hadoop(source: Any) -> bool:
    """Whether a source is a URL of Hadoop, whose file system is pyarrow's."""
    return scheme_of(source) in ("hdfs", "viewfs")


def arrow_folder_of(source: Any, filesystem: Any) -> ArrowFolder:
    """Return the folder of a path in a file system, or of a URL of Hadoop.

    Args:
        source: the path or URL.
        filesystem: of pyarrow or fsspec; None for that of the URL.

    Raises:
        ConfigError: ``source`` is no path, or ``filesystem`` no file system.
        StorageError: Hadoop cannot be reached.
    """
    if filesystem is None:
        return _folder_of_hadoop(source)
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError(f"with filesystem=, the source must be a path, got {source!r:.80}")
    if hasattr(filesystem, "open") and hasattr(filesystem, "info"):  # of fsspec
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    if not isinstance(filesystem, pafs.FileSystem):
        raise ConfigError(
            f"filesystem must be a file system of pyarrow or fsspec, got {filesystem!r:.80}"
        )
    path_with_slash = os.fspath(source).rpartition("://")[2]
    return ArrowFolder(filesystem, path_with_slash.rstrip("/"))


def _folder_of_hadoop(url: Any) -> ArrowFolder:
    try:
        filesystem, path = pafs.FileSystem.from_uri(url)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"HDFS could not be reached: {error!s:.300}. "
            "pyarrow needs Hadoop's client: set HADOOP_HOME, JAVA_HOME and CLASSPATH "
            "(`hadoop classpath --glob`)"
        ) from error
    return ArrowFolder(filesystem, path.rstrip("/"))
