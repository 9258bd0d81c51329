"""Stores the bytes of any codec as cells of type binary."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.codec import Codec, Column
from data_stack.codecs.fitting import as_dtype, check_shape, fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec, check_array, check_scalar
from data_stack.formats.parquet.columns import ArrayColumn, CellColumn, GroupColumn
from data_stack.formats.parquet.types import (
    FieldLike,
    dtype_of_numbers,
    is_bytes,
    is_text,
    numpy_dtype,
)


class BinaryCells(ArrowCodec):
    """Stores the bytes of a codec as cells of one field. A field of dtype object holds any value of the codec.

    Args:
        codec: encodes and decodes values.
        field: the field, to whose dtype and shape the codec is adapted.

    Raises:
        ConfigError: the codec cannot hold values of this dtype and shape.
    """

    kind = "binary"

    def __init__(self, codec: Codec, field: FieldLike) -> None:
        self._codec, declared = (
            codec,
            Column(codec.type_name, numpy_dtype(field.dtype), field.shape),
        )
        if field.dtype != object or field.shape:
            if not isinstance(field.dtype, np.dtype) or field.dtype == object:
                raise ConfigError(
                    f"{codec!r} needs a dtype of numpy, or dtype object with shape (), got {field.dtype}"
                )
            self._codec = codec.adapt(declared)
        layout = (
            self._codec.derive_layout(declared)
            if field.shape and isinstance(field.dtype, np.dtype)
            else None
        )
        self.is_fixed = layout is not None and layout.shape == field.shape

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        return pa.binary()

    def encode(self, field: FieldLike, value: Any) -> Any:
        return self._codec.encode(_check(field, value))

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        codec = self._codec
        column = (
            None if has_nulls or not field.shape else _column_of_equal_cells(codec, field, cells)
        )
        if column is not None:
            return column
        decode = functools.partial(_decode, codec, _dtype_of(field), field.shape)
        records = as_binary(cells).to_numpy(zero_copy_only=False)
        return CellColumn(
            records, decode, cells.nbytes, as_objects=has_nulls, is_compressed=codec.is_compressed
        )


def _decode(
    codec: Codec, dtype: np.dtype[Any] | None, shape: tuple[int | None, ...], cell: bytes
) -> Any:
    """Decode a cell, and check its dtype and shape."""
    value = codec.decode(cell)
    if dtype is None or (type(value) is not np.ndarray and not shape):
        return value
    array = np.asarray(value)
    if array.dtype != dtype:
        found, array = array.dtype, array.astype(array.dtype.newbyteorder("="), copy=False)
        if dtype.kind in "mM" and array.dtype.kind == dtype.kind:
            array = as_dtype(array, dtype)  # the unit of a cell, where it holds the same times
        elif array.dtype != dtype and not (dtype.kind in "US" and array.dtype.kind == dtype.kind):
            raise ValueError(f"expected dtype {dtype}, got {found}")
    check_shape(array.shape, shape)
    return array if array.ndim else array[()]


def _check(field: FieldLike, value: Any) -> Any:
    """Check that a value has the field's dtype and shape."""
    dtype = _dtype_of(field)
    if dtype is None:
        return value
    if field.shape or isinstance(value, np.ndarray) or dtype.kind == "c":
        return check_array(field, value)[()]
    scalar = check_scalar(field, value)
    return dtype.type(scalar) if dtype.kind in "biuf" else scalar


def _dtype_of(field: FieldLike) -> np.dtype[Any] | None:
    """The dtype of a field's values; None for objects."""
    return field.dtype if isinstance(field.dtype, np.dtype) and not field.dtype.hasobject else None


