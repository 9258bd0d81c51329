"""Samples that a function makes of whole samples, or of whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import (
    ColumnKey,
    SampleAccess,
    split_positions,
    stack_columns,
)
from data_stack.dataset.iterator.access_bases import OneToOneAccess
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.layers.batched_function import (
    call_batched,
    check_mapped_column,
    iterate_in_growing_reads,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import derive_generator
from data_stack.util.functions import call_for_each, explain_tuple_index, stopped_by
from data_stack.values.stacking import Batch, ColumnArray, join_columns, list_samples, value_of

#: Samples to read and map at once for a column: enough for efficient batches, few enough to keep in
#: memory.
_SAMPLES_AT_ONCE = 1024


class SampleMapAccess(OneToOneAccess):
    """Access to what a function returns for each sample.

    Args:
        below: the samples.
        function: takes a sample; with a seed, also a random generator.
        mixed_seed: what the random generators are derived from; None for a function without one.
    """

    #: Reads a sample below.
    _read_below: Callable[[int], Any]

    #: The function that maps a sample.
    _function: Callable[..., Any]

    #: What the random generators are derived from; None for a function without one.
    _mixed_seed: int | None

    def __init__(
        self, below: SampleAccess, function: Callable[..., Any], mixed_seed: int | None
    ) -> None:
        super().__init__(below)
        self._read_below = below.make_sample_reader()
        self._function = function
        self._mixed_seed = mixed_seed

    @property
    def stacks_samples(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.stacks_samples

    def sample(self, position: int) -> Sample:
        sample = self._read_below(position)
        try:
            if self._mixed_seed is None:
                return self._function(sample)
            return self._function(sample, derive_generator(self._mixed_seed, position))
        except StopIteration as error:
            raise stopped_by(self._function) from error
        except TypeError as error:
            explained = explain_tuple_index(error, sample)
            if explained is error:
                raise
            raise explained from error

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        mapped: list[Sample] = []
        for part in split_positions(positions, self.below.n_at_once):
            mapped += self._map_samples(self.below.samples(part), part.tolist())
        return mapped

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return self._map_samples(self.below.iterate(start, stop), range(start, stop))

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        if len(positions) == 0:
            return self._empty_columns(keys)
        parts = split_positions(positions, _SAMPLES_AT_ONCE)
        columns_of_parts = [self._columns_of_part(keys, part) for part in parts]
        return [join_columns(pieces) for pieces in zip(*columns_of_parts, strict=True)]

    def _empty_columns(self, keys: Sequence[ColumnKey]) -> list[ColumnArray]:
        if self.n_samples == 0:
            return [np.empty(0) for _ in keys]
        # Only a mapped sample tells the shapes and dtypes.
        first_position = np.zeros(1, dtype=np.intp)
        return [column[:0] for column in self.columns(keys, first_position)]

    def _columns_of_part(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts
    ) -> list[ColumnArray]:
        return stack_columns(self.samples(positions), keys, self)

    def _map_samples(self, samples: Iterable[Sample], positions: Iterable[int]) -> Iterator[Sample]:
        if self._mixed_seed is None:
            return call_for_each(self._function, samples)
        return self._map_with_generators(self._mixed_seed, samples, positions)

    def _map_with_generators(
        self, mixed_seed: int, samples: Iterable[Sample], positions: Iterable[int]
    ) -> Iterator[Sample]:
        try:
            for sample, position in zip(samples, positions, strict=True):
                yield self._function(sample, derive_generator(mixed_seed, position))
        except StopIteration as error:
            raise stopped_by(self._function) from error


class BatchMapAccess(SampleMapAccess):
    """Access to what a function returns for batches; it is never called with an empty batch.

    Args:
        below: the samples.
        function: takes a batch; with a seed, also a list of random generators, one for each row.
        mixed_seed: what the random generators are derived from; None for a function without one.
    """

    stacks_samples = False

    def sample(self, position: int) -> Sample:
        return self.samples(np.array([position], dtype=np.intp))[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        if len(positions) == 0:
            return []
        return list_samples(self.batch(positions))

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return iterate_in_growing_reads(self.samples, start, stop)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        n_rows = len(positions)
        if n_rows == 0:
            return self.empty_batch()
        mapped = call_batched(
            self._function, self.below.batch(positions), self._mixed_seed, positions
        )
        if isinstance(mapped, Mapping) and mapped:
            return {
                key: check_mapped_column(column, n_rows, self._function, f" in column {key!r}")
                for key, column in mapped.items()
            }
        if isinstance(mapped, tuple) and mapped:
            columns: list[ColumnArray] = []
            for number, values in enumerate(mapped):
                place = f" in column {number}"
                columns.append(check_mapped_column(values, n_rows, self._function, place))
            return tuple(columns)
        return check_mapped_column(mapped, n_rows, self._function)

    def _columns_of_part(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts
    ) -> list[ColumnArray]:
        batch = self.batch(positions)
        if isinstance(batch, np.ndarray):
            return stack_columns(batch, keys, self)
        return [value_of(batch, key) for key in keys]
