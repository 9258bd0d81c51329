"""Access to the samples of a record dataset, for iterators and loaders."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import Batch, ColumnKey, Sample, access_to
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError, RequestLimitError
from data_stack.formats.records.decoded_column import DecodedColumn
from data_stack.formats.records.layout import check_column_exists
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.record_offsets import RecordNumbers
from data_stack.formats.records.records_iterator import RecordsIterator
from data_stack.formats.records.sample_columns import SampleColumns
from data_stack.formats.records.samples import iterate_samples
from data_stack.formats.remote import RemoteAccess
from data_stack.util.executor import n_threads_here
from data_stack.values.stacking import all_columns

#: An iteration reads about this many bytes at once.
_BLOCK_BYTES = 1 << 20

#: An iteration reads about this many bytes of values at once, if threads decode them.
_BYTES_FOR_DECODING_THREADS = 4 << 20

#: An iteration reads at most this many samples at once.
_MAX_SAMPLES_AT_ONCE = 1024


class RecordAccess(RemoteAccess):
    """Access to the samples of a record dataset.

    Args:
        source: the reader, which pickles.
        columns: the columns that the reader reads.
        files: the files of the dataset.
    """

    source: RecordsIterator

    def __init__(self, source: RecordsIterator, columns: SampleColumns, files: RecordFiles) -> None:
        super().__init__(source)
        self._columns = columns
        self._files = files

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the reader alone, which opens its files again."""
        return access_to, (self.source,)

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return self._columns.n_samples

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        columns = self._columns
        if not columns.sequence_names.isdisjoint(columns.keys):
            return False
        return all(columns.open_columns.get(name).is_fixed for name in columns.keys)

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return self._columns.decodes_in_threads or super().releases_gil

    @property
    def n_at_once(self) -> int:  # type: ignore[override]  # read-only here
        if not self._columns.decodes_in_threads or self.remote_bytes() > 0:
            return sys.maxsize
        n_bytes = _BYTES_FOR_DECODING_THREADS * n_threads_here()
        return max(1, n_bytes // self._sample_bytes())

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        return self._columns.read_sample(position)

    def make_sample_reader(self) -> Callable[[int], Sample]:
        return self._columns.read_sample

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        self.await_prefetched(positions)
        columns = self._columns
        values = columns.list_values(columns.keys, positions)
        return list(iterate_samples(columns.keys, values))

    def batch(self, positions: IndexArrayOfInts) -> dict[str, npt.NDArray[Any]]:
        self.await_prefetched(positions)
        columns = self._columns
        stacks = columns.stack_values(columns.keys, positions)
        return dict(zip(columns.keys, stacks, strict=True))

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        columns = self._columns
        names = _check_keys(keys, columns.codecs)
        if positions is None:
            return columns.stack_values(names, range(self.n_samples))
        return columns.stack_values(names, positions)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        columns = self._columns
        names = columns.keys if keys is None else _check_keys(keys, columns.codecs)
        if columns.has_references:
            return None
        opened = [columns.open_columns.get(name) for name in names]
        first_records = np.asarray(starts, np.int64)
        runs = all_columns(column.runs(first_records, length) for column in opened)
        if runs is None or keys is not None:
            return runs
        return dict(zip(names, runs, strict=True))

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        columns = self._columns
        block_bytes = _BLOCK_BYTES
        if columns.decodes_in_threads:
            block_bytes = _BYTES_FOR_DECODING_THREADS
        n_at_once = max(1, block_bytes // self._sample_bytes())
        n_at_once = min(n_at_once, _MAX_SAMPLES_AT_ONCE)
        for first in range(start, stop, n_at_once):
            positions = range(first, min(first + n_at_once, stop))
            try:
                values = columns.list_values(columns.keys, positions)
            except (DatasetFileCorruptError, RequestLimitError):
                # Samples before the damage are intact, and each may fit into the limit alone.
                for position in positions:
                    yield self.source[position]
            else:
                yield from iterate_samples(columns.keys, values)

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        columns = self._columns
        if key not in columns.codecs or columns.has_references:
            return None
        # Several threads take less time: they decode values side by side, for values().
        has_one_thread = n_threads_here() == 1
        if not has_one_thread or not columns.codecs[str(key)].releases_gil:
            return None
        column = columns.open_columns.get(str(key))
        if not isinstance(column, DecodedColumn):
            return None
        return column.iterate_values(np.asarray(positions, np.int64))

    # ------------------------------------------------------------------ prefetching

    def remote_bytes(self) -> float:
        files = self._files
        keys = self._columns.keys
        if not files.is_remote(keys):
            return 0
        n_bytes = sum(files.n_bytes_of(name) for name in keys)
        return n_bytes / max(1, self.n_samples)

    def fetches(
        self, positions: RecordNumbers, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        columns = self._columns
        if columns.has_references:
            return []
        fetches: list[Callable[[], object]] = []
        for key in keys or columns.keys:
            if key in columns.codecs and not self._is_in_memory(str(key)):
                fetches.append(functools.partial(self._fetch_column, str(key), positions))
        return fetches

    def _is_in_memory(self, name: str) -> bool:
        """Return whether a column is open, and its records are mapped or in memory."""
        column = self._columns.open_columns.by_name.get(name)
        return column is not None and column.bag.file.ranges is None

    def _fetch_column(self, name: str, numbers: RecordNumbers) -> None:
        """Fetch records of a column from a store into its cache."""
        self._columns.open_columns.get(name).bag.fetch(numbers)

    def _sample_bytes(self) -> int:
        """Return the approximate size of a decoded sample in bytes; at least 1."""
        columns = self._columns
        n_samples = max(1, self.n_samples)
        n_bytes = 0
        for name in columns.keys:
            column = columns.open_columns.get(name)
            records_per_sample = math.ceil(len(column) / n_samples)
            n_bytes += column.row_bytes * records_per_sample
        return max(1, n_bytes)

    # ------------------------------------------------------------------ description

    def locate(self, position: int) -> str:
        return f"record {position} of {self._files.folder.name}"

    def declare_columns(self) -> dict[str, DeclaredColumn]:
        declared = {}
        for name in self._columns.keys:
            if name in self._columns.sequence_names:
                declared[name] = DeclaredColumn(self._files.description.types[name])
            else:
                # The first value says more than its type, such as the dtype of an array.
                declared[name] = DeclaredColumn(None)
        return declared

    def content_fingerprint(self) -> dict[str, Any]:
        return self._files.content(self._columns.keys)


def _check_keys(keys: Sequence[ColumnKey], known: Collection[str]) -> list[str]:
    """Return the keys of columns as names.

    Raises:
        ConfigError: a column does not exist.
    """
    for key in keys:
        check_column_exists(key, known)
    return [str(key) for key in keys]
