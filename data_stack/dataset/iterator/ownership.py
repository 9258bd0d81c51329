"""Makes what is given its receiver's own, by a copy of what something else may have."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from data_stack.dataset.iterator.sample_columns import is_plain_tensor
from data_stack.dataset.iterator.stacking import Batch, Column
from data_stack.util.large_arrays import has_own_memory

__all__ = ["copied", "copied_objects", "owned"]

# What sys.getrefcount counts of something that one list, tuple, dict or array refers to: that, and its own argument. It must be
# looked at where it lies, for a variable counts, too, and more than once in some versions of Python.
_ONE_HOLDER = 2


_Batch = TypeVar("_Batch")

# What cannot be written into.
_CONSTANT: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, *set(np.sctypeDict.values())} - {np.object_, np.void}
)


def copied(value: Any) -> Any:
    """A value that may be written into: arrays, plain tensors, lists, dicts, sets and bytearrays are copied, at any depth.

    Objects of other classes are given as they are, and so are the values in them.
    """
    kind = type(value)
    if kind in _CONSTANT:
        return value
    if kind is tuple:
        return tuple([copied(item) for item in value])
    if kind is np.ndarray or isinstance(value, np.ndarray):
        return copied_objects(value.copy("K")) if value.dtype.hasobject else value.copy("K")
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    if kind is set or kind is bytearray:
        return value.copy()
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        made = tuple.__new__(kind, map(copied, value))
        if getattr(value, "__dict__", None):  # a subclass may have more than its fields
            made.__dict__.update(copied(value.__dict__))
        return made
    return value.clone() if is_plain_tensor(value) else value


def copied_objects(batch: _Batch) -> _Batch:
    """A batch, or a column; in its columns of objects, which must not be shared, values are replaced by copies."""
    given: Any = batch
    if isinstance(given, (dict, tuple)):
        for column in given.values() if isinstance(given, dict) else given:
            copied_objects(column)
    elif given.dtype == object:
        for place in np.ndindex(given.shape):
            if type(given[place]) not in _CONSTANT:
                given[place] = copied(given[place])
    return batch


def owned(held: list[Batch]) -> Batch:
    """A batch whose arrays are nobody else's, so that its receiver may write into it: copied where they may be the source's.

    New arrays are passed on, and so are parts of a new array that do not overlap. A reader that keeps what it hands out, or a
    view of it, or hands out a view of what it keeps, has another reference to it; and whatever is not numpy's own memory counts
    as the reader's.

    Args:
        held: the batch, in a list that only the caller has. He has no other reference to the batch.
    """
    is_ours = sys.getrefcount(held[0]) == _ONE_HOLDER  # who has the tuple has its columns
    n_parts = _numbers_of_parts(held)
    if isinstance(held[0], dict):
        columns = held[0]
        return {key: _owned(columns, key, is_ours, n_parts) for key in columns}
    if isinstance(held[0], tuple):
        places = held[0]
        return tuple([_owned(places, place, is_ours, n_parts) for place in range(len(places))])
    column: Column = _owned(held, 0, is_ours, n_parts)
    return column


def _owned(holder: Any, key: Any, is_ours: bool, n_parts: Mapping[int, int]) -> Any:
    """The column at ``key``; ``is_ours``: whether nobody else has ``holder``."""
    is_ours = is_ours and sys.getrefcount(holder[key]) == _ONE_HOLDER
    column: Any = holder[key]
    if isinstance(column, dict):  # the columns of one offset of n-grams
        return {name: _owned(column, name, is_ours, n_parts) for name in column}
    if not (is_ours and column.flags.writeable and (has_own_memory(column) or _is_only_view(column, n_parts))):
        column = column.copy()
    if column.dtype.hasobject and column.dtype == object:
        _own_values(column)
    return column


def _is_only_view(column: Column, n_parts: Mapping[int, int]) -> bool:
    """Whether only this batch has the array that ``column`` is a view of: a reader made it, and reshaped it or cut it up."""
    base = column.base
    if not isinstance(base, np.ndarray) or not has_own_memory(base):
        return False
    n_views = n_parts.get(id(base), 1)
    del base
    return sys.getrefcount(column.base) == _ONE_HOLDER - 1 + n_views


def _numbers_of_parts(held: list[Batch]) -> dict[int, int]:
    """Of each array that columns of the batch are parts of, by its id: how many are, where no two of them overlap."""
    spans: dict[int, list[tuple[int, int]]] = {}
    _find_parts(held, spans)
    return {base: len(parts) for base, parts in spans.items() if _are_apart(parts)} if spans else {}


def _find_parts(holder: Any, spans: dict[int, list[tuple[int, int]]]) -> None:
    """Collect by array where in it those columns lie that are not its only views; not what somebody else has, too."""
    for key in holder if isinstance(holder, dict) else range(len(holder)):
        if sys.getrefcount(holder[key]) != _ONE_HOLDER:
            continue
        column = holder[key]
        if isinstance(column, (dict, tuple)):
            _find_parts(column, spans)
        elif column.base is not None and column.flags.c_contiguous and sys.getrefcount(column.base) > _ONE_HOLDER:
            start = column.__array_interface__["data"][0]
            spans.setdefault(id(column.base), []).append((start, start + column.nbytes))


def _are_apart(spans: list[tuple[int, int]]) -> bool:
    return all(end <= start for (_, end), (start, _) in itertools.pairwise(sorted(spans)))


def _own_values(column: Column) -> None:
    """Copy the values of a column of objects that may be the source's: all but arrays that it cannot have."""
    flat = column.reshape(-1)  # of an array of our own, so it is a view
    values = flat.tolist()
    for place in [place for place, value in enumerate(values) if type(value) not in _CONSTANT]:
        # besides the column, the list has it
        is_ours = sys.getrefcount(values[place]) == _ONE_HOLDER + 1
        value = values[place]
        if not (
            is_ours
            and isinstance(value, np.ndarray)
            and value.dtype != object
            and value.flags.writeable
            and (has_own_memory(value) or _is_only_view(value, {}))
        ):
            flat[place] = copied(value)
