"""Holds one column of one row group in memory, in the form that suits its values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack.exception import MissingDependencyError
from data_stack.util.request_limit import current_request, decoding_for
from data_stack.values.stacked_values import objects, stack_values

#: Positions of rows in a row group.
Rows = npt.NDArray[np.int64]
#: Which values are null; None: no value is.
Mask: TypeAlias = "npt.NDArray[np.bool_] | None"

#: A reference has 8 bytes; with the Python object, such as a short text, it has about 64.
_OBJECT_FACTOR = 8


class CellError(ValueError):
    """A cell cannot be decoded, or a value cannot be encoded.

    The reader or writer of the column catches it, and raises an error that also names file and
    field.

    Attributes:
        row: the position of the cell in the row group, or of the value in the encoded column.
        why: what is wrong with it.
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
    """The values of one field in one row group.

    A column never changes, and threads may share it.

    Attributes:
        n_bytes: bytes of memory that the column takes, approximately.
    """

    n_bytes: int

    @abstractmethod
    def value(self, row: int) -> Any:
        """Return the value of one row. It is a copy, which the caller may change.

        Raises:
            CellError: the value cannot be decoded.
        """

    @abstractmethod
    def take(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the values of some rows. They are copies, which the caller may change.

        Args:
            rows: positions of rows, in any order; a row may occur several times.

        Returns:
            The values in the order of ``rows``: shape ``(len(rows), ...)`` if they have one shape
            and no null, else shape ``(len(rows),)`` and dtype object.

        Raises:
            CellError: a value cannot be decoded.
        """


class ArrayColumn(GroupColumn):
    """Values of one dtype and shape, or immutable Python objects, in an array.

    Args:
        array: the values, shape ``(n, ...)``; among objects, None is null. Each row is in C order.
            There may be other bytes between two rows.
        n_bytes: memory of the column; None takes that of the array. Objects need more.

    Attributes:
        array: the values.
    """

    array: npt.NDArray[Any]

    #: Whether there are no other bytes between the rows.
    _is_contiguous: bool

    def __init__(self, array: npt.NDArray[Any], n_bytes: int | None = None) -> None:
        if n_bytes is None:
            n_bytes = array.nbytes
        self.array = array
        self.n_bytes = n_bytes
        self._is_contiguous = array.flags.c_contiguous

    def value(self, row: int) -> Any:
        value = self.array[row]
        if isinstance(value, np.ndarray):
            return value.copy()
        return value

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        # take() is faster than an index, but it first copies all of an array with gaps.
        if self._is_contiguous:
            return self.array.take(rows, axis=0)
        return self.array[rows]


class ListColumn(GroupColumn):
    """Lists of scalars. The value of a row is an array of one dimension.

    A list that contains a null is an array of objects, with None for the null.

    :meth:`take` stacks lists of equal length; otherwise it returns an array of objects, each of
    which is the array of a list.

    Args:
        elements: the elements of all lists, one list after the other, shape ``(n_elements,)``.
        offsets: positions in ``elements``, shape ``(n + 1,)``: where the list of each row starts;
            the last offset is the end of the last list.
        is_null: which rows are null, shape ``(n,)``; None: no row is.
        is_null_element: which elements are null, shape ``(n_elements,)``; None: no element is.
        as_objects: whether :meth:`take` always returns an array of objects.
    """

    _elements: npt.NDArray[Any]
    _offsets: npt.NDArray[np.int64]
    _is_null: Mask
    _is_null_element: Mask

    #: Whether :meth:`take` always returns an array of objects.
    _as_objects: bool

    def __init__(
        self,
        elements: npt.NDArray[Any],
        offsets: npt.NDArray[np.int64],
        is_null: Mask,
        is_null_element: Mask,
        *,
        as_objects: bool,
    ) -> None:
        self._elements = elements
        self._offsets = offsets
        self._is_null = is_null
        self._is_null_element = is_null_element
        # A batch has the same form whether its rows are null or not.
        self._as_objects = as_objects or is_null is not None
        n_element_bytes = elements.nbytes
        if elements.dtype == object:
            n_element_bytes *= _OBJECT_FACTOR
        self.n_bytes = n_element_bytes + offsets.nbytes  # the masks are small beside them

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

        Returns:
            The array; None if there is no row, the lists differ in length or contain a null, or
            batches are always arrays of objects.
        """
        if self._as_objects or not len(rows):
            return None
        starts = self._offsets[rows]
        lengths = self._offsets[rows + 1] - starts
        length = lengths[0]
        if (lengths != length).any():
            return None
        positions = starts[:, None] + np.arange(length)  # shape (len(rows), length)
        if self._is_null_element is not None and self._is_null_element[positions].any():
            return None
        return self._elements[positions]


class MadeColumn(GroupColumn):
    """A column that keeps cells, and makes the values at each access.

    It is for values that are mutable, or larger than their cells. A subclass implements
    :meth:`make`.
    """

    #: Whether :meth:`take` returns an array of objects even if the values could be stacked. A
    #: subclass may set it to False.
    _as_objects: bool = True

    @abstractmethod
    def make(self, rows: list[int]) -> list[Any]:
        """Make the values of some rows.

        Args:
            rows: positions of rows, at least one, in any order.

        Raises:
            CellError: a value cannot be decoded.
        """

    def value(self, row: int) -> Any:
        return self.make([row])[0]

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        values: list[Any] = []
        if len(rows):
            values = self.make(rows.tolist())
        if self._as_objects:
            return objects(values)
        return stack_values(values)


class CellColumn(MadeColumn):
    """Cells that a codec decodes at each access, such as images.

    Args:
        cells: the bytes of each row, None for null.
        decode: decodes a cell. Whatever it raises becomes a :class:`CellError`, but for
            MemoryError and MissingDependencyError.
        n_bytes: bytes of all cells.
        as_objects: whether batches are always arrays of objects, because values may be null.
        is_compressed: whether a value may take far more memory than its cell. If so, it counts
            for the memory limit of the request (:mod:`data_stack.util.request_limit`).
    """

    _cells: Sequence[Any]
    _decode: Callable[[Any], Any]

    #: Whether values count for the memory limit of the request.
    _is_compressed: bool

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
                if cell is None:
                    values.append(None)
                    continue
                try:
                    value = self._decode(cell)
                    if self._is_compressed:
                        request.add(value)
                except (MemoryError, MissingDependencyError):
                    raise  # It says nothing about the cell.
                except Exception as error:  # A codec of a plugin may raise anything.
                    why = f"{error!s:.300}" or type(error).__name__
                    raise CellError(row, why) from error
                values.append(value)
        return values
