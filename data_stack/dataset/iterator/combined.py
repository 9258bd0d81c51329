"""Several iterators, one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.iterator import (
    Batch,
    Column,
    ColumnKey,
    DatasetIterator,
    DatasetIteratorIF,
    IndexArray,
    Sample,
    adapted,
    checked_indices,
)
from data_stack.dataset.iterator.stacking import emptied, join_batches, join_columns, reordered
from data_stack.dataset.iterator.view import sample_or_view

__all__ = ["CombinedDatasetIterator"]

_Positions = npt.NDArray[np.intp]


class CombinedDatasetIterator(DatasetIterator):
    """The samples of the first iterator, then those of the second, and so on.

    Lengths are taken once, here: iterators that grow afterwards are not seen to grow. A combination of combinations
    reads from its innermost parts directly; ``underlying_iterators`` still names the iterators given.

    Args:
        iterators: any number of iterators, also none, also the same one repeatedly; they stay the caller's to close.
    """

    def __init__(self, iterators: Sequence[DatasetIteratorIF]) -> None:
        self._iterators = list(iterators)
        self._parts: list[DatasetIteratorIF] = []
        for part in map(adapted, self._iterators):
            source, positions = part._located()
            if positions is None and type(source) is CombinedDatasetIterator:
                self._parts += source._parts
            else:
                self._parts.append(part)
        lengths = [len(part) for part in self._parts]
        self._starts: list[int] = [0, *np.cumsum(lengths, dtype=np.intp).tolist()]
        self._n_samples = self._starts.pop()

    def __len__(self) -> int:
        return self._n_samples

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; a view for a slice or an index array."""
        if type(index) is int and 0 <= index < self._n_samples:
            # empty parts share their start with the next part; bisect_right passes them by
            part = bisect_right(self._starts, index) - 1
            return self._parts[part][index - self._starts[part]]
        return sample_or_view(self, index)

    def __iter__(self) -> Iterator[Sample]:
        for part in self._parts:
            yield from part

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The samples at ``indices``, in one request to each source."""
        positions = checked_indices(indices, self._n_samples)
        samples: list[Sample] = [None] * len(positions)
        for source, wanted, slots in self._requests(positions):
            for slot, sample in zip(slots.tolist(), source.__getitems__(wanted.tolist()), strict=True):
                samples[slot] = sample
        return samples

    def read_batch(self, indices: IndexArray) -> Batch:
        """The samples at ``indices`` as columns, in one request to each source."""
        positions = checked_indices(indices, self._n_samples)
        if len(positions) == 0:
            return emptied(self.read_batch([0])) if self._n_samples else ()
        requests = self._requests(positions)
        batch = join_batches([source.read_batch(wanted) for source, wanted, _ in requests])
        order = _inverse([slots for _, _, slots in requests])
        return batch if order is None else reordered(batch, order)

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column, in one request to each source that has a sample at ``indices``."""
        positions = np.arange(self._n_samples, dtype=np.intp) if indices is None else checked_indices(indices, self._n_samples)
        if len(positions) == 0:
            return self.read_column(key, [0])[:0] if self._n_samples else np.empty(0)
        requests = self._requests(positions)
        column = join_columns([source.read_column(key, wanted) for source, wanted, _ in requests])
        order = _inverse([slots for _, _, slots in requests])
        return column if order is None else column[order]

    def _requests(self, positions: _Positions) -> list[tuple[DatasetIteratorIF, _Positions, _Positions]]:
        """What to read from where: (source, positions in it, their places in the batch), each source once."""
        if len(positions) == 0:
            return []
        starts = np.asarray(self._starts, dtype=np.intp)
        part_of = np.searchsorted(starts, positions, side="right") - 1
        by_part = np.argsort(part_of, kind="stable")
        parts, firsts = np.unique(part_of[by_part], return_index=True)
        requests: dict[int, tuple[DatasetIteratorIF, list[_Positions], list[_Positions]]] = {}
        for part, slots in zip(parts.tolist(), np.split(by_part, firsts[1:]), strict=True):
            source, positions_of_part = self._parts[part]._located()
            wanted = positions[slots] - starts[part]
            if positions_of_part is not None:
                wanted = positions_of_part[wanted]
            # several views of one source, such as folds, are read together
            _, all_wanted, all_slots = requests.setdefault(id(source), (source, [], []))
            all_wanted.append(wanted)
            all_slots.append(slots)
        return [(source, np.concatenate(wanted), np.concatenate(slots)) for source, wanted, slots in requests.values()]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators given."""
        return self._iterators


def _inverse(slots: Sequence[_Positions]) -> _Positions | None:
    """The order that puts rows read for ``slots`` into their places; None if they are there."""
    slot_of_row = np.concatenate(slots)
    if bool((np.diff(slot_of_row) > 0).all()):
        return None
    order = np.empty_like(slot_of_row)
    order[slot_of_row] = np.arange(len(slot_of_row))
    return order
