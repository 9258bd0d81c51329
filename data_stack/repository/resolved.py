"""What a name of a dataset leads to: a factory, files at a place, or a published dataset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from data_stack.exception import DatasetFileCorruptError, PluginError
from data_stack.factories.catalogue import CatalogueDataset
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.manifest import Manifest
from data_stack.io.work import progress_as
from data_stack.plugins.dataset_class import make_factory
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.description import DatasetDescription
from data_stack.repository.places import Place
from data_stack.repository.policy import current_policies
from data_stack.repository.split_expressions import load_expression

if TYPE_CHECKING:
    from data_stack.factories.factory import BaseDatasetFactory

FactoryOrClass: TypeAlias = "BaseDatasetFactory | type[BaseDatasetFactory]"


@dataclass(frozen=True)
class NamedDataset:
    """A dataset with a factory; nothing is prepared until it is loaded.

    Attributes:
        name: as the caller wrote it; with the exact version if the dataset is of a catalogue.
        provided: the factory, or a factory class, which is instantiated with the store.
        storage: the store; None for the default one.
        package: the distribution that provides the dataset, and its version; None if this program registered it.
    """

    name: str
    provided: FactoryOrClass
    storage: Storage | None = None
    package: tuple[str, str] | None = None

    @cached_property
    def factory(self) -> BaseDatasetFactory:
        """The factory, with its store.

        Raises:
            PluginError: the constructor of its class failed.
        """
        if isinstance(self.provided, type):
            return make_factory(self.provided, lambda: as_storage_connector(self.storage))
        return self.provided

    @property
    def version(self) -> str | None:
        """The version on the factory's card; None for a legacy factory."""
        return getattr(getattr(self.provided, "card", None), "version", None)

    @property
    def plain_name(self) -> str:
        """The name without its version."""
        return self.name if self.version is None else self.name.removesuffix(f"@{self.version}")

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the class of the factory declares; on an instance the name may mean something else."""
        declares = isinstance(self.provided, (type, CatalogueDataset))
        splits = getattr(self.provided if declares else type(self.provided), "splits", ())
        if not isinstance(splits, (tuple, list)) or not all(isinstance(split, str) for split in splits):
            return ()
        return tuple(splits)

    def describe(self) -> DatasetDescription:
        """Licence, splits, options and so on; prepares nothing."""
        card = getattr(self.provided, "card", None)
        distribution, distribution_version = self.package or (None, None)
        return DatasetDescription(
            name=self.name,
            version=self.version,
            description=inspect.cleandoc(self.provided.__doc__ or ""),
            license=getattr(card, "license", None),
            homepage=getattr(card, "homepage", None),
            citation=getattr(card, "citation", None),
            splits=self.splits,
            options=_options(self.provided),
            class_names=tuple(map(str, _names(getattr(self.provided, "class_names", None)) or ())),
            distribution=distribution,
            distribution_version=distribution_version,
        )

    def check_licence(self) -> None:
        """Refuse a dataset whose licence the policy of this process denies; see :func:`data_stack.policy`.

        Raises:
            LicenceDeniedError: the policy denies the licence, or the licence is unknown.
        """
        for policy in current_policies():
            policy.check(self.name, getattr(getattr(self.provided, "card", None), "license", None))

    def load(self, split: str | Sequence[str] | None = None, *, progress: bool | None = None, **config: Any) -> Any:
        """See :func:`data_stack.load`."""
        self.check_licence()

        def load_split(name: str | None) -> Any:
            if name is None and self.splits:
                from data_stack.show.page import Splits

                return Splits({each: load_split(each) for each in self.splits})
            with progress_as(progress):
                given = self.factory.get_dataset_iterator(config if name is None else {"split": name, **config})
            return self._with_meta(given, name, config)

        return load_expression(load_split, split, lambda: self.splits or None)

    def _with_meta(self, given: Any, split: str | None, config: Mapping[str, Any]) -> Any:
        """What the factory returned, with meta and origin."""
        from data_stack.dataset.iterator import InformedDatasetIterator, InformedDatasetIteratorIF
        from data_stack.dataset.meta import IteratorMeta, MetaFactory

        origin = self._origin(split, config)
        if isinstance(given, InformedDatasetIteratorIF):
            return InformedDatasetIterator(given, given.dataset_meta, origin=origin)
        is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], IteratorMeta)
        if not (is_pair and hasattr(given[0], "__getitem__")):
            raise PluginError(
                f"the factory of dataset {self.name!r} returned {given!r:.80}; it must return (iterator, IteratorMeta)"
            )
        iterator, iterator_meta = given
        name = self.plain_name.rpartition(":")[2]
        meta = MetaFactory.get_dataset_meta(name if split is None else f"{name}/{split}", name, split, iterator_meta)
        factory = self.factory
        if isinstance(factory, DatasetFactory):  # a legacy factory may use these names for other things
            classes, features, columns = map(_names, (factory.class_names, factory.feature_names, factory.columns))
            kinds = tuple(factory.column_kinds.items()) if isinstance(factory.column_kinds, Mapping) else None
            meta = replace(meta, class_names=classes, feature_names=features, column_names=columns, column_kinds=kinds)
        return InformedDatasetIterator(iterator, meta, origin=origin)

    def _origin(self, split: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
        """What a recipe records of a loaded dataset."""
        description = asdict(self.describe())
        opened = getattr(self.factory, "_opened_manifest", None)
        manifest = opened if isinstance(opened, Manifest) else None
        facts = {} if manifest is None else asdict(manifest)
        facts.pop("prepared", None)  # the recipe has their digests
        return {
            "name": self.plain_name,
            "split": split,
            "config": dict(config),
            "resources": None if manifest is None else manifest.digests(),
            "preparation": facts or None,
            **{name: description[name] for name in ("version", "license", "homepage", "citation", "distribution")},
        }


@dataclass(frozen=True)
class Published(NamedDataset):
    """A published dataset: the code of an installed plugin reads files of a folder or web server, which are the store.

    Attributes:
        licence: that was published with the files.
    """

    licence: str | None = None

    def check_licence(self) -> None:
        """As :meth:`NamedDataset.check_licence`, for both the published licence and that of the plugin's card."""
        for policy in current_policies():
            policy.check(self.name, self.licence)
        super().check_licence()

    def load(self, split: str | Sequence[str] | None = None, *, progress: bool | None = None, **config: Any) -> Any:
        """See :func:`data_stack.load`.

        Raises:
            DatasetFileCorruptError: the plugin that is installed cannot read the files.
        """
        self.check_licence()
        factory: Any = self.factory
        ready = factory.readiness() if isinstance(factory, DatasetFactory) else None
        if ready is None or ready.manifest is None:
            why = "its factory is a legacy factory" if ready is None else ready.reason or "it needs other resources"
            raise DatasetFileCorruptError(f"the installed plugin cannot read {self.storage!r}: {why}")
        return super().load(split, progress=progress, **config)


Resolved: TypeAlias = NamedDataset | Place
"""What a name leads to; a named dataset may be :class:`Published`."""


def _names(declared: Any) -> tuple[str, ...] | None:
    return tuple(declared) if isinstance(declared, Sequence) and not isinstance(declared, str) else None


def _options(factory: FactoryOrClass) -> tuple[str, ...]:
    """The keyword parameters of ``open``, as in its signature."""
    opener: Callable[..., Any] | None = getattr(factory, "open", None)
    if not callable(opener):
        return ()
    parameters = list(inspect.signature(opener).parameters.values())
    skipped = 3 if isinstance(factory, type) else 2  # self, split, prepared
    return tuple(str(p.replace(annotation=p.empty)) for p in parameters[skipped:])
