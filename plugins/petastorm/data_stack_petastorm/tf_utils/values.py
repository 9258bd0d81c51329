"""Converts values and columns to arrays of which TensorFlow makes tensors."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.formats.parquet import Field
from data_stack_petastorm.nan_for_null import NanForNull
from data_stack_petastorm.tf_utils.row_signature import PROMOTED_DTYPES, flatten


class ColumnConverter:
    """Converts the columns of a batch of rows or n-grams; it runs in the workers of a loader.

    Args:
        fields: the field of each key of a flat row.
    """

    _fields: dict[str, Field]

    def __init__(self, fields: dict[str, Field]) -> None:
        self._fields = fields

    def __call__(self, batch: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the converted columns by their keys, shape ``(n, ...)``.

        Raises:
            TypeError: a value is missing; the message names the field.
        """
        columns = flatten(batch)
        return {key: _convert_column(field, columns[key]) for key, field in self._fields.items()}


def iterate_flat_rows(reader: Any, fields: Mapping[str, Field]) -> Iterator[dict[str, Any]]:
    """Iterate over the remaining rows of a reader as flat rows of converted values.

    Args:
        reader: any reader. For a reader of row groups, a flat row has the columns of a row group.
        fields: the field of each key of a flat row.
    """
    nan_for_null = NanForNull.of_reader(reader)
    for row in reader:
        values = _flatten_row(row)
        converted: dict[str, Any] = {}
        for key, field in fields.items():
            if reader.batched_output:
                column = nan_for_null.fill_column(field.name, values[key])
                converted[key] = _convert_column(field, column)
            else:
                value = nan_for_null.fill_value(field.name, values[key])
                converted[key] = _convert_value(field, value)
        yield converted


def _flatten_row(row: Any) -> dict[str, Any]:
    """Return a named tuple, or the dict of named tuples of an n-gram, as a flat row."""
    if isinstance(row, dict):
        return flatten({offset: part._asdict() for offset, part in row.items()})
    values: dict[str, Any] = row._asdict()
    return values


def _convert_column(field: Field, column: npt.NDArray[Any]) -> Any:
    """Return a column as an array of which TensorFlow makes a tensor, shape ``(n, ...)``.

    Raises:
        TypeError: a value is missing, or arrays have different shapes; the message names the field.
    """
    if column.dtype.kind not in "OUS":
        return _promote(column)
    values = [_convert_value(field, value) for value in column]
    if not values:
        return []
    shapes = {np.shape(value) for value in values}
    if field.shape and len(shapes) > 1:
        raise TypeError(
            f"field {field.name!r} has arrays of different shapes in one row group: use "
            "make_reader, and pad them with padded_batch(…)"
        )
    if isinstance(values[0], (str, bytes)):
        return np.array(values, dtype=object)
    return np.array(values)


def _convert_value(field: Field, value: Any) -> Any:
    """Convert a value for TensorFlow: to a number, an array, text or bytes.

    Raises:
        TypeError: the value is missing; the message names the field.
    """
    if value is None:
        raise TypeError(
            f"field {field.name!r} has a row without a value (None), for which TensorFlow has no "
            f"tensors: exclude such rows (predicate=col({field.name!r}).is_valid()), replace None "
            "by a TransformSpec, or read floats as NaN (nulls='nan')"
        )
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, (datetime.date, datetime.datetime)):
        return _promote(np.array(value, dtype="M8[ns]"))
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "OUS":
        return _promote(np.asarray(value))
    return value


def _promote(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of a dtype that TensorFlow supports; times as nanoseconds since 1970."""
    if values.dtype.kind == "M":
        return values.astype("M8[ns]").astype(np.int64)
    promoted_dtype = PROMOTED_DTYPES.get(values.dtype.str[1:])
    if promoted_dtype is None:
        return values
    return values.astype(promoted_dtype)
