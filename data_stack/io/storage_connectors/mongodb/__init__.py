"""Resources in MongoDB: pointer documents over GridFS-compatible collections."""

from __future__ import annotations

from data_stack.exception import MissingDependencyError

try:
    import pymongo  # noqa: F401  # with bson
except ImportError as error:
    raise MissingDependencyError(
        "MongoDBStorageConnector", error.name or "pymongo", "mongodb"
    ) from error

from data_stack.io.storage_connectors.mongodb.connector import (
    MongoDBStorageConnector,
)  # needs these

__all__ = ["MongoDBStorageConnector"]
