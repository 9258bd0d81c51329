"""The fetchers by the scheme of a source."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from data_stack.exception import ConfigError
from data_stack.io.offline import OFFLINE
from data_stack.io.retriever.file import copy_file, fetch_file
from data_stack.io.retriever.http import fetch_http
from data_stack.io.retriever.package import fetch_package
from data_stack.io.retriever.transfer import Fetch, SourceError

#: A scheme has two letters at least: C: is a drive.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
#: The scheme of a source without one, which is a path.
_PATH: Final = ""

#: Fetchers of sources on this machine.
_LOCAL_FETCHERS: Final[dict[str, Fetch]] = {
    _PATH: fetch_file,
    "file": fetch_file,
    "package": fetch_package,
}
_WEB_FETCHERS: Final[dict[str, Fetch]] = {"http": fetch_http, "https": fetch_http}
#: Fetchers of plugins.
_registered_fetchers: Final[dict[str, Fetch]] = {}


def register_scheme(scheme: str, fetch: Fetch) -> None:
    """Let ``retrieve()`` fetch sources ``scheme:…`` with ``fetch`` in this process; for plugins.

    Raises:
        ConfigError: ``scheme`` is invalid, or taken by another function.
    """
    scheme = scheme.lower()
    if not _SCHEME.fullmatch(f"{scheme}:"):
        raise ConfigError(
            f"{scheme!r} is not a valid scheme: at least two of 'a-z0-9+.-', "
            "beginning with a letter"
        )
    is_built_in = scheme in _LOCAL_FETCHERS or scheme in _WEB_FETCHERS
    # setdefault() decides between threads that register the same scheme at once.
    if is_built_in or _registered_fetchers.setdefault(scheme, fetch) is not fetch:
        raise ConfigError(f"the scheme {scheme!r} is already taken")


@dataclass(frozen=True, slots=True)
class SchemeHandler:
    """What fetches the sources of a scheme.

    Attributes:
        fetch: the fetcher, a function.
        is_local: whether the sources are files of this machine.
    """

    fetch: Fetch
    is_local: bool


def handler_of(
    source: str, fetchers: Mapping[str, Fetch] | None = None, *, offline: bool
) -> SchemeHandler:
    """Return what fetches a source, by its scheme.

    Args:
        source: the source.
        fetchers: fetchers by scheme, ``""`` for paths; None for the built-in and registered ones.
        offline: whether the network must not be used.

    Raises:
        SourceError: the scheme is unknown, or needs the network in spite of ``offline``.
    """
    if fetchers is None:
        fetchers = {**_registered_fetchers, **_WEB_FETCHERS, **_LOCAL_FETCHERS}
    scheme = _scheme_of(source, fetchers)
    if scheme not in fetchers:
        raise SourceError(f"has an unknown scheme; sources may be {_list_schemes(fetchers)}")
    is_local = scheme in _LOCAL_FETCHERS
    if offline and not is_local:
        raise SourceError(f"not tried, as offline=True or {OFFLINE} is set in the environment")
    return SchemeHandler(fetchers[scheme], is_local)


def _scheme_of(source: str, fetchers: Mapping[str, Fetch]) -> str:
    """Return the scheme of a source in lower case; the empty text for a path."""
    match = _SCHEME.match(source)
    if match is None:
        return _PATH
    scheme = match[1].lower()
    if scheme not in fetchers and os.path.lexists(source):
        return _PATH  # a path with a colon in it
    return scheme


def _list_schemes(fetchers: Mapping[str, Fetch]) -> str:
    """Return the schemes for a message, such as ``"file:, https:, paths"``."""
    names = []
    for scheme in fetchers:
        if scheme == _PATH:
            names.append("paths")
        else:
            names.append(f"{scheme}:")
    return ", ".join(sorted(names))


def may_be_resumed(fetch: Fetch, *, has_digest: bool) -> bool:
    """Return whether a later retrieval may resume what a fetcher has written.

    A digest must verify what is resumed. The fetcher of a plugin may learn the digest from its
    source, by :meth:`~data_stack.io.retriever.Transfer.expect`. Copying a file of this machine is
    not worth resuming.

    Args:
        fetch: the fetcher.
        has_digest: whether the definition of the resource has a digest.
    """
    if fetch in (fetch_file, fetch_package, copy_file):
        return False
    if fetch is fetch_http:
        return has_digest
    return True
