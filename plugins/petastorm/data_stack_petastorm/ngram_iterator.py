"""Sequences of consecutive rows, with fields of their own at each offset, as samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    DatasetIteratorIF,
    IndexArray,
    Sample,
    SampleAccess,
    access_to,
)
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.ordered import missing_values
from data_stack.dataset.iterator.layers.windowed import (
    OffsetsAccess,
    equals_last,
    exceeds_gap,
    starts_after_larger,
    starts_in_runs,
)
from data_stack.dataset.positions import IndexArrayOfInts, narrow
from data_stack.exception import ConfigError
from data_stack.formats.parquet.schema import Schema, match_names
from data_stack.formats.parquet.selecting import as_times
from data_stack.values.stacked_values import objects
from data_stack_petastorm.ngram import NGram

#: Number of sequences that an iteration reads together.
_SEQUENCES_AT_ONCE = 64

#: A number of units of time that no difference of timestamps exceeds, and that fits into 64 bits.
_MAX_UNITS = 1 << 62


@layer("ngrams")
class NGramIterator(AccessedDatasetIterator):
    """Sequences of consecutive rows: sample ``i`` is ``{offset: {field: value}}``.

    ::

        frames = ParquetDataset("drives")
        pairs = NGramIterator(frames, NGram({0: ["speed", "image"], 1: ["speed"]}, 0.1, "time"))
        pairs[0][1]["speed"]
        pairs.read_batch([0, 5, 2])[0]["image"]        # {offset: {field: array of shape (3, ...)}}
        Loader(pairs, 64, shuffle=BlockShuffled(window=8))

    The constructor reads only timestamps. It keeps 4 bytes per sequence; a pickle includes them. A
    batch makes one request for each set of fields with the same offsets. Images and other slow
    cells of overlapping sequences are decoded once.

    The key of a column is ``(offset, field)``, shape ``(n, ...)``, or an offset: a dict for each
    sequence, shape ``(n,)``, dtype object.

    Samples are in the order of their first rows. Timestamps must not decrease within a row group;
    where they decrease between two row groups, no sequence spans these: each file must be sorted,
    but files may be in any order.

    ``iterator.windows(…, order_by=…, max_gap=…, offsets=…)`` of the core returns the same sequences
    of any samples. It sorts samples where this class raises, has strides and groups, and its
    batches are stacked windows, or tuples for each offset.

    Args:
        dataset_iterator: samples that are dicts, usually a
            :class:`~data_stack.formats.parquet.dataset.ParquetDataset`; it is not closed.
        ngram: describes the sequences.
        schema: the fields of the samples; None for those of ``dataset_iterator.schema``, or of the
            first sample.
        timestamps: as many rows, with timestamps, if those of ``dataset_iterator`` are transformed
            and may lack them; None: ``dataset_iterator``.
        one_row_group: whether rows without row groups count as one row group.

    Attributes:
        fields: the names of the fields at each offset, offsets from the lowest on.
        is_stored: whether ``dataset_iterator`` also has the timestamps: its rows are then as they
            are stored, not transformed.
        starts: the first row of each sequence, shape ``(n_sequences,)``.
        block_lengths: number of sequences that begin in each row group that has any, shape
            ``(n_row_groups,)``.

    Raises:
        ConfigError: a field does not exist; a timestamp is missing, or smaller than the previous
            one (the message names the row); or ``within_row_groups`` is set for samples without row
            groups.
    """

    fields: dict[int, list[str]]
    is_stored: bool
    starts: IndexArrayOfInts
    block_lengths: npt.NDArray[np.int64]
    _dataset_iterator: DatasetIteratorIF
    _ngram: NGram
    #: The name of the field with timestamps.
    _timestamp_name: str

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        ngram: NGram,
        *,
        schema: Schema | None = None,
        timestamps: DatasetIteratorIF | None = None,
        one_row_group: bool = False,
    ) -> None:
        if not isinstance(ngram, NGram):
            raise ConfigError(f"ngram must be an NGram, got {ngram!r:.80}")
        stored = timestamps
        if stored is None:
            stored = dataset_iterator
        self._dataset_iterator = dataset_iterator
        self._ngram = ngram
        self.is_stored = stored is dataset_iterator

        # Which fields each offset has, and which field has the timestamps.
        stored_names = _names_of_fields(stored)
        names = stored_names
        if schema is not None:
            names = list(schema.fields)
        self.fields = _match_fields(ngram, names)
        matched = match_names(ngram.timestamp_field, stored_names)
        if len(matched) > 1:
            raise ConfigError(
                f"timestamp_field must match one field; it matches {', '.join(matched)}"
            )
        self._timestamp_name = matched[0]

        # The number of rows in each row group.
        rows = access_to(stored)
        blocks = rows.blocks()
        if blocks is None:
            if ngram.within_row_groups and not one_row_group:
                raise ConfigError(
                    "within_row_groups=True needs samples with row groups, such as a "
                    f"ParquetDataset; got {stored!r:.80}"
                )
            blocks = np.array([rows.n_samples])

        # Which rows begin a sequence. Too few rows have none, and their timestamps are not read.
        self.starts = np.empty(0, np.int32)
        self.block_lengths = np.empty(0, np.int64)
        if rows.n_samples < ngram.length:
            return

        times = rows.columns([self._timestamp_name])[0]
        block_of_row = np.repeat(np.arange(len(blocks), dtype=np.int32), blocks)
        timeline = _Timeline(self._timestamp_name, times, block_of_row)
        timeline.check_complete()
        starts = timeline.find_starts(ngram)
        n_starts_of_blocks = np.bincount(block_of_row[starts], minlength=len(blocks))
        self.starts = narrow(starts, rows.n_samples)
        self.block_lengths = n_starts_of_blocks[n_starts_of_blocks > 0].astype(np.int64)

    if TYPE_CHECKING:  # batches are dicts of dicts, and their columns have keys of their own

        def read_batch(self, indices: IndexArray) -> Any: ...

        def read_column(self, key: Any, indices: IndexArray | None = None) -> npt.NDArray[Any]: ...

    def make_access(self) -> NGramAccess:
        return NGramAccess(self, access_to(self._dataset_iterator))

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator of the rows."""
        return [self._dataset_iterator]

    def _arguments(self) -> dict[str, Any]:
        return {
            "fields": self.fields,
            "delta_threshold": self._ngram.delta_threshold,
            "timestamp_field": self._timestamp_name,
            "timestamp_overlap": self._ngram.timestamp_overlap,
            "within_row_groups": self._ngram.within_row_groups,
        }

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        return cls(underlying[0], NGram(**arguments))


