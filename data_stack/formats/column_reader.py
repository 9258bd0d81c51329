"""Reads the values of one column, which a format opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.values.stacked_values import python_values
from data_stack.values.stacking import take_runs


class ColumnReader(ABC):
    """Reads the values of one column: one value for each sample.

    What is returned belongs to the caller, who may change it.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of values."""

    @abstractmethod
    def value(self, index: int) -> Any:
        """Return one value.

        Args:
            index: the position of the value, in ``[0, len(self))``.
        """

    @abstractmethod
    def read(self, indices: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        """Return stacked values, shape ``(n, ...)``.

        Args:
            indices: the positions of the values, each in ``[0, len(self))``; None for all values.
        """

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        """Return what :meth:`value` returns for each of ``indices``, in one request."""
        return list_values(self.read(as_int64(indices)))

    def runs(self, starts: IndexArrayOfInts, length: int) -> npt.NDArray[Any] | None:
        """Return consecutive values from several positions on.

        Args:
            starts: the first position of each run, shape ``(n,)``.
            length: the number of values in each run.

        Returns:
            An array of shape ``(n, length, ...)``. None where :meth:`read` is as fast, or if the
            values are objects, or if dtype and shape depend on which values are read.
        """
        return None

    @property
    def remote_bytes(self) -> int:
        """The size of each value in bytes, if it is read by range from a store.

        0 for a local column, or if the size is unknown.
        """
        return 0

    def fetch(self, positions: range) -> None:  # noqa: B027  # most have nothing to fetch
        """Fetch neighbouring values from a store into its cache."""

    def declare(self) -> DeclaredColumn | None:
        """Return what a schema says of the column; None without a schema."""
        return None


class ArrayReader(ColumnReader):
    """Reads a column in memory.

    Args:
        array: the values, shape ``(n_samples, ...)``. Values of one dimension are Python scalars.
    """

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def value(self, index: int) -> Any:
        value = self._array[index]
        # A copy, so that a change of a sample does not change the dataset.
        if isinstance(value, np.ndarray):
            return value.copy()
        # Labels hash and compare as those of Python do.
        if isinstance(value, np.generic):
            return python_values(value)
        return value

    def read(self, indices: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        rows: npt.NDArray[Any]
        if indices is None:
            rows = self._array.copy()
        else:
            rows = self._array[indices]
        return rows

    def runs(self, starts: IndexArrayOfInts, length: int) -> npt.NDArray[Any] | None:
        if self._array.dtype.hasobject:
            return None
        runs: npt.NDArray[Any] = take_runs(self._array, starts, length)
        return runs


def as_int64(positions: IndexArrayOfInts) -> npt.NDArray[np.int64]:
    """Return positions as int64, without a copy if they are int64 already."""
    return positions.astype(np.int64, copy=False)


def list_values(rows: npt.NDArray[Any]) -> list[Any]:
    """Return stacked values one by one: rows as arrays, scalars as Python's."""
    if rows.ndim > 1:
        return list(rows)
    scalars: list[Any] = python_values(rows)
    return scalars
