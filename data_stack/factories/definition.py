"""What the author of a dataset declares, checked before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.names_of_others import ARGUMENTS, explain
from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import ConfigError, MalformedIdentifierError, UnknownSplitError
from data_stack.factories.card import DatasetCard as DatasetCard
from data_stack.factories.resource_names import ResourceNames, is_reserved
from data_stack.io.identifiers import check_identifier
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.util.suggestions import did_you_mean


class DatasetDefinition:
    """A dataset as its factory declares it, checked for consistency.

    Args:
        factory: an instance of a subclass of ``base``.
        base: the class whose methods it overrides.

    Raises:
        ConfigError: a declaration is missing or contradicts another; the message names it and the
            class.
    """

    #: The class, ``"module:QualifiedName"``.
    factory: str

    #: Name and version of the dataset.
    card: DatasetCard

    #: The dataset's folder in a store: ``name/version``, or ``name`` if it keeps no versions.
    folder: str

    #: What is retrieved, under names relative to the dataset.
    sources: tuple[ResourceDefinition, ...]

    #: Names of the resources of preprocessing; None if they are not declared.
    prepared_resources: tuple[str, ...] | None

    #: Names of the splits; the first is the default.
    splits: tuple[str, ...]

    #: Names of the columns of tuple samples; None if they are not declared.
    columns: tuple[str, ...] | None

    #: Where the parts of a sample are: positions, or keys of dict samples.
    iterator_meta: IteratorMeta

    #: False if ``open`` reads the sources, or nothing is stored.
    has_preprocess: bool

    #: Whether the dataset is prepared in independent parts.
    has_shards: bool

    #: The name of each configuration key but ``split``, with whether it is required.
    options: dict[str, bool]

    #: Whether ``open`` has ``**options``.
    takes_any_option: bool

    #: False for a dataset in memory.
    needs_store: bool

    #: The splits by their names. (The name that a user gives may be of a subclass of str.)
    _declared_names: dict[str, str]

    def __init__(self, factory: Any, base: type) -> None:
        factory_class = type(factory)
        class_name = factory_class.__qualname__
        self.factory = f"{factory_class.__module__}:{class_name}"

        self.card = _check_card(getattr(factory, "card", None), class_name)
        self.folder = _folder_of(self.card)

        # The methods.
        if not _overrides(factory, base, "open"):
            raise ConfigError(
                f"{class_name} must override open(self, split, prepared), which reads its samples"
            )
        parameters = _check_parameters_of_open(factory, class_name)
        self.options = _options_of(parameters)
        self.takes_any_option = any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters
        )
        self.has_shards = _overrides(factory, base, "prepare_shard")
        if self.has_shards != _overrides(factory, base, "preparation_shards"):
            raise ConfigError(
                f"{class_name} must override both preparation_shards and prepare_shard, or neither"
            )
        self.has_preprocess = self.has_shards or _overrides(factory, base, "preprocess")

        # The resources.
        self.sources = _check_sources(factory.sources, class_name)
        self.prepared_resources = None
        if factory.prepared_resources is not None:
            self.prepared_resources = _check_names(
                factory.prepared_resources, f"{class_name}.prepared_resources"
            )
        self._check_resource_names(class_name)
        self.needs_store = (
            self.has_preprocess or bool(self.sources) or bool(self.prepared_resources)
        )

        # The samples.
        self.splits = _check_names(getattr(factory, "splits", None), f"{class_name}.splits")
        self._declared_names = {name: name for name in self.splits}
        self.columns = None
        if factory.columns is not None:
            self.columns = _check_names(factory.columns, f"{class_name}.columns")
        self.iterator_meta = _with_positions(factory.iterator_meta, self.columns or ())

    @property
    def retrieval_jobs(self) -> list[ResourceDefinition]:
        """The sources under the identifiers that they have in the store."""
        jobs = []
        for source in self.sources:
            jobs.append(replace(source, identifier=f"{self.folder}/{source.identifier}"))
        return jobs

    # --------------------------------------------------------------------------------- opening

    def open_split(
        self, factory: Any, split: str, resources: Any, options: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        """Return the samples of one split, by the author's ``open()``.

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
        """Return the samples of some splits, and where the parts of the samples are.

        Args:
            factory: the author's.
            asked: the name and the options of each split, as :meth:`check_config` returns them.
            resources: what ``open()`` reads.
        """
        opened_splits = []
        for split, options in asked:
            iterator = self.open_split(factory, split, resources, options)
            opened_splits.append((iterator, self.iterator_meta))
        return opened_splits

    # -------------------------------------------------------------------------------- checking

    def check_sample(self, sample: Any) -> None:
        """Check that a sample has the columns that ``columns`` and ``iterator_meta`` name.

        Defaults of IteratorMeta are not checked: not every dataset has targets and tags.

        Raises:
            ConfigError: a column is missing; the message lists the columns.
        """
        keys: list[Any]
        if isinstance(sample, Mapping):
            # ``columns`` names the columns of tuple samples only.
            contradicts_columns = self.columns is not None
            keys = list(sample)
            description = f"the keys {', '.join(map(repr, keys))}"
        else:
            n_columns = 1
            if isinstance(sample, (tuple, list)):
                n_columns = len(sample)
            contradicts_columns = self.columns is not None and len(self.columns) != n_columns
            keys = list(range(-n_columns, n_columns))
            description = f"{n_columns} columns"
        if contradicts_columns or self._lacks_a_part(keys):
            raise ConfigError(
                f"samples of {self.factory} have {description}, not columns={self.columns}, "
                f"{self.iterator_meta}"
            )

    def check_config(self, config: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
        """Return the split and the options of a configuration.

        Raises:
            UnknownSplitError: the split is unknown.
            ConfigError: a key is unknown, or a required key is missing.
        """
        if config is None:
            config = {}
        if not isinstance(config, Mapping):
            raise ConfigError(
                f"the configuration of dataset {self.card.name!r} must be a mapping, "
                f"got {config!r:.80}"
            )
        options = dict(config)
        split = self._check_split(options.pop("split", None))
        self._check_options(options)
        return split, options

    def _check_split(self, split: Any) -> str:
        """Return the declared name of a split; that of the first for None."""
        if split is None:
            return self.splits[0]
        if not isinstance(split, str) or split not in self._declared_names:
            suggestion = did_you_mean(split, self.splits)
            raise UnknownSplitError(
                f"dataset {self.card.name!r} has no split {split!r:.80}{suggestion}; "
                f"it has: {', '.join(self.splits)}"
            )
        return self._declared_names[split]

    def _check_options(self, options: Mapping[str, Any]) -> None:
        for key in options:
            if key not in self.options and not self.takes_any_option:
                known_keys = ["split", *self.options]
                suggestion = explain(key, ARGUMENTS) or did_you_mean(key, known_keys)
                names = ", ".join(self.options) or "none besides split"
                raise ConfigError(
                    f"dataset {self.card.name!r} has no configuration key {key!r:.80}"
                    f"{suggestion}; it has: {names}"
                )
        for key, is_required in self.options.items():
            if is_required and key not in options:
                raise ConfigError(
                    f"dataset {self.card.name!r} needs the configuration key {key!r}, which has "
                    f"no default"
                )

    def _lacks_a_part(self, keys: Sequence[Any]) -> bool:
        """Return whether ``iterator_meta`` names a key that is none of these, and no default."""
        default_meta = IteratorMeta()
        for part in fields(IteratorMeta):
            key = getattr(self.iterator_meta, part.name)
            is_default = key == getattr(default_meta, part.name)
            if not is_default and key not in keys:
                return True
        return False

    def _check_resource_names(self, class_name: str) -> None:
        """Check that all resources can be stored together."""
        try:
            names = ResourceNames(self.folder)
            for source in self.sources:
                names.take(source.identifier)
            # Without preprocessing, the prepared resources are the sources.
            if self.has_preprocess:
                for name in self.prepared_resources or ():
                    names.take(name)
        except MalformedIdentifierError as error:
            raise ConfigError(
                f"{class_name} names a resource that cannot be stored: {error}"
            ) from error


# ---------------------------------------------------------------------- declarations of the author


def _check_card(card: object, class_name: str) -> DatasetCard:
    if not isinstance(card, DatasetCard):
        raise ConfigError(
            f'{class_name} must declare card = DatasetCard(name="…", version="…"), got {card!r:.80}'
        )
    _check_folder_name(card.name, "name", class_name)
    _check_folder_name(card.version, "version", class_name)
    if is_reserved(card.version):
        # The folder of the version would lie where a dataset without versions has this resource.
        raise ConfigError(
            f"{class_name} cannot have the version {card.version!r:.80}, which is reserved"
        )
    return card


def _check_folder_name(name: str, field_name: str, class_name: str) -> None:
    """Check that a field of a card is one segment of an identifier."""
    try:
        check_identifier(name)
        if "/" in name:
            raise MalformedIdentifierError("it must not contain '/'")
    except MalformedIdentifierError as error:
        raise ConfigError(
            f"{class_name} cannot have the {field_name} {name!r:.80}, which names a folder of the "
            f"store: {error}"
        ) from error


def _folder_of(card: DatasetCard) -> str:
    """Return the folder of a dataset in a store."""
    if card.keeps_versions:
        return f"{card.name}/{card.version}"
    return card.name


def _overrides(factory: object, base: type, method_name: str) -> bool:
    """Return whether a factory's class has a method of its own."""
    return getattr(type(factory), method_name) is not getattr(base, method_name)


def _check_parameters_of_open(factory: Any, class_name: str) -> list[inspect.Parameter]:
    """Return the parameters of ``open``: split, prepared and the options."""
    parameters = list(inspect.signature(factory.open).parameters.values())
    positional = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append(parameter)
    has_positional_options = any(
        parameter.kind is parameter.POSITIONAL_ONLY for parameter in positional[2:]
    )
    if len(positional) < 2 or has_positional_options:
        raise ConfigError(
            f"{class_name}.open must be declared as open(self, split, prepared, *, option=default)"
        )
    return parameters


def _options_of(parameters_of_open: Sequence[inspect.Parameter]) -> dict[str, bool]:
    """Return the names of the options, each with whether it is required."""
    options = {}
    for parameter in parameters_of_open[2:]:
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            options[parameter.name] = parameter.default is parameter.empty
    return options


def _check_sources(sources: object, class_name: str) -> tuple[ResourceDefinition, ...]:
    if isinstance(sources, Sequence):
        definitions = tuple(sources)
        if all(isinstance(definition, ResourceDefinition) for definition in definitions):
            return definitions
    raise ConfigError(
        f"{class_name}.sources must be a list of ResourceDefinition, got {sources!r:.80}"
    )


def _check_names(values: object, attribute: str) -> tuple[str, ...]:
    """Return declared names as a tuple: at least one, each once.

    Args:
        values: what the author declared.
        attribute: the name of the declaration in errors.
    """
    names: tuple[Any, ...] = ()
    if isinstance(values, Iterable) and not isinstance(values, str):
        names = tuple(values)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f'{attribute} must be a tuple of names such as ("train", "test"), got {values!r:.80}'
        )
    if len(set(names)) != len(names):
        raise ConfigError(f"{attribute} has a name twice: {names!r:.200}")
    return names


def _with_positions(meta: IteratorMeta, columns: Sequence[str]) -> IteratorMeta:
    """Return where the parts of a sample are, with positions in place of names of columns."""
    positions = {}
    for part in fields(IteratorMeta):
        key = getattr(meta, part.name)
        if key in columns:
            positions[part.name] = columns.index(key)
    return replace(meta, **positions)
