"""Scalars as programs of Petastorm write them: numbers of any type that fit, and text for fields of bytes."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.formats.parquet import ScalarCodec
from data_stack.formats.parquet.types import FieldLike

_NUMBERS = (bool, int, float, Decimal, np.number, np.bool_)


class LenientScalarCodec(ScalarCodec):
    """A ScalarCodec that accepts numbers of other types, rounds floats, and encodes text for bytes. It is stored as one."""

    def encode(self, field: FieldLike, value: Any) -> Any:
        if isinstance(field.dtype, np.dtype):
            if isinstance(value, np.ndarray) and value.shape == ():
                value = value[()]
            if field.dtype.kind in "biuf":
                value = fit_number(field.dtype, value)
            elif field.dtype.kind == "S" and isinstance(value, str):
                value = value.encode("utf-8")
        return super().encode(field, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScalarCodec) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash(ScalarCodec(self.type))


def fit_number(dtype: np.dtype[Any], value: Any) -> Any:
    """Convert a number to Python's bool, int or float for a dtype; the column may round floats.

    Raises:
        ValueError: the value is not a number, does not fit, or is a fraction and the dtype an integer.
    """
    if not isinstance(value, _NUMBERS):
        raise ValueError(f"expected a number, got {type(value).__name__} {value!r:.40}")
    if dtype.kind == "f":
        number = float(value)
        with np.errstate(over="ignore"):
            overflows = math.isfinite(number) and not np.isfinite(dtype.type(number))
        if overflows or (isinstance(value, (int, np.integer)) and int(number) != value):
            raise ValueError(f"{value!r:.40} does not fit into {dtype}")
        return number
    least, most = (
        (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    )
    if not math.isfinite(value) or int(value) != value or not least <= value <= most:
        raise ValueError(f"{value!r:.40} does not fit into {dtype}: a fraction, or out of range")
    return bool(value) if dtype.kind == "b" else int(value)
