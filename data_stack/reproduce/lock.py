"""A lock file: the exact datasets and stacks of a project, so that another machine can restore them."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import tomli_w

from data_stack import exception
from data_stack.codecs.plain_data import canonical_json, to_plain
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.positions import take
from data_stack.dataset.recipes.nodes import DATASET, list_origins
from data_stack.exception import ConfigError, LockError, PreparationError
from data_stack.factories.declarative import DatasetFactory
from data_stack.io.folder import LocalFolder
from data_stack.io.progress import progress_as
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.places import Place
from data_stack.repository.published import PublishedDataset
from data_stack.repository.repository import default_repository
from data_stack.reproduce import lock_differences as parts
from data_stack.reproduce.lock_differences import Difference, SampleDigests
from data_stack.reproduce.lock_paths import absolute_from, relative_to
from data_stack.reproduce.recipes import from_recipe
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import MAX_BYTES, describe_format, parse_json, parse_toml

LOCK_FILE = "data_stack.lock"
#: The lock file of ``data_stack.load``.
VARIABLE = "DATA_STACK_LOCK"
#: ``0``: do not compare samples where the prepared bytes are those of the lock.
SAMPLES_VARIABLE = "DATA_STACK_LOCK_SAMPLES"
_FORMAT = 1
_Entries: TypeAlias = Mapping[str, Any] | None
_HEADER = "# Which data this work uses. Made by `data-stack lock`; commit it, do not edit it.\n\n"


class LockFile:
    """The contents of a lock file. Reading and checking it never change the file.

    Paths of files in recipes are relative to the lock file on disk, and absolute here.

    Args:
        datasets: of each its version, plugin and libraries, sources, prepared resources, and for each configuration digests of
            its samples.
        stacks: of each its recipe as JSON text, fingerprint, number of samples, and the digest of its indices.
        folder: of the lock file; None for the current folder.
    """

    def __init__(
        self,
        datasets: _Entries = None,
        stacks: _Entries = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.datasets: dict[str, Any] = dict(datasets or {})
        to_absolute = functools.partial(absolute_from, os.path.abspath(folder or os.curdir))
        self.stacks: dict[str, Any] = _with_recipes(stacks or {}, to_absolute)

    # ------------------------------------------------------------------ the file

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> LockFile:
        """Read a lock file.

        Raises:
            LockError: the file is missing, damaged or of another format.
        """
        try:
            with open(path, "rb") as file:
                fields = parse_toml(file.read(MAX_BYTES + 1))
        except (OSError, ValueError) as error:
            is_missing = isinstance(error, FileNotFoundError)
            advice = (
                "Make one with `data-stack lock add NAME`"
                if is_missing
                else "Restore it from version control"
            )
            raise LockError(
                f"the lock file {str(path)!r} cannot be read: {error!s:.200}. {advice}"
            ) from error
        if fields.get("format") != _FORMAT or not _is_whole(fields):
            problem = describe_format(fields.get("format"), _FORMAT)
            raise LockError(
                f"lock file {str(path)!r} {problem}. Restore it from version control, or delete it and lock again"
            )
        return cls(
            fields.get("datasets"), fields.get("stacks"), os.path.dirname(os.path.abspath(path))
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file, sorted, so that version control shows what changed; a crash leaves the old one."""
        folder, name = os.path.split(os.path.abspath(path))
        stacks = _with_recipes(self.stacks, functools.partial(relative_to, folder))
        fields = {"format": _FORMAT, "datasets": _sort(self.datasets), "stacks": _sort(stacks)}
        try:
            text = _HEADER + tomli_w.dumps(fields)
        except TypeError as error:
            raise ConfigError(
                f"an option of a dataset has a value that TOML lacks: {error}; leave it out"
            ) from error
        with LocalFolder(folder).create(name) as file:
            file.write(text.encode())

    # ------------------------------------------------------------------ adding

    def add(self, name: str, *, storage: Storage | None = None, **config: Any) -> None:
        """Add a dataset in a configuration, or renew its entry; it is prepared first if necessary, and all samples are read once.

        Other configurations of it stay in the lock; their samples are read again unless the store remembers their digests.

        Args:
            name: of the dataset, also ``name@version``.
            storage: where it is kept; None for the default store.
            config: its options.

        Raises:
            DatasetNotFoundError, ConfigError, RetrievalError, PreparationError: as for :func:`data_stack.load`.
        """
        dataset = default_repository().resolve(name, storage)
        if isinstance(dataset, (Place, PublishedDataset)):
            raise ConfigError(
                f"{name!r:.200} is a path or URL, which a lock file cannot name; lock a stack that reads it"
            )
        key, factory = dataset.plain_name, dataset.factory
        configs = [each["config"] for each in self.datasets.get(key, {}).get("configurations", ())]
        distinct = {
            canonical_json(each): each for each in (*configs, config)
        }.values()  # in TOML tuples are lists
        opened = [(each, dataset.load(**each)) for each in distinct]
        digests = SampleDigests(key, factory, dataset.distribution)  # of what is prepared now
        locked = []
        for each, loaded in opened:
            splits = loaded if isinstance(loaded, dict) else {"": loaded}
            found = {
                split: digests.of(each, split, functools.partial(splits.__getitem__, split))
                for split in splits
            }
            locked.append({"config": each, "splits": found})
        fields = {
            "version": dataset.version,
            "plugin": dataset.package,
            "libraries": parts.libraries_of(dataset.distribution),
            "sources": parts.sources_of(factory),
            "prepared": parts.prepared_of(factory),
            "configurations": sorted(
                locked, key=lambda each: (len(each["config"]), canonical_json(each["config"]))
            ),
        }
        self.datasets[key] = {
            name: value for name, value in fields.items() if value is not None
        }  # which TOML lacks

    def add_stack(self, name: str, iterator: DatasetIteratorIF) -> None:
        """Add a stack of iterators, or renew its entry.

        Raises:
            ConfigError: no recipe can rebuild it; the message has the reason.
        """
        recipe = as_iterator(iterator).recipe()
        if not recipe["reproducible"]:
            raise ConfigError(
                f"stack {name!r} cannot be locked, as its recipe cannot rebuild it: {'; '.join(recipe['why_not'])}"
            )
        self.stacks[name] = {
            "length": len(iterator),
            "fingerprint": iterator.fingerprint(),
            "indices": _indices_digest(iterator),
            "recipe": absolute_from(os.getcwd(), canonical_json(recipe)),
        }

    # ------------------------------------------------------------------ checking

    def check(self, storage: Storage | None = None) -> list[Difference]:
        """The differences from the lock. Retrieves and prepares nothing.

        Reads all samples once for each version of the code, and compares their digests, which the store remembers; with
        ``DATA_STACK_LOCK_SAMPLES=0`` only where the prepared bytes differ.

        Args:
            storage: where the datasets are kept; None for the default store.
        """
        return list(self._check_datasets(storage, prepares=False))

    def restore(self, storage: Storage | None = None) -> list[Difference]:
        """Retrieve and prepare the datasets in a store, and rebuild the stacks; return the differences as :meth:`check`.

        Args:
            storage: where to keep the datasets; None for the default store.
        """
        found = list(self._check_datasets(storage, prepares=True))
        datasets = {
            each.name: each for each in sorted(found, key=lambda each: not each.is_harmless)
        }
        for name in sorted(self.stacks):
            found += self._check_stack(name, storage, datasets)
        return found

    def entry(self, name: str) -> dict[str, Any]:
        """The entry of a dataset.

        Raises:
            LockError: the lock has no such dataset.
        """
        if name not in self.datasets:
            known = f"{did_you_mean(name, self.datasets)}; it has {', '.join(sorted(self.datasets)) or 'no datasets'}"
            raise LockError(
                f"dataset {name!r:.80} is not in the lock file{known}. Add it with `data-stack lock add {name}`"
            )
        return dict(self.datasets[name])

    def _check_datasets(self, storage: Storage | None, *, prepares: bool) -> Iterator[Difference]:
        connector = (
            None if storage is None else as_storage_connector(storage)
        )  # its errors are not the plugin's
        for name, entry in sorted(self.datasets.items()):
            try:
                dataset = _resolve(name, entry, connector)
                if isinstance(dataset.factory, DatasetFactory):
                    for each in entry["configurations"]:
                        dataset.factory._check_definition().check_config(each["config"])
            except (exception.DatasetNotFoundError, exception.PluginError, ConfigError) as error:
                what = "version" if isinstance(error, exception.RevisionNotFoundError) else "plugin"
                yield Difference(name, what, f"{error} {_name_plugin(entry)}")
            else:
                yield from self._compare(name, dataset, prepares=prepares)

    def _compare(
        self, name: str, dataset: Any, *, prepares: bool, only: tuple[Any, str | None] | None = None
    ) -> Iterator[Difference]:
        entry, factory = self.datasets[name], dataset.factory
        yield from parts.differing_sources(name, entry.get("sources", []), factory)
        if prepares:
            try:
                for each in entry["configurations"]:
                    dataset.load(**each["config"])
            except (
                exception.RetrievalError,
                PreparationError,
                exception.DatasetFileCorruptError,
            ) as error:
                yield Difference(
                    name,
                    "source" if not isinstance(error, PreparationError) else "preparation",
                    str(error),
                )
                return
        elif isinstance(factory, DatasetFactory) and not factory.is_ready():
            reason = factory.readiness().reason
            problem = (
                f"what is stored here cannot be used: {reason}. {parts.ADVICE}"
                if reason
                else parts.UNPREPARED
            )
            yield Difference(name, "preparation", problem)
            return
        compares = os.environ.get(SAMPLES_VARIABLE) != "0"
        yield from parts.differing_samples(
            name, entry, dataset, compares_equal_bytes=compares, only=only
        )

    def _check_stack(
        self, name: str, storage: Storage | None, differences: Mapping[str, Difference]
    ) -> Iterator[Difference]:
        entry = self.stacks[name]
        try:
            recipe = parse_json(entry["recipe"])
            below = [node["arguments"] for node in recipe["nodes"] if node["layer"] == DATASET]
            differing = {
                each["name"]: differences[each["name"]]
                for each in below
                if each["name"] in differences
            }
            if worse := sorted(
                dataset for dataset, each in differing.items() if not each.is_harmless
            ):
                yield Difference(
                    name,
                    "stack",
                    f"the stack differs from the lock, as its datasets differ: {', '.join(worse)}",
                )
                return
            for arguments in below:
                if arguments["name"] in differing:  # of other bytes with the same samples
                    locked = self.datasets[arguments["name"]]
                    factory: Any = _resolve(arguments["name"], locked, storage).factory
                    arguments["resources"] = to_plain(factory.manifest().digests())
            stack = from_recipe(recipe, storage=storage)
        except (
            exception.RecipeError,
            exception.DatasetNotFoundError,
            exception.RetrievalError,
            PreparationError,
        ) as error:
            yield Difference(name, "stack", f"the stack cannot be made: {error}")
            return
        except (KeyError, TypeError, ValueError) as error:
            yield Difference(
                name,
                "stack",
                f"its recipe in the lock is damaged: {error!r:.200}. Restore it from version control",
            )
            return
        is_same = stack.fingerprint() == entry.get("fingerprint") or bool(differing)
        if not is_same or _indices_digest(stack) != entry.get("indices"):
            yield Difference(
                name,
                "stack",
                "the fingerprint or the indices differ from the lock, so the samples differ",
            )
        elif differing:
            message = f"its fingerprint differs, as prepared bytes differ, but all samples of {', '.join(differing)} are equal"
            yield Difference(name, "stack", message, is_harmless=True)


