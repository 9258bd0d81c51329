"""Datasets by name: a name leads to a factory, a factory to an iterator."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
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
from data_stack.formats.registry import format_of_file
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.plugins.manager import PluginManager, check_dataset_class, default_manager
from data_stack.plugins.record import PluginRecord
from data_stack.repository.dataset_names import DatasetName, PlaceName, parse_name
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.description import DatasetDescription
from data_stack.repository.missing_datasets import (
    advise_install,
    explain_unknown_dataset,
    list_names,
)
from data_stack.repository.named_dataset import FactoryOrClass, NamedDataset
from data_stack.repository.places import Place, find_in_store
from data_stack.repository.published import (
    Publication,
    PublishedDataset,
    is_published_on_web,
    open_folder,
    open_web,
)
from data_stack.util.distributions import distribution_of
from data_stack.util.made_once import made_once
from data_stack.util.versions import version_key

Resolved: TypeAlias = NamedDataset | PublishedDataset | Place
"""What a name leads to."""

_Names: TypeAlias = list[str]  # in the class below, list is a method

#: Datasets of catalogues that a repository remembers, so that an exact version is asked for once.
_MAX_REMEMBERED = 64


class DatasetRepository:
    """Names of datasets, and the factories behind them.

    ``DatasetRepository()`` has only registered datasets; :func:`default_repository` has those of
    installed plugins too. A registered dataset hides a plugin's of the same name.

    Args:
        plugins: the plugins, which provide datasets that are not registered, and catalogues.
        storage: the store for factories that are registered as classes or come from plugins; None
            for the default one.
    """

    #: What this program registered, by name.
    _registered: dict[str, FactoryOrClass]
    #: Provide datasets and catalogues; None without plugins.
    _plugins: PluginManager | None
    #: The store of calls that name none.
    _storage: Storage | None
    #: The factories of catalogues by their exact names, the one remembered first at the beginning.
    _remembered: OrderedDict[str, BaseDatasetFactory]

    def __init__(
        self, plugins: PluginManager | None = None, storage: Storage | None = None
    ) -> None:
        self._registered = {}
        self._plugins = plugins
        self._storage = storage
        self._remembered = OrderedDict()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {list_names(self.list())}>"

    # ------------------------------------------------------------------ of the original DataStack

    def register(
        self, identifier: str, dataset_factory: FactoryOrClass, *, replace: bool = False
    ) -> None:
        """Register a dataset.

        Args:
            identifier: its name.
            dataset_factory: a factory with its own store, or a factory class, which is instantiated
                with the store of each call.
            replace: whether it may replace a dataset of the same name, also a plugin's. A class
                that is defined again, by running a notebook's cell twice, always may.

        Raises:
            ConfigError: the name is taken, or ``dataset_factory`` is not a factory.
        """
        name: object = identifier
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"the name of a dataset is a string that is not empty, got {name!r:.80}"
            )
        _check_factory(identifier, dataset_factory)
        present = self._find_present(identifier)
        may_replace = replace or _is_same_definition(present, dataset_factory)
        if present is not None and not may_replace:
            raise ConfigError(
                f"the name {identifier!r} is taken ({present!s:.80}); "
                f"pass replace=True to replace that dataset"
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
            DatasetNotFoundError, AmbiguousDatasetError, PluginError, LicenseDeniedError: as for
                :meth:`load`.
        """
        dataset = self.resolve(identifier)
        dataset.check_license()
        return dataset.factory.get_dataset_iterator(config)

    # ------------------------------------------------------------------ by name

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
            identifier: name of the dataset; ``"name@version"`` for a certain version,
                ``"distribution:name"`` where several distributions provide the name,
                ``"scheme:name@version#part"`` for a dataset of a catalogue.
            split: name of the split, or an expression of names, or a list, see
                :func:`data_stack.load`; None for all splits.
            storage: where the dataset is kept: a connector, a path or a URL; None for the default
                store.
            progress: draw bars; see :func:`data_stack.load`.
            config: further options of the dataset.

        Returns:
            An InformedDatasetIterator, whose recipe names the dataset, its version, split and
            options; for a list of splits a list of these. For split None: a dict of one for each
            split, in the dataset's order, or, if the factory declares no splits, the one iterator
            that it returns without a split.

        Raises:
            DatasetNotFoundError: no dataset has that name or version; AmbiguousDatasetError: two
                plugins have it.
            LicenseDeniedError: the policy of this process denies its license.
            ConfigError: the split (UnknownSplitError), the option or the store does not exist.
            PluginError: its plugin is broken, or returned no samples.
            CatalogueError: its catalogue cannot be asked.
            RetrievalError, PreparationError, StorageError: it could not be prepared.
        """
        return self.resolve(identifier, storage).load(split, progress=progress, **config)

    def resolve(self, identifier: str, storage: Storage | None = None) -> Resolved:
        """Find what a name leads to; nothing is prepared.

        All other methods resolve a name once, by this one. It imports the plugin of the dataset,
        asks the catalogue for the exact version of ``"scheme:name"``, and reads the description of
        a published dataset.

        Args:
            identifier: name of the dataset, as for :meth:`load`; or a path or URL.
            storage: where the dataset is kept; None for the repository's store. If no dataset has
                the name, records or Parquet that lie there under it are one. A path or URL is read
                where it lies.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError, CatalogueError: as for
                :meth:`load`.
            ConfigError: ``storage`` is given, but the factory was registered as an object that has
                its own store.
        """
        name = parse_name(identifier)
        if isinstance(name, PlaceName):
            return self._resolve_place(name)
        try:
            return self._resolve_dataset(name, storage)
        except DatasetNotFoundError:
            if storage is None:
                raise
            # A program may have written records or Parquet into the store under this name.
            place = find_in_store(name.text, storage)
            if place is None:
                raise
            return place

    def get_factory(self, identifier: str, storage: Storage | None = None) -> BaseDatasetFactory:
        """Return the factory of a dataset, with its store.

        Arguments and errors are those of :meth:`resolve`.
        """
        return self.resolve(identifier, storage).factory

    def describe(self, identifier: str) -> DatasetDescription:
        """Return license, splits, options and so on; errors are those of :meth:`resolve`."""
        return self.resolve(identifier).describe()

    def remove(self, identifier: str) -> None:
        """Remove a registered dataset; its stored data stays.

        A plugin's dataset of the same name is visible again.

        Raises:
            DatasetNotFoundError: it is not registered.
        """
        if identifier in self._registered:
            del self._registered[identifier]
            return
        reason = f"no dataset {identifier!r:.80} is registered"
        if self._providers(identifier):
            reason += "; DATA_STACK_DISABLE_PLUGINS removes datasets of plugins"
        raise self._not_found(identifier, reason)

    def list(self) -> _Names:
        """Return the names of all datasets, sorted; each can be loaded by its name.

        Imports nothing. A name that two distributions provide is listed as ``distribution:name``
        for each.
        """
        # The names of old versions, "digits@1.0.0", are those of versions().
        installed = [name for name in self._installed() if "@" not in name]
        return sorted({*installed, *self._registered})

    def versions(self, identifier: str) -> _Names:
        """Return the versions of a dataset that can be loaded by ``name@version``.

        The version of plain ``name`` comes first. Imports its plugin. A plugin keeps an old version
        by another entry point: ``"digits@1.0.0" = "package:OldDigitsFactory"``.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError: as for :meth:`load`.
        """
        return self._list_versions(self.resolve(identifier))

    # ------------------------------------------------------------------ names of datasets

    def _resolve_dataset(self, name: DatasetName, storage: Storage | None) -> NamedDataset:
        """Find the dataset of a name.

        Raises:
            DatasetNotFoundError: there is none, or it has another version.
        """
        # First the whole text, as a dataset may be registered as "digits@1.0.0"; then the name
        # without its version.
        dataset = self._find(name.text, storage)
        if dataset is None and name.plain != name.text:
            dataset = self._find(name.plain, storage)
            if dataset is not None and name.version:
                self._check_version(dataset, name)
                dataset = dataclasses.replace(dataset, name=name.text)
        if dataset is None:
            reason = ""
            if self._plugins is not None:
                reason = self._plugins.explain_missing_dataset(name.plain)
            raise self._not_found(name.text, reason)
        self._register_retrievers(dataset)
        return dataset

    def _check_version(self, dataset: NamedDataset, name: DatasetName) -> None:
        if dataset.version == name.version:
            return
        offered = ", ".join(self._list_versions(dataset)) or "no named version"
        raise RevisionNotFoundError(
            f"dataset {name.plain!r:.80} is installed without version {name.version!r:.40}; "
            f"it offers: {offered}. Install a release of its plugin that has this version, or load "
            f"{name.plain!r:.80} as it is"
        )

    def _find(self, name: str, storage: Storage | None) -> NamedDataset | None:
        """Return the dataset of exactly this name; None if the name is unknown."""
        if name in self._registered:
            return self._find_registered(name, storage)
        if self._plugins is None:
            return None
        store = self._choose_store(storage)
        # A dataset of a plugin.
        providers = self._plugins.providers(name)
        if providers:
            factory_class = self._plugins.load_dataset(name)
            return NamedDataset(
                name, factory_class, store, providers[0].distribution, providers[0].version
            )
        # A dataset of a catalogue.
        name_in_catalogue = CatalogueName.parse(name)
        if name_in_catalogue is None:
            return None
        catalogue = self._plugins.provided("catalogues").get(name_in_catalogue.scheme)
        if catalogue is None:
            return None
        return self._find_in_catalogue(catalogue, name_in_catalogue, as_storage_connector(store))

    def _choose_store(self, storage: Storage | None) -> Storage | None:
        """Return the store of a call, or else that of the repository; None for the default one."""
        if storage is None:
            return self._storage
        return storage

    def _find_registered(self, name: str, storage: Storage | None) -> NamedDataset:
        factory = self._registered[name]
        if storage is not None and not isinstance(factory, type):
            raise ConfigError(
                f"dataset {name!r} was registered with a factory that has its own store; "
                f"register the class {type(factory).__name__} to choose a store when loading"
            )
        return NamedDataset(name, factory, self._choose_store(storage))

    def _find_in_catalogue(
        self, catalogue: Catalogue, name: CatalogueName, store: StorageConnector
    ) -> NamedDataset:
        """Return a dataset of a catalogue, named with its exact version."""
        factory = self._remembered.get(str(name))
        if factory is None:
            factory = catalogue.find(name, store)
        card = getattr(factory, "card", None)
        if card is None or card.name != name.folder:
            raise PluginError(
                f"the catalogue {name.scheme!r} returned a card whose name is not "
                f"{name.folder!r}: {card!r:.200}"
            )
        exact_name = str(dataclasses.replace(name, version=card.version))
        self._remember(exact_name, factory)
        with_store = copy.copy(factory)
        with_store.storage_connector = store
        package = distribution_of(type(factory).__module__)
        if not package:
            return NamedDataset(exact_name, with_store, store)
        distribution, _, version = package.partition(" ")
        return NamedDataset(exact_name, with_store, store, distribution, version)

    def _remember(self, exact_name: str, factory: BaseDatasetFactory) -> None:
        """Keep the factory of an exact version, and forget the oldest one if there are many."""
        self._remembered[exact_name] = factory
        if len(self._remembered) > _MAX_REMEMBERED:
            self._remembered.popitem(last=False)

    def _register_retrievers(self, dataset: NamedDataset) -> None:
        """Let ``retrieve()`` fetch the sources of a dataset from schemes that plugins bring."""
        declared = getattr(dataset.provided, "sources", ())
        if self._plugins is None or not isinstance(declared, (tuple, list)):
            return
        places: list[str] = []
        for definition in declared:
            if isinstance(definition, ResourceDefinition):
                places += definition.sources
        self._plugins.register_retrievers(places)

    # ------------------------------------------------------------------ paths and URLs

    def _resolve_place(self, name: PlaceName) -> Resolved:
        """Find what lies at a path or URL: a published dataset, or files."""
        if name.url is not None and is_published_on_web(name.url):
            return self._find_plugin(open_web(name.url))
        place = Place.at(name)
        if format_of_file(place.location.name) is not None and place.location.is_file():
            # Nothing is listed, so that the right to read the file suffices.
            return place
        publication = open_folder(place.location.as_folder())
        if publication is None:
            return place
        return self._find_plugin(publication)

    def _find_plugin(self, publication: Publication) -> PublishedDataset:
        """Return a published dataset with the code of the installed plugin that reads it."""
        description = publication.description
        try:
            dataset = self._resolve_dataset(DatasetName.parse(description.name), publication.store)
        except DatasetNotFoundError as error:
            advice = "it names no package; ask its author for the code"
            if description.manifest.distribution:
                advice = advise_install(description.manifest.distribution)
            raise DatasetNotFoundError(
                f"{publication.store!r} needs the plugin of {description.name}: {advice}. {error}"
            ) from None
        return PublishedDataset(
            name=dataset.name,
            provided=dataset.provided,
            storage=dataset.storage,
            distribution=dataset.distribution,
            distribution_version=dataset.distribution_version,
            license=description.license,
        )

    # ------------------------------------------------------------------ what there is

    def _installed(self) -> _Names:
        """Return the names of the datasets of plugins."""
        if self._plugins is None:
            return []
        return self._plugins.dataset_names()

    def _providers(self, name: str) -> Sequence[PluginRecord]:
        """Return the plugins that provide the dataset of a name."""
        if self._plugins is None:
            return ()
        return self._plugins.providers(name)

    def _find_present(self, name: str) -> FactoryOrClass | PluginRecord | None:
        """Return what has a name now; None if it is free."""
        if name in self._registered:
            return self._registered[name]
        providers = self._providers(name)
        if providers:
            return providers[0]
        return None

    def _list_versions(self, dataset: Resolved) -> _Names:
        """Return the versions of a dataset, each once: its own, then the others, newest first."""
        versions = []
        for name in {*self._registered, *self._installed()}:
            plain, _, version = name.rpartition("@")
            if plain == dataset.name:
                versions.append(version)
        versions.sort(key=version_key, reverse=True)
        if dataset.version is not None:
            versions.insert(0, dataset.version)
        return list(dict.fromkeys(versions))

    def _not_found(self, identifier: str, reason: str) -> DatasetNotFoundError:
        return DatasetNotFoundError(
            explain_unknown_dataset(identifier, reason, self.list(), self._plugins)
        )


def _check_factory(identifier: str, factory: object) -> None:
    """Check that an object is a factory or a factory class.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(factory, type):
        check_dataset_class(factory)
    elif not callable(getattr(factory, "get_dataset_iterator", None)):
        raise ConfigError(
            f"a factory has a method get_dataset_iterator(config), not {factory!r:.80} of "
            f"{identifier!r}"
        )


