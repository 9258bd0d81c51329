"""Samples of an iterator kept in memory: all from the start, or each once it was read."""

from __future__ import annotations

import functools
import itertools
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.access import (
    CacheAccess,
    DeclaredColumn,
    SampleAccess,
    access_to,
    copy_objects,
    copy_value,
    own_access,
    stack_columns,
)
from data_stack.dataset.iterator.blocks import estimate_bytes, in_blocks
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    Batch,
    Column,
    ColumnKey,
    DatasetIteratorIF,
    Sample,
)
from data_stack.dataset.iterator.data_in_memory import digest_of_data_in_memory
from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import DataStackError
from data_stack.io.progress import with_bar
from data_stack.util.byte_cache import ByteCache
from data_stack.util.functions import iterate_all
from data_stack.values.copies import copy_array
from data_stack.values.stacked_values import keeps_dtype
from data_stack.values.stacking import list_columns, map_columns, stack_samples, take_runs, value_of

_DESCRIPTION = "Loading iterator to memory"
_NUMBERS = (bool, int, float)


@layer("in_memory")
class InMemoryDatasetIterator(AccessedDatasetIterator):
    """The samples of ``dataset_iterator``, read from first to last when this is made, then kept.

    Samples come back as they were read, type and all. Where the iterator below has columns of one dtype and shape
    (``SampleAccess.fixed_columns``: arrays, HDF5, records and Parquet of numbers), each column is kept as one array: a million
    small samples then take the memory of their bytes, and stay shared with forked workers. All other samples are kept in a list.
    Without samples, the columns below are kept, with their types.

    Samples, batches and columns may be written to: they are copies, at any depth, by the rule of
    :func:`~data_stack.values.copies.copy_value`. Objects of other classes are not copied; a whole column of numbers is not
    copied either, but read-only.

    Its fingerprint is that of the iterator read from, as it was then. Where that has changed since (an array was written to, a
    file replaced), the samples themselves are its identity.

    The iterator read from stays referenced, because ``underlying_iterators`` names it; with ``keep_source=False`` it is
    let go and ``underlying_iterators`` is empty. A pickle holds the samples only, so that it reaches workers even where
    the source has open files: there ``underlying_iterators`` is empty too.

    Args:
        dataset_iterator: what is read; any iterable of samples.
        progress: a progress bar on stderr: True, False, or None for one if stderr is a terminal or this a notebook.
        keep_source: whether ``underlying_iterators`` names ``dataset_iterator``.

    Raises:
        EarlyEndError: ``dataset_iterator`` yields fewer samples than its length says.
    """

    #: In a pickle, and what comes from one: the fingerprint of the source, which was left behind.
    _known_fingerprint: str | None = None
    #: The fingerprint, once it was asked for: the samples in memory never change.
    _kept_fingerprint: str | None = None
    #: What was read from memory, see :func:`~data_stack.dataset.iterator.data_in_memory.digest_of_data_in_memory`.
    _digest_of_sources = 0

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF | Iterable[Sample],
        *,
        progress: bool | None = False,
        keep_source: bool = True,
    ) -> None:
        self._stacked_on: list[Any] = [dataset_iterator] if keep_source else []
        if self._iterators_below():
            # before it is read: what changes meanwhile is a change, too
            self._digest_of_sources = digest_of_data_in_memory(self._iterators_below()[0])
        self._columns: tuple[Any, ...] | None = None
        if isinstance(dataset_iterator, DatasetIteratorIF):
            self._columns = _read_columns(access_to(dataset_iterator), progress)
        if self._columns is None:
            sized: Any = (
                dataset_iterator if hasattr(dataset_iterator, "__len__") else list(dataset_iterator)
            )
            n_samples = len(sized)
            samples = iterate_all(sized, n_samples)
            self._samples = list(with_bar(samples, progress, desc=_DESCRIPTION, total=n_samples))

    def make_access(self) -> SampleAccess:
        return (
            _ListAccess(self._samples) if self._columns is None else _ColumnsAccess(*self._columns)
        )

    def __getstate__(self) -> dict[str, Any]:
        known = self._known_fingerprint  # the source is not pickled; its fingerprint is
        if known is None and self._iterators_below():
            with suppress(DataStackError):  # it can be pickled without
                known = FluentIterator.fingerprint(
                    self
                )  # a client's class may have another method of that name
        return {
            **super().__getstate__(),
            "_stacked_on": [],
            "_known_fingerprint": known,
            "_kept_fingerprint": None,
        }

    def has_changed_sources(self) -> bool:
        """Whether arrays or lists that were read are others now, so that the source's fingerprint is not that of the samples."""
        return any(
            digest_of_data_in_memory(source) != self._digest_of_sources
            for source in self._iterators_below()
        )

    @property
    def _kept_samples(self) -> list[Sample] | None:
        """The samples themselves, which must not be changed; None where they are kept as columns."""
        return None if self._columns is not None else self._samples

    def attach_source(self, source: Sequence[Any]) -> None:
        """Put back the ``underlying_iterators`` that a pickle of this iterator left behind."""
        self._stacked_on = list(source)
        if self._iterators_below():
            self._digest_of_sources = digest_of_data_in_memory(self._iterators_below()[0])

    def _iterators_below(self) -> list[DatasetIteratorIF]:
        return [source for source in self._stacked_on if isinstance(source, DatasetIteratorIF)]


