"""Requests for single blobs of Azure by the client of adlfs, whose answers are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.io.storage_connectors.object_store import azure
from data_stack.io.storage_connectors.object_store.file_system import RemoteFileSystem
from data_stack.io.storage_connectors.object_store.object_client import (
    FileRange,
    ListingPage,
    ObjectClient,
)
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.s3 import ObjectRange


class AdlfsObjects(ObjectClient):
    """The blobs of a container.

    Args:
        file_system: the file system.
    """

    _file_system: RemoteFileSystem

    def __init__(self, file_system: RemoteFileSystem) -> None:
        self._file_system = file_system

    def read_ranges(self, ranges: Sequence[FileRange], etag: str | None) -> Sequence[Any]:
        object_ranges = [
            ObjectRange(
                self._file_system.key_of(file_range.path), file_range.start, file_range.stop, etag
            )
            for file_range in ranges
        ]
        answers: list[Any] = self._file_system.run_request(azure.get_ranges, object_ranges)
        return answers

    def describe(self, path: str) -> RemoteFile | None:
        info = self._file_system.run_request(azure.head, self._file_system.key_of(path))
        return None if info is None else RemoteFile.of(path, info)

    def put(self, path: str, data: bytes) -> None:
        key = self._file_system.key_of(path)
        self._file_system.run_request(azure.put, key, data, None)

    def create(self, path: str, data: bytes) -> None:
        self._file_system.run_request(azure.create, self._file_system.key_of(path), data)

    def delete(self, path: str) -> None:
        self._file_system.run_request(azure.delete, self._file_system.key_of(path), None)

    def read_version(self, path: str, max_bytes: int) -> tuple[bytes, str | None]:
        key = self._file_system.key_of(path)
        answer: tuple[bytes, str | None] = self._file_system.run_request(
            azure.get_version, key, max_bytes
        )
        return answer

    def put_over(self, path: str, data: bytes, version: str) -> None:
        self._file_system.run_request(azure.put, self._file_system.key_of(path), data, version)

    def delete_version(self, path: str, version: str) -> None:
        self._file_system.run_request(azure.delete, self._file_system.key_of(path), version)

    def list_page(self, prefix: str, delimiter: str, token: str | None) -> ListingPage:
        page: ListingPage = self._file_system.run_request(azure.list_page, prefix, delimiter, token)
        return page
