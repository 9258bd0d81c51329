"""Resources as plain files below a folder."""

from __future__ import annotations

from data_stack.io.storage_connectors.file.connector import FileStorageConnector
from data_stack.io.storage_connectors.file.factory import StorageConnectorFactory

__all__ = ["FileStorageConnector", "StorageConnectorFactory"]
