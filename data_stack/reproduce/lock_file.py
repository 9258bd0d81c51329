"""A lock file: the exact datasets and stacks of a project, which another machine can restore."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import tomli_w

from data_stack.codecs.plain_data import canonical_json, to_plain
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.positions import take
from data_stack.dataset.recipes.nodes import DATASET
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    LockError,
    PluginError,
    PreparationError,
    RecipeError,
    RetrievalError,
    RevisionNotFoundError,
)
from data_stack.factories.declarative import DatasetFactory
from data_stack.io.folder import LocalFolder
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.places import Place
from data_stack.repository.published import PublishedDataset
from data_stack.repository.repository import default_repository
from data_stack.reproduce.lock_differences import (
    NOT_PREPARED_MESSAGE,
    REPAIR_ADVICE,
    Difference,
    LoadedSplits,
    advise_code,
    differing_samples,
    differing_sources,
)
from data_stack.reproduce.lock_entry import libraries_of, prepared_of, sources_of
from data_stack.reproduce.lock_paths import absolute_from, relative_to
from data_stack.reproduce.recipes import from_recipe
from data_stack.reproduce.sample_digests import SampleDigests
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import MAX_BYTES, describe_format, parse_json, parse_toml

#: The environment variable that, with the value ``0``, saves reading the samples of datasets whose
#: prepared bytes equal those of the lock.
SAMPLES_VARIABLE = "DATA_STACK_LOCK_SAMPLES"

#: The version of the format of lock files.
_FORMAT = 1

#: The first lines of a lock file.
_HEADER = "# Which data this work uses. Made by `data-stack lock`; commit it, do not edit it.\n\n"

_Entries: TypeAlias = Mapping[str, Any]


class LockFile:
    """The contents of a lock file. Reading and checking it never change the file.

    The paths of files in recipes are relative to the lock file on disk, and absolute here.

    Args:
        datasets: the entries of datasets by name. An entry has the version, plugin, libraries,
            sources and prepared resources of the dataset, and the digests of its samples in each
            locked configuration.
        stacks: the entries of stacks by name. An entry has the recipe of the stack as JSON text,
            its fingerprint, its number of samples, and the digest of its indices.
        folder: the folder of the lock file; None for the current folder.
    """

    #: The entries of datasets by name.
    datasets: dict[str, Any]

    #: The entries of stacks by name; paths in their recipes are absolute.
    stacks: dict[str, Any]

    def __init__(
        self,
        datasets: _Entries | None = None,
        stacks: _Entries | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        absolute_folder = os.path.abspath(folder or os.curdir)
        self.datasets = dict(datasets or {})
        self.stacks = _with_recipes(stacks or {}, functools.partial(absolute_from, absolute_folder))

    # ------------------------------------------------------------------------------- the file

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
            advice = "Restore it from version control"
            if isinstance(error, FileNotFoundError):
                advice = "Make one with `data-stack lock add NAME`"
            raise LockError(
                f"the lock file {str(path)!r} cannot be read: {error!s:.200}. {advice}"
            ) from error
        if fields.get("format") != _FORMAT or not _has_valid_tables(fields):
            problem = describe_format(fields.get("format"), _FORMAT)
            raise LockError(
                f"lock file {str(path)!r} {problem}. Restore it from version control, or delete it "
                f"and lock again"
            )
        folder = os.path.dirname(os.path.abspath(path))
        return cls(fields.get("datasets"), fields.get("stacks"), folder)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the lock file, sorted, so that version control shows what changed.

        The write is atomic: a crash leaves the old file.

        Raises:
            ConfigError: an option of a dataset has a value that TOML lacks.
        """
        folder, name = os.path.split(os.path.abspath(path))
        stacks = _with_recipes(self.stacks, functools.partial(relative_to, folder))
        fields = {
            "format": _FORMAT,
            "datasets": _sort(self.datasets),
            "stacks": _sort(stacks),
        }
        try:
            text = _HEADER + tomli_w.dumps(fields)
        except TypeError as error:
            raise ConfigError(
                f"an option of a dataset has a value that TOML lacks: {error}; leave it out"
            ) from error
        with LocalFolder(folder).create(name) as file:
            file.write(text.encode())

    # --------------------------------------------------------------------------------- adding

    def add(self, name: str, *, storage: Storage | None = None, **config: Any) -> None:
        """Add a dataset in a configuration, or renew its entry.

        The dataset is prepared first if necessary, and all samples are read once. The other
        configurations in which the dataset is locked are renewed as well; the store may remember
        the digests of their samples.

        Args:
            name: the name of the dataset, or ``name@version``.
            storage: where the dataset is kept; None for the default store.
            config: the options of the dataset.

        Raises:
            DatasetNotFoundError: no such dataset is installed.
            ConfigError: the dataset has no such option, or is a path or URL.
            RetrievalError: a source cannot be retrieved.
            PreparationError: the dataset cannot be prepared.
        """
        dataset = default_repository().resolve(name, storage)
        if isinstance(dataset, (Place, PublishedDataset)):
            raise ConfigError(
                f"{name!r:.200} is a path or URL, which a lock file cannot name; lock a stack that "
                f"reads it"
            )
        key = dataset.plain_name
        factory = dataset.factory

        # All configurations are prepared before anything is digested.
        configs = self._configs_of(key, config)
        loaded_splits = [_as_splits(dataset.load(**config)) for config in configs]

        digests = SampleDigests(key, factory, dataset.distribution)
        configurations = []
        for locked_config, splits in zip(configs, loaded_splits, strict=True):
            locked_splits = {}
            for split in splits:
                load = functools.partial(splits.__getitem__, split)
                locked_splits[split] = digests.of(locked_config, split, load)
            configurations.append({"config": locked_config, "splits": locked_splits})

        entry = {
            "version": dataset.version,
            "plugin": dataset.package,
            "libraries": libraries_of(dataset.distribution),
            "sources": sources_of(factory),
            "prepared": prepared_of(factory),
            "configurations": sorted(configurations, key=_order_of_configuration),
        }
        # TOML has no null, so a missing version or plugin is left out.
        self.datasets[key] = {field: value for field, value in entry.items() if value is not None}

    def _configs_of(self, dataset: str, added_config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the distinct options in which a dataset is locked, with those to add."""
        distinct_configs = {}
        for configuration in self.datasets.get(dataset, {}).get("configurations", ()):
            locked_config = configuration["config"]
            distinct_configs[canonical_json(locked_config)] = locked_config
        # Compared as JSON, for tuples become lists in TOML.
        distinct_configs[canonical_json(added_config)] = added_config
        return list(distinct_configs.values())

    def add_stack(self, name: str, iterator: DatasetIteratorIF) -> None:
        """Add a stack of iterators, or renew its entry.

        Raises:
            ConfigError: no recipe can rebuild the stack; the message says why.
        """
        recipe = as_iterator(iterator).recipe()
        if not recipe["reproducible"]:
            raise ConfigError(
                f"stack {name!r} cannot be locked, as its recipe cannot rebuild it: "
                f"{'; '.join(recipe['why_not'])}"
            )
        self.stacks[name] = {
            "length": len(iterator),
            "fingerprint": iterator.fingerprint(),
            "indices": _indices_digest(iterator),
            "recipe": absolute_from(os.getcwd(), canonical_json(recipe)),
        }

    # ------------------------------------------------------------------------------- checking

    def check(self, storage: Storage | None = None) -> list[Difference]:
        """Return the differences of all datasets from the lock. Retrieve and prepare nothing.

        The digests of all samples are compared. The store remembers them, so samples are read once
        for each version of the code. With ``DATA_STACK_LOCK_SAMPLES=0`` the samples are compared
        only where the prepared bytes differ.

        Args:
            storage: where the datasets are kept; None for the default store.
        """
        return list(self._check_datasets(storage, prepares=False))

    def restore(self, storage: Storage | None = None) -> list[Difference]:
        """Retrieve and prepare the datasets in a store, and rebuild the stacks.

        Args:
            storage: where to keep the datasets; None for the default store.

        Returns:
            The differences from the lock.
        """
        differences = list(self._check_datasets(storage, prepares=True))
        worst_differences = _find_worst_differences(differences)
        for name in sorted(self.stacks):
            differences += self._check_stack(name, storage, worst_differences)
        return differences

    def entry(self, name: str) -> dict[str, Any]:
        """Return the entry of a dataset.

        Raises:
            LockError: the lock has no such dataset.
        """
        if name not in self.datasets:
            suggestion = did_you_mean(name, self.datasets)
            names = ", ".join(sorted(self.datasets)) or "no datasets"
            raise LockError(
                f"dataset {name!r:.80} is not in the lock file{suggestion}; it has {names}. "
                f"Add it with `data-stack lock add {name}`"
            )
        return dict(self.datasets[name])

    def compare(
        self,
        name: str,
        dataset: Any,
        *,
        prepares: bool,
        only: LoadedSplits | None = None,
    ) -> Iterator[Difference]:
        """Yield the differences of a dataset from its entry.

        Args:
            name: the name of the dataset in the lock.
            dataset: the dataset, as the repository resolves it.
            prepares: whether to prepare the dataset.
            only: compare only the samples that a program loads; None: all locked samples.
        """
        entry = self.datasets[name]
        factory = dataset.factory
        yield from differing_sources(name, entry.get("sources", []), factory)
        if prepares:
            problem = _prepare(name, entry, dataset)
        else:
            problem = _why_not_prepared(name, factory)
        if problem is not None:
            yield problem
            return
        yield from differing_samples(
            name,
            entry,
            dataset,
            compares_equal_bytes=os.environ.get(SAMPLES_VARIABLE) != "0",
            only=only,
        )

    def _check_datasets(self, storage: Storage | None, *, prepares: bool) -> Iterator[Difference]:
        """Yield the differences of all datasets, also of those that cannot be resolved."""
        # Made here, so that its errors are not taken for those of a plugin.
        connector = None if storage is None else as_storage_connector(storage)
        for name, entry in sorted(self.datasets.items()):
            try:
                dataset = resolve_locked(name, entry, connector)
                if isinstance(dataset.factory, DatasetFactory):
                    definition = dataset.factory._check_definition()
                    for configuration in entry["configurations"]:
                        definition.check_config(configuration["config"])
            except RevisionNotFoundError as error:
                yield Difference(name, "version", f"{error} {name_plugin(entry)}")
                continue
            except (DatasetNotFoundError, PluginError, ConfigError) as error:
                yield Difference(name, "plugin", f"{error} {name_plugin(entry)}")
                continue
            yield from self.compare(name, dataset, prepares=prepares)

    def _check_stack(
        self, name: str, storage: Storage | None, differences: Mapping[str, Difference]
    ) -> Iterator[Difference]:
        """Rebuild a stack, and yield its difference from the lock.

        Args:
            name: the name of the stack.
            storage: where the datasets of the stack are kept.
            differences: the worst difference of each dataset that differs.
        """
        entry = self.stacks[name]
        try:
            recipe = parse_json(entry["recipe"])
            origins = [node["arguments"] for node in recipe["nodes"] if node["layer"] == DATASET]
            names_of_datasets = dict.fromkeys(origin["name"] for origin in origins)
            differing = [dataset for dataset in names_of_datasets if dataset in differences]
            with_other_samples = sorted(
                dataset for dataset in differing if not differences[dataset].is_harmless
            )
            if with_other_samples:
                message = (
                    f"the stack differs from the lock, as its datasets differ: "
                    f"{', '.join(with_other_samples)}"
                )
                yield Difference(name, "stack", message)
                return
            for origin in origins:
                if origin["name"] in differing:
                    self._name_digests_here(origin, storage)
            stack = from_recipe(recipe, storage=storage)
        except (RecipeError, DatasetNotFoundError, RetrievalError, PreparationError) as error:
            yield Difference(name, "stack", f"the stack cannot be made: {error}")
            return
        except (KeyError, TypeError, ValueError) as error:
            message = (
                f"its recipe in the lock is damaged: {error!r:.200}. Restore it from version "
                f"control"
            )
            yield Difference(name, "stack", message)
            return

        # Where datasets differ harmlessly, the fingerprint names other bytes.
        has_same_samples = bool(differing) or stack.fingerprint() == entry.get("fingerprint")
        if not has_same_samples or _indices_digest(stack) != entry.get("indices"):
            message = "the fingerprint or the indices differ from the lock, so the samples differ"
            yield Difference(name, "stack", message)
        elif differing:
            message = (
                f"its fingerprint differs, as prepared bytes differ, but all samples of "
                f"{', '.join(differing)} are equal"
            )
            yield Difference(name, "stack", message, is_harmless=True)

    def _name_digests_here(self, origin: dict[str, Any], storage: Storage | None) -> None:
        """Let a recipe accept a dataset whose bytes differ from the lock, but not its samples.

        Args:
            origin: the arguments of the dataset in the recipe, with the digests of the locked
                bytes. They get the digests of the bytes that are stored here.
            storage: where the dataset is kept.
        """
        name = origin["name"]
        factory: Any = resolve_locked(name, self.datasets[name], storage).factory
        origin["resources"] = to_plain(factory.manifest().digests())


# ---------------------------------------------------------------------------------- of one entry


def _find_worst_differences(differences: Iterable[Difference]) -> dict[str, Difference]:
    """Return one difference for each dataset that differs: a harmful one if it has any."""
    worst_differences: dict[str, Difference] = {}
    for difference in differences:
        known_difference = worst_differences.get(difference.name)
        if known_difference is None or known_difference.is_harmless:
            worst_differences[difference.name] = difference
    return worst_differences


def resolve_locked(name: str, entry: Mapping[str, Any], storage: Storage | None) -> Any:
    """Return the dataset of a lock file in the version of its entry."""
    version = entry.get("version")
    versioned_name = name if version is None else f"{name}@{version}"
    return default_repository().resolve(versioned_name, storage)


def name_plugin(entry: Mapping[str, Any]) -> str:
    """Return two sentences for a message: which plugin the lock names, and how to get it."""
    plugin = entry.get("plugin", "of your own program")
    return f"The lock names the plugin {plugin}. {advise_code(entry)}"


def _prepare(name: str, entry: Mapping[str, Any], dataset: Any) -> Difference | None:
    """Prepare a dataset in all locked configurations; return what went wrong, if anything did."""
    try:
        for configuration in entry["configurations"]:
            dataset.load(**configuration["config"])
    except PreparationError as error:
        return Difference(name, "preparation", str(error))
    except (RetrievalError, DatasetFileCorruptError) as error:
        return Difference(name, "source", str(error))
    return None


def _why_not_prepared(name: str, factory: Any) -> Difference | None:
    """Return a difference that says why a dataset must be prepared; None if it is ready."""
    if not isinstance(factory, DatasetFactory) or factory.is_ready():
        return None
    message = NOT_PREPARED_MESSAGE
    reason = factory.readiness().reason
    if reason:
        message = f"what is stored here cannot be used: {reason}. {REPAIR_ADVICE}"
    return Difference(name, "preparation", message)


def _as_splits(loaded: Any) -> dict[str, DatasetIteratorIF]:
    """Return the splits of what was loaded; a dataset without splits is one with an empty name."""
    if isinstance(loaded, dict):
        return loaded
    return {"": loaded}


def _order_of_configuration(configuration: Mapping[str, Any]) -> tuple[int, str]:
    """Return the key by which configurations are sorted: those with the fewest options first."""
    config = configuration["config"]
    return len(config), canonical_json(config)


def _indices_digest(iterator: DatasetIteratorIF) -> str:
    """Return the SHA-256 of the positions from which a stack takes its samples.

    They are positions in the iterator that the stack selects from and reorders, as int64,
    little-endian; ``0 … n - 1`` if the stack does neither.
    """
    _, positions = access_to(iterator).unwrap()
    every_position = np.arange(len(iterator))
    indices = every_position if positions is None else take(positions, every_position)
    return hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest()


# ------------------------------------------------------------------------------------- the tables


def _with_recipes(stacks: _Entries, change: Callable[[str], str]) -> dict[str, Any]:
    """Return the entries of stacks with changed recipes.

    A damaged entry stays as it is, and is an error when its stack is made.
    """
    changed_stacks = {}
    for name, entry in stacks.items():
        changed_stacks[name] = entry
        if isinstance(entry.get("recipe"), str):
            changed_stacks[name] = {**entry, "recipe": change(entry["recipe"])}
    return changed_stacks


def _has_valid_tables(fields: Mapping[str, Any]) -> bool:
    """Return whether both tables have the form that :meth:`LockFile.write` writes."""
    try:
        tables = list(fields.get("stacks", {}).values())
        for entry in fields.get("datasets", {}).values():
            for configuration in entry["configurations"]:
                tables.append(configuration["config"])
                tables.append(configuration["splits"])
    except (AttributeError, KeyError, TypeError):
        return False
    return all(isinstance(table, dict) for table in tables)


def _sort(entries: _Entries) -> dict[str, Any]:
    """Return tables that are sorted at every depth; lists keep their order."""
    sorted_entries = {}
    for key, value in sorted(entries.items()):
        sorted_entries[key] = _sort(value) if isinstance(value, Mapping) else value
    return sorted_entries