def _read_columns(source: SampleAccess, progress: bool | None) -> tuple[Any, ...] | None:
    """The arguments of :class:`_ColumnsAccess`; None where samples may differ in dtype or shape, or sample 0 says otherwise."""
    if not source.n_samples:
        columns: Any = source.batch(np.empty(0, np.intp))
        return (columns, columns, source.declare_columns()) if list_columns(columns) else None
    if not source.fixed_columns:
        return None
    first = source.sample(0)
    if not all(
        isinstance(value, (np.ndarray, np.generic, *_NUMBERS)) for value in _values_of(first)
    ):
        return None
    empty = source.empty_batch()
    if any(column.dtype == object for column in list_columns(empty)):
        return None  # a value of such a column may be an array, which is not one of the column
    kept: Any = map_columns(
        lambda column: np.empty((source.n_samples, *column.shape[1:]), column.dtype), empty
    )
    for start, batch in with_bar(
        in_blocks(source.n_samples, source.batch), progress, desc=_DESCRIPTION
    ):
        for column, values in zip(list_columns(kept), list_columns(batch), strict=True):
            column[start : start + len(values)] = values
    return first, kept


class _ColumnsAccess(SampleAccess):
    """Access to samples kept as columns, as copies.

    Args:
        first: sample 0, whose values have the types of all; without samples the columns.
        batch: the columns.
        declared: the columns by a schema; None if the arrays say all.
    """

    fixed_columns = True

    def __init__(
        self, first: Any, batch: Any, declared: Mapping[str, DeclaredColumn] | None = None
    ) -> None:
        self._batch, self._declared, columns = batch, declared, list_columns(batch)
        self.n_samples = len(columns[0])
        for column in columns:
            column.flags.writeable = False
        values = _values_of(first)
        self._reads = [
            _reader(column, value) for column, value in zip(columns, values, strict=True)
        ]
        self.stacks_samples = all(
            keeps_dtype(column) and np.asarray(value).dtype == column.dtype
            for column, value in zip(columns, values, strict=True)
        )

    def sample(self, position: int) -> Sample:
        values = [read(position) for read in self._reads]
        if isinstance(self._batch, dict):
            return dict(zip(self._batch, values, strict=True))
        return tuple(values) if isinstance(self._batch, tuple) else values[0]

    def make_sample_reader(self) -> Callable[[int], Any]:
        if not isinstance(self._batch, tuple):
            return self.sample
        reads = self._reads
        return lambda position: tuple([read(position) for read in reads])

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self._declared

    def content_fingerprint(self) -> Any:
        names = list(self._batch) if isinstance(self._batch, dict) else type(self._batch).__name__
        return json_digest(content_of([names, *list_columns(self._batch)], of_samples=True))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return copy_objects(map_columns(lambda column: column.take(positions, axis=0), self._batch))  # type: ignore[no-any-return]  # a batch

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        is_bare = isinstance(self._batch, np.ndarray)
        if any(column.dtype.hasobject for column in list_columns(self._batch)) or (
            is_bare and keys is not None
        ):
            return None
        if keys is None:
            runs: Batch = map_columns(lambda column: take_runs(column, starts, length), self._batch)
            return runs
        return tuple([take_runs(value_of(self._batch, key), starts, length) for key in keys])

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        if isinstance(self._batch, np.ndarray):  # bare values have no columns of ours
            return super().columns(keys, positions)
        columns = [value_of(self._batch, key) for key in keys]
        if positions is None:
            return list(map(_lend, columns))
        return [copy_objects(column.take(positions, axis=0)) for column in columns]


