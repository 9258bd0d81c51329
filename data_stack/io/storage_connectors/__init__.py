"""Where bytes live: one contract, one module a store."""

from __future__ import annotations

from data_stack.io.storage_connectors.connector import Lease, ResourceInfo, ResourceWriter, StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

__all__ = [
    "FileStorageConnector",
    "InMemoryStorageConnector",
    "Lease",
    "ResourceInfo",
    "ResourceWriter",
    "StorageConnector",
    "StorageConnectorFactory",
]


class StorageConnectorFactory:
    """Makes storage connectors by name."""

    @classmethod
    def get_file_storage_connector(cls, folder_path: str) -> StorageConnector:
        """A FileStorageConnector with its root at ``folder_path``."""
        return FileStorageConnector(folder_path)
