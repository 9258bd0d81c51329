"""N-grams: sequences of consecutive rows, with fields of their own at each offset, as samples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF, IndexArray, Sample, SampleAccess, access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.indices import check_integer
from data_stack.dataset.iterator.layers.grouped import GroupedDatasetIterator
from data_stack.dataset.iterator.layers.mapped import grow_reads
from data_stack.dataset.iterator.layers.ordered import missing_values
from data_stack.dataset.iterator.layers.windowed import (
    OffsetsAccess,
    check_gap,
    equals_last,
    exceeds_gap,
    group_numbers,
    starts_after_larger,
    starts_in_runs,
)
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.positions import IndexArrayOfInts, narrow
from data_stack.exception import ConfigError
from data_stack.formats.parquet.schema import match_names
from data_stack.formats.parquet.transformed import TransformedDatasetIterator
from data_stack.values.stacked_values import objects

Threshold = Union[float, Decimal, timedelta, np.timedelta64]


@dataclass(frozen=True)
class NGram:
    """Describes sequences of rows, and the fields to read at each offset.

    ::

        NGram({-1: ["speed"], 0: ["speed", "image"], 1: ["angle.*"]}, delta_threshold=0.1, timestamp_field="time")

    The rows of a sequence are consecutive, and no timestamp exceeds the previous one by more than ``delta_threshold``. The lowest
    offset is the first row. An offset in between that is not listed is a row without fields.

    Args:
        fields: the fields of the row at each offset: names, regular expressions of whole names, or fields; may be empty.
        delta_threshold: maximum difference of consecutive timestamps, in their unit; for times also a timedelta.
        timestamp_field: the field of the timestamps, which must not decrease. It need not be among ``fields``.
        timestamp_overlap: whether sequences may share rows. Otherwise each sequence begins after the last timestamp of the
            previous one; the first possible sequence is chosen, then the next.
        group_field: a sequence has rows of one value of this field, such as one vehicle; rows of other groups may lie in between.
            None: all rows are one group.
        stride: number of rows between the starts of two sequences, at least 1.
        within_row_groups: keep each sequence within one row group, as Petastorm does. Otherwise sequences cross row groups and
            files.

    Raises:
        ConfigError: an argument is invalid.
    """

    fields: Mapping[int, Sequence[Any]] = field(hash=False)
    delta_threshold: Threshold
    timestamp_field: Any
    timestamp_overlap: bool = True
    _: KW_ONLY
    group_field: Any = None
    stride: int = 1
    within_row_groups: bool = False

    def __post_init__(self) -> None:
        given: Any = self.fields
        if not isinstance(given, Mapping) or len(given) == 0:
            raise ConfigError(
                f"the fields of an n-gram must be a mapping such as {{0: ['id'], 1: ['id', 'image']}}, got {given!r:.80}"
            )
        fields: dict[int, list[Any]] = {}
        for offset in sorted(check_integer("an offset of an n-gram", each) for each in given):
            choices = given[offset]
            if isinstance(choices, (str, re.Pattern)) or not isinstance(choices, Sequence):
                raise ConfigError(f"the fields at offset {offset} must be a list of names, got {choices!r:.80}")
            fields[offset] = [getattr(choice, "name", choice) for choice in choices]
        checked = {
            "fields": fields,
            "delta_threshold": check_gap(self.delta_threshold, "delta_threshold"),
            "timestamp_field": getattr(self.timestamp_field, "name", self.timestamp_field),
            "group_field": getattr(self.group_field, "name", self.group_field),
            "stride": check_integer("the stride of n-grams", self.stride, at_least=1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def length(self) -> int:
        """Number of rows from the lowest to the highest offset."""
        return max(self.fields) - min(self.fields) + 1

    def resolve(self, names: Sequence[str], stored_names: Sequence[str] | None = None) -> NGram:
        """Replace regular expressions by names of fields, at each offset in the order of ``names``.

        Args:
            names: names of the fields of a row.
            stored_names: names of the fields to match timestamp and group; None for ``names``.

        Raises:
            ConfigError: a choice matches no field, or timestamp or group match several.
        """
        fields = {
            offset: [name for name in names if name in {found for choice in choices for found in match_names(choice, names)}]
            for offset, choices in self.fields.items()
        }
        chosen: dict[str, Any] = {}
        for argument in ("timestamp_field", "group_field"):
            choice = getattr(self, argument)
            if choice is not None:
                found = match_names(choice, names if stored_names is None else stored_names)
                if len(found) > 1:
                    raise ConfigError(f"{argument} must match one field; {choice!r} matches {', '.join(found)}")
                (chosen[argument],) = found
        return replace(self, fields=fields, **chosen)

    def get_field_names_at_timestep(self, timestep: int) -> list[Any]:
        """The fields at an offset; empty for an offset that is not listed."""
        return list(self.fields.get(timestep, []))

    def get_field_names_at_all_timesteps(self) -> list[Any]:
        """The fields of all offsets."""
        return list(dict.fromkeys(choice for choices in self.fields.values() for choice in choices))


@layer("ngrams")
class NGramIterator(GroupedDatasetIterator):
    """Sequences of consecutive rows: sample ``i`` is ``{offset: {field: value}}``.

    ::

        frames = ParquetDataset("drives")
        pairs = NGramIterator(frames, NGram({0: ["speed", "image"], 1: ["speed"]}, 0.1, "time", group_field="vehicle"))
        pairs[0][1]["speed"]
        pairs.read_batch([0, 5, 2])[0]["image"]        # {offset: {field: array of shape (3, ...)}}
        Loader(pairs, 64, shuffle=BlockShuffled(window=8))

    The constructor reads only timestamps and groups; below a
    :class:`~data_stack.formats.parquet.transformed.TransformedDatasetIterator` it reads the stored timestamps. It keeps 4 bytes
    per sequence, and with groups 4 bytes per row; a pickle includes them. A batch makes one request for each set of fields with
    the same offsets. Images and other slow cells of overlapping sequences are decoded once. At the end of a row group, only the
    first rows of the next one are read, if few are needed.

    The key of a column is ``(offset, field)``, shape ``(n, ...)``, or an offset: a dict for each sequence, shape ``(n,)``, dtype
    object.

    Samples are in the order of their first rows. Sequences cross row groups and files, unless :attr:`NGram.within_row_groups` is
    set. Timestamps must not decrease within a row group; where they decrease between two row groups, no sequence spans these:
    each file must be sorted, but files may be in any order.

    ``iterator.windows(…, order_by=…, max_gap=…, offsets=…)`` returns the same sequences of any samples. It sorts samples where
    this class raises, and its batches are stacked windows, or tuples for each offset.

    Args:
        dataset_iterator: samples that are dicts, usually a :class:`~data_stack.formats.parquet.dataset.ParquetDataset`; it stays
            the caller's.
        ngram: describes the sequences.

    Raises:
        ConfigError: a field does not exist; a timestamp is missing, or smaller than the previous one (the message names the row);
            or ``within_row_groups`` is set for samples without row groups.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, ngram: NGram) -> None:
        if not isinstance(ngram, NGram):
            raise ConfigError(f"ngram must be an NGram, got {ngram!r:.80}")
        super().__init__(dataset_iterator)
        self._source = stored = as_iterator(dataset_iterator)
        while isinstance(stored, TransformedDatasetIterator):  # stored timestamps are read
            stored = as_iterator(stored.underlying_iterators[0])
        self._ngram = ngram.resolve(_field_names(self._source), _field_names(stored))
        wanted = self._ngram.get_field_names_at_all_timesteps()
        self._names_ahead = wanted if stored is self._source else None  # a transform may need others
        self._sequences = _find_sequences(stored, self._ngram)

    if TYPE_CHECKING:  # batches are dicts of dicts, and their columns have keys of their own

        def read_batch(self, indices: IndexArray) -> Any: ...

        def read_column(self, key: Any, indices: IndexArray | None = None) -> npt.NDArray[Any]: ...

    @property
    def ngram(self) -> NGram:
        """The description of the sequences, with names of fields."""
        return self._ngram

    @property
    def block_lengths(self) -> npt.NDArray[np.int64]:
        """Number of sequences that begin in each row group that has any, shape ``(n_row_groups,)``."""
        return self._sequences.block_lengths

    def make_access(self) -> NGramAccess:
        return NGramAccess(self._below(), self._ngram, self._sequences, self._names_ahead)

    def _arguments(self) -> dict[str, Any]:
        return dict(vars(self._ngram))

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        (rows,) = underlying
        return cls(rows, NGram(**arguments))


