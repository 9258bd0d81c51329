"""The settings of a store in MongoDB, as plain checked values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from data_stack.exception import ConfigError
from data_stack.io.url import parse_option

DEFAULT_BUCKET: Final = "data_stack"
DEFAULT_DATABASE: Final = "data_stack"
#: GridFS's own default. A 4 KiB read costs 0.5 ms with 64 KiB chunks, 0.6 ms with these, 1.3 ms with 1 MiB.
DEFAULT_CHUNK_BYTES: Final = 255 * 1024
DEFAULT_INLINE_BYTES: Final = 128 * 1024

_URI: Final = re.compile(r"(?P<scheme>mongodb(?:\+srv)?)://(?P<authority>[^/?]*)(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?")
_HOST: Final = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(:[0-9]{1,5})?")
_BUCKET: Final = re.compile(r"(?!system\.)(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}(?<!\.)", re.ASCII)
_DATABASE: Final = re.compile(r"[^/\\. \"$*<>:|?\0]{1,63}")
_UNVERIFIED: Final = {"tlsallowinvalidcertificates", "tlsallowinvalidhostnames", "tlsinsecure", "ssl_cert_reqs"}
#: URL option (lower case) -> parameter and type.
_OPTIONS: Final[Mapping[str, tuple[str, type]]] = {
    "bucket": ("bucket", str),
    "readonly": ("read_only", bool),
    "timeoutseconds": ("timeout_seconds", float),
    "chunkbytes": ("chunk_bytes", int),
    "inlinebytes": ("inline_bytes", int),
    "allowinvalidcertificates": ("allow_invalid_certificates", bool),
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
    database: str | None = None
    bucket: str = DEFAULT_BUCKET
    read_only: bool = False
    timeout_seconds: float = 30.0
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    inline_bytes: int = DEFAULT_INLINE_BYTES
    allow_invalid_certificates: bool = False

    @property
    def name(self) -> str:
        """The URL without credentials and options."""
        match = _match(self.uri)
        return f"{match['scheme']}://{match['authority'].rpartition('@')[2]}/{self.database}?bucket={self.bucket}"

    def options_given(self) -> set[str]:
        """Options that the connection string sets, in lower case."""
        return {name.lower() for name, _ in parse_qsl(self.uri.partition("?")[2], keep_blank_values=True)}

    def __post_init__(self) -> None:
        match = _match(self.uri)
        if self.database is None:
            object.__setattr__(self, "database", unquote(match["database"] or "") or DEFAULT_DATABASE)
        if not _DATABASE.fullmatch(str(self.database)):
            raise ConfigError("a database name has 1 to 63 characters other than '/\\. \"$*<>:|?'; check the URL's path")
        bucket: Any = self.bucket
        if not isinstance(bucket, str) or not _BUCKET.fullmatch(bucket):
            raise ConfigError(
                "a bucket has 1 to 60 letters, digits or '_.-', without '..', a dot at the end, or 'system.' at the start"
            )
        if not 0.1 <= self.timeout_seconds <= 86_400:
            raise ConfigError("timeout_seconds must be between 0.1 and 86,400")
        if not 1024 <= self.chunk_bytes <= 8 << 20:
            raise ConfigError("chunk_bytes must be between 1,024 and 8 MiB; 64 KiB to 1 MiB work well")
        if not 0 <= self.inline_bytes <= 8 << 20:
            raise ConfigError("inline_bytes must be between 0 and 8 MiB: a document holds at most 16 MiB")
        if self.options_given() & _UNVERIFIED and not self.allow_invalid_certificates:
            raise ConfigError(
                "the connection string turns off the check of the server's certificate; name the authority with tlsCAFile=…, or "
                "accept any server with allow_invalid_certificates=True (in a URL: allowInvalidCertificates=true)"
            )


def parse_url(url: str) -> tuple[str, dict[str, Any]]:
    """Split a URL into its connection string and the connector's own options (``MongoDBStorageConnector.from_url``)."""
    _match(url)  # before its parts are encoded again
    head, question, query = url.partition("?")
    options: dict[str, Any] = {}
    kept = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        known = _OPTIONS.get(name.lower())
        if known is not None:
            options[known[0]] = parse_option(name, value, known[1])
        else:
            kept.append((name, value))
    return head + (question + urlencode(kept, quote_via=quote) if kept else ""), options


def _match(uri: str) -> re.Match[str]:
    """The parts of a connection string, with hosts that cannot be a part of a password."""
    match = _URI.fullmatch(str(uri))
    # An '@' after the hosts, or a port that is not a number, means that a '/' or '?' of the password ended the hosts.
    if (
        match is None
        or "@" in str(uri)[match.end("authority") :]
        or not all(_HOST.fullmatch(host) for host in match["authority"].rpartition("@")[2].split(","))
    ):
        raise ConfigError(
            "invalid MongoDB connection string; write mongodb://host:27017/database, or "
            "mongodb://user:password@host/database with '@', ':', '/', '?', '#' and '%' in the password percent-encoded, "
            "and '@' in options too"
        )
    if ";" in (match["query"] or ""):
        # The driver may read it as '&', unlike the checks of options here.
        raise ConfigError("options of a connection string are separated by '&'; percent-encode a ';' as '%3B'")
    return match
