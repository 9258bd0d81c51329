"""Access to the samples of several accesses, one access after the other."""

from __future__ import annotations

import functools
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import ColumnKey, SampleAccess, stack_columns
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.layers.column_types import ColumnTypes, array_types
from data_stack.dataset.iterator.layers.combined_sources import CombinedSources, gather_rows
from data_stack.dataset.iterator.layers.selection import (
    Concatenation,
    Selection,
    group_by_part,
)
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.positions import IndexArrayOfInts, blocks_at, take
from data_stack.exception import ConfigError
from data_stack.values.stacking import (
    Batch,
    ColumnArray,
    SampleForm,
    assemble,
    join_batches,
    join_columns,
    map_columns,
    stack_samples,
    value_of,
)

_Slots = npt.NDArray[np.intp]
"""The rows of samples in a batch, shape ``(n,)``."""

#: One request to a part takes as long as it takes to read this number of samples one by one.
_FEW_SAMPLES = 6

#: Entries in the table of parts, for each part: with 16, a search follows for one position in 32.
_TABLE_ENTRIES_A_PART = 16

#: More parts are not asked for their columns: a sample of each would be read, from a file of each.
_MAX_PARTS_TO_COMPARE = 1 << 10

#: The table of parts has at most this number of entries, which take 8 MiB.
_MAX_TABLE_ENTRIES = 1 << 20

#: A recipe can combine each node with itself: thirty nodes would make a thousand million parts.
_MAX_PARTS = 1 << 20


class Request(NamedTuple):
    """What to read from one source for a batch.

    Attributes:
        source: the source.
        positions: the positions of the samples in the source.
        slots: the rows of these samples in the batch.
    """

    source: SampleAccess
    positions: IndexArrayOfInts
    slots: _Slots