def _column_of_equal_cells(codec: Codec, field: FieldLike, cells: pa.Array) -> ArrayColumn | None:
    """The values of cells with the same header and size; None if they differ, or do not fit the field."""
    dtype, (data, offsets) = _dtype_of(field), _cell_bytes(cells)
    sizes = np.diff(offsets)
    if (
        dtype is None
        or cells.null_count
        or not len(sizes)
        or not sizes[0]
        or not (sizes == sizes[0]).all()
    ):
        return None
    rows = data[offsets[0] : offsets[-1]].reshape(len(sizes), -1)
    layout = codec.layout_of(rows[0].tobytes())
    if (
        layout is None
        or layout.record_bytes != rows.shape[1]
        or not fits_shape(layout.shape, field.shape)
    ):
        return None
    is_text = layout.dtype.kind == dtype.kind in "US" and layout.dtype.isnative
    header_bytes = len(layout.header)
    is_other = (layout.dtype != dtype and not is_text) or rows.shape[1] == header_bytes
    if is_other or not (rows[:, :header_bytes] == rows[0, :header_bytes]).all():
        return None
    strides = (rows.strides[0], *np.empty(layout.shape, layout.dtype).strides)
    return ArrayColumn(
        np.ndarray((len(rows), *layout.shape), layout.dtype, rows, header_bytes, strides),
        rows.nbytes,
    )


# ---------------------------------------------------------------------- cells of bytes


def plain_cells(cells: pa.Array) -> pa.Array:
    """Cells without extension types and dictionaries."""
    if isinstance(cells, pa.ExtensionArray):
        return plain_cells(cells.storage)
    return plain_cells(cells.dictionary_decode()) if pa.types.is_dictionary(cells.type) else cells


def as_binary(cells: pa.Array) -> pa.Array:
    """Convert cells of any bytes or text type to binary or large binary.

    Raises:
        ValueError: the column has another type.
    """
    cells = plain_cells(cells)
    type_ = cells.type
    if not (is_bytes(type_) or is_text(type_) or pa.types.is_null(type_)):
        raise ValueError(f"expected bytes, the column has type {type_}")
    if type_ == pa.string_view():  # pyarrow converts it to text only
        cells = cells.cast(pa.large_string())
    return cells.cast(
        pa.binary() if type_ in (pa.binary(), pa.string(), pa.null()) else pa.large_binary()
    )


def _cell_bytes(cells: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All bytes of a column, and the offsets of its cells, shape ``(n + 1,)``.

    Raises:
        ValueError: the column does not hold bytes.
    """
    cells = as_binary(cells)
    if not len(cells):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offset_dtype: Any = np.int64 if pa.types.is_large_binary(cells.type) else np.int32
    _, offsets, data = cells.buffers()
    starts = np.frombuffer(offsets, offset_dtype, count=cells.offset + len(cells) + 1)[
        cells.offset :
    ]
    return (
        np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    ), starts.astype(np.int64)


def numbers(cells: pa.Array) -> npt.NDArray[Any]:
    """Integers, floats or booleans as an array, shape ``(n,)``; read-only unless it is a copy.

    Args:
        cells: cells of such a type; nulls have any value.
    """
    if pa.types.is_boolean(cells.type):  # bits
        return numbers(cells.cast(pa.uint8())).view(bool)
    buffer, dtype = cells.buffers()[1], dtype_of_numbers(cells.type)
    if buffer is None or not len(cells):
        return np.zeros(len(cells), dtype)
    return np.frombuffer(buffer, dtype, len(cells), cells.offset * dtype.itemsize)


def index_cells(indices: npt.NDArray[np.int32]) -> pa.Array:
    """Row numbers for ``take()``, without pandas, which ``pyarrow.array`` would import for an array of numpy."""
    contiguous = np.ascontiguousarray(indices, np.int32)
    return pa.Array.from_buffers(pa.int32(), len(contiguous), [None, pa.py_buffer(contiguous)])


def null_mask(cells: pa.Array) -> npt.NDArray[np.bool_]:
    """Which cells are null, shape ``(n,)``; without pandas, which pyarrow would import for arrays of booleans."""
    return numbers(cells.is_null())
