from data_stack.io.storage_connectors.cached import CachedStorageConnector as CachedStorageConnector
from data_stack.io.storage_connectors.connector import ResourceInfo as ResourceInfo
from data_stack.io.storage_connectors.connector import StorageConnector as StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector as FileStorageConnector
from data_stack.io.storage_connectors.file import StorageConnectorFactory as StorageConnectorFactory
from data_stack.io.storage_connectors.lease import Lease as Lease
from data_stack.io.storage_connectors.memory import (
    InMemoryStorageConnector as InMemoryStorageConnector,
)
from data_stack.io.storage_connectors.mongodb import (
    MongoDBStorageConnector as MongoDBStorageConnector,
)
from data_stack.io.storage_connectors.object_store import (
    FsspecStorageConnector as FsspecStorageConnector,
)
from data_stack.io.storage_connectors.writer import ResourceWriter as ResourceWriter

__all__: list[str]
