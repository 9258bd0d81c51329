"""Puts the rows of a batch together that come out of several row groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.stacking import Column, stack_values
from data_stack.formats.parquet.columns import ArrayColumn, GroupColumn, objects
from data_stack.formats.parquet.selection import Located
from data_stack.util.large_arrays import new_array, taken

__all__ = ["Gathering"]

#: Rows of so many bytes are copied one by one: what that costs by itself weighs little then.
_LARGE_ROW_BYTES = 1 << 14


class Gathering:
    """One column of a batch while its parts come in, so that row groups need not be held all together.

    Args:
        located: where the rows of the batch lie. Each row must be there: this is not looked at once more.
    """

    def __init__(self, located: Located) -> None:
        self._located = located
        self._batch: npt.NDArray[Any] | None = None
        self._pieces: list[Column] = []
        self._places: list[npt.NDArray[np.intp]] = []

    def copy(self, columns: Mapping[int, GroupColumn]) -> bool:
        """Take in the rows that are wanted of several row groups in one pass, if that is nothing but copying them.

        Args:
            columns: by the number of the row group in ``located``.

        Returns:
            Whether it was done; if not, :meth:`put` takes them in one after the other.
        """
        arrays = [column for column in columns.values() if isinstance(column, ArrayColumn)]
        if not arrays or len(arrays) < len(columns):
            return False
        first = arrays[0].array
        if self._pieces or not all(_are_alike(each.array, first) for each in arrays):
            return False
        if first.dtype.hasobject or 0 in first.shape:
            return False
        if self._batch is not None and not _are_alike(self._batch, first):
            return False
        located, numbers = self._located, list(columns)
        if len(columns) == len(located.groups):
            which = located.which
            if which is None:
                return False
            if numbers != list(range(len(numbers))):
                arrays = [columns[number] for number in range(len(numbers))]  # type: ignore[misc]  # as above
            self._batch = _gathered(arrays, which, located.rows)
            return True
        parts = [located.part(number) for number in numbers]
        which = np.repeat(np.arange(len(parts)), [len(rows) for rows, _ in parts])
        places = np.concatenate([places for _, places in parts])
        self._into(places, _gathered(arrays, which, np.concatenate([rows for rows, _ in parts])))
        return True

    def put(self, number: int, values: Column) -> None:
        """Take in the values of the rows that are wanted of one row group.

        Args:
            number: of the row group in ``located``.
            values: shape ``(n, ...)``.
        """
        _, places = self._located.part(number)
        if not self._pieces and (self._batch is None or _are_alike(self._batch, values)):
            self._into(places, values)
            return
        if self._batch is not None:  # those before have another form
            self._pieces = [self._batch[each] for each in self._places]
            self._batch = None
        self._pieces.append(values)
        self._places.append(places)

    def _into(self, places: npt.NDArray[np.intp], values: Column) -> None:
        if self._batch is None:
            self._batch = new_array((len(self._located), *values.shape[1:]), values.dtype)
        self._batch[places] = values
        self._places.append(places)

    def column(self) -> Column:
        """The batch, shape ``(n_rows, ...)``, when all parts are there. Values of different forms are objects, or are stacked."""
        if self._batch is not None:
            return self._batch
        is_of_objects = any(piece.dtype == object and piece.ndim == 1 for piece in self._pieces)
        values = [value for piece in self._pieces for value in piece]
        in_order = [values[place] for place in np.argsort(np.concatenate(self._places)).tolist()]
        return objects(in_order) if is_of_objects else stack_values(in_order)


def _are_alike(array: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return array.dtype == other.dtype and array.shape[1:] == other.shape[1:]


def _gathered(columns: Sequence[ArrayColumn], which: npt.NDArray[np.intp], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Row ``rows[i]`` of ``columns[which[i]]`` for each i, shape ``(n, ...)``; they have one dtype, and rows of one shape.

    Numpy takes rows out of one array, and to take them out of several and then put them in their places copies each of them
    twice. So the memory from the lowest of the arrays to the highest is looked at as one array, in which the rows of all of them
    are found: one that begins a row at every so many bytes, which overlap. What lies between the arrays is not touched.
    """
    array, row_bytes = columns[0].array, columns[0].row_bytes
    if row_bytes >= _LARGE_ROW_BYTES:
        batch = new_array((len(rows), *array.shape[1:]), array.dtype)
        for place, (number, row) in enumerate(zip(which.tolist(), rows.tolist(), strict=True)):
            batch[place] = columns[number].array[row]
        return batch
    lowest = min(columns, key=_address)
    distances = [column.address - lowest.address for column in columns]
    strides = [column.array.strides[0] for column in columns]
    step = math.gcd(row_bytes, *distances, *strides)  # numpy is faster where they are aligned
    last_row = max(map(_last_row, distances, strides, columns))
    memory = np.lib.stride_tricks.as_strided(
        lowest.array[:1].reshape(1, -1).view(np.dtype((np.void, row_bytes)))[:, 0],
        shape=(last_row // step + 1,),
        strides=(step,),
        writeable=False,
    )
    starts = np.array([distance // step for distance in distances])
    n_steps: Any = strides[0] // step if len(set(strides)) == 1 else np.array([stride // step for stride in strides])[which]
    places = rows * n_steps
    places += starts.take(which)
    return taken(memory, places).view(array.dtype).reshape(len(rows), *array.shape[1:])


def _address(column: ArrayColumn) -> int:
    return column.address


def _last_row(distance: int, stride: int, column: ArrayColumn) -> int:
    return distance + (len(column.array) - 1) * stride
