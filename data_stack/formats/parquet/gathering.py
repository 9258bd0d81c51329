"""Puts the rows of a batch together that come out of several row groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.stacking import Column, stack_values
from data_stack.formats.parquet.columns import objects
from data_stack.formats.parquet.selection import Located
from data_stack.util.large_arrays import new_array

__all__ = ["Gathering"]


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