class CombinedAccess(SampleAccess):
    """Access to the samples of several accesses, one access after the other.

    Several samples are read in one of two ways. As a rule there is one request to each source, and
    what the requests return is put into the order that was asked for. Where the samples are
    scattered over many small sources, they are read one by one, see :meth:`_are_scattered`.

    Args:
        given: the accesses. In place of a combination, its parts are read.
        lengths: how many samples of each are read. An iterator may have more, if it has grown since
            it was combined.
        names: the name of each; None for their numbers.

    Attributes:
        parts: the accesses that are read.
    """

    #: The accesses that were given, of which a combination may have several parts.
    _given: list[SampleAccess]

    #: How many samples of each of them are read.
    _lengths_of_given: Sequence[int]

    #: The names of those that were given; None for their numbers.
    _names: Sequence[str] | None

    #: How many samples of each part are read.
    _lengths: list[int]

    #: Finds the part of a position, and the position in that part.
    _concatenation: Concatenation

    def __init__(
        self,
        given: Sequence[SampleAccess],
        lengths: Sequence[int],
        names: Sequence[str] | None = None,
    ) -> None:
        self.parts: list[SampleAccess] = []
        self._lengths = []
        for part, length in zip(given, lengths, strict=True):
            source, positions = part.unwrap()
            # A view of a combination is a part by itself, and so is a combination that has grown.
            is_whole = positions is None and source.n_samples == length
            if is_whole and isinstance(source, CombinedAccess):
                self.parts += source.parts
                self._lengths += source._lengths
            else:
                self.parts.append(part)
                self._lengths.append(length)
        if len(self.parts) > _MAX_PARTS:
            raise ConfigError(
                f"iterators are combined from {_MAX_PARTS:,} parts at most, "
                f"these are {len(self.parts):,}"
            )
        self._concatenation = Concatenation(self._lengths)
        self.n_samples = self._concatenation.n_samples
        self._given = list(given)
        self._lengths_of_given = lengths
        self._names = names

    # A remote part may be asked by a request, so it is asked on demand.

    @cached_property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether reading any of the parts mostly runs without the GIL."""
        return bool(self._given) and all(part.releases_gil for part in self._given)

    @cached_property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether a random order takes many more requests for some part."""
        return any(part.prefers_blocks for part in self._given)

    @cached_property
    def _sources(self) -> CombinedSources:
        """The sources of the parts, found when several samples are read for the first time."""
        return CombinedSources.of(self.parts)

    def select(self, positions: IndexArrayOfInts) -> Selection:
        """Return in which parts the samples at ``positions`` are, and where in them."""
        return self._concatenation.select(positions)

    # ------------------------------------------------------------------ one sample

    def sample(self, position: int) -> Sample:
        return self._read_sample(position)

    def make_sample_reader(self) -> Callable[[int], Any]:
        return self._read_sample

    @cached_property
    def _read_sample(self) -> Callable[[int], Any]:
        """A function that reads one sample, and finds the part that has it by a table.

        A search among 1,000 parts would take as long as reading the sample. The table has the part
        of every 2**shift-th position. The positions up to the next entry mostly lie in the same
        part; only where another part has begun in between, the part is searched for.
        """
        if self.n_samples == 0:
            return _refuse_position
        starts = self._concatenation.starts
        readers = []
        # There is one start more than parts: the end of the last part.
        for part, length, start in zip(self.parts, self._lengths, starts, strict=False):
            readers.append((part.make_sample_reader(), start, start + length))
        n_entries = min(_TABLE_ENTRIES_A_PART * len(self.parts), _MAX_TABLE_ENTRIES)
        shift = max(0, (self.n_samples // n_entries).bit_length() - 1)
        first_positions = np.arange(0, self.n_samples, 1 << shift, dtype=np.intp)
        first_parts = self._concatenation.select(first_positions).parts
        table = [readers[part] for part in first_parts.tolist()]

        def read_sample(position: int) -> Any:
            read, start, end = table[position >> shift]
            if position >= end:
                # Another part has begun since the entry of the table.
                part = bisect_right(starts, position) - 1
                read, start, _ = readers[part]
            return read(position - start)

        return read_sample

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        starts = self._concatenation.starts
        # There is one start more than parts: the end of the last part.
        for part, length, first in zip(self.parts, self._lengths, starts, strict=False):
            if first < stop and first + length > start:
                yield from part.iterate(max(0, start - first), min(length, stop - first))

    # ------------------------------------------------------------------ samples

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        if len(positions) == 0:
            return []
        selection = self._concatenation.select(positions)
        if self._are_scattered(selection):
            # The base class reads them one by one.
            return super().samples(positions)
        samples: list[Sample] = [None] * len(positions)
        for request in self._group_by_source(selection):
            read = request.source.samples(request.positions)
            for slot, sample in zip(request.slots.tolist(), read, strict=True):
                samples[slot] = sample
        return samples

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            return self.empty_batch()
        selection = self._concatenation.select(positions)
        if self._are_scattered(selection):
            if self._sources.arrays:
                return tuple(gather_rows(self._sources.arrays, selection))
            return stack_samples(super().samples(positions))
        requests = self._group_by_source(selection)
        batches = [request.source.batch(request.positions) for request in requests]
        return _join_in_slots(batches, [request.slots for request in requests])

    def empty_batch(self) -> Batch:
        if self.n_samples:
            return super().empty_batch()
        no_positions = np.empty(0, dtype=np.intp)
        for part in self.parts:
            batch = part.batch(no_positions)
            if len(batch):
                return batch
        return ()

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if self.n_samples == 0:
            return self._empty_columns(keys)
        if positions is None:
            return self._whole_columns(keys)
        if len(positions) == 0:
            # The columns of one sample have the dtype and shape.
            first = self.columns(keys, np.zeros(1, dtype=np.intp))
            return [column[:0] for column in first]
        selection = self._concatenation.select(positions)
        if self._are_scattered(selection):
            arrays = self._sources.arrays
            if arrays:
                form = SampleForm.tuples(len(arrays))
                return gather_rows([arrays[form.find(key)] for key in keys], selection)
            return stack_columns(super().samples(positions), keys, self)
        requests = self._group_by_source(selection)
        read = [request.source.columns(keys, request.positions) for request in requests]
        slots = [request.slots for request in requests]
        return [assemble(pieces, slots) for pieces in zip(*read, strict=True)]

    def _empty_columns(self, keys: Sequence[ColumnKey]) -> list[ColumnArray]:
        batch: Any = self.empty_batch()
        if len(batch) == 0:
            # Nothing tells which columns there are.
            return [np.empty(0) for _ in keys]
        return [value_of(batch, key) for key in keys]

    def _whole_columns(self, keys: Sequence[ColumnKey]) -> list[ColumnArray]:
        columns_of_parts: list[list[ColumnArray]] = []
        for part, length in zip(self.parts, self._lengths, strict=True):
            if length:
                columns_of_parts.append([column[:length] for column in part.columns(keys)])
        return [join_columns(list(pieces)) for pieces in zip(*columns_of_parts, strict=True)]

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        requests = self._requests(positions)
        values_of_requests: list[Iterator[Any]] = []
        request_of_slot = np.empty(len(positions), dtype=np.intp)
        for number, request in enumerate(requests):
            # The values of a request are yielded in the order of its slots.
            in_order = request.positions[np.argsort(request.slots)]
            values = request.source.iterate_column(key, in_order)
            if values is None:
                return None
            values_of_requests.append(values)
            request_of_slot[request.slots] = number
        return _merge(values_of_requests, request_of_slot.tolist())

    # ------------------------------------------------------------------ runs

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        """Read runs: from the part where a run lies within one part, otherwise from a batch.

        For no ``starts`` the answer is None, as it would take a request to each of all parts to
        know whether they have runs.
        """
        selection = self._concatenation.select(starts)
        part_ends = np.asarray(self._concatenation.starts, dtype=np.intp).take(selection.parts + 1)
        crosses_parts = starts + length > part_ends
        batches: list[Batch] = []
        slots: list[_Slots] = []
        inside = np.flatnonzero(~crosses_parts)
        for part, numbers in group_by_part(selection.parts[inside], len(self.parts)):
            slots_of_part = inside[numbers]
            batch = self.parts[part].runs(selection.positions[slots_of_part], length, keys)
            if batch is None:
                return None
            batches.append(batch)
            slots.append(slots_of_part)
        if batches and bool(crosses_parts.any()):
            batches.append(self._read_as_batch(starts[crosses_parts], length, keys))
            slots.append(np.flatnonzero(crosses_parts))
        have_one_form = len({array_types(batch) for batch in batches}) == 1
        if not have_one_form:
            return None
        return _join_in_slots(batches, slots)

    def _read_as_batch(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None
    ) -> Batch:
        """Read the samples of runs as one batch, and return it in the shape of runs."""
        positions = starts[:, np.newaxis] + np.arange(length, dtype=np.intp)
        if keys is None:
            batch = self.batch(positions.reshape(-1))
        else:
            batch = tuple(self.columns(keys, positions.reshape(-1)))

        def split_into_runs(column: ColumnArray) -> ColumnArray:
            return column.reshape(-1, length, *column.shape[1:])

        runs: Batch = map_columns(split_into_runs, batch)
        return runs

    # ------------------------------------------------------------------ what is known of them

    @cached_property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether all parts have the same columns of one dtype and shape.

        A sample of each part is read to know this. Neither parts in a remote store are asked, as
        that would take a request to each of them, nor more than a thousand parts.
        """
        if self.prefers_blocks or len(self.parts) > _MAX_PARTS_TO_COMPARE:
            return False
        types_of_parts: set[ColumnTypes] = set()
        for part, length in zip(self.parts, self._lengths, strict=True):
            if length == 0:
                continue
            if not part.fixed_columns:
                return False
            types = ColumnTypes.of(part)
            if types.have_objects:
                return False
            types_of_parts.add(types)
            if len(types_of_parts) > 1:
                return False
        return len(types_of_parts) == 1

    @property
    def stacks_samples(self) -> bool:  # type: ignore[override]  # read-only here
        return self._sources.stack_samples

    @property
    def n_at_once(self) -> int:  # type: ignore[override]  # read-only here
        return min((part.n_at_once for part in self.parts), default=sys.maxsize)

    def blocks(self) -> npt.NDArray[np.int64] | None:
        blocks_of_parts: list[npt.NDArray[np.int64]] = []
        for part, length in zip(self.parts, self._lengths, strict=True):
            blocks = part.blocks()
            if part.n_samples != length:
                # The iterator has grown, and so have its blocks.
                blocks = blocks_at(range(length), blocks)
            if blocks is None:
                return None
            blocks_of_parts.append(blocks)
        return np.concatenate(blocks_of_parts) if blocks_of_parts else None

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        if len(positions) == 0:
            for part in self.parts:
                part.prefetch(positions, keys)
        for request in self._requests(positions):
            request.source.prefetch(request.positions, keys)

    def locate(self, position: int) -> str | None:
        part, position_in_part = self._concatenation.find(position)
        return self.parts[part].locate(position_in_part)

    def origins(self, position: int) -> Sequence[Origin]:
        number, position_in_given = self._concatenation_of_given.find(position)
        name = str(number)
        if self._names is not None:
            name = self._names[number]
        origins = self._given[number].origins(position_in_given)
        return [origin.in_source(name) for origin in origins]

    @cached_property
    def _concatenation_of_given(self) -> Concatenation:
        """Finds which of the given accesses has a position."""
        return Concatenation(self._lengths_of_given)

    # ------------------------------------------------------------------ requests

    def _requests(self, positions: IndexArrayOfInts) -> list[Request]:
        """Return one request to each source that has samples at ``positions``."""
        if len(positions) == 0:
            return []
        return self._group_by_source(self._concatenation.select(positions))

    def _group_by_source(self, selection: Selection) -> list[Request]:
        """Return one request to each source that has some of the selected samples."""
        # Several views of one source, such as folds, are read together.
        wanted_of: dict[SampleAccess, tuple[list[IndexArrayOfInts], list[_Slots]]] = {}
        for part, slots in group_by_part(selection.parts, len(self.parts)):
            source, positions_of_part = self._sources.unwrapped[part]
            positions: IndexArrayOfInts = selection.positions[slots]
            if positions_of_part is not None:
                positions = take(positions_of_part, positions)
            wanted_positions, wanted_slots = wanted_of.setdefault(source, ([], []))
            wanted_positions.append(positions)
            wanted_slots.append(slots)
        return [
            Request(source, _concatenate(positions), _concatenate(slots))
            for source, (positions, slots) in wanted_of.items()
        ]

    def _are_scattered(self, selection: Selection) -> bool:
        """Return whether reading samples one by one takes less time than a request to each source.

        256 random samples of 1,000 parts lie in 226 of these parts.
        """
        n_samples = len(selection.parts)
        sources = self._sources
        if not sources.stack_samples or n_samples >= _FEW_SAMPLES * sources.n_sources:
            return False
        n_samples_of_source = np.bincount(sources.number_of_part.take(selection.parts))
        n_wanted_sources = int(np.count_nonzero(n_samples_of_source))
        return n_samples < _FEW_SAMPLES * n_wanted_sources


def _refuse_position(position: int) -> Any:
    raise IndexError(position)


def _merge(iterators: Sequence[Iterator[Any]], order: Sequence[int]) -> Iterator[Any]:
    """Yield for each number in ``order`` the next value of the iterator with this number."""
    for number in order:
        yield next(iterators[number])


def _concatenate(arrays: list[Any]) -> Any:
    """Return arrays one after the other. To concatenate a single one would take a microsecond."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays)


def _join_in_slots(batches: Sequence[Batch], slots: Sequence[_Slots]) -> Batch:
    """Make one batch of several, whose samples belong into ``slots``."""
    return join_batches(batches, functools.partial(assemble, slots=slots))
