"""The stores that users name: the default one, or a connector, path or URL."""

from __future__ import annotations

import errno
import os
from typing import TypeAlias

import platformdirs

from data_stack.exception import ConfigError, StorageError
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import StorageConnector, has_required_methods
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.url import (
    storage_connector_from_url as storage_connector_from_url,
)

Storage: TypeAlias = "StorageConnector | str | os.PathLike[str]"
"""A store: a connector, or the URL or path of one."""

#: The variable of the environment with the default store: a folder or a URL.
HOME = "DATA_STACK_HOME"


def default_storage() -> StorageConnector:
    """Return the store at ``$DATA_STACK_HOME``, or else the one in the user's cache folder.

    Raises:
        ConfigError: the variable holds a URL that names no store.
        MissingDependencyError: the package for that kind of store is not installed.
    """
    home = os.environ.get(HOME)
    if home:
        return storage_connector_from_url(home)
    return storage_connector_from_url(platformdirs.user_cache_path("data_stack", appauthor=False))


def as_storage_connector(storage: Storage | None) -> StorageConnector:
    """Return a connector as it is, the one at a path or URL, or the default one for None.

    Raises:
        ConfigError: ``storage`` is something else.
    """
    if storage is None:
        return default_storage()
    if isinstance(storage, (str, os.PathLike)):
        return storage_connector_from_url(storage)
    # A store of a client need not be derived from StorageConnector.
    if not has_required_methods(storage):
        raise ConfigError(
            f"a store is a StorageConnector, a URL or a path, not the "
            f"{type(storage).__name__} {storage!r:.80}"
        )
    return storage


def existing_storage(storage: Storage | None) -> StorageConnector:
    """Return a store as :func:`as_storage_connector` does; a path or URL must exist.

    Raises:
        ConfigError: ``storage`` is not a store.
        StorageError: the place of the store does not exist.
    """
    connector = as_storage_connector(storage)
    if isinstance(storage, (str, os.PathLike)):
        check_there(connector)
    return connector


def check_there(connector: StorageConnector, *, may_be_new: bool = False) -> None:
    """Check that the place of a store exists.

    A missing place is a wrong name or a disk that is not mounted, not an empty store.

    Args:
        connector: the store; a folder, a database, or one whose connector says what is missing.
        may_be_new: whether the place may be missing.

    Raises:
        StorageError: the place does not exist, or is a file where a folder is expected.
    """
    store: object = uncached(connector)
    if isinstance(store, FileStorageConnector):
        _check_folder(store.root_path, may_be_new=may_be_new)
    elif isinstance(store, StorageConnector) and not may_be_new:
        # (A store of a client may lack missing_place().)
        missing = store.missing_place()
        if missing is not None:
            raise _missing_error(missing, "check its name")


def _check_folder(path: str, *, may_be_new: bool) -> None:
    if os.path.isdir(path):
        return
    if os.path.lexists(path):
        raise StorageError(
            f"{path!r} is a file, not the folder of a store; check the path", errno.ENOTDIR
        )
    if not may_be_new:
        advice = "check the path, and whether its disk is mounted"
        raise _missing_error(f"the store {path!r}", advice)


def _missing_error(missing: str, advice: str) -> StorageError:
    return StorageError(
        f"{missing} does not exist; {advice}. `data-stack prepare` makes a new one.", errno.ENOENT
    )