def _values_of(sample: Any) -> Sequence[Any]:
    return (
        list(sample.values())
        if type(sample) is dict
        else sample
        if type(sample) is tuple
        else [sample]
    )


def _reader(column: Column, first: Any) -> Callable[[int], Any]:
    """A function that returns a value of a column by position, of the type of the first."""
    kind = type(first)
    if kind in _NUMBERS:
        return lambda position: kind(column[position])
    if isinstance(first, np.ndarray) and not column.dtype.hasobject:
        return lambda position: column[position, ...].copy()
    if isinstance(first, np.ndarray):
        return lambda position: copy_array(column[position, ...])
    if isinstance(first, np.void):  # a record, which is a view of the column
        return lambda position: copy_value(column[position])
    return column.__getitem__


def _lend(column: Column) -> Column:
    """A whole column for reading: a view that cannot be written into; with objects, a copy."""
    if column.dtype.hasobject:
        return copy_array(column)  # type: ignore[no-any-return]  # an array
    lent: Column = column.view()
    lent.flags.writeable = False
    return lent


def _of_dtype(column: Column, dtype: np.dtype[Any]) -> Column:
    """A column of the dtype that it has below."""
    return column if column.dtype == dtype else column.astype(dtype)


class _KeptAccess(SampleAccess):
    """Access to samples that are kept as objects, of which it returns copies; a subclass defines ``kept``."""

    @abstractmethod
    def kept(self, positions: Sequence[int]) -> list[Any]:
        """The samples at ``positions`` themselves."""

    def sample(self, position: int) -> Any:
        return copy_value(self.kept([position])[0])

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return list(map(copy_value, self.kept(positions.tolist())))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return (
            copy_objects(stack_samples(self.kept(positions.tolist())))
            if len(positions)
            else self.empty_batch()
        )

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        samples = self.kept(range(self.n_samples) if positions is None else positions.tolist())
        return [copy_objects(column) for column in stack_columns(samples, keys, self)]


class _ListAccess(_KeptAccess):
    """Access to samples kept as they are, as copies."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples, self.n_samples = samples, len(samples)

    def kept(self, positions: Sequence[int]) -> list[Sample]:
        return [self._samples[position] for position in positions]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return map(copy_value, itertools.islice(self._samples, start, stop))

    def content_fingerprint(self) -> Any:
        return json_digest(content_of(self._samples, of_samples=True))


@layer("cached")
class CachedDatasetIterator(LayerDatasetIterator):
    """The samples of ``dataset_iterator``, each kept in memory when it is first read.

    Once the kept samples take more than ``max_bytes``, the least recently used ones are dropped. A sample larger than that is
    not kept. With a limit, views of larger arrays are copied, so that these can be freed. A batch reads all missing samples in
    one request. A column comes from kept samples if all are kept; otherwise the iterator below reads it, and nothing is kept.

    Samples, batches and columns may be written to: they are copies, at any depth, by the rule of
    :func:`~data_stack.values.copies.copy_value`; a whole column of numbers is not copied, but read-only. Put random layers above
    the cache: of those below it, it keeps the first draw. A stack ``at_epoch(e)`` begins with an empty cache.

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

    def __init__(self, dataset_iterator: DatasetIteratorIF, max_bytes: int | None = None) -> None:
        most = (
            None
            if max_bytes is None
            else check_integer("max_bytes of a cache", max_bytes, at_least=0)
        )
        super().__init__(dataset_iterator, max_bytes=most)
        own_access(self)  # now: this is where samples are kept

    def make_access(self) -> _CachedAccess:
        return _CachedAccess(self._below(), self._made_with["max_bytes"])

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        own_access(self)