# ------------------------------------------------------------------ finding sequences


class _Sequences(NamedTuple):
    """Starts of sequences in ``order``; the order of the rows, None if unchanged; sequences that begin in each row group."""

    starts: IndexArrayOfInts
    order: IndexArrayOfInts | None
    block_lengths: npt.NDArray[np.int64]


def _find_sequences(stored: DatasetIteratorIF, ngram: NGram) -> _Sequences:
    n_rows, access = len(stored), access_to(stored)
    blocks = access.blocks()
    if blocks is None and ngram.within_row_groups:
        raise ConfigError(
            f"within_row_groups=True needs samples with row groups (block_lengths), such as a ParquetDataset; got {stored!r:.80}"
        )
    if n_rows < ngram.length:
        return _Sequences(np.empty(0, dtype=np.int32), None, np.empty(0, dtype=np.int64))
    lengths = np.array([n_rows]) if blocks is None else blocks
    block_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    key = ngram.timestamp_field
    columns = access.columns([key] if ngram.group_field is None else [key, ngram.group_field])
    missing = missing_values(columns[0], key)
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise ConfigError(
            f"the timestamp {key!r} of row {row} is {columns[0][row]!s:.40}: every row needs a timestamp. Exclude such rows by "
            f"a filter: col({key!r}).is_valid()"
        )
    order: npt.NDArray[np.intp] = np.arange(n_rows, dtype=np.intp)
    starts_run = np.zeros(n_rows, dtype=bool)
    starts_run[0] = True
    if ngram.group_field is not None:
        groups = group_numbers(columns[1])
        order = np.argsort(groups, kind="stable")
        starts_run[1:] = np.diff(groups[order]) != 0
    times, its_block = columns[0][order], block_of[order]
    _mark_borders(starts_run, times, order, its_block[1:] == its_block[:-1], ngram)
    starts = _starts_in(starts_run, times, ngram)
    if ngram.group_field is not None:
        starts = starts[np.argsort(order[starts], kind="stable")]
    counts = np.bincount(its_block[starts], minlength=len(lengths)).astype(np.int64)
    kept_order = None if ngram.group_field is None else narrow(order, n_rows)
    return _Sequences(narrow(starts, n_rows), kept_order, counts[counts > 0])


