"""Where bytes live: one contract, one module or folder a store.

Each name is imported when it is first asked for. MongoDBStorageConnector and FsspecStorageConnector
need an optional package; MissingDependencyError says what to install.
"""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(
    __name__, __file__, optional=("FsspecStorageConnector", "MongoDBStorageConnector")
)
