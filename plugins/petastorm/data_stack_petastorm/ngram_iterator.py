"""Sequences of consecutive rows, with fields of their own at each offset, as samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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


@layer("ngrams")
class NGramIterator(AccessedDatasetIterator):
    """Sequences of consecutive rows: sample ``i`` is ``{offset: {field: value}}``.

    ::

        frames = ParquetDataset("drives")
        pairs = NGramIterator(frames, NGram({0: ["speed", "image"], 1: ["speed"]}, 0.1, "time"))
        pairs[0][1]["speed"]
        pairs.read_batch([0, 5, 2])[0]["image"]        # {offset: {field: array of shape (3, ...)}}
        Loader(pairs, 64, shuffle=BlockShuffled(window=8))

    The constructor reads only timestamps. It keeps 4 bytes per sequence; a pickle includes them. A batch makes one request for
    each set of fields with the same offsets. Images and other slow cells of overlapping sequences are decoded once.

    The key of a column is ``(offset, field)``, shape ``(n, ...)``, or an offset: a dict for each sequence, shape ``(n,)``, dtype
    object.

    Samples are in the order of their first rows. Timestamps must not decrease within a row group; where they decrease between two
    row groups, no sequence spans these: each file must be sorted, but files may be in any order.

    ``iterator.windows(…, order_by=…, max_gap=…, offsets=…)`` of the core returns the same sequences of any samples. It sorts
    samples where this class raises, has strides and groups, and its batches are stacked windows, or tuples for each offset.

    Args:
        dataset_iterator: samples that are dicts, usually a :class:`~data_stack.formats.parquet.dataset.ParquetDataset`; it stays
            the caller's.
        ngram: describes the sequences.
        schema: the fields of the samples; None for those of ``dataset_iterator.schema``, or of the first sample.
        timestamps: the rows with timestamps, if those of ``dataset_iterator`` are transformed.
        one_row_group: whether rows without row groups count as one.

    Attributes:
        fields: the names of the fields at each offset.
        is_stored: whether the rows are not transformed.
        block_lengths: number of sequences that begin in each row group that has any, shape ``(n_row_groups,)``.

    Raises:
        ConfigError: a field does not exist; a timestamp is missing, or smaller than the previous one (the message names the row);
            or ``within_row_groups`` is set for samples without row groups.
    """

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
        stored = dataset_iterator if timestamps is None else timestamps
        self._dataset_iterator, self._stored, self._ngram = dataset_iterator, stored, ngram
        self.is_stored = stored is dataset_iterator
        stored_names = _field_names(stored)
        names = stored_names if schema is None else list(schema.fields)
        matched = {
            offset: {found for choice in choices for found in match_names(choice, names)}
            for offset, choices in ngram.fields.items()
        }
        self.fields = {
            offset: [name for name in names if name in matched[offset]]
            for offset in sorted(matched)
        }
        self._key, *others = match_names(ngram.timestamp_field, stored_names)
        if others:
            raise ConfigError(
                f"timestamp_field must match one field; it matches {self._key}, {', '.join(others)}"
            )
        self._find_sequences(access_to(stored), one_row_group)

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
        ngram = self._ngram
        return {
            "fields": self.fields,
            "delta_threshold": ngram.delta_threshold,
            "timestamp_field": self._key,
            "timestamp_overlap": ngram.timestamp_overlap,
            "within_row_groups": ngram.within_row_groups,
        }

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        return cls(underlying[0], NGram(**arguments))

    # ------------------------------------------------------------------ finding sequences

    def _find_sequences(self, stored: SampleAccess, one_row_group: bool) -> None:
        """Set the starts of sequences in the order of the rows, this order, and the number of sequences of each row group."""
        ngram, key, n_rows, blocks = self._ngram, self._key, stored.n_samples, stored.blocks()
        if blocks is None and ngram.within_row_groups and not one_row_group:
            raise ConfigError(
                f"within_row_groups=True needs samples with row groups, such as a ParquetDataset; got {self._stored!r:.80}"
            )
        self.starts: IndexArrayOfInts = np.empty(0, np.int32)
        self.block_lengths: npt.NDArray[np.int64] = np.empty(0, np.int64)
        if n_rows < ngram.length:
            return
        (times,) = stored.columns([key])
        if (missing := np.flatnonzero(missing_values(times, key))).size:
            raise ConfigError(
                f"the timestamp {key!r} of row {missing[0]} is {times[missing[0]]!s:.40}: every row needs a timestamp. "
                f"Exclude such rows by a filter: col({key!r}).is_valid()"
            )
        lengths = np.array([n_rows]) if blocks is None else blocks
        starts_run = np.zeros(n_rows, dtype=bool)
        starts_run[0] = True
        block_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        self._mark_borders(starts_run, times, block_of[1:] == block_of[:-1])
        starts = self._starts_in(starts_run, times)
        counts = np.bincount(block_of[starts], minlength=len(lengths)).astype(np.int64)
        self.starts, self.block_lengths = narrow(starts, n_rows), counts[counts > 0]

    def _mark_borders(
        self, starts_run: npt.NDArray[np.bool_], times: Any, same_block: npt.NDArray[np.bool_]
    ) -> None:
        """Mark in ``starts_run`` the rows that do not continue the previous one."""
        ngram, key = self._ngram, self._key
        if ngram.length > 1 or not ngram.timestamp_overlap:
            falls = np.asarray(times[1:] < times[:-1], dtype=bool) & ~starts_run[1:]
            if (places := np.flatnonzero(falls & same_block)).size:
                place = int(places[0])
                raise ConfigError(
                    f"the timestamp {key!r} of row {place + 1} is {times[place + 1]!s:.60}, smaller than {times[place]!s:.60} of "
                    f"row {place}: rows of n-grams must be sorted by timestamp. windows(…, order_by={key!r}) sorts them"
                )
            starts_run[1:] |= falls
        if ngram.within_row_groups:
            starts_run[1:] |= ~same_block
        if ngram.length > 1:
            threshold = _with_unit(ngram.delta_threshold, times)
            starts_run[1:] |= exceeds_gap(
                times, threshold, ~starts_run[1:], key, np.arange(len(times))
            )

    def _starts_in(self, starts_run: npt.NDArray[np.bool_], times: Any) -> npt.NDArray[np.intp]:
        ngram, n_rows, runs = self._ngram, len(times), np.flatnonzero(starts_run)
        step = 1 if ngram.timestamp_overlap else ngram.length
        if not ngram.timestamp_overlap:
            follows_equal = ~starts_run
            follows_equal[1:] &= equals_last(times)
            if bool(follows_equal.any()):
                return starts_after_larger(
                    np.append(runs, n_rows), ngram.length, step, np.flatnonzero(~follows_equal)
                )
        return starts_in_runs(runs, np.diff(runs, append=n_rows), ngram.length, step)


class NGramAccess(OffsetsAccess):
    """Access to sequences of rows.

    Args:
        sequences: the sequences.
        rows: access to the rows.
    """

    def __init__(self, sequences: NGramIterator, rows: SampleAccess) -> None:
        length = max(sequences.fields) - min(sequences.fields) + 1
        super().__init__(rows, sequences.starts, length, None, sequences.fields)  # type: ignore[arg-type]  # lists of names
        self._fields, self._block_lengths = sequences.fields, sequences.block_lengths
        names = list(dict.fromkeys(name for names in sequences.fields.values() for name in names))
        self._names = names if sequences.is_stored else None  # a transform may need others

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.fixed_columns

    def blocks(self) -> npt.NDArray[np.int64]:
        return self._block_lengths

    def prefetch(self, positions: IndexArrayOfInts, keys: Sequence[Any] | None = None) -> None:
        if any(self._fields.values()):
            self.below.prefetch(self.positions_of(self.starts_at(positions)), self._names)

    def batch(self, positions: IndexArrayOfInts) -> Any:
        columns = self.columns_of_offsets(positions, self._fields)  # type: ignore[arg-type]  # lists of names
        return {
            offset: {name: columns[offset, name] for name in names}
            for offset, names in self._fields.items()
        }

    def columns(
        self, keys: Sequence[Any], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        found = []
        for key in keys:
            offset, name = key if isinstance(key, tuple) and len(key) == 2 else (key, None)
            names = self._fields.get(offset)
            if names is None or not (name is None or name in names):
                wanted = ", ".join(
                    repr((each, name)) for each, names in self._fields.items() for name in names
                )
                raise ConfigError(
                    f"n-grams have no column {key!r:.60}; they have {wanted}, and whole offsets"
                )
            if name is not None:
                found.append(self.columns_of_offsets(positions, {offset: [name]})[offset, name])
            else:
                found.append(
                    objects(
                        [
                            sample[offset]
                            for sample in self.samples_at(positions, {offset: list(names)})
                        ]
                    )
                )
        return found

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        for first in range(start, stop, _SEQUENCES_AT_ONCE):
            yield from self.samples(
                np.arange(first, min(stop, first + _SEQUENCES_AT_ONCE), dtype=np.intp)
            )


_SEQUENCES_AT_ONCE = 64
#: A threshold that no difference of timestamps exceeds.
_MOST_UNITS = 1 << 62


def _with_unit(threshold: Any, times: Any) -> Any:
    """The threshold of an n-gram; a number counts the units of the timestamps, as in Petastorm: microseconds, or days."""
    if isinstance(threshold, np.timedelta64):
        return threshold
    times = as_times(times)
    if times.dtype.kind not in "mM":
        return threshold
    unit, step = np.datetime_data(times.dtype)
    # also for an endless threshold
    n_units = _MOST_UNITS if threshold >= _MOST_UNITS else math.floor(threshold) * step
    return np.array(n_units, np.dtype(f"m8[{unit}]"))[()]


def _field_names(iterator: DatasetIteratorIF) -> list[str]:
    """The fields of the samples, in their order."""
    fields = getattr(getattr(iterator, "schema", None), "fields", None)
    if isinstance(fields, Mapping):
        return list(fields)
    sample: Any = iterator[0] if len(iterator) else None
    if not isinstance(sample, Mapping):
        raise ConfigError(
            f"n-grams need rows that are dicts, got {type(sample).__name__}: name the columns by as_dict(…)"
        )
    return list(sample)
