"""Columns of a row group in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack.util.request_limit import current_request, decoding_for
from data_stack.values.stacked_values import objects, stack_values

Rows = npt.NDArray[np.int64]
Mask: TypeAlias = "npt.NDArray[np.bool_] | None"

#: Bytes of a Python object, roughly, for each byte of its reference.
_OBJECT_FACTOR = 8


class CellError(ValueError):
    """A cell cannot be decoded, or a value does not fit its field.

    Whoever reads or writes the column adds the place to the message.

    Attributes:
        row: position in the row group, or among the encoded values.
        why: what is wrong.
    """

    row: int
    why: str

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row
        self.why = why

    def __str__(self) -> str:
        return self.why


class GroupColumn(ABC):
    """The values of one field in one row group. Immutable; threads may share it.

    Attributes:
        n_bytes: memory of the column.
    """

    n_bytes: int

    @abstractmethod
    def value(self, row: int) -> Any:
        """Return the value of one row; the caller may change it.

        Raises:
            CellError: the value cannot be decoded.
        """

    @abstractmethod
    def take(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the values of ``rows``, shape ``(len(rows), ...)``; the caller may change them.

        Raises:
            CellError: a value cannot be decoded.
        """


class ArrayColumn(GroupColumn):
    """Values of one dtype and shape, or immutable Python objects, in an array.

    Args:
        array: the values, shape ``(n, ...)``, with None for null. Each row is in C order; there
            may be gaps between rows.
        n_bytes: memory of the column; None: that of the array.

    Attributes:
        array: the values.
    """

    array: npt.NDArray[Any]

    def __init__(self, array: npt.NDArray[Any], n_bytes: int | None = None) -> None:
        self.array = array
        self.n_bytes = array.nbytes if n_bytes is None else n_bytes
        self._is_contiguous = array.flags.c_contiguous

    def value(self, row: int) -> Any:
        value = self.array[row]
        if isinstance(value, np.ndarray):
            return value.copy()
        return value

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        # take() is faster than indexing, but it copies an array with gaps as a whole first
        if self._is_contiguous:
            return self.array.take(rows, axis=0)
        return self.array[rows]


class ListColumn(GroupColumn):
    """Lists of scalars, stored end to end; each value is an array of one dimension.

    Values of equal length are stacked; otherwise a batch is an array of objects. A list that
    contains a null is itself an array of objects.

    Args:
        elements: the elements of all rows, shape ``(n_elements,)``.
        offsets: where each row starts in ``elements``, and where the last one ends, shape
            ``(n + 1,)``.
        is_null: which rows are null, shape ``(n,)``; None: no row is.
        is_null_element: which elements are null, shape ``(n_elements,)``; None: no element is.
        as_objects: whether batches are always arrays of objects.
    """

    def __init__(
        self,
        elements: npt.NDArray[Any],
        offsets: Rows,
        is_null: Mask,
        is_null_element: Mask,
        *,
        as_objects: bool,
    ) -> None:
        self._elements = elements
        self._offsets = offsets
        self._is_null = is_null
        self._is_null_element = is_null_element
        self._as_objects = as_objects or is_null is not None
        n_element_bytes = elements.nbytes
        if elements.dtype == object:
            n_element_bytes *= _OBJECT_FACTOR
        self.n_bytes = n_element_bytes + offsets.nbytes

    def value(self, row: int) -> Any:
        if self._is_null is not None and self._is_null[row]:
            return None
        start = self._offsets[row]
        end = self._offsets[row + 1]
        elements = self._elements[start:end].copy()
        if self._is_null_element is None:
            return elements
        is_null = self._is_null_element[start:end]
        if not is_null.any():
            return elements
        with_nulls = objects(list(elements))
        with_nulls[is_null] = None
        return with_nulls

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        stacked = self._take_stacked(rows)
        if stacked is not None:
            return stacked
        return objects([self.value(row) for row in rows.tolist()])

    def _take_stacked(self, rows: Rows) -> npt.NDArray[Any] | None:
        """Return lists as one array, shape ``(len(rows), length)``.

        None if they differ in length, contain a null, or are wanted as objects.
        """
        if self._as_objects or not len(rows):
            return None
        starts = self._offsets[rows]
        lengths = self._offsets[rows + 1] - starts
        length = lengths[0]
        if (lengths != length).any():
            return None
        places = starts[:, None] + np.arange(length)
        if self._is_null_element is not None and self._is_null_element[places].any():
            return None
        return self._elements[places]


class MadeColumn(GroupColumn):
    """Values that each access makes anew."""

    #: Whether :meth:`take` returns objects even if the values could be stacked.
    _as_objects = True

    @abstractmethod
    def make(self, rows: list[int]) -> list[Any]:
        """Make the values of some rows, at least one.

        Raises:
            CellError: a value cannot be decoded.
        """

    def value(self, row: int) -> Any:
        return self.make([row])[0]

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        values = self.make(rows.tolist()) if len(rows) else []
        if self._as_objects:
            return objects(values)
        return stack_values(values)


class CellColumn(MadeColumn):
    """Cells that the reading thread decodes on access, such as images.

    Args:
        cells: the bytes of each row, None for null.
        decode: decodes a cell; raises ValueError for an invalid one.
        n_bytes: bytes of all cells.
        as_objects: whether batches are always arrays of objects, because values may be null.
        is_compressed: whether a value may take far more memory than its cell, so that it counts
            for the limit of a request.
    """

    def __init__(
        self,
        cells: Sequence[Any],
        decode: Callable[[Any], Any],
        n_bytes: int,
        *,
        as_objects: bool,
        is_compressed: bool = True,
    ) -> None:
        self._cells = cells
        self._decode = decode
        self._as_objects = as_objects
        self._is_compressed = is_compressed
        self.n_bytes = n_bytes

    def make(self, rows: list[int]) -> list[Any]:
        values: list[Any] = []
        with decoding_for(current_request()) as request:
            for row in rows:
                cell = self._cells[row]
                try:
                    value = None if cell is None else self._decode(cell)
                    if self._is_compressed:
                        request.add(value)
                except MemoryError:
                    raise
                except Exception as error:  # decoders of plugins raise anything
                    why = f"{error!s:.300}" or type(error).__name__
                    raise CellError(row, why) from error
                values.append(value)
        return values
