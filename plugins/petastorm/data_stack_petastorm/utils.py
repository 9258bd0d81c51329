"""Decoding of rows, for programs that do it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.exception import DataStackError
from data_stack_petastorm.unischema import Unischema


class DecodeFieldError(DataStackError, RuntimeError):
    """A cell cannot be decoded."""


def decode_row(row: Mapping[str, Any], schema: Unischema) -> dict[str, Any]:
    """Decode the cells of a row.

    Args:
        row: cells by name; unknown names are omitted, None stays None.
        schema: its codecs decode the cells; without a codec, the type of the field converts them if it is NumPy's or Decimal.

    Raises:
        DecodeFieldError: a cell cannot be decoded.
    """
    values: dict[str, Any] = {}
    for name, cell in row.items():
        if (field := schema.fields.get(name)) is None:
            continue
        type_ = field.numpy_dtype
        try:
            if cell is None:
                values[name] = None
            elif field.codec is not None:
                values[name] = field.codec.decode(field, cell)
            else:
                is_scalar = isinstance(type_, type) and issubclass(type_, (np.generic, Decimal))
                values[name] = type_(cell) if is_scalar else cell
        except Exception as error:  # codecs may raise any exception
            raise DecodeFieldError(f'Decoding field "{name}" failed: {error!s:.300}') from error
    return values
