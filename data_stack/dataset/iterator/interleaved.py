"""Samples of several iterators in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

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

    Positions are computed; which iterators go on is kept for each of their lengths. ``indices`` are positions in
    the iterators one after the other.

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
        starts = np.cumsum([0, *lengths[:-1]])
        if stop == "shortest" and lengths:
            lengths = [min(lengths)] * len(lengths)
        super().__init__(combined, _Rounds(starts, np.array(lengths)) if any(lengths) else range(0))

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

    def __init__(self, starts: IndexArrayOfInts, lengths: IndexArrayOfInts) -> None:
        ends = np.unique(lengths[lengths > 0])
        active = [np.flatnonzero(lengths >= end) for end in ends]
        self._starts, self._active = starts, np.concatenate(active)
        self._n_active = np.array(list(map(len, active)))
        self._first_active = np.cumsum(self._n_active) - self._n_active
        self._first_rounds = np.concatenate([[0], ends[:-1]])
        n_samples = (ends - self._first_rounds) * self._n_active
        self._first_indices = np.cumsum(n_samples) - n_samples
        self._length = int(n_samples.sum())

    def __len__(self) -> int:
        return self._length

    def taken(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        stages = np.searchsorted(self._first_indices, indices, side="right") - 1
        rounds, turns = np.divmod(indices - self._first_indices[stages], self._n_active[stages])
        runs = self._active[self._first_active[stages] + turns]
        return np.asarray(self._starts[runs] + self._first_rounds[stages] + rounds)
