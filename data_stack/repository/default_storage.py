"""The default store, and stores by URL with the schemes of plugins."""

from __future__ import annotations

import errno
import os
from typing import Any, TypeAlias

import platformdirs

from data_stack.exception import ConfigError, StorageError
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.url import (
    storage_connector_from_url as storage_connector_from_url,
)

Storage: TypeAlias = "StorageConnector | str | os.PathLike[str]"
"""A store: a connector, or the URL or path of one."""

HOME = "DATA_STACK_HOME"


def default_storage() -> StorageConnector:
    """The store at ``$DATA_STACK_HOME`` (a folder, or a URL), or else in the user's cache folder.

    Raises:
        ConfigError: the variable holds a URL that names no store.
        MissingDependencyError: the package for that kind of store is not installed.
    """
    return storage_connector_from_url(
        os.environ.get(HOME) or platformdirs.user_cache_path("data_stack", appauthor=False)
    )


def as_storage_connector(storage: Storage | None) -> StorageConnector:
    """``storage`` itself if it is a connector; the one at a URL or path; the default one for None.

    Raises:
        ConfigError: it is something else.
    """
    if storage is None:
        return default_storage()
    if isinstance(storage, (str, os.PathLike)):
        return storage_connector_from_url(storage)
    connector: Any = storage
    if not all(
        callable(getattr(connector, name, None))
        for name in ("get_resource", "set_resource", "has_resource")
    ):
        raise ConfigError(
            f"a store is a StorageConnector, a URL or a path, not the {type(storage).__name__} {storage!r:.80}"
        )
    return storage


def existing_storage(storage: Storage | None) -> StorageConnector:
    """As :func:`as_storage_connector`, but a folder named by path or URL must exist.

    Raises:
        ConfigError: ``storage`` is not a store. StorageError: the folder does not exist.
    """
    connector = as_storage_connector(storage)
    if isinstance(storage, (str, os.PathLike)):
        check_there(connector)
    return connector


def check_there(connector: StorageConnector, *, may_be_new: bool = False) -> None:
    """Check that the place of a store exists: a missing one is a wrong name or a disk that is not mounted, not an empty store.

    Args:
        connector: the store; a folder, a database, or one whose connector says what is missing.
        may_be_new: whether the place may be missing.

    Raises:
        StorageError: it does not exist, or the folder is a file.
    """
    store: object = uncached(connector)
    missing: str | None
    if not isinstance(store, StorageConnector):
        return  # a store of a client, which has but the methods of the contract
    if isinstance(store, FileStorageConnector):
        if os.path.isdir(store.root_path):
            return
        if os.path.lexists(store.root_path):
            raise StorageError(
                f"{store.root_path!r} is a file, not the folder of a store; check the path",
                errno.ENOTDIR,
            )
        missing = f"the store {store.root_path!r}"
        advice = "check the path, and whether its disk is mounted"
    elif may_be_new:
        return
    else:
        missing = store.missing_place()
        advice = "check its name"
    if missing is not None and not may_be_new:
        raise StorageError(
            f"{missing} does not exist; {advice}. `data-stack prepare` makes a new one.",
            errno.ENOENT,
        )
