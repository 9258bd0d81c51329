"""The samples of an iterator, each kept in memory once it was read."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from data_stack.dataset.iterator.access import ColumnKey, SampleAccess
from data_stack.dataset.iterator.access_bases import CacheAccess
from data_stack.dataset.iterator.access_of_iterator import own_access
from data_stack.dataset.iterator.blocks import estimate_bytes
from data_stack.dataset.iterator.contract import DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.layers.kept_columns import lend_column
from data_stack.dataset.iterator.layers.kept_samples import KeptSamplesAccess
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.util.byte_cache import ByteCache
from data_stack.values.copies import copy_objects, copy_value
from data_stack.values.stacking import Batch, ColumnArray

#: Bytes that the cache itself takes for each sample: its entry, its key, its place in the order.
_BYTES_OF_ENTRY = 250


@layer("cached")
class CachedDatasetIterator(LayerDatasetIterator):
    """The samples of ``dataset_iterator``, each kept in memory when it is first read.

    Once the kept samples take more than ``max_bytes``, the least recently used ones are dropped. A
    sample larger than that is not kept. With a limit, views of larger arrays are copied, so that
    these can be freed. A batch reads all missing samples in one request. A column is made of kept
    samples if all are kept; otherwise the iterator below reads it, and nothing is kept.

    Samples, batches and columns may be written to: they are copies, at any depth, by the rule of
    :func:`~data_stack.values.copies.copy_value`; a whole column of numbers is not copied, but
    read-only. Put random layers above the cache: of those below it, it keeps the first draw. A
    stack ``at_epoch(e)`` begins with an empty cache.

    Any number of threads may read at once. A sample that several threads read at the same time may
    be read below by each of them. Each process has a cache of its own: a pickle has no samples, and
    a forked process starts with those that were kept until then.

    Args:
        dataset_iterator: the samples; it is not closed.
        max_bytes: the most memory that kept samples take, in bytes, as estimated from their arrays,
            tensors, strings and containers; None for no limit.

    Raises:
        ConfigError: ``max_bytes`` is negative or no integer.
    """

    #: The most bytes that kept samples take; None for no limit.
    _max_bytes: int | None

    def __init__(self, dataset_iterator: DatasetIteratorIF, max_bytes: int | None = None) -> None:
        self._max_bytes = None
        if max_bytes is not None:
            self._max_bytes = check_integer("max_bytes of a cache", max_bytes, at_least=0)
        super().__init__(dataset_iterator, max_bytes=self._max_bytes)
        # The access, which holds the samples, is made now, so that a forked process has it, too.
        own_access(self)

    def make_access(self) -> SampleAccess:
        return CachedSamplesAccess(self._below(), self._max_bytes)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        own_access(self)


class _KeptSample(NamedTuple):
    """A sample, and the memory that it takes."""

    sample: Sample
    n_bytes: int


def _bytes_of(kept_sample: _KeptSample) -> int:
    return kept_sample.n_bytes


class CachedSamplesAccess(KeptSamplesAccess, CacheAccess):
    """Access to samples that are kept once they were read.

    The length is taken when the access is made.

    Args:
        below: the samples.
        max_bytes: the most bytes that kept samples take; None for no limit.
    """

    # An attribute here, where the base class has a property.
    n_samples = 0

    #: The most bytes that kept samples take; None for no limit.
    _max_bytes: int | None

    #: The kept samples by position.
    _cache: ByteCache[int, _KeptSample]

    def __init__(self, below: SampleAccess, max_bytes: int | None) -> None:
        CacheAccess.__init__(self, below)
        self._max_bytes = max_bytes
        self.n_samples = below.n_samples
        size_limit = sys.maxsize if max_bytes is None else max_bytes
        self._cache = ByteCache(size_limit, _bytes_of)

    def kept(self, positions: Sequence[int]) -> list[Sample]:
        """Return the samples at ``positions``; those that are not kept are read in one request."""
        cached = self._cache.get_many(positions)
        missing = [position for position in dict.fromkeys(positions) if position not in cached]
        if missing:
            for position, sample in zip(missing, self._read(missing), strict=True):
                cached[position] = self._keep(position, sample)
        return [cached[position].sample for position in positions]

    def _read(self, positions: list[int]) -> list[Sample]:
        if len(positions) == 1:
            return [self.below.sample(positions[0])]
        return self.below.samples(np.array(positions, dtype=np.intp))

    def _keep(self, position: int, sample: Sample) -> _KeptSample:
        if self._max_bytes is not None:
            # A row of a batch that was read at once is a view: it would keep the whole batch.
            sample = copy_value(sample)
        n_bytes = estimate_bytes(sample) + _BYTES_OF_ENTRY
        kept_sample = _KeptSample(sample, n_bytes)
        if self._max_bytes is None or n_bytes <= self._max_bytes:
            self._cache.put(position, kept_sample)
        return kept_sample

    # ------------------------------------------------------------------ columns

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        batch = super().batch(positions)
        dtypes = self._fixed_dtypes
        if dtypes is None or len(positions) == 0:
            return batch
        if isinstance(batch, dict):
            return {key: _convert(column, dtypes[key]) for key, column in batch.items()}
        if isinstance(batch, tuple):
            return tuple([_convert(column, dtypes[key]) for key, column in enumerate(batch)])
        return _convert(batch, dtypes[None])

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if self._keeps_all(positions):
            return self._columns_of_kept(keys, positions)
        columns = self.below.columns(keys, positions)
        if positions is None:
            return [lend_column(column[: self.n_samples]) for column in columns]
        # Numbers at positions are in a new array. Objects may be those that a layer below keeps.
        return [copy_objects(column) for column in columns]

    def _keeps_all(self, positions: IndexArrayOfInts | None) -> bool:
        """Return whether there are samples at ``positions`` (None: all), and all are kept."""
        if len(self._cache) == 0:
            return False
        if positions is None and len(self._cache) < self.n_samples:
            return False
        wanted: Sequence[int] = range(self.n_samples)
        if positions is not None:
            wanted = positions.tolist()
        if not wanted:
            return False
        cached = self._cache.get_many(wanted)
        return all(position in cached for position in wanted)

    def _columns_of_kept(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None
    ) -> list[ColumnArray]:
        columns = KeptSamplesAccess.columns(self, keys, positions)
        dtypes = self._fixed_dtypes
        if dtypes is None:
            return columns
        # A position that counts from the end is none of the keys of the dtypes.
        return [
            _convert(column, dtypes.get(key, column.dtype))
            for key, column in zip(keys, columns, strict=True)
        ]

    @functools.cached_property
    def _fixed_dtypes(self) -> dict[Any, np.dtype[Any]] | None:
        """The dtypes of the columns below, where these are fixed; the key of bare values is None.

        A number that is kept by itself has lost its byte order, and text its width. None in place
        of the dict where the dtype of a column depends on the samples in a batch.
        """
        if not self.below.fixed_columns:
            return None
        batch = self.below.batch(np.empty(0, dtype=np.intp))
        if isinstance(batch, dict):
            return {key: column.dtype for key, column in batch.items()}
        if isinstance(batch, tuple):
            return {key: column.dtype for key, column in enumerate(batch)}
        # bare values
        return {None: batch.dtype}


def _convert(column: ColumnArray, dtype: np.dtype[Any]) -> ColumnArray:
    return column if column.dtype == dtype else column.astype(dtype)
