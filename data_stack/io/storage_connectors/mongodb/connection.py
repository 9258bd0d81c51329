"""One MongoDB client per process and store."""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import pymongo
from bson.codec_options import CodecOptions
from pymongo import IndexModel, MongoClient, ReadPreference
from pymongo.collection import Collection
from pymongo.errors import ConfigurationError, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import split_options
from pymongo.write_concern import WriteConcern

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.heartbeat import MAX_SILENCE_SECONDS
from data_stack.io.storage_connectors.mongodb.errors import (
    UNAUTHORIZED_CODE,
    UNREADABLE,
    code_of,
    explain,
)
from data_stack.io.storage_connectors.mongodb.settings import Settings
from data_stack.util.forks import call_in_forks, fork_lock

#: A collection whose documents are dicts.
DocumentCollection: TypeAlias = "Collection[dict[str, Any]]"

#: Acknowledged by the majority *and their journals*: without the journal, a killed server lost
#: acknowledged writes in 15 of 15 trials.
_DURABLE: Final = WriteConcern(w="majority", j=True)
#: The limit of operations for cleaning up after a server that did not answer.
BRIEF_SECONDS: Final = 2.0
#: The limit of looking for a server, unless the connection string has its own.
_MAX_SELECTION_SECONDS: Final = 5.0

#: The indexes of the collections.
_INDEXES: Final = {
    "chunks": IndexModel([("files_id", 1), ("n", 1)], unique=True),
    "files": IndexModel([("filename", 1), ("uploadDate", 1)]),
    "resources": IndexModel([("file_id", 1)], sparse=True),
    "leases": IndexModel([("beat", 1)], expireAfterSeconds=int(MAX_SILENCE_SECONDS)),
}


