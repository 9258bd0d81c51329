"""Several iterators, one after the other or in turn."""

from __future__ import annotations

import functools
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.class_lists import check_class_lists
from data_stack.dataset.iterator.access import ColumnKey, SampleAccess, access_to, stack_columns
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.sequence import SequenceAccess
from data_stack.dataset.meta import DatasetMeta, MetaFactory
from data_stack.dataset.positions import IndexArrayOfInts, take
from data_stack.exception import ConfigError
from data_stack.values.stacking import (
    Batch,
    Column,
    SampleForm,
    assemble,
    join_batches,
    join_columns,
    list_columns,
    map_columns,
    stack_samples,
    value_of,
)

_Positions = npt.NDArray[np.intp]

_PartEntry = tuple[Callable[[int], Sample], int, int]
"""What reads one sample of a part, and the positions at which the part starts and ends."""

_Request = tuple[SampleAccess, IndexArrayOfInts, _Positions]
"""A source, positions in it, and the places of their samples in the batch."""

#: Entries in the table of parts, for each part: with 16, a search follows for one position in 32.
_TABLE_ENTRIES_A_PART = 16

#: A request to a part takes as long as this number of samples that are read one by one.
_FEW_SAMPLES = 6

# A recipe can combine each node with itself: thirty nodes would make a thousand million parts.
_MAX_PARTS = 1 << 20


@layer("combined")
class CombinedDatasetIterator(AccessedDatasetIterator):
    """The samples of the first iterator, then those of the second, and so on.

    Lengths are taken once, here: iterators that grow afterwards are not seen to grow. A combination of combinations
    reads from its innermost parts directly; ``underlying_iterators`` still names the iterators given.

    Args:
        iterators: any number of iterators, also none, also the same one repeatedly; they stay the caller's to close.

    Raises:
        ConfigError: they are not iterators, have different ``class_names``, or have more than ``sys.maxsize`` samples or 2**20
            parts in all.
    """

    def __init__(self, iterators: Sequence[DatasetIteratorIF]) -> None:
        if isinstance(iterators, DatasetIteratorIF):
            raise ConfigError(
                f"iterators are combined from a list of them, not from one: write [{iterators!r:.80}, …]"
            )
        self._stacked_on = list(iterators)
        check_class_lists(self._stacked_on, "combine")
        self._lengths = [len(as_iterator(iterator)) for iterator in self._stacked_on]
        if sum(self._lengths) > sys.maxsize:
            raise ConfigError(
                f"{len(self._lengths)} iterators have {sum(self._lengths)} samples, more than Python can count"
            )

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        return cls(underlying, **arguments)

    def make_access(self) -> SampleAccess:
        return CombinedAccess(
            [access_to(as_iterator(iterator)) for iterator in self._stacked_on], self._lengths
        )

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        return share_meta(meta, self._stacked_on)


