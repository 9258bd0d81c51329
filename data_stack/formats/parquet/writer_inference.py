"""The schema that suits values, for a writer that was given none."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import NdarrayCodec, NestedCodec, PngCodec, ScalarCodec
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.writer_cells import plain_value

__all__ = ["schema_of_columns"]

_ADVICE: Final = 'give the writer a schema: Schema("…", [Field(…), …])'
_IMAGE_SHAPES: Final = {"L": (None, None), "RGB": (None, None, 3), "RGBA": (None, None, 4)}


def schema_of_columns(name: str, columns: Mapping[str, Any]) -> Schema:
    """Fields for columns: arrays of shape ``(n, ...)``, whose values then all have that shape, or lists of values, of which the
    first decides; arrays among these may differ in their sizes, not in their number of dimensions. All fields are nullable.

    Raises:
        ConfigError: what a field holds cannot be told, or nothing stores it.
    """
    fields = []
    for field, values in columns.items():
        if isinstance(values, np.ndarray) and values.dtype != object:
            if values.ndim == 1 and values.dtype.kind not in "USMm":
                fields.append(_checked(field, values.dtype, ()))
            elif values.ndim == 1:
                fields.append(_field(field, values[0] if len(values) else values.dtype.type()))
            else:
                fields.append(_checked(field, values.dtype, values.shape[1:]))
        else:
            fields.append(_field(field, next((value for value in values if not _tells_nothing(value)), None)))
    if not fields:
        raise ConfigError(f"the fields of no rows cannot be seen: {_ADVICE}")
    return Schema(name, fields)


def _tells_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, (list, tuple)) and all(map(_tells_nothing, value)))


def _field(name: str, value: Any) -> Field:
    if not isinstance(name, str):
        raise ConfigError(f"the fields of rows have names, not {name!r:.60}")
    mode = getattr(value, "mode", None)
    if isinstance(mode, str) and hasattr(value, "__array_interface__"):  # an image of Pillow
        if mode not in _IMAGE_SHAPES:
            raise ConfigError(f"field {name!r} holds an image of mode {mode!r:.20}: convert it to L, RGB or RGBA, or {_ADVICE}")
        return Field(name, "uint8", _IMAGE_SHAPES[mode], PngCodec(), nullable=True)
    value = plain_value(value)
    if isinstance(value, (bool, np.bool_)):
        return _checked(name, np.bool_, ())
    if isinstance(value, int):
        return _checked(name, np.int64 if -(2**63) <= value < 2**63 else np.uint64, ())
    if isinstance(value, str):  # np.str_ too
        return _checked(name, np.str_, ())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _checked(name, np.bytes_, ())
    if isinstance(value, np.generic):
        return _checked(name, value.dtype, ())
    if isinstance(value, float):
        return _checked(name, np.float64, ())
    if isinstance(value, Decimal):
        return Field(name, Decimal, (), nullable=True)
    if isinstance(value, datetime.datetime):
        codec = None if value.tzinfo is None else ScalarCodec("timestamp")
        return Field(name, "datetime64[us]", (), codec, nullable=True)
    if isinstance(value, datetime.date):
        return _checked(name, "datetime64[D]", ())
    if isinstance(value, datetime.timedelta):
        return _checked(name, "timedelta64[us]", ())
    if isinstance(value, np.ndarray):
        return _checked(name, value.dtype, (None,) * value.ndim)
    if isinstance(value, (list, tuple)):
        array = _array(value)
        if array is not None and array.dtype.kind in "biufUMm":
            return _checked(name, array.dtype, (None,) * array.ndim)
    if isinstance(value, (list, tuple, Mapping)):
        try:
            return Field(name, object, (), NestedCodec(arrow=pa.infer_type([value])), nullable=True)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ConfigError(
                f"what field {name!r} holds cannot be told from {value!r:.60}: {error!s:.200}; {_ADVICE}"
            ) from error
    if value is None:
        raise ConfigError(f"what field {name!r} holds cannot be told: all values so far are null, or empty; {_ADVICE}")
    if hasattr(value, "dtype"):  # a tensor of bfloat16, say, or a sparse one
        raise ConfigError(f"field {name!r} holds a {type(value).__name__} of dtype {value.dtype} that numpy cannot take: map it")
    raise ConfigError(f"what field {name!r} holds cannot be told from a {type(value).__name__}; {_ADVICE}")


def _checked(name: str, dtype: Any, shape: tuple[int | None, ...]) -> Field:
    if np.dtype(dtype).kind in "mM" and np.datetime_data(dtype)[0] == "generic":
        raise ConfigError(f"field {name!r} holds times of no unit, of dtype {np.dtype(dtype)}; give them one with astype()")
    try:
        return Field(name, dtype, shape, nullable=True)
    except ConfigError as error:
        try:  # such as complex numbers, of which Parquet has none
            return Field(name, dtype, shape, NdarrayCodec(), nullable=True)
        except ConfigError:
            raise ConfigError(f"field {name!r} cannot be stored as it is: {error}; {_ADVICE}") from error


def _array(values: Any) -> np.ndarray[Any, Any] | None:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):  # ragged
        return None