class Connection:
    """The client of a store, which is created on first use, once per process.

    The client is closed when no connector and no open resource refers to this object any longer.

    Args:
        settings: the configuration of the store.

    Attributes:
        settings: the configuration of the store.
    """

    settings: Settings
    #: Held while the client is created.
    _lock: Any
    #: The client of this process; None before it is used.
    _client: MongoClient[dict[str, Any]] | None
    #: Closes the client.
    _closing: weakref.finalize[Any, Any] | None
    #: Whether a server has answered this process.
    _is_reached: bool
    #: Whether all indexes exist.
    _has_indexes: bool

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = fork_lock()
        self._client = None
        self._closing = None
        self._is_reached = False
        self._has_indexes = False
        call_in_forks(self._leave_inherited_client)

    @classmethod
    def shared(cls, settings: Settings) -> Connection:
        """Return the connection of all connectors with these settings.

        So a thousand unpickled resources share one client.
        """
        with _CONNECTIONS_LOCK:
            connection = _CONNECTIONS.get(settings)
            if connection is None:
                connection = cls(settings)
                _CONNECTIONS[settings] = connection
            return connection

    # ------------------------------------------------------------------ client

    @property
    def client(self) -> MongoClient[dict[str, Any]]:
        """The client of this process."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
                self._closing = _close_with(self, self._client)
            return self._client

    def _connect(self) -> MongoClient[dict[str, Any]]:
        """Make a client, which connects when it is used.

        Raises:
            ConfigError: the driver does not accept the connection string.
        """
        uri = self.settings.uri
        query = uri.partition("?")[2]
        limit_ms = int(min(_MAX_SELECTION_SECONDS, self.settings.timeout_seconds) * 1000)
        defaults: dict[str, Any] = {
            "serverSelectionTimeoutMS": limit_ms,
            "connectTimeoutMS": limit_ms,
            "appname": "data_stack",
        }
        names_in_uri = self.settings.option_names()
        options = {
            name: value for name, value in defaults.items() if name.lower() not in names_in_uri
        }
        try:
            # This raises for options that the client does not understand. The client itself would
            # only warn: with "tls=yes" it connected without TLS.
            if query:
                split_options(query, warn=False)
            return MongoClient(uri, connect=False, **options)
        except (ConfigurationError, ValueError, TypeError) as error:
            # The driver's own message may quote a part of a password.
            raise ConfigError(
                "MongoDB's driver does not accept the connection string or its options "
                f"({type(error).__name__}); percent-encode special characters of passwords"
            ) from None

    def _leave_inherited_client(self) -> None:
        """Begin without a client in a fork: the sockets of the inherited one are the parent's."""
        _INHERITED.append(self._client)
        if self._closing is not None:
            self._closing.detach()
        self._client = None
        self._closing = None
        self._is_reached = False

    # ------------------------------------------------------------------ collections

    def readable(self, name: str) -> DocumentCollection:
        """Return the collection ``bucket.name`` to read from.

        It has the read preference and the read concern of the connection string. The default
        concern is "majority".
        """
        concern = self.client.read_concern
        if not concern.level:
            concern = ReadConcern("majority")
        return self._collection(
            name, read_preference=self.client.read_preference, read_concern=concern
        )

    def writable(self, name: str, *, durable: bool = True) -> DocumentCollection:
        """Return the collection ``bucket.name`` on the primary.

        Its reads see what its writes have acknowledged, despite the connection string: decisions to
        delete depend on them.

        Args:
            name: the name of the collection.
            durable: whether writes are acknowledged by the majority and the journal.
        """
        return self._collection(
            name,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority" if durable else "local"),
            write_concern=_DURABLE if durable else WriteConcern(w=1),
        )

    def has_collection(self, name: str) -> bool:
        """Return whether the collection ``bucket.name`` exists.

        Returns:
            True also if the user has no right to list collections.
        """
        database = self.client[str(self.settings.database)]
        full_name = f"{self.settings.bucket}.{name}"
        try:
            names = database.list_collection_names(filter={"name": full_name})
        except OperationFailure as error:
            if error.code == UNAUTHORIZED_CODE:
                return True
            raise
        return full_name in names

    def make_indexes(self) -> None:
        """Create missing indexes, once per process."""
        if self._has_indexes:
            return
        # By default, building an index waits for all members of a replica set, so a member that is
        # down would block every write.
        quorum: dict[str, Any] = {}
        hello = self.client.admin.command("hello")
        is_replica_set = "setName" in hello
        if is_replica_set:
            quorum = {"commitQuorum": "majority"}
        for name, index in _INDEXES.items():
            self.writable(name).create_indexes([index], **quorum)
        self._has_indexes = True

    def _collection(
        self,
        name: str,
        *,
        read_preference: Any,
        read_concern: ReadConcern,
        write_concern: WriteConcern | None = None,
    ) -> DocumentCollection:
        database = self.client[str(self.settings.database)]
        # The options of the connection string could make dates timezone-aware, so it has no say.
        return database.get_collection(
            f"{self.settings.bucket}.{name}",
            codec_options=CodecOptions(),
            read_preference=read_preference,
            read_concern=read_concern,
            write_concern=write_concern,
        )

    # ------------------------------------------------------------------ operations

    @contextlib.contextmanager
    def operation(self, action: str, identifier: str) -> Iterator[None]:
        """Limit the time of the operations in the block, and raise MongoDB's errors as ours.

        The driver looks for a server first, within a shorter limit. So a wrong address fails fast.

        Args:
            action: what the block does, for messages: ``"read"``.
            identifier: the resource; empty: the store.
        """
        timeout_seconds = self.settings.timeout_seconds
        limit_seconds = timeout_seconds
        try:
            if not self._is_reached:
                selection_seconds: float = self.client.options.server_selection_timeout
                limit_seconds = min(timeout_seconds, selection_seconds)
            with pymongo.timeout(timeout_seconds):
                yield
            self._is_reached = True
        except ConfigError:
            raise
        except (PyMongoError, *UNREADABLE) as error:
            place = self.settings.name
            if identifier:
                place = f"{identifier!r} in {place}"
            servers = list(self.client.topology_description.server_descriptions().values())
            code = code_of(error, servers)
            problem = f"could not {action} {place}"
            raise explain(problem, error, code, limit_seconds) from error.with_traceback(None)


def _close_with(
    connection: Connection, client: MongoClient[dict[str, Any]]
) -> weakref.finalize[Any, Any]:
    """Return a finalizer, which closes a client when its connection is gone.

    The client is closed in a context of its own. The garbage collector may call the finalizer
    anywhere; before Python 3.12 even while a context variable, such as the timeout of the driver,
    is being changed. If closing changed another variable of the same context then, Python ended in
    a segmentation fault.
    """
    return weakref.finalize(connection, contextvars.Context().run, _close, client)


def _close(client: MongoClient[dict[str, Any]]) -> None:
    """Close a client. A server that does not answer is not waited for."""
    with pymongo.timeout(BRIEF_SECONDS):
        client.close()


#: Clients inherited by a fork, which are neither used nor closed here.
_INHERITED: Final[list[Any]] = []
#: The connections of this process, by their settings.
_CONNECTIONS: Final[weakref.WeakValueDictionary[Settings, Connection]] = (
    weakref.WeakValueDictionary()
)
_CONNECTIONS_LOCK: Final = fork_lock()
