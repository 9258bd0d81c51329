"""Storage connectors by URL: ``file:///data``, ``mongodb://host/db``, ``s3://bucket/prefix``, a plain path, and more."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from data_stack.exception import ConfigError, DataStackError, MissingDependencyError
from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.io.url import StorageURL
from data_stack.util.providers import import_providers
from data_stack.util.suggestions import did_you_mean

Connect = Callable[[str], StorageConnector]
"""Makes a storage connector of a URL of its scheme."""

_BYTES: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)(i?)B?", re.ASCII | re.IGNORECASE)
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?|inf", re.ASCII)
#: Parameters of the cache, in lower case.
_CACHE: Final = ("cache", "cachebytes", "cachefresh")


def storage_connector_from_url(
    url_or_path: str | os.PathLike[str],
    *,
    more_schemes: Callable[[], Mapping[str, Connect]] | None = None,
) -> StorageConnector:
    """Make the storage connector that a URL or a path names; nothing is created or contacted yet.

    Any URL may end with ``?cache=/fast/folder&cacheBytes=50GB``, which caches resources in that folder
    (:class:`CachedStorageConnector`; without ``cacheBytes`` there is no limit); ``&cacheFresh=60`` is its ``fresh_seconds``. The
    other parameters are the store's own.

    Args:
        url_or_path: a folder (``~`` is the home folder), ``file:///absolute/folder`` (percent-encoded),
            ``memory://`` (a new, empty store on each call), ``mongodb://host/database`` (``mongodb+srv://``),
            ``s3://bucket/prefix`` (``gs``, ``az``, ``abfs``, ``sftp``, ``ssh``, ``hdfs``), or a URL of one of ``more_schemes``.
        more_schemes: asked for schemes (lower case) besides the built-in ones, only when the URL
            has another one; by default those of installed plugins.

    Raises:
        ConfigError: no such scheme, or a URL that does not name a store. The message holds no part of a URL but its scheme,
            as the rest may be a password.
        MissingDependencyError: the package for this scheme is not installed; the message names the extra to install.
    """
    text = os.fsdecode(url_or_path)
    url = StorageURL.parse(url_or_path)
    if url is None:
        if isinstance(url_or_path, str) and (
            "://" in text or text.partition(":")[0].lower() in BUILT_IN_STORAGE_SCHEMES
        ):
            # More likely a mistyped URL than a folder, and its password must not become the name of a folder.
            raise ConfigError(
                "malformed URL of a store; write SCHEME://…, for example mongodb://host/database, or a path"
            )
        if not text or "\0" in text:
            raise ConfigError(f"{text!r} is not a valid path of a folder")
        return FileStorageConnector(os.path.expanduser(text))
    scheme, schemes = url.scheme, BUILT_IN_STORAGE_SCHEMES
    if scheme not in schemes:
        schemes = {**schemes, **(more_schemes or _provided_schemes)()}
    if scheme not in schemes:
        known = ", ".join(f"{each}://" for each in sorted(schemes))
        problem = f"no storage connector for {scheme}:// URLs{did_you_mean(scheme, schemes)}; known are {known}"
        raise ConfigError(
            f"{problem}. Others come with plugins; `data-stack doctor` shows those that are installed."
        )
    plain, cached = split_cache(url)
    return schemes[scheme](text) if cached is None else cached(schemes[scheme](str(plain)))


_providers: list[Callable[[], Mapping[str, Connect]]] = []


def add_storage_provider(provider: Callable[[], Mapping[str, Connect]]) -> None:
    """Register a function that returns what makes connectors, by scheme, for schemes that are not built in.

    Registering a provider twice has no effect.
    """
    if provider not in _providers:
        _providers.append(provider)


def _provided_schemes() -> dict[str, Connect]:
    """The schemes of all providers: those of plugins, so that formats know the stores that ``load`` knows."""
    import_providers()
    schemes: dict[str, Connect] = {}
    for provider in _providers:
        schemes.update(provider())
    return schemes


def split_cache(url: StorageURL) -> tuple[StorageURL, Callable[..., StorageConnector] | None]:
    """A URL without ``cache``, ``cacheBytes`` and ``cacheFresh``, and what puts this cache before a store; None without a cache.

    Raises:
        ConfigError: they are malformed.
    """
    parameters = {
        name.lower(): unquote(value, errors="surrogateescape") for name, value in url.parameters()
    }
    if not parameters.keys() & set(_CACHE):
        return url, None
    folder, size, fresh = (parameters.get(name) for name in _CACHE)
    most_bytes, is_time = (
        None if size is None else parse_bytes(size),
        _SECONDS.fullmatch("0" if fresh is None else fresh),
    )
    is_size = size is None or most_bytes is not None
    if not folder or "\0" in folder or "://" in folder or url.fragment or not (is_size and is_time):
        example = "?cache=/absolute/folder, with '#' as %23, &cacheBytes=50GB and &cacheFresh=60 (seconds, or inf)"
        raise ConfigError(f"the cache of a {url.scheme}:// URL is {example}")
    options: dict[str, Any] = {"max_bytes": most_bytes, "fresh_seconds": float(fresh or 0)}
    return url.without_parameters(_CACHE), functools.partial(
        CachedStorageConnector, local=os.path.expanduser(folder), **options
    )


def store_at(storage: Any) -> Any:
    """The store at a path or a URL of a built-in scheme; anything else as it is."""
    return (
        storage_connector_from_url(storage) if isinstance(storage, (str, os.PathLike)) else storage
    )


def parse_bytes(text: str) -> int | None:
    """Parse a number of bytes such as ``"50GB"``, ``"1.5 TiB"`` or ``"1000"``; None if it is malformed or less than 1."""
    number = _BYTES.fullmatch(text.strip())
    if number is None or (number[3] and not number[2]):
        return None
    factor = (1024 if number[3] else 1000) ** " KMGT".index(number[2].upper() or " ")
    return int(float(number[1]) * factor) or None


def _from_file_url(url: str) -> FileStorageConnector:
    parts = StorageURL.parse(url)
    return FileStorageConnector(url if parts is None else parts.local_path())


def _from_memory_url(url: str) -> InMemoryStorageConnector:
    if url.partition(":")[2].strip("/"):
        raise ConfigError(
            "memory:// takes no name: each call makes a new store. To share one, pass an InMemoryStorageConnector"
        )
    return InMemoryStorageConnector()


def _from_module(module: str, name: str, url: str) -> StorageConnector:
    """The connector of a module that needs an optional package, imported on demand."""
    scheme = url.partition(":")[0].lower()
    try:
        connector_class = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    except MissingDependencyError as error:
        extra = "s3" if scheme in ("s3", "s3a") else error.extra
        raise MissingDependencyError(f"{scheme}://", error.package, extra) from error
    try:
        connector: StorageConnector = connector_class.from_url(url)
    except DataStackError:
        raise
    except ValueError as error:  # of another parser, whose message may quote the URL
        raise ConfigError(
            f"a {scheme}:// URL is malformed ({type(error).__name__}); see docs/storage.md"
        ) from None
    return connector


_MONGODB: Final = functools.partial(_from_module, "mongodb", "MongoDBStorageConnector")
_FSSPEC: Final = functools.partial(_from_module, "object_store", "FsspecStorageConnector")

BUILT_IN_STORAGE_SCHEMES: Final[Mapping[str, Connect]] = {
    "file": _from_file_url,
    "memory": _from_memory_url,
    **dict.fromkeys(("mongodb", "mongodb+srv"), _MONGODB),
    **dict.fromkeys(
        ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "sftp", "ssh", "hdfs"), _FSSPEC
    ),
}
"""The schemes that need no plugin; no plugin can take them."""
