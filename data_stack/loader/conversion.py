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
from data_stack.values.stacking import Column, stack_samples

NUMBERS = frozenset(
    {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"}
)
"""Dtypes that numpy, torch and TensorFlow share, as ``dtype.str[1:]``."""

Pairs = Iterator[tuple[Any, Any]]
"""Batches, each with the loader's mark."""

_ATOMS = (str, bytes, int, float, complex, bool, type(None))


class Conversion(ABC):
    """Converts the batches of a loader one by one, see :meth:`Loader.convert`; a value that pickles."""

    name: str
    """The name of the result for messages: "torch tensors"."""

    device: Any = None
    """The target device, or None."""

    @abstractmethod
    def convert(self, batch: Any) -> Any:
        """Convert a batch: tensors instead of arrays, in the same containers.

        Args:
            batch: nested containers of arrays, which the conversion may keep and modify, and of other values.
        """
        raise NotImplementedError

    def convert_all(self, pairs: Pairs) -> Pairs:
        """Convert the batches of an iteration, in their order.

        It may read further batches before it yields one: the state of the loader counts the batches that it has yielded.
        """
        return map_pairs(pairs, self.convert)


class MissingValuesError(ConfigError, TypeError):
    """A column of numbers or arrays has samples without a value, for which no framework has tensors.

    Attributes:
        column: the keys and positions that lead to the column in the batch, the innermost last; empty inside values.
    """

    def __init__(self, column: tuple[Any, ...], name: str) -> None:
        super().__init__(column, name)
        self.column, self.name = column, name

    def __str__(self) -> str:
        where = (
            f"column {' of column '.join(map(repr, reversed(self.column)))}"
            if self.column
            else "a column"
        )
        return (
            f"{where} has samples without a value (None), which cannot become {self.name}. Leave these samples out "
            f"(iterator.filter(…), or filters=col(…).is_valid() of Parquet), replace None by iterator.map(…), or read nulls of "
            f"Parquet as NaN with nulls='nan', or as 0 with a column that marks them with nulls='mask': "
            f"data_stack.load('./table.parquet', nulls='nan'), ParquetDataset(…, nulls='nan')"
        )


def refuse_missing(batch: Any, name: str, _where: tuple[Any, ...] = ()) -> None:
    """Check that no column of a batch mixes None with numbers or arrays; :func:`parts_of_objects` checks columns inside values.

    Args:
        batch: columns in dicts and tuples, nested or not.
        name: of the tensors, for the message.

    Raises:
        MissingValuesError: a column does.
    """
    if isinstance(batch, np.ndarray):
        if batch.dtype.kind == "O" and batch.ndim and _lacks_values(list(batch)):
            raise MissingValuesError(_where, name)
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            refuse_missing(value, name, (*_where, key))
    elif isinstance(batch, tuple):
        for place, value in enumerate(batch):
            refuse_missing(value, name, (*_where, place))


def _lacks_values(values: list[Any]) -> bool:
    """Whether some values are None, and all others are numbers or arrays."""
    there = [value for value in values if value is not None]
    return 0 < len(there) < len(values) and all(map(_is_numeric, there))


def _is_numeric(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.str[1:] in NUMBERS
    return isinstance(value, (int, float, complex, np.number, np.bool_)) and not isinstance(
        value, np.timedelta64
    )


def map_nested(value: Any, function: Callable[[Any], Any], leaves: tuple[type, ...] = ()) -> Any:
    """Apply ``function`` to everything in ``value`` that is neither a container nor plain Python data.

    Containers are dicts and other mappings, tuples (with and without names), lists and dataclasses; the result has new ones of
    the same types, or a dict for a mapping that cannot be built from its items.

    Args:
        value: anything.
        function: called with arrays, tensors, and objects of unknown types.
        leaves: subclasses of containers that ``function`` converts as a whole.
    """
    kind = type(value)
    if kind is np.ndarray:  # the most frequent case
        return function(value)
    if isinstance(value, np.ma.MaskedArray):  # no framework has masks
        try:
            return function(as_array(value))
        except TypeError:
            return value.copy()
    if kind is tuple:
        return tuple([map_nested(item, function, leaves) for item in value])
    if isinstance(value, _ATOMS) and not isinstance(
        value, np.generic
    ):  # numpy's float64 is a float
        return value
    if isinstance(value, leaves):
        return function(value)
    if isinstance(value, Mapping):
        items = {key: map_nested(item, function, leaves) for key, item in value.items()}
        if kind is dict:
            return items
        try:
            return kind(items)
        except TypeError:
            return items
    if isinstance(value, tuple):
        parts = [map_nested(item, function, leaves) for item in value]
        return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [map_nested(item, function, leaves) for item in value]
    if dataclasses.is_dataclass(kind):
        # not by its constructor, which may check for arrays
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(
                changed, field.name, map_nested(getattr(value, field.name), function, leaves)
            )
        return changed
    return function(value)


def parts_of_objects(column: Column) -> Any:
    """A column of Python objects as nested columns: a dict of columns for dicts with the same keys, a tuple of columns for tuples
    of one length, and the list for other values. Arrays are copied: those in a batch may be the dataset's.

    Args:
        column: of dtype object.

    Raises:
        MissingValuesError: it mixes None with numbers or arrays.
    """
    if column.ndim == 0:
        return map_nested(column.item(), _copy_value)
    values = list(column)
    if _lacks_values(values):
        raise MissingValuesError((), "tensors")
    if values and isinstance(values[0], (Mapping, tuple)) and len(values[0]):
        with contextlib.suppress(ConfigError):  # keys or lengths differ
            return stack_samples(values)  # which copies
    return map_nested(values, _copy_value)


def _copy_value(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def map_pairs(pairs: Pairs, function: Callable[[Any], Any]) -> Pairs:
    """``(value, mark)`` as ``(function(value), mark)``, one by one, without keeping a reference to a yielded value."""
    for value, mark in pairs:
        made = function(value)
        del value
        yield made, mark
        del made


def one_ahead(pairs: Pairs) -> Pairs:
    """The same pairs; each is yielded after the next one has been read, and the first one at once.

    So the copy of a batch to a device runs while the consumer uses the previous one. An error follows the pairs before it.
    """
    pair = next(pairs, None)
    if pair is None:
        return
    yield pair  # a consumer that waits for its first batch does not wait for two
    pair = None  # free before the next one is made
    pair = next(pairs, None)
    while pair is not None:
        try:
            following = next(pairs, None)
        except Exception:
            yield pair
            raise
        yield pair
        pair = following
        del following
