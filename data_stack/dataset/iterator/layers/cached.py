"""Samples of an iterator, kept in bounded memory once they were read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, SupportsIndex

import numpy as np

from data_stack.dataset.iterator.access import KeptAccess, OneToOneAccess, SampleAccess, copy_value, own_access
from data_stack.dataset.iterator.blocks import estimate_bytes
from data_stack.dataset.iterator.contract import Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.util.byte_cache import ByteCache

_ENTRY_BYTES = 250  # of what keeps a sample in its place


@layer("cached")
class CachedDatasetIterator(LayerDatasetIterator):
    """The samples of ``dataset_iterator``, each kept in memory when it is first read.

    Once the kept samples take more than ``max_bytes``, the least recently used ones are dropped. A sample larger than that is
    not kept. With a limit, views of larger arrays are copied, so that these can be freed. A batch reads all missing samples in
    one request. A column comes from kept samples if all are kept; otherwise the iterator below reads it, and nothing is kept.

    Samples and batches may be written to: arrays, tensors, lists, dicts and sets are copies, at any depth; objects of other
    classes are not copied. Put random layers above the cache: of those below it, it keeps the first draw. A stack
    ``at_epoch(e)`` begins with an empty cache.

    Any number of threads may read at once; what several of them want at the same time may be read by each. Each process
    has a cache of its own: what is pickled is the configuration, and a forked process starts
    with what was kept until then.

    Args:
        dataset_iterator: what is read; it stays the caller's to close.
        max_bytes: the most memory that kept samples take, as estimated from their arrays, tensors, strings and containers;
            None for no limit.

    Raises:
        ConfigError: ``max_bytes`` is negative or no integer.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, max_bytes: SupportsIndex | None = None) -> None:
        most = None if max_bytes is None else check_integer("max_bytes of a cache", max_bytes, at_least=0)
        super().__init__(dataset_iterator, max_bytes=most)
        own_access(self)  # now: this is where samples are kept

    def make_access(self) -> _CachedAccess:
        return _CachedAccess(self._below(), self._made_with["max_bytes"])

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        own_access(self)


class _CachedAccess(KeptAccess, OneToOneAccess):
    """Access to samples that are kept once they were read; the length is taken when it is made.

    Args:
        below: what is read.
        max_bytes: the most that is kept; None for no limit.
    """

    def __init__(self, below: SampleAccess, max_bytes: int | None) -> None:
        OneToOneAccess.__init__(self, below)
        self._max_bytes, self._n_total = max_bytes, below.n_samples
        # position -> (sample, its bytes)
        self._kept: ByteCache[int, tuple[Sample, int]] = ByteCache(sys.maxsize if max_bytes is None else max_bytes, itemgetter(1))

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return self._n_total

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        wanted: Sequence[int] = range(self.n_samples) if positions is None else positions.tolist()
        found = self._kept.get_many(wanted) if len(self._kept) >= (self.n_samples if positions is None else 1) else {}
        if wanted and all(position in found for position in wanted):
            return super().columns(keys, positions)
        columns = self.below.columns(keys, positions)
        return [column[: self._n_total] for column in columns] if positions is None else columns

    def kept(self, positions: Sequence[int]) -> list[Sample]:
        """The samples at these positions, of which those that are not kept are read in one request."""
        found = self._kept.get_many(positions)
        missing = [position for position in dict.fromkeys(positions) if position not in found]
        for position, value in zip(missing, self._read(missing), strict=True):
            # a row of a batch that was read at once is a view: kept, it would keep the whole batch
            sample = value if self._max_bytes is None else copy_value(value)
            n_bytes = estimate_bytes(sample) + _ENTRY_BYTES
            found[position] = sample, n_bytes
            if self._max_bytes is None or n_bytes <= self._max_bytes:
                self._kept.put(position, (sample, n_bytes))
        return [found[position][0] for position in positions]

    def _read(self, positions: list[int]) -> Sequence[Sample]:
        if len(positions) == 1:
            return [self.below.sample(positions[0])]
        return self.below.samples(np.array(positions, dtype=np.intp)) if positions else []
