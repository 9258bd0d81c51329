"""Resources in object stores and on remote file systems, by fsspec."""

from __future__ import annotations

from data_stack.io.storage_connectors.object_store.connector import FsspecStorageConnector

__all__ = ["FsspecStorageConnector"]
