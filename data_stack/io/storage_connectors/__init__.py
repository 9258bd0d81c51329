"""Where bytes live: one contract, one module a store.

MongoDBStorageConnector and FsspecStorageConnector are names of this package too. Each needs an optional package, and is
imported when it is asked for; MissingDependencyError says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data_stack.io.storage_connectors.connector import Lease, ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.io.storage_connectors.writer import ResourceWriter

if TYPE_CHECKING:
    from data_stack.io.storage_connectors.cached import CachedStorageConnector
    from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector as FsspecStorageConnector
    from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector as MongoDBStorageConnector

_MODULES = {"CachedStorageConnector": "cached", "FsspecStorageConnector": "fsspec", "MongoDBStorageConnector": "mongodb"}

# What needs an optional package is not among these, for a star import must not fail without it.
__all__ = [
    "CachedStorageConnector",
    "FileStorageConnector",
    "InMemoryStorageConnector",
    "Lease",
    "ResourceInfo",
    "ResourceWriter",
    "StorageConnector",
    "StorageConnectorFactory",
]


if not TYPE_CHECKING:  # a type checker is to know the names above and no others

    def __getattr__(name: str) -> Any:
        """Import a connector when it is asked for (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


class StorageConnectorFactory:
    """Makes storage connectors, as in the original; any other one is made by its class, or by its URL."""

    @classmethod
    def get_file_storage_connector(cls, folder_path: str) -> StorageConnector:
        """A FileStorageConnector with its root at ``folder_path``."""
        return FileStorageConnector(folder_path)
