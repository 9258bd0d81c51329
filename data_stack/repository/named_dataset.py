"""A dataset with a factory: what it declares, and how its samples are loaded."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeGuard

from data_stack.dataset.iterator import InformedDatasetIterator, InformedDatasetIteratorIF
from data_stack.dataset.meta import DatasetMeta, IteratorMeta, MetaFactory
from data_stack.exception import DataStackError, PluginError, describe_error
from data_stack.factories.base_factory import BaseDatasetFactory
from data_stack.factories.catalogue import CatalogueDataset
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.definition import DatasetDefinition
from data_stack.io.progress import progress_as
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.description import DatasetDescription
from data_stack.repository.licenses import check_license
from data_stack.repository.split_expressions import list_whole_splits, load_expression
from data_stack.show.splits import Splits

FactoryOrClass: TypeAlias = "BaseDatasetFactory | type[BaseDatasetFactory]"


@dataclass(frozen=True)
class NamedDataset:
    """A dataset with a factory; nothing is prepared until it is loaded.

    Attributes:
        name: as the caller wrote it; with the exact version if the dataset is of a catalogue.
        provided: the factory, or a factory class, which is instantiated with the store.
        storage: the store; None for the default one.
        distribution: the installed package that provides the dataset; None if this program
            registered it.
        distribution_version: the version of that package.
    """

    name: str
    provided: FactoryOrClass
    storage: Storage | None = None
    distribution: str | None = None
    distribution_version: str | None = None

    # ------------------------------------------------------------------ what it declares

    @cached_property
    def factory(self) -> BaseDatasetFactory:
        """The factory, with its store.

        Raises:
            PluginError: the constructor of its class failed.
        """
        factory_class = self.provided
        if not isinstance(factory_class, type):
            return factory_class
        arguments: dict[str, Any] = {}
        if _takes_store(factory_class):
            arguments["storage_connector"] = as_storage_connector(self.storage)
        try:
            return factory_class(**arguments)
        except DataStackError:
            raise
        except Exception as error:
            raise PluginError(
                f"the constructor of {factory_class.__qualname__} failed: "
                f"{describe_error(error)[:500]}"
            ) from error

    @property
    def version(self) -> str | None:
        """The version on the factory's card; None for a legacy factory."""
        version: str | None = getattr(self._card, "version", None)
        return version

    @property
    def plain_name(self) -> str:
        """The name without its version."""
        if self.version is None:
            return self.name
        return self.name.removesuffix(f"@{self.version}")

    @property
    def package(self) -> str | None:
        """The package that provides the dataset, ``"lazy-data-stack-digits 0.2.0"``."""
        if self.distribution is None:
            return None
        return f"{self.distribution} {self.distribution_version}"

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the factory declares; empty without a declaration."""
        declared_by: Any = self.provided
        if not isinstance(declared_by, (type, CatalogueDataset)):
            # An attribute of that name on the object of a legacy factory may mean something else.
            declared_by = type(declared_by)
        splits = getattr(declared_by, "splits", ())
        if not isinstance(splits, (tuple, list)):
            return ()
        if not all(isinstance(split, str) for split in splits):
            return ()
        return tuple(splits)

    @property
    def _card(self) -> Any:
        """The card of the factory; None for a legacy factory."""
        return getattr(self.provided, "card", None)

    def describe(self) -> DatasetDescription:
        """Return license, splits, options and so on; prepares nothing."""
        class_names = _as_names(getattr(self.provided, "class_names", None)) or ()
        return DatasetDescription(
            name=self.name,
            version=self.version,
            description=inspect.cleandoc(self.provided.__doc__ or ""),
            license=getattr(self._card, "license", None),
            homepage=getattr(self._card, "homepage", None),
            citation=getattr(self._card, "citation", None),
            splits=self.splits,
            options=_list_options(self.provided),
            class_names=tuple(map(str, class_names)),
            distribution=self.distribution,
            distribution_version=self.distribution_version,
        )

    def check_license(self) -> None:
        """Refuse a dataset whose license the policy of this process denies.

        See :func:`data_stack.policy`.

        Raises:
            LicenseDeniedError: the policy denies the license, or the license is unknown.
        """
        check_license(self.name, getattr(self._card, "license", None))

    # ------------------------------------------------------------------ its samples

    def load(
        self,
        split: str | Sequence[str] | None = None,
        *,
        progress: bool | None = None,
        **config: Any,
    ) -> Any:
        """Load the samples; see :func:`data_stack.load`."""
        self.check_license()
        # The splits of a list or an expression are opened together, as all splits are.
        loaded: dict[str, InformedDatasetIterator] = {}
        needed = list_whole_splits(split, self.splits)
        if needed and needed != [split]:
            loaded = self._load_together(needed, config, progress)

        def load_split(name: str | None) -> Any:
            if name is None and self.splits:
                return Splits(loaded or self._load_together(self.splits, config, progress))
            if name in loaded:
                return loaded[name]
            return self._load_one(name, config, progress)

        def list_names() -> tuple[str, ...] | None:
            return self.splits or None

        return load_expression(load_split, split, list_names)

    def _load_one(
        self, split: str | None, config: Mapping[str, Any], progress: bool | None
    ) -> InformedDatasetIterator:
        """Load one split; for None, what the factory returns without one."""
        config_of_factory = dict(config)
        if split is not None:
            config_of_factory = {"split": split, **config}
        with progress_as(progress):
            returned = self.factory.get_dataset_iterator(config_of_factory)
        return self._inform(returned, split, config, self._describe_origin())

    def _load_together(
        self, splits: Sequence[str], config: Mapping[str, Any], progress: bool | None
    ) -> dict[str, InformedDatasetIterator]:
        """Load some splits; the store is looked at once for all of them."""
        factory: Any = self.factory
        configs = [{"split": split, **config} for split in splits]
        with progress_as(progress):
            if _opens_together(factory):
                returned_values = factory._open_together(configs)
            else:
                returned_values = [
                    factory.get_dataset_iterator(config_of_split) for config_of_split in configs
                ]
        origin = self._describe_origin()
        loaded = {}
        for split, returned in zip(splits, returned_values, strict=True):
            loaded[split] = self._inform(returned, split, config, origin)
        return loaded

    def _inform(
        self,
        returned: Any,
        split: str | None,
        config: Mapping[str, Any],
        origin_of_dataset: Mapping[str, Any],
    ) -> InformedDatasetIterator:
        """Return what the factory returned, with meta and origin.

        Raises:
            PluginError: the factory returned something else than an iterator with its meta.
        """
        origin = {
            "name": self.plain_name,
            "split": split,
            "config": dict(config),
            **origin_of_dataset,
        }
        if isinstance(returned, InformedDatasetIteratorIF):
            return InformedDatasetIterator(returned, returned.dataset_meta, origin=origin)
        if not _is_iterator_with_meta(returned):
            raise PluginError(
                f"the factory of dataset {self.name!r} returned {returned!r:.80}, "
                f"but must return (iterator, IteratorMeta)"
            )
        iterator, iterator_meta = returned
        meta = self._make_meta(split, iterator_meta)
        return InformedDatasetIterator(iterator, meta, origin=origin)

    def _make_meta(self, split: str | None, iterator_meta: IteratorMeta) -> DatasetMeta:
        """Return the meta of a split, with what the factory declares of its columns."""
        # The name without the scheme of a catalogue, or the distribution of a plugin.
        bare_name = self.plain_name.rpartition(":")[2]
        identifier = bare_name
        if split is not None:
            identifier = f"{bare_name}/{split}"
        meta = MetaFactory.get_dataset_meta(identifier, bare_name, split, iterator_meta)
        factory = self.factory
        if not isinstance(factory, DatasetFactory):
            # A legacy factory may use the names below for other things.
            return meta
        column_kinds = None
        if isinstance(factory.column_kinds, Mapping):
            column_kinds = tuple(factory.column_kinds.items())
        return replace(
            meta,
            class_names=_as_names(factory.class_names),
            feature_names=_as_names(factory.feature_names),
            column_names=_as_names(factory.columns),
            column_kinds=column_kinds,
        )

    def _describe_origin(self) -> dict[str, Any]:
        """Return what the recipe of each split records of the dataset."""
        resources = None
        preparation = None
        manifest = getattr(self.factory, "_opened_manifest", None)
        if manifest is not None:
            resources = manifest.digests()
            preparation = asdict(manifest)
            # The recipe has the digests of the prepared resources already.
            preparation.pop("prepared")
        description = self.describe()
        return {
            "resources": resources,
            "preparation": preparation,
            "version": description.version,
            "license": description.license,
            "homepage": description.homepage,
            "citation": description.citation,
            "distribution": description.distribution,
        }


def _takes_store(factory_class: type) -> bool:
    """Return whether the constructor of a factory has the parameter ``storage_connector``."""
    for parameter in inspect.signature(factory_class).parameters.values():
        if parameter.name == "storage_connector" or parameter.kind is parameter.VAR_KEYWORD:
            return True
    return False


def _opens_together(factory: Any) -> bool:
    """Return whether a factory can open several splits at once.

    A subclass that overrides ``get_dataset_iterator`` must be called for each split.
    """
    return (
        isinstance(factory, DatasetFactory)
        and type(factory).get_dataset_iterator is DatasetFactory.get_dataset_iterator
    )


def has_prepared_resources(factory: object) -> TypeGuard[DatasetFactory]:
    """Return whether a factory opens resources that a preparation stores."""
    if not isinstance(factory, DatasetFactory):
        return False
    return DatasetDefinition(factory, DatasetFactory).needs_store


def _is_iterator_with_meta(returned: Any) -> bool:
    """Return whether a factory returned a pair of an iterator and its IteratorMeta."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        return False
    iterator, meta = returned
    return hasattr(iterator, "__getitem__") and isinstance(meta, IteratorMeta)


def _as_names(declared: Any) -> tuple[str, ...] | None:
    """Return declared names as a tuple; None for anything but a list of names."""
    if isinstance(declared, Sequence) and not isinstance(declared, str):
        return tuple(declared)
    return None


def _list_options(factory: FactoryOrClass) -> tuple[str, ...]:
    """Return the options of a dataset, ``"scaled=False"``: the further parameters of ``open``."""
    opener = getattr(factory, "open", None)
    if not callable(opener):
        return ()
    n_own_parameters = len(("split", "prepared"))
    if isinstance(factory, type):
        n_own_parameters += len(("self",))
    parameters = list(inspect.signature(opener).parameters.values())
    options = parameters[n_own_parameters:]
    return tuple(str(option.replace(annotation=option.empty)) for option in options)
