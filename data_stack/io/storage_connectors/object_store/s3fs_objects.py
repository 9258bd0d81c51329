"""Requests for single objects of S3 by s3fs, whose answers are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.io.storage_connectors.object_store import s3
from data_stack.io.storage_connectors.object_store.fsspec_objects import FsspecObjects
from data_stack.io.storage_connectors.object_store.object_client import (
    FileRange,
    ListingPage,
)
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile


class S3fsObjects(FsspecObjects):
    """The objects of a bucket. Reading and conditional writing are requests of :mod:`.s3`.

    fsspec reports an existing object as another error.
    """

    def read_ranges(self, ranges: Sequence[FileRange], etag: str | None) -> Sequence[Any]:
        object_ranges = [
            s3.ObjectRange(
                self._file_system.key_of(file_range.path), file_range.start, file_range.stop, etag
            )
            for file_range in ranges
        ]
        answers: list[Any] = self._file_system.run_request(s3.get_ranges, object_ranges)
        return answers

    def describe(self, path: str) -> RemoteFile | None:
        info = self._file_system.run_request(s3.head, self._file_system.key_of(path))
        return None if info is None else RemoteFile.of(path, info)

    def create(self, path: str, data: bytes) -> None:
        self._file_system.run_request(s3.create, self._file_system.key_of(path), data)

    def read_version(self, path: str, max_bytes: int) -> tuple[bytes, str | None]:
        key = self._file_system.key_of(path)
        answer: tuple[bytes, str | None] = self._file_system.run_request(
            s3.get_version, key, max_bytes
        )
        return answer

    def put_over(self, path: str, data: bytes, version: str) -> None:
        self._file_system.run_request(s3.put_over, self._file_system.key_of(path), data, version)

    def delete_version(self, path: str, version: str) -> None:
        self._file_system.run_request(s3.delete_version, self._file_system.key_of(path), version)

    def list_page(self, prefix: str, delimiter: str, token: str | None) -> ListingPage:
        page: ListingPage = self._file_system.run_request(s3.list_page, prefix, delimiter, token)
        return page
