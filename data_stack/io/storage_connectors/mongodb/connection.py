"""One client a process and server, its collections, and its errors as ours."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import re
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import pymongo
from bson import Timestamp
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import IndexModel, MongoClient, ReadPreference
from pymongo.client_session import ClientSession
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
from pymongo.read_preferences import make_read_preference, read_pref_mode_from_name
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
from data_stack.io.storage_connectors.mongodb.settings import Settings
from data_stack.util.forks import ForkLock, call_in_forks

__all__ = ["Connection", "Documents", "connection_of"]

Documents: TypeAlias = "Collection[dict[str, Any]]"
_Result = TypeVar("_Result")

_SERVER_SELECTION_MS: Final = 5_000
#: What is published has reached most of the servers *and their journals*: without the journal, a server that was killed
#: lost acknowledged writes in 15 of 15 trials.
_DURABLE: Final = WriteConcern(w="majority", j=True)
_PASSING: Final = WriteConcern(w=1)
#: For what spares others work and may as well be left to them, after a server did not answer.
_BRIEF_SECONDS: Final = 2.0
_NO_ROOM: Final = {12501, 14031}
_REFUSED: Final = {
    13: "the user lacks the right",
    18: "the server refused user or password",
    8000: "the server refused user or password",
}


class Connection:
    """A client that is made at the first need, once a process, and closed when the last connector that uses it is gone."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = ForkLock()
        self._is_prepared = False
        self._seen, self._is_replica_set = _Seen(), False
        self._begin()
        call_in_forks(self._begin_in_fork)

    def _begin(self) -> None:
        self._client: MongoClient[dict[str, Any]] | None = None
        self._closing: weakref.finalize[Any, Any] | None = None
        self._collections: dict[tuple[str, str], Documents] = {}
        self._is_reached = False

    def _begin_in_fork(self) -> None:
        """What a fork inherits is left alone: its sockets are the parent's."""
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
                self._client = self._connected()
                self._closing = weakref.finalize(self, _close, self._client)
            return self._client

    def _connected(self) -> MongoClient[dict[str, Any]]:
        settings, given = self.settings, self.settings.options_given()
        defaults: dict[str, Any] = {
            "serverSelectionTimeoutMS": min(_SERVER_SELECTION_MS, int(settings.timeout_seconds * 1000)),
            "connectTimeoutMS": min(_SERVER_SELECTION_MS, int(settings.timeout_seconds * 1000)),
            "appname": "data_stack",
        }
        options = {name: value for name, value in defaults.items() if name.lower() not in given}
        with _configuration_errors():
            # Of an option that it does not understand the client would only warn: with "tls=yes" it spoke without TLS.
            split_options(settings.uri.partition("?")[2] or "appName=data_stack", warn=False)
            return MongoClient(settings.uri, connect=False, **options)

    def readable(self, name: str) -> Documents:
        """The collection ``bucket.name`` with the read preference and concern of the settings.

        Chunks never change: reading them linearizably would cost each query a write and give the same bytes.
        """
        return self._collection(name, "readable")

    def writable(self, name: str, *, durable: bool = True) -> Documents:
        """The collection on the primary; ``durable``: acknowledged by the majority and the journal.

        Reads see what no failover takes back, whatever the settings say of other reads: what is deleted depends on them.
        """
        return self._collection(name, "durable" if durable else "passing")

    def _collection(self, name: str, kind: str) -> Documents:
        key = name, kind
        if key not in self._collections:
            preference: Any = ReadPreference.PRIMARY
            level = "majority"
            if kind == "readable":
                level = self.settings.read_concern
                with _configuration_errors():
                    mode = read_pref_mode_from_name(self.settings.read_preference)
                    preference = make_read_preference(mode, None)
                if level == "linearizable":
                    level, preference = ("majority", preference) if name == "chunks" else (level, ReadPreference.PRIMARY)
            self._collections[key] = self.client[self.settings.database].get_collection(
                f"{self.settings.bucket}.{name}",
                codec_options=CodecOptions(),  # a connection string can make dates be read with a zone
                read_preference=preference,
                read_concern=ReadConcern(level),
                write_concern=_DURABLE if kind == "durable" else _PASSING,
            )
        return self._collections[key]

    def make_indexes(self) -> None:
        """Make sure of the indexes, once a process: a bucket that another tool filled may lack them."""
        if self._is_prepared:
            return
        # By default an index is made once all members have it, so one that is down would keep all from storing.
        quorum: dict[str, Any] = {"commitQuorum": "majority"} if self._is_replica_set else {}
        for name, index in (
            ("chunks", IndexModel([("files_id", 1), ("n", 1)], unique=True)),
            ("files", IndexModel([("filename", 1), ("uploadDate", 1)])),
            ("resources", IndexModel([("file_id", 1)], sparse=True)),
            ("leases", IndexModel([("beat", 1)], expireAfterSeconds=60)),
        ):
            self.writable(name).create_indexes([index], **quorum)
        self._is_prepared = True

    # ------------------------------------------------------------------ operations

    @contextlib.contextmanager
    def operation(self, action: str, identifier: str) -> Iterator[None]:
        """A limit of time around what is done inside, and MongoDB's errors as ours.

        Before the first one of a process there is a look whether a server is there, with the shorter limit for that: who has
        the address wrong need not wait as long as for a server that is just being restarted.
        """
        seconds = self.settings.timeout_seconds
        try:
            if not self._is_reached:
                seconds = min(seconds, self.client.options.server_selection_timeout)
                with pymongo.timeout(seconds):
                    hello = self.client.admin.command("hello", read_preference=ReadPreference.NEAREST)
                self._seen = _seen_of(str(hello.get("setName")), hello.get("hosts") or [self.settings.deployment])
                self._is_replica_set = "setName" in hello
                self._is_reached, seconds = True, self.settings.timeout_seconds
            with pymongo.timeout(seconds), readable_answers():
                yield
        except (PyMongoError, BSONError) as error:
            self._raise(action, identifier, error, seconds)

    @staticmethod
    def briefly() -> contextlib.AbstractContextManager[Any]:
        """A limit of 2 s around operations, if their own is longer: for cleaning up after a server that did not answer."""
        return pymongo.timeout(_BRIEF_SECONDS)

    @contextlib.contextmanager
    def session(self, level: str = "majority") -> Iterator[ClientSession]:
        """A session for one operation that sees all that this process has seen of the deployment, over any client.

        A primary that was deposed and does not know it yet thus waits instead of answering with what was acknowledged to be
        replaced. ``level`` is the read concern: "linearizable" needs none of this, and "available" cannot.
        """
        is_causal = level in ("local", "majority")
        with self.client.start_session(causal_consistency=is_causal) as session:
            with _LOOKING:
                operation_time, cluster_time = self._seen.operation_time, self._seen.cluster_time
            if operation_time is not None and cluster_time is not None:
                session.advance_cluster_time(cluster_time)
                session.advance_operation_time(operation_time)
            yield session
            # Not after an error: what was refused for want of a majority may never be readable.
            with _LOOKING:
                self._seen.advance(session.operation_time, session.cluster_time)

    def reading_in_session(self, action: str, identifier: str, work: Callable[[ClientSession], _Result]) -> _Result:
        """As :meth:`reading`, in a :meth:`session`: for what changes, as chunks do not."""

        def in_session() -> _Result:
            with self.session(self.settings.read_concern) as session:
                return work(session)

        return self.reading(action, identifier, in_session)

    def find_one(self, identifier: str, name: str, query: Mapping[str, Any], *options: Any, **more: Any) -> dict[str, Any] | None:
        """A document of a collection, in a :meth:`session`; what a secondary does not have yet is asked of the primary."""
        collections = [self.readable(name)]
        if self.settings.read_preference != "primary":
            collections.append(self.writable(name))
        for collection in collections:
            find = functools.partial(collection.find_one, query, *options, **more)
            document = self.reading_in_session("look for", identifier, lambda session: find(session=session))  # noqa: B023
            if document is not None:
                return document
        return None

    def reading(self, action: str, identifier: str, work: Callable[[], _Result]) -> _Result:
        """What ``work`` returns; it only reads, so it is done again when the connection breaks, until the time is over."""
        with self.operation(action, identifier):
            pause = 0.02
            while True:
                try:
                    return work()
                except ServerSelectionTimeoutError:
                    raise
                except ConnectionFailure as error:
                    # A cursor that broke in the middle is not taken up again by the driver, as a single command is.
                    if error.timeout or pause > 1:
                        raise
                    time.sleep(pause)
                    pause *= 2

    def _raise(self, action: str, identifier: str, error: Exception, seconds: float) -> NoReturn:
        at = f"{action} {identifier!r} in {self.settings.name}" if identifier else f"{action} {self.settings.name}"
        code = error.code if isinstance(error, OperationFailure) else None
        if isinstance(error, ServerSelectionTimeoutError) and "AuthenticationFailed" in str(error):
            code = 18  # for a while after it was refused, the driver does not even ask
        reason = _reason(error)
        if isinstance(error, (UnreadableAnswerError, BSONError)):
            raise DatasetFileCorruptError(f"could not {at}: the server sent a document that is none ({reason})") from error
        if code in _REFUSED:
            raise StorageError(
                f"could not {at}: {_REFUSED[code]} ({reason}). Check the credentials and the roles of the user; reading needs "
                f"'read' on the database, writing 'readWrite'.",
                13,
            ) from error
        if code in _NO_ROOM or "no space left" in reason.lower():
            raise StorageFullError(
                f"could not {at}: the server's disk is full ({reason}). Nothing was published; make room and try again.", 28
            ) from error
        if isinstance(error, ConnectionFailure) or (isinstance(error, PyMongoError) and error.timeout):
            raise StorageUnavailableError(
                f"could not {at}: the server did not answer within {seconds:g} s ({reason}). Check that it "
                f"runs and can be reached from here, and try again."
            ) from error
        raise StorageError(f"could not {at}: {reason}. The store is as it was.") from error


