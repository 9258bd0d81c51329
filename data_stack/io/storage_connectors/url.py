"""Storage connectors by URL: ``file:///data``, ``mongodb://host/db``, ``s3://bucket/prefix`` …"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
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

#: Makes the storage connector of a URL.
Connect = Callable[[str], StorageConnector]


def storage_connector_from_url(
    url_or_path: str | os.PathLike[str] | StorageURL,
    *,
    more_schemes: Callable[[], Mapping[str, Connect]] | None = None,
) -> StorageConnector:
    """Make the storage connector that a URL or a path names. Nothing is created or contacted yet.

    Any URL may end with ``?cache=/fast/folder&cacheBytes=50GB``, which caches resources in that
    folder (:class:`CachedStorageConnector`; without ``cacheBytes`` there is no limit).
    ``&cacheFresh=60`` is its ``fresh_seconds``. The other parameters are those of the store.

    Args:
        url_or_path: a folder (``~`` is the home folder), ``file:///absolute/folder``
            (percent-encoded), ``memory://`` (a new, empty store on each call),
            ``mongodb://host/database`` (``mongodb+srv://``), ``s3://bucket/prefix`` (``gs``,
            ``az``, ``abfs``, ``sftp``, ``ssh``, ``hdfs``), or a URL of a scheme that an installed
            plugin brings. A URL may be parsed already.
        more_schemes: returns a function for each further scheme (lower case). It is called only if
            the scheme of the URL is not built in. By default, installed plugins bring the schemes.

    Raises:
        ConfigError: there is no such scheme, or the URL does not name a store. The message holds no
            part of a URL but its scheme, as the rest may be a password.
        MissingDependencyError: the package for this scheme is not installed. The message names the
            extra to install.
        PluginError: the plugin of the scheme failed.
    """
    if isinstance(url_or_path, StorageURL):
        url = url_or_path
        text = str(url)
    else:
        parsed_url = StorageURL.parse(url_or_path)
        if parsed_url is None:
            return _connector_of_path(url_or_path)
        url = parsed_url
        text = os.fsdecode(url_or_path)
    if more_schemes is None:
        more_schemes = _provided_schemes
    connect = _find_connect(url.scheme, more_schemes)
    plain_url, make_cache = split_cache(url)
    if make_cache is None:
        return connect(text)
    return make_cache(connect(str(plain_url)))


def store_at(storage: Any) -> Any:
    """Return the store at a path or URL; anything else as it is."""
    if isinstance(storage, (str, os.PathLike)):
        return storage_connector_from_url(storage)
    return storage


def _connector_of_path(path: str | os.PathLike[str]) -> FileStorageConnector:
    """Make the connector of a folder.

    Raises:
        ConfigError: the path is empty, has a null character, or looks like a URL.
    """
    text = os.fsdecode(path)
    has_known_scheme = text.partition(":")[0].lower() in BUILT_IN_STORAGE_SCHEMES
    if isinstance(path, str) and ("://" in text or has_known_scheme):
        # More likely a mistyped URL than a folder. Its password must not become the name of one.
        raise ConfigError(
            "malformed URL of a store; "
            "write SCHEME://…, for example mongodb://host/database, or a path"
        )
    if not text or "\0" in text:
        raise ConfigError(f"{text!r} is not a valid path of a folder")
    return FileStorageConnector(os.path.expanduser(text))


# ---------------------------------------------------------------------- schemes

_providers: list[Callable[[], Mapping[str, Connect]]] = []


def add_storage_provider(provider: Callable[[], Mapping[str, Connect]]) -> None:
    """Register a function that provides further schemes.

    Registering the same function twice has no effect.

    Args:
        provider: returns, for each scheme (lower case), the function that makes a connector of a
            URL. It is called when a URL has a scheme that is not built in.
    """
    if provider not in _providers:
        _providers.append(provider)


def _provided_schemes() -> dict[str, Connect]:
    """Return the schemes of all providers, those of plugins included.

    So a format opens every URL that ``load`` opens.
    """
    import_providers()
    schemes: dict[str, Connect] = {}
    for provider in _providers:
        schemes.update(provider())
    return schemes


def _find_connect(scheme: str, more_schemes: Callable[[], Mapping[str, Connect]]) -> Connect:
    """Return the function that makes the connector of a URL with this scheme.

    Raises:
        ConfigError: there is no such scheme.
    """
    if scheme in BUILT_IN_STORAGE_SCHEMES:
        return BUILT_IN_STORAGE_SCHEMES[scheme]
    schemes = {**BUILT_IN_STORAGE_SCHEMES, **more_schemes()}
    if scheme not in schemes:
        known = ", ".join(f"{known_scheme}://" for known_scheme in sorted(schemes))
        raise ConfigError(
            f"no storage connector for {scheme}:// URLs{did_you_mean(scheme, schemes)}; "
            f"known are {known}. "
            "Others come with plugins; `data-stack doctor` shows those that are installed."
        )
    return schemes[scheme]


def _from_file_url(url: str) -> FileStorageConnector:
    parsed_url = StorageURL.parse(url)
    if parsed_url is None:
        raise ConfigError("malformed file:// URL; write file:///absolute/folder")
    return FileStorageConnector(parsed_url.local_path())


def _from_memory_url(url: str) -> InMemoryStorageConnector:
    name = url.partition(":")[2].strip("/")
    if name:
        raise ConfigError(
            "memory:// takes no name: each call makes a new store. "
            "To share one, pass an InMemoryStorageConnector"
        )
    return InMemoryStorageConnector()


def _from_mongodb_url(url: str) -> StorageConnector:
    return _from_optional_module("mongodb", "MongoDBStorageConnector", url)


def _from_object_store_url(url: str) -> StorageConnector:
    return _from_optional_module("object_store", "FsspecStorageConnector", url)


def _from_optional_module(module: str, name: str, url: str) -> StorageConnector:
    """Make the connector of a module that needs an optional package.

    Args:
        module: the name of the module in this package, which is imported now.
        name: the name of the class.
        url: the URL of the store.

    Raises:
        MissingDependencyError: the package is not installed.
        ConfigError: the URL is malformed.
    """
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
    except ValueError as error:
        # The error is that of a library that parsed the URL, and its message may quote the URL.
        raise ConfigError(
            f"a {scheme}:// URL is malformed ({type(error).__name__}); "
            "docs/reference/store_urls.md has the URLs of stores"
        ) from None
    return connector


#: The schemes that need no plugin. No plugin can take them.
BUILT_IN_STORAGE_SCHEMES: Final[Mapping[str, Connect]] = {
    "file": _from_file_url,
    "memory": _from_memory_url,
    "mongodb": _from_mongodb_url,
    "mongodb+srv": _from_mongodb_url,
    "s3": _from_object_store_url,
    "s3a": _from_object_store_url,
    "gs": _from_object_store_url,
    "gcs": _from_object_store_url,
    "az": _from_object_store_url,
    "abfs": _from_object_store_url,
    "abfss": _from_object_store_url,
    "sftp": _from_object_store_url,
    "ssh": _from_object_store_url,
    "hdfs": _from_object_store_url,
}


# ---------------------------------------------------------------------- the cache of a URL

#: The parameters of the cache, in lower case: its folder, the limit of its size, and for how many
#: seconds it trusts an answer of the store.
_CACHE_PARAMETERS: Final = ("cache", "cachebytes", "cachefresh")

#: A number of seconds: ``60``, ``0.5``, ``inf``.
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?|inf", re.ASCII)
#: A number of bytes: ``1000``, ``50GB``, ``1.5 TiB``.
_BYTES: Final = re.compile(
    r"""
    (?P<number> [0-9]{1,30} (\.[0-9]{1,30})? ) \s*
    (?P<prefix> [kMGT] )?
    (?P<is_binary> i )?
    B?
    """,
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
#: No file system has larger files.
_MAX_BYTES: Final = (1 << 63) - 1
#: The exponents of the prefixes, in upper case.
_EXPONENTS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


def split_cache(url: StorageURL) -> tuple[StorageURL, Callable[..., StorageConnector] | None]:
    """Split the cache off a URL.

    Returns:
        The URL without ``cache``, ``cacheBytes`` and ``cacheFresh``; and the function that makes
        the cache of a store, ``CachedStorageConnector(store, …)`` with these arguments. It is None
        if the URL has no cache.

    Raises:
        ConfigError: the parameters are malformed.
    """
    parameters = {}
    for name, value in url.parameters():
        if name.lower() in _CACHE_PARAMETERS:
            parameters[name.lower()] = unquote(value, errors="surrogateescape")
    if not parameters:
        return url, None

    folder = parameters.get("cache", "")
    bytes_text = parameters.get("cachebytes")
    seconds_text = parameters.get("cachefresh", "0")
    max_bytes = None if bytes_text is None else parse_bytes(bytes_text)
    is_folder_valid = folder != "" and "\0" not in folder and "://" not in folder
    is_limit_valid = bytes_text is None or max_bytes is not None
    is_time_valid = _SECONDS.fullmatch(seconds_text) is not None
    # A "#" in the name of the folder would cut the rest of the URL off, as its fragment.
    is_complete = not url.fragment
    if not (is_complete and is_folder_valid and is_limit_valid and is_time_valid):
        raise ConfigError(
            f"the cache of a {url.scheme}:// URL is ?cache=/absolute/folder, with '#' as %23, "
            "&cacheBytes=50GB and &cacheFresh=60 (seconds, or inf)"
        )
    make_cache = functools.partial(
        CachedStorageConnector,
        local=os.path.expanduser(folder),
        max_bytes=max_bytes,
        fresh_seconds=float(seconds_text),
    )
    return url.without_parameters(_CACHE_PARAMETERS), make_cache


def parse_bytes(text: str) -> int | None:
    """Parse a number of bytes such as ``"50GB"``, ``"1.5 TiB"`` or ``"1000"``.

    Returns:
        None if the text is malformed, or if the number is less than 1 or too large for a file.
    """
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        return None
    prefix = match["prefix"]
    if match["is_binary"] and not prefix:
        return None
    base = 1024 if match["is_binary"] else 1000
    exponent = 0 if prefix is None else _EXPONENTS[prefix.upper()]
    n_bytes = Decimal(match["number"]) * base**exponent
    if not 1 <= n_bytes <= _MAX_BYTES:
        return None
    return int(n_bytes)
