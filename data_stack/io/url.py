"""URLs of stores."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from data_stack.exception import ConfigError

#: "file:/data" and "memory:" are URLs too. Other schemes need "//", for "v1:data" may be a folder.
_URL: Final = re.compile(
    r"(?:(?P<short>file|memory):(?!//)|(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#]*))"
    r"(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?P<fragment>#.*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
#: A URL of an object store or a remote file system. A key may hold "?", "#" and "%", which these
#: stores do not encode; a "?" begins the options only where NAME=VALUE follows.
_KEYED_URL: Final = re.compile(
    r"(?P<scheme>s3a?|gs|gcs|az|abfss?|sftp|ssh|hdfs|viewfs)://(?P<authority>[^/?#]*)"
    r"(?P<path>.*?)((?P<query>\?[a-z][a-z0-9_.-]*=[^#]*)(?P<fragment>#.*)?)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
#: In URLs of these schemes the first part of the path is the database.
_DATABASE_SCHEMES: Final = ("mongodb", "mongodb+srv")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True, repr=False)
class StorageURL:
    """The parts of a URL as written, percent-encoding included.

    Its repr shows only the scheme, as the rest may be secret.

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
        """Return the parts of a text.

        Parts that are parsed already are returned as they are.

        Returns:
            None for a path, and for what is not a string (a ``Path`` is never a URL).
        """
        if isinstance(text, StorageURL):
            return text
        if not isinstance(text, str):
            return None
        parts = _KEYED_URL.fullmatch(text) or _URL.fullmatch(text)
        if parts is None:
            return None
        # Only the second pattern has a short form, which has no authority.
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
        """Return names and values of the query, as written."""
        pairs = []
        for parameter in self._written_parameters():
            name, _, value = parameter.partition("=")
            pairs.append((name, value))
        return pairs

    def without_parameters(self, names: Collection[str]) -> StorageURL:
        """Return the same URL without some parameters of its query.

        Args:
            names: the names of the parameters in lower case, matched in any case.
        """
        kept = []
        for parameter in self._written_parameters():
            name = parameter.partition("=")[0]
            if name.lower() not in names:
                kept.append(parameter)
        query = "?" + "&".join(kept) if kept else ""
        return replace(self, query=query)

    def without_fragment(self) -> StorageURL:
        """Return the same URL without its fragment."""
        return replace(self, fragment="")

    def local_path(self) -> str:
        """Return the path on this machine that a ``file:`` URL names.

        Raises:
            ConfigError: the URL names another host or a relative path, or has a query or fragment.
        """
        is_of_this_machine = self.authority.lower() in ("", "localhost")
        if not is_of_this_machine or not self.path.startswith("/"):
            raise ConfigError(
                "a file URL has three slashes and an absolute path: file:///absolute/folder. "
                "Or give the path"
            )
        if self.query or self.fragment:
            raise ConfigError(
                "a file URL has no query or fragment here: "
                "write '?' as %3F and '#' as %23, or give the path"
            )
        path = unquote(self.path, errors="surrogateescape")
        if "\0" in path:
            raise ConfigError("a file URL cannot hold %00")
        return path

    def _written_parameters(self) -> list[str]:
        """Return the parameters of the query as ``NAME=VALUE``."""
        without_question_mark = self.query[1:]
        return [parameter for parameter in without_question_mark.split("&") if parameter]


def scheme_of(source: Any) -> str | None:
    """Return the scheme of a URL, in lower case; None if ``source`` is not a URL."""
    url = StorageURL.parse(source)
    if url is None:
        return None
    return url.scheme


def split_url(url: str | StorageURL) -> tuple[StorageURL | None, str]:
    """Split a URL into that of a store and a name in it.

    ``mongodb://host/database/sets/train`` is ``sets/train`` of ``mongodb://host/database``, and
    ``s3://bucket/sets/train.h5`` is ``train.h5`` of ``s3://bucket/sets``.

    Returns:
        The parsed URL of the store, with the parameters, and the name; None and a path for
        ``file:///…``.

    Raises:
        ConfigError: the URL has no name in the store. The message shows only its scheme.
    """
    parts = StorageURL.parse(url)
    if parts is None:
        raise ConfigError("the URL of a store is SCHEME://…; this is not one")
    if parts.scheme == "file":
        return None, parts.local_path()

    is_database = parts.scheme in _DATABASE_SCHEMES
    if is_database:
        folder, _, name = parts.path.strip("/").partition("/")
    else:
        folder, name = _split_key(parts)
    if not name:
        pattern = "HOST/DATABASE/NAME" if is_database else "PLACE/NAME"
        raise ConfigError(
            f"a {parts.scheme}:// URL must name a dataset in the store: {parts.scheme}://{pattern}"
        )
    store_path = ""
    if folder or is_database:
        store_path = f"/{folder}"
    return replace(parts, path=store_path), name


def _split_key(url: StorageURL) -> tuple[str, str]:
    """Split the path of a URL into a folder and a name in it."""
    if _KEYED_URL.fullmatch(str(url)) is None:
        folder, _, name = url.path.strip("/").rpartition("/")
        return folder, name

    key = url.path.removeprefix("/").rstrip("/")
    folder, _, name = key.rpartition("/")
    # The URL of a store ends without a slash, so the name of "a//b.csv" in "a" is "/b.csv".
    store_folder = folder.rstrip("/")
    if not store_folder:
        return "", key
    extra_slashes = folder[len(store_folder) :]
    return store_folder, extra_slashes + name


def parse_option(name: str, text: str, kind: type) -> Any:
    """Return the value of an option of a URL.

    Args:
        name: the name of the option, for the message.
        text: the value as written.
        kind: bool, int, float or str.

    Raises:
        ConfigError: the value is of another kind, or empty; the message does not show it.
    """
    if not text:
        raise ConfigError(f"the option {name} of the URL has no value")
    if kind is bool:
        if text.lower() not in _BOOLEANS:
            raise ConfigError(f"the option {name} of the URL must be true or false")
        return _BOOLEANS[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"the option {name} of the URL must be a number") from None
