"""Samples that are kept in memory as objects."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.access import SampleAccess, stack_columns
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.values.copies import copy_objects, copy_value
from data_stack.values.stacking import Batch, ColumnArray, stack_samples


class KeptSamplesAccess(SampleAccess):
    """Access to copies of samples that are kept as objects.

    A subclass defines ``kept``.
    """

    @abstractmethod
    def kept(self, positions: Sequence[int]) -> list[Any]:
        """Return the samples at ``positions`` themselves, which must not be changed."""

    def sample(self, position: int) -> Any:
        return copy_value(self.kept([position])[0])

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return list(map(copy_value, self.kept(positions.tolist())))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            return self.empty_batch()
        batch: Batch = copy_objects(stack_samples(self.kept(positions.tolist())))
        return batch

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if positions is None:
            samples = self.kept(range(self.n_samples))
        else:
            samples = self.kept(positions.tolist())
        return [copy_objects(column) for column in stack_columns(samples, keys, self)]


class SampleListAccess(KeptSamplesAccess):
    """Access to copies of the samples of a list.

    Args:
        samples: the list.
        source: what the samples were read from, in the same order; None if that is unknown.
    """

    #: The samples themselves.
    _samples: list[Sample]

    #: What the samples were read from; None if that is unknown.
    _source: SampleAccess | None

    def __init__(self, samples: list[Sample], source: SampleAccess | None = None) -> None:
        self._samples = samples
        self._source = source
        self.n_samples = len(samples)

    def kept(self, positions: Sequence[int]) -> list[Sample]:
        return [self._samples[position] for position in positions]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return map(copy_value, itertools.islice(self._samples, start, stop))

    def locate(self, position: int) -> str | None:
        if self._source is None:
            return None
        return self._source.locate(position)

    def origins(self, position: int) -> Sequence[Origin]:
        if self._source is None:
            return super().origins(position)
        return self._source.origins(position)

    def content_fingerprint(self) -> Any:
        return json_digest(content_of(self._samples, of_samples=True))
