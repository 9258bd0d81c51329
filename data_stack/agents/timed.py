"""Samples that can be read until a deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.agents.limits import Deadline
from data_stack.dataset.iterator.access import DeclaredColumn, SampleAccess
from data_stack.dataset.iterator.access_bases import OneToOneAccess
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import LayerDatasetIterator
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.values.stacking import Batch, ColumnArray


class TimedDatasetIterator(LayerDatasetIterator):
    """The samples of an iterator; after the deadline, reading them raises an error.

    Long computations read block by block. So they end soon after the deadline, also in a thread
    that cannot be stopped.

    Args:
        dataset_iterator: the samples; it is not closed.
        deadline: is checked before each request.
    """

    #: Is checked before each request.
    _deadline: Deadline

    def __init__(self, dataset_iterator: DatasetIteratorIF, deadline: Deadline) -> None:
        super().__init__(dataset_iterator)
        self._deadline = deadline

    def make_access(self) -> SampleAccess:
        """Return an access that checks the deadline."""
        return _TimedAccess(self._below(), self._deadline)


class _TimedAccess(OneToOneAccess):
    """Forwards each request to the access below, unless the deadline is over."""

    def __init__(self, below: SampleAccess, deadline: Deadline) -> None:
        super().__init__(below, keeps_values=True)
        self._deadline = deadline

    def sample(self, position: int) -> Any:
        self._deadline.check()
        return self.below.sample(position)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        self._deadline.check()
        return self.below.batch(positions)

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        self._deadline.check()
        return self.below.columns(keys, positions)

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        source, _ = self.below.unwrap()
        return source.declare_columns()
