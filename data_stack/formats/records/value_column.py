"""The interface of a column whose values are read by the number of their record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.formats.records.bag import Bag
from data_stack.formats.records.record_offsets import RecordNumbers


class ValueColumn(ABC):
    """One value for each record of a column. Every value that is returned is a copy.

    Callers have checked that the numbers of records lie in ``[0, len(column))``.

    Args:
        bag: the records of the column.
    """

    def __init__(self, bag: Bag) -> None:
        self.bag = bag

    def __len__(self) -> int:
        return len(self.bag)

    @property
    @abstractmethod
    def is_fixed(self) -> bool:
        """Whether all values have one dtype and one shape."""

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """The approximate size of a value in bytes."""

    @abstractmethod
    def value(self, index: int) -> Any:
        """Read the value of one record.

        Raises:
            DatasetFileCorruptError: the record is damaged.
        """

    def make_value_reader(self) -> Callable[[int], Any] | None:
        """Return a function that reads the value of one record, as :meth:`value` does.

        A caller that reads many values one by one keeps it, while the column is open.

        Returns:
            The function. None as long as blocks have to be checked, if a later function need not.
        """
        return self.value

    @abstractmethod
    def values(self, numbers: RecordNumbers) -> list[Any]:
        """Read values in one request, and return each by itself.

        Small arrays of one request may share one piece of memory.

        Raises:
            DatasetFileCorruptError: a record is damaged.
        """

    @abstractmethod
    def read(self, numbers: RecordNumbers) -> npt.NDArray[Any]:
        """Read values in one request, and return them stacked, shape ``(len(numbers), ...)``.

        Raises:
            DatasetFileCorruptError: a record is damaged.
        """

    @abstractmethod
    def runs(self, starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[Any] | None:
        """Read ``length`` consecutive values from each start, shape ``(n_starts, length, ...)``.

        Returns:
            The values; None where values may differ in their dtype or shape.

        Raises:
            DatasetFileCorruptError: a record is damaged.
        """