class CombinedAccess(SampleAccess):
    """Access to the samples of several, one after the other; of combinations, to those of their parts.

    Args:
        given: what is combined.
        lengths: how many samples of each count: it may have grown since they were counted.
    """

    def __init__(self, given: Sequence[SampleAccess], lengths: Sequence[int]) -> None:
        self.n_samples = sum(lengths)
        self.releases_gil = bool(given) and all(part.releases_gil for part in given)
        self.prefers_blocks = any(part.prefers_blocks for part in given)
        self.parts: list[tuple[SampleAccess, int]] = []
        for part, length in zip(given, lengths, strict=True):
            source, positions = part.unwrap()
            is_combined = (
                positions is None
                and isinstance(source, CombinedAccess)
                and source.n_samples == length
            )
            self.parts += source.parts if is_combined else [(part, length)]  # type: ignore[attr-defined]  # it is one
        if len(self.parts) > _MAX_PARTS:
            raise ConfigError(
                f"iterators are combined from {_MAX_PARTS:,} parts at most, these are {len(self.parts):,}"
            )
        self._starts = list(accumulate([length for _, length in self.parts], initial=0))
        self._part_table: list[_PartEntry] = []
        self._part_entries: list[_PartEntry] = []
        self._table_shift = 0
        self._sources: _Sources | None = None

    n_at_once = property(
        lambda self: min((part.n_at_once for part, _ in self.parts), default=sys.maxsize)
    )

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        if not self._part_table:
            self._fill_part_table()
        read, start, end = self._part_table[position >> self._table_shift]
        if position >= end:
            # empty parts share their start with the next part; bisect_right skips them
            read, start, _ = self._part_entries[bisect_right(self._starts, position) - 1]
        return read(position - start)

    def _fill_part_table(self) -> None:
        """Make the table that finds the part of most positions without a search.

        Entry ``i`` is the part of position ``i << shift``, where the following ``2**shift`` positions mostly lie, too. A search
        among 1,000 parts would take as long as reading the sample.
        """
        self._part_entries = [
            (part.make_sample_reader(), start, start + length)
            for (part, length), start in zip(self.parts, self._starts, strict=False)
        ]
        n_entries = min(_TABLE_ENTRIES_A_PART * len(self.parts), _MAX_PARTS)
        self._table_shift = max(0, (self.n_samples // n_entries).bit_length() - 1)
        n_positions_an_entry = 1 << self._table_shift
        first_positions = np.arange(0, self.n_samples, n_positions_an_entry, dtype=np.intp)
        part_of = np.searchsorted(self._starts, first_positions, side="right") - 1
        # Last, for threads: one that sees the table sees the rest.
        self._part_table = [self._part_entries[part] for part in part_of.tolist()]

    @property
    def stacks_samples(self) -> bool:  # type: ignore[override]  # read-only here
        return self._find_sources().stack_samples

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        if len(positions) == 0:
            return []
        part_of, places = self._find_places(positions)
        if self._are_scattered(part_of):
            return super().samples(positions)
        samples: list[Sample] = [None] * len(positions)
        for source, wanted, slots in self._requests_at(part_of, places):
            for slot, sample in zip(slots.tolist(), source.samples(wanted), strict=True):
                samples[slot] = sample
        return samples

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            return self.empty_batch()
        part_of, places = self._find_places(positions)
        if self._are_scattered(part_of):
            arrays = self._find_sources().arrays
            if arrays:
                return tuple(_gather(arrays, part_of, places))
            return stack_samples(super().samples(positions))
        requests = self._requests_at(part_of, places)
        slots = [each for _, _, each in requests]
        return join_batches(
            [source.batch(wanted) for source, wanted, _ in requests],
            functools.partial(assemble, slots=slots),
        )

    def empty_batch(self) -> Batch:
        if self.n_samples:
            return super().empty_batch()
        empty = (part.batch(np.empty(0, dtype=np.intp)) for part, _ in self.parts)
        return next((batch for batch in empty if len(batch)), ())

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        if not self.n_samples:
            batch: Any = self.empty_batch()
            return [value_of(batch, key) if len(batch) else np.empty(0) for key in keys]
        if positions is None:
            pieces = [
                [column[:length] for column in part.columns(keys)]
                for part, length in self.parts
                if length
            ]
            return [join_columns(list(each)) for each in zip(*pieces, strict=True)]
        # of no positions, those of sample 0 have the dtype and shape
        wanted = positions if len(positions) else np.zeros(1, dtype=np.intp)
        part_of, places = self._find_places(wanted)
        if len(positions) and self._are_scattered(part_of):
            arrays = self._find_sources().arrays
            if arrays:
                form = SampleForm.tuples(len(arrays))
                return _gather([arrays[form.find(key)] for key in keys], part_of, places)
            return stack_columns(super().samples(positions), keys, self)
        requests = self._requests_at(part_of, places)
        pieces = [source.columns(keys, wanted) for source, wanted, _ in requests]
        slots = [each for _, _, each in requests]
        return [assemble(each, slots)[: len(positions)] for each in zip(*pieces, strict=True)]

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        requests = self._requests(positions)
        number_of = np.empty(len(positions), dtype=np.intp)
        for number, (_, _, slots) in enumerate(requests):
            number_of[slots] = number
        values = [
            each
            for part, at, slots in requests
            if (each := part.iterate_column(key, at[np.argsort(slots)])) is not None
        ]
        return (
            (next(values[number]) for number in number_of.tolist())
            if len(values) == len(requests)
            else None
        )

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        """Those within a part are runs of it. None of no runs: to know more, all parts would be opened."""
        bounds = np.asarray(self._starts, dtype=np.intp)
        part_of = bounds.searchsorted(starts, side="right") - 1
        crosses = starts + length > bounds.take(part_of + 1)
        inside = np.flatnonzero(~crosses)
        by_part = inside[np.argsort(part_of[inside], kind="stable")]
        pieces: list[Batch] = []
        slots: list[_Positions] = []
        for part, first, end in _runs(part_of[by_part]) if len(by_part) else ():
            slots.append(by_part[first:end])
            found = self.parts[part][0].runs(starts[slots[-1]] - bounds[part], length, keys)
            if found is None:
                return None
            pieces.append(found)
        if pieces and bool(crosses.any()):
            slots.append(np.flatnonzero(crosses))
            positions = (starts[crosses][:, np.newaxis] + np.arange(length, dtype=np.intp)).reshape(
                -1
            )
            read = self.batch(positions) if keys is None else tuple(self.columns(keys, positions))
            pieces.append(
                map_columns(lambda column: column.reshape(-1, length, *column.shape[1:]), read)
            )
        if (
            len(
                {
                    tuple((column.dtype, column.shape[1:]) for column in list_columns(piece))
                    for piece in pieces
                }
            )
            != 1
        ):
            return None
        return join_batches(pieces, functools.partial(assemble, slots=slots))

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        first = 0
        for part, length in self.parts:
            if first < stop and first + length > start:
                yield from part.iterate(max(0, start - first), min(length, stop - first))
            first += length

    # ------------------------------------------------------------------ what is known of them

    def blocks(self) -> npt.NDArray[np.int64] | None:
        found = [part.blocks() for part, _ in self.parts]
        known = [blocks for blocks in found if blocks is not None]
        return np.concatenate(known) if known and len(known) == len(found) else None

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        for source, wanted, _ in self._requests(positions):
            source.prefetch(wanted, keys)

    def locate(self, position: int) -> str | None:
        part = bisect_right(self._starts, position) - 1
        return self.parts[part][0].locate(position - self._starts[part])

    # ------------------------------------------------------------------ requests

    def _requests(self, positions: IndexArrayOfInts) -> list[_Request]:
        """What to read from where, each source once; nothing for no positions."""
        if len(positions) == 0:
            return []
        part_of, places = self._find_places(positions)
        return self._requests_at(part_of, places)

    def _requests_at(self, part_of: _Positions, places: _Positions) -> list[_Request]:
        """What to read from where, each source once.

        Args:
            part_of: the part of each sample, at least one.
            places: the position of each sample in its part.
        """
        unwrapped = self._find_sources().unwrapped
        by_part = np.argsort(part_of, kind="stable")
        requests: dict[SampleAccess, tuple[list[IndexArrayOfInts], list[_Positions]]] = {}
        for part, first, end in _runs(part_of[by_part]):
            source, positions_of_part = unwrapped[part]
            slots = by_part[first:end]
            wanted: IndexArrayOfInts = places[slots]
            if positions_of_part is not None:
                wanted = take(positions_of_part, wanted)
            # several views of one source, such as folds, are read together
            all_wanted, all_slots = requests.setdefault(source, ([], []))
            all_wanted.append(wanted)
            all_slots.append(slots)
        return [
            (source, _joined(wanted), _joined(slots))
            for source, (wanted, slots) in requests.items()
        ]

    def _find_places(self, positions: IndexArrayOfInts) -> tuple[_Positions, _Positions]:
        """The part of each position, and the position in it."""
        starts = self._find_sources().starts
        part_of = starts.searchsorted(positions, side="right") - 1
        return part_of, positions - starts.take(part_of)

    def _are_scattered(self, part_of: _Positions) -> bool:
        """Whether reading samples one by one takes less time than a request to each source.

        At 1,000 parts, 256 random samples lie in 226 of them.
        """
        sources = self._find_sources()
        if not sources.stack_samples or len(part_of) >= _FEW_SAMPLES * sources.n_sources:
            return False
        n_samples_of = np.bincount(sources.number_of.take(part_of))
        n_wanted = np.count_nonzero(n_samples_of)
        return len(part_of) < _FEW_SAMPLES * int(n_wanted)

    def _find_sources(self) -> _Sources:
        """What is behind the parts; found at the first request, as a part of others needs none."""
        if self._sources is None:
            self._sources = _Sources([part for part, _ in self.parts], self._starts)
        return self._sources


class _Sources:
    """What is behind the parts of a combination.

    Args:
        parts: the parts.
        starts: where each begins, and where all end.

    Attributes:
        starts: the same, as an array.
        unwrapped: the source of each part, and the positions in it.
        number_of: the number of the source of each part; views of one source share it.
        n_sources: how many sources there are.
        stack_samples: whether batches of all are their samples stacked.
        arrays: for each column the arrays of the parts, if all are arrays of one dtype, which is not object, and one shape;
            [] otherwise.
    """

    def __init__(self, parts: Sequence[SampleAccess], starts: Sequence[int]) -> None:
        self.starts = np.asarray(starts, dtype=np.intp)
        self.unwrapped = [part.unwrap() for part in parts]
        numbers: dict[SampleAccess, int] = {}
        self.number_of = np.array(
            [numbers.setdefault(source, len(numbers)) for source, _ in self.unwrapped],
            dtype=np.intp,
        )
        self.n_sources = len(numbers)
        self.arrays = _arrays_of(parts)
        self.stack_samples = bool(self.arrays) or (
            bool(parts) and all(source.stacks_samples for source in numbers)
        )


def _arrays_of(parts: Sequence[SampleAccess]) -> list[list[Column]]:
    """See :attr:`_Sources.arrays`."""
    sources = [part for part in parts if isinstance(part, SequenceAccess) and part.fixed_columns]
    if not sources or len(sources) < len(parts):
        return []
    if len({len(source.arrays) for source in sources}) > 1:
        return []
    columns = [list(column) for column in zip(*[source.arrays for source in sources], strict=True)]
    for column in columns:
        kinds = {(array.dtype, array.shape[1:]) for array in column}
        if len(kinds) > 1 or column[0].dtype.hasobject:
            return []
    return columns


def _gather(
    columns: Sequence[list[Column]], part_of: _Positions, places: _Positions
) -> list[Column]:
    """Columns of samples that are scattered over arrays: for each column, the arrays of the parts."""
    rows = list(zip(part_of.tolist(), places.tolist(), strict=True))
    return [
        np.array([arrays[part][place] for part, place in rows], dtype=arrays[0].dtype)
        for arrays in columns
    ]


def _joined(arrays: list[Any]) -> Any:
    """Arrays one after the other; concatenating one takes a microsecond for nothing."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def share_meta(meta: DatasetMeta, iterators: Sequence[Any]) -> DatasetMeta:
    """``meta``, of the first of the iterators, without what those of the others contradict."""
    # copies, which have what a client's own meta lacks
    others = [
        MetaFactory.copy_dataset_meta(each.dataset_meta)
        for each in iterators
        if hasattr(each, "dataset_meta")
    ]
    names = ("target_kind", "class_names", "feature_names", "column_names", "column_kinds")
    contradicted = [
        name
        for name in names
        if any(getattr(other, name) != getattr(meta, name) for other in others)
    ]
    return replace(meta, **dict.fromkeys(contradicted))  # type: ignore[arg-type]  # each of them may be None


def _runs(values: _Positions) -> Iterator[tuple[int, int, int]]:
    """The runs of equal values in a sorted array that is not empty: (value, first, end)."""
    firsts = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()]
    return zip(values.take(firsts).tolist(), firsts, [*firsts[1:], len(values)], strict=True)
