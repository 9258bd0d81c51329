"""What the author of a dataset states about it, checked before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from data_stack.dataset.meta import IteratorMeta
from data_stack.dataset.resource_names import JOURNAL, MANIFEST, STAGED, ResourceNames
from data_stack.exception import ConfigError, MalformedIdentifierError, UnknownSplitError
from data_stack.io.identifiers import check_identifier
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.util.suggestions import did_you_mean

__all__ = ["DatasetCard", "DatasetDefinition"]


@dataclass(frozen=True, slots=True)
class DatasetCard:
    """What a dataset is called and where it is from.

    Args:
        name: its folder in every store: one segment of an identifier, e.g. ``"digits"``.
        version: of the prepared data, e.g. ``"1.0.0"``: the folder below that, one segment too. Another version is prepared
            beside it.
        license: an SPDX identifier such as ``"CC-BY-4.0"``, or a sentence.
        homepage: where to read about it.
        citation: how to cite it.
        keeps_versions: False for a dataset that lies in ``name/`` itself, as the original DataStack stored it and programs
            written for that read it; then each version takes the place of the one before.
    """

    name: str
    version: str
    license: str | None = None
    homepage: str | None = None
    citation: str | None = None
    keeps_versions: bool = True


@dataclass(frozen=True, slots=True)
class DatasetDefinition:
    """A dataset as its factory declares it, found consistent.

    Attributes:
        card: its name and version.
        factory: the class, ``"module:QualifiedName"``.
        sources: what is retrieved, named relative to the dataset.
        splits: their names; the first is the default.
        columns: names of the columns of tuple samples, if declared.
        iterator_meta: where a sample has its parts, by position where the author gives the names of columns.
        prepared_resources: names of what preprocessing makes, if declared.
        has_preprocess: False if the sources are opened as they are, or there is nothing to store at all.
        has_shards: whether it says how to prepare it in independent parts.
        options: name of each configuration key but ``split``, with whether it must be given.
        takes_any_option: whether ``open`` has ``**options``.
        folder: what all of it lies below in a store.
    """

    card: DatasetCard
    factory: str
    sources: tuple[ResourceDefinition, ...]
    splits: tuple[str, ...]
    columns: tuple[str, ...] | None
    iterator_meta: IteratorMeta
    prepared_resources: tuple[str, ...] | None
    has_preprocess: bool
    has_shards: bool
    options: Mapping[str, bool]
    takes_any_option: bool
    folder: str

    @classmethod
    def of(cls, factory: Any, base: type) -> DatasetDefinition:
        """Read and check what ``factory``, an instance of a subclass of ``base``, declares.

        Raises:
            ConfigError: a part is missing or contradicts another; the message names the class and the part.
        """
        subclass = type(factory)
        who = subclass.__qualname__
        card = _check_card(getattr(factory, "card", None), who)
        if subclass.open is base.open:  # type: ignore[attr-defined]  # subclass of base
            raise ConfigError(f"{who} must override open(self, split, prepared) to say how its samples are read")
        options, takes_any_option = _check_options(factory.open, who)
        has_shards = _overrides(subclass, base, "prepare_shard")
        if has_shards != _overrides(subclass, base, "preparation_shards"):
            raise ConfigError(
                f"{who} must override both of preparation_shards(self, raw), which names the shards, and "
                f"prepare_shard(self, shard, raw, prepared), which makes one, or neither"
            )
        has_preprocess = has_shards or _overrides(subclass, base, "preprocess")
        sources = _check_sources(factory.sources, card, who)
        declared = factory.prepared_resources
        if declared is not None:
            declared = _check_strings(declared, f"{who}.prepared_resources")
        folder = f"{card.name}/{card.version}" if card.keeps_versions else card.name
        try:
            names = ResourceNames(folder, (source.identifier for source in sources))
            for name in declared or () if has_preprocess else ():
                names.take(name)
        except MalformedIdentifierError as error:
            raise ConfigError(f"{who} names a resource that no store can keep: {error}") from error
        columns = None if factory.columns is None else _check_strings(factory.columns, f"{who}.columns")
        return cls(
            card=card,
            factory=f"{subclass.__module__}:{subclass.__qualname__}",
            sources=sources,
            splits=_check_strings(getattr(factory, "splits", ()), f"{who}.splits"),
            columns=columns,
            iterator_meta=_by_position(factory.iterator_meta, columns),
            prepared_resources=declared,
            has_preprocess=has_preprocess,
            has_shards=has_shards,
            options=options,
            takes_any_option=takes_any_option,
            folder=folder,
        )

    @property
    def needs_store(self) -> bool:
        """False for a dataset that is made in memory."""
        return self.has_preprocess or bool(self.sources) or bool(self.prepared_resources)

    def stored_identifier(self, name: str) -> str:
        """The identifier in the store of a name relative to the dataset."""
        return f"{self.folder}/{name}"

    @property
    def retrieval_jobs(self) -> list[ResourceDefinition]:
        """The sources under the identifiers that they have in the store."""
        return [replace(source, identifier=self.stored_identifier(source.identifier)) for source in self.sources]

    def check_sample(self, sample: Any) -> None:
        """Find out whether a sample has the columns that ``columns`` and ``iterator_meta`` name.

        A default of IteratorMeta that finds no column is no error: not every dataset has targets and tags.

        Raises:
            ConfigError: it has not; the message names the columns that there are.
        """
        if isinstance(sample, Mapping):
            known: Sequence[Any] = list(sample)
        else:
            known = range(len(sample) if isinstance(sample, (tuple, list)) else 1)
        there = ", ".join(map(repr, known)) or "none"
        if self.columns is not None and (isinstance(sample, Mapping) or len(known) != len(self.columns)):
            what = f"{len(known)} columns" if not isinstance(sample, Mapping) else f"keys of their own ({there})"
            raise ConfigError(f"columns of {self.factory} names {', '.join(self.columns)}, but its samples have {what}")
        for part in fields(IteratorMeta):
            key = getattr(self.iterator_meta, part.name)
            if key == part.default or key in known:
                continue
            if isinstance(key, int) and isinstance(known, range) and -len(known) <= key < 0:  # from the end
                continue
            names = [*known, *(self.columns or ())]
            raise ConfigError(
                f"{part.name}={key!r} in iterator_meta of {self.factory} names no column of its samples"
                f"{did_you_mean(key, [name for name in names if isinstance(name, str)])}; they have: {there}"
                + (f" ({', '.join(self.columns)})" if self.columns else "")
            )

    def check_config(self, config: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
        """The split and the options that a configuration asks for.

        Raises:
            UnknownSplitError: there is no such split.
            ConfigError: a key is unknown, or one without default is missing.
        """
        if config is None:
            config = {}
        if not isinstance(config, Mapping):
            raise ConfigError(
                f'dataset {self.card.name!r} is configured by a mapping such as {{"split": "train"}}, got {config!r:.80}'
            )
        options = dict(config)
        split = options.pop("split", None)
        if split is None:
            split = self.splits[0]
        if not isinstance(split, str) or split not in self.splits:
            raise UnknownSplitError(
                f"dataset {self.card.name!r} has no split {split!r:.80}{did_you_mean(split, self.splits)}; "
                f"it has: {', '.join(self.splits)}"
            )
        if not self.takes_any_option:
            for key in options:
                if key not in self.options:
                    known = ["split", *self.options]
                    raise ConfigError(
                        f"dataset {self.card.name!r} has no configuration key {key!r:.80}{did_you_mean(key, known)}; "
                        f"it has: {', '.join(known)}"
                    )
        for key, required in self.options.items():
            if required and key not in options:
                raise ConfigError(f"dataset {self.card.name!r} needs the configuration key {key!r}, which has no default")
        return self.splits[self.splits.index(split)], options


def _by_position(meta: IteratorMeta, columns: tuple[str, ...] | None) -> IteratorMeta:
    """``meta`` with positions for the names of columns, as programs index samples with them."""
    if columns is None:
        return meta
    keys = {part.name: getattr(meta, part.name) for part in fields(IteratorMeta)}
    return replace(meta, **{name: columns.index(key) for name, key in keys.items() if key in columns})


def _overrides(subclass: type, base: type, method: str) -> bool:
    return getattr(subclass, method) is not getattr(base, method)


def _check_card(card: object, who: str) -> DatasetCard:
    if not isinstance(card, DatasetCard):
        raise ConfigError(f'{who} must declare card = DatasetCard(name="…", version="…"), got {card!r:.80}')
    for field in fields(card):
        value = getattr(card, field.name)
        if field.name == "keeps_versions":
            continue
        required = field.name in ("name", "version")
        if not (isinstance(value, str) and value.strip()) and (required or value is not None):
            raise ConfigError(f"{field.name} on the card of {who} must be a string with something in it, got {value!r:.80}")
    for what, name in (("name", card.name), ("version", card.version)):
        try:
            check_identifier(name)
        except MalformedIdentifierError as error:
            raise ConfigError(f"{who} cannot have the {what} {name!r:.80}, for it names a folder: {error}") from error
        if "/" in name:
            raise ConfigError(f"{who} cannot have the {what} {name!r:.80}: it has no '/', for it is one folder of the store")
    if card.version.casefold() in (MANIFEST, JOURNAL) or card.version.casefold().startswith(STAGED):
        raise ConfigError(f"{who} cannot have the version {card.version!r:.80}: it names one folder of the store, e.g. '1.0.0'")
    return card


def _check_sources(sources: object, card: DatasetCard, who: str) -> tuple[ResourceDefinition, ...]:
    if not isinstance(sources, Sequence) or not all(isinstance(source, ResourceDefinition) for source in sources):
        raise ConfigError(f"{who}.sources must be a list of ResourceDefinition, got {sources!r:.80}")
    return tuple(sources)


def _check_strings(values: object, what: str) -> tuple[str, ...]:
    names = () if isinstance(values, str) or not isinstance(values, Iterable) else tuple(values)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f'{what} must be a tuple of names such as ("train", "test"), got {values!r:.80}')
    if len(set(names)) != len(names):
        raise ConfigError(f"{what} names one twice: {names!r:.200}")
    return names


def _check_options(opener: Any, who: str) -> tuple[dict[str, bool], bool]:
    parameters = list(inspect.signature(opener).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2 or any(p.kind is p.POSITIONAL_ONLY for p in positional[2:]):
        raise ConfigError(f"{who}.open must be declared as open(self, split, prepared, *, option=default)")
    options = {p.name: p.default is p.empty for p in parameters[2:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return options, any(p.kind is p.VAR_KEYWORD for p in parameters)
