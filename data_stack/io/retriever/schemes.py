"""The functions that fetch sources, by the scheme of a source."""

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

#: Functions for sources on this machine.
_LOCAL_FETCHES: Final[dict[str, Fetch]] = {
    _PATH: fetch_file,
    "file": fetch_file,
    "package": fetch_package,
}
_WEB_FETCHES: Final[dict[str, Fetch]] = {"http": fetch_http, "https": fetch_http}
#: Functions of plugins.
_registered_fetches: Final[dict[str, Fetch]] = {}


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
    is_built_in = scheme in _LOCAL_FETCHES or scheme in _WEB_FETCHES
    if is_built_in or _registered_fetches.setdefault(scheme, fetch) is not fetch:
        raise ConfigError(f"the scheme {scheme!r} is already taken")


@dataclass(frozen=True, slots=True)
class Fetcher:
    """How the sources of a scheme are fetched.

    Attributes:
        fetch: the function.
        is_local: whether it uses files of this machine only.
    """

    fetch: Fetch
    is_local: bool


def fetcher_of(
    source: str, fetches: Mapping[str, Fetch] | None = None, *, offline: bool
) -> Fetcher:
    """Return how a source is fetched.

    Args:
        source: the source.
        fetches: functions by scheme, ``""`` for paths; None for the built-in and registered ones.
        offline: whether the network must not be used.

    Raises:
        SourceError: the scheme is unknown, or needs the network in spite of ``offline``.
    """
    if fetches is None:
        fetches = {**_registered_fetches, **_WEB_FETCHES, **_LOCAL_FETCHES}
    scheme = _scheme_of(source, fetches)
    if scheme not in fetches:
        names = sorted(f"{known}:" if known else "paths" for known in fetches)
        raise SourceError(f"has an unknown scheme; sources may be {', '.join(names)}")
    is_local = scheme in _LOCAL_FETCHES
    if offline and not is_local:
        raise SourceError(f"not tried, as offline=True or {OFFLINE} is set in the environment")
    return Fetcher(fetches[scheme], is_local)


def _scheme_of(source: str, fetches: Mapping[str, Fetch]) -> str:
    match = _SCHEME.match(source)
    if match is None:
        return _PATH
    scheme = match[1].lower()
    if scheme not in fetches and os.path.lexists(source):
        return _PATH  # a path with a colon in it
    return scheme


def may_be_resumed(fetch: Fetch, *, has_digest: bool) -> bool:
    """Return whether a later retrieval may resume what a function fetches.

    A digest must verify what is resumed. A function of a plugin may learn the digest from its
    source, by :meth:`~data_stack.io.retriever.Transfer.expect`. Copying a file of this machine is
    not worth resuming.
    """
    if fetch in (fetch_file, fetch_package, copy_file):
        return False
    if fetch is fetch_http:
        return has_digest
    return True
