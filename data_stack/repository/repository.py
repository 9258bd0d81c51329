"""Datasets by name: a name leads to a factory, a factory to an iterator."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import (
    ConfigError,
    DatasetNotFoundError,
    PluginError,
    RevisionNotFoundError,
)
from data_stack.factories.base_factory import BaseDatasetFactory
from data_stack.factories.catalogue import Catalogue, CatalogueName
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.plugins.installed import PluginRecord
from data_stack.plugins.manager import PluginManager, check_dataset_class, default_manager
from data_stack.repository.catalogues import advise_install, explain_unknown_dataset, list_names
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.places import DatasetDescription, Place, find_in_store, is_place
from data_stack.repository.resolved import FactoryOrClass, NamedDataset, Published, Resolved
from data_stack.util.distributions import distribution_of
from data_stack.util.versions import version_key

_Names: TypeAlias = list[str]  # in the class below, list is a method


class DatasetRepository:
    """Names of datasets, and the factories behind them.

    ``DatasetRepository()`` has only registered datasets; :func:`default_repository` has those of installed plugins too. A
    registered dataset hides a plugin's of the same name.

    Args:
        plugins: provide datasets that are not registered, and catalogues.
        storage: the store for factories that are registered as classes or come from plugins; None for the default one.
    """

    def __init__(
        self, plugins: PluginManager | None = None, storage: Storage | None = None
    ) -> None:
        self._registered: dict[str, FactoryOrClass] = {}
        self._plugins, self._storage = plugins, storage
        self._found: dict[str, BaseDatasetFactory] = {}  # by exact names of catalogues

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {list_names(self.list())}>"

    # ------------------------------------------------------------------ methods of the original DataStack

    def register(
        self, identifier: str, dataset_factory: FactoryOrClass, *, replace: bool = False
    ) -> None:
        """Register a dataset.

        Args:
            identifier: its name.
            dataset_factory: a factory with its own store, or a factory class, which is instantiated with the store of each call.
            replace: whether it may replace a dataset of the same name, also a plugin's. A class that is defined again, by
                running a notebook's cell twice, always may.

        Raises:
            ConfigError: the name is taken, or ``dataset_factory`` is not a factory.
        """
        name: object = identifier
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"the name of a dataset is a string that is not empty, got {name!r:.80}"
            )
        if isinstance(dataset_factory, type):
            check_dataset_class(dataset_factory)
        elif not callable(getattr(dataset_factory, "get_dataset_iterator", None)):
            raise ConfigError(
                f"a factory has a method get_dataset_iterator(config), not {dataset_factory!r:.80} of {identifier!r}"
            )
        present: Any = self._registered.get(identifier) or next(
            iter(self._providers(identifier)), None
        )
        is_redefined = (
            isinstance(present, type)
            and isinstance(dataset_factory, type)
            and (
                (present.__module__, present.__qualname__)
                == (dataset_factory.__module__, dataset_factory.__qualname__)
            )
        )
        if not (present is None or present is dataset_factory or is_redefined or replace):
            raise ConfigError(
                f"the name {identifier!r} is taken ({present!s:.80}); pass replace=True to replace that dataset"
            )
        self._registered[identifier] = dataset_factory

    def get(
        self, identifier: str, config: Mapping[str, Any] | None = None
    ) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """Return what the factory of a dataset returns for ``config``.

        Args:
            identifier: name of the dataset.
            config: passed to the factory, such as ``{"split": "train"}``.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError, LicenseDeniedError: as for :meth:`load`.
        """
        dataset = self.resolve(identifier)
        dataset.check_license()
        return dataset.factory.get_dataset_iterator(config)

    # ------------------------------------------------------------------ more

    def load(
        self,
        identifier: str,
        split: str | Sequence[str] | None = None,
        storage: Storage | None = None,
        *,
        progress: bool | None = None,
        **config: Any,
    ) -> Any:
        """Load the samples of a dataset; prepare them first if necessary.

        Args:
            identifier: name of the dataset; ``"name@version"`` for a certain version, ``"distribution:name"`` where several
                distributions provide the name, ``"scheme:name@version#part"`` for a dataset of a catalogue.
            split: name of the split, or an expression of names, or a list, see :func:`data_stack.load`; None for all splits.
            storage: where the dataset is kept: a connector, a path or a URL; None for the default store.
            progress: draw bars; see :func:`data_stack.load`.
            config: further options of the dataset.

        Returns:
            An InformedDatasetIterator, whose recipe names the dataset, its version, split and options; for a list of splits a
            list of these. For split None: a dict of one for each split, in the dataset's order, or, if the factory declares no
            splits, the one iterator that it returns without a split.

        Raises:
            DatasetNotFoundError: no dataset has that name or version; AmbiguousDatasetError: two plugins have it.
            LicenseDeniedError: the policy of this process denies its license.
            ConfigError: the split (UnknownSplitError), the option or the store does not exist.
            PluginError: its plugin is broken, or returned no samples.
            CatalogueError: its catalogue cannot be asked.
            RetrievalError, PreparationError, StorageError: it could not be prepared.
        """
        return self.resolve(identifier, storage).load(split, progress=progress, **config)

    def resolve(self, identifier: str, storage: Storage | None = None) -> Resolved:
        """Find the dataset of a name; nothing is prepared. All other methods resolve a name once, by this one.

        Imports the plugin of the dataset, asks the catalogue for the exact version of ``"scheme:name"``, and reads the
        description of a published dataset.

        Args:
            identifier: name of the dataset, as for :meth:`load`.
            storage: where the dataset is kept; None for the repository's store. If no dataset has the name, records or Parquet
                that lie there under it are one.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError, CatalogueError: as for :meth:`load`.
            ConfigError: ``storage`` is given, but the factory was registered as an object that has its own store.
        """
        if is_place(identifier):
            return self._resolve_place(identifier)
        try:
            return self._resolve_name(identifier, storage)
        except DatasetNotFoundError:
            if storage is not None and (place := find_in_store(identifier, storage)) is not None:
                return place
            raise

    def get_factory(self, identifier: str, storage: Storage | None = None) -> BaseDatasetFactory:
        """The factory of a dataset, with its store; arguments and errors are those of :meth:`resolve`."""
        return self.resolve(identifier, storage).factory

    def describe(self, identifier: str) -> DatasetDescription:
        """License, splits, options and so on of a dataset; errors are those of :meth:`resolve`."""
        return self.resolve(identifier).describe()

    def remove(self, identifier: str) -> None:
        """Remove a registered dataset; its stored data stays. A plugin's dataset of the same name is visible again.

        Raises:
            DatasetNotFoundError: it is not registered.
        """
        if self._registered.pop(identifier, None) is None:
            hint = (
                "; DATA_STACK_DISABLE_PLUGINS removes datasets of plugins"
                if self._providers(identifier)
                else ""
            )
            raise self._not_found(identifier, f"no dataset {identifier!r:.80} is registered{hint}")

    def list(self) -> _Names:
        """Names of all datasets, sorted; each can be loaded by its name. Imports nothing.

        A name that two distributions provide is listed as ``distribution:name`` for each.
        """
        return sorted({*(name for name in self._installed() if "@" not in name), *self._registered})

    def versions(self, identifier: str) -> _Names:
        """The versions of a dataset that can be loaded, as ``name@version``, the one of plain ``name`` first. Imports its plugin.

        A plugin keeps an old version by another entry point: ``"digits@1.0.0" = "package:OldDigitsFactory"``.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError: as for :meth:`load`.
        """
        return self._versions(self.resolve(identifier))

    # ------------------------------------------------------------------ inside

    def _installed(self) -> _Names:
        return [] if self._plugins is None else self._plugins.dataset_names()

    def _providers(self, name: str) -> Sequence[PluginRecord]:
        return () if self._plugins is None else self._plugins.providers(name)

    def _versions(self, dataset: Resolved) -> _Names:
        names = {*self._registered, *self._installed()}
        kept = sorted(
            (name.rpartition("@")[2] for name in names if name.rpartition("@")[0] == dataset.name),
            key=version_key,
            reverse=True,
        )
        return [each for each in dict.fromkeys([dataset.version, *kept]) if each is not None]

    def _resolve_name(self, identifier: object, storage: Storage | None) -> NamedDataset:
        name, version = str(identifier), ""
        found = self._find(name, storage)
        if found is None and "@" in name:
            name, _, version = name.rpartition("@")
            found = self._find(name, storage)
        if found is None:
            raise self._not_found(
                identifier,
                "" if self._plugins is None else self._plugins.explain_missing_dataset(name),
            )
        if version and found.version != version:
            offered = ", ".join(self._versions(found)) or "no named version"
            advice = f"Install a release of its plugin that has this version, or load {name!r:.80} as it is"
            problem = f"is installed without version {version!r:.40}; it offers: {offered}"
            raise RevisionNotFoundError(f"dataset {name!r:.80} {problem}. {advice}")
        declared = getattr(found.provided, "sources", ())
        definitions = (
            [each for each in declared if isinstance(each, ResourceDefinition)]
            if isinstance(declared, (tuple, list))
            else []
        )
        if self._plugins is not None:
            self._plugins.register_retrievers(
                place for each in definitions for place in each.sources
            )
        return dataclasses.replace(found, name=str(identifier)) if version else found

    def _find(self, name: str, storage: Storage | None) -> NamedDataset | None:
        """The dataset of exactly this name; None if the name is unknown."""
        store = self._storage if storage is None else storage
        if name in self._registered:
            factory = self._registered[name]
            if storage is not None and not isinstance(factory, type):
                advice = (
                    f"register the class {type(factory).__name__} to choose a store when loading"
                )
                raise ConfigError(
                    f"dataset {name!r} was registered with a factory that has its own store; {advice}"
                )
            return NamedDataset(name, factory, store)
        if self._plugins is None:
            return None
        if providers := self._plugins.providers(name):
            package = (providers[0].distribution, providers[0].version)
            return NamedDataset(name, self._plugins.load_dataset(name), store, package)
        parsed = CatalogueName.parse(name)
        catalogue = (
            None if parsed is None else self._plugins.provided("catalogues").get(parsed.scheme)
        )
        return (
            None
            if parsed is None or catalogue is None
            else self._find_in(catalogue, parsed, as_storage_connector(store))
        )

    def _find_in(
        self, catalogue: Catalogue, name: CatalogueName, store: StorageConnector
    ) -> NamedDataset:
        """A dataset of a catalogue, named with its exact version; remembers the last 64."""
        found = self._found.get(str(name)) or catalogue.find(name, store)
        card = getattr(found, "card", None)
        if card is None or card.name != name.folder:
            raise PluginError(
                f"the catalogue {name.scheme!r} returned a card whose name is not {name.folder!r}: {card!r:.200}"
            )
        exact = str(dataclasses.replace(name, version=card.version))
        self._found[exact] = found
        if len(self._found) > 64:
            self._found.pop(next(iter(self._found)), None)
        made = copy.copy(found)
        made.storage_connector = store
        distribution, _, version = (distribution_of(type(found).__module__) or "").partition(" ")
        return NamedDataset(exact, made, store, (distribution, version) if distribution else None)

    def _resolve_place(self, identifier: Any) -> Resolved:
        place = Place(os.fspath(identifier))
        if (found_there := place.find_published()) is None:
            return place
        published, connector = found_there
        name, manifest = published.name, published.manifest
        try:
            found = self._resolve_name(name, connector)
            return Published(
                found.name, found.provided, found.storage, found.package, published.license
            )
        except DatasetNotFoundError as error:
            advice = "it names no package; ask its author for the code"
            if manifest.distribution:
                advice = advise_install(manifest.distribution)
            raise DatasetNotFoundError(
                f"{connector!r} needs the plugin of {name}: {advice}. {error}"
            ) from None

    def _not_found(self, identifier: object, reason: str) -> DatasetNotFoundError:
        return DatasetNotFoundError(
            explain_unknown_dataset(identifier, reason, self.list(), self._plugins)
        )


@functools.cache
def default_repository() -> DatasetRepository:
    """The repository of ``data_stack.load``: installed plugins, and the datasets that this program registers with it."""
    return DatasetRepository(default_manager())


def search_datasets(text: str) -> list[DatasetDescription]:
    """The datasets in which each word of ``text`` is found, those with a word in their name first.

    Imports the plugins; a broken one is found by its name.

    Args:
        text: words; upper and lower case are equal.
    """
    repository = default_repository()
    words, found = text.casefold().split(), list[DatasetDescription]()
    for name in repository.list():
        try:
            each = repository.describe(name)
        except PluginError:
            each = DatasetDescription(name)
        facts = (each.name, each.description, each.license, each.citation, *each.class_names)
        known = " ".join(filter(None, facts)).casefold()
        if all(word in known for word in words):
            found.append(each)
    return sorted(found, key=lambda each: not any(word in each.name for word in words))
