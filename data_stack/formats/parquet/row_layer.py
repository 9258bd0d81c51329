"""What layers on the rows of a dataset have in common that make batches, and samples out of these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import AccessedDatasetIterator, DatasetIteratorIF, IndexArray, OneToOneAccess, Sample, access_to
from data_stack.dataset.iterator.contract import adapted
from data_stack.dataset.positions import IndexArrayOfInts

__all__ = ["RowAccess", "RowLayer"]

#: An iteration reads so many samples together, fewer in the beginning: who takes one sample waits for one.
_MOST_READ_AHEAD: Final = 256


class RowLayer(AccessedDatasetIterator):
    """A layer whose samples are made many at a time.

    Args:
        dataset_iterator: the rows; it stays the caller's.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF) -> None:
        self._dataset_iterator = dataset_iterator
        self._source = adapted(dataset_iterator)

    if TYPE_CHECKING:  # batches of n-grams are dicts of dicts, and their columns have keys of their own

        def read_batch(self, indices: IndexArray) -> Any: ...

        def read_column(self, key: Any, indices: IndexArray | None = None) -> npt.NDArray[Any]: ...

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator of the rows."""
        return [self._dataset_iterator]


class RowAccess(OneToOneAccess):
    """Access to samples that are made many at a time. A subclass says how: by samples, by ``batch`` and by ``columns``.

    Args:
        rows: of what the samples are made.
    """

    def __init__(self, rows: DatasetIteratorIF) -> None:
        super().__init__(access_to(rows))

    @abstractmethod
    def some_samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        """The samples at one position or more, in one request."""
        raise NotImplementedError

    @abstractmethod
    def columns(self, keys: Sequence[Any], positions: IndexArrayOfInts | None = None) -> list[npt.NDArray[Any]]:
        raise NotImplementedError

    def sample(self, position: int) -> Sample:
        return self.some_samples(np.array([position], dtype=np.intp))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return self.some_samples(positions) if len(positions) else []

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        n_ahead = 1
        while start < stop:
            end = min(start + n_ahead, stop)
            yield from self.some_samples(np.arange(start, end, dtype=np.intp))
            start, n_ahead = end, min(2 * n_ahead, _MOST_READ_AHEAD)
