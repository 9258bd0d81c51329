"""Columns by their names in an iterator's meta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Union

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.meta import DatasetMetaIF
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

ColumnKey = Union[int, str]
"""Names a column: a position in tuple samples, a key of dict samples."""

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
        raise ConfigError(
            f"samples have no column {key!r}{did_you_mean(key, names)}: they have the columns {', '.join(map(repr, names))}"
        )
    return names.index(key) if names else key


def column_keys(iterator: Any, values: Mapping[ColumnKey, _Value]) -> dict[ColumnKey, _Value]:
    """A mapping by column, with names replaced by positions.

    Raises:
        ConfigError: as :func:`column_key`; or a column is given both by name and by position.
    """
    keyed = {column_key(iterator, key): value for key, value in values.items()}
    if len(keyed) < len(values):
        raise ConfigError(f"a column is named twice, by its name and by its position, among {', '.join(map(repr, values))}")
    return keyed
