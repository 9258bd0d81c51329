"""Datasets by name: a name leads to a factory, a factory to an iterator."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from data_stack.dataset.manifest import Manifest
from data_stack.exception import AmbiguousDatasetError, ConfigError, DatasetNotFoundError, PluginError
from data_stack.io.progress import progress_as
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.plugins.dataset_class import check_dataset_class, make_factory
from data_stack.plugins.manager import PluginManager, default_manager
from data_stack.plugins.record import PluginRecord
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.util.suggestions import did_you_mean

if TYPE_CHECKING:
    from data_stack.dataset.factory import BaseDatasetFactory
    from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIteratorIF
    from data_stack.dataset.meta import IteratorMeta

__all__ = ["DatasetDescription", "DatasetRepository", "default_repository"]

_Factory: TypeAlias = "BaseDatasetFactory | type[BaseDatasetFactory]"
_Names: TypeAlias = list[str]  # in the class below, list is a method
_MOST_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DatasetDescription:
    """What is known of a dataset before any byte of it is there.

    Attributes:
        name: what it is loaded by.
        version: of its prepared data; None for factories written in the original's manner, as for all that follows.
        description: docstring of its factory, may be empty.
        license: an SPDX identifier or a sentence.
        homepage: where to read about it.
        citation: how to cite it.
        splits: their names; empty if the factory does not declare them.
        options: configuration keys besides ``split``, with their defaults, e.g. ``("scaled=False",)``.
        distribution: the installed package that brings it; None if it was registered by this program.
        distribution_version: version of that.
    """

    name: str
    version: str | None = None
    description: str = ""
    license: str | None = None
    homepage: str | None = None
    citation: str | None = None
    splits: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    distribution: str | None = None
    distribution_version: str | None = None


class DatasetRepository:
    """Names of datasets, and the factories behind them.

    ``DatasetRepository()`` knows what was registered with it; :func:`default_repository` knows the datasets of installed
    plugins too. A registered name goes before a plugin's.

    Args:
        plugins: where to find datasets that are not registered.
        storage: the store for factories that are registered as classes or come from plugins; None for the default one.
    """

    def __init__(self, plugins: PluginManager | None = None, storage: Storage | None = None) -> None:
        self._registered: dict[str, _Factory] = {}
        self._plugins = plugins
        self._storage = storage

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {_list(self.list())}>"

    # ------------------------------------------------------------------ the original's methods

    def register(self, identifier: str, dataset_factory: _Factory, *, replace: bool = False) -> None:
        """Make a dataset known.

        Args:
            identifier: the name to ask for it by.
            dataset_factory: a factory, which has its own store, or a factory class, of which one is made with the store
                of each call.
            replace: whether it may take the place of a dataset of that name, registered or a plugin's. A class that was
                defined again, as by running a notebook's cell twice, may in any case.

        Raises:
            ConfigError: the name is taken, or that is no factory.
        """
        name: object = identifier
        if not isinstance(name, str) or not name:
            raise ConfigError(f"the name of a dataset is a string with something in it, got {name!r:.80}")
        if isinstance(dataset_factory, type):
            check_dataset_class(dataset_factory)
        elif not callable(getattr(dataset_factory, "get_dataset_iterator", None)):
            raise ConfigError(
                f"dataset {identifier!r} needs a factory, with a method get_dataset_iterator(config), got {dataset_factory!r:.80}"
            )
        if replace or _is_redefined(self._registered.get(identifier), dataset_factory):
            self._registered[identifier] = dataset_factory
            return
        provider = self._provider(identifier)
        if provider is not None and identifier not in self._registered:
            raise ConfigError(f"dataset {identifier!r} is already there ({provider}); pass replace=True to take its place")
        taken = self._registered.setdefault(identifier, dataset_factory)
        if taken is not dataset_factory:
            raise ConfigError(
                f"dataset {identifier!r} is already registered ({taken!r:.80}); pass replace=True to take its place"
            )

    def get(self, identifier: str, config: Mapping[str, Any] | None = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """Ask the factory of a dataset for its samples, and hand on what it returns.

        Args:
            identifier: name of the dataset.
            config: what the factory takes, such as ``{"split": "train"}``.

        Raises:
            DatasetNotFoundError: no dataset has that name; AmbiguousDatasetError: two plugins have it.
            PluginError: its plugin is broken.
        """
        return self.get_factory(identifier).get_dataset_iterator(config)

    # ------------------------------------------------------------------ more

    def load(
        self,
        identifier: str,
        split: str | None = None,
        storage: Storage | None = None,
        *,
        progress: bool | None = None,
        **config: Any,
    ) -> Any:
        """The samples of a dataset, prepared first if they are not there yet, as an iterator that knows what it is of.

        Args:
            identifier: name of the dataset; ``"distribution:name"`` where several distributions provide the name.
            split: name of the split; None for all of them.
            storage: where the dataset is kept: a connector, a path or a URL; None for the default store.
            progress: draw bars; see :func:`data_stack.load`.
            config: further options of the dataset.

        Returns:
            An InformedDatasetIterator, whose recipe names the dataset, its version, split and options. For split None: a dict
            of one for each split, in the dataset's order, or, where the factory declares no splits, the one iterator that it
            gives without asking for a split.

        Raises:
            DatasetNotFoundError: no dataset has that name; AmbiguousDatasetError: two plugins have it.
            ConfigError: there is no such split (UnknownSplitError) or option, or no such store.
            PluginError: its plugin is broken, or returned no samples.
            RetrievalError, PreparationError, StorageError: it could not be prepared.
        """
        factory = self.get_factory(identifier, storage)
        if progress is not None and _has_own_progress(factory):
            config, progress = {**config, "progress": progress}, None

        def load_split(name: str | None) -> InformedDatasetIteratorIF:
            with progress_as(progress):
                given = factory.get_dataset_iterator(config if name is None else {"split": name, **config})
            return _add_meta(identifier, name, given, factory, origin=self._origin(identifier, factory, name, config))

        splits = _splits(factory)
        if split is None and splits:
            return {name: load_split(name) for name in splits}
        return load_split(split)

    def get_factory(self, identifier: str, storage: Storage | None = None) -> BaseDatasetFactory:
        """The factory of a dataset; nothing is prepared.

        Args:
            identifier: name of the dataset.
            storage: where it shall keep the dataset; None for the repository's store.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError: as for :meth:`load`.
            ConfigError: a store is given, but the factory was registered as an object that has its own.
        """
        factory = self._factory_or_class(identifier)
        if self._plugins is not None:
            self._plugins.register_retrievers(_sources(factory))
        if isinstance(factory, type):
            return make_factory(factory, lambda: as_storage_connector(self._storage if storage is None else storage))
        if storage is not None:
            raise ConfigError(
                f"dataset {identifier!r} was registered with a factory that has its own store; "
                f"register the class {type(factory).__name__} to choose a store when loading"
            )
        return factory

    def describe(self, identifier: str) -> DatasetDescription:
        """What a dataset's author says of it. Imports its plugin, prepares nothing.

        Raises:
            DatasetNotFoundError, AmbiguousDatasetError, PluginError: as for :meth:`load`.
        """
        factory = self._factory_or_class(identifier)
        provider = self._provider(identifier)
        dataset_class = factory if isinstance(factory, type) else type(factory)
        card = getattr(factory, "card", None)
        return DatasetDescription(
            name=identifier,
            version=getattr(card, "version", None),
            description=inspect.cleandoc(dataset_class.__doc__ or ""),
            license=getattr(card, "license", None),
            homepage=getattr(card, "homepage", None),
            citation=getattr(card, "citation", None),
            splits=_splits(factory),
            options=_options(factory),
            distribution=provider.distribution if provider is not None else None,
            distribution_version=provider.version if provider is not None else None,
        )

    def remove(self, identifier: str) -> None:
        """Forget a registered dataset; what is stored of it stays. A plugin's dataset of that name comes to light again.

        Raises:
            DatasetNotFoundError: it is not registered.
        """
        if identifier not in self._registered:
            if self._provider(identifier) is not None:
                raise DatasetNotFoundError(
                    f"dataset {identifier!r} was not registered but comes from a plugin: uninstall that, "
                    f"or name the dataset in DATA_STACK_DISABLE_PLUGINS"
                )
            raise self._not_found(identifier, "")
        del self._registered[identifier]

    def list(self) -> _Names:
        """Names of all datasets, sorted; each can be loaded by its name. Imports nothing.

        Where two distributions provide one name, each is there as ``distribution:name``.
        """
        names = self._plugins.dataset_names() if self._plugins is not None else []
        return sorted({*names, *self._registered})

    # ------------------------------------------------------------------ inside

    def _factory_or_class(self, identifier: object) -> _Factory:
        if isinstance(identifier, str) and identifier in self._registered:
            return self._registered[identifier]
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
        """What a recipe says of a loaded dataset, and besides it what can be told of it."""
        card = getattr(factory, "card", None)
        provider = self._provider(identifier)
        return {
            "name": identifier,
            "version": getattr(card, "version", None),
            "split": split,
            "config": dict(config),
            "resources": _resources(factory),
            "license": getattr(card, "license", None),
            "homepage": getattr(card, "homepage", None),
            "distribution": provider.distribution if provider is not None else None,
        }

    def _provider(self, identifier: str) -> PluginRecord | None:
        """The plugin that provides what is not registered under a name, or the first of several."""
        if identifier in self._registered or self._plugins is None:
            return None
        providers = self._plugins.providers(identifier)
        return providers[0] if providers else None

    def _not_found(self, identifier: object, reason: str) -> DatasetNotFoundError:
        names = self.list()
        reason = reason or f"no dataset {identifier!r:.80} is registered"
        return DatasetNotFoundError(
            f"{reason}{did_you_mean(identifier, names)}. There are: {_list(names)}. "
            f"Others come with plugins; `data-stack doctor` shows those that are installed."
        )


@functools.cache
def default_repository() -> DatasetRepository:
    """The repository that ``data_stack.load`` asks: installed plugins, and what this program registers with it."""
    return DatasetRepository(default_manager())


def _add_meta(
    identifier: str, split: str | None, given: Any, factory: BaseDatasetFactory, *, origin: Mapping[str, Any]
) -> InformedDatasetIteratorIF:
    from data_stack.dataset.declarative import DatasetFactory
    from data_stack.dataset.iterator import InformedDatasetIterator, InformedDatasetIteratorIF
    from data_stack.dataset.iterator.view import InformedDatasetIteratorView
    from data_stack.dataset.meta import IteratorMeta, MetaFactory

    if type(given) is InformedDatasetIteratorView:  # a slice of what the factory has, which it may slice for others too
        return InformedDatasetIterator(given, given.dataset_meta, origin=origin)
    if isinstance(given, InformedDatasetIteratorIF):
        if getattr(given, "__dict__", {}).get("_origin") is None:
            with contextlib.suppress(TypeError):  # a client's class may take no attributes
                # the factory's own object is handed on, and this is a way to have it again
                vars(given)["_origin"] = dict(origin)
        return given
    if not (
        isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "__getitem__") and isinstance(given[1], IteratorMeta)
    ):
        raise PluginError(
            f"the factory of dataset {identifier!r} returned {given!r:.80}; it must return (iterator, IteratorMeta)"
        )
    iterator, iterator_meta = given
    name = identifier.rpartition(":")[2]
    meta = MetaFactory.get_dataset_meta(
        identifier=name if split is None else f"{name}/{split}", dataset_name=name, dataset_tag=split, iterator_meta=iterator_meta
    )
    if isinstance(factory, DatasetFactory):  # what an older one calls so may be something else
        meta = replace(
            meta,
            class_names=_names(factory.class_names),
            feature_names=_names(factory.feature_names),
            column_names=_names(factory.columns),
        )
    return InformedDatasetIterator(iterator, meta, origin=origin)


def _has_own_progress(factory: BaseDatasetFactory) -> bool:
    """Whether a dataset may have an option of that name, which was there before :meth:`DatasetRepository.load` had one."""
    from data_stack.dataset.declarative import DatasetFactory

    return not isinstance(factory, DatasetFactory) or "progress" in inspect.signature(factory.open).parameters


def _resources(factory: BaseDatasetFactory) -> dict[str, str] | None:
    """The SHA-256 of what was prepared, by name; None where there is no manifest that knows them all."""
    manifest = getattr(factory, "_opened_manifest", None)
    records = manifest.prepared if isinstance(manifest, Manifest) else ()
    digests = {each.identifier: each.sha256 for each in sorted(records, key=lambda each: each.identifier) if each.sha256}
    return digests if digests and len(digests) == len(records) else None


def _names(declared: Any) -> tuple[str, ...] | None:
    return tuple(declared) if isinstance(declared, Sequence) and not isinstance(declared, str) else None


def _is_redefined(old: object, new: object) -> bool:
    """Whether both are classes, and the new one is what has become of the old one's definition."""
    if not (isinstance(old, type) and isinstance(new, type)):
        return False
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


