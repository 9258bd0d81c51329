"""Where a store in MongoDB is and how it is talked to: plain values, without contacting anybody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from data_stack.exception import ConfigError

__all__ = ["DEFAULT_BUCKET", "DEFAULT_CHUNK_BYTES", "DEFAULT_INLINE_BYTES", "Settings", "parse_url"]

DEFAULT_BUCKET: Final = "data_stack"
DEFAULT_DATABASE: Final = "data_stack"
#: GridFS's own default. A 4 KiB read costs 0.5 ms with 64 KiB chunks, 0.6 ms with these, 1.3 ms with 1 MiB.
DEFAULT_CHUNK_BYTES: Final = 255 * 1024
DEFAULT_INLINE_BYTES: Final = 128 * 1024

_URI: Final = re.compile(r"(?P<scheme>mongodb(?:\+srv)?)://(?P<authority>[^/?]*)(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?")
_HOST: Final = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(:[0-9]{1,5})?")
_BUCKET: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}", re.ASCII)
_DATABASE: Final = re.compile(r"[^/\\. \"$*<>:|?\0]{1,63}")
_UNVERIFIED: Final = {"tlsallowinvalidcertificates", "tlsallowinvalidhostnames", "tlsinsecure", "ssl_cert_reqs"}
#: What a URL may say of the connector: option of the URL (any case) -> parameter and type.
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
    """What tells one store from another, checked.

    Raises:
        ConfigError: something is not allowed. No part of the connection string is in the message.

    Attributes:
        uri: MongoDB's connection string, with credentials if it has any: never to be shown. See ``name``.
        database, bucket: the collections are ``database.bucket.resources`` and so on; by default the database of ``uri``, or else
            ``data_stack``.
        read_only: refuse to write, and send nothing that writes.
        timeout_seconds: how long one operation may take in all.
        chunk_bytes: length of the chunks that are written; also what one digest covers.
        inline_bytes: resources up to this length lie in their pointer document.
        allow_invalid_certificates: accept a server that cannot prove who it is.
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
        """Options that the connection string sets by itself, in lower case."""
        return {name.lower() for name, _ in parse_qsl(self.uri.partition("?")[2], keep_blank_values=True)}

    def __post_init__(self) -> None:
        match = _match(self.uri)
        if self.database is None:
            object.__setattr__(self, "database", unquote(match["database"] or "") or DEFAULT_DATABASE)
        if not _DATABASE.fullmatch(str(self.database)):
            raise ConfigError("a database of MongoDB has 1 to 63 characters, none of them '/\\. \"$*<>:|?'; check the URL's path")
        bucket: Any = self.bucket
        if not isinstance(bucket, str) or not _BUCKET.fullmatch(bucket) or bucket.endswith(".") or ".." in bucket:
            raise ConfigError(
                "a bucket begins the names of collections and has 1 to 60 letters, digits or '_.-', no '..', no dot at the end"
            )
        if self.bucket.startswith("system."):
            raise ConfigError("collections that begin with 'system.' are MongoDB's own; choose another bucket")
        if not 0.1 <= self.timeout_seconds <= 86_400:
            raise ConfigError("timeout_seconds has to lie between 0.1 and 86,400")
        if not 1024 <= self.chunk_bytes <= 8 << 20:
            raise ConfigError("chunk_bytes has to lie between 1,024 and 8 MiB; 64 KiB to 1 MiB serve well")
        if not 0 <= self.inline_bytes <= 8 << 20:
            raise ConfigError("inline_bytes has to lie between 0 and 8 MiB: a document holds 16")
        if self.options_given() & _UNVERIFIED and not self.allow_invalid_certificates:
            raise ConfigError(
                "the connection string turns the check of the server's certificate off; name the authority with tlsCAFile=…, "
                "or pass allow_invalid_certificates=True (in a URL: allowInvalidCertificates=true) if anybody may be the server"
            )


def parse_url(url: str) -> tuple[str, dict[str, Any]]:
    """The connection string in a URL whose query may also hold ``bucket``, ``readOnly``, ``timeoutSeconds``, ``chunkBytes``,
    ``inlineBytes`` and ``allowInvalidCertificates``; and these options.
    """
    _match(url)  # as it was written: what is put together again below is encoded
    head, question, query = url.partition("?")
    options: dict[str, Any] = {}
    kept = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        known = _OPTIONS.get(name.lower())
        if known is not None:
            options[known[0]] = _parse(name, value, known[1])
        else:
            kept.append((name, value))
    return head + (question + urlencode(kept, quote_via=quote) if kept else ""), options


def _match(uri: str) -> re.Match[str]:
    """The parts of a connection string, the hosts of which are no part of a password."""
    match = _URI.fullmatch(str(uri))
    # An '@' after the hosts, or a port that is no number: a '/' or '?' of the password looks like the end of the hosts.
    if (
        match is None
        or "@" in str(uri)[match.end("authority") :]
        or not all(_HOST.fullmatch(host) for host in match["authority"].rpartition("@")[2].split(","))
    ):
        raise ConfigError(
            "not a connection string of MongoDB; write mongodb://host:27017/database, or "
            "mongodb://user:password@host/database with '@', ':', '/', '?', '#' and '%' in the password percent-encoded, "
            "and '@' in options too"
        )
    if ";" in (match["query"] or ""):
        # The driver may take it as '&', unlike whoever looks at the options here.
        raise ConfigError("options of a connection string are separated by '&'; percent-encode a ';' as '%3B'")
    return match


def _parse(name: str, value: str, kind: type) -> Any:
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        return kind(value)
    except (KeyError, ValueError):
        raise ConfigError(f"{name} in the URL is no {'true or false' if kind is bool else 'number'}") from None
