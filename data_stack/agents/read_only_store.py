"""A storage connector that lets nothing be written into a store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NoReturn

from data_stack.exception import ReadOnlyStorageError, UnsupportedStorageOperationError
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import (
    BINARY,
    DAY_SECONDS,
    Garbage,
    ResourceInfo,
    StorageConnector,
)
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.writer import ResourceWriter


class ReadOnlyStorageConnector(StorageConnector):
    """Reads the resources of a store, and refuses to change it.

    Verifying a resource does not record its digest, and a lease leaves no file.

    Args:
        connector: the store.
    """

    #: The store.
    _connector: StorageConnector

    def __init__(self, connector: StorageConnector) -> None:
        self._connector = connector
        self.knows_digests = connector.knows_digests
        self.checks_reads = connector.checks_reads

    def __repr__(self) -> str:
        return repr(self._connector)

    # ------------------------------------------------------------------ reading

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        return self._connector.get_resource(identifier, resource_type)

    def has_resource(self, identifier: str) -> bool:
        return self._connector.has_resource(identifier)

    def list_resources(self, prefix: str = "") -> list[str]:
        return self._connector.list_resources(prefix)

    def missing_place(self) -> str | None:
        return self._connector.missing_place()

    def stat(self, identifier: str) -> ResourceInfo:
        return self._connector.stat(identifier)

    def read_ranges(self, identifier: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._connector.read_ranges(identifier, ranges)

    def list_keys(self, prefix: str = "") -> list[str]:
        return self._connector.list_keys(prefix)

    def list_links(self, prefix: str = "") -> list[str]:
        return self._connector.list_links(prefix)

    def has_key(self, key: str) -> bool:
        return self._connector.has_key(key)

    def open_key(self, key: str) -> StreamedResource:
        return self._connector.open_key(key)

    # ------------------------------------------------------------------ refusing

    def set_resource(self, identifier: str, resource: Storable) -> NoReturn:
        self._refuse(identifier)

    def create(self, identifier: str) -> AbstractContextManager[ResourceWriter]:
        self._refuse(identifier)

    def create_resumable(self, identifier: str, key: str) -> AbstractContextManager[ResourceWriter]:
        self._refuse(identifier)

    def move_resource(self, identifier: str, new_identifier: str) -> NoReturn:
        self._refuse(new_identifier)

    def delete_resource(self, identifier: str) -> NoReturn:
        # Readers that delete what an earlier run left over expect this error, and leave it there.
        raise UnsupportedStorageOperationError(f"{identifier!r} in {self!r} is read only")

    def delete_key(self, key: str) -> NoReturn:
        self.delete_resource(key)

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        return contextlib.nullcontext(Lease())

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        return []

    def collect_garbage(
        self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False
    ) -> list[Garbage]:
        return []

    def _refuse(self, identifier: str) -> NoReturn:
        raise ReadOnlyStorageError(f"{identifier!r} cannot be written: {self!r} is read only")
