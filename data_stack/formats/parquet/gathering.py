"""Puts the rows of a batch together that come out of several row groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.stacking import Column, stack_values
from data_stack.formats.parquet.columns import objects

__all__ = ["Gathering"]


class Gathering:
    """One column of a batch while its parts come in, so that no row group is held longer than it takes to copy rows out of it.

    Args:
        n_rows: of the batch.
    """

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._batch: npt.NDArray[Any] | None = None
        self._pieces: list[Column] = []
        self._places: list[npt.NDArray[np.intp]] = []

    def put(self, values: Column, places: npt.NDArray[np.intp]) -> None:
        """Take in the values of some rows.

        Args:
            values: shape ``(n, ...)``.
            places: where they stand in the batch, shape ``(n,)``.
        """
        if self._batch is None and not self._pieces:
            self._batch = np.empty((self._n_rows, *values.shape[1:]), values.dtype)
        if self._batch is not None and (values.dtype, values.shape[1:]) == (self._batch.dtype, self._batch.shape[1:]):
            self._batch[places] = values
        else:  # of another form than those before
            if self._batch is not None:
                self._pieces = [self._batch[each] for each in self._places]
                self._batch = None
            self._pieces.append(values)
        self._places.append(places)

    def column(self) -> Column:
        """The batch, shape ``(n_rows, ...)``, when all parts are there. Values of different forms are objects, or are stacked."""
        if self._batch is not None:
            return self._batch
        is_of_objects = any(piece.dtype == object and piece.ndim == 1 for piece in self._pieces)
        values = [value for piece in self._pieces for value in piece]
        in_order = [values[place] for place in np.argsort(np.concatenate(self._places)).tolist()]
        return objects(in_order) if is_of_objects else stack_values(in_order)
