"""Named tuples of rows and of row groups, in the order of the fields."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.util import named_rows

__all__ = ["batch_as_tuples", "row_type", "rows_of"]

#: A row of an array is a view of its chunk up to so many bytes; a larger one is copied, or keeping it would keep all of them.
_LARGEST_VIEW = 1024


def row_type(schema_name: str, names: tuple[str, ...]) -> Any:
    """The class of rows with these fields (:func:`data_stack.util.named_rows.row_type`), by Petastorm's name for it."""
    return named_rows.row_type(f"{schema_name}_view", names)


def rows_of(batch: Mapping[Any, Any], schema_name: str, steps: tuple[int, ...] | None = None) -> Iterator[Any]:
    """The rows of a batch as named tuples; of n-grams dicts of them.

    Args:
        batch: columns of shape ``(n, ...)`` by name; of n-grams such columns for each offset.
        schema_name: for the name of the class.
        steps: of n-grams, the offsets that rows are given for; None for rows.
    """
    if steps is None:
        new_row = functools.partial(tuple.__new__, row_type(schema_name, tuple(batch)))  # ``_make`` without a call of Python
        return map(new_row, zip(*map(_values, batch.values()), strict=True))
    n_rows = next((len(column) for columns in batch.values() for column in columns.values()), 0)
    nothing = row_type(schema_name, ())()  # of a row of which nothing is wanted
    by_step = [rows_of(batch[step], schema_name) if batch.get(step) else itertools.repeat(nothing, n_rows) for step in steps]
    return (dict(zip(steps, rows, strict=True)) for rows in zip(*by_step, strict=True))


def batch_as_tuples(batch: Mapping[Any, Any], schema_name: str, steps: tuple[int, ...] | None = None) -> Any:
    """A batch as one named tuple of its columns; of n-grams a dict of them."""
    if steps is not None:
        return {step: batch_as_tuples(batch.get(step, {}), schema_name) for step in steps}
    return row_type(schema_name, tuple(batch))._make(batch.values())


def _values(column: npt.NDArray[Any]) -> Iterable[Any]:
    """The values of a column: scalars of numpy, objects, arrays."""
    if column.ndim > 1 and column.nbytes > _LARGEST_VIEW * len(column):
        return map(np.ndarray.copy, column)  # on access: into memory that the row before has just left
    return list(column)
