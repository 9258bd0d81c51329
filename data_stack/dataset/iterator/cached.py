"""Samples of an iterator, kept in bounded memory once they were read."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import OneToOneAccess, SampleAccess, access_to, brought_access, stack_columns
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    Batch,
    Column,
    ColumnKey,
    DatasetIteratorIF,
    Sample,
    adapted,
)
from data_stack.dataset.iterator.indices import checked_integer
from data_stack.dataset.iterator.ownership import copied, copied_objects
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.sample_columns import estimated_bytes, is_plain_tensor
from data_stack.dataset.iterator.stacking import stack_samples
from data_stack.dataset.positions import IndexArrayOfInts

__all__ = ["CacheInfo", "CachedDatasetIterator"]

_ENTRY_BYTES = 250  # of what keeps a sample in its place


@dataclass(frozen=True)
class CacheInfo:
    """What a cache did so far, in this process.

    Attributes:
        hits: samples that came from memory; one asked for twice in a batch counts once.
        misses: samples that were read.
        n_samples: samples kept now.
        n_bytes: the memory they take, as estimated.
        max_bytes: the most that is kept; None for all.
    """

    hits: int
    misses: int
    n_samples: int
    n_bytes: int
    max_bytes: int | None


@layer("cached")
class CachedDatasetIterator(AccessedDatasetIterator):
    """The samples of ``dataset_iterator``, each kept in memory when it is first read.

    Once the kept samples take more than ``max_bytes``, those that were not asked for the longest are let go. A sample that
    is larger than that alone is not kept. With a limit, a view of something larger is copied, lest it keep that alive.
    What a batch lacks is read in one request. A column is made of kept samples if all it needs are kept, otherwise it is
    read as the iterator below reads it; it fills no cache.

    What it gives is the receiver's to write into: arrays, tensors, lists, dicts and sets are copies of what is kept, at any
    depth; only objects of other classes are the kept ones. Random layers belong above the cache: of those below it, it keeps
    what they drew first. A stack ``at_epoch(e)`` begins with an empty cache.

    Any number of threads may read at once. A sample is read once even if several threads want it, unless it was let go
    in between. Each process has a cache of its own: what is pickled is the configuration, and a forked process starts
    with what was kept until then.

    Args:
        dataset_iterator: what is read; it stays the caller's to close.
        max_bytes: the most memory that kept samples take, as estimated from their arrays, tensors, strings and containers;
            None for no limit.

    Raises:
        ConfigError: ``max_bytes`` is negative or no integer.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, max_bytes: SupportsIndex | None = None) -> None:
        self._dataset_iterator = dataset_iterator
        self._max_bytes = None if max_bytes is None else checked_integer("max_bytes of a cache", max_bytes, at_least=0)
        brought_access(self)  # now: this is where samples are kept

    def make_access(self) -> _CachedAccess:
        return _CachedAccess(access_to(adapted(self._dataset_iterator)), self._max_bytes)

    def __getstate__(self) -> dict[str, Any]:
        return {"dataset_iterator": self._dataset_iterator, "max_bytes": self._max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._dataset_iterator, self._max_bytes = state["dataset_iterator"], state["max_bytes"]
        brought_access(self)

    def cache_info(self) -> CacheInfo:
        """How often samples were found, and what is kept."""
        return self._cache().info()

    def clear_cache(self) -> None:
        """Let all kept samples go, and count anew."""
        self._cache().clear()

    def _cache(self) -> _CachedAccess:
        access: Any = brought_access(self)
        return access  # type: ignore[no-any-return]  # that of this class

    def _arguments(self) -> dict[str, Any]:
        return {"max_bytes": self._max_bytes}

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that is read."""
        return [self._dataset_iterator]


class _CachedAccess(OneToOneAccess):
    """Access to samples that are kept once they were read; the length is taken when it is made.

    Args:
        below: what is read.
        max_bytes: the most that is kept; None for no limit.
    """

    def __init__(self, below: SampleAccess, max_bytes: int | None) -> None:
        super().__init__(below)
        self._max_bytes, self._n_total = max_bytes, below.n_samples
        # position -> (sample, its bytes), the longest unused first
        self._kept: OrderedDict[int, tuple[Sample, int]] = OrderedDict()
        self._n_bytes = self._hits = self._misses = 0
        self.unlock()
        _CACHES.add(self)

    def unlock(self) -> None:
        """Forget which thread holds the lock and what is being read: all that threads of another process do."""
        self._lock = threading.Lock()
        self._being_read: dict[int, threading.Lock] = {}
        self._n_bytes = sum(n_bytes for _, n_bytes in self._kept.values())

    def info(self) -> CacheInfo:
        """See :meth:`CachedDatasetIterator.cache_info`."""
        with self._lock:
            return CacheInfo(self._hits, self._misses, len(self._kept), self._n_bytes, self._max_bytes)

    def clear(self) -> None:
        """See :meth:`CachedDatasetIterator.clear_cache`."""
        with self._lock:
            self._kept.clear()
            self._n_bytes = self._hits = self._misses = 0

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return self._n_total

    def sample(self, position: int) -> Sample:
        return copied(self._sample(position))

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return list(map(copied, self._samples(positions.tolist())))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            return self.empty_batch()
        return copied_objects(stack_samples(self._samples(positions.tolist())))

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        samples = self._all_kept(positions)
        if samples is None:
            columns = self.below.columns(keys, positions)
            return [column[: self._n_total] for column in columns] if positions is None else columns
        return [copied_objects(column) for column in stack_columns(samples, keys, self)]

    # ------------------------------------------------------------------ what is kept

    def _sample(self, position: int) -> Sample:
        with self._lock:
            found = self._kept.get(position)
            if found is not None:
                self._hits += 1
                if self._max_bytes is not None:
                    self._kept.move_to_end(position)
                return found[0]
        return self._samples([position])[0]

    def _samples(self, positions: Sequence[int]) -> list[Sample]:
        """The samples at these positions, of which those that nobody has or is reading are read in one request."""
        samples: dict[int, Sample] = {}
        missing = self._take_kept(dict.fromkeys(positions), samples)
        while missing:
            # Waits for others only once it has read what is its own, so that no two threads wait for each other.
            for other in self._read_unclaimed(missing, samples):
                with other:
                    pass
            # What another thread read may be gone again, or its reading failed: then it is this thread's turn.
            missing = [position for position in missing if position not in samples]
            missing = self._take_kept(missing, samples) if missing else []
        return [samples[position] for position in positions]

    def _take_kept(self, positions: Iterable[int], samples: dict[int, Sample]) -> list[int]:
        """Put those of ``positions`` that are kept into ``samples``; give the others."""
        missing = []
        with self._lock:
            for position in positions:
                found = self._kept.get(position)
                if found is None:
                    missing.append(position)
                    continue
                samples[position] = found[0]
                self._hits += 1
                if self._max_bytes is not None:
                    self._kept.move_to_end(position)
        return missing

    def _read_unclaimed(self, missing: Sequence[int], samples: dict[int, Sample]) -> set[threading.Lock]:
        """Read those of ``missing`` that no other thread is reading; the locks that others hold until they have read the rest."""
        mine: list[int] = []
        awaited: set[threading.Lock] = set()
        to_keep: list[tuple[int, Sample, int]] = []
        reading = threading.Lock()  # an Event takes as long to make as a small sample to read
        with reading:
            try:
                with self._lock:
                    for position in missing:
                        other = self._being_read.get(position)
                        if other is not None:
                            awaited.add(other)
                        elif position in self._kept:  # read since this thread looked
                            samples[position] = self._kept[position][0]
                            self._hits += 1
                        else:
                            self._misses += 1
                            mine.append(position)
                            self._being_read[position] = reading
                for position, value in zip(mine, self._read(mine), strict=True):
                    sample = value if self._max_bytes is None else _by_itself(value)
                    samples[position] = sample
                    to_keep.append((position, sample, estimated_bytes(sample) + _ENTRY_BYTES))
            finally:
                with self._lock:
                    for position in mine:
                        self._being_read.pop(position, None)
                    for entry in to_keep:
                        self._keep(*entry)
        return awaited

    def _read(self, positions: list[int]) -> Sequence[Sample]:
        if len(positions) == 1:
            return [self.below.sample(positions[0])]
        return self.below.samples(np.array(positions, dtype=np.intp)) if positions else []

    def _keep(self, position: int, sample: Sample, n_bytes: int) -> None:
        limit = self._max_bytes
        if position in self._kept or (limit is not None and n_bytes > limit):
            return
        self._kept[position] = (sample, n_bytes)
        self._n_bytes += n_bytes
        while limit is not None and self._n_bytes > limit:
            _, (_, let_go) = self._kept.popitem(last=False)
            self._n_bytes -= let_go

    def _all_kept(self, positions: IndexArrayOfInts | None) -> list[Sample] | None:
        """The samples at ``positions``, at least one, if all of them are kept."""
        n_wanted = self.n_samples if positions is None else len(positions)
        if n_wanted == 0 or len(self._kept) < (self.n_samples if positions is None else 1):
            return None
        samples: dict[int, Sample] = {}
        wanted = range(self.n_samples) if positions is None else positions.tolist()
        with self._lock:
            for position in wanted:
                found = self._kept.get(position)
                if found is None:
                    return None
                samples[position] = found[0]
            self._hits += len(samples)
        return [samples[position] for position in wanted]


# A fork copies locks as they are, also one that a thread held which the child does not have.
_CACHES: weakref.WeakSet[_CachedAccess] = weakref.WeakSet()


def _unlock_all() -> None:
    for cache in list(_CACHES):
        cache.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_all)


def _by_itself(value: Any) -> Any:
    """``value``, or a copy where it would keep more memory alive than it takes.

    A row of a batch that was read at once is a view: kept, it would keep the whole batch, and the bound would bound nothing.
    """
    kind = type(value)
    if kind is np.ndarray:
        return value.copy(order="K") if _bytes_below(value) > 2 * value.nbytes else value
    if is_plain_tensor(value):
        return value.clone() if value.untyped_storage().nbytes() > 2 * value.nbytes else value
    if kind is dict:
        return {key: _by_itself(item) for key, item in value.items()}
    if kind is list:
        return [_by_itself(item) for item in value]
    if isinstance(value, tuple) and (kind is tuple or hasattr(kind, "_fields")):
        return tuple.__new__(kind, [_by_itself(item) for item in value])
    return value


def _bytes_below(array: npt.NDArray[Any]) -> int:
    """The memory that an array is a view of, as far as that can be told."""
    below: Any = array
    while isinstance(below, np.ndarray) and below.base is not None:
        below = below.base
    if isinstance(below, np.ndarray):
        return below.nbytes
    try:
        return len(memoryview(below).cast("B"))
    except (TypeError, ValueError):  # no memory that Python knows of
        return 0
