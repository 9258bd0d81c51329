"""Infers the types of columns, as records store them, from values."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import media_types
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import as_array, objects

_Array = npt.NDArray[Any]

#: How many samples a conversion reads to infer the types of their columns.
_N_SAMPLES_TO_INFER: Final = 16

#: The kinds of dtypes that the type ``array`` stores: bools, integers, floats, complex numbers.
_KINDS_OF_NUMBERS: Final = "biufc"

#: The maximum sizes of floats and complex numbers, in bytes. Larger ones differ between machines.
_MAX_FLOAT_BYTES: Final = 8
_MAX_COMPLEX_BYTES: Final = 16


def media_columns(schema: Mapping[str, ColumnType]) -> list[str]:
    """Return the names of the columns that hold images, sound or videos."""
    types = media_types()
    return [name for name, column in schema.items() if column.codec_type in types]


def plain_type(type_name: str) -> str:
    """Return the type of a column without compression.

    It is ``"array"`` for ``"zstd(array)"``, also for ``"zstd(zstd(array))"``.
    """
    return type_name.replace("zstd(", "").rstrip(")")


def positions_to_infer_from(n_samples: int) -> npt.NDArray[np.intp]:
    """Return a few positions, spread over a dataset of ``n_samples``."""
    last = max(0, n_samples - 1)
    spread = np.linspace(0, last, min(_N_SAMPLES_TO_INFER, n_samples))
    return np.unique(spread.astype(np.intp))


def column_of_dtype(dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> ColumnType:
    """Return the type of a column whose values have one dtype.

    Args:
        dtype: the dtype.
        shape: the shape of a value, with None for each size that differs between values.
    """
    is_scalar = not shape
    if is_scalar and dtype.kind == "U":
        return ColumnType("utf8")
    if is_scalar and dtype.kind == "S":
        return ColumnType("bytes")
    if is_scalar and dtype == np.uint64:
        return ColumnType("u64", dtype)
    if is_scalar and dtype.kind in "iu":
        return ColumnType("i64", dtype)

    type_name = "array" if dtype.kind in _KINDS_OF_NUMBERS else "npy"
    # Arrays of text may have other lengths of text in other samples, and so other dtypes.
    is_array_of_texts = not is_scalar and dtype.kind in "SUO"
    column_dtype = None if is_array_of_texts else dtype
    column_shape = None if None in shape else shape
    return ColumnType(type_name, column_dtype, column_shape)


def column_of_rows(rows: _Array) -> ColumnType:
    """Describe an array of values, shape ``(n, ...)``, as a column of records.

    Raises:
        ConfigError: no format stores its objects.
    """
    if rows.dtype.kind != "O":
        return column_of_dtype(rows.dtype, rows.shape[1:])
    if not len(rows):
        return ColumnType("utf8")
    return infer_column(rows.tolist(), "")


def infer_column(values: Sequence[Any], name: str) -> ColumnType:
    """Infer the type of a column from some of its values.

    The column has neither dtype nor shape, as these may differ in other values.

    Args:
        values: the values; JSON is inferred from none.
        name: the name of the column, for messages.

    Raises:
        ConfigError: no format stores such values, or they have several types.
    """
    types = {_type_of(value, name) for value in values}
    if not types:
        return ColumnType("json")
    if len(types) == 1:
        return ColumnType(types.pop())

    if types <= {"i64", "u64", "array"}:
        return ColumnType("array")
    if types <= {"json", "utf8", "i64", "u64", "array"} and not _has_numpy_array(values):
        return ColumnType("json")
    # None, a list or a dict among values of one other type.
    if len(types - {"json"}) == 1:
        return ColumnType("decimal" if "decimal" in types else "tree")
    raise ConfigError(
        f"column {name!r} holds values of several types ({', '.join(sorted(types))}); leave it out"
    )


def _has_numpy_array(values: Sequence[Any]) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


def _type_of(value: Any, name: str) -> str:
    """Return the type of one value of the column ``name``."""
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if isinstance(value, str):
        return "utf8"
    # Python's bools and numpy's durations are integers to isinstance().
    is_bool = isinstance(value, bool)
    is_duration = isinstance(value, np.timedelta64)
    if isinstance(value, (int, np.integer)) and not is_bool and not is_duration:
        is_unsigned = isinstance(value, np.uint64) or value >= 2**63
        return "u64" if is_unsigned else "i64"
    if isinstance(value, (bool, float, complex)):
        return "array"
    if isinstance(value, (np.generic, np.ndarray)) or hasattr(value, "__array__"):
        return _type_of_array(value, name)
    if isinstance(value, Decimal):
        return "decimal"
    if value is None or isinstance(value, (list, tuple, dict)):
        return "json" if _is_json(value) else "tree"
    raise ConfigError(
        f"column {name!r} holds a {type(value).__qualname__}, which no format stores; "
        "map it, or leave it out"
    )


def _type_of_array(value: Any, name: str) -> str:
    """Return the type of an array, or of an object that numpy can convert to one."""
    try:
        dtype = as_array(value).dtype
    except TypeError as error:
        raise ConfigError(
            f"column {name!r} holds values that numpy cannot convert: {error}"
        ) from error
    is_long_float = dtype.kind == "f" and dtype.itemsize > _MAX_FLOAT_BYTES
    is_long_complex = dtype.kind == "c" and dtype.itemsize > _MAX_COMPLEX_BYTES
    if is_long_float or is_long_complex:
        raise ConfigError(
            f"column {name!r} is of dtype {dtype}, whose size differs between machines; "
            "map it to float64"
        )
    return "array" if dtype.kind in _KINDS_OF_NUMBERS else "npy"


def _is_json(value: Any) -> bool:
    """Return whether a value, and all in it, is what JSON has."""
    if isinstance(value, Mapping):
        has_text_keys = all(isinstance(key, str) for key in value)
        return has_text_keys and all(_is_json(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(_is_json(item) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, bool, int))


def as_python_values(column: _Array) -> _Array:
    """Return a column of dtype object with lists and numbers of Python instead of numpy's.

    Samples of JSON have such values; read in batches, lists of numbers become arrays.
    """
    if column.dtype != object:
        return objects(column.tolist())
    values = []
    for value in column:
        if isinstance(value, (np.ndarray, np.generic)):
            values.append(value.tolist())
        else:
            values.append(value)
    return objects(values)


def size_of_column(column: _Array) -> int:
    """Return the approximate size of a column's values in bytes."""
    if column.dtype.kind != "O":
        return int(column.nbytes)
    n_bytes = 0
    for value in column:
        n_bytes += getattr(value, "nbytes", None) or sys.getsizeof(value)
    return n_bytes