def _with_recipes(stacks: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Stacks with changed recipes; a damaged one is an error when it is made."""
    changed = {
        name: {"recipe": change(each["recipe"])}
        for name, each in stacks.items()
        if isinstance(each.get("recipe"), str)
    }
    return {name: {**each, **changed.get(name, {})} for name, each in stacks.items()}


def _is_whole(fields: Mapping[str, Any]) -> bool:
    """Whether both tables have the form that :meth:`LockFile.write` writes."""
    try:
        stacks, datasets = fields.get("stacks", {}).values(), fields.get("datasets", {}).values()
        tables = [
            table
            for entry in datasets
            for each in entry["configurations"]
            for table in (each["config"], each["splits"])
        ]
    except (AttributeError, KeyError, TypeError):
        return False
    return all(isinstance(each, dict) for each in (*stacks, *tables))


def _name_plugin(entry: Mapping[str, Any]) -> str:
    return f"The lock names the plugin {entry.get('plugin', 'of your own program')}. {parts.advise_code(entry)}"


def _resolve(name: str, entry: Mapping[str, Any], storage: Storage | None) -> Any:
    """The dataset of a lock file in the version of its entry."""
    versioned = name if entry.get("version") is None else f"{name}@{entry['version']}"
    return default_repository().resolve(versioned, storage)


def _indices_digest(iterator: DatasetIteratorIF) -> str:
    """SHA-256 of the positions of the samples in what the stack rearranges; of ``0 … n - 1`` where it rearranges nothing."""
    _, positions = access_to(iterator).unwrap()
    every = np.arange(len(iterator))
    indices = every if positions is None else take(positions, every)
    return hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest()


def _sort(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Sorted at every depth; lists keep their order."""
    return {
        key: _sort(value) if isinstance(value, Mapping) else value
        for key, value in sorted(entries.items())
    }


# ---------------------------------------------------------------------- in a program


def lock(
    *names: str,
    path: str | os.PathLike[str] = LOCK_FILE,
    storage: Storage | None = None,
    **stacks: DatasetIteratorIF,
) -> LockFile:
    """Add datasets, and stacks with all their datasets, to a lock file; entries of other names stay.

    ::

        data_stack.lock(train=train, validate=validate)       # writes data_stack.lock; commit it

    Args:
        names: of datasets.
        path: the file; a missing one is created.
        storage: where the datasets are kept; None for the default store.
        stacks: iterators by the names that they have in the lock.

    Raises:
        ConfigError: no recipe can make a stack again; or stacks have two versions of a dataset, or options that TOML lacks.
        LockError: the file is damaged.
    """
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"lock() takes names of datasets, and stacks by keyword: lock(train=iterator); got {names!r:.200}"
        )
    locked = LockFile.read(path) if os.path.exists(path) else LockFile()
    wanted: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in names]
    for name, iterator in stacks.items():
        locked.add_stack(name, iterator)
        for origin in list_origins(iterator)[0]:
            each = (
                f"{origin['name']}@{origin['version']}" if origin["version"] else origin["name"],
                origin["config"],
            )
            wanted += [] if each in wanted else [each]
    named = {name for name, _ in wanted}
    if len({name.rpartition("@")[0] or name for name in named}) < len(named):
        raise ConfigError(
            f"two versions of a dataset cannot be in one lock file; use two files (path=): {sorted(named)}"
        )
    for name, config in wanted:
        locked.add(name, storage=storage, **config)
    locked.write(path)
    return locked


