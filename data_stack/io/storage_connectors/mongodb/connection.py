"""One MongoDB client per process and server, the settings that it is made of, and the mapping of its errors to ours."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import re
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

import pymongo
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import IndexModel, MongoClient, ReadPreference
from pymongo.collection import Collection
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
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
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from data_stack.io.storage_connectors.heartbeat import MAX_SILENCE_SECONDS
from data_stack.io.url import parse_option
from data_stack.util.forks import call_in_forks, fork_lock

Documents: TypeAlias = "Collection[dict[str, Any]]"

_URI: Final = re.compile(
    r"(?P<scheme>mongodb(?:\+srv)?)://(?P<authority>[^/?]*)(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?"
)
_HOST: Final = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(:[0-9]{1,5})?")
_BUCKET: Final = re.compile(
    r"(?!system\.)(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}(?<!\.)", re.ASCII
)
_DATABASE: Final = re.compile(r"[^/\\. \"$*<>:|?\0]{1,63}")
_UNVERIFIED: Final = {
    "tlsallowinvalidcertificates",
    "tlsallowinvalidhostnames",
    "tlsinsecure",
    "ssl_cert_reqs",
}
#: The parameters that a URL can give; its option ``readOnly`` is ``read_only``.
_OPTIONS: Final[Mapping[str, type]] = {
    "bucket": str, "read_only": bool, "timeout_seconds": float, "chunk_bytes": int, "inline_bytes": int,
    "allow_invalid_certificates": bool,
}  # fmt: skip
#: Acknowledged by the majority *and their journals*: without the journal, a killed server lost acknowledged writes in 15 of 15
#: trials.
_DURABLE: Final = WriteConcern(w="majority", j=True)
#: Limit of operations for cleaning up after a server that did not answer.
BRIEF_SECONDS: Final = 2.0
#: What the driver raises for malformed documents, which it does not check.
_UNREADABLE: Final = (
    BSONError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
_REFUSED: Final = {
    13: "the user lacks the right",
    **dict.fromkeys((18, 8000), "the server refused user or password"),
}


@dataclass(frozen=True)
class Settings:
    """The checked configuration of a store.

    Raises:
        ConfigError: a value is invalid. The message holds no part of the connection string.

    Attributes:
        uri: MongoDB connection string with its credentials, never shown; see ``name``.
        database, bucket: the collections are ``database.bucket.resources`` and so on; by default the database of ``uri``, or else
            ``data_stack``.
        read_only: refuse to write.
        timeout_seconds: limit of one operation.
        chunk_bytes: length of the chunks to write, each of which has a digest.
        inline_bytes: resources up to this length are stored in their pointer document.
        allow_invalid_certificates: accept a server whose certificate cannot be verified.
    """

    uri: str = field(repr=False)
    database: str | None
    bucket: str
    read_only: bool
    timeout_seconds: float
    chunk_bytes: int
    inline_bytes: int
    allow_invalid_certificates: bool

    @property
    def name(self) -> str:
        """The URL without credentials and options."""
        match = _match(self.uri)
        return f"{match['scheme']}://{match['authority'].rpartition('@')[2]}/{self.database}?bucket={self.bucket}"

    def options_given(self) -> set[str]:
        """Options that the connection string sets, in lower case."""
        return {
            name.lower()
            for name, _ in parse_qsl(self.uri.partition("?")[2], keep_blank_values=True)
        }

    def __post_init__(self) -> None:
        match = _match(self.uri)
        if self.database is None:
            object.__setattr__(self, "database", unquote(match["database"] or "") or "data_stack")
        if not _DATABASE.fullmatch(str(self.database)):
            raise ConfigError(
                "a database name has 1 to 63 characters other than '/\\. \"$*<>:|?'; check the URL's path"
            )
        if not _BUCKET.fullmatch(self.bucket):
            raise ConfigError(
                "a bucket has 1 to 60 letters, digits or '_.-', without '..', a last dot, or a leading 'system.'"
            )
        # A document holds at most 16 MiB.
        for name, least, most in (
            ("timeout_seconds", 0.1, 86_400),
            ("chunk_bytes", 1024, 8 << 20),
            ("inline_bytes", 0, 8 << 20),
        ):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"{name} must be between {least:,} and {most:,}")
        if self.options_given() & _UNVERIFIED and not self.allow_invalid_certificates:
            advice = "name the authority with tlsCAFile=…, or accept any server with allow_invalid_certificates=True"
            raise ConfigError(
                f"the connection string turns off the check of the server's certificate; {advice}"
            )

    @staticmethod
    def split_url(url: str) -> tuple[str, dict[str, Any]]:
        """Split a URL into its connection string and the connector's own options (``MongoDBStorageConnector.from_url``)."""
        _match(url)  # before its parts are encoded again
        head, question, query = url.partition("?")
        parameters = {parameter.replace("_", ""): parameter for parameter in _OPTIONS}
        options, kept = dict[str, Any](), []
        for name, value in parse_qsl(query, keep_blank_values=True):
            parameter = parameters.get(name.lower())
            if parameter is None:
                kept.append((name, value))
            else:
                options[parameter] = parse_option(name, value, _OPTIONS[parameter])
        return head + (question + urlencode(kept, quote_via=quote) if kept else ""), options


