"""The dataset of an iterator, and the layout of its samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Literal, TypeVar

from data_stack.dataset.iterator.access import ColumnKey, SampleAccess
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

NOT_GIVEN: Any = object()
"""Stands for a missing argument where None is a value."""

TargetKind = Literal["label", "one_hot", "real"]
"""What the targets of a dataset are."""


class IdentifiyingInfoIF(ABC):
    """Something with an identifier. (The spelling is the original's.)"""

    @property
    @abstractmethod
    def identifier(self) -> str | None:
        """Names this iterator among others."""


@dataclass(frozen=True)
class IteratorMeta:
    """The parts of a sample: positions in tuple samples, keys in dict samples."""

    sample_pos: int | str = 0
    target_pos: int | str = 1
    tag_pos: int | str = 2


class DatasetMetaIF(IdentifiyingInfoIF):
    """Describes the dataset of an informed iterator."""

    @property
    @abstractmethod
    def dataset_name(self) -> str | None:
        """The dataset's name, e.g. ``"mnist"``."""

    @property
    @abstractmethod
    def dataset_tag(self) -> str | None:
        """Which part of it, e.g. ``"train"``."""

    @property
    @abstractmethod
    def sample_pos(self) -> Any:
        """Position or key of the sample proper (int or str)."""

    @property
    @abstractmethod
    def target_pos(self) -> Any:
        """Position or key of the target (int or str)."""

    @property
    @abstractmethod
    def tag_pos(self) -> Any:
        """Position or key of the tag (int or str)."""

    target_kind: TargetKind | None = None
    """The kind of the targets: labels, one-hot vectors of labels, or real numbers; None if unknown."""

    class_names: tuple[Any, ...] | None = None
    """The classes of the targets, in the order of their numbers; None if unknown."""

    feature_names: tuple[str, ...] | None = None
    """Names of the values in the sample proper, in their order; None if unknown."""

    column_names: tuple[str, ...] | None = None
    """Names of the columns of tuple samples, in their order; None if unknown, ``()`` if a map of whole samples lost them."""

    column_kinds: tuple[tuple[int | str, str], ...] | None = None
    """Pairs of a column (its name or key, or position) and what it is shown as, where its values do not show it.

    ``"mask"`` and ``"boxes"`` (x and y of two corners) or ``"boxes xywh"`` are drawn over the picture of the sample, in its
    pixels; ``"audio 16000"`` is sound of that many samples a second; ``"image"``, ``"series"``, ``"array"`` and ``"text"``
    decide where several would be possible. See ``docs/display.md``.
    """

    provenance: tuple[str, ...] = ()
    """The layers above the loaded dataset, lowest first; of more than 100 the last ones."""


@dataclass(frozen=True)
class DatasetMeta(DatasetMetaIF):
    """A dataset's name, tag and identifier with the layout of its samples; immutable."""

    iterator_meta: IteratorMeta = IteratorMeta()
    identifier: str | None = None
    dataset_name: str | None = None
    dataset_tag: str | None = None
    target_kind: TargetKind | None = None
    class_names: tuple[Any, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    provenance: tuple[str, ...] = ()
    column_names: tuple[str, ...] | None = None
    column_kinds: tuple[tuple[int | str, str], ...] | None = None

    sample_pos = property(
        attrgetter("iterator_meta.sample_pos"), doc="Position or key of the sample proper."
    )
    target_pos = property(
        attrgetter("iterator_meta.target_pos"), doc="Position or key of the target."
    )
    tag_pos = property(attrgetter("iterator_meta.tag_pos"), doc="Position or key of the tag.")


class MetaFactory:
    """Makes metas, also from others."""

    @staticmethod
    def get_iterator_meta(
        sample_pos: int | str = 0, target_pos: int | str = 1, tag_pos: int | str = 2
    ) -> IteratorMeta:
        """The layout of a dataset's samples."""
        return IteratorMeta(sample_pos=sample_pos, target_pos=target_pos, tag_pos=tag_pos)

    @staticmethod
    def get_dataset_meta(
        identifier: str | None = None,
        dataset_name: str | None = None,
        dataset_tag: str | None = None,
        iterator_meta: IteratorMeta | None = None,
    ) -> DatasetMeta:
        """A meta from its parts; samples are ``(sample, target, tag)`` unless ``iterator_meta`` says otherwise."""
        return DatasetMeta(iterator_meta or IteratorMeta(), identifier, dataset_name, dataset_tag)

    @staticmethod
    def copy_dataset_meta(dataset_meta: DatasetMetaIF) -> DatasetMeta:
        """An equal DatasetMeta, also of a meta of another class."""
        # a client's meta need not be one of ours
        known: dict[str, Any] = {
            each.name: getattr(dataset_meta, each.name, each.default)
            for each in fields(DatasetMeta)[1:]
        }
        return DatasetMeta(
            IteratorMeta(dataset_meta.sample_pos, dataset_meta.target_pos, dataset_meta.tag_pos),
            **known,
        )

    @staticmethod
    def get_dataset_meta_from_existing(
        dataset_meta: DatasetMetaIF,
        identifier: str | None = NOT_GIVEN,
        dataset_name: str | None = NOT_GIVEN,
        dataset_tag: str | None = NOT_GIVEN,
    ) -> DatasetMeta:
        """``dataset_meta`` with changes; None clears a value, missing arguments keep it."""
        given = {"identifier": identifier, "dataset_name": dataset_name, "dataset_tag": dataset_tag}
        changes: dict[str, Any] = {
            name: value for name, value in given.items() if value is not NOT_GIVEN
        }
        return replace(MetaFactory.copy_dataset_meta(dataset_meta), **changes)


# ---------------------------------------------------------------------- columns by their names

_Value = TypeVar("_Value")

LOST_NAMES = (
    "a map of whole samples may move its columns, so they lose their names. Declare those of the new samples, "
    "map(function, columns=[…]), or map one column, map(function, column=…), which keeps all names"
)
"""Why the columns above a map have no names, and what to do."""


def column_names(iterator: Any) -> tuple[str, ...]:
    """The names of the columns of tuple samples, by the iterator's meta; ``()`` if they have none."""
    return declared_names(getattr(iterator, "dataset_meta", None)) or ()


def declared_names(meta: Any) -> tuple[str, ...] | None:
    """The names in a meta; None if it has none, ``()`` if a map of whole samples lost them."""
    names: tuple[str, ...] | None = getattr(meta, "column_names", None)
    return names


def column_key(iterator: Any, key: Any) -> Any:
    """The position of the column that the meta of ``iterator`` calls ``key``, or ``key``; of a list of keys a list.

    Raises:
        ConfigError: its columns have names, and ``key`` is not one of them; or a map of whole tuples lost the names.
    """
    if isinstance(key, (list, tuple)):
        return [column_key(iterator, each) for each in key]
    find = getattr(iterator, "_column_key", None)  # a list of samples has no meta
    return key if find is None else find(key)


def column_key_by(meta: DatasetMetaIF, samples: SampleAccess, key: ColumnKey) -> ColumnKey:
    """As :func:`column_key`, for an access and its meta."""
    if not isinstance(key, str):
        return key
    names = declared_names(meta)
    if names == () and samples.n_samples and isinstance(samples.sample(0), (tuple, list)):
        raise ConfigError(f"samples have no column {key!r}: {LOST_NAMES}")
    if names and key not in names:
        known = ", ".join(map(repr, names))
        raise ConfigError(
            f"samples have no column {key!r}{did_you_mean(key, names)}: they have the columns {known}"
        )
    return names.index(key) if names else key


def column_keys(iterator: Any, values: Mapping[ColumnKey, _Value]) -> dict[ColumnKey, _Value]:
    """A mapping by column, with names replaced by positions.

    Raises:
        ConfigError: as :func:`column_key`; or a column is given both by name and by position.
    """
    keyed = {column_key(iterator, key): value for key, value in values.items()}
    if len(keyed) < len(values):
        raise ConfigError(
            f"a column is named twice, by its name and by its position, among {', '.join(map(repr, values))}"
        )
    return keyed
