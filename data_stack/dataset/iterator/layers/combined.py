"""The samples of several iterators, one iterator after the other."""

from __future__ import annotations

import functools
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.dataset.class_lists import check_class_lists
from data_stack.dataset.iterator.access import ColumnKey, SampleAccess, access_to, stack_columns
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.selection import Concatenation, Selection
from data_stack.dataset.iterator.layers.sequence import SequenceAccess
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.meta import DatasetMeta, MetaFactory
from data_stack.dataset.positions import IndexArrayOfInts, Positions, blocks_at, take
from data_stack.exception import ConfigError
from data_stack.values.stacking import (
    Batch,
    ColumnArray,
    SampleForm,
    assemble,
    join_batches,
    join_columns,
    list_columns,
    map_columns,
    stack_samples,
    value_of,
)

_Slots = npt.NDArray[np.intp]
"""The rows of samples in a batch, shape ``(n,)``."""

#: Facts of a meta that iterators may state differently.
_SHARED_FACTS = ("target_kind", "class_names", "feature_names", "column_names", "column_kinds")

#: One request to a part takes as long as it takes to read this number of samples one by one.
_FEW_SAMPLES = 6

#: Entries in the table of parts, for each part: with 16, a search follows for one position in 32.
_TABLE_ENTRIES_A_PART = 16

#: Up to this number of parts, the number of a part fits into 16 bits. numpy sorts these in a fifth
#: of the time that it takes for 64 bits.
_MAX_PARTS_OF_16_BITS = 1 << 16

#: More parts are not asked for their columns: a sample of each would be read, from a file of each.
_MAX_PARTS_TO_COMPARE = 1 << 10

#: A recipe can combine each node with itself: thirty nodes would make a thousand million parts.
_MAX_PARTS = 1 << 20


@layer("combined")
class CombinedDatasetIterator(AccessedDatasetIterator):
    """The samples of the first iterator, then those of the second, and so on.

    The length of each iterator is taken when this is made: samples that an iterator gets later are
    not read. A combination of combinations reads from its innermost parts directly;
    ``underlying_iterators`` still has the iterators given.

    Args:
        iterators: any number of iterators, also none, also the same one repeatedly; they are not
            closed.

    Raises:
        ConfigError: they are not iterators, have different ``class_names``, or have more than
            ``sys.maxsize`` samples or 2**20 parts in all.
    """

    #: How many samples each iterator has.
    _lengths: list[int]

    #: The name of each iterator; None for their numbers.
    _names: Sequence[str] | None = None

    def __init__(self, iterators: Sequence[DatasetIteratorIF]) -> None:
        if isinstance(iterators, DatasetIteratorIF):
            raise ConfigError(
                f"expected a list of iterators to combine, got one iterator: "
                f"write [{iterators!r:.80}, …]"
            )
        self._stacked_on = list(iterators)
        check_class_lists(self._stacked_on, "combine")
        self._lengths = [len(as_iterator(iterator)) for iterator in self._stacked_on]
        n_samples = sum(self._lengths)
        if n_samples > sys.maxsize:
            raise ConfigError(
                f"{len(self._lengths)} iterators have {n_samples} samples, more than Python can "
                f"count"
            )

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        return cls(underlying, **arguments)

    def make_access(self) -> SampleAccess:
        given = [access_to(as_iterator(iterator)) for iterator in self._stacked_on]
        return CombinedAccess(given, self._lengths, self._names)

    def _name_sources(self, names: Sequence[str]) -> None:
        """Give each iterator a name, by which the origins of samples call it."""
        self._names = list(names)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        return share_meta(meta, self._stacked_on)


def share_meta(meta: DatasetMeta, iterators: Sequence[Any]) -> DatasetMeta:
    """Return ``meta`` without the facts that the metas of other iterators contradict.

    Args:
        meta: the meta of the first iterator.
        iterators: the iterators, with meta or without.
    """
    # A client's own meta may lack attributes. Copies have all.
    others = [
        MetaFactory.copy_dataset_meta(iterator.dataset_meta)
        for iterator in iterators
        if hasattr(iterator, "dataset_meta")
    ]
    contradicted: dict[str, Any] = {}
    for name in _SHARED_FACTS:
        if any(getattr(other, name) != getattr(meta, name) for other in others):
            contradicted[name] = None
    return replace(meta, **contradicted)


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
    def _sources(self) -> _Sources:
        """The sources of the parts, found when several samples are read for the first time."""
        return _Sources.of(self.parts)

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
        n_entries = min(_TABLE_ENTRIES_A_PART * len(self.parts), _MAX_PARTS)
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
                return tuple(_gather(self._sources.arrays, selection))
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
                return _gather([arrays[form.find(key)] for key in keys], selection)
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
        return _take_in_turn(values_of_requests, request_of_slot.tolist())

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
        for part, numbers in _group_by_part(selection.parts[inside], len(self.parts)):
            slots_of_part = inside[numbers]
            batch = self.parts[part].runs(selection.positions[slots_of_part], length, keys)
            if batch is None:
                return None
            batches.append(batch)
            slots.append(slots_of_part)
        if batches and bool(crosses_parts.any()):
            batches.append(self._read_as_batch(starts[crosses_parts], length, keys))
            slots.append(np.flatnonzero(crosses_parts))
        have_one_form = len({_array_types(batch) for batch in batches}) == 1
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
        types_of_parts: set[_ColumnTypes] = set()
        for part, length in zip(self.parts, self._lengths, strict=True):
            if length == 0:
                continue
            if not part.fixed_columns:
                return False
            types = _ColumnTypes.of(part)
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
        for part, slots in _group_by_part(selection.parts, len(self.parts)):
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


