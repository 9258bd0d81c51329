"""The contract of conversions of batches for a framework."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.values.stacked_values import as_array
from data_stack.values.stacking import ColumnArray, stack_samples

NUMBERS = frozenset(
    {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"}
)
"""Dtypes that numpy, torch and TensorFlow share, as ``dtype.str[1:]``."""

Pairs = Iterator[tuple[Any, Any]]
"""Batches, each with a mark by which the loader knows it. A conversion passes the marks on."""

#: Plain Python data, which no conversion changes.
_PLAIN_TYPES = (str, bytes, int, float, complex, bool, type(None))


class Conversion(ABC):
    """Converts the batches of a loader one by one, see :meth:`Loader.convert`.

    A conversion is a value that pickles.
    """

    name: str
    """The name of the result for messages: "torch tensors"."""

    device: Any = None
    """The target device, or None."""

    @abstractmethod
    def convert(self, batch: Any) -> Any:
        """Convert a batch: tensors instead of arrays, in the same containers.

        Args:
            batch: nested containers of arrays, which the conversion may keep and modify, and of
                other values.
        """
        raise NotImplementedError

    def convert_all(self, pairs: Pairs) -> Pairs:
        """Convert the batches of an iteration, in their order.

        It may read further batches before it yields one: the state of the loader counts the batches
        that it has yielded.
        """
        return map_pairs(pairs, self.convert)


class MissingValuesError(ConfigError, TypeError):
    """A column of numbers or arrays has samples without a value, for which there are no tensors.

    Attributes:
        column: the keys and positions that lead to the column in the batch, the innermost last;
            empty inside values.
        name: the name of the tensors.
    """

    def __init__(self, column: tuple[Any, ...], name: str) -> None:
        super().__init__(column, name)
        self.column = column
        self.name = name

    def __str__(self) -> str:
        column = "a column"
        if self.column:
            innermost_first = [repr(key) for key in reversed(self.column)]
            column = f"column {' of column '.join(innermost_first)}"
        return (
            f"{column} has samples without a value (None), which cannot become {self.name}. Leave "
            "these samples out (iterator.filter(…), or filters=col(…).is_valid() of Parquet), "
            "replace None by iterator.map(…), or read nulls of Parquet as NaN with nulls='nan', or "
            "as 0 with a column that marks them with nulls='mask': "
            "data_stack.load('./table.parquet', nulls='nan'), ParquetDataset(…, nulls='nan')"
        )


# ---------------------------------------------------------------------- missing values


def refuse_missing(batch: Any, name: str) -> None:
    """Check that no column of a batch mixes None with numbers or arrays.

    :func:`parts_of_objects` checks columns inside of values.

    Args:
        batch: columns in dicts and tuples, nested or not.
        name: the name of the tensors, for the message.

    Raises:
        MissingValuesError: a column does.
    """
    _refuse_missing_in(batch, name, ())


def _refuse_missing_in(value: Any, name: str, column: tuple[Any, ...]) -> None:
    """Check a batch, or a part of it that the keys ``column`` lead to."""
    if isinstance(value, np.ndarray):
        is_column_of_objects = value.dtype == object and value.ndim > 0
        if is_column_of_objects and _lacks_values(list(value)):
            raise MissingValuesError(column, name)
    elif isinstance(value, Mapping):
        for key, member in value.items():
            _refuse_missing_in(member, name, (*column, key))
    elif isinstance(value, tuple):
        for position, member in enumerate(value):
            _refuse_missing_in(member, name, (*column, position))


def _lacks_values(values: list[Any]) -> bool:
    """Return whether some values are None, and all others are numbers or arrays."""
    present = [value for value in values if value is not None]
    if len(present) == 0 or len(present) == len(values):
        return False
    return all(_is_numeric(value) for value in present)


def _is_numeric(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.str[1:] in NUMBERS
    if isinstance(value, np.timedelta64):  # numpy counts it as an integer
        return False
    return isinstance(value, (int, float, complex, np.number, np.bool_))


# ---------------------------------------------------------------------- nested values


def map_nested(value: Any, function: Callable[[Any], Any], leaves: tuple[type, ...] = ()) -> Any:
    """Apply ``function`` to everything in ``value`` but containers and plain Python data.

    Containers are dicts and other mappings, tuples (with and without names), lists and dataclasses;
    the result has new ones of the same types, or a dict for a mapping that cannot be built from its
    items.

    Args:
        value: anything.
        function: called with arrays, tensors, and objects of unknown types.
        leaves: subclasses of containers that ``function`` converts as a whole.
    """
    # The most frequent cases come first.
    kind = type(value)
    if kind is np.ndarray:
        return function(value)
    if isinstance(value, np.ma.MaskedArray):
        return _map_masked_array(value, function)
    if kind is tuple:
        return tuple([map_nested(member, function, leaves) for member in value])
    if isinstance(value, np.generic):  # numpy's float64 is a float, but no plain data
        return function(value)
    if isinstance(value, _PLAIN_TYPES):
        return value
    if isinstance(value, leaves):
        return function(value)

    # Containers.
    if isinstance(value, Mapping):
        items = {key: map_nested(member, function, leaves) for key, member in value.items()}
        return _make_mapping(kind, items)
    if isinstance(value, tuple):
        members = [map_nested(member, function, leaves) for member in value]
        is_named = hasattr(value, "_fields")
        return kind(*members) if is_named else tuple(members)
    if isinstance(value, list):
        return [map_nested(member, function, leaves) for member in value]
    if dataclasses.is_dataclass(kind):
        return _map_dataclass(value, function, leaves)
    return function(value)


def _map_masked_array(array: Any, function: Callable[[Any], Any]) -> Any:
    """Convert a masked array as one with NaN, as no framework has masks; or copy it."""
    try:
        return function(as_array(array))
    except TypeError:
        return array.copy()


def _make_mapping(kind: type, items: dict[Any, Any]) -> Any:
    """Return a mapping of a type, or a dict if the type is not made from items."""
    if kind is dict:
        return items
    try:
        return kind(items)
    except TypeError:
        return items


def _map_dataclass(value: Any, function: Callable[[Any], Any], leaves: tuple[type, ...]) -> Any:
    """Return a copy of a dataclass with converted fields.

    Its constructor is not called, as it may check for arrays.
    """
    changed = copy.copy(value)
    for field in dataclasses.fields(value):
        member = map_nested(getattr(value, field.name), function, leaves)
        object.__setattr__(changed, field.name, member)
    return changed


def parts_of_objects(column: ColumnArray) -> Any:
    """Return a column of Python objects as nested columns.

    Arrays are copied: those in a batch may be the dataset's.

    Args:
        column: a column of dtype object.

    Returns:
        A dict of columns for dicts with the same keys, a tuple of columns for tuples of one length,
        and a list for other values.

    Raises:
        MissingValuesError: it mixes None with numbers or arrays.
    """
    if column.ndim == 0:
        return map_nested(column.item(), _copy_array)
    values = list(column)
    if _lacks_values(values):
        raise MissingValuesError((), "tensors")
    is_of_samples = bool(values) and isinstance(values[0], (Mapping, tuple)) and len(values[0]) > 0
    if is_of_samples:
        with contextlib.suppress(ConfigError):  # keys or lengths differ
            return stack_samples(values)  # which copies
    return map_nested(values, _copy_array)


def _copy_array(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


# ---------------------------------------------------------------------- iterators of batches


def map_pairs(pairs: Pairs, function: Callable[[Any], Any]) -> Pairs:
    """Yield ``(function(batch), mark)`` for each pair, without keeping a yielded batch alive."""
    for batch, mark in pairs:
        converted = function(batch)
        del batch
        yield converted, mark
        del converted


def one_ahead(pairs: Pairs) -> Pairs:
    """Yield the same pairs; each after the next one has been read, and the first one at once.

    So the copy of a batch to a device runs while the consumer uses the previous one. An error
    follows the pairs before it.
    """
    # A consumer that waits for its first batch does not wait for two.
    pair = next(pairs, None)
    if pair is None:
        return
    yield pair
    pair = None  # free it before the next one is made

    pair = next(pairs, None)
    while pair is not None:
        try:
            next_pair = next(pairs, None)
        except Exception:
            yield pair
            raise
        yield pair
        pair = next_pair
        del next_pair
