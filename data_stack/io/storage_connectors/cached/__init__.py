"""A verified local cache before a slow store."""

from __future__ import annotations

from data_stack.io.storage_connectors.cached.connector import CachedStorageConnector

__all__ = ["CachedStorageConnector"]