def _match(uri: str) -> re.Match[str]:
    """The parts of a connection string, with hosts that cannot be a part of a password."""
    match = _URI.fullmatch(str(uri))
    # An '@' after the hosts, or a port that is not a number, means that a '/' or '?' of the password ended the hosts.
    if (
        match is None
        or "@" in str(uri)[match.end("authority") :]
        or not all(
            _HOST.fullmatch(host) for host in match["authority"].rpartition("@")[2].split(",")
        )
    ):
        advice = "write mongodb://user:password@host:27017/database with '@:/?#%' in the password percent-encoded"
        raise ConfigError(f"invalid MongoDB connection string; {advice}, and '@' in options too")
    if ";" in (match["query"] or ""):
        # The driver may read it as '&', unlike the checks of options here.
        raise ConfigError(
            "options of a connection string are separated by '&'; percent-encode a ';' as '%3B'"
        )
    return match


#: The code of a server for what a user has no right to.
_UNAUTHORIZED: Final = 13


class Connection:
    """A client, created on first use, once per process, and closed when the last connector that uses it is gone."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = fork_lock()
        self._is_prepared = self._is_replica_set = self._is_reached = False
        self._client: MongoClient[dict[str, Any]] | None = None
        self._closing: weakref.finalize[Any, Any] | None = None
        call_in_forks(self._begin_in_fork)

    def _begin_in_fork(self) -> None:
        """Leave the inherited client alone: its sockets belong to the parent."""
        _INHERITED.append(self._client)
        if self._closing is not None:
            self._closing.detach()
        self._client, self._closing, self._is_reached = None, None, False

    @classmethod
    def shared(cls, settings: Settings) -> Connection:
        """The connection of all connectors with these settings, so that a thousand pickled resources make one client."""
        with _LOOKING:
            return _CONNECTIONS.setdefault(settings, cls(settings))

    # ------------------------------------------------------------------ collections

    @property
    def client(self) -> MongoClient[dict[str, Any]]:
        """The client of this process."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
                # The garbage collector may call this anywhere: before Python 3.12 even amid a change of a context variable like
                # the driver's timeout. Changing another variable of the same context then ended in a segmentation fault.
                self._closing = weakref.finalize(
                    self, contextvars.Context().run, _close, self._client
                )
            return self._client

    def _connect(self) -> MongoClient[dict[str, Any]]:
        uri, given = self.settings.uri, self.settings.options_given()
        limit = min(5_000, int(self.settings.timeout_seconds * 1000))
        defaults: dict[str, Any] = {
            "serverSelectionTimeoutMS": limit,
            "connectTimeoutMS": limit,
            "appname": "data_stack",
        }
        options = {name: value for name, value in defaults.items() if name.lower() not in given}
        try:
            # The client only warns about options that it does not understand: with "tls=yes" it connected without TLS.
            split_options(uri.partition("?")[2] or "appName=data_stack", warn=False)
            return MongoClient(uri, connect=False, **options)
        except (ConfigurationError, ValueError, TypeError) as error:
            # The driver's own message may quote a part of a password.
            problem = f"MongoDB's driver does not accept the connection string or its options ({type(error).__name__})"
            raise ConfigError(
                f"{problem}; percent-encode special characters of passwords"
            ) from None

    def readable(self, name: str) -> Documents:
        """The collection ``bucket.name`` with the connection string's read preference and concern (default: "majority")."""
        concern = (
            self.client.read_concern if self.client.read_concern.level else ReadConcern("majority")
        )
        return self._collection(
            name, read_preference=self.client.read_preference, read_concern=concern
        )

    def writable(self, name: str, *, durable: bool = True) -> Documents:
        """The collection on the primary; ``durable``: acknowledged by the majority and the journal.

        Its reads see what its writes have acknowledged, despite the connection string: decisions to delete depend on them.
        """
        reading = {
            "read_preference": ReadPreference.PRIMARY,
            "read_concern": ReadConcern("majority" if durable else "local"),
        }
        return self._collection(
            name, **reading, write_concern=_DURABLE if durable else WriteConcern(w=1)
        )

    def _collection(self, name: str, **options: Any) -> Documents:
        # With CodecOptions, as a connection string could make dates timezone-aware.
        name = f"{self.settings.bucket}.{name}"
        return self.client[str(self.settings.database)].get_collection(
            name, codec_options=CodecOptions(), **options
        )

    def has_collection(self, name: str) -> bool:
        """Whether the collection ``bucket.name`` exists; yes, if this user may not know."""
        database = self.client[str(self.settings.database)]
        full_name = f"{self.settings.bucket}.{name}"
        try:
            return full_name in database.list_collection_names(filter={"name": full_name})
        except OperationFailure as error:
            if error.code == _UNAUTHORIZED:
                return True
            raise

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
                    hello = self.client.admin.command(
                        "hello", read_preference=ReadPreference.NEAREST
                    )
                self._is_replica_set = "setName" in hello
                self._is_reached, seconds = True, self.settings.timeout_seconds
            with pymongo.timeout(seconds):
                yield
        except ConfigError:
            raise
        except (PyMongoError, *_UNREADABLE) as error:
            self._raise(action, identifier, error, seconds)

    def _raise(self, action: str, identifier: str, error: Exception, seconds: float) -> NoReturn:
        code = error.code if isinstance(error, OperationFailure) else None
        if isinstance(
            error, ServerSelectionTimeoutError
        ):  # for a while after a refusal, the driver does not even ask
            servers = self.client.topology_description.server_descriptions().values()
            code = next(
                (
                    server.error.code
                    for server in servers
                    if isinstance(server.error, OperationFailure)
                ),
                None,
            )
        kind: type[Exception] = StorageError
        numbers, reason = tuple[int, ...](), _reason(error)
        why = f"{reason}. The store is as it was."
        if isinstance(error, _UNREADABLE):
            kind, why = (
                DatasetFileCorruptError,
                f"the server sent an unreadable document ({reason})",
            )
        elif code in _REFUSED:
            numbers = (errno.EACCES,)
            why = f"{_REFUSED[code]} ({reason}). Check credentials and roles: reading needs 'read', writing 'readWrite'."
        elif (
            code in (12501, 14031) or "no space left" in reason.lower()
        ):  # a full disk may be an unknown error (code 8)
            kind, numbers = StorageFullError, (errno.ENOSPC,)
            why = f"the server's disk is full ({reason}). Nothing was published; make room and try again."
        elif isinstance(error, ServerSelectionTimeoutError):
            kind = StorageUnavailableError  # the driver looks for a server for a shorter time
            why = f"no server can be reached ({reason}). Check that it runs, and try again."
        elif isinstance(error, PyMongoError) and error.timeout:
            kind = StorageUnavailableError
            why = f"the server did not answer within {seconds:g} s ({reason}). Check that it runs, and try again."
        elif isinstance(error, ConnectionFailure):
            kind = StorageUnavailableError
            why = f"the connection failed ({reason}). Check that the server runs, and try again."
        what = f"{identifier!r} in {self.settings.name}" if identifier else self.settings.name
        raise kind(f"could not {action} {what}: {why}", *numbers) from error.with_traceback(None)


def _reason(error: Exception) -> str:
    """The driver's message without its topology. It names hosts, never credentials."""
    text = re.split(
        r", Timeout: |, full error: | \(configured timeouts: |, Topology Description: ", str(error)
    )[0]
    return f"{type(error).__name__}: {text[:300]}"


def _close(client: MongoClient[dict[str, Any]]) -> None:
    with pymongo.timeout(BRIEF_SECONDS):
        client.close()


#: Clients inherited by a fork: neither used nor closed here.
_INHERITED: Final[list[Any]] = []
_CONNECTIONS: Final[weakref.WeakValueDictionary[Settings, Connection]] = (
    weakref.WeakValueDictionary()
)
_LOOKING: Final = fork_lock()
