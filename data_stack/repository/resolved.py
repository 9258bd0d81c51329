"""What a name of a dataset leads to: a factory, files at a place, or a published dataset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from data_stack.exception import (
    DatasetFileCorruptError,
    DataStackError,
    PluginError,
    UnsupportedStorageOperationError,
    describe_error,
)
from data_stack.factories.base_factory import BaseDatasetFactory
from data_stack.factories.catalogue import CatalogueDataset
from data_stack.factories.declarative import DatasetFactory
from data_stack.io.progress import progress_as
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.licenses import check_license
from data_stack.repository.places import DatasetDescription, Place
from data_stack.repository.split_expressions import load_expression

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
        kind = self.provided
        if not isinstance(kind, type):
            return kind
        parameters = inspect.signature(kind).parameters.values()
        takes_store = any(
            each.name == "storage_connector" or each.kind is each.VAR_KEYWORD for each in parameters
        )
        arguments = {"storage_connector": as_storage_connector(self.storage)} if takes_store else {}
        try:
            return kind(**arguments)
        except DataStackError:
            raise
        except Exception as error:
            raise PluginError(
                f"the constructor of {kind.__qualname__} failed: {describe_error(error)[:500]}"
            ) from error

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
        if not isinstance(splits, (tuple, list)) or not all(
            isinstance(split, str) for split in splits
        ):
            return ()
        return tuple(splits)

    def describe(self) -> DatasetDescription:
        """License, splits, options and so on; prepares nothing."""
        card, about = (
            getattr(self.provided, "card", None),
            inspect.cleandoc(self.provided.__doc__ or ""),
        )
        facts = [getattr(card, name, None) for name in ("license", "homepage", "citation")]
        classes = tuple(map(str, _names(getattr(self.provided, "class_names", None)) or ()))
        how: tuple[Any, ...] = (
            *facts,
            self.splits,
            _options(self.provided),
            classes,
            *(self.package or (None, None)),
        )
        return DatasetDescription(self.name, self.version, about, *how)

    def check_license(self) -> None:
        """Refuse a dataset whose license the policy of this process denies; see :func:`data_stack.policy`.

        Raises:
            LicenseDeniedError: the policy denies the license, or the license is unknown.
        """
        card = getattr(self.provided, "card", None)
        check_license(self.name, getattr(card, "license", None))

    def load(
        self,
        split: str | Sequence[str] | None = None,
        *,
        progress: bool | None = None,
        **config: Any,
    ) -> Any:
        """See :func:`data_stack.load`."""
        self.check_license()

        def load_split(name: str | None) -> Any:
            if name is None and self.splits:
                from data_stack.show.splits import Splits

                return Splits(self._load_all(config, progress))
            with progress_as(progress):
                given = self.factory.get_dataset_iterator(
                    config if name is None else {"split": name, **config}
                )
            return self._with_meta(given, name, config, self._origin_of_dataset())

        return load_expression(load_split, split, lambda: self.splits or None)

    def _load_all(self, config: Mapping[str, Any], progress: bool | None) -> dict[str, Any]:
        """All splits by name; the store is looked at once for all of them."""
        factory: Any = self.factory
        configs = [{"split": split, **config} for split in self.splits]
        opens_together = (
            isinstance(factory, DatasetFactory)
            and type(factory).get_dataset_iterator is DatasetFactory.get_dataset_iterator
        )
        with progress_as(progress):
            if opens_together:
                given = factory._open_together(configs)
            else:
                given = [factory.get_dataset_iterator(each) for each in configs]
        of_dataset = self._origin_of_dataset()
        return {
            split: self._with_meta(pair, split, config, of_dataset)
            for split, pair in zip(self.splits, given, strict=True)
        }

    def _with_meta(
        self,
        given: Any,
        split: str | None,
        config: Mapping[str, Any],
        of_dataset: Mapping[str, Any],
    ) -> Any:
        """What the factory returned, with meta and origin."""
        from data_stack.dataset.iterator import InformedDatasetIterator, InformedDatasetIteratorIF
        from data_stack.dataset.meta import IteratorMeta, MetaFactory

        origin = {
            "name": self.plain_name,
            "split": split,
            "config": dict(config),
            **of_dataset,
        }
        if isinstance(given, InformedDatasetIteratorIF):
            return InformedDatasetIterator(given, given.dataset_meta, origin=origin)
        pair: tuple[Any, Any] = (
            given if isinstance(given, tuple) and len(given) == 2 else (None, None)
        )
        iterator, iterator_meta = pair
        if not (isinstance(iterator_meta, IteratorMeta) and hasattr(iterator, "__getitem__")):
            raise PluginError(
                f"the factory of dataset {self.name!r} returned {given!r:.80}, but must return (iterator, IteratorMeta)"
            )
        name = self.plain_name.rpartition(":")[2]
        meta = MetaFactory.get_dataset_meta(
            name if split is None else f"{name}/{split}", name, split, iterator_meta
        )
        factory = self.factory
        if isinstance(
            factory, DatasetFactory
        ):  # a legacy factory may use these names for other things
            classes, features, columns = map(
                _names, (factory.class_names, factory.feature_names, factory.columns)
            )
            kinds = (
                tuple(factory.column_kinds.items())
                if isinstance(factory.column_kinds, Mapping)
                else None
            )
            meta = replace(
                meta,
                class_names=classes,
                feature_names=features,
                column_names=columns,
                column_kinds=kinds,
            )
        return InformedDatasetIterator(iterator, meta, origin=origin)

    def _origin_of_dataset(self) -> dict[str, Any]:
        """What a recipe records of a loaded dataset, alike for all of its splits, which share it."""
        description = asdict(self.describe())
        manifest = getattr(self.factory, "_opened_manifest", None)
        facts = asdict(manifest) if manifest else {}
        facts.pop("prepared", None)  # the recipe has their digests
        names = ("version", "license", "homepage", "citation", "distribution")
        return {
            "resources": manifest.digests() if manifest else None,
            "preparation": facts or None,
            **{name: description[name] for name in names},
        }


@dataclass(frozen=True)
class Published(NamedDataset):
    """A published dataset: the code of an installed plugin reads files of a folder or web server, which are the store.

    Attributes:
        license: that was published with the files.
    """

    license: str | None = None

    def check_license(self) -> None:
        """As :meth:`NamedDataset.check_license`, for both the published license and that of the plugin's card."""
        check_license(self.name, self.license)
        super().check_license()

    def load(
        self,
        split: str | Sequence[str] | None = None,
        *,
        progress: bool | None = None,
        **config: Any,
    ) -> Any:
        """See :func:`data_stack.load`.

        Raises:
            DatasetFileCorruptError: the plugin that is installed cannot read the files.
        """
        self.check_license()
        factory: Any = self.factory
        why: object = "its factory opens no prepared files"
        if isinstance(factory, DatasetFactory) and factory._check_definition().needs_store:
            try:
                return super().load(split, progress=progress, **config)
            except (
                UnsupportedStorageOperationError
            ) as error:  # what is not ready cannot be prepared there
                why = factory.readiness().reason or error.__cause__ or error
        raise DatasetFileCorruptError(f"the installed plugin cannot read {self.storage!r}: {why}")


Resolved: TypeAlias = NamedDataset | Place
"""What a name leads to; a named dataset may be :class:`Published`."""


def _names(declared: Any) -> tuple[str, ...] | None:
    return (
        tuple(declared)
        if isinstance(declared, Sequence) and not isinstance(declared, str)
        else None
    )


def _options(factory: FactoryOrClass) -> tuple[str, ...]:
    """The keyword parameters of ``open``, as in its signature."""
    opener: Callable[..., Any] | None = getattr(factory, "open", None)
    if not callable(opener):
        return ()
    parameters = list(inspect.signature(opener).parameters.values())
    skipped = 3 if isinstance(factory, type) else 2  # self, split, prepared
    return tuple(str(p.replace(annotation=p.empty)) for p in parameters[skipped:])
