"""Named tuples of rows and of row groups, with values of Petastorm's types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.values.named_rows import row_type as named_row_type
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.unischema import Unischema

#: Bytes of a row of an array that is a view of its chunk; a larger one is copied, as a view keeps the whole chunk in memory.
_MAX_VIEW = 1024
#: Text of a row group is an array of fixed width up to this many bytes, or this many times the number of characters.
_MAX_TEXT, _MAX_PADDING = 64 << 20, 16


def row_type(schema_name: str, names: tuple[str, ...]) -> Any:
    """Return the class of rows with these fields, under Petastorm's name."""
    return named_row_type(f"{schema_name}_view", names)


class RowMaker:
    """Makes named tuples from batches: columns of shape ``(n, ...)`` by name; for n-grams such columns by offset.

    Args:
        schema: schema of the rows, for the order of their fields and for NumPy's types of text.
        ngram: the fields of each offset; None for rows.
    """

    def __init__(self, schema: Unischema, ngram: NGram | None) -> None:
        self._steps: dict[int, _Maker] | None = None
        self._maker = _Maker(schema)
        if ngram is not None:
            steps = range(min(ngram.fields), max(ngram.fields) + 1)
            self._steps = {
                step: _Maker(ngram.get_schema_at_timestep(schema, step)) for step in steps
            }

    def rows(self, batch: Mapping[Any, Any]) -> Iterator[Any]:
        """Iterate over the rows of a batch; for n-grams, dicts of rows by offset."""
        if self._steps is None:
            return self._maker.rows(batch, 0)
        n_rows = next((len(column) for columns in batch.values() for column in columns.values()), 0)
        by_step = [maker.rows(batch.get(step, {}), n_rows) for step, maker in self._steps.items()]
        return (dict(zip(self._steps, rows, strict=True)) for rows in zip(*by_step, strict=True))

    def batch(self, batch: Mapping[Any, Any]) -> Any:
        """Return a batch as one named tuple of columns; for n-grams, a dict of them by offset."""
        if self._steps is None:
            return self._maker.batch(batch)
        return {step: maker.batch(batch.get(step, {})) for step, maker in self._steps.items()}


class _Maker:
    """Makes the rows of one schema."""

    def __init__(self, schema: Unischema) -> None:
        self._names = tuple(schema.fields)
        self._type = row_type(vars(schema)["_name"], self._names)
        kinds = {np.str_: np.str_, np.bytes_: np.bytes_}
        self._texts = {
            name: kinds.get(field.numpy_dtype)
            for name, field in schema.fields.items()
            if field.shape == ()
        }

    def rows(self, columns: Mapping[str, npt.NDArray[Any]], n_rows: int) -> Iterator[Any]:
        if not self._names:
            return iter([self._type()] * n_rows)
        new_row = functools.partial(tuple.__new__, self._type)  # ``_make`` without a call of Python
        values = [_values(columns[name], self._texts.get(name)) for name in self._names]
        return map(new_row, zip(*values, strict=True))

    def batch(self, columns: Mapping[str, npt.NDArray[Any]]) -> Any:
        texts = {name for name, text in self._texts.items() if text is np.str_}
        return self._type._make(
            _text(columns[name]) if name in texts else columns[name] for name in self._names
        )


def _values(column: npt.NDArray[Any], text: Callable[[Any], Any] | None) -> Iterable[Any]:
    """Return the values of a column: NumPy's scalars, objects, arrays."""
    if column.ndim > 1 and column.nbytes > _MAX_VIEW * len(column):
        return map(np.ndarray.copy, column)  # on access, to reuse the memory of the previous row
    if text is not None and column.dtype == object:
        nul: Any = (
            "\0" if text is np.str_ else b"\0"
        )  # NumPy's pickles lose it at the end of a text
        return [value if value is None or value.endswith(nul) else text(value) for value in column]
    return list(column)


def _text(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return text as an array of fixed width, unless it has nulls, NULs at an end, or a few far longer texts."""
    if column.dtype != object or not all(
        isinstance(value, str) and not value.endswith("\0") for value in column
    ):
        return column
    lengths = np.fromiter(map(len, column), np.int64, len(column))
    if 4 * len(column) * int(lengths.max(initial=1)) > max(
        _MAX_TEXT, 4 * _MAX_PADDING * int(lengths.sum())
    ):
        return column
    return column.astype(np.str_)
