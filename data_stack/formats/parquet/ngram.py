"""N-grams: sequences of consecutive rows, with fields of their own at each offset, as samples."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF, Sample, access_to
from data_stack.dataset.iterator.grouped import distinct
from data_stack.dataset.iterator.indices import checked_integer
from data_stack.dataset.iterator.ordered import missing_values
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.windowed import (
    equals_last,
    exceeds_gap,
    group_numbers,
    starts_after_larger,
    starts_in_runs,
)
from data_stack.dataset.positions import IndexArrayOfInts, narrowed
from data_stack.exception import ConfigError
from data_stack.formats.parquet.row_layer import RowAccess, RowLayer
from data_stack.formats.parquet.transformed import TransformedDatasetIterator
from data_stack.util.suggestions import did_you_mean

__all__ = ["NGram", "NGramIterator"]

Columns = dict[int, dict[str, npt.NDArray[Any]]]
Threshold = Union[float, Decimal, timedelta, np.timedelta64]


class NGram:
    """Which rows make a sequence, and which of their fields are wanted.

    ::

        NGram({-1: ["speed"], 0: ["speed", "image"], 1: ["angle.*"]}, delta_threshold=0.1, timestamp_field="time")

    The rows of a sequence follow each other in the dataset, and no timestamp is larger than the one before by more than
    ``delta_threshold``. The lowest offset is the first row. An offset in between that is not named is a row that must be
    there, of which nothing is wanted.

    Args:
        fields: for each offset the fields of that row: names, regular expressions of whole names, or fields. None, too.
        delta_threshold: of two rows that follow each other, in units of the timestamps; of times also a timedelta.
        timestamp_field: whose values do not decrease. It need not be among ``fields``.
        timestamp_overlap: whether sequences may share rows. Otherwise each begins after the timestamp of the last row of the one
            before: the first one that can be had is taken, then the next.
        group_field: rows follow each other within one value of it only, such as one vehicle; those of other groups may lie in
            between. None: all rows are one group.
        stride: rows from the start of a sequence to the start of the next one, at least 1.
        within_row_groups: whether a sequence lies in one row group, as with Petastorm. Otherwise it crosses row groups and files.

    Raises:
        ConfigError: an argument is none of that.
    """

    def __init__(
        self,
        fields: Mapping[int, Sequence[Any]],
        delta_threshold: Threshold,
        timestamp_field: Any,
        timestamp_overlap: bool = True,
        *,
        group_field: Any = None,
        stride: int = 1,
        within_row_groups: bool = False,
    ) -> None:
        given: Any = fields
        if not isinstance(given, Mapping) or len(given) == 0:
            raise ConfigError(
                f"the fields of an n-gram are a mapping such as {{0: ['id'], 1: ['id', 'image']}}, not {fields!r:.80}"
            )
        self._fields: dict[int, list[Any]] = {}
        for offset in sorted(checked_integer("an offset of an n-gram", each) for each in fields):
            choices = fields[offset]
            if isinstance(choices, (str, re.Pattern)) or not isinstance(choices, Sequence):
                raise ConfigError(f"the fields at offset {offset} are a list of names, not {choices!r:.80}")
            self._fields[offset] = [_choice(choice, f"a field at offset {offset}") for choice in choices]
        if isinstance(delta_threshold, timedelta):
            delta_threshold = np.timedelta64(delta_threshold)  # plain data for the recipe
        is_span = isinstance(delta_threshold, np.timedelta64) and not np.isnat(delta_threshold)
        is_number = isinstance(delta_threshold, (numbers.Real, Decimal)) and not isinstance(delta_threshold, bool)
        if not (is_span or is_number) or not delta_threshold >= type(delta_threshold)(0):  # type: ignore[operator]
            raise ConfigError(f"delta_threshold is a number or timedelta of at least 0, not {delta_threshold!r:.80}")
        if not isinstance(timestamp_overlap, (bool, np.bool_)):
            raise ConfigError(f"timestamp_overlap is True or False, not {timestamp_overlap!r:.80}")
        self._delta_threshold = delta_threshold
        self._timestamp_field = _choice(timestamp_field, "timestamp_field")
        self._group_field = None if group_field is None else _choice(group_field, "group_field")
        self._stride = checked_integer("the stride of n-grams", stride, at_least=1)
        self._overlap, self._within_row_groups = bool(timestamp_overlap), bool(within_row_groups)

    @property
    def length(self) -> int:
        """Rows from the lowest to the highest offset."""
        return max(self._fields) - min(self._fields) + 1

    @property
    def fields(self) -> dict[int, list[Any]]:
        """For each offset, ascending, what was chosen: names and regular expressions."""
        return {offset: list(choices) for offset, choices in self._fields.items()}

    @property
    def delta_threshold(self) -> Threshold:
        """How far apart two rows that follow each other may be."""
        return self._delta_threshold

    @property
    def timestamp_field(self) -> Any:
        """The field whose values do not decrease: a name or regular expression."""
        return self._timestamp_field

    @property
    def timestamp_overlap(self) -> bool:
        """Whether sequences may share rows."""
        return self._overlap

    @property
    def group_field(self) -> Any:
        """The field of groups; None if there are none."""
        return self._group_field

    @property
    def stride(self) -> int:
        """Rows from the start of a sequence to that of the next."""
        return self._stride

    @property
    def within_row_groups(self) -> bool:
        """Whether a sequence lies in one row group."""
        return self._within_row_groups

    def resolved(self, names: Sequence[str], stored_names: Sequence[str] | None = None) -> NGram:
        """The same with the names of fields for regular expressions, those of one offset in the order of ``names``.

        Args:
            names: of the fields that there are.
            stored_names: of those that timestamp and group are among; None for the same.

        Raises:
            ConfigError: something matches no field, or the timestamp or group more than one.
        """
        fields = {
            offset: [name for name in names if name in {found for choice in choices for found in _matches(choice, names)}]
            for offset, choices in self._fields.items()
        }
        arguments = {**self.arguments(), "fields": fields}
        for argument in ("timestamp_field", "group_field"):
            if arguments[argument] is not None:
                found = _matches(arguments[argument], names if stored_names is None else stored_names)
                if len(found) > 1:
                    raise ConfigError(f"{argument} is one field, {arguments[argument]!r} matches {', '.join(found)}")
                (arguments[argument],) = found
        return NGram(**arguments)

    def get_field_names_at_timestep(self, timestep: int) -> list[Any]:
        """What is wanted at an offset; of one that is not named nothing is."""
        return list(self._fields.get(timestep, []))

    def get_field_names_at_all_timesteps(self) -> list[Any]:
        """What is wanted at any offset."""
        return list(dict.fromkeys(choice for choices in self._fields.values() for choice in choices))

    def arguments(self) -> dict[str, Any]:
        """What it was made with."""
        return {
            "fields": self.fields,
            "delta_threshold": self._delta_threshold,
            "timestamp_field": self._timestamp_field,
            "timestamp_overlap": self._overlap,
            "group_field": self._group_field,
            "stride": self._stride,
            "within_row_groups": self._within_row_groups,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NGram) and self.arguments() == other.arguments()

    def __hash__(self) -> int:
        return hash((tuple(self._fields), self._timestamp_field, self._overlap, self._stride))

    def __repr__(self) -> str:
        return f"NGram({', '.join(f'{name}={value!r}' for name, value in self.arguments().items())})"


@layer("ngrams")
class NGramIterator(RowLayer):
    """Sequences of consecutive rows: sample ``i`` is ``{offset: {field: value}}``.

    ::

        frames = ParquetDataset("drives")
        pairs = NGramIterator(frames, NGram({0: ["speed", "image"], 1: ["speed"]}, 0.1, "time", group_field="vehicle"))
        pairs[0][1]["speed"]
        pairs.read_batch([0, 5, 2])[0]["image"]        # {offset: {field: array of shape (3, ...)}}
        Loader(pairs, 64, shuffle=BlockShuffled(window=8))

    When it is made, the timestamps (and the groups) are read, nothing else; the timestamps as they are stored, if a
    :class:`~data_stack.formats.parquet.transformed.TransformedDatasetIterator` lies below. Then 4 bytes are kept for each
    sequence, and as many for each row if there are groups; a pickle carries them. A batch is one request for each set of fields
    that is wanted at the same offsets. Of sequences that overlap much, cells that take long to decode, such as images, are
    decoded once. At the end of a row group no more is read of the next one than the rows in which sequences end, if they are few.

    A column is named by ``(offset, field)``, shape ``(n, ...)``, or by an offset: then it has a dict for each sequence, shape
    ``(n,)``, dtype object.

    Samples are in the order of their first rows. Sequences know no borders of row groups and files, unless
    :attr:`NGram.within_row_groups` says so. Timestamps must not decrease from row to row; where they do between two row groups,
    no sequence spans these: files that are each sorted need not be sorted among themselves.

    ``iterator.windows(…, order_by=…, max_gap=…, offsets=…)`` gives the same sequences of any samples. It sorts them where this is
    an error, and its batches are stacked windows, or tuples for each offset.

    Args:
        dataset_iterator: samples that are dicts, as a rule a :class:`~data_stack.formats.parquet.dataset.ParquetDataset`; it
            stays the caller's.
        ngram: which sequences.

    Raises:
        ConfigError: there is no such field; a timestamp is missing, or smaller than that of the row before (the message names
            the row); or ``within_row_groups`` is wanted of samples without row groups.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, ngram: NGram) -> None:
        if not isinstance(ngram, NGram):
            raise ConfigError(f"sequences are described by an NGram, not by {ngram!r:.80}")
        super().__init__(dataset_iterator)
        stored = self._stored()
        self._ngram = ngram.resolved(_field_names(self._source), _field_names(stored))
        self._lowest = min(self._ngram.fields)
        self._order: IndexArrayOfInts | None = None
        self._starts: IndexArrayOfInts = np.empty(0, dtype=np.int32)
        self._block_lengths: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._find(stored)

    def _stored(self) -> DatasetIteratorIF:
        """The rows as they are stored, below all transforms."""
        stored = self._source
        while isinstance(stored, TransformedDatasetIterator):
            (stored,) = stored.underlying_iterators
        return stored

    # ------------------------------------------------------------------ where sequences are

    def _find(self, stored: DatasetIteratorIF) -> None:
        ngram, n_rows = self._ngram, len(stored)
        blocks = access_to(stored).blocks()
        if blocks is None and ngram.within_row_groups:
            raise ConfigError(
                f"within_row_groups=True needs samples that have row groups (block_lengths), as those of a ParquetDataset; "
                f"these have none: {stored!r:.80}"
            )
        if n_rows < ngram.length:
            return
        block_of = (
            np.zeros(n_rows, dtype=np.int32) if blocks is None else np.repeat(np.arange(len(blocks), dtype=np.int32), blocks)
        )
        key = ngram.timestamp_field
        keys = [key] if ngram.group_field is None else [key, ngram.group_field]
        columns = access_to(stored).columns(keys)
        missing = np.array([value is None for value in columns[0]] if columns[0].dtype == object else False)
        if not missing.any():
            missing = missing_values(columns[0], key)
        if bool(missing.any()):
            row = int(np.flatnonzero(missing)[0])
            raise ConfigError(
                f"the timestamp {key!r} of row {row} is {columns[0][row]!s:.40}: every row of a sequence needs one; leave such "
                f"rows out by a filter, as col({key!r}).is_not_null()"
            )
        order: npt.NDArray[np.intp] = np.arange(n_rows, dtype=np.intp)
        starts_run = np.zeros(n_rows, dtype=bool)
        starts_run[0] = True
        if ngram.group_field is not None:
            groups = group_numbers(columns[1])
            order = np.argsort(groups, kind="stable")
            starts_run[1:] = np.diff(groups[order]) != 0
        times, its_block = columns[0][order], block_of[order]
        same_block = its_block[1:] == its_block[:-1]
        if ngram.length > 1 or not ngram.timestamp_overlap:
            falls = _falls(times, key) & ~starts_run[1:]
            if bool((falls & same_block).any()):
                place = int(np.flatnonzero(falls & same_block)[0])
                raise ConfigError(
                    f"the timestamp {key!r} of row {order[place + 1]} is {times[place + 1]!s:.60}, that of row {order[place]} "
                    f"before it is {times[place]!s:.60}: rows of n-grams are sorted by their timestamps. "
                    f"windows(…, order_by={key!r}) sorts; sequences that are mixed are told apart by group_field="
                )
            starts_run[1:] |= falls
        if ngram.within_row_groups:
            starts_run[1:] |= ~same_block
        if ngram.length > 1:
            starts_run[1:] |= exceeds_gap(times, ngram.delta_threshold, ~starts_run[1:], key, order)
        starts = self._starts_in(starts_run, times)
        if ngram.group_field is not None:
            starts = starts[np.argsort(order[starts], kind="stable")]
            self._order = narrowed(order, n_rows)
        if blocks is not None:
            self._block_lengths = np.bincount(its_block[starts], minlength=len(blocks)).astype(np.int64)
        elif len(starts):
            self._block_lengths = np.array([len(starts)], dtype=np.int64)
        self._block_lengths = self._block_lengths[self._block_lengths > 0]
        self._starts = narrowed(starts, n_rows)

    def _starts_in(self, starts_run: npt.NDArray[np.bool_], times: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        ngram, n_rows = self._ngram, len(times)
        runs = np.flatnonzero(starts_run)
        step = ngram.stride if ngram.timestamp_overlap else max(ngram.stride, ngram.length)
        if not ngram.timestamp_overlap:
            follows_equal = ~starts_run
            follows_equal[1:] &= equals_last(times)
            if bool(follows_equal.any()):
                return starts_after_larger(np.append(runs, n_rows), ngram.length, step, np.flatnonzero(~follows_equal))
        return starts_in_runs(runs, np.diff(runs, append=n_rows), ngram.length, step)

    # ------------------------------------------------------------------ what it is

    @property
    def ngram(self) -> NGram:
        """Which sequences, with the names of fields."""
        return self._ngram

    @property
    def schema(self) -> Any:
        """That of the rows."""
        return getattr(self._source, "schema", None)

    @property
    def block_lengths(self) -> npt.NDArray[np.int64]:
        """How many sequences begin in each row group, shape ``(n_row_groups,)``, those without any left out."""
        return self._block_lengths

    def make_access(self) -> NGramAccess:
        wanted = self._ngram.get_field_names_at_all_timesteps()
        names = wanted if self._stored() is self._source else None  # a transform may need others
        return NGramAccess(self._source, self._ngram.fields, self._starts, self._order, self._block_lengths, names)

    # ------------------------------------------------------------------ as a layer

    def _arguments(self) -> dict[str, Any]:
        return self._ngram.arguments()

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        (rows,) = underlying
        return cls(rows, NGram(**arguments))


class NGramAccess(RowAccess):
    """Access to sequences of rows.

    Args:
        rows: the rows.
        fields: for each offset the names of its fields.
        starts: where in the order sequences start.
        order: the rows in the order in which they make sequences; None for their own.
        block_lengths: how many sequences begin in each row group.
        names: of the fields to read ahead; None for those that were read last.
    """

    def __init__(
        self,
        rows: DatasetIteratorIF,
        fields: Mapping[int, Sequence[str]],
        starts: IndexArrayOfInts,
        order: IndexArrayOfInts | None,
        block_lengths: npt.NDArray[np.int64],
        names: Sequence[str] | None,
    ) -> None:
        super().__init__(rows)
        self._fields, self._starts, self._order, self._block_lengths = fields, starts, order, block_lengths
        self._names, self._lowest = names, min(fields)

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return len(self._starts)

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.fixed_columns

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.releases_gil

    def blocks(self) -> npt.NDArray[np.int64]:
        return self._block_lengths

    def prefetch(self, positions: IndexArrayOfInts, keys: Sequence[Any] | None = None) -> None:
        if any(self._fields.values()):
            self.below.prefetch(self.rows_in(self._starts.take(positions).astype(np.intp)), self._names)

    def locate(self, position: int) -> str | None:
        return self.below.locate(int(self.rows_in(self._starts[position : position + 1].astype(np.intp))[0]))

    def some_samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        samples: list[dict[int, Any]] = [{} for _ in range(len(positions))]
        for offset, columns in self.batch(positions).items():
            if not columns:
                for sample in samples:
                    sample[offset] = {}
            for sample, row in zip(samples, zip(*columns.values(), strict=True), strict=False):
                sample[offset] = dict(zip(columns, row, strict=True))
        return samples

    def batch(self, positions: IndexArrayOfInts) -> Any:
        return self._read(self._fields, positions)

    def columns(self, keys: Sequence[Any], positions: IndexArrayOfInts | None = None) -> list[npt.NDArray[Any]]:
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        fields, found = self._fields, []
        for key in keys:
            offset, name = key if isinstance(key, tuple) and len(key) == 2 else (key, None)
            if offset not in fields or not (name is None or name in fields[offset]):
                wanted = ", ".join(repr((each, name)) for each, names in fields.items() for name in names)
                raise ConfigError(f"n-grams have no column {key!r:.60}; they have {wanted}, and offsets as a whole")
            if name is not None:
                found.append(self._read({offset: [name]}, positions)[offset][name])
                continue
            columns = self._read({offset: fields[offset]}, positions)[offset]
            whole = np.empty(len(positions), dtype=object)
            whole[:] = [{} for _ in range(len(positions))]
            for place, row in enumerate(zip(*columns.values(), strict=True)):
                whole[place] = dict(zip(columns, row, strict=True))
            found.append(whole)
        return found

    def _read(self, fields: Mapping[int, Sequence[str]], positions: IndexArrayOfInts) -> Columns:
        """Columns of each offset; those that are wanted at the same offsets are read together."""
        offsets_of: dict[str, list[int]] = {}
        for offset, names in fields.items():
            for name in names:
                offsets_of.setdefault(name, []).append(offset)
        names_of: dict[tuple[int, ...], list[str]] = {}
        for name, offsets in offsets_of.items():
            names_of.setdefault(tuple(offsets), []).append(name)
        starts, n_samples = self._starts.take(positions).astype(np.intp), len(positions)
        gathers = self.below.fixed_columns
        found: dict[tuple[int, str], npt.NDArray[Any]] = {}
        for at, names in names_of.items():
            # all rows of the first offset, then all of the next
            slots = ((np.array(at, dtype=np.intp) - self._lowest)[:, np.newaxis] + starts).reshape(-1)
            # rows are copied out of arrays faster than out of a column that was copied before, others are not decoded twice
            wanted, inverse = (slots, None) if gathers or not n_samples else distinct(slots)
            for name, column in zip(names, self.below.columns(names, self.rows_in(wanted)), strict=True):
                for number, offset in enumerate(at):
                    # each its own part of memory: whoever gets the batch may write into it
                    its_own = slice(number * n_samples, (number + 1) * n_samples)
                    found[offset, name] = column[its_own] if inverse is None else column[inverse[its_own]]
        return {offset: {name: found[offset, name] for name in names} for offset, names in fields.items()}

    def rows_in(self, slots: IndexArrayOfInts) -> IndexArrayOfInts:
        """The rows at places of the order in which they make sequences."""
        return slots if self._order is None else self._order.take(slots).astype(np.intp)


def _falls(times: npt.NDArray[Any], key: str) -> npt.NDArray[np.bool_]:
    """Between which of the timestamps the second is smaller, shape ``(n - 1,)``."""
    if times.ndim > 1 or times.dtype.kind in "SUV":
        raise ConfigError(f"timestamps are numbers or times; {key!r} is of dtype {times.dtype} and shape {times.shape[1:]}")
    try:
        return np.asarray(times[1:] < times[:-1], dtype=bool)
    except TypeError as error:
        raise ConfigError(f"timestamps are numbers or times; values of {key!r} cannot be compared: {error}") from error


def _choice(choice: Any, what: str) -> Any:
    """A name or pattern; of a field its name."""
    name = choice if isinstance(choice, (str, re.Pattern)) else getattr(choice, "name", None)
    if not isinstance(name, (str, re.Pattern)):
        raise ConfigError(f"{what} is a name, a regular expression or a field, not {choice!r:.80}")
    return name


def _matches(choice: Any, names: Sequence[str]) -> list[str]:
    if choice in names:
        return [choice]
    try:
        matches = [name for name in names if re.fullmatch(choice, name)]
    except re.error as error:
        raise ConfigError(f"{choice!r:.80} is neither the name of a field nor a regular expression: {error}") from error
    if not matches:
        raise _no_field(choice if isinstance(choice, str) else choice.pattern, names)
    return matches


def _no_field(name: str, names: Sequence[str]) -> ConfigError:
    return ConfigError(f"there is no field {name!r:.60}{did_you_mean(name[:60], list(names))}; there are: {', '.join(names)}")


def _field_names(iterator: DatasetIteratorIF) -> list[str]:
    """The fields of the samples, in their order."""
    schema = getattr(iterator, "schema", None)
    if isinstance(getattr(schema, "fields", None), Mapping):
        return list(schema.fields)  # type: ignore[union-attr]  # as was just seen
    if len(iterator) == 0:
        raise ConfigError(
            f"n-grams need to know the fields of their rows, but there are no rows, and no schema: {iterator!r:.80}"
        )
    sample = iterator[0]
    if not isinstance(sample, Mapping):
        raise ConfigError(
            f"n-grams are of rows that are dicts; these are {type(sample).__name__}: name their columns by as_dict(…)"
        )
    return list(sample)
