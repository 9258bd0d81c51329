"""The configuration of a store in MongoDB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from data_stack.exception import ConfigError
from data_stack.io.url import parse_option

_DEFAULT_DATABASE: Final = "data_stack"

#: https://www.mongodb.com/docs/manual/reference/connection-string/ without its choices: the
#: authority holds user, password and hosts.
_URI: Final = re.compile(
    r"(?P<scheme>mongodb(?:\+srv)?)://(?P<authority>[^/?]*)"
    r"(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?"
)
#: A name or address, IPv6 in brackets, and perhaps a port.
_HOST: Final = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(:[0-9]{1,5})?")
#: The beginning of a name of collections. MongoDB keeps ``system.`` for itself.
_BUCKET: Final = re.compile(
    r"(?!system\.)(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}(?<!\.)", re.ASCII
)
#: https://www.mongodb.com/docs/manual/reference/limits/#naming-restrictions
_DATABASE: Final = re.compile(r"[^/\\. \"$*<>:|?\0]{1,63}")

#: The options by which a driver does not check the certificate of the server, in lower case.
_UNVERIFIED: Final = {
    "tlsallowinvalidcertificates",
    "tlsallowinvalidhostnames",
    "tlsinsecure",
    "ssl_cert_reqs",
}
#: The arguments of the connector that a URL can give, and their types. Case and underscores do not
#: count: the option ``readOnly`` is ``read_only``.
_URL_PARAMETERS: Final[Mapping[str, type]] = {
    "bucket": str,
    "read_only": bool,
    "timeout_seconds": float,
    "chunk_bytes": int,
    "inline_bytes": int,
    "allow_invalid_certificates": bool,
}
#: A document holds at most 16 MiB.
_MAX_DATA_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Settings:
    """The checked configuration of a store.

    Raises:
        ConfigError: a value is invalid. The message holds no part of the connection string.

    Attributes:
        uri: the MongoDB connection string with its credentials, which is never shown; see ``name``.
        database: the database of the collections; by default that of ``uri``, or else
            ``data_stack``.
        bucket: the prefix of the collections: ``bucket.resources`` and so on.
        read_only: whether to refuse writing.
        timeout_seconds: the limit of one operation.
        chunk_bytes: the length of the chunks to write, each of which has a digest.
        inline_bytes: resources up to this length are stored in the document of their version.
        allow_invalid_certificates: whether to accept a server whose certificate cannot be verified.
    """

    uri: str = field(repr=False)
    database: str | None
    bucket: str
    read_only: bool
    timeout_seconds: float
    chunk_bytes: int
    inline_bytes: int
    allow_invalid_certificates: bool

    def __post_init__(self) -> None:
        match = _match_uri(self.uri)
        if self.database is None:
            database = unquote(match["database"] or "") or _DEFAULT_DATABASE
            # The only way to set an attribute of a frozen dataclass.
            object.__setattr__(self, "database", database)
        if not _DATABASE.fullmatch(str(self.database)):
            raise ConfigError(
                "a database name has 1 to 63 characters other than '/\\. \"$*<>:|?'; "
                "check the URL's path"
            )
        if not _BUCKET.fullmatch(self.bucket):
            raise ConfigError(
                "a bucket has 1 to 60 letters, digits or '_.-', without '..', a last dot, or a "
                "leading 'system.'"
            )
        _check_range("timeout_seconds", self.timeout_seconds, 0.1, 86_400)
        _check_range("chunk_bytes", self.chunk_bytes, 1024, _MAX_DATA_BYTES)
        _check_range("inline_bytes", self.inline_bytes, 0, _MAX_DATA_BYTES)
        if self.option_names() & _UNVERIFIED and not self.allow_invalid_certificates:
            raise ConfigError(
                "the connection string turns off the check of the server's certificate; "
                "name the authority with tlsCAFile=…, or accept any server with "
                "allow_invalid_certificates=True"
            )

    @property
    def name(self) -> str:
        """The URL without credentials and options."""
        match = _match_uri(self.uri)
        hosts = match["authority"].rpartition("@")[2]
        return f"{match['scheme']}://{hosts}/{self.database}?bucket={self.bucket}"

    def option_names(self) -> set[str]:
        """Return the names of the options that the connection string sets, in lower case."""
        query = self.uri.partition("?")[2]
        return {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}

    @staticmethod
    def split_url(url: str) -> tuple[str, dict[str, Any]]:
        """Split a URL into its connection string and the arguments of the connector.

        Raises:
            ConfigError: the URL is malformed.
        """
        # This checks the URL before its parts are encoded again.
        _match_uri(url)
        head, _, query = url.partition("?")
        parameters = {parameter.replace("_", ""): parameter for parameter in _URL_PARAMETERS}
        arguments: dict[str, Any] = {}
        driver_options = []
        for name, value in parse_qsl(query, keep_blank_values=True):
            parameter = parameters.get(name.lower())
            if parameter is None:
                driver_options.append((name, value))
            else:
                arguments[parameter] = parse_option(name, value, _URL_PARAMETERS[parameter])
        if not driver_options:
            return head, arguments
        return f"{head}?{urlencode(driver_options, quote_via=quote)}", arguments


def _check_range(name: str, value: float, min_value: float, max_value: float) -> None:
    if not min_value <= value <= max_value:
        raise ConfigError(f"{name} must be between {min_value:,} and {max_value:,}")


def _match_uri(uri: str) -> re.Match[str]:
    """Return the parts of a connection string, with hosts that hold no part of a password.

    Raises:
        ConfigError: the connection string is malformed.
    """
    match = _URI.fullmatch(str(uri))
    if match is None or not _has_proper_hosts(match, str(uri)):
        raise ConfigError(
            "invalid MongoDB connection string; "
            "write mongodb://user:password@host:27017/database with '@:/?#%' in the password "
            "percent-encoded, and '@' in options too"
        )
    if ";" in (match["query"] or ""):
        # The driver may read it as '&', unlike the checks of options here.
        raise ConfigError(
            "options of a connection string are separated by '&'; percent-encode a ';' as '%3B'"
        )
    return match


def _has_proper_hosts(match: re.Match[str], uri: str) -> bool:
    """Return whether the hosts end where they seem to.

    An '@' after the hosts, or a port that is not a number, means that a '/' or '?' of the password
    ended the hosts.
    """
    if "@" in uri[match.end("authority") :]:
        return False
    hosts = match["authority"].rpartition("@")[2].split(",")
    return all(_HOST.fullmatch(host) for host in hosts)