def _sources(factory: _Factory) -> list[str]:
    """Where a factory retrieves from, as far as it declares that."""
    definitions = getattr(factory, "sources", ())
    if not isinstance(definitions, (tuple, list)):
        return []
    return [place for each in definitions if isinstance(each, ResourceDefinition) for place in each.sources]


def _splits(factory: _Factory) -> tuple[str, ...]:
    """The splits that a factory declares on its class; those that older ones keep on the object mean all sorts of things."""
    splits = getattr(factory if isinstance(factory, type) else type(factory), "splits", ())
    if not isinstance(splits, (tuple, list)) or not all(isinstance(split, str) for split in splits):
        return ()
    return tuple(splits)


def _options(factory: _Factory) -> tuple[str, ...]:
    """The keyword parameters of ``open``, as they stand in its signature."""
    opener: Callable[..., Any] | None = getattr(factory, "open", None)
    if not callable(opener):
        return ()
    parameters = list(inspect.signature(opener).parameters.values())
    skipped = 3 if isinstance(factory, type) else 2  # self, split, prepared
    return tuple(str(p.replace(annotation=p.empty)) for p in parameters[skipped:])


def _list(names: _Names) -> str:
    shown = ", ".join(names[:_MOST_NAMES_SHOWN]) or "none"
    return shown if len(names) <= _MOST_NAMES_SHOWN else f"{shown} and {len(names) - _MOST_NAMES_SHOWN:,} more"