def _is_same_definition(present: object, new: object) -> bool:
    """Return whether two factories are the same, or classes that the same lines define."""
    if present is new:
        return True
    if not isinstance(present, type) or not isinstance(new, type):
        return False
    return present.__module__ == new.__module__ and present.__qualname__ == new.__qualname__


@made_once
def default_repository() -> DatasetRepository:
    """Return the repository of ``data_stack.load``.

    It has the datasets of installed plugins, and those that this program registers with it.
    """
    return DatasetRepository(default_manager())


def search_datasets(text: str) -> list[DatasetDescription]:
    """Return the datasets in which each word of ``text`` is found.

    Those with a word in their name come first. Imports the plugins; a broken one is found by its
    name.

    Args:
        text: words; upper and lower case are equal.
    """
    repository = default_repository()
    words = text.casefold().split()
    matching = []
    for name in repository.list():
        try:
            description = repository.describe(name)
        except PluginError:
            description = DatasetDescription(name)
        if _has_words(description, words):
            matching.append(description)
    return sorted(matching, key=lambda description: not _is_named_by(description, words))


def _has_words(description: DatasetDescription, words: Sequence[str]) -> bool:
    """Return whether each of some casefolded words is found in a description."""
    facts = [
        description.name,
        description.description,
        description.license or "",
        description.citation or "",
        *description.class_names,
    ]
    text = " ".join(facts).casefold()
    return all(word in text for word in words)


def _is_named_by(description: DatasetDescription, words: Sequence[str]) -> bool:
    """Return whether one of some casefolded words is found in the name of a dataset."""
    name = description.name.casefold()
    return any(word in name for word in words)
