"""Reads scalars of any Arrow type as values of a dtype, none of which changes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import as_dtype
from data_stack.formats.parquet import types
from data_stack.formats.parquet.codecs.cells import as_binary, null_mask, numbers, plain_cells
from data_stack.formats.parquet.codecs.times import time_dtype
from data_stack.formats.parquet.columns import CellError, Mask
from data_stack.values.stacked_values import objects

#: Float64 holds all integers up to this one.
_MAX_EXACT: Final = 1 << 53
#: A Python string has this many bytes besides its characters, its reference included.
_TEXT_BYTES: Final = 57


class ValuesAndNulls(NamedTuple):
    """Scalars of a column.

    Attributes:
        values: values of one dtype, shape ``(n,)``, with any content where a value is null.
        is_null: which values are null, shape ``(n,)``; None: no value is.
    """

    values: npt.NDArray[Any]
    is_null: Mask


def read_scalars(cells: pa.Array, dtype: types.FieldDtype) -> ValuesAndNulls:
    """Read scalars of any Arrow type as values of a dtype.

    Args:
        cells: the scalars.
        dtype: the dtype of the field; object for any values.

    Raises:
        CellError: a value does not fit.
        ValueError: the cells are not scalars, are of another kind, or are not valid text.
    """
    cells = plain_cells(cells)
    is_null = null_mask(cells) if cells.null_count else None
    field_dtype = types.numpy_dtype(dtype)
    if _has_only_nulls(cells, field_dtype, is_null):
        dtype_of_nulls = object if field_dtype.kind in "US" else field_dtype
        return ValuesAndNulls(np.empty(len(cells), dtype_of_nulls), is_null)
    _check_kind(cells.type, dtype)
    return ValuesAndNulls(_read_values(cells, dtype, is_null), is_null)


def _has_only_nulls(cells: pa.Array, field_dtype: np.dtype[Any], is_null: Mask) -> bool:
    """Whether there are no values, so that the type of the cells says nothing."""
    if pa.types.is_null(cells.type):
        return True
    if field_dtype.kind in "USO" or is_null is None:
        return False
    return bool(is_null.all())


def _check_kind(type_: pa.DataType, dtype: types.FieldDtype) -> None:
    """Check that cells are scalars of the field's kind.

    Raises:
        ValueError: they are not scalars, or are of another kind.
    """
    kind = types.kind_of(types.dtype_of_arrow(type_))
    field_kind = types.kind_of(dtype)
    if kind == "O" or field_kind not in (kind, "O"):
        raise ValueError(
            f"expected values of dtype {types.dtype_name(dtype)}, the column has type {type_}"
        )


def _read_values(cells: pa.Array, dtype: types.FieldDtype, is_null: Mask) -> npt.NDArray[Any]:
    """Read scalars of the field's kind, shape ``(n,)``; raises as :func:`read_scalars`."""
    field_dtype = types.numpy_dtype(dtype)
    stored_dtype = types.dtype_of_arrow(cells.type)
    if stored_dtype is Decimal:
        if field_dtype.kind == "O":
            return objects(cells.to_pylist())
        return numbers(cells.cast(pa.from_numpy_dtype(field_dtype)))
    stored_kind = types.numpy_dtype(stored_dtype).kind
    if stored_kind in "US":
        return _read_texts(cells, field_dtype.kind)
    array = read_times(cells) if stored_kind in "mM" else numbers(cells)
    if dtype is Decimal and stored_kind in "iu":
        return objects([Decimal(number) for number in array.tolist()])
    if array.dtype == field_dtype or types.kind_of(dtype) == "O":
        return array
    return _cast(array, is_null, field_dtype)


def _read_texts(cells: pa.Array, kind: str) -> npt.NDArray[Any]:
    """Return text or bytes as objects, converted to the kind "U" or "S".

    Raises:
        pyarrow.ArrowException: the cells are not valid text.
        MemoryError: not enough memory.
    """
    if kind == "U" and types.is_bytes(cells.type):
        cells = as_binary(cells)
        is_large = pa.types.is_large_binary(cells.type)
        cells = cells.cast(pa.large_string() if is_large else pa.string())
    elif kind == "S" and types.is_text(cells.type):
        cells = as_binary(cells)
    try:
        return cells.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # an array
    except pa.ArrowException:  # raised also without memory for a str
        cells.validate(full=True)
        raise MemoryError(f"not enough memory for {len(cells):,} texts") from None


def read_times(cells: pa.Array) -> npt.NDArray[Any]:
    """Return dates and times as datetime64, times of day and durations as timedelta64."""
    type_ = cells.type
    is_narrow = pa.types.is_date32(type_) or pa.types.is_time32(type_)
    integers = numbers(cells.view(pa.int32() if is_narrow else pa.int64()))
    times: npt.NDArray[Any] = integers.astype(np.int64, copy=False).view(time_dtype(type_))
    if pa.types.is_date64(type_):
        return as_dtype(times, np.dtype("M8[D]"))  # milliseconds, of whole days
    return times


def _cast(array: npt.NDArray[Any], is_null: Mask, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert numbers or times.

    Raises:
        CellError: a value does not fit.
        ValueError: the values are of another kind.
    """
    if dtype.kind == "O":
        raise ValueError(f"expected decimals, the column has values of dtype {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        if _is_exact_cast(array, dtype):
            return cast
        is_same = cast.astype(array.dtype) == array
        if dtype.kind not in "mM":
            # A number that wraps around when it is cast may wrap around again when it is cast
            # back: -1 to uint64 and back is -1. Then its sign has changed.
            is_same &= (cast < 0) == (array < 0)
    if array.dtype.kind == "f" and dtype.kind == "f":
        is_same |= np.isnan(array) & np.isnan(cast)
    if is_null is not None:
        is_same |= is_null
    if is_same.all():
        return cast
    row = int(np.flatnonzero(~is_same)[0])
    why = f"{array[row]} does not fit into dtype {dtype}"
    if dtype.kind == "M":
        why += f"; timestamp_unit={np.datetime_data(array.dtype)[0]!r} reads it"
    raise CellError(row, why)


def _is_exact_cast(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether no number changes, whatever it is; False if uncertain."""
    if dtype.kind in "mM" or not np.can_cast(array.dtype, dtype, "safe"):
        return False
    # numpy calls it safe to convert integers of 64 bits to float64, which rounds large ones
    is_long = array.dtype.kind in "iu" and array.itemsize == 8
    if not is_long or not len(array):
        return True
    is_small = array.max() <= _MAX_EXACT
    if array.dtype.kind == "i":
        is_small = is_small and array.min() >= -_MAX_EXACT
    return bool(is_small)


def as_objects(array: npt.NDArray[Any], is_null: Mask) -> npt.NDArray[np.object_]:
    """Return values as objects: numpy scalars, so that a number keeps its dtype; None for null."""
    if array.dtype == object and is_null is None:
        return array
    values = objects(list(array))
    if is_null is not None:
        values[is_null] = None
    return values


def object_bytes(cells: pa.Array) -> int:
    """Estimate the memory of cells as Python objects."""
    return int(cells.nbytes) + _TEXT_BYTES * len(cells)
