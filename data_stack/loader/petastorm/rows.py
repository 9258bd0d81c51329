"""Named tuples of rows and of batches, in the order of the fields."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["batch_as_tuples", "row_type", "rows_of"]

Maker = Callable[[str, tuple[str, ...]], Any]
#: A row of an array is a view of its chunk up to so many bytes; a larger one is copied, or keeping it would keep all of them.
_LARGEST_VIEW = 1024


@functools.cache
def row_type(schema_name: str, names: tuple[str, ...]) -> Any:
    """The class of rows with these fields, as Petastorm calls it: ``<schema>_view``. It is one class for one name and fields.

    Its rows pickle. What Python has no attribute for is called by its place: ``_3`` for the field "a b" at place 3.
    """
    type_name = re.sub(r"\W|^(?=\d)", "_", schema_name) or "row"
    namedtuple: Any = collections.namedtuple  # fields are known only now
    made = namedtuple(f"{type_name}_view", names, rename=True)

    def reduced(row: Any) -> tuple[Any, ...]:
        return _row, (schema_name, names, tuple(row))

    made.__reduce__ = reduced
    made.__module__ = __name__
    return made


def _row(schema_name: str, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return row_type(schema_name, names)(*values)


def rows_of(batch: Mapping[Any, Any], schema_name: str, *, is_ngram: bool = False, steps: tuple[int, ...] = ()) -> Iterator[Any]:
    """The rows of a batch as named tuples; of n-grams dicts of them.

    Args:
        batch: columns of shape ``(n, ...)`` by name; of n-grams such columns for each offset.
        schema_name: for the name of the class.
        is_ngram: which of both.
        steps: of n-grams, the offsets that rows are given for.
    """
    if not is_ngram:
        return map(row_type(schema_name, tuple(batch))._make, zip(*[_values(column) for column in batch.values()], strict=True))
    n_rows = next((len(column) for columns in batch.values() for column in columns.values()), 0)
    by_step = [
        rows_of(batch[step], schema_name) if batch.get(step) else iter([row_type(schema_name, ())()] * n_rows) for step in steps
    ]
    return (dict(zip(steps, rows, strict=True)) for rows in zip(*by_step, strict=True))


def batch_as_tuples(batch: Mapping[Any, Any], schema_name: str, *, is_ngram: bool = False, steps: tuple[int, ...] = ()) -> Any:
    """A batch as one named tuple of its columns; of n-grams a dict of them."""
    if is_ngram:
        return {step: batch_as_tuples(batch.get(step, {}), schema_name) for step in steps}
    return row_type(schema_name, tuple(batch))._make(batch.values())


def _values(column: npt.NDArray[Any]) -> list[Any]:
    """The values of a column: scalars of numpy, objects, arrays."""
    if column.ndim > 1 and column.nbytes > _LARGEST_VIEW * len(column):
        return [np.array(value) for value in column]
    return list(column)
