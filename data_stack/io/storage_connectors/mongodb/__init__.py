"""Resources in MongoDB: a document for each current version, over GridFS-compatible collections."""

from __future__ import annotations

from data_stack.exception import MissingDependencyError

try:
    import pymongo  # noqa: F401  # with bson
except ImportError as error:
    raise MissingDependencyError(
        "MongoDBStorageConnector", error.name or "pymongo", "mongodb"
    ) from error

# This imports pymongo too, so it comes after the error that says what to install.
from data_stack.io.storage_connectors.mongodb.connector import MongoDBStorageConnector

__all__ = ["MongoDBStorageConnector"]
