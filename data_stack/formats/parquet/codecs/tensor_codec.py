"""The codec of arrays of one shape, as Arrow's tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import check_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.arrow_arrays import UNSUITABLE
from data_stack.formats.parquet.codecs.arrow_codec import Values
from data_stack.formats.parquet.codecs.cells import null_mask, plain_cells
from data_stack.formats.parquet.codecs.exact_cells import exact_cells
from data_stack.formats.parquet.codecs.list_codec import list_parts
from data_stack.formats.parquet.codecs.scalar_values import object_bytes
from data_stack.formats.parquet.codecs.typed_codec import TypedCodec
from data_stack.formats.parquet.codecs.value_checks import check_array, is_none_or_nat
from data_stack.formats.parquet.columns import (
    ArrayColumn,
    CellError,
    GroupColumn,
    ListColumn,
    Rows,
)
from data_stack.formats.parquet.types import FieldLike, is_tensor
from data_stack.values.stacked_values import objects

#: The kinds of dtypes whose arrays are encoded without a look at each value.
_PLAIN_KINDS = "biufmM"


class TensorCodec(TypedCodec):
    """Stores arrays of one shape as ``arrow.fixed_shape_tensor``.

    Tools that know this extension type of Arrow read tensors, others read flat lists of one size.
    A missing element is None in an array of objects.

    https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor

    Args:
        type: type of the elements, as for :class:`ScalarCodec`.
        nulls: how missing elements are read, as for :class:`ScalarCodec`.
        permutation: for each axis of a value the axis of the stored array; None: the axes are
            stored in their order.

    Attributes:
        permutation: as given, as a tuple.
    """

    kind = "tensor"
    permutation: tuple[int, ...] | None

    def __init__(
        self,
        type: Any = None,  # noqa: A002  # its name in the stored schema
        *,
        nulls: Literal["none", "nan", "zero"] = "none",
        permutation: Sequence[int] | None = None,
    ) -> None:
        super().__init__(type, nulls=nulls)
        self.permutation = None
        if permutation is not None:
            self.permutation = _check_permutation(permutation)

    def to_json(self) -> dict[str, Any]:
        content = super().to_json()
        if self.permutation is not None:
            content["permutation"] = list(self.permutation)
        return content

    def with_nulls(self, nulls: Literal["none", "nan", "zero"]) -> TensorCodec:
        return TensorCodec(self.type, nulls=nulls, permutation=self.permutation)

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        element_type = self._element_type(field)
        shape = self._stored_shape(field)
        return pa.fixed_shape_tensor(element_type, shape, permutation=self.permutation)

    def _stored_shape(self, field: FieldLike) -> tuple[int, ...]:
        """Return the shape of the stored arrays, whose axes may be in another order.

        Raises:
            ConfigError: the shape of the field is open, or has another number of axes than the
                permutation.
        """
        sizes = [size for size in field.shape if size is not None]
        if len(sizes) != len(field.shape):
            raise ConfigError(
                f"TensorCodec holds arrays of one shape, not of shape {field.shape}; "
                "use NdarrayCodec()"
            )
        if self.permutation is None:
            return tuple(sizes)
        if len(self.permutation) != len(sizes):
            raise ConfigError(
                f"the permutation {self.permutation} of a TensorCodec does not fit "
                f"the shape {field.shape}"
            )
        return tuple(sizes[axis] for axis in np.argsort(self.permutation))

    # ------------------------------------------------------------------ encode

    def encode(self, field: FieldLike, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == object:
            array = value  # perhaps with missing elements; exact_cells() checks the elements
            check_shape(array.shape, field.shape)
        else:
            array = check_array(field, value)
        return self._flatten(array[None])[0]

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        type_ = self.arrow_type(field)
        if type_.storage_type.list_size == 0:
            raise CellError(
                0, "Parquet has no tensors without elements; use NdarrayCodec(), or leave it out"
            )
        flat: Any
        if isinstance(values, np.ndarray) and _is_plain_array(field, values):
            flat = self._flatten(values)
        else:
            encoded = []
            for row, value in enumerate(values):
                encoded.append(self._encode_cell(field, row, value))
            flat = objects(encoded)
        return pa.ExtensionArray.from_storage(type_, exact_cells(flat, type_.storage_type))

    def _encode_cell(self, field: FieldLike, row: int, value: Any) -> Any:
        """Encode the value of a row; None for null.

        Raises:
            CellError: it does not fit the field.
        """
        if is_none_or_nat(value):
            return None
        try:
            return self.encode(field, value)
        except UNSUITABLE as error:
            raise CellError(row, f"{error!s:.300}") from error

    def _flatten(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return n arrays in the stored order of their elements, shape ``(n, size)``."""
        if self.permutation is not None:
            stored_axes = np.argsort(self.permutation) + 1
            values = values.transpose(0, *stored_axes)
        return values.reshape(len(values), math.prod(values.shape[1:]))

    # ------------------------------------------------------------------ decode

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        _check_type(self.arrow_type(field), cells.type)
        (elements,), offsets = list_parts(plain_cells(cells))
        is_null = null_mask(cells) if cells.null_count else None
        stored_shape = self._stored_shape(field)
        _check_sizes(offsets, is_null, stored_shape)
        array, is_null_element = self._read_elements(field, elements, offsets)

        if has_nulls or is_null_element is not None:
            lists = ListColumn(array, offsets, is_null, is_null_element, as_objects=has_nulls)
            return _TensorColumn(lists, stored_shape, self.permutation)
        tensors = unflatten_tensors(array, len(cells), stored_shape, self.permutation)
        if array.dtype == object:
            return ArrayColumn(tensors, object_bytes(elements))
        return ArrayColumn(tensors)