def _take_in_turn(iterators: Sequence[Iterator[Any]], turns: Sequence[int]) -> Iterator[Any]:
    """Yield the next value of the iterator whose number stands in ``turns``, for each of them."""
    for number in turns:
        yield next(iterators[number])


def _concatenate(arrays: list[Any]) -> Any:
    """Return arrays one after the other. To concatenate a single one would take a microsecond."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays)


@dataclass(frozen=True)
class _Sources:
    """The sources from which the parts of a combination are read.

    Attributes:
        unwrapped: for each part its source and its positions in the source, see
            :meth:`SampleAccess.unwrap`.
        number_of_part: for each part the number of its source, shape ``(n_parts,)``. Views of one
            source have the same number.
        n_sources: how many sources there are.
        stack_samples: whether batches of all sources are their samples stacked.
        arrays: see :func:`_find_arrays`.
    """

    unwrapped: list[tuple[SampleAccess, Positions | None]]
    number_of_part: npt.NDArray[np.intp]
    n_sources: int
    stack_samples: bool
    arrays: list[list[ColumnArray]]

    @classmethod
    def of(cls, parts: Sequence[SampleAccess]) -> _Sources:
        """Find the sources of ``parts``."""
        unwrapped = [part.unwrap() for part in parts]
        number_of: dict[SampleAccess, int] = {}
        numbers = [number_of.setdefault(source, len(number_of)) for source, _ in unwrapped]
        arrays = _find_arrays(parts)
        stack_samples = bool(parts) and all(source.stacks_samples for source in number_of)
        return cls(
            unwrapped=unwrapped,
            number_of_part=np.array(numbers, dtype=np.intp),
            n_sources=len(number_of),
            stack_samples=bool(arrays) or stack_samples,
            arrays=arrays,
        )


def _find_arrays(parts: Sequence[SampleAccess]) -> list[list[ColumnArray]]:
    """Return for each column the arrays of the parts.

    The list is empty unless all parts are arrays, and those of a column have one dtype other than
    object and one shape of a value.
    """
    sources: list[SequenceAccess] = []
    for part in parts:
        if not isinstance(part, SequenceAccess) or not part.fixed_columns:
            return []
        sources.append(part)
    n_columns = {len(source.arrays) for source in sources}
    if len(n_columns) != 1:
        return []
    columns = [list(arrays) for arrays in zip(*[source.arrays for source in sources], strict=True)]
    for arrays in columns:
        array_types = {(array.dtype, array.shape[1:]) for array in arrays}
        if len(array_types) > 1 or arrays[0].dtype.hasobject:
            return []
    return columns


# ---------------------------------------------------------------------- arrays


def _group_by_part(parts: npt.NDArray[np.intp], n_parts: int) -> Iterator[tuple[int, _Slots]]:
    """Yield each part that stands in ``parts``, and the indices at which it does, ascending.

    Args:
        parts: numbers of parts.
        n_parts: how many parts there are.
    """
    if len(parts) == 0:
        return
    if n_parts <= _MAX_PARTS_OF_16_BITS:
        parts = parts.astype(np.uint16)
    by_part = np.argsort(parts, kind="stable")
    sorted_parts = parts[by_part]
    # In by_part, the indices of one part follow each other. Each ends where another part begins.
    ends: list[int] = (np.flatnonzero(sorted_parts[1:] != sorted_parts[:-1]) + 1).tolist()
    ends.append(len(parts))
    first = 0
    for end in ends:
        yield int(sorted_parts[first]), by_part[first:end]
        first = end


def _gather(columns: Sequence[list[ColumnArray]], selection: Selection) -> list[ColumnArray]:
    """Copy rows that are scattered over arrays.

    Args:
        columns: for each column the arrays of the parts.
        selection: the rows.
    """
    rows = list(zip(selection.parts.tolist(), selection.positions.tolist(), strict=True))
    gathered: list[ColumnArray] = []
    for arrays in columns:
        values = [arrays[part][position] for part, position in rows]
        gathered.append(np.array(values, dtype=arrays[0].dtype))
    return gathered


def _join_in_slots(batches: Sequence[Batch], slots: Sequence[_Slots]) -> Batch:
    """Make one batch of several, whose samples belong into ``slots``."""
    return join_batches(batches, functools.partial(assemble, slots=slots))


@dataclass(frozen=True)
class _ColumnTypes:
    """What the columns of a part are, where they are fixed.

    Attributes:
        form: the columns, in their order.
        arrays: see :func:`_array_types`.
        values: the type of the value of a sample, for each column. Numbers of one dtype are
            Python's in the samples of some formats, numpy's in others.
    """

    form: SampleForm
    arrays: tuple[Any, ...]
    values: tuple[type, ...]

    @classmethod
    def of(cls, part: SampleAccess) -> _ColumnTypes:
        """Find the types by the first sample of ``part``, which has one."""
        batch = part.empty_batch()
        values = list_columns(part.sample(0))
        return cls(SampleForm.of(batch), _array_types(batch), tuple(map(type, values)))

    @property
    def have_objects(self) -> bool:
        """Whether a column has values that are objects, which may be of any type."""
        return any(dtype.hasobject for dtype, _ in self.arrays)


def _array_types(batch: Batch) -> tuple[Any, ...]:
    """Return the dtype and the shape of a value of each column."""
    return tuple((column.dtype, column.shape[1:]) for column in list_columns(batch))
