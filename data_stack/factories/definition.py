"""What the author of a dataset declares, checked before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.names_of_others import ARGUMENTS, explain
from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import ConfigError, MalformedIdentifierError, UnknownSplitError
from data_stack.factories.manifest import JOURNAL, MANIFEST, SAMPLE_DIGESTS, STAGED, ResourceNames
from data_stack.io.identifiers import check_identifier
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.util.suggestions import did_you_mean


@dataclass(frozen=True, slots=True)
class DatasetCard:
    """Name, version, license and origin of a dataset.

    Args:
        name: its folder in every store: one segment of an identifier, e.g. ``"digits"``.
        version: of the prepared data, e.g. ``"1.0.0"``: the folder below that, one segment too.
        license: an SPDX identifier such as ``"CC-BY-4.0"``, or a sentence.
        homepage: its web page.
        citation: how to cite it.
        keeps_versions: False for a dataset that is stored in ``name/`` itself, as by the original DataStack; then each version
            replaces the one before.
    """

    name: str
    version: str
    license: str | None = None
    homepage: str | None = None
    citation: str | None = None
    keeps_versions: bool = True


class DatasetDefinition:
    """A dataset as its factory declares it, checked for consistency.

    Attributes:
        card: its name and version.
        factory: the class, ``"module:QualifiedName"``.
        sources: what is retrieved, named relative to the dataset.
        splits: their names; the first is the default.
        columns: names of the columns of tuple samples, if declared.
        iterator_meta: positions of the parts of a sample.
        prepared_resources: names of the resources of preprocessing, if declared.
        has_preprocess: False if ``open`` reads the sources, or nothing is stored.
        has_shards: whether it is prepared in independent parts.
        options: name of each configuration key but ``split``, with whether it is required.
        takes_any_option: whether ``open`` has ``**options``.
        needs_store: False for a dataset in memory.
        folder: the dataset's folder in a store: ``name/version``, or ``name`` if it keeps no versions.

    Args:
        factory: an instance of a subclass of ``base``.
        base: the class whose methods it overrides.

    Raises:
        ConfigError: a declaration is missing or contradicts another; the message names it and the class.
    """

    def __init__(self, factory: Any, base: type) -> None:
        kind, who = type(factory), type(factory).__qualname__
        self.factory = f"{kind.__module__}:{who}"
        card = self.card = _check_card(getattr(factory, "card", None), who)
        methods = ("open", "prepare_shard", "preparation_shards", "preprocess")
        has_open, self.has_shards, has_list, has_own = (
            getattr(kind, each) is not getattr(base, each) for each in methods
        )
        if not has_open:
            raise ConfigError(
                f"{who} must override open(self, split, prepared), which reads its samples"
            )
        parameters = list(inspect.signature(factory.open).parameters.values())
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if len(positional) < 2 or any(p.kind is p.POSITIONAL_ONLY for p in positional[2:]):
            raise ConfigError(
                f"{who}.open must be declared as open(self, split, prepared, *, option=default)"
            )
        named = [p for p in parameters[2:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self.options = {p.name: p.default is p.empty for p in named}
        self.takes_any_option = any(p.kind is p.VAR_KEYWORD for p in parameters)
        if self.has_shards != has_list:
            raise ConfigError(
                f"{who} must override both preparation_shards and prepare_shard, or neither"
            )
        self.has_preprocess = self.has_shards or has_own
        if not isinstance(factory.sources, Sequence) or not all(
            isinstance(each, ResourceDefinition) for each in factory.sources
        ):
            raise ConfigError(
                f"{who}.sources must be a list of ResourceDefinition, got {factory.sources!r:.80}"
            )
        self.sources = tuple(factory.sources)
        self.prepared_resources = _check_strings(
            factory.prepared_resources, f"{who}.prepared_resources"
        )
        self.folder = f"{card.name}/{card.version}" if card.keeps_versions else card.name
        try:
            names = ResourceNames(self.folder, (source.identifier for source in self.sources))
            for name in self.prepared_resources or () if self.has_preprocess else ():
                names.take(name)
        except MalformedIdentifierError as error:
            raise ConfigError(f"{who} names a resource that cannot be stored: {error}") from error
        self.splits = _check_strings(getattr(factory, "splits", None) or (), f"{who}.splits") or ()
        self._known_splits = frozenset(self.splits)
        self.columns = _check_strings(factory.columns, f"{who}.columns")
        keys = {
            part.name: getattr(factory.iterator_meta, part.name) for part in fields(IteratorMeta)
        }
        columns = self.columns or ()
        self.iterator_meta = replace(
            factory.iterator_meta,
            **{name: columns.index(key) for name, key in keys.items() if key in columns},
        )
        self.needs_store = (
            self.has_preprocess or bool(self.sources) or bool(self.prepared_resources)
        )

    @property
    def retrieval_jobs(self) -> list[ResourceDefinition]:
        """The sources under the identifiers that they have in the store."""
        return [
            replace(source, identifier=f"{self.folder}/{source.identifier}")
            for source in self.sources
        ]

    def open_split(
        self, factory: Any, split: str, resources: Any, options: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        """The samples of one split, by the author's ``open()``.

        Raises:
            ConfigError: it returned something else.
        """
        iterator: DatasetIteratorIF = factory.open(split, resources, **options)
        if not hasattr(iterator, "__getitem__"):
            raise ConfigError(
                f"open() of {self.factory} must return a dataset iterator, got {iterator!r:.80}"
            )
        return iterator

    def open_splits(
        self, factory: Any, asked: Sequence[tuple[str, Mapping[str, Any]]], resources: Any
    ) -> list[tuple[DatasetIteratorIF, IteratorMeta]]:
        """The samples of some splits, each opened with its options, and where their parts are."""
        return [
            (self.open_split(factory, split, resources, options), self.iterator_meta)
            for split, options in asked
        ]

    def check_sample(self, sample: Any) -> None:
        """Check that a sample has the columns that ``columns`` and ``iterator_meta`` name.

        Defaults of IteratorMeta are not checked: not every dataset has targets and tags.

        Raises:
            ConfigError: a column is missing; the message lists the columns.
        """
        is_dict, n_columns = (
            isinstance(sample, Mapping),
            len(sample) if isinstance(sample, (tuple, list)) else 1,
        )
        known: list[Any] = list(sample) if is_dict else list(range(-n_columns, n_columns))
        keys = [
            (part.name, getattr(self.iterator_meta, part.name)) for part in fields(IteratorMeta)
        ]
        missing = [
            name for name, key in keys if key != getattr(IteratorMeta(), name) and key not in known
        ]
        if missing or (self.columns is not None and (is_dict or n_columns != len(self.columns))):
            there = f"the keys {', '.join(map(repr, known))}" if is_dict else f"{n_columns} columns"
            raise ConfigError(
                f"samples of {self.factory} have {there}, not columns={self.columns}, {self.iterator_meta}"
            )

    def check_config(self, config: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
        """The split and the options of a configuration.

        Raises:
            UnknownSplitError: the split is unknown.
            ConfigError: a key is unknown, or a required key is missing.
        """
        if not isinstance(config, Mapping | None):
            raise ConfigError(
                f"the configuration of dataset {self.card.name!r} must be a mapping, got {config!r:.80}"
            )
        options, known = dict(config or {}), ["split", *self.options]
        split = options.pop("split", None)
        split = self.splits[0] if split is None else split
        if not isinstance(split, str) or split not in self._known_splits:
            hint = f"{did_you_mean(split, self.splits)}; it has: {', '.join(self.splits)}"
            raise UnknownSplitError(f"dataset {self.card.name!r} has no split {split!r:.80}{hint}")
        for key in () if self.takes_any_option else options.keys() - self.options.keys():
            has = ", ".join(self.options) or "none besides split"
            hint = f"{explain(key, ARGUMENTS) or did_you_mean(key, known)}; it has: {has}"
            raise ConfigError(
                f"dataset {self.card.name!r} has no configuration key {key!r:.80}{hint}"
            )
        for key, required in self.options.items():
            if required and key not in options:
                raise ConfigError(
                    f"dataset {self.card.name!r} needs the configuration key {key!r}, which has no default"
                )
        return self.splits[self.splits.index(split)], options


def _check_card(card: object, who: str) -> DatasetCard:
    if not isinstance(card, DatasetCard):
        raise ConfigError(
            f'{who} must declare card = DatasetCard(name="…", version="…"), got {card!r:.80}'
        )
    for what, name in (("name", card.name), ("version", card.version)):
        try:
            if "/" in check_identifier(name):
                raise MalformedIdentifierError("it must not contain '/'")
        except MalformedIdentifierError as error:
            raise ConfigError(
                f"{who} cannot have the {what} {name!r:.80}, which names a folder of the store: {error}"
            ) from error
    if card.version.casefold() in (
        MANIFEST,
        JOURNAL,
        SAMPLE_DIGESTS,
    ) or card.version.casefold().startswith(STAGED):
        raise ConfigError(f"{who} cannot have the version {card.version!r:.80}, which is reserved")
    return card


def _check_strings(values: object, what: str) -> tuple[str, ...] | None:
    if values is None:
        return None
    names = () if isinstance(values, str) or not isinstance(values, Iterable) else tuple(values)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f'{what} must be a tuple of names such as ("train", "test"), got {values!r:.80}'
        )
    if len(set(names)) != len(names):
        raise ConfigError(f"{what} has a name twice: {names!r:.200}")
    return names