def _mark_borders(
    starts_run: npt.NDArray[np.bool_],
    times: npt.NDArray[Any],
    order: npt.NDArray[np.intp],
    same_block: npt.NDArray[np.bool_],
    ngram: NGram,
) -> None:
    """Mark in ``starts_run`` the rows that do not continue the previous one."""
    key = ngram.timestamp_field
    if ngram.length > 1 or not ngram.timestamp_overlap:
        falls = np.asarray(times[1:] < times[:-1], dtype=bool) & ~starts_run[1:]
        if bool((falls & same_block).any()):
            place = int(np.flatnonzero(falls & same_block)[0])
            raise ConfigError(
                f"the timestamp {key!r} of row {order[place + 1]} is {times[place + 1]!s:.60}, smaller than "
                f"{times[place]!s:.60} of row {order[place]}: rows of n-grams must be sorted by timestamp. "
                f"windows(…, order_by={key!r}) sorts them; group_field= separates interleaved sequences"
            )
        starts_run[1:] |= falls
    if ngram.within_row_groups:
        starts_run[1:] |= ~same_block
    if ngram.length > 1:
        starts_run[1:] |= exceeds_gap(times, ngram.delta_threshold, ~starts_run[1:], key, order)


def _starts_in(starts_run: npt.NDArray[np.bool_], times: npt.NDArray[Any], ngram: NGram) -> npt.NDArray[np.intp]:
    n_rows, runs = len(times), np.flatnonzero(starts_run)
    step = ngram.stride if ngram.timestamp_overlap else max(ngram.stride, ngram.length)
    if not ngram.timestamp_overlap:
        follows_equal = ~starts_run
        follows_equal[1:] &= equals_last(times)
        if bool(follows_equal.any()):
            return starts_after_larger(np.append(runs, n_rows), ngram.length, step, np.flatnonzero(~follows_equal))
    return starts_in_runs(runs, np.diff(runs, append=n_rows), ngram.length, step)


