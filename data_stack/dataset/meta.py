"""Metas: what is known of an iterator's dataset and of the columns of its samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
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
        """The name of this object among others; None if it has none."""


@dataclass(frozen=True)
class IteratorMeta:
    """Where the parts of a sample are: positions in tuple samples, keys in dict samples.

    Attributes:
        sample_pos: the sample proper, such as an image.
        target_pos: the target, such as a label.
        tag_pos: the tag.
    """

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
        """Which part of the dataset this is, e.g. ``"train"``."""

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
    """The kind of the targets: labels, one-hot vectors of labels, or real numbers; None if it is
    unknown."""

    class_names: tuple[Any, ...] | None = None
    """The classes of the targets, in the order of their numbers; None if they are unknown."""

    feature_names: tuple[str, ...] | None = None
    """Names of the values in the sample proper, in their order; None if they are unknown."""

    column_names: tuple[str, ...] | None = None
    """Names of the columns of tuple samples, in their order; None if they are unknown, ``()`` if a
    map of whole samples lost them."""

    column_kinds: tuple[tuple[int | str, str], ...] | None = None
    """Pairs of a column (its name or key, or position) and what it is shown as, where its values do
    not show it.

    ``"mask"`` and ``"boxes"`` (x and y of two corners) or ``"boxes xywh"`` are drawn over the
    picture of the sample, in its pixels; ``"audio 16000"`` is sound of that many samples a second;
    ``"image"``, ``"series"``, ``"array"`` and ``"text"`` decide where several would be possible.
    See ``docs/reference/shown_values.md``.
    """

    provenance: tuple[str, ...] = ()
    """The layers above the loaded dataset, lowest first; at most the last 100."""


@dataclass(frozen=True)
class DatasetMeta(DatasetMetaIF):
    """What is known of a dataset; immutable. The attributes are those of :class:`DatasetMetaIF`.

    Attributes:
        iterator_meta: where the parts of a sample are.
    """

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

    @property
    def sample_pos(self) -> int | str:
        """Position or key of the sample proper."""
        return self.iterator_meta.sample_pos

    @property
    def target_pos(self) -> int | str:
        """Position or key of the target."""
        return self.iterator_meta.target_pos

    @property
    def tag_pos(self) -> int | str:
        """Position or key of the tag."""
        return self.iterator_meta.tag_pos


class MetaFactory:
    """Makes metas, also from others."""

    @staticmethod
    def get_iterator_meta(
        sample_pos: int | str = 0, target_pos: int | str = 1, tag_pos: int | str = 2
    ) -> IteratorMeta:
        """Return the layout of a dataset's samples."""
        return IteratorMeta(sample_pos=sample_pos, target_pos=target_pos, tag_pos=tag_pos)

    @staticmethod
    def get_dataset_meta(
        identifier: str | None = None,
        dataset_name: str | None = None,
        dataset_tag: str | None = None,
        iterator_meta: IteratorMeta | None = None,
    ) -> DatasetMeta:
        """Return a new meta.

        Samples are ``(sample, target, tag)`` unless ``iterator_meta`` says otherwise.
        """
        return DatasetMeta(iterator_meta or IteratorMeta(), identifier, dataset_name, dataset_tag)

    @staticmethod
    def copy_dataset_meta(dataset_meta: DatasetMetaIF) -> DatasetMeta:
        """Return an equal DatasetMeta, also of a meta of another class."""
        iterator_meta = IteratorMeta(
            dataset_meta.sample_pos, dataset_meta.target_pos, dataset_meta.tag_pos
        )
        # A meta of a client's class may lack attributes that came later.
        other_values: dict[str, Any] = {
            field.name: getattr(dataset_meta, field.name, field.default)
            for field in fields(DatasetMeta)
            if field.name != "iterator_meta"
        }
        return DatasetMeta(iterator_meta, **other_values)

    @staticmethod
    def get_dataset_meta_from_existing(
        dataset_meta: DatasetMetaIF,
        identifier: str | None = NOT_GIVEN,
        dataset_name: str | None = NOT_GIVEN,
        dataset_tag: str | None = NOT_GIVEN,
    ) -> DatasetMeta:
        """Return a meta with changes; None clears a value, missing arguments keep it."""
        arguments = {
            "identifier": identifier,
            "dataset_name": dataset_name,
            "dataset_tag": dataset_tag,
        }
        changes: dict[str, Any] = {
            name: value for name, value in arguments.items() if value is not NOT_GIVEN
        }
        return replace(MetaFactory.copy_dataset_meta(dataset_meta), **changes)


