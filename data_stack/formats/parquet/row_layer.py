"""What layers on the rows of a dataset have in common that make batches, and samples out of these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, IndexArray, Sample, sample_or_view
from data_stack.dataset.iterator.iterator import IndexArrayOfInts, adapted, checked_indices

__all__ = ["RowLayer"]

#: An iteration reads so many samples together, fewer in the beginning: who takes one sample waits for one.
_MOST_READ_AHEAD: Final = 256


class RowLayer(DatasetIterator):
    """A layer whose samples are made many at a time. A subclass says how: by columns, and by samples.

    Args:
        dataset_iterator: the rows; it stays the caller's.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF) -> None:
        self._dataset_iterator = dataset_iterator
        self._source = adapted(dataset_iterator)

    @abstractmethod
    def _n_samples(self) -> int:
        """What ``len`` gives."""
        raise NotImplementedError

    @abstractmethod
    def _samples_at(self, positions: IndexArrayOfInts) -> list[Sample]:
        """The samples at one position or more, in one request."""
        raise NotImplementedError

    @abstractmethod
    def _batch_at(self, positions: IndexArrayOfInts) -> Any:
        raise NotImplementedError

    @abstractmethod
    def _columns_at(self, keys: Sequence[Any], positions: IndexArrayOfInts | None) -> list[npt.NDArray[Any]]:
        raise NotImplementedError

    # A subclass that redefined one of these would lose the others, see DatasetIteratorIF.

    def __len__(self) -> int:
        return self._n_samples()

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; a view for a slice or an index array."""
        if type(index) is int and 0 <= index < len(self):
            return self._one(index)
        return sample_or_view(self, index)

    def __iter__(self) -> Iterator[Sample]:
        n_samples, start, n_ahead = len(self), 0, 1
        while start < n_samples:
            stop = min(start + n_ahead, n_samples)
            yield from self._samples_at(np.arange(start, stop, dtype=np.intp))
            start, n_ahead = stop, min(2 * n_ahead, _MOST_READ_AHEAD)

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The samples at ``indices``, in one request."""
        positions = checked_indices(indices, len(self))
        return self._samples_at(positions) if len(positions) else []

    def read_batch(self, indices: IndexArray) -> Any:
        """The samples at ``indices`` as columns, in one request."""
        return self._batch_at(checked_indices(indices, len(self)))

    def read_column(self, key: Any, indices: IndexArray | None = None) -> npt.NDArray[Any]:
        """One column of the samples at ``indices`` (None: of all)."""
        return self._column_at(key, None if indices is None else checked_indices(indices, len(self)))

    def _unchecked_reader(self) -> Callable[[int], Sample]:
        return self._one

    def _one(self, index: int) -> Sample:
        return self._samples_at(np.array([index], dtype=np.intp))[0]

    def _column_at(self, key: Any, positions: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        return self._columns_at([key], positions)[0]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_source"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._source = adapted(self._dataset_iterator)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator of the rows."""
        return [self._dataset_iterator]
