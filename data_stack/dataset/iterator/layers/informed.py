"""The samples of an iterator with a meta, which says what is known of their dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator.access import DeclaredColumn, DistinctValues, SampleAccess
from data_stack.dataset.iterator.access_bases import OneToOneAccess
from data_stack.dataset.iterator.access_of_iterator import access_to, own_access
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIteratorIF,
)
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.names_of_others import missing_attribute
from data_stack.dataset.meta import DatasetMetaIF, column_key_by
from data_stack.dataset.positions import IndexArrayOfInts, Positions
from data_stack.values.stacking import Batch, ColumnArray


@layer("informed")
class InformedDatasetIterator(AccessedDatasetIterator, InformedDatasetIteratorIF):
    """The samples of ``dataset_iterator``, of the dataset that ``dataset_meta`` describes.

    It does not count as a layer: ``underlying_iterators`` are those of ``dataset_iterator``.
    Attributes that only ``dataset_iterator`` has, such as the ``indices`` of a view or ``fill`` of
    a stored cache, are attributes of this iterator too. A slice is a view with the same meta.

    Args:
        dataset_iterator: the samples; it is not closed.
        dataset_meta: what is known of them.
        origin: plain data by which a repository can load the samples again: the name, version,
            split and options of the dataset. None if they were not loaded; see :meth:`recipe`.

    Raises:
        ConfigError: ``dataset_iterator`` is nothing that has samples.
    """

    #: The samples.
    _dataset_iterator: DatasetIteratorIF

    #: What is known of them.
    _dataset_meta: DatasetMetaIF

    #: Plain data by which a repository can load the samples again; None if it has not loaded them.
    _origin: dict[str, Any] | None

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        dataset_meta: DatasetMetaIF,
        *,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self._origin = None if origin is None else dict(origin)
        self._dataset_iterator = dataset_iterator
        self._dataset_meta = dataset_meta
        self._repr_details = getattr(dataset_iterator, "_repr_details", "")
        # The access is made now, so that what has no samples is refused here.
        own_access(self)

    if not TYPE_CHECKING:  # a type checker is not to believe in every name

        def __getattr__(self, name: str) -> Any:
            """Return an attribute that only the wrapped iterator has."""
            # Private names and those of Python's protocols are not forwarded. While this object is
            # unpickled, nothing is wrapped yet.
            wrapped = self.__dict__.get("_dataset_iterator")
            if not name.startswith("_") and hasattr(wrapped, name):
                return getattr(wrapped, name)
            raise missing_attribute(self, name)

    def make_access(self) -> SampleAccess:
        below = access_to(as_iterator(self._dataset_iterator))
        return NamedAccess(below, partial(column_key_by, self._dataset_meta, below))

    def _arguments(self) -> dict[str, Any]:
        return {"dataset_meta": self._dataset_meta, "origin": self._origin}

    def _iterators_below(self) -> list[DatasetIteratorIF]:
        return [self._dataset_iterator]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """What the wrapped iterator is stacked on."""
        return self._dataset_iterator.underlying_iterators

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """What is known of the samples, as it was given."""
        return self._dataset_meta


class NamedAccess(OneToOneAccess):
    """Access to the same samples, whose columns may also be named as in a meta.

    Args:
        below: the samples.
        find_key: returns the position of a column for a name of the meta; any other key unchanged.
    """

    #: Returns the position of a column for a name of the meta; any other key unchanged.
    _find_key: Callable[[int | str], int | str]

    def __init__(self, below: SampleAccess, find_key: Callable[[int | str], int | str]) -> None:
        super().__init__(below, keeps_values=True)
        self._find_key = find_key

    def _find_keys(self, keys: Sequence[int | str] | None) -> list[int | str] | None:
        if keys is None:
            return None
        return [self._find_key(key) for key in keys]

    # ------------------------------------------------------------------ where columns are named

    def values_of_sample(self, position: int, keys: Sequence[int | str]) -> list[Any] | None:
        return self.below.values_of_sample(position, [self._find_key(key) for key in keys])

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        return self.below.columns([self._find_key(key) for key in keys], positions)

    def iterate_column(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        return self.below.iterate_column(self._find_key(key), positions)

    def distinct_values(
        self, key: int | str, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        return self.below.distinct_values(self._find_key(key), positions)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[int | str] | None = None
    ) -> Batch | None:
        return self.below.runs(starts, length, self._find_keys(keys))

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self.below.prefetch(positions, self._find_keys(keys))

    # ------------------------------------------------------------------ as below

    @property
    def stacks_samples(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.stacks_samples

    def sample(self, position: int) -> Any:
        return self.below.sample(position)

    def make_sample_reader(self) -> Callable[[int], Any]:
        return self.below.make_sample_reader()

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return self.below.samples(positions)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self.below.batch(positions)

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        return self.below.iterate(start, stop)

    def unwrap(self) -> tuple[SampleAccess, Positions | None]:
        return self.below.unwrap()

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self.below.declare_columns()