# -------------------------------------------------------------------------- columns by their names

_Value = TypeVar("_Value")

LOST_NAMES = (
    "a map of whole samples may move its columns, so they lose their names. "
    "Declare those of the new samples, map(function, columns=[…]), "
    "or map one column, map(function, column=…), which keeps all names"
)
"""Why the columns above a map have no names, and what to do."""


def column_names(iterator: Any) -> tuple[str, ...]:
    """Return the names of the columns of tuple samples; ``()`` if they have none."""
    meta = getattr(iterator, "dataset_meta", None)
    return declared_names(meta) or ()


def declared_names(meta: Any) -> tuple[str, ...] | None:
    """Return the names of columns in a meta.

    Returns:
        The names; None if the meta has none, ``()`` if a map of whole samples lost them.
    """
    names: tuple[str, ...] | None = getattr(meta, "column_names", None)
    return names


def column_key(iterator: Any, key: Any) -> Any:
    """Return the position of the column that the meta of an iterator calls ``key``.

    Args:
        iterator: the iterator.
        key: the name, position or key of a column, or a list of such.

    Returns:
        The position, or ``key`` itself if the columns have no names. For a list of keys, a list.

    Raises:
        ConfigError: the columns have names, and ``key`` is not one of them; or a map of whole
            tuples lost the names.
    """
    if isinstance(key, (list, tuple)):
        return [column_key(iterator, single_key) for single_key in key]
    find_column = getattr(iterator, "_column_key", None)
    if find_column is None:  # a list of samples has no meta
        return key
    return find_column(key)


def column_key_by(meta: DatasetMetaIF, samples: SampleAccess, key: ColumnKey) -> ColumnKey:
    """Return the position of the column that a meta calls ``key``.

    Args:
        meta: the meta of the samples.
        samples: the samples. One is read if a map of whole samples lost the names.
        key: the name, position or key of a column.

    Returns:
        The position, or ``key`` itself if the columns have no names.

    Raises:
        ConfigError: the columns have names, and ``key`` is not one of them; or a map of whole
            tuples lost the names.
    """
    if not isinstance(key, str):
        return key
    names = declared_names(meta)
    if names is None:
        return key
    if not names:
        has_tuples = samples.n_samples and isinstance(samples.sample(0), (tuple, list))
        if has_tuples:
            raise ConfigError(f"samples have no column {key!r}: {LOST_NAMES}")
        return key
    if key not in names:
        known_names = ", ".join(repr(name) for name in names)
        raise ConfigError(
            f"samples have no column {key!r}{did_you_mean(key, names)}: "
            f"they have the columns {known_names}"
        )
    return names.index(key)


def column_keys(iterator: Any, values: Mapping[ColumnKey, _Value]) -> dict[ColumnKey, _Value]:
    """Return values by column, the names of the columns replaced by positions.

    Args:
        iterator: the iterator.
        values: any values by the names, positions or keys of columns.

    Raises:
        ConfigError: as of :func:`column_key`; or a column is given both by name and by position.
    """
    value_by_key = {column_key(iterator, key): value for key, value in values.items()}
    if len(value_by_key) < len(values):
        given_keys = ", ".join(repr(key) for key in values)
        raise ConfigError(
            f"a column is named twice, by its name and by its position, among {given_keys}"
        )
    return value_by_key
