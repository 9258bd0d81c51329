"""Named tuples of rows and of row groups, with values of Petastorm's types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.values.named_rows import row_type as named_row_type
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.unischema import Unischema, schema_name

#: A row of an array of up to this many bytes is a view of its chunk. A larger row is copied, as a
#: view would keep the whole chunk in memory.
_MAX_VIEW_BYTES = 1024

#: Text of a row group is always an array of fixed width if that takes up to this many bytes.
_MAX_TEXT_BYTES = 64 << 20

#: A larger array of fixed width takes up to this many times the bytes of its characters. A single
#: long text among short ones would otherwise take the memory of the whole machine.
_MAX_PADDING_FACTOR = 16

#: NumPy stores text as UTF-32.
_BYTES_PER_CHARACTER = 4

#: NumPy's types of text and bytes. Values of such fields are converted to them, as in Petastorm.
_TEXT_TYPES: Final = frozenset({np.str_, np.bytes_})


def row_type(name_of_schema: str, names: tuple[str, ...]) -> Any:
    """Return the class of rows with these fields, under Petastorm's name."""
    return named_row_type(f"{name_of_schema}_view", names)


class RowMaker:
    """Makes the named tuples of rows from batches.

    Args:
        schema: schema of the rows, for the order of their fields and for NumPy's types of text.
    """

    #: The names of the fields, in the order of a row.
    _names: tuple[str, ...]
    #: The class of the named tuples.
    _row_type: Any
    #: NumPy's type of the values of each field of text or bytes.
    _text_types: dict[str, Callable[[Any], Any]]

    def __init__(self, schema: Unischema) -> None:
        self._names = tuple(schema.fields)
        self._row_type = row_type(schema_name(schema), self._names)
        self._text_types = {}
        for name, field in schema.fields.items():
            if field.shape == () and field.numpy_dtype in _TEXT_TYPES:
                self._text_types[name] = field.numpy_dtype

    def make_rows(self, batch: Mapping[str, npt.NDArray[Any]], n_rows: int) -> Iterator[Any]:
        """Iterate over the rows of a batch.

        Args:
            batch: columns of shape ``(n_rows, ...)`` by name.
            n_rows: number of rows. It is needed for rows without fields, whose batch has no column
                to take it from.
        """
        if not self._names:
            return iter([self._row_type()] * n_rows)
        values_of_fields = []
        for name in self._names:
            values = _convert_values(batch[name], self._text_types.get(name))
            values_of_fields.append(values)
        # This is what the ``_make`` of a named tuple does, but without a call of a Python function
        # for each row.
        make_row = functools.partial(tuple.__new__, self._row_type)
        return map(make_row, zip(*values_of_fields, strict=True))

    def make_batch(self, batch: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Return a batch as one named tuple of columns, each of shape ``(n_rows, ...)``."""
        columns = []
        for name in self._names:
            column = batch[name]
            if self._text_types.get(name) is np.str_:
                column = _as_fixed_width(column)
            columns.append(column)
        return self._row_type._make(columns)


class NGramMaker:
    """Makes n-grams, which are dicts of named tuples by offset, from batches.

    Args:
        schema: schema of the rows.
        ngram: the fields of each offset.
    """

    #: Makes the rows at each offset. An offset without fields has rows without fields.
    _maker_of_offset: dict[int, RowMaker]

    def __init__(self, schema: Unischema, ngram: NGram) -> None:
        self._maker_of_offset = {}
        for offset in ngram.offsets:
            schema_of_offset = ngram.get_schema_at_timestep(schema, offset)
            self._maker_of_offset[offset] = RowMaker(schema_of_offset)

    def make_rows(self, batch: Mapping[Any, Any], n_rows: int) -> Iterator[dict[int, Any]]:
        """Iterate over the n-grams of a batch.

        Args:
            batch: columns of shape ``(n_rows, ...)`` by offset and name.
            n_rows: number of n-grams. It is needed for offsets without fields.
        """
        rows_of_offsets = []
        for offset, maker in self._maker_of_offset.items():
            rows_of_offsets.append(maker.make_rows(batch.get(offset, {}), n_rows))
        offsets = list(self._maker_of_offset)
        for rows in zip(*rows_of_offsets, strict=True):
            yield dict(zip(offsets, rows, strict=True))

    def make_batch(self, batch: Mapping[Any, Any]) -> dict[int, Any]:
        """Return a batch as a dict of named tuples of columns."""
        tuples: dict[int, Any] = {}
        for offset, maker in self._maker_of_offset.items():
            tuples[offset] = maker.make_batch(batch.get(offset, {}))
        return tuples


def _convert_values(
    column: npt.NDArray[Any], text_type: Callable[[Any], Any] | None
) -> Iterable[Any]:
    """Return the values of a column as those of rows: scalars of NumPy, objects or arrays.

    Args:
        column: shape ``(n, ...)``.
        text_type: ``np.str_`` or ``np.bytes_`` for text or bytes; None for other values.
    """
    has_large_arrays = column.ndim > 1 and column.nbytes > _MAX_VIEW_BYTES * len(column)
    if has_large_arrays:
        # Each array is copied when its row is made, to reuse the memory of the previous row.
        return map(np.ndarray.copy, column)
    if text_type is None or column.dtype != object:
        return list(column)
    # NumPy's pickles lose a NUL at the end of a text, so such a text stays a ``str`` of Python.
    nul: Any = "\0" if text_type is np.str_ else b"\0"
    return [value if value is None or value.endswith(nul) else text_type(value) for value in column]


def _as_fixed_width(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return text as an array of fixed width, where that loses nothing and needs little memory.

    A column with nulls, with NULs at an end, or with a few far longer texts stays as it is.
    """
    if column.dtype != object:
        return column
    for value in column:
        if not isinstance(value, str) or value.endswith("\0"):
            return column
    lengths = np.fromiter(map(len, column), np.int64, len(column))
    n_bytes = _BYTES_PER_CHARACTER * len(column) * int(lengths.max(initial=1))
    n_bytes_of_texts = _BYTES_PER_CHARACTER * int(lengths.sum())
    if n_bytes > max(_MAX_TEXT_BYTES, _MAX_PADDING_FACTOR * n_bytes_of_texts):
        return column
    return column.astype(np.str_)
