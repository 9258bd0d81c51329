"""The codec of arrays of one dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.arrow_codec import Values
from data_stack.formats.parquet.codecs.cells import null_mask, numbers, plain_cells
from data_stack.formats.parquet.codecs.list_arrays import MAX_ELEMENTS
from data_stack.formats.parquet.codecs.scalar_values import object_bytes
from data_stack.formats.parquet.codecs.times import is_instant, to_scalar
from data_stack.formats.parquet.codecs.typed_codec import TypedCodec
from data_stack.formats.parquet.codecs.value_checks import check_array, check_scalar
from data_stack.formats.parquet.columns import ArrayColumn, CellError, GroupColumn, ListColumn, Mask
from data_stack.formats.parquet.types import FieldLike


class ListCodec(TypedCodec):
    """Stores arrays of one dimension as Parquet lists, which any tool reads.

    Args:
        type: type of the elements, as for :class:`ScalarCodec`.
        nulls: how missing elements are read, as for :class:`ScalarCodec`.
    """

    kind = "list"

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        if len(field.shape) != 1:
            raise ConfigError(
                f"ListCodec holds arrays of one dimension, not of shape {field.shape}; "
                "use NdarrayCodec()"
            )
        return pa.list_(self._element_type(field))

    def encode(self, field: FieldLike, value: Any) -> Any:
        type_ = self._element_type(field)
        is_of_numbers = isinstance(field.dtype, np.dtype) and field.dtype.kind in "biuf"
        if is_of_numbers and not _has_none(value):
            return _encode_numbers(check_array(field, value), type_)
        return _encode_elements(field, value, type_)

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        if isinstance(values, np.ndarray) and _is_plain_array(field, values):
            try:
                return _lists_of_rows(values, self.arrow_type(field))
            except (pa.ArrowException, ValueError, OverflowError):
                pass  # retried row by row, to name the row
        return super()._encode_column(field, values)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        (elements,), offsets = list_parts(plain_cells(cells))
        is_null = null_mask(cells) if cells.null_count else None
        sizes = np.diff(offsets)
        _check_sizes(field, sizes, is_null)
        array, is_null_element = self._read_elements(field, elements, offsets)

        has_any_null = has_nulls or is_null_element is not None
        if not has_any_null and len(sizes) and (sizes == sizes[0]).all():
            rows = array.reshape(len(sizes), sizes[0])
            if array.dtype == object:
                return ArrayColumn(rows, object_bytes(elements))
            return ArrayColumn(rows)
        return ListColumn(array, offsets, is_null, is_null_element, as_objects=has_nulls)


def _has_none(value: Any) -> bool:
    """Whether a list, a tuple or an array of objects has None among its elements."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return False
    if not isinstance(value, (np.ndarray, list, tuple)):
        return False
    return any(element is None for element in value)


def _encode_numbers(array: npt.NDArray[Any], type_: pa.DataType) -> Any:
    """Return numbers for ``pyarrow.array``, which checks that they fit the type.

    It does not check numbers of numpy with another dtype than that of the type, so they become
    numbers of Python.
    """
    if array.dtype == np.float16:
        return [to_scalar(element, type_) for element in array]
    if pa.from_numpy_dtype(array.dtype) == type_:
        return array
    return array.tolist()


def _encode_elements(field: FieldLike, value: Any, type_: pa.DataType) -> list[Any]:
    """Check and encode the elements one by one.

    Raises:
        TypeError, ValueError: ``value`` is not a list, or an element does not fit.
    """
    (size,) = field.shape
    elements = list(value)
    has_wrong_size = size is not None and len(elements) != size
    if isinstance(value, (str, bytes)) or has_wrong_size:
        raise ValueError(
            f"expected a list of shape {field.shape}, "
            f"got {type(value).__name__} of length {len(elements)}"
        )
    is_zoned = is_instant(type_)
    encoded: list[Any] = []
    for element in elements:
        if element is not None:
            element = to_scalar(check_scalar(field, element, is_instant=is_zoned), type_)
        encoded.append(element)
    return encoded


def _is_plain_array(field: FieldLike, values: npt.NDArray[Any]) -> bool:
    """Whether values are numbers of the field's dtype and shape, which need no check."""
    has_dtype = values.dtype == field.dtype and values.dtype.kind in "biuf"
    if type(values) is not np.ndarray or not has_dtype or values.size > MAX_ELEMENTS:
        return False
    return fits_shape(values.shape[1:], field.shape)


def _lists_of_rows(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Convert each row of an array of shape ``(n, size)`` to a list."""
    n_rows, size = values.shape
    offsets = pa.array(np.arange(n_rows + 1, dtype=np.int32) * np.int32(size))
    elements = pa.array(values.reshape(-1)).cast(type_.value_type)
    return pa.ListArray.from_arrays(offsets, elements, type=type_)


def _check_sizes(field: FieldLike, sizes: npt.NDArray[np.int64], is_null: Mask) -> None:
    """Check that lists have the size of their field.

    Raises:
        CellError: one has another size.
    """
    size = field.shape[0] if field.shape else None
    if size is None:
        return
    is_wrong = sizes != size
    if is_null is not None:
        is_wrong &= ~is_null
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise CellError(row, f"expected a list of shape {field.shape}, got {sizes[row]} elements")


def list_parts(cells: pa.Array) -> tuple[list[pa.Array], npt.NDArray[np.int64]]:
    """Return the elements of lists or maps, and the offsets of each list or map in them.

    Args:
        cells: ``n`` lists or maps.

    Returns:
        One array with all elements, or two with all keys and all items; and the offsets, shape
        ``(n + 1,)``, from 0.

    Raises:
        ValueError: the cells are not lists.
    """
    type_ = cells.type
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        elements = cells.values.slice(cells.offset * size, len(cells) * size)
        return [elements], np.arange(len(cells) + 1, dtype=np.int64) * size
    is_map = pa.types.is_map(type_)
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    if not is_map and not is_list:
        raise ValueError(f"expected lists, the column has type {type_}")
    offsets = np.zeros(1, np.int64)
    if len(cells):
        offsets = numbers(cells.offsets).astype(np.int64)
    start = offsets[0]
    n_elements = offsets[-1] - start
    children = [cells.keys, cells.items] if is_map else [cells.values]
    return [child.slice(start, n_elements) for child in children], offsets - start
