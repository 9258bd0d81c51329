"""URLs of stores."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from data_stack.exception import ConfigError

# "file:/data" and "memory:" are URLs too; other schemes need "//", for "v1:data" may be a folder.
_URL: Final = re.compile(
    r"(?:(?P<short>file|memory):(?!//)|(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#]*))"
    r"(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?P<fragment>#.*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
#: A URL of an object store or a remote file system. A key may hold "?", "#" and "%", which these stores do not encode;
#: a "?" begins the options only where NAME=VALUE follows.
_KEYED_URL: Final = re.compile(
    r"(?P<scheme>s3a?|gs|gcs|az|abfss?|sftp|ssh|hdfs|viewfs)://(?P<authority>[^/?#]*)"
    r"(?P<path>.*?)((?P<query>\?[a-z][a-z0-9_.-]*=[^#]*)(?P<fragment>#.*)?)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
#: Here the first part of the path is the database.
_DATABASES: Final = ("mongodb", "mongodb+srv")


@dataclass(frozen=True, slots=True, repr=False)
class StorageURL:
    """The parts of a URL as written, percent-encoding included. Its repr shows only the scheme, as the rest may be secret.

    In URLs of object stores and remote file systems (``s3://``, ``gs://``, ``az://``, ``sftp://``,
    ``hdfs://``), the path is the key, character by character: ``s3://bucket/q?x#1.csv`` is the key
    ``q?x#1.csv``. Options are what follows a ``?`` as ``NAME=VALUE``.

    Attributes:
        scheme: in lower case.
        authority: host, bucket or container, with user and password if given; may be empty.
        path: with its leading slash.
        query: with its ``?``; may be empty.
        fragment: with its ``#``; may be empty.
    """

    scheme: str
    authority: str
    path: str
    query: str = ""
    fragment: str = ""

    @classmethod
    def parse(cls, text: Any) -> StorageURL | None:
        """Return the parts of a text; None for a path (a ``Path`` is never a URL).

        Parts that are parsed already are returned as they are.
        """
        if isinstance(text, StorageURL):
            return text
        if not isinstance(text, str):
            return None
        parts = _KEYED_URL.fullmatch(text)
        if parts is None:
            parts = _URL.fullmatch(text)
        if parts is None:
            return None
        scheme = parts["scheme"] or parts["short"]
        return cls(
            scheme.lower(),
            parts["authority"] or "",
            parts["path"],
            parts["query"] or "",
            parts["fragment"] or "",
        )

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}{self.query}{self.fragment}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scheme}://…>"

    @property
    def host(self) -> str:
        """The authority without user and password."""
        return self.authority.rpartition("@")[2]

    @property
    def is_web(self) -> bool:
        """Whether it is a URL of a web server."""
        return self.scheme in ("http", "https")

    def parameters(self) -> list[tuple[str, str]]:
        """Names and values of the query, as written."""
        pairs = [parameter.partition("=") for parameter in self.query[1:].split("&") if parameter]
        return [(name, value) for name, _, value in pairs]

    def without_parameters(self, names: Collection[str]) -> StorageURL:
        """The same URL without some parameters of its query (lower-case names, matched in any case)."""
        kept = [
            each
            for each in self.query[1:].split("&")
            if each and each.partition("=")[0].lower() not in names
        ]
        return replace(self, query="?" + "&".join(kept) if kept else "")

    def without_fragment(self) -> StorageURL:
        """Return the same URL without its fragment."""
        return replace(self, fragment="")

    def local_path(self) -> str:
        """The path on this machine that a ``file:`` URL names.

        Raises:
            ConfigError: it names another host, a relative path, or has a query or fragment.
        """
        if self.authority.lower() not in ("", "localhost") or not self.path.startswith("/"):
            raise ConfigError(
                "a file URL has three slashes and an absolute path: file:///absolute/folder. Or give the path"
            )
        if self.query or self.fragment:
            raise ConfigError(
                "a file URL has no query or fragment here: write '?' as %3F and '#' as %23, or give the path"
            )
        path = unquote(self.path, errors="surrogateescape")
        if "\0" in path:
            raise ConfigError("a file URL cannot hold %00")
        return path


def scheme_of(source: Any) -> str | None:
    """The scheme of a URL, in lower case; None if ``source`` is not a URL."""
    url = StorageURL.parse(source)
    return None if url is None else url.scheme


def split_url(url: str | StorageURL) -> tuple[StorageURL | None, str]:
    """Split a URL into that of a store and a name in it.

    ``mongodb://host/database/sets/train`` is ``sets/train`` of a database,
    ``s3://bucket/sets/train.h5`` is ``train.h5`` of ``s3://bucket/sets``.

    Returns:
        The store's URL, with the parameters, and the name; None and a path for ``file:///…``.

    Raises:
        ConfigError: it has no name in the store. The message shows only the scheme of the URL.
    """
    parts = StorageURL.parse(url)
    if parts is None:
        raise ConfigError("the URL of a store is SCHEME://…; this is not one")
    if parts.scheme == "file":
        return None, parts.local_path()
    scheme = parts.scheme
    if scheme in _DATABASES:
        folder, _, name = parts.path.strip("/").partition("/")
        pattern = f"{scheme}://HOST/DATABASE/NAME"
    else:
        folder, name = _split_key(parts)
        pattern = f"{scheme}://PLACE/NAME"
    if not name:
        raise ConfigError(f"a {scheme}:// URL must name a dataset in the store: {pattern}")
    above = f"/{folder}" if folder or scheme in _DATABASES else ""
    return replace(parts, path=above), name


def _split_key(url: StorageURL) -> tuple[str, str]:
    """Split the path of a URL into a folder and a name in it."""
    if _KEYED_URL.fullmatch(str(url)) is None:
        folder, _, name = url.path.strip("/").rpartition("/")
        return folder, name
    key = url.path.removeprefix("/").rstrip("/")
    folder, _, name = key.rpartition("/")
    # The URL of a store ends without a slash, so the name of "a//b.csv" in "a" is "/b.csv".
    above = folder.rstrip("/")
    if not above:
        return "", key
    return above, folder[len(above) :] + name


def parse_option(name: str, text: str, kind: type) -> Any:
    """The value of an option of a URL: a bool, int, float or non-empty str.

    Raises:
        ConfigError: it is something else; the message does not show it.
    """
    try:
        value = (
            {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            if kind is bool
            else kind(text)
        )
    except (KeyError, ValueError):
        raise ConfigError(
            f"the option {name} of the URL must be {'true or false' if kind is bool else 'a number'}"
        ) from None
    if not text:
        raise ConfigError(f"the option {name} of the URL has no value")
    return value
