"""Finds the access by which an iterator is read: its own, or one by its public methods."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.util.functions import iterate_all, stopped_by
from data_stack.values.stacking import Batch, ColumnArray, map_columns, value_of

#: The methods that decide which samples an iterator has.
_SAMPLE_METHODS = frozenset(("__getitem__", "__len__"))

#: The methods that read many samples, and may do it faster than one by one.
READING_METHODS = ("__iter__", "__getitems__", "read_batch", "read_column")


def public_methods(kind: type, called: str = "") -> frozenset[str] | None:
    """Find the public methods by which the samples of a class are read.

    A class may inherit ``make_access`` and redefine a public method. It is then read by its public
    methods. If it redefines ``__getitem__`` or ``__len__``, it has other samples than the access:
    the inherited versions of the other methods would return the samples of the access, and are
    built on ``__getitem__`` and ``__len__`` instead.

    Args:
        kind: the class.
        called: the public method whose inherited version is running; ``""`` if none is. A class
            that redefines this method runs that version by ``super()``. Its own version must not be
            called again, which would never end.

    Returns:
        The names of the methods; None where samples are read by the access that the class makes.
    """
    redefined: set[str] = set()
    has_other_samples = False
    # From the class itself to its most general base.
    for base in kind.__mro__:
        if "make_access" in vars(base):
            if has_other_samples:
                return frozenset(redefined)
            if redefined and not called:
                # The samples are those of the access, which the methods that it inherits read.
                return frozenset(READING_METHODS)
            return None
        defined = set(vars(base)).intersection(_SAMPLE_METHODS.union(READING_METHODS))
        # Below this base, a class may have other samples. The base's methods return its own.
        if not has_other_samples and called not in defined:
            redefined |= defined
        has_other_samples = not redefined.isdisjoint(_SAMPLE_METHODS)
    return frozenset(redefined)


class DefaultAccess(SampleAccess):
    """Access to an iterator by its public methods.

    Args:
        iterator: any ``DatasetIteratorIF``.
        methods: the public methods to call; the others are built on these, ``__getitem__`` and
            ``__len__``.
    """

    def __init__(self, iterator: Any, methods: Collection[str]) -> None:
        self._iterator = iterator
        self._methods = methods

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DefaultAccess) and self._iterator is other._iterator

    def __hash__(self) -> int:
        return id(self._iterator)

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return len(self._iterator)

    def sample(self, position: int) -> Any:
        try:
            return self._iterator[position]
        except StopIteration as error:
            raise stopped_by(type(self._iterator).__getitem__) from error

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        if "__getitems__" not in self._methods:
            return super().samples(positions)
        try:
            samples: list[Any] = self._iterator.__getitems__(positions.tolist())
        except StopIteration as error:
            raise stopped_by(type(self._iterator).__getitems__) from error
        return samples

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if "read_batch" not in self._methods:
            return super().batch(positions)
        try:
            batch = self._iterator.read_batch(positions)
        except StopIteration as error:
            raise stopped_by(type(self._iterator).read_batch) from error
        copied: Batch = map_columns(_copy_column, batch)
        return copied

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if "read_column" in self._methods:
            return [self._read_column(key, positions) for key in keys]
        keys = [self._iterator._column_key(key) for key in keys]
        if len(keys) > 1 and self.n_samples and "read_batch" in self._methods:
            # One request reads several columns.
            if positions is None:
                positions = np.arange(self.n_samples, dtype=np.intp)
            batch = self.batch(positions)
            if not isinstance(batch, np.ndarray):
                return [value_of(batch, key) for key in keys]
        return super().columns(keys, positions)

    def _read_column(self, key: int | str, positions: IndexArrayOfInts | None) -> ColumnArray:
        try:
            column: ColumnArray = _copy_column(self._iterator.read_column(key, positions))
        except StopIteration as error:
            raise stopped_by(type(self._iterator).read_column) from error
        return column

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        if "__iter__" in self._methods and start == 0:
            return iterate_all(self._iterator, stop)
        return super().iterate(start, stop)


def _copy_column(column: Any) -> Any:
    """Copy a column that a client's class returned, as the class may keep the original."""
    if isinstance(column, np.ndarray):
        return column.copy()
    return column


def access_to(iterator: Any, called: str = "") -> SampleAccess:
    """Return the access of an iterator.

    It is a :class:`DefaultAccess` where the class of the iterator makes none, or redefines a public
    reading method.

    Args:
        iterator: a ``DatasetIteratorIF``; of anything else see
            :func:`~data_stack.dataset.iterator.adapted.as_iterator`.
        called: the public method whose inherited version is running, see :func:`public_methods`.
    """
    methods: frozenset[str] | None = iterator._public_methods[called]
    if methods is None:
        return own_access(iterator)
    return DefaultAccess(iterator, methods)


def own_access(iterator: Any) -> SampleAccess:
    """Return the access from ``make_access``, also where a subclass redefines public methods.

    The access is made on first use. Threads that come first may make one each; then all use the
    one that was kept first, so that there is one cache of samples.
    """
    kept_access: SampleAccess | None = iterator._sample_access
    if kept_access is not None:
        return kept_access
    new_access: SampleAccess = iterator.make_access()
    if not iterator._keeps_access:
        return new_access
    # setdefault() decides between threads.
    first_access: SampleAccess = iterator.__dict__.setdefault("_sample_access", new_access)
    return first_access
