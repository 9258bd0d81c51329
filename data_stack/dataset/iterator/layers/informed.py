"""The samples of an iterator with what is known of their dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator.access import (
    DistinctValues,
    OneToOneAccess,
    SampleAccess,
    access_to,
    own_access,
)
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIteratorIF,
    as_iterator,
)
from data_stack.dataset.iterator.described import missing_attribute
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.meta import DatasetMetaIF, column_key_by
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.values.stacking import Batch, Column


@layer("informed")
class InformedDatasetIterator(AccessedDatasetIterator, InformedDatasetIteratorIF):
    """The samples of ``dataset_iterator``, of the dataset that ``dataset_meta`` describes.

    It adds no layer of its own: ``underlying_iterators`` are those of ``dataset_iterator``, and what only that has, such as the
    ``indices`` of a view or ``fill`` of a stored cache, is found here too. A slice is a view with the same meta.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        dataset_meta: what is known of them.
        origin: plain data by which the samples can be had again, as a repository puts it: the dataset's name, version, split
            and options. None if there is none; see :meth:`recipe`.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        dataset_meta: DatasetMetaIF,
        *,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self._origin = None if origin is None else dict(origin)
        self._dataset_iterator, self._dataset_meta = dataset_iterator, dataset_meta
        self._noted = getattr(dataset_iterator, "_noted", "")
        own_access(self)  # now: what has no samples is refused here

    if not TYPE_CHECKING:  # a type checker is not to believe in every name

        def __getattr__(self, name: str) -> Any:
            """What only the wrapped iterator has, such as the ``indices`` of a view or ``fill`` of a stored cache."""
            # Private names and protocols are asked of this very object, and while it is unpickled nothing is wrapped yet.
            wrapped = vars(self).get("_dataset_iterator")
            if not name.startswith("_") and hasattr(wrapped, name):
                return getattr(wrapped, name)
            raise missing_attribute(self, name)

    def make_access(self) -> SampleAccess:
        below = access_to(as_iterator(self._dataset_iterator))
        return NamedAccess(below, partial(column_key_by, self._dataset_meta, below))

    def _arguments(self) -> dict[str, Any]:
        return {"dataset_meta": self._dataset_meta, "origin": self._origin}

    def _stack_on(self) -> list[DatasetIteratorIF]:
        return [self._dataset_iterator]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """What the wrapped iterator is stacked on."""
        return self._dataset_iterator.underlying_iterators

    dataset_meta = property(attrgetter("_dataset_meta"), doc="The meta given.")


class NamedAccess(OneToOneAccess):
    """Access to the same samples, whose columns may also be named as in a meta.

    Args:
        below: the samples.
        key_of: returns the column's position for a name, and any other key unchanged.
    """

    def __init__(self, below: SampleAccess, key_of: Callable[[int | str], int | str]) -> None:
        super().__init__(below, keeps_values=True)
        self._key_of = key_of
        self.stacks_samples = below.stacks_samples
        # no calls of their own: these samples are those below
        self.sample = below.sample  # type: ignore[method-assign]
        self.samples = below.samples  # type: ignore[method-assign]
        self.batch = below.batch  # type: ignore[method-assign]
        self.iterate = below.iterate  # type: ignore[method-assign]
        self.unwrap = below.unwrap  # type: ignore[method-assign]
        self.declare_columns = below.declare_columns  # type: ignore[method-assign]

    def sample(self, position: int) -> Any:
        return self.below.sample(position)

    def values_of_sample(self, position: int, keys: Sequence[int | str]) -> list[Any] | None:
        return self.below.values_of_sample(position, [self._key_of(key) for key in keys])

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        return self.below.columns([self._key_of(key) for key in keys], positions)

    def distinct_values(
        self, key: int | str, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        return self.below.distinct_values(self._key_of(key), positions)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[int | str] | None = None
    ) -> Batch | None:
        return self.below.runs(
            starts, length, None if keys is None else [self._key_of(key) for key in keys]
        )

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self.below.prefetch(
            positions, None if keys is None else [self._key_of(key) for key in keys]
        )
