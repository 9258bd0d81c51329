"""Decoding of rows, for programs that do it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.exception import DataStackError
from data_stack_petastorm.unischema import Unischema, UnischemaField


class DecodeFieldError(DataStackError, RuntimeError):
    """A cell cannot be decoded."""


def decode_row(row: Mapping[str, Any], schema: Unischema) -> dict[str, Any]:
    """Decode the cells of a row.

    Args:
        row: cells by name; unknown names are omitted, None stays None.
        schema: its codecs decode the cells; without a codec, the type of the field converts them if
            it is NumPy's or Decimal.

    Raises:
        DecodeFieldError: a cell cannot be decoded.
    """
    values: dict[str, Any] = {}
    for name, cell in row.items():
        field = schema.fields.get(name)
        if field is None:
            continue
        try:
            values[name] = _decode_cell(field, cell)
        except Exception as error:  # codecs may raise any exception
            raise DecodeFieldError(f'Decoding field "{name}" failed: {error!s:.300}') from error
    return values


def _decode_cell(field: UnischemaField, cell: Any) -> Any:
    if cell is None:
        return None
    if field.codec is not None:
        return field.codec.decode(field, cell)
    numpy_dtype = field.numpy_dtype
    if isinstance(numpy_dtype, type) and issubclass(numpy_dtype, (np.generic, Decimal)):
        return numpy_dtype(cell)
    return cell
