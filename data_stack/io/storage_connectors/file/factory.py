"""The factory of storage connectors of the original DataStack."""

from __future__ import annotations

from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file.connector import FileStorageConnector


class StorageConnectorFactory:
    """Makes file storage connectors, as in the original."""

    @classmethod
    def get_file_storage_connector(cls, folder_path: str) -> StorageConnector:
        """Return a FileStorageConnector with its root at ``folder_path``."""
        return FileStorageConnector(folder_path)
