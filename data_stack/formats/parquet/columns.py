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


class CellError(ValueError):
    """A cell that cannot be decoded, or a value that does not fit its field; who reads or writes adds the place to the message.

    Attributes:
        row: position in the row group, or among the encoded values.
    """

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row, self.why = row, why

    def __str__(self) -> str:
        return self.why


class ArrayColumn(GroupColumn):
    """Values of one dtype and shape, or immutable Python objects: the rows of an array, shape ``(n, ...)``.

    Args:
        array: the values; each row in C order, with gaps between rows allowed. None for null.
        n_bytes: memory of the column, if more than that of the array.

    Attributes:
        array: the values.
    """

    def __init__(self, array: npt.NDArray[Any], n_bytes: int | None = None) -> None:
        self.array, self.n_bytes = array, array.nbytes if n_bytes is None else n_bytes
        self._is_contiguous = array.flags.c_contiguous

    def value(self, row: int) -> Any:
        value = self.array[row]
        return value.copy() if isinstance(value, np.ndarray) else value

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        return self.array.take(rows, axis=0) if self._is_contiguous else self.array[rows]


class ListColumn(GroupColumn):
    """Lists of scalars, stored end to end; each value is an array of one dimension.

    Values of equal length are stacked; otherwise a batch is an array of objects. A list that contains a null is itself an array
    of objects.

    Args:
        flat: the elements of all rows.
        offsets: the start of each row, and the end of the last, shape ``(n + 1,)``.
        is_null: which rows are null, shape ``(n,)``; None: no nulls.
        no_elements: which elements are null, shape of ``flat``; None: no nulls.
        as_objects: always return arrays of objects.
    """

    def __init__(
        self,
        flat: npt.NDArray[Any],
        offsets: Rows,
        is_null: Mask,
        no_elements: Mask,
        *,
        as_objects: bool,
    ) -> None:
        self._flat, self._offsets, self._is_null, self._no_elements = (
            flat,
            offsets,
            is_null,
            no_elements,
        )
        self._as_objects = as_objects or is_null is not None
        self.n_bytes = flat.nbytes * (8 if flat.dtype == object else 1) + offsets.nbytes

    def value(self, row: int) -> Any:
        if self._is_null is not None and self._is_null[row]:
            return None
        start, end = self._offsets[row], self._offsets[row + 1]
        found = self._flat[start:end].copy()
        if self._no_elements is not None and self._no_elements[start:end].any():
            found = objects(list(found))
            found[self._no_elements[start:end]] = None
        return found

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        if not self._as_objects and len(rows):
            starts = self._offsets[rows]
            lengths = self._offsets[rows + 1] - starts
            if (lengths == lengths[0]).all():
                places = starts[:, None] + np.arange(lengths[0])
                if self._no_elements is None or not self._no_elements[places].any():
                    return self._flat[places]
        return objects([self.value(row) for row in rows.tolist()])


class MadeColumn(GroupColumn):
    """Values that each access makes."""

    #: Whether :meth:`take` returns objects even if the values could be stacked.
    _as_objects = True

    @abstractmethod
    def make(self, rows: list[int]) -> list[Any]:
        """Make the values of some rows, at least one."""

    def value(self, row: int) -> Any:
        return self.make([row])[0]

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        values = self.make(rows.tolist()) if len(rows) else []
        return objects(values) if self._as_objects else stack_values(values)


class CellColumn(MadeColumn):
    """Cells that the reading thread decodes on access, such as images.

    Args:
        cells: the bytes of each row, None for null.
        decode: decodes a cell; raises ValueError for an invalid one.
        n_bytes: bytes of all cells.
        as_objects: always return arrays of objects, because values may be null.
        is_compressed: whether a value may take far more memory than its cell, so that it counts for the limit of a request.
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
        self._cells, self._decode = cells, decode
        self._as_objects, self._is_compressed, self.n_bytes = as_objects, is_compressed, n_bytes

    def make(self, rows: list[int]) -> list[Any]:
        values, row = [], 0
        with decoding_for(current_request()) as request:
            try:
                for row in rows:
                    cell = self._cells[row]
                    values.append(None if cell is None else self._decode(cell))
                    if self._is_compressed:
                        request.add(values[-1])
            except MemoryError:
                raise
            except Exception as error:  # decoders of plugins raise anything
                raise CellError(row, f"{error!s:.300}" or type(error).__name__) from error
        return values
