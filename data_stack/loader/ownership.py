"""Makes the arrays of a batch its receiver's own, by a copy of those that somebody else may have."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from data_stack.dataset.iterator.stacking import Batch, Column

__all__ = ["owned"]

# What sys.getrefcount counts of something that one list, tuple, dict or array refers to: that, and its own argument. It must be
# looked at where it lies, for a variable counts, too, and more than once in some versions of Python.
_ONE_HOLDER = 2


def owned(held: list[Batch]) -> Batch:
    """A batch whose arrays are nobody else's, so that its receiver may write into it: copied where they may be the source's.

    New arrays are passed on. A reader that keeps what it hands out, or a view of it, or hands out a view of what it keeps, has
    another reference to it; and whatever is not numpy's own memory counts as the reader's.

    Args:
        held: the batch, in a list that only the caller has. He has no other reference to the batch.
    """
    is_ours = sys.getrefcount(held[0]) == _ONE_HOLDER  # who has the tuple has its columns
    if isinstance(held[0], dict):
        columns = held[0]
        return {key: _owned(columns, key, is_ours) for key in columns}
    if isinstance(held[0], tuple):
        places = held[0]
        return tuple([_owned(places, place, is_ours) for place in range(len(places))])
    column: Column = _owned(held, 0, is_ours)
    return column


def _owned(holder: Any, key: Any, is_ours: bool) -> Any:
    """The column at ``key``; ``is_ours``: whether nobody else has ``holder``."""
    is_ours = is_ours and sys.getrefcount(holder[key]) == _ONE_HOLDER
    column: Any = holder[key]
    if isinstance(column, dict):  # the columns of one offset of n-grams
        return {name: _owned(column, name, is_ours) for name in column}
    if not (is_ours and column.flags.writeable and (column.flags.owndata or _is_only_view(column))):
        column = column.copy()
    if column.dtype.hasobject and column.dtype == object:
        _own_values(column)
    return column


def _is_only_view(column: Column) -> bool:
    """Whether nobody but ``column`` has the array it is a view of: a reader that made it and reshaped it."""
    base = column.base
    if not isinstance(base, np.ndarray) or not base.flags.owndata:
        return False
    del base
    return sys.getrefcount(column.base) == _ONE_HOLDER


def _own_values(column: Column) -> None:
    """Copy the arrays among the values of a column of objects that may be the source's, such as rows of different lengths."""
    flat = column.reshape(-1)  # of an array of our own, so it is a view
    values = flat.tolist()
    for place in [place for place, value in enumerate(values) if isinstance(value, np.ndarray)]:
        # besides the column, the list has it
        is_ours = sys.getrefcount(values[place]) == _ONE_HOLDER + 1
        value = values[place]
        if not (is_ours and value.flags.writeable and (value.flags.owndata or _is_only_view(value))):
            flat[place] = value.copy()
