"""One MongoDB client per process and server, its collections, and the mapping of its errors to ours."""

from __future__ import annotations

import contextlib
import contextvars
import re
import weakref
from collections.abc import Iterator
from typing import Any, Final, NoReturn, TypeAlias

import pymongo
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import IndexModel, MongoClient, ReadPreference
from pymongo.collection import Collection
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import split_options
from pymongo.write_concern import WriteConcern

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from data_stack.io.storage_connectors.heartbeat import MAX_SILENCE_SECONDS
from data_stack.io.storage_connectors.mongodb.settings import Settings
from data_stack.util.forks import ForkLock, call_in_forks

Documents: TypeAlias = "Collection[dict[str, Any]]"

_SERVER_SELECTION_MS: Final = 5_000
#: Acknowledged by the majority *and their journals*: without the journal, a killed server lost acknowledged writes in 15 of 15
#: trials.
_DURABLE: Final = WriteConcern(w="majority", j=True)
_PASSING: Final = WriteConcern(w=1)
#: Limit of clean-up after a server did not answer.
_BRIEF_SECONDS: Final = 2.0
#: What the driver raises for malformed documents, which it does not check.
_UNREADABLE: Final = (BSONError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_NO_ROOM: Final = {12501, 14031}
_REFUSED: Final = {
    13: "the user lacks the right",
    18: "the server refused user or password",
    8000: "the server refused user or password",
}


class Connection:
    """A client, created on first use, once per process, and closed when the last connector that uses it is gone."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = ForkLock()
        self._is_prepared = False
        self._is_replica_set = False
        self._begin()
        call_in_forks(self._begin_in_fork)

    def _begin(self) -> None:
        self._client: MongoClient[dict[str, Any]] | None = None
        self._closing: weakref.finalize[Any, Any] | None = None
        self._is_reached = False

    def _begin_in_fork(self) -> None:
        """Leave the inherited client alone: its sockets belong to the parent."""
        _INHERITED.append(self._client)
        if self._closing is not None:
            self._closing.detach()
        self._begin()

    # ------------------------------------------------------------------ collections

    @property
    def client(self) -> MongoClient[dict[str, Any]]:
        """The client of this process."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
                self._closing = weakref.finalize(self, _close, self._client)
            return self._client

    def _connect(self) -> MongoClient[dict[str, Any]]:
        settings, given = self.settings, self.settings.options_given()
        limit = min(_SERVER_SELECTION_MS, int(settings.timeout_seconds * 1000))
        defaults: dict[str, Any] = {"serverSelectionTimeoutMS": limit, "connectTimeoutMS": limit, "appname": "data_stack"}
        options = {name: value for name, value in defaults.items() if name.lower() not in given}
        try:
            # The client only warns about options that it does not understand: with "tls=yes" it connected without TLS.
            split_options(settings.uri.partition("?")[2] or "appName=data_stack", warn=False)
            return MongoClient(settings.uri, connect=False, **options)
        except (ConfigurationError, InvalidURI, ValueError, TypeError) as error:
            # The driver's own message may quote a part of a password.
            raise ConfigError(
                f"MongoDB's driver does not accept the connection string or its options ({type(error).__name__}); see "
                f"https://www.mongodb.com/docs/manual/reference/connection-string/ and percent-encode special characters of "
                f"passwords"
            ) from None

    def readable(self, name: str) -> Documents:
        """The collection ``bucket.name`` with the connection string's read preference and concern (default: "majority")."""
        concern = self.client.read_concern if self.client.read_concern.level else ReadConcern("majority")
        return self._collection(name, self.client.read_preference, concern, _PASSING)

    def writable(self, name: str, *, durable: bool = True) -> Documents:
        """The collection on the primary; ``durable``: acknowledged by the majority and the journal.

        Its reads use concern "majority" despite the connection string: decisions to delete depend on them.
        """
        return self._collection(name, ReadPreference.PRIMARY, ReadConcern("majority"), _DURABLE if durable else _PASSING)

    def _collection(self, name: str, preference: Any, read_concern: ReadConcern, write_concern: WriteConcern) -> Documents:
        return self.client[str(self.settings.database)].get_collection(
            f"{self.settings.bucket}.{name}",
            codec_options=CodecOptions(),  # else a connection string could make dates timezone-aware
            read_preference=preference,
            read_concern=read_concern,
            write_concern=write_concern,
        )

    def make_indexes(self) -> None:
        """Create missing indexes, once per process."""
        if self._is_prepared:
            return
        # By default an index build waits for all members, so one that is down would block every write.
        quorum: dict[str, Any] = {"commitQuorum": "majority"} if self._is_replica_set else {}
        for name, index in (
            ("chunks", IndexModel([("files_id", 1), ("n", 1)], unique=True)),
            ("files", IndexModel([("filename", 1), ("uploadDate", 1)])),
            ("resources", IndexModel([("file_id", 1)], sparse=True)),
            ("leases", IndexModel([("beat", 1)], expireAfterSeconds=int(MAX_SILENCE_SECONDS))),
        ):
            self.writable(name).create_indexes([index], **quorum)
        self._is_prepared = True

    # ------------------------------------------------------------------ operations

    @contextlib.contextmanager
    def operation(self, action: str, identifier: str) -> Iterator[None]:
        """Limit the time of the operations inside, and raise MongoDB's errors as ours.

        The first call of a process checks with the shorter server selection limit that a server answers, so a wrong address
        fails fast.
        """
        seconds = self.settings.timeout_seconds
        try:
            if not self._is_reached:
                seconds = min(seconds, self.client.options.server_selection_timeout)
                with pymongo.timeout(seconds):
                    hello = self.client.admin.command("hello", read_preference=ReadPreference.NEAREST)
                self._is_replica_set = "setName" in hello
                self._is_reached, seconds = True, self.settings.timeout_seconds
            with pymongo.timeout(seconds):
                yield
        except DataStackError:
            raise
        except (PyMongoError, *_UNREADABLE) as error:
            self._raise(action, identifier, error, seconds)

    @staticmethod
    def briefly() -> contextlib.AbstractContextManager[Any]:
        """Limit operations to 2 s: for cleaning up after a server that did not answer."""
        return pymongo.timeout(_BRIEF_SECONDS)

    def _raise(self, action: str, identifier: str, error: Exception, seconds: float) -> NoReturn:
        at = f"{action} {identifier!r} in {self.settings.name}" if identifier else f"{action} {self.settings.name}"
        code = error.code if isinstance(error, OperationFailure) else None
        if isinstance(error, ServerSelectionTimeoutError):  # for a while after a refusal, the driver does not even ask
            servers = self.client.topology_description.server_descriptions().values()
            code = next((server.error.code for server in servers if isinstance(server.error, OperationFailure)), None)
        reason = _reason(error)
        if isinstance(error, _UNREADABLE):
            raise DatasetFileCorruptError(f"could not {at}: the server sent an unreadable document ({reason})") from error
        if code in _REFUSED:
            raise StorageError(
                f"could not {at}: {_REFUSED[code]} ({reason}). Check the credentials and the roles of the user; reading needs "
                f"'read' on the database, writing 'readWrite'.",
                13,
            ) from error
        # Its storage engine reports a full disk as an unknown error (code 8).
        if code in _NO_ROOM or "no space left" in reason.lower():
            advice = "Nothing was published; make room and try again."
            raise StorageFullError(f"could not {at}: the server's disk is full ({reason}). {advice}", 28) from error
        if isinstance(error, ConnectionFailure) or (isinstance(error, PyMongoError) and error.timeout):
            advice = "Check that it runs and can be reached from here, and try again."
            raise StorageUnavailableError(
                f"could not {at}: the server did not answer within {seconds:g} s ({reason}). {advice}"
            ) from error
        raise StorageError(f"could not {at}: {reason}. The store is as it was.") from error


def _reason(error: Exception) -> str:
    """The driver's message without its topology. It names hosts, never credentials."""
    text = re.split(r", Timeout: |, full error: | \(configured timeouts: |, Topology Description: ", str(error))[0]
    return f"{type(error).__name__}: {text[:300]}"


def _close(client: MongoClient[dict[str, Any]]) -> None:
    # The garbage collector may call this anywhere: before Python 3.12 even amid a change of a context variable such as the
    # driver's timeout. Changing another variable of the same context then ended in a segmentation fault.
    contextvars.Context().run(_close_in_time, client)


def _close_in_time(client: MongoClient[dict[str, Any]]) -> None:
    with pymongo.timeout(_BRIEF_SECONDS):
        client.close()


#: Clients inherited by a fork: neither used nor closed here.
_INHERITED: Final[list[Any]] = []
_CONNECTIONS: Final[weakref.WeakValueDictionary[Settings, Connection]] = weakref.WeakValueDictionary()
_LOOKING: Final = ForkLock()


def connection_of(settings: Settings) -> Connection:
    """The connection that all connectors with these settings share, so that a thousand pickled resources make one client."""
    with _LOOKING:
        return _CONNECTIONS.setdefault(settings, Connection(settings))