class NGramAccess(OffsetsAccess):
    """Access to sequences of rows.

    Args:
        rows: access to the rows.
        ngram: describes the sequences, with names of fields.
        sequences: the sequences that were found.
        names: fields to prefetch; None for those that were read last.
    """

    def __init__(self, rows: SampleAccess, ngram: NGram, sequences: _Sequences, names: list[str] | None) -> None:
        super().__init__(rows, sequences.starts, ngram.length, sequences.order, ngram.fields)  # type: ignore[arg-type]  # lists of names
        self._block_lengths, self._names = sequences.block_lengths, names

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.fixed_columns

    def blocks(self) -> npt.NDArray[np.int64]:
        return self._block_lengths

    def prefetch(self, positions: IndexArrayOfInts, keys: Sequence[Any] | None = None) -> None:
        if any(self._offsets.values()):
            self.below.prefetch(self.positions_of(self.starts_at(positions)), self._names)

    def batch(self, positions: IndexArrayOfInts) -> Any:
        columns = self.columns_of_offsets(positions, self._offsets)
        return {offset: {name: columns[offset, name] for name in names or ()} for offset, names in self._offsets.items()}

    def columns(self, keys: Sequence[Any], positions: IndexArrayOfInts | None = None) -> list[npt.NDArray[Any]]:
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        found = []
        for key in keys:
            offset, name = key if isinstance(key, tuple) and len(key) == 2 else (key, None)
            names = self._offsets.get(offset)
            if names is None or not (name is None or name in names):
                wanted = ", ".join(repr((each, name)) for each, names in self._offsets.items() for name in names or ())
                raise ConfigError(f"n-grams have no column {key!r:.60}; they have {wanted}, and whole offsets")
            if name is not None:
                found.append(self.columns_of_offsets(positions, {offset: [name]})[offset, name])
            else:
                found.append(objects([sample[offset] for sample in self.samples_at(positions, {offset: names})]))
        return found

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return grow_reads(self.samples, start, stop)


def _field_names(iterator: DatasetIteratorIF) -> list[str]:
    """The fields of the samples, in their order."""
    schema = getattr(iterator, "schema", None)
    if isinstance(getattr(schema, "fields", None), Mapping):
        return list(schema.fields)  # type: ignore[union-attr]  # checked above
    if len(iterator) == 0:
        raise ConfigError(f"n-grams need the fields of their rows, but {iterator!r:.80} has neither rows nor a schema")
    sample = iterator[0]
    if not isinstance(sample, Mapping):
        raise ConfigError(f"n-grams need rows that are dicts, got {type(sample).__name__}: name the columns by as_dict(…)")
    return list(sample)
