"""An iterator together with the meta that says which dataset it is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator.access import OneToOneAccess, SampleAccess, access_to, own_access
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIteratorIF,
    as_iterator,
)
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.names_of_others import missing_attribute
from data_stack.dataset.meta import DatasetMetaIF, column_key_by
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.values.stacking import Column


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
        self, dataset_iterator: DatasetIteratorIF, dataset_meta: DatasetMetaIF, *, origin: Mapping[str, Any] | None = None
    ) -> None:
        self._origin = None if origin is None else dict(origin)
        self._dataset_meta = dataset_meta
        self._dataset_iterator = dataset_iterator
        own_access(self)  # now: what has no samples is refused here

    @property
    def _noted(self) -> str:  # type: ignore[override]  # read-only here
        return getattr(vars(self).get("_dataset_iterator"), "_noted", "")  # a subclass may wrap nothing

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

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """The meta given."""
        return self._dataset_meta


class NamedAccess(OneToOneAccess):
    """Access to the same samples, whose columns may also be named as in a meta.

    Args:
        below: the samples.
        key_of: returns the column's position for a name, and any other key unchanged.
    """

    def __init__(self, below: SampleAccess, key_of: Callable[[int | str], int | str]) -> None:
        super().__init__(below, keeps_values=True)
        self._key_of = key_of
        # no calls of their own: these samples are those below
        self.sample, self.samples, self.batch, self.iterate = below.sample, below.samples, below.batch, below.iterate  # type: ignore[method-assign]
        self.unwrap, self.declare_columns = below.unwrap, below.declare_columns  # type: ignore[method-assign]

    def sample(self, position: int) -> Any:
        return self.below.sample(position)

    def columns(self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None) -> list[Column]:
        return self.below.columns([self._key_of(key) for key in keys], positions)

    def prefetch(self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None) -> None:
        self.below.prefetch(positions, None if keys is None else [self._key_of(key) for key in keys])
