"""Stores the bytes of any codec as cells of type binary."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.codec import Codec, ColumnType
from data_stack.codecs.fitting import as_dtype, check_shape, fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec
from data_stack.formats.parquet.codecs.cells import as_binary, cell_bytes
from data_stack.formats.parquet.codecs.value_checks import check_array, check_scalar
from data_stack.formats.parquet.columns import ArrayColumn, CellColumn, GroupColumn
from data_stack.formats.parquet.types import FieldLike, numpy_dtype


class BinaryCells(ArrowCodec):
    """Stores the bytes of a codec as cells of one field.

    A field of dtype object holds any value of the codec.

    Args:
        codec: encodes and decodes values.
        field: the field, to whose dtype and shape the codec is adapted.

    Raises:
        ConfigError: the codec cannot hold values of this dtype and shape.
    """

    kind = "binary"

    def __init__(self, codec: Codec, field: FieldLike) -> None:
        column_type = ColumnType(codec.type_name, numpy_dtype(field.dtype), field.shape)
        has_numpy_dtype = isinstance(field.dtype, np.dtype) and field.dtype != object
        holds_any_value = field.dtype == object and not field.shape
        if not holds_any_value and not has_numpy_dtype:
            raise ConfigError(
                f"{codec!r} needs a dtype of numpy, or dtype object with shape (), "
                f"got {field.dtype}"
            )
        self._codec = codec if holds_any_value else codec.adapt(column_type)
        self.is_fixed = False
        if field.shape and has_numpy_dtype:
            layout = self._codec.derive_layout(column_type)
            self.is_fixed = layout is not None and layout.shape == field.shape

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        return pa.binary()

    def encode(self, field: FieldLike, value: Any) -> Any:
        return self._codec.encode(_check(field, value))

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        if field.shape and not has_nulls:
            column = _column_of_equal_cells(self._codec, field, cells)
            if column is not None:
                return column
        decode = functools.partial(_decode, self._codec, _dtype_of(field), field.shape)
        records = as_binary(cells).to_numpy(zero_copy_only=False)
        return CellColumn(
            records,
            decode,
            cells.nbytes,
            as_objects=has_nulls,
            is_compressed=self._codec.is_compressed,
        )


def _decode(
    codec: Codec, dtype: np.dtype[Any] | None, shape: tuple[int | None, ...], cell: bytes
) -> Any:
    """Decode a cell, and check its dtype and shape.

    Args:
        codec: decodes it.
        dtype: None for objects, which are not checked.
        shape: the shape of the field.
        cell: the bytes.

    Raises:
        ValueError: the value does not fit.
    """
    value = codec.decode(cell)
    is_scalar = type(value) is not np.ndarray and not shape
    if dtype is None or is_scalar:
        return value
    array = np.asarray(value)
    if array.dtype != dtype:
        array = _convert(array, dtype)
    check_shape(array.shape, shape)
    return array if array.ndim else array[()]


def _convert(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert to the byte order of this machine, and to the unit of a dtype of times.

    Raises:
        ValueError: the array has another dtype, or a time does not fit.
    """
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    is_of_kind = native.dtype.kind == dtype.kind
    if dtype.kind in "mM" and is_of_kind:
        return as_dtype(native, dtype)
    is_text = dtype.kind in "US" and is_of_kind  # of any length
    if native.dtype != dtype and not is_text:
        raise ValueError(f"expected dtype {dtype}, got {array.dtype}")
    return native


def _check(field: FieldLike, value: Any) -> Any:
    """Check that a value has the field's dtype and shape."""
    dtype = _dtype_of(field)
    if dtype is None:
        return value
    if field.shape or isinstance(value, np.ndarray) or dtype.kind == "c":
        return check_array(field, value)[()]
    scalar = check_scalar(field, value)
    if dtype.kind in "biuf":
        return dtype.type(scalar)
    return scalar


def _dtype_of(field: FieldLike) -> np.dtype[Any] | None:
    """Return the dtype of a field's values; None for objects."""
    if isinstance(field.dtype, np.dtype) and not field.dtype.hasobject:
        return field.dtype
    return None


def _column_of_equal_cells(codec: Codec, field: FieldLike, cells: pa.Array) -> ArrayColumn | None:
    """Return cells with the same header and size as one array, without decoding each of them.

    None if they differ, or do not fit the field.
    """
    dtype = _dtype_of(field)
    data, offsets = cell_bytes(cells)
    sizes = np.diff(offsets)
    if dtype is None or cells.null_count or not len(sizes):
        return None
    cell_size = sizes[0]
    if cell_size == 0 or (sizes != cell_size).any():
        return None

    # Read the header of the first cell; below, all cells must have the same.
    rows = data[offsets[0] : offsets[-1]].reshape(len(sizes), -1)
    layout = codec.layout_of(rows[0].tobytes())
    if layout is None or layout.record_bytes != cell_size:
        return None
    is_text = layout.dtype.kind == dtype.kind in "US" and layout.dtype.isnative
    has_dtype = layout.dtype == dtype or is_text
    if not has_dtype or not fits_shape(layout.shape, field.shape):
        return None
    header_bytes = len(layout.header)
    if header_bytes == cell_size:  # it has no values
        return None
    headers = rows[:, :header_bytes]
    if (headers != headers[0]).any():
        return None

    # The values of a cell lie behind its header: a view with gaps.
    strides_of_cell = np.empty(layout.shape, layout.dtype).strides
    values: npt.NDArray[Any] = np.ndarray(
        shape=(len(rows), *layout.shape),
        dtype=layout.dtype,
        buffer=rows,
        offset=header_bytes,
        strides=(rows.strides[0], *strides_of_cell),
    )
    return ArrayColumn(values, rows.nbytes)