class _TensorColumn(GroupColumn):
    """Arrays of one shape, some of which are null or have missing elements.

    Args:
        lists: the flat arrays.
        stored_shape: the shape of the stored arrays.
        permutation: as of the codec.
    """

    def __init__(
        self, lists: ListColumn, stored_shape: tuple[int, ...], permutation: tuple[int, ...] | None
    ) -> None:
        self._lists = lists
        self._stored_shape = stored_shape
        self._permutation = permutation
        self.n_bytes = lists.n_bytes

    def value(self, row: int) -> Any:
        return self._tensor_of(self._lists.value(row))

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        lists = self._lists.take(rows)
        if lists.ndim == 2:
            return unflatten_tensors(lists, len(rows), self._stored_shape, self._permutation)
        return objects([self._tensor_of(values) for values in lists])

    def _tensor_of(self, values: npt.NDArray[Any] | None) -> Any:
        """Return the tensor of a flat array; None for null."""
        if values is None:
            return None
        return unflatten_tensors(values, 1, self._stored_shape, self._permutation)[0]


def unflatten_tensors(
    elements: npt.NDArray[Any],
    n_values: int,
    stored_shape: tuple[int, ...],
    permutation: tuple[int, ...] | None,
) -> npt.NDArray[Any]:
    """Return the elements of n arrays as arrays of their shape, shape ``(n, ...)``, in C order.

    ``to_numpy_ndarray()`` of pyarrow 26 loses elements where a permutation of three axes is not its
    own inverse.

    Args:
        elements: the elements of all arrays, one array after the other.
        n_values: the number n of arrays.
        stored_shape: the shape of each stored array.
        permutation: for each axis of a value the axis of the stored array; None: the same axis.
    """
    tensors = elements.reshape(n_values, *stored_shape)
    if permutation is None:
        return tensors
    axes = [axis + 1 for axis in permutation]
    return np.ascontiguousarray(tensors.transpose(0, *axes))


def _check_permutation(permutation: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of a permutation.

    Raises:
        ConfigError: it does not have each axis once.
    """
    is_sequence = isinstance(permutation, (list, tuple))
    if not is_sequence or set(permutation) != set(range(len(permutation))):
        raise ConfigError(
            f"the permutation of a TensorCodec must have each axis once, got {permutation!r:.80}"
        )
    return tuple(int(axis) for axis in permutation)


def _is_plain_array(field: FieldLike, values: npt.NDArray[Any]) -> bool:
    """Whether values are numbers or times of the field's dtype and shape, which need no check."""
    has_dtype = values.dtype == field.dtype and values.dtype.kind in _PLAIN_KINDS
    return has_dtype and values.shape[1:] == field.shape


def _check_type(expected_type: pa.FixedShapeTensorType, type_: pa.DataType) -> None:
    """Check that the tensors of a file have the shape and the order of axes of their field.

    As lists they may have equally many elements.

    Raises:
        CellError: they have others.
    """
    if not is_tensor(type_) or type_ == expected_type:
        return
    has_shape = tuple(type_.shape) == tuple(expected_type.shape)
    if not has_shape or _axes_of(type_) != _axes_of(expected_type):
        raise CellError(0, f"expected tensors of type {expected_type}, the column has {type_}")


def _axes_of(type_: pa.FixedShapeTensorType) -> list[int]:
    """Return for each axis of a value the axis of the stored array."""
    return list(type_.permutation or range(len(type_.shape)))


def _check_sizes(
    offsets: npt.NDArray[np.int64],
    is_null: npt.NDArray[np.bool_] | None,
    stored_shape: tuple[int, ...],
) -> None:
    """Check that flat arrays have as many elements as their shape.

    Raises:
        CellError: one has another number.
    """
    sizes = np.diff(offsets)
    is_wrong = sizes != math.prod(stored_shape)
    if is_null is not None:
        is_wrong &= ~is_null
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise CellError(
            row, f"expected a tensor stored in shape {stored_shape}, got {sizes[row]} elements"
        )
