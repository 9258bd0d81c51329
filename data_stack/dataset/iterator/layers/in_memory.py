"""All samples of an iterator, read once and kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.access import SampleAccess, access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, Batch, Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.dataset.iterator.ownership import KeptAccess, copy_value
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import DataStackError
from data_stack.io.work import with_bar
from data_stack.values.stacking import column_of, list_columns, map_columns

_DESCRIPTION = "Loading iterator to memory"
_NUMBERS = (bool, int, float)


@layer("in_memory")
class InMemoryDatasetIterator(AccessedDatasetIterator):
    """The samples of ``dataset_iterator``, read from first to last when this is made, then kept.

    Samples come back as they were read, type and all. Where the iterator below has columns of one dtype and shape
    (``SampleAccess.fixed_columns``: arrays, HDF5, records and Parquet of numbers), each column is kept as one array: a million
    small samples then take the memory of their bytes, and stay shared with forked workers. All other samples are kept in a list.

    Samples and batches may be written to: arrays, tensors, lists, dicts and sets are copies, at any depth. Objects of other
    classes are not copied; a whole column of numbers is not copied either, but read-only.

    The iterator read from stays referenced, because ``underlying_iterators`` names it; with ``keep_source=False`` it is
    let go and ``underlying_iterators`` is empty. A pickle holds the samples only, so that it reaches workers even where
    the source has open files: there ``underlying_iterators`` is empty too.

    Args:
        dataset_iterator: what is read; any iterable of samples.
        progress: a progress bar on stderr: True, False, or None for one if stderr is a terminal or this a notebook.
        keep_source: whether ``underlying_iterators`` names ``dataset_iterator``.
    """

    _known_fingerprint: str | None = None

    def __init__(
        self, dataset_iterator: DatasetIteratorIF | Iterable[Sample], *, progress: bool | None = False, keep_source: bool = True
    ) -> None:
        self._underlying: list[Any] = [dataset_iterator] if keep_source else []
        self._columns: tuple[Any, Any] | None = None
        if isinstance(dataset_iterator, DatasetIteratorIF):
            self._columns = _read_columns(access_to(dataset_iterator), progress)
        if self._columns is None:
            sized: Any = dataset_iterator if hasattr(dataset_iterator, "__len__") else list(dataset_iterator)
            self._samples = list(itertools.islice(with_bar(sized, progress, desc=_DESCRIPTION), len(sized)))

    def make_access(self) -> SampleAccess:
        return _ListAccess(self._samples) if self._columns is None else _ColumnsAccess(*self._columns)

    def __getstate__(self) -> dict[str, Any]:
        # the source is not pickled; its fingerprint is
        known = self._known_fingerprint or self._fingerprint_of_source()
        return {**super().__getstate__(), "_underlying": [], "_known_fingerprint": known}

    def _fingerprint_of_source(self) -> str | None:
        try:  # not self.fingerprint(): a client's class may have another method of that name
            return FluentIterator.fingerprint(self) if self._stack_on() else None
        except DataStackError:  # it can be pickled without
            return None

    def attach_source(self, source: Sequence[Any]) -> None:
        """Put back the ``underlying_iterators`` that a pickle of this iterator left behind."""
        self._underlying = list(source)

    def _stack_on(self) -> list[DatasetIteratorIF]:
        return [source for source in self._underlying if isinstance(source, DatasetIteratorIF)]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that was read, unless it was let go."""
        return self._underlying


def _read_columns(source: SampleAccess, progress: bool | None) -> tuple[Any, Any] | None:
    """Sample 0 and the columns of all samples; None where they may differ in dtype or shape, or sample 0 says otherwise."""
    if not source.n_samples or not source.fixed_columns:
        return None
    first = source.sample(0)
    if not all(isinstance(value, (np.ndarray, np.generic, *_NUMBERS)) for value in _values_of(first)):
        return None
    kept: Any = map_columns(lambda column: np.empty((source.n_samples, *column.shape[1:]), column.dtype), source.empty_batch())
    for start, batch in with_bar(in_blocks(source.n_samples, source.batch), progress, desc=_DESCRIPTION):
        for column, values in zip(list_columns(kept), list_columns(batch), strict=True):
            column[start : start + len(values)] = values
    return first, kept


class _ColumnsAccess(SampleAccess):
    """Access to samples kept as columns, as copies.

    Args:
        first: sample 0, whose values have the types of all.
        batch: the columns.
    """

    fixed_columns = True

    def __init__(self, first: Any, batch: Any) -> None:
        self._batch, columns = batch, list_columns(batch)
        self.n_samples = len(columns[0])
        self._reads = [_reader(column, value) for column, value in zip(columns, _values_of(first), strict=True)]

    def sample(self, position: int) -> Sample:
        values = [read(position) for read in self._reads]
        if isinstance(self._batch, dict):
            return dict(zip(self._batch, values, strict=True))
        return tuple(values) if isinstance(self._batch, tuple) else values[0]

    def content_fingerprint(self) -> Any:
        names = list(self._batch) if isinstance(self._batch, dict) else type(self._batch).__name__
        return json_digest(content_of([names, *list_columns(self._batch)], of_samples=True))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        batch: Batch = map_columns(lambda column: column.take(positions, axis=0), self._batch)
        return batch

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        if isinstance(self._batch, np.ndarray):  # bare values have no columns of ours
            return super().columns(keys, positions)
        columns = [column_of(self._batch, key) for key in keys]
        if positions is not None:
            return [column.take(positions, axis=0) for column in columns]
        views = [column.view() for column in columns]
        for view in views:
            view.flags.writeable = False
        return views


def _values_of(sample: Any) -> Sequence[Any]:
    return list(sample.values()) if type(sample) is dict else sample if type(sample) is tuple else [sample]


def _reader(column: Column, first: Any) -> Callable[[int], Any]:
    """A function that returns a value of a column by position, of the type of the first."""
    kind = type(first)
    if kind in _NUMBERS:
        return lambda position: kind(column[position])
    return (lambda position: column[position, ...].copy()) if isinstance(first, np.ndarray) else column.__getitem__


class _ListAccess(KeptAccess):
    """Access to samples kept as they are, as copies."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples, self.n_samples = samples, len(samples)

    def kept(self, positions: Sequence[int]) -> list[Sample]:
        return [self._samples[position] for position in positions]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return map(copy_value, itertools.islice(self._samples, start, stop))

    def content_fingerprint(self) -> Any:
        return json_digest(content_of(self._samples, of_samples=True))
