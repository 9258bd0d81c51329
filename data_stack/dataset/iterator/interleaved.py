"""Samples of several iterators in turn."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.combined import CombinedDatasetIterator, shared_meta
from data_stack.dataset.iterator.contract import DatasetIteratorIF, adapted
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.view import DatasetIteratorView
from data_stack.dataset.meta import DatasetMetaIF
from data_stack.dataset.positions import ComputedPositions, IndexArrayOfInts
from data_stack.exception import ConfigError

__all__ = ["InterleavedDatasetIterator"]


@layer("interleaved")
class InterleavedDatasetIterator(DatasetIteratorView):
    """One sample of each iterator in turn, each iterator's in its own order.

    A round takes the next sample of every iterator, in the order given. With ``stop="longest"`` those that are exhausted are
    passed over, until all are: every sample comes once. With ``stop="shortest"`` the last round is the last one that all can
    fill: k iterators give ``k * min(lengths)`` samples, none if one is empty.

    Positions are computed. For k iterators a few tables of k entries are kept, so 10,000 of them cost about a megabyte.
    ``indices`` are positions in the iterators one after the other.

    Args:
        iterators: any number of iterators, also none; they stay the caller's to close. Nothing is read.
        stop: "longest" or "shortest".

    Raises:
        ConfigError: ``stop`` is neither, or all together have more than ``sys.maxsize`` samples.
    """

    def __init__(self, iterators: Sequence[DatasetIteratorIF], *, stop: Literal["longest", "shortest"] = "longest") -> None:
        if stop not in ("longest", "shortest"):
            raise ConfigError(f"stop must be 'longest' or 'shortest', got {stop!r}")
        self._stop = stop
        combined = CombinedDatasetIterator(iterators)
        lengths = [len(adapted(iterator)) for iterator in combined.underlying_iterators]
        starts = list(accumulate(lengths, initial=0))[:-1]
        if stop == "shortest" and lengths:
            lengths = [min(lengths)] * len(lengths)
        super().__init__(combined, _Rounds(starts, lengths) if any(lengths) else range(0))

    def _arguments(self) -> dict[str, Any]:
        return {"stop": self._stop}

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        return cls(underlying, **arguments)

    def _followed(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        return shared_meta(meta, self.underlying_iterators)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators given."""
        return self._dataset_iterator.underlying_iterators


class _Rounds(ComputedPositions):
    """Rounds through runs of positions: the first position of each run, the second of each, …; ended runs are passed over.

    The rounds are told apart by which runs still go on: those of one stage have the same ones.

    Args:
        starts: where each run starts.
        lengths: how long it is; not all 0.
    """

    def __init__(self, starts: Sequence[int], lengths: Sequence[int]) -> None:
        by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
        ascending = [lengths[run] for run in by_length]
        ends = sorted(set(ascending) - {0})
        self._starts = starts
        self._first_rounds = [0, *ends[:-1]]  # of each stage
        self._n_ended = [bisect_left(ascending, end) for end in ends]  # runs that are passed over in it
        self._n_active = [len(lengths) - n_ended for n_ended in self._n_ended]
        n_rounds = [end - first for first, end in zip(self._first_rounds, ends, strict=True)]
        firsts = accumulate((rounds * n for rounds, n in zip(n_rounds, self._n_active, strict=True)), initial=0)
        *self._first_indices, self._length = firsts
        self._runs = _SmallestOfSuffixes(by_length)
        tables = (self._first_indices, self._n_active, self._n_ended, self._first_rounds, self._starts)
        self._arrays = [np.asarray(table, dtype=np.intp) for table in tables]

    def __len__(self) -> int:
        return self._length

    def at(self, index: int) -> int:
        stage = bisect_right(self._first_indices, index) - 1
        round_, turn = divmod(index - self._first_indices[stage], self._n_active[stage])
        return self._starts[self._runs.at(self._n_ended[stage], turn)] + self._first_rounds[stage] + round_

    def taken(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        first_indices, n_active, n_ended, first_rounds, starts = self._arrays
        stages = np.searchsorted(first_indices, indices, side="right") - 1
        rounds, turns = np.divmod(indices - first_indices[stages], n_active[stages])
        return starts[self._runs.taken(n_ended[stages], turns)] + first_rounds[stages] + rounds


class _SmallestOfSuffixes:
    """Finds the ``rank``-th smallest of ``numbers[first:]`` in as many steps as the largest number has bits.

    A wavelet matrix: Claude and Navarro, The wavelet matrix (SPIRE 2012). The lists of runs that go on would take k**2 / 2
    entries for k runs of different lengths; this takes ``k * log2(k)``.

    Args:
        numbers: each of ``range(len(numbers))`` once, in any order.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._n = len(numbers)
        # for each bit, the highest first: how many numbers before a place have a zero there
        self._zeros_before: list[npt.NDArray[np.intp]] = []
        ordered = np.asarray(numbers, dtype=np.intp)
        for bit in reversed(range((self._n - 1).bit_length())):
            has_one = (ordered >> bit) & 1 == 1
            self._zeros_before.append(np.concatenate(([0], np.cumsum(~has_one, dtype=np.intp))))
            ordered = np.concatenate((ordered[~has_one], ordered[has_one]))

    def at(self, first: int, rank: int) -> int:
        end, number = self._n, 0
        for zeros_before in self._zeros_before:
            first_zero, end_zero, n_zeros = int(zeros_before[first]), int(zeros_before[end]), int(zeros_before[-1])
            number <<= 1
            if rank < end_zero - first_zero:
                first, end = first_zero, end_zero
            else:
                number += 1
                rank -= end_zero - first_zero
                first, end = n_zeros + first - first_zero, n_zeros + end - end_zero
        return number

    def taken(self, firsts: npt.NDArray[np.intp], ranks: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        ends, numbers = np.full_like(firsts, self._n), np.zeros_like(firsts)
        for zeros_before in self._zeros_before:
            first_zeros, end_zeros, n_zeros = zeros_before[firsts], zeros_before[ends], zeros_before[-1]
            is_one = ranks >= end_zeros - first_zeros
            numbers = 2 * numbers + is_one
            ranks = np.where(is_one, ranks - (end_zeros - first_zeros), ranks)
            firsts = np.where(is_one, n_zeros + firsts - first_zeros, first_zeros)
            ends = np.where(is_one, n_zeros + ends - end_zeros, end_zeros)
        return numbers