class _CachedAccess(_KeptAccess, CacheAccess):
    """Access to samples that are kept once they were read; the length is taken when it is made.

    Args:
        below: what is read.
        max_bytes: the most that is kept; None for no limit.
    """

    n_samples = 0

    def __init__(self, below: SampleAccess, max_bytes: int | None) -> None:
        CacheAccess.__init__(self, below)
        self._max_bytes, self.n_samples = max_bytes, below.n_samples
        # position -> (sample, its bytes)
        self._kept: ByteCache[int, tuple[Sample, int]] = ByteCache(
            sys.maxsize if max_bytes is None else max_bytes, itemgetter(1)
        )

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        wanted: Sequence[int] = range(self.n_samples) if positions is None else positions.tolist()
        found = (
            self._kept.get_many(wanted)
            if len(self._kept) >= (self.n_samples if positions is None else 1)
            else {}
        )
        if wanted and all(position in found for position in wanted):
            columns = super().columns(keys, positions)
            dtypes = self._fixed_dtypes
            if dtypes is None:
                return columns
            return [
                _of_dtype(column, dtypes.get(key, column.dtype))
                for key, column in zip(keys, columns, strict=True)
            ]
        columns = self.below.columns(keys, positions)
        if positions is None:
            return [_lend(column[: self.n_samples]) for column in columns]
        # numbers at positions are in a new array, objects may be those that are kept
        return list(map(copy_objects, columns))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        batch = super().batch(positions)
        dtypes = self._fixed_dtypes
        if dtypes is None or not len(positions):
            return batch
        if isinstance(batch, dict):
            return {key: _of_dtype(column, dtypes[key]) for key, column in batch.items()}
        if isinstance(batch, tuple):
            return tuple(_of_dtype(column, dtypes[place]) for place, column in enumerate(batch))
        return _of_dtype(batch, dtypes[None])

    @functools.cached_property
    def _fixed_dtypes(self) -> dict[Any, np.dtype[Any]] | None:
        """The dtypes of the columns below where these are fixed; None where a batch decides.

        A number that is kept by itself has lost its byte order, and text its width.
        """
        if not self.below.fixed_columns:
            return None
        batch = self.below.batch(np.empty(0, np.intp))
        if isinstance(batch, dict):
            return {key: column.dtype for key, column in batch.items()}
        if isinstance(batch, tuple):
            return {place: column.dtype for place, column in enumerate(batch)}
        return {None: batch.dtype}

    def kept(self, positions: Sequence[int]) -> list[Sample]:
        """The samples at these positions, of which those that are not kept are read in one request."""
        found = self._kept.get_many(positions)
        missing = [position for position in dict.fromkeys(positions) if position not in found]
        if len(missing) == 1:
            values = [self.below.sample(missing[0])]
        else:
            values = self.below.samples(np.array(missing, dtype=np.intp)) if missing else []
        for position, value in zip(missing, values, strict=True):
            # a row of a batch that was read at once is a view: kept, it would keep the whole batch
            sample = value if self._max_bytes is None else copy_value(value)
            n_bytes = estimate_bytes(sample) + 250  # of what keeps a sample in its place
            found[position] = sample, n_bytes
            if self._max_bytes is None or n_bytes <= self._max_bytes:
                self._kept.put(position, (sample, n_bytes))
        return [found[position][0] for position in positions]
