"""The functions that fetch sources, by scheme."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from data_stack.exception import ConfigError
from data_stack.io.offline import OFFLINE
from data_stack.io.retriever.file import copy_file, fetch_file
from data_stack.io.retriever.http import fetch_http
from data_stack.io.retriever.package import fetch_package
from data_stack.io.retriever.transfer import Fetch, SourceError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # two letters at least: C: is a drive


#: Sources without a scheme are paths.
_LOCAL: Final[Mapping[str, Fetch]] = MappingProxyType(
    {"": fetch_file, "file": fetch_file, "package": fetch_package}
)
#: Functions that copy files of this machine, which are not worth resuming.
_COPYING: Final = (fetch_file, fetch_package, copy_file)
HTTP: Final[Mapping[str, Fetch]] = MappingProxyType({"http": fetch_http, "https": fetch_http})
_registered: dict[str, Fetch] = {}


def register_scheme(scheme: str, fetch: Fetch) -> None:
    """Let ``retrieve()`` fetch sources ``scheme:…`` with ``fetch`` in this process; for plugins.

    Raises:
        ConfigError: ``scheme`` is invalid, or taken by another function.
    """
    scheme = scheme.lower()
    if not _SCHEME.fullmatch(scheme + ":"):
        raise ConfigError(
            f"{scheme!r} is not a valid scheme: at least two of 'a-z0-9+.-', beginning with a letter"
        )
    if scheme in _LOCAL or scheme in HTTP or _registered.setdefault(scheme, fetch) is not fetch:
        raise ConfigError(f"the scheme {scheme!r} is already taken")


def fetcher_of(
    source: str, fetchers: Mapping[str, Fetch] | None = None, *, offline: bool
) -> tuple[Fetch, bool]:
    """The function that fetches ``source``, and whether it uses local files only.

    Raises:
        SourceError: the scheme is unknown, or needs the network in spite of ``offline``.
    """
    fetchers = {**_registered, **HTTP, **_LOCAL} if fetchers is None else fetchers
    match = _SCHEME.match(source)
    scheme = match[1].lower() if match else ""
    if scheme not in fetchers and os.path.lexists(source):
        scheme = ""  # a path with a colon in it
    if scheme not in fetchers:
        known = ", ".join(sorted(f"{scheme}:" if scheme else "paths" for scheme in fetchers))
        raise SourceError(f"has an unknown scheme; sources may be {known}")
    if offline and scheme not in _LOCAL:
        raise SourceError(f"not tried, as offline=True or {OFFLINE} is set in the environment")
    return fetchers[scheme], scheme in _LOCAL


def may_be_resumed(fetch: Fetch, *, has_digest: bool) -> bool:
    """Whether what a function fetches may be resumed by a later retrieval, which a digest must verify.

    A function of a plugin may learn the digest from its source: :meth:`Transfer.expect`.
    """
    if fetch is fetch_http:
        return has_digest
    return fetch not in _COPYING