class UnreadableAnswerError(PyMongoError):
    """What the server, or a network that turns bits round, sent is no answer: whether the command was carried out is unknown."""


@contextlib.contextmanager
def readable_answers() -> Iterator[None]:
    """Tell by one error of an answer that the driver stumbles over: it looks into documents as if all of them were whole."""
    try:
        yield
    except (PyMongoError, DataStackError):
        raise
    except (BSONError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if isinstance(error, BSONError) or frame.f_globals.get("__name__", "").partition(".")[0] in ("bson", "pymongo"):
            raise UnreadableAnswerError(f"{type(error).__name__}: {error}") from error
        raise


def _reason(error: Exception) -> str:
    """What the driver says, without the lines on topology that follow. It names hosts, never credentials."""
    text = re.split(r", Timeout: |, full error: | \(configured timeouts: |, Topology Description: ", str(error))[0]
    return f"{type(error).__name__}: {text[:300]}"


@contextlib.contextmanager
def _configuration_errors() -> Iterator[None]:
    """An error in the connection string; the driver's own text may quote a part of a password."""
    try:
        yield
    except (ConfigurationError, InvalidURI, ValueError, TypeError) as error:
        raise ConfigError(
            f"MongoDB's driver does not accept the connection string or its options ({type(error).__name__}); see "
            f"https://www.mongodb.com/docs/manual/reference/connection-string/ and percent-encode special characters of passwords"
        ) from None


@dataclass
class _Seen:
    """The latest times of a deployment that this process was told of: what had happened by then, no read may lack.

    Attributes:
        operation_time: of the last operation.
        cluster_time: as servers hand it on to each other, signed by them: one that is behind refuses a time without it.
    """

    operation_time: Timestamp | None = None
    cluster_time: Mapping[str, Any] | None = None

    def advance(self, operation_time: Timestamp | None, cluster_time: Mapping[str, Any] | None) -> None:
        """Note later times; a standalone server tells none."""
        if operation_time is not None and (self.operation_time is None or operation_time > self.operation_time):
            self.operation_time = operation_time
        if cluster_time is not None and (
            self.cluster_time is None or cluster_time["clusterTime"] > self.cluster_time["clusterTime"]
        ):
            self.cluster_time = cluster_time


def _seen_of(replica_set: str, hosts: Iterable[str]) -> _Seen:
    """What this process, or the one that it was forked from, has seen of a deployment, which is known by its members."""
    with _LOOKING:
        return _SEEN.setdefault((replica_set, *sorted(map(str, hosts))), _Seen())


def _close(client: MongoClient[dict[str, Any]]) -> None:
    # Python's collection of garbage may call this anywhere, before 3.12 also in the middle of a change of a context variable such
    # as the driver's timeout; changing another one of the same context then ended in a segmentation fault.
    contextvars.Context().run(_close_in_time, client)


def _close_in_time(client: MongoClient[dict[str, Any]]) -> None:
    with pymongo.timeout(_BRIEF_SECONDS):
        client.close()


#: Clients of the process that this one was forked from: neither used nor closed here.
_INHERITED: Final[list[Any]] = []
_CONNECTIONS: Final[weakref.WeakValueDictionary[Settings, Connection]] = weakref.WeakValueDictionary()
_SEEN: Final[dict[tuple[str, ...], _Seen]] = {}
_LOOKING: Final = ForkLock()


def connection_of(settings: Settings) -> Connection:
    """The connection that all connectors of these settings share, so that a thousand pickled resources make one client."""
    with _LOOKING:
        return _CONNECTIONS.setdefault(settings, Connection(settings))