class NGramAccess(OffsetsAccess):
    """Access to sequences of rows.

    Args:
        sequences: the sequences.
        rows: access to the rows.
    """

    #: The names of the fields at each offset.
    _fields: dict[int, list[str]]
    _block_lengths: npt.NDArray[np.int64]
    #: The columns to prefetch; None for all, as a transform may need others than those returned.
    _names_to_prefetch: list[str] | None

    def __init__(self, sequences: NGramIterator, rows: SampleAccess) -> None:
        length = max(sequences.fields) - min(sequences.fields) + 1
        offsets: dict[int, list[Any] | None] = dict(sequences.fields)
        super().__init__(rows, sequences.starts, length, None, offsets)
        self._fields = sequences.fields
        self._block_lengths = sequences.block_lengths
        self._names_to_prefetch = None
        if sequences.is_stored:
            self._names_to_prefetch = names_at_all_offsets(sequences.fields)

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.fixed_columns

    def blocks(self) -> npt.NDArray[np.int64]:
        return self._block_lengths

    def prefetch(self, positions: IndexArrayOfInts, keys: Sequence[Any] | None = None) -> None:
        has_fields = any(self._fields.values())
        if has_fields:
            first_rows = self.positions_of(self.starts_at(positions))
            self.below.prefetch(first_rows, self._names_to_prefetch)

    def batch(self, positions: IndexArrayOfInts) -> Any:
        columns = self.columns_of_offsets(positions, self.offsets)
        batch: dict[int, dict[str, Any]] = {}
        for offset, names in self._fields.items():
            batch[offset] = {name: columns[offset, name] for name in names}
        return batch

    def columns(
        self, keys: Sequence[Any], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        return [self._read_column(key, positions) for key in keys]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        for first in range(start, stop, _SEQUENCES_AT_ONCE):
            end = min(stop, first + _SEQUENCES_AT_ONCE)
            yield from self.samples(np.arange(first, end, dtype=np.intp))

    def _read_column(self, key: Any, positions: IndexArrayOfInts) -> npt.NDArray[Any]:
        """Return the column of a field at an offset, or of the whole rows at an offset.

        Args:
            key: ``(offset, name)``, or an offset.
            positions: the numbers of the sequences, shape ``(n,)``.

        Raises:
            ConfigError: there is no such column.
        """
        is_field = isinstance(key, tuple) and len(key) == 2
        if is_field:
            offset, name = key
            if name not in self._fields.get(offset, ()):
                raise self._unknown_column_error(key)
            return self.columns_of_offsets(positions, {offset: [name]})[offset, name]

        names = self._fields.get(key)
        if names is None:
            raise self._unknown_column_error(key)
        samples = self.samples_at(positions, {key: list(names)})
        return objects([sample[key] for sample in samples])

    def _unknown_column_error(self, key: Any) -> ConfigError:
        known_keys: list[str] = []
        for offset, names in self._fields.items():
            for name in names:
                known_keys.append(repr((offset, name)))
        return ConfigError(
            f"n-grams have no column {key!r:.60}; "
            f"they have {', '.join(known_keys)}, and whole offsets"
        )


def names_at_all_offsets(fields: Mapping[int, Sequence[str]]) -> list[str]:
    """Return the names of the fields of all offsets, each once."""
    names: dict[str, None] = {}  # a dict keeps the order
    for names_of_offset in fields.values():
        names.update(dict.fromkeys(names_of_offset))
    return list(names)


@dataclass(frozen=True)
class _Timeline:
    """The timestamps of rows, in which sequences are found.

    Attributes:
        name: the name of their field, for errors.
        times: the timestamps, shape ``(n_rows,)``, at least one.
        block_of_row: the number of the row group of each row, shape ``(n_rows,)``.
    """

    name: str
    times: npt.NDArray[Any]
    block_of_row: npt.NDArray[np.int32]

    def check_complete(self) -> None:
        """Refuse rows without a timestamp.

        Raises:
            ConfigError: a timestamp is None, NaN or NaT; the message names the row.
        """
        missing = np.flatnonzero(missing_values(self.times, self.name))
        if missing.size:
            row = missing[0]
            raise ConfigError(
                f"the timestamp {self.name!r} of row {row} is {self.times[row]!s:.40}: every row "
                f"needs a timestamp. Exclude such rows by a filter: col({self.name!r}).is_valid()"
            )

    def find_starts(self, ngram: NGram) -> npt.NDArray[np.intp]:
        """Return the first rows of all sequences, in the order of the rows.

        Raises:
            ConfigError: the rows of a row group are not sorted, or the threshold of the n-gram
                cannot be compared with differences of the timestamps.
        """
        begins_run = self._find_runs(ngram)
        first_rows = np.flatnonzero(begins_run)
        n_rows = len(self.times)
        if ngram.timestamp_overlap:
            lengths = np.diff(first_rows, append=n_rows)
            return starts_in_runs(first_rows, lengths, ngram.length, 1)

        # A sequence begins after the last timestamp of the previous one, so it does not begin at a
        # row with the timestamp of the row before.
        equals_previous = ~begins_run
        equals_previous[1:] &= equals_last(self.times)
        if not equals_previous.any():
            lengths = np.diff(first_rows, append=n_rows)
            return starts_in_runs(first_rows, lengths, ngram.length, ngram.length)
        borders = np.append(first_rows, n_rows)
        possible_starts = np.flatnonzero(~equals_previous)
        return starts_after_larger(borders, ngram.length, ngram.length, possible_starts)

    def _find_runs(self, ngram: NGram) -> npt.NDArray[np.bool_]:
        """Return which rows begin a run, shape ``(n_rows,)``.

        Such a row is the first of all, is too much later than the row before, is earlier than it,
        or is in another row group if these end sequences. No sequence spans two runs.
        """
        begins_run = np.zeros(len(self.times), dtype=bool)
        begins_run[0] = True
        is_same_block = self.block_of_row[1:] == self.block_of_row[:-1]
        if ngram.length > 1 or not ngram.timestamp_overlap:
            decreases = np.asarray(self.times[1:] < self.times[:-1], dtype=bool)
            self._check_sorted(decreases & is_same_block)
            begins_run[1:] |= decreases
        if ngram.within_row_groups:
            begins_run[1:] |= ~is_same_block
        if ngram.length > 1:
            threshold = _threshold_with_unit(ngram.delta_threshold, self.times)
            rows = np.arange(len(self.times))
            begins_run[1:] |= exceeds_gap(self.times, threshold, ~begins_run[1:], self.name, rows)
        return begins_run

    def _check_sorted(self, decreases: npt.NDArray[np.bool_]) -> None:
        """Refuse timestamps that decrease within a row group.

        Args:
            decreases: whether the timestamp decreases from each row to the next within a row
                group, shape ``(n_rows - 1,)``.

        Raises:
            ConfigError: a timestamp decreases; the message names the row.
        """
        places = np.flatnonzero(decreases)
        if places.size:
            row = int(places[0])
            raise ConfigError(
                f"the timestamp {self.name!r} of row {row + 1} is {self.times[row + 1]!s:.60}, "
                f"smaller than {self.times[row]!s:.60} of row {row}: rows of n-grams must be "
                f"sorted by timestamp. windows(…, order_by={self.name!r}) sorts them"
            )


def _threshold_with_unit(threshold: Any, times: npt.NDArray[Any]) -> Any:
    """Return the threshold of an n-gram, in units of its timestamps.

    A threshold that is a number counts the units of the timestamps, as in Petastorm: microseconds
    of instants, or days.
    """
    if isinstance(threshold, np.timedelta64):
        return threshold
    times = as_times(times)
    if times.dtype.kind not in "mM":
        return threshold
    unit, units_per_step = np.datetime_data(times.dtype)
    if threshold >= _MAX_UNITS:  # also infinity, which has no floor
        n_units = _MAX_UNITS
    else:
        n_units = math.floor(threshold) * units_per_step
    # An array, as the type of timedelta64() knows no unit that is a variable.
    return np.array(n_units, np.dtype(f"m8[{unit}]"))[()]


def _match_fields(ngram: NGram, names: Sequence[str]) -> dict[int, list[str]]:
    """Return the names of the fields at each offset, in the order of ``names``.

    Raises:
        ConfigError: a choice of the n-gram matches none of ``names``.
    """
    fields: dict[int, list[str]] = {}
    for offset in sorted(ngram.fields):
        matched: set[str] = set()
        for choice in ngram.fields[offset]:
            matched.update(match_names(choice, names))
        fields[offset] = [name for name in names if name in matched]
    return fields


def _names_of_fields(iterator: DatasetIteratorIF) -> list[str]:
    """Return the names of the fields of the samples, in their order.

    Raises:
        ConfigError: the samples are not dicts.
    """
    schema = getattr(iterator, "schema", None)
    fields = getattr(schema, "fields", None)
    if isinstance(fields, Mapping):
        return list(fields)

    # Without a schema, the first sample tells the names.
    sample: Any = None
    if len(iterator) > 0:
        sample = iterator[0]
    if not isinstance(sample, Mapping):
        raise ConfigError(
            f"n-grams need rows that are dicts, got {type(sample).__name__}: "
            "name the columns by as_dict(…)"
        )
    return list(sample)
