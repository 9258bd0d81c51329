"""Arrays of any shape as cells: ``.npy`` files, plain or compressed, as Petastorm stores them."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.cell_codec import CellCodec
from data_stack.formats.parquet.codecs.cells import binary_of_rows, cell_bytes, cell_views
from data_stack.formats.parquet.codecs.checks import FieldValues, checked_array, checked_arrays, fits_shape
from data_stack.formats.parquet.codecs.npy_cells import (
    decode_npy,
    decode_npz,
    encode_npy,
    encode_npz,
    layout_of_npy,
    npy_header,
)
from data_stack.formats.parquet.columns import ArrayColumn, CellColumn, GroupColumn
from data_stack.formats.parquet.types import numpy_dtype

if TYPE_CHECKING:
    from data_stack.formats.parquet.schema import Field

__all__ = ["CompressedNdarrayCodec", "NdarrayCodec"]

#: Rows up to this size are copied together, without their headers: that takes less memory, and rows are taken out faster.
_SMALL_ROW_BYTES = 1024
_MAX_SHAPES = 4096


class _ArrayCodec(CellCodec):
    def arrow_type(self, field: Field) -> pa.DataType:
        if not isinstance(field.dtype, np.dtype) or field.dtype.kind == "O":
            raise ConfigError(f"{type(self).__name__} holds arrays of numbers, text or bytes, not of {field.dtype}")
        return pa.binary()

    def encode(self, field: Field, value: Any) -> Any:
        return self._encoded(checked_array(field, value))

    def _column(self, field: Field, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        views = cell_views(cells)
        return CellColumn(views, _Decoder(field, self), views.n_bytes, fixed=_fixed(field, has_nulls), as_objects=has_nulls)

    @abstractmethod
    def _encoded(self, array: npt.NDArray[Any]) -> bytes:
        """The cell of an array."""

    @abstractmethod
    def decoded(self, cell: bytes) -> npt.NDArray[Any]:
        """The array of a cell."""


class NdarrayCodec(_ArrayCodec):
    """Arrays of any dtype and shape, each an ``.npy`` file. Never Python objects, never pickle."""

    kind = "ndarray"

    def _encode_column(self, field: Field, values: FieldValues) -> pa.Array:
        arrays = checked_arrays(field, values)
        header = None if arrays is None else npy_header(arrays.dtype, arrays.shape[1:])
        if arrays is None or header is None or not arrays.nbytes:
            return super()._encode_column(field, values)
        rows = np.empty((len(arrays), len(header) + arrays.nbytes // len(arrays)), np.uint8)
        rows[:, : len(header)] = np.frombuffer(header, np.uint8)
        rows[:, len(header) :] = arrays.reshape(len(arrays), -1).view(np.uint8)
        cells = binary_of_rows(rows)
        return super()._encode_column(field, values) if cells is None else cells

    def _encoded(self, array: npt.NDArray[Any]) -> bytes:
        return encode_npy(array)

    def decoded(self, cell: bytes) -> npt.NDArray[Any]:
        return decode_npy(cell)

    def _column(self, field: Field, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        column = None if has_nulls else _column_of_equal_cells(field, cells)
        return super()._column(field, cells, has_nulls) if column is None else column


class CompressedNdarrayCodec(_ArrayCodec):
    """Arrays of any dtype and shape, each a compressed ``.npz`` file. Never Python objects, never pickle."""

    kind = "compressed_ndarray"

    def _encoded(self, array: npt.NDArray[Any]) -> bytes:
        return encode_npz(array)

    def decoded(self, cell: bytes) -> npt.NDArray[Any]:
        return decode_npz(cell)


class _Decoder:
    """Decodes cells of a field, and looks whether they are of its dtype and shape."""

    def __init__(self, field: Field, codec: _ArrayCodec) -> None:
        self._decoded, self._dtype, self._shape = codec.decoded, numpy_dtype(field.dtype), field.shape
        # looking a shape up takes a tenth of the time of comparing it
        self._fitting: set[tuple[int, ...]] = set()

    def __call__(self, cell: bytes) -> Any:
        array = self._decoded(cell)
        if array.dtype != self._dtype:
            array = _as_dtype(array, self._dtype)
        if array.shape not in self._fitting:
            self._check_shape(array.shape)
        return array if array.ndim else array[()]

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if not fits_shape(shape, self._shape):
            raise ValueError(f"an array of shape {shape} where {self._shape} belongs")
        if len(self._fitting) < _MAX_SHAPES:
            self._fitting.add(shape)


def _as_dtype(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """``array`` in the byte order of this machine.

    Raises:
        ValueError: it is of another dtype.
    """
    if dtype.kind in "US" and array.dtype.kind == dtype.kind:
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if array.dtype.newbyteorder("=") != dtype:
        raise ValueError(f"an array of dtype {array.dtype} where {dtype} belongs")
    return array.astype(dtype)


def _fixed(field: Field, has_nulls: bool) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    sizes = tuple(size for size in field.shape if size is not None)
    dtype = numpy_dtype(field.dtype)
    is_fixed = len(sizes) == len(field.shape) and not has_nulls and dtype.itemsize
    return (dtype, sizes) if is_fixed else None


def _column_of_equal_cells(field: Field, cells: pa.Array) -> ArrayColumn | None:
    """The values of cells that are one header and as many numbers each. None where they differ, or do not suit the field."""
    data, offsets = cell_bytes(cells)
    if len(offsets) < 2 or cells.null_count:
        return None
    sizes = np.diff(offsets)
    size = int(sizes[0])
    if not size or not (sizes == size).all():
        return None
    rows = data[offsets[0] : offsets[-1]].reshape(len(sizes), size)
    layout = layout_of_npy(rows[0].tobytes())
    if layout is None or layout.record_bytes != size or not fits_shape(layout.shape, field.shape):
        return None
    dtype = numpy_dtype(field.dtype)
    if layout.dtype != dtype and not (layout.dtype.kind == dtype.kind in "US" and layout.dtype.isnative):
        return None
    header_bytes = len(layout.header)
    if size == header_bytes or not (rows[:, :header_bytes] == rows[0, :header_bytes]).all():
        return None
    strides = (size, *_c_strides(layout.shape, layout.dtype.itemsize))
    array: npt.NDArray[Any] = np.ndarray((len(rows), *layout.shape), layout.dtype, rows, header_bytes, strides)
    if size - header_bytes <= _SMALL_ROW_BYTES:
        array = np.ascontiguousarray(array)
        return ArrayColumn(array)
    return ArrayColumn(array, rows.nbytes)


def _c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
