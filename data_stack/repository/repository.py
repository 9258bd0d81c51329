"""Datasets by name: a name leads to a factory, a factory to an iterator."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from data_stack.exception import (
    AmbiguousDatasetError,
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    PluginError,
    RevisionNotFoundError,
)
from data_stack.factories.manifest import Manifest
from data_stack.io.progress import progress_as
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.plugins.dataset_class import check_dataset_class, make_factory
from data_stack.plugins.manager import PluginManager, default_manager
from data_stack.plugins.record import PluginRecord
from data_stack.repository.catalogues import Catalogues
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.description import DatasetDescription
from data_stack.repository.places import find_published, is_place, open_place, splits_of_place
from data_stack.repository.policy import current_policies
from data_stack.repository.split_expressions import load_expression
from data_stack.repository.unknown_names import explain_unknown_dataset, install_command, list_names
from data_stack.util.distributions import distributions_of

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIteratorIF
    from data_stack.dataset.meta import IteratorMeta
    from data_stack.factories.catalogue_name import CatalogueName
    from data_stack.factories.factory import BaseDatasetFactory
    from data_stack.io.storage_connectors import StorageConnector
    from data_stack.repository.published import PublishedDataset

__all__ = ["DatasetDescription", "DatasetRepository", "default_repository"]

_Factory: TypeAlias = "BaseDatasetFactory | type[BaseDatasetFactory]"
_Names: TypeAlias = list[str]  # in the class below, list is a method


class DatasetRepository:
    """Names of datasets, and the factories behind them.

    ``DatasetRepository()`` has only registered datasets; :func:`default_repository` has those of installed plugins too. A
    registered dataset hides a plugin's of the same name.

    Args:
        plugins: provide datasets that are not registered, and catalogues.
        storage: the store for factories that are registered as classes or come from plugins; None for the default one.
    """

    def __init__(self, plugins: PluginManager | None = None, storage: Storage | None = None) -> None:
        self._registered: dict[str, _Factory] = {}
        self._plugins = plugins
        self._catalogues = Catalogues(plugins or PluginManager())
        self._storage = storage

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {list_names(self.list())}>"

    # ------------------------------------------------------------------ the original's methods

    def register(self, identifier: str, dataset_factory: _Factory, *, replace: bool = False) -> None:
        """Register a dataset.

        Args:
            identifier: its name.
            dataset_factory: a factory with its own store, or a factory class, which is instantiated with the store of each call.
            replace: whether it may replace a dataset of that name, registered or a plugin's. A class that is defined again, by
                running a notebook's cell twice, always may.

        Raises:
            ConfigError: the name is taken, or ``dataset_factory`` is not a factory.
        """
        name: object = identifier
        if not isinstance(name, str) or not name:
            raise ConfigError(f"the name of a dataset is a string that is not empty, got {name!r:.80}")
        if isinstance(dataset_factory, type):
            check_dataset_class(dataset_factory)
        elif not callable(getattr(dataset_factory, "get_dataset_iterator", None)):
            raise ConfigError(
                f"dataset {identifier!r} needs a factory, with a method get_dataset_iterator(config), got {dataset_factory!r:.80}"
            )
        present = self._registered.get(identifier) or self._provider(identifier)
        is_free = present is None or present is dataset_factory or _is_redefined(present, dataset_factory)
        if not (is_free or replace):
            raise ConfigError(f"dataset {identifier!r} is already there ({present!s:.80}); pass replace=True to replace it")
        self._registered[identifier] = dataset_factory

    def get(self, identifier: str, config: Mapping[str, Any] | None = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """Return what the factory of a dataset returns for ``config``.

        Args:
            identifier: name of the dataset.
            config: passed to the factory, such as ``{"split": "train"}``.

        Raises:
            DatasetNotFoundError: no dataset has that name; AmbiguousDatasetError: two plugins have it.
            PluginError: its plugin is broken.
        """
        self.check_licence(identifier)
        return self.get_factory(identifier).get_dataset_iterator(config)

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
            LicenceDeniedError: the policy of this process denies its licence.
            ConfigError: there is no such split (UnknownSplitError) or option, or no such store.
            PluginError: its plugin is broken, or returned no samples.
            CatalogueError: its catalogue cannot be asked.
            RetrievalError, PreparationError, StorageError: it could not be prepared.
        """
        if is_place(identifier):
            if (published := find_published(identifier)) is not None:
                return self._load_published(*published, split, config)

            def open_split(name: str | None) -> Any:
                with progress_as(progress):
                    return open_place(identifier, name, **config)

            return load_expression(open_split, split, lambda: splits_of_place(identifier, config.get("format")))
        identifier = self.pin(identifier, storage)
        self.check_licence(identifier)
        factory = self.get_factory(identifier, storage)

        def load_split(name: str | None) -> Any:
            if name is None and splits:
                from data_stack.show.splits import Splits

                return Splits({each: load_split(each) for each in splits})
            with progress_as(progress):
                given = factory.get_dataset_iterator(config if name is None else {"split": name, **config})
            return _add_meta(identifier, name, given, factory, origin=self._origin(identifier, factory, name, config))

        splits = _splits(factory)
        return load_expression(load_split, split, lambda: splits or None)

    def get_factory(self, identifier: str, storage: Storage | None = None) -> BaseDatasetFactory:
        """The factory of a dataset; nothing is prepared.

        Args:
            identifier: name of the dataset.
            storage: where to keep the dataset; None for the repository's store.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError: as for :meth:`load`.
            ConfigError: a store is given, but the factory was registered as an object that has its own.
        """
        if is_place(identifier):
            raise ConfigError(
                f"{str(identifier)!r:.200} is a file or folder, which is opened as it lies: load, show or browse it"
            )
        factory = self._factory_or_class(identifier, storage)
        if self._plugins is not None:
            self._plugins.register_retrievers(_sources(factory))
        if isinstance(factory, type):
            return make_factory(factory, lambda: as_storage_connector(self._storage if storage is None else storage))
        if storage is not None and not self.is_of_catalogue(identifier):
            raise ConfigError(
                f"dataset {identifier!r} was registered with a factory that has its own store; "
                f"register the class {type(factory).__name__} to choose a store when loading"
            )
        return factory

    def check_licence(self, identifier: str) -> None:
        """Refuse a dataset whose licence the policy of this process denies; see :func:`data_stack.policy`. Retrieves nothing.

        Raises:
            LicenceDeniedError: its licence is denied, or unknown where there is a policy.
            DatasetNotFoundError, AmbiguousDatasetError, PluginError: as for :meth:`load`.
        """
        if policies := current_policies():
            licence = self.describe(identifier).license
            for each in policies:
                each.check(identifier, licence)

    def describe(self, identifier: str) -> DatasetDescription:
        """Licence, splits, options and so on of a dataset. Imports its plugin, prepares nothing.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError: as for :meth:`load`.
        """
        if is_place(identifier):
            if (published := find_published(identifier)) is not None:
                return self.describe(published[0].name)
            return DatasetDescription(str(identifier), description="Files at a place.", splits=splits_of_place(identifier))
        factory = self._factory_or_class(identifier)
        provider = self._provider(self._provided_name(identifier))
        card = getattr(factory, "card", None)
        packages = [f"{provider.distribution} {provider.version}"] if provider is not None else []
        if self.is_of_catalogue(identifier):
            packages += distributions_of(type(factory).__module__.partition(".")[0])
        distribution, _, distribution_version = " ".join(packages[:1]).partition(" ")
        return DatasetDescription(
            name=identifier,
            version=getattr(card, "version", None),
            description=inspect.cleandoc(factory.__doc__ or ""),
            license=getattr(card, "license", None),
            homepage=getattr(card, "homepage", None),
            citation=getattr(card, "citation", None),
            splits=_splits(factory),
            options=_options(factory),
            class_names=tuple(map(str, _names(getattr(factory, "class_names", None)) or ())),
            distribution=distribution or None,
            distribution_version=distribution_version or None,
        )

    def is_of_catalogue(self, identifier: object) -> bool:
        """Whether the dataset is one of a catalogue, such as ``"hf:owner/name"``; asks no catalogue."""
        return self._catalogue_name(identifier) is not None

    def pin(self, identifier: str, storage: Storage | None = None) -> str:
        """The name of a catalogue's dataset with the version that it has now; asks the catalogue. Other names as they are.

        Args:
            identifier: name of the dataset.
            storage: where it may have been prepared, for catalogues without network; None for the repository's store.

        Raises:
            DatasetNotFoundError, CatalogueError: as for :meth:`load`.
        """
        name = self._catalogue_name(identifier)
        return identifier if name is None else self._catalogues.find(name, self._storage if storage is None else storage)[0]

    def remove(self, identifier: str) -> None:
        """Remove a registered dataset; its stored data stays. A plugin's dataset of the same name is visible again.

        Raises:
            DatasetNotFoundError: it is not registered.
        """
        if self._registered.pop(identifier, None) is None:
            hint = "; DATA_STACK_DISABLE_PLUGINS removes datasets of plugins" if self._provider(identifier) is not None else ""
            raise self._not_found(identifier, f"no dataset {identifier!r:.80} is registered{hint}")

    def list(self) -> _Names:
        """Names of all datasets, sorted; each can be loaded by its name. Imports nothing.

        A name that two distributions provide is listed as ``distribution:name`` for each.
        """
        names = self._plugins.dataset_names() if self._plugins is not None else []
        return sorted({*(name for name in names if "@" not in name), *self._registered})

    def versions(self, identifier: str) -> _Names:
        """The versions of a dataset that can be loaded, as ``name@version``, the one of plain ``name`` first. Imports its plugin.

        A plugin keeps an old version by another entry point: ``"digits@1.0.0" = "package:OldDigitsFactory"``.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError: as for :meth:`load`.
        """
        current = getattr(getattr(self._find_factory(identifier), "card", None), "version", None)
        names = {*self._registered, *(self._plugins.dataset_names() if self._plugins is not None else ())}
        kept = sorted((name.rpartition("@")[2] for name in names if name.rpartition("@")[0] == identifier), reverse=True)
        return [each for each in dict.fromkeys([current, *kept]) if each is not None]

    # ------------------------------------------------------------------ inside

    def _catalogue_name(self, identifier: object) -> CatalogueName | None:
        is_name = self._plugins is not None and isinstance(identifier, str) and identifier not in self._registered
        return self._catalogues.parse(str(identifier)) if is_name else None

    def _factory_or_class(self, identifier: object, storage: Storage | None = None) -> _Factory:
        """The factory of ``name`` or ``name@version``; one that is provided under just that name comes first."""
        provided = self._provided_name(identifier)
        found = self._find_factory(provided, storage)
        version = str(identifier)[len(str(provided)) + 1 :]
        if provided == identifier or getattr(getattr(found, "card", None), "version", None) == version:
            return found
        offered = ", ".join(self.versions(str(provided))) or "none that is named"
        raise RevisionNotFoundError(
            f"dataset {provided!r:.80} is installed without version {version!r:.40}; it offers: {offered}. Install a release of "
            f"its plugin that has this version, or load {provided!r:.80} as it is"
        )

    def _provided_name(self, identifier: Any) -> Any:
        """``name@version`` without the version, unless something is provided under just that name."""
        name, at, _ = identifier.rpartition("@") if isinstance(identifier, str) else ("", "", "")
        is_plain = not name or not at or identifier in self._registered or self._provider(identifier) is not None
        return identifier if is_plain or self.is_of_catalogue(identifier) else name

    def _find_factory(self, identifier: object, storage: Storage | None = None) -> _Factory:
        if isinstance(identifier, str) and identifier in self._registered:
            return self._registered[identifier]
        if (found := self._catalogue_name(identifier)) is not None:
            return self._catalogues.find(found, self._storage if storage is None else storage)[1]
        if self._plugins is None or not isinstance(identifier, str):
            raise self._not_found(identifier, "")
        try:
            return self._plugins.load_dataset(identifier)
        except AmbiguousDatasetError:
            raise
        except DatasetNotFoundError as error:
            raise self._not_found(identifier, str(error)) from None

    def _origin(
        self, identifier: str, factory: BaseDatasetFactory, split: str | None, config: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What a recipe records of a loaded dataset."""
        description = self.describe(identifier)
        return {
            "name": _without_version(identifier, description.version),
            "version": description.version,
            "split": split,
            "config": dict(config),
            "resources": _resources(factory),
            "license": description.license,
            "homepage": description.homepage,
            "citation": description.citation,
            "distribution": description.distribution,
            "preparation": _preparation(factory),
        }

    def _load_published(
        self, published: PublishedDataset, connector: StorageConnector, split: Any, config: Mapping[str, Any]
    ) -> Any:
        name, manifest = published.name, published.manifest
        for policy in current_policies():
            policy.check(name, published.license)
        try:
            factory: Any = self.get_factory(name, connector)
        except DatasetNotFoundError as error:
            command = install_command(manifest.distribution) if manifest.distribution else f"install that of {manifest.factory}"
            raise DatasetNotFoundError(f"{connector!r} needs the plugin of {name}: {command}. {error}") from None
        ready = factory.readiness() if hasattr(factory, "readiness") else None
        if ready is None or ready.manifest is None:
            why = "it is of the original DataStack" if ready is None else ready.reason or "it needs other resources"
            raise DatasetFileCorruptError(f"the plugin that is installed here cannot read {connector!r}: {why}")
        return self.load(name, split, connector, **config)

    def _provider(self, identifier: str) -> PluginRecord | None:
        """The first plugin that provides an unregistered name."""
        if identifier in self._registered or self._plugins is None:
            return None
        providers = self._plugins.providers(identifier)
        return providers[0] if providers else None

    def _not_found(self, identifier: object, reason: str) -> DatasetNotFoundError:
        return DatasetNotFoundError(explain_unknown_dataset(identifier, reason, self.list(), self._plugins))


@functools.cache
def default_repository() -> DatasetRepository:
    """The repository of ``data_stack.load``: installed plugins, and the datasets that this program registers with it."""
    return DatasetRepository(default_manager())


def _add_meta(
    identifier: str, split: str | None, given: Any, factory: BaseDatasetFactory, *, origin: Mapping[str, Any]
) -> InformedDatasetIteratorIF:
    from data_stack.dataset.iterator import InformedDatasetIterator, InformedDatasetIteratorIF
    from data_stack.dataset.meta import IteratorMeta, MetaFactory
    from data_stack.factories.declarative import DatasetFactory

    if isinstance(given, InformedDatasetIteratorIF):
        with contextlib.suppress(TypeError):  # a client's class may have no __dict__
            vars(given)["_origin"] = vars(given).get("_origin") or dict(origin)  # for its recipe
        return given
    if not (
        isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "__getitem__") and isinstance(given[1], IteratorMeta)
    ):
        raise PluginError(
            f"the factory of dataset {identifier!r} returned {given!r:.80}; it must return (iterator, IteratorMeta)"
        )
    iterator, iterator_meta = given
    name = _without_version(identifier.rpartition(":")[2], origin.get("version"))
    meta = MetaFactory.get_dataset_meta(
        identifier=name if split is None else f"{name}/{split}", dataset_name=name, dataset_tag=split, iterator_meta=iterator_meta
    )
    if isinstance(factory, DatasetFactory):  # a legacy factory may use these names for other things
        meta = replace(
            meta,
            class_names=_names(factory.class_names),
            feature_names=_names(factory.feature_names),
            column_names=_names(factory.columns),
            column_kinds=tuple(factory.column_kinds.items()) if isinstance(factory.column_kinds, Mapping) else None,
        )
    return InformedDatasetIterator(iterator, meta, origin=origin)


def _without_version(identifier: str, version: str | None) -> str:
    name, at, asked = identifier.rpartition("@")
    return name if at and asked == version else identifier


def _resources(factory: BaseDatasetFactory) -> dict[str, str] | None:
    """The SHA-256 of the prepared resources, by name; None if no manifest lists them all."""
    manifest = getattr(factory, "_opened_manifest", None)
    records = manifest.prepared if isinstance(manifest, Manifest) else ()
    digests = {each.identifier: each.sha256 for each in sorted(records, key=lambda each: each.identifier) if each.sha256}
    return digests if digests and len(digests) == len(records) else None


def _preparation(factory: BaseDatasetFactory) -> dict[str, Any] | None:
    """The manifest of what the factory opened, as plain data."""
    manifest = getattr(factory, "_opened_manifest", None)
    if not isinstance(manifest, Manifest):
        return None
    return {key: value for key, value in asdict(manifest).items() if key != "prepared"}  # their digests are in the recipe


def _names(declared: Any) -> tuple[str, ...] | None:
    return tuple(declared) if isinstance(declared, Sequence) and not isinstance(declared, str) else None


def _is_redefined(old: object, new: object) -> bool:
    """Whether both are classes of the same qualified name."""
    if not (isinstance(old, type) and isinstance(new, type)):
        return False
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


def _sources(factory: _Factory) -> list[str]:
    """The sources that a factory declares."""
    definitions = getattr(factory, "sources", ())
    if not isinstance(definitions, (tuple, list)):
        return []
    return [place for each in definitions if isinstance(each, ResourceDefinition) for place in each.sources]


def _splits(factory: _Factory) -> tuple[str, ...]:
    """The splits that a factory declares on its class; those of an instance may mean something else, except of a catalogue's."""
    from data_stack.factories.catalogue import CatalogueDataset

    declares = isinstance(factory, (type, CatalogueDataset))
    splits = getattr(factory if declares else type(factory), "splits", ())
    if not isinstance(splits, (tuple, list)) or not all(isinstance(split, str) for split in splits):
        return ()
    return tuple(splits)


def _options(factory: _Factory) -> tuple[str, ...]:
    """The keyword parameters of ``open``, as in its signature."""
    opener: Callable[..., Any] | None = getattr(factory, "open", None)
    if not callable(opener):
        return ()
    parameters = list(inspect.signature(opener).parameters.values())
    skipped = 3 if isinstance(factory, type) else 2  # self, split, prepared
    return tuple(str(p.replace(annotation=p.empty)) for p in parameters[skipped:])
