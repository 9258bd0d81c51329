"""All samples of an iterator, read once and kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_stack.dataset.iterator.iterator import DatasetIterator, DatasetIteratorIF, IndexArray, Sample, checked_indices
from data_stack.dataset.iterator.view import sample_or_view
from data_stack.exception import DatasetOutOfBoundsError

__all__ = ["InMemoryDatasetIterator"]


class InMemoryDatasetIterator(DatasetIterator):
    """The samples of ``dataset_iterator``, read from first to last when this is made, then kept in a list.

    The iterator read from stays referenced, because ``underlying_iterators`` names it; with ``keep_source=False`` it is
    let go and ``underlying_iterators`` is empty. A pickle holds the samples only, so that it reaches workers even where
    the source has open files: there ``underlying_iterators`` is empty too.

    Args:
        dataset_iterator: what is read; any iterable of samples will do.
        progress: a progress bar on stderr: True, False, or None for one if stderr is a terminal.
        keep_source: whether ``underlying_iterators`` names ``dataset_iterator``.
    """

    _layer_name = "in_memory"

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF | Iterable[Sample],
        *,
        progress: bool | None = False,
        keep_source: bool = True,
    ) -> None:
        samples: Iterable[Sample] = dataset_iterator
        if progress is not False:
            from tqdm import tqdm  # costs 20 ms to import

            samples = tqdm(samples, desc="Loading iterator to memory", disable=None if progress is None else False)
        self._samples = list(samples)
        self._underlying: list[Any] = [dataset_iterator] if keep_source else []

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; a view for a slice or an index array."""
        if type(index) is int:
            try:
                return self._samples[index]
            except IndexError:
                raise DatasetOutOfBoundsError(f"position {index} is outside of an iterator of {len(self)} samples") from None
        return sample_or_view(self, index)

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The samples at ``indices``."""
        return [self._samples[position] for position in checked_indices(indices, len(self._samples)).tolist()]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that was read, unless it was let go."""
        return self._underlying

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_underlying": []}
