"""How the bytes of records of one size become values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import FixedLayout
from data_stack.values.stacked_values import python_values

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class RowFormat:
    """The format of records that each hold a header, then an array in C order.

    An *item* is the array of one record in one piece. Items are copied as a whole, at the speed
    of memory, whatever the shape of the array is.

    Attributes:
        record_bytes: the size of a record in bytes.
        header_bytes: the size of its header in bytes.
        shape: the shape of a value.
        stored_dtype: the dtype of the numbers in the file.
        value_dtype: the dtype of the numbers in the values that are returned.
        item_dtype: the dtype of an item: ``stored_dtype`` for one number, or ``value_dtype`` if its
            first bytes are the value; raw bytes for an array.
    """

    record_bytes: int
    header_bytes: int
    shape: tuple[int, ...]
    stored_dtype: np.dtype[Any]
    value_dtype: np.dtype[Any]
    item_dtype: np.dtype[Any]

    @classmethod
    def from_layout(cls, layout: FixedLayout, dtype: np.dtype[Any] | None) -> RowFormat:
        """Derive the format from the layout of the records.

        Args:
            layout: the layout that all records have.
            dtype: the declared dtype of the values; None for the dtype of the layout.
        """
        header_bytes = len(layout.header)
        stored_dtype = layout.dtype
        if stored_dtype.kind == "b":
            # A damaged file may hold bytes other than 0 and 1, which are not valid booleans.
            stored_dtype = np.dtype(np.uint8)
        value_dtype = layout.dtype if dtype is None else dtype
        if layout.shape:
            item_dtype = np.dtype(f"V{layout.record_bytes - header_bytes}")
        elif _is_low_part(value_dtype, stored_dtype):
            # Other bytes of the number are skipped, which takes a third of the time of a cast.
            item_dtype = value_dtype
        else:
            item_dtype = stored_dtype
        return cls(
            record_bytes=layout.record_bytes,
            header_bytes=header_bytes,
            shape=layout.shape,
            stored_dtype=stored_dtype,
            value_dtype=value_dtype,
            item_dtype=item_dtype,
        )

    @property
    def value_bytes(self) -> int:
        """The size of a stored value in bytes."""
        return self.record_bytes - self.header_bytes

    @cached_property
    def is_number(self) -> bool:
        """Whether a value is one number: its shape is ``()``."""
        return not self.shape

    @property
    def is_python_number(self) -> bool:
        """Whether a value is a number of Python. One with a header is an array of shape ``()``."""
        return self.is_number and self.header_bytes == 0

    @cached_property
    def needs_cast(self) -> bool:
        """Whether values have another dtype than the file."""
        return self.stored_dtype != self.value_dtype

    @cached_property
    def items_need_cast(self) -> bool:
        """Whether values have another dtype than the numbers of items."""
        if self.is_number:
            return self.item_dtype != self.value_dtype
        return self.needs_cast

    def view_items(self, n_records: int, data: Any) -> _Array:
        """View the items of records that lie end to end in ``data``, shape ``(n_records,)``."""
        if n_records == 0:
            return np.empty(0, self.item_dtype)
        strides = (self.record_bytes,)
        items: _Array = np.ndarray((n_records,), self.item_dtype, data, self.header_bytes, strides)
        return items

    def view_values(self, n_records: int, data: Any) -> _Array:
        """View the arrays of records in ``data`` as stored, shape ``(n_records, *shape)``."""
        if n_records == 0:
            return np.empty((0, *self.shape), self.stored_dtype)
        shape = (n_records, *self.shape)
        strides_in_record = np.empty((1, *self.shape), self.stored_dtype).strides[1:]
        strides = (self.record_bytes, *strides_in_record)
        values: _Array = np.ndarray(shape, self.stored_dtype, data, self.header_bytes, strides)
        return values

    def stack_values(self, items: _Array) -> _Array:
        """Return the values of items, shape ``(len(items), *shape)``; they may share memory."""
        values = items
        if not self.is_number:
            values = np.ndarray((len(items), *self.shape), self.stored_dtype, items)
        if self.items_need_cast:
            values = values.astype(self.value_dtype)
        return values

    def list_values(self, values: _Array) -> list[Any]:
        """Return each of some stacked values by itself."""
        if self.is_python_number:
            numbers: list[Any] = python_values(values)
            return numbers
        if self.is_number:
            # A view of one number would keep the memory of all of them alive.
            return [values[place : place + 1].reshape(()).copy() for place in range(len(values))]
        return list(values)


def _is_low_part(part: np.dtype[Any], whole: np.dtype[Any]) -> bool:
    """Return whether the first bytes of an integer are what a cast to ``part`` returns.

    A cast to fewer bits drops the high ones, and the low ones come first in little-endian order.
    """
    if part.kind not in "iu" or whole.kind not in "iu" or part.itemsize > whole.itemsize:
        return False
    are_little_endian = part == part.newbyteorder("<") and whole == whole.newbyteorder("<")
    return bool(are_little_endian)
