"""Storage connectors by URL: ``file:///data``, ``memory://``, a plain path, and the schemes that plugins bring."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, urlsplit

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

__all__ = ["BUILT_IN_STORAGE_SCHEMES", "Connect", "storage_connector_from_url"]

Connect = Callable[[str], StorageConnector]
"""Makes a storage connector of a URL of its scheme."""

# "file:/data" and "memory:" are URLs too; of other schemes only what has "//" is one, for "v1:data" may be a folder.
_URL: Final = re.compile(r"(file|memory):|([a-z][a-z0-9+.-]*)://", re.ASCII | re.IGNORECASE)


def storage_connector_from_url(
    url_or_path: str | os.PathLike[str], *, more_schemes: Callable[[], Mapping[str, Connect]] = dict
) -> StorageConnector:
    """Make the storage connector that a URL or a path names; nothing is created or contacted yet.

    Args:
        url_or_path: a folder (``~`` is the home folder), ``file:///absolute/folder`` (percent-encoded),
            ``memory://`` (a new, empty store on each call), or a URL of one of ``more_schemes``.
        more_schemes: asked for schemes (lower case) besides these two, only when the URL has another one.

    Raises:
        ConfigError: no such scheme, or a URL that names no folder. The message holds no part of a URL but its scheme,
            as the rest may be a password.
    """
    text = os.fsdecode(url_or_path)
    url = _URL.match(text) if isinstance(url_or_path, str) else None
    if url is None:
        return _folder(text)
    scheme = (url[1] or url[2]).lower()
    schemes: Mapping[str, Connect] = BUILT_IN_STORAGE_SCHEMES
    if scheme not in schemes:
        schemes = {**schemes, **more_schemes()}
    if scheme not in schemes:
        near = difflib.get_close_matches(scheme, schemes, n=1)
        hint = f" (did you mean {near[0]}://?)" if near else ""
        raise ConfigError(
            f"no storage for URLs that begin with {scheme}://{hint}; there are: {', '.join(f'{s}://' for s in sorted(schemes))}. "
            f"Others come with plugins; `data-stack doctor` shows those that are installed."
        )
    return schemes[scheme](text)


def _folder(path: str) -> FileStorageConnector:
    if not path or "\0" in path:
        raise ConfigError(f"{path!r} names no folder to store in")
    return FileStorageConnector(os.path.expanduser(path))


def _from_file_url(url: str) -> FileStorageConnector:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"not a file URL ({error}); write file:///absolute/folder") from None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(
            "a file URL has three slashes and an absolute path: file:///absolute/folder. For other folders give the path"
        )
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        raise ConfigError("a file URL has no query and no fragment: write '?' as %3F and '#' as %23, or give the path")
    path = unquote(parts.path, errors="surrogateescape")
    if "\0" in path:
        raise ConfigError("a file URL cannot hold %00")
    return FileStorageConnector(path)


def _from_memory_url(url: str) -> InMemoryStorageConnector:
    if url.partition(":")[2].strip("/"):
        raise ConfigError("memory:// takes no name: each call makes a new store. To share one, pass an InMemoryStorageConnector")
    return InMemoryStorageConnector()


BUILT_IN_STORAGE_SCHEMES: Final[Mapping[str, Connect]] = MappingProxyType({"file": _from_file_url, "memory": _from_memory_url})
"""The schemes that need no plugin; no plugin can take them."""