def load_by_lock(
    path: str | os.PathLike[str],
    name: str,
    split: str | None,
    storage: Storage | None,
    progress: bool | None,
    **config: Any,
) -> Any:
    """Load the version of a dataset that a lock file names, and compare it with the lock; the file is not changed.

    Raises:
        LockError: the dataset is not in the lock, or its samples differ from it.
    """
    locked = LockFile.read(path)
    entry = locked.entry(name)
    connector = (
        None if storage is None else as_storage_connector(storage)
    )  # a registered factory may have its own
    known = [each["config"] for each in entry["configurations"]]
    if len(known) == 1:
        config = {**known[0], **config}
    elif not config and known and all(known):
        shown = "; ".join(
            ", ".join(f"{key}={value!r:.40}" for key, value in each.items()) for each in known
        )
        raise LockError(
            f"the lock file has {len(known)} configurations of dataset {name!r}: {shown}. Load it with one of them"
        )
    try:
        dataset = _resolve(name, entry, connector)
    except exception.DatasetNotFoundError as error:
        raise LockError(f"{error} {_name_plugin(entry)}") from error
    loaded = dataset.load(split, progress=progress, **config)
    with progress_as(progress):
        found = list(locked._compare(name, dataset, prepares=False, only=(config, split)))
    if problems := [str(each) for each in found if not each.is_harmless]:
        raise LockError("; ".join(problems))
    return loaded
