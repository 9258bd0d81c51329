"""Locks the datasets of a program, and loads them as they were locked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.recipes.nodes import list_origins
from data_stack.exception import ConfigError, DatasetNotFoundError, LockError
from data_stack.io.progress import progress_as
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.reproduce.lock_differences import LoadedSplits
from data_stack.reproduce.lock_file import LockFile, name_plugin, resolve_locked

#: The default path of a lock file.
LOCK_FILE = "data_stack.lock"

#: The environment variable that names the lock file of ``data_stack.load``.
LOCK_VARIABLE = "DATA_STACK_LOCK"


class _Configuration(NamedTuple):
    """A dataset to lock.

    Attributes:
        name: the name of the dataset, or ``name@version``.
        config: the options of the dataset.
    """

    name: str
    config: dict[str, Any]


def lock(
    *names: str,
    path: str | os.PathLike[str] = LOCK_FILE,
    storage: Storage | None = None,
    **stacks: DatasetIteratorIF,
) -> LockFile:
    """Add datasets, and stacks with all their datasets, to a lock file; other entries stay.

    ::

        data_stack.lock(train=train, validate=validate)       # writes data_stack.lock; commit it

    Args:
        names: the names of datasets, with or without a version: ``name@version``.
        path: the lock file; a missing one is created.
        storage: where the datasets are kept; None for the default store.
        stacks: iterators by the names that they have in the lock.

    Raises:
        ConfigError: no recipe can make a stack again; two versions of one dataset are to be locked;
            or an option of a dataset has a value that TOML lacks.
        LockError: the lock file is damaged.
    """
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"lock() takes names of datasets, and stacks by keyword: lock(train=iterator); "
            f"got {names!r:.200}"
        )
    lock_file = LockFile.read(path) if os.path.exists(path) else LockFile()
    datasets = [_Configuration(name, {}) for name in names]
    for stack_name, iterator in stacks.items():
        lock_file.add_stack(stack_name, iterator)
        for dataset in _datasets_of(iterator):
            if dataset not in datasets:
                datasets.append(dataset)

    _check_one_version(dataset.name for dataset in datasets)
    for dataset in datasets:
        lock_file.add(dataset.name, storage=storage, **dataset.config)
    lock_file.write(path)
    return lock_file


def load_by_lock(
    path: str | os.PathLike[str],
    name: str,
    split: str | None,
    storage: Storage | None,
    progress: bool | None,
    **config: Any,
) -> Any:
    """Load the version of a dataset that a lock file names, and compare it with the lock.

    The file is not changed.

    Raises:
        LockError: the dataset is not in the lock, or its samples differ from it.
    """
    lock_file = LockFile.read(path)
    entry = lock_file.entry(name)
    # Without a storage, a registered factory may have its own.
    connector = None if storage is None else as_storage_connector(storage)
    locked_configs = [configuration["config"] for configuration in entry["configurations"]]
    config = _complete_config(name, config, locked_configs)
    try:
        dataset = resolve_locked(name, entry, connector)
    except DatasetNotFoundError as error:
        raise LockError(f"{error} {name_plugin(entry)}") from error
    loaded = dataset.load(split, progress=progress, **config)
    with progress_as(progress):
        loaded_splits = LoadedSplits(config, split)
        differences = list(lock_file.compare(name, dataset, prepares=False, only=loaded_splits))
    problems = [str(difference) for difference in differences if not difference.is_harmless]
    if problems:
        raise LockError("; ".join(problems))
    return loaded


def _datasets_of(iterator: DatasetIteratorIF) -> list[_Configuration]:
    """Return the datasets that a stack reads, in their versions."""
    datasets = []
    for origin in list_origins(iterator)[0]:
        name = origin["name"]
        if origin["version"]:
            name = f"{name}@{origin['version']}"
        datasets.append(_Configuration(name, origin["config"]))
    return datasets


def _check_one_version(names: Iterable[str]) -> None:
    """Check that the names do not name two versions of one dataset.

    Raises:
        ConfigError: they do.
    """
    distinct_names = set(names)
    plain_names = {name.rpartition("@")[0] or name for name in distinct_names}
    if len(plain_names) < len(distinct_names):
        raise ConfigError(
            f"two versions of a dataset cannot be in one lock file; use two files (path=): "
            f"{sorted(distinct_names)}"
        )


def _complete_config(
    name: str, config: Mapping[str, Any], locked_configs: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the options to load a dataset with.

    If the lock has one configuration, its options are the defaults. If it has several, the options
    of the caller are used, without options the locked configuration that has none.

    Args:
        name: the name of the dataset, for the message.
        config: the options of the caller.
        locked_configs: the options of each locked configuration.

    Raises:
        LockError: the lock has several configurations, all with options, and the caller gave none.
    """
    if len(locked_configs) == 1:
        return {**locked_configs[0], **config}
    is_locked_without_options = {} in locked_configs
    if not config and locked_configs and not is_locked_without_options:
        shown_configs = []
        for locked_config in locked_configs:
            options = (f"{key}={value!r:.40}" for key, value in locked_config.items())
            shown_configs.append(", ".join(options))
        raise LockError(
            f"the lock file has {len(locked_configs)} configurations of dataset {name!r}: "
            f"{'; '.join(shown_configs)}. Load it with one of them"
        )
    return dict(config)
