"""How samples are read below the public methods: by layers of those they are stacked on, and by loaders."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts, Positions
from data_stack.util.functions import iterate_all, stopped_by
from data_stack.values.copies import copy_objects as copy_objects
from data_stack.values.copies import copy_value as copy_value
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import (
    Batch,
    Column,
    empty_like,
    map_columns,
    stack_samples,
    value_of,
)

ColumnKey = Union[int, str]
"""Names a column: a position in tuple samples, a key of dict samples."""

_Batch = TypeVar("_Batch")


class DeclaredColumn(NamedTuple):
    """A column as a schema declares it.

    Attributes:
        dtype: None: see the values.
        shape: of a value; None: an extent varies.
        is_nullable: whether values may be missing.
        origin: what it is in the library that it comes from, such as a type of Arrow's; None if unknown.
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    is_nullable: bool = False
    origin: Any = None

    @property
    def is_fixed(self) -> bool:
        """Whether all values are of one dtype of numpy and one shape."""
        has_dtype = self.dtype is not None and self.dtype not in (
            "str",
            "bytes",
            "object",
            "Decimal",
        )
        return (
            has_dtype and not self.is_nullable and self.shape is not None and None not in self.shape
        )


class DistinctValues(NamedTuple):
    """The distinct values of a column, in the order in which they appear.

    Attributes:
        values: each value once, as a column of the samples at ``first``, shape ``(n_distinct, ...)``.
        first: where each value appears first, ascending, shape ``(n_distinct,)``: an index into the positions that were
            asked for.
    """

    values: Column
    first: npt.NDArray[np.intp]


class SampleAccess(ABC):
    """Reads samples at positions that are checked already, and describes them.

    An iterator makes one of itself (:meth:`~data_stack.dataset.iterator.AccessedDatasetIterator.make_access`), a layer holds
    that of what it is stacked on (:func:`access_to`), and a loader asks that of the top. Here is a whole layer, which a loader
    treats like those of data_stack::

        class Doubled(OneToOneAccess):
            def sample(self, position):
                return 2 * self.below.sample(position)

        class DoubledIterator(AccessedDatasetIterator):
            def __init__(self, numbers):
                self._numbers = numbers

            def make_access(self):
                return Doubled(access_to(self._numbers))

            @property
            def underlying_iterators(self):
                return [self._numbers]

    A subclass defines ``n_samples`` and ``sample``, and overrides what it can do faster or knows better.
    Positions are Python ints in ``[0, n_samples)``, or integer arrays of shape ``(n,)`` in that range, which must not be
    written to. Threads may share an access. It is not pickled with its iterator, but made again.

    Attributes:
        n_samples: how many there are.
        fixed_columns: whether every batch has columns of one dtype and shape. Then reading only copies rows of arrays, and
            several batches may be read as one.
        releases_gil: whether reading mostly runs without the GIL, as image codecs do; then a loader uses threads.
        prefers_blocks: whether a random order takes many more requests to a remote store than an order by blocks.
        stacks_samples: whether a batch is the samples stacked, and costs as much as reading these one by one. Then a
            combination of many parts reads the few samples of each part one by one.
        n_at_once: how many samples to read at once where each is used by itself, as by a map: a few where they are decoded one by
            one, so that only these are in memory; no limit where one request for many costs less.
    """

    n_samples: int
    fixed_columns: bool = False
    releases_gil: bool = False
    prefers_blocks: bool = False
    stacks_samples: bool = False
    n_at_once: int = sys.maxsize

    # ------------------------------------------------------------------ samples

    @abstractmethod
    def sample(self, position: int) -> Any:
        """One sample."""

    def values_of_sample(self, position: int, keys: Sequence[int | str]) -> list[Any] | None:
        """The values of some columns of one sample, as :meth:`sample` has them, without reading the others.

        None where the sample is read as a whole.
        """
        return None

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        """The samples at ``positions``, in that order."""
        return [self.sample(position) for position in positions.tolist()]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        """The samples at ``positions`` as stacked columns; see ``DatasetIteratorIF.read_batch``."""
        return stack_samples(self.samples(positions)) if len(positions) else self.empty_batch()

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        """Several columns of the samples at ``positions`` (None: of all), in one request; see ``DatasetIteratorIF.read_column``.

        Raises:
            ConfigError: the samples have no such column.
        """
        samples = self.iterate(0, self.n_samples) if positions is None else self.samples(positions)
        return stack_columns(samples, keys, self)

    def each(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        """The values of a column one after the other, each decoded when it is asked for, so that a map has one of them in memory.

        None where they are not decoded one by one.
        """
        return None

    def distinct_values(
        self, key: int | str, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        """Find the distinct values of a column without making a Python object of each value.

        Two values are one value here exactly if Python compares them as equal.

        Args:
            key: the column.
            positions: of the samples; None: of all.

        Returns:
            None where this access cannot do it, or not exactly; the caller then compares the values of :meth:`columns`.

        Raises:
            ConfigError: the samples have no such column.
        """
        return None

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[int | str] | None = None
    ) -> Batch | None:
        """Several runs of consecutive samples as columns of shape ``(n, length, ...)``, the caller's own, as windows need them.

        None where nothing is faster than :meth:`batch` of all positions, or where columns are not always of one dtype, which is
        not object, and one shape. An answer to no ``starts`` says that there is one to all others.

        Args:
            starts: the first position of each run, shape ``(n,)``; all runs end at ``n_samples`` or before.
            length: of each run, at least 1.
            keys: the columns to read, in a tuple; None for all, in the form of a batch.

        Raises:
            ConfigError: the samples have no such column.
        """
        return None

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        """The samples from ``start`` to ``stop``, one after the other."""
        for position in range(start, stop):
            yield self.sample(position)

    def empty_batch(self) -> Batch:
        """The columns of no samples, with the dtype and shape of sample 0; ``()`` of an empty iterator."""
        return empty_like(self.batch(np.zeros(1, dtype=np.intp))) if self.n_samples else ()

    # ------------------------------------------------------------------ what is known of them

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Lengths of the blocks that are read as a whole, shape ``(n_blocks,)``, of sum ``n_samples``; None without blocks."""
        return None

    def prefetch(  # noqa: B027  # most have nothing to do
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        """Start to read, in the background, the blocks of samples that are needed soon, in this order.

        Args:
            positions: of the samples.
            keys: of the columns that will be asked for; None for those of the last request.
        """

    def locate(self, position: int) -> str | None:
        """Where a sample is stored, for messages: ``"row 3 of row group 0 of a.parquet"``; None if unknown."""
        return None

    def unwrap(self) -> tuple[SampleAccess, Positions | None]:
        """The access whose samples these are, and their positions in it (None: all, in order); by default itself.

        Layers that only rearrange samples override this, so that a stack of them is one request.
        """
        return self, None

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        """The columns of dict samples by a schema; None without a schema."""
        return None

    def content_fingerprint(self) -> Any:
        """Plain data that identifies the samples of a source together with its arguments: the digests of its files.

        Without it, a fingerprint holds a digest of a few samples, which may miss a difference.
        """
        return None


class SourceAccess(SampleAccess):
    """Access to a source; a base class for formats.

    Where the iterator itself reads, pass it as ``source`` and set ``_keeps_access = False`` on its class: iterator and access
    would otherwise keep each other in memory. Accesses to one source are equal.

    Args:
        source: the iterator that reads; None where the access does.
    """

    def __init__(self, source: Any = None) -> None:
        self.source = source

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is type(self) and self.source is not None and self.source is other.source
        )

    def __hash__(self) -> int:
        return id(self) if self.source is None else id(self.source)


class OneToOneAccess(SampleAccess):
    """Access to samples that are each made of the one at the same position below; a base class for maps and encoders.

    It forwards blocks, places and prefetching. A subclass defines ``sample``.

    Args:
        below: what the samples are made of.
        keeps_values: whether values are unchanged, so that ``fixed_columns`` and ``releases_gil`` are those below.
    """

    def __init__(self, below: SampleAccess, *, keeps_values: bool = False) -> None:
        self.below, self._keeps_values = below, keeps_values

    prefers_blocks = property(attrgetter("below.prefers_blocks"))
    n_at_once = property(attrgetter("below.n_at_once"))
    n_samples = property(attrgetter("below.n_samples"))
    fixed_columns = property(lambda self: self._keeps_values and self.below.fixed_columns)
    releases_gil = property(lambda self: self._keeps_values and self.below.releases_gil)

    def each(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        return self.below.each(key, positions) if self._keeps_values else None

    def blocks(self) -> npt.NDArray[np.int64] | None:
        return self.below.blocks()

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self.below.prefetch(positions)

    def locate(self, position: int) -> str | None:
        return self.below.locate(position)


class KeepingAccess(OneToOneAccess):
    """Access to the samples below, which are kept once they were read: without samples, the columns are those below."""

    def empty_batch(self) -> Batch:
        return super().empty_batch() if self.n_samples else self.below.batch(np.empty(0, np.intp))

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self.below.declare_columns()


def parts_of(positions: IndexArrayOfInts, n_at_once: int) -> Iterator[IndexArrayOfInts]:
    """Positions in parts of at most ``n_at_once``; at least one part."""
    return (
        positions[start : start + n_at_once]
        for start in range(0, max(1, len(positions)), n_at_once)
    )


# ---------------------------------------------------------------------- access to any iterator

_SAMPLES = {"__getitem__", "__len__"}
METHODS = ("__iter__", "__getitems__", "read_batch", "read_column")


def public_methods(kind: type, called: str = "") -> frozenset[str] | None:
    """The public methods by which the samples of a class are read; None: by the access that it makes.

    A class that redefines any reading method above ``make_access`` is read through its public methods. If it redefines
    ``__getitem__`` or ``__len__``, its samples change: the other methods are then built on these, unless the same class or one
    above redefines them as well.

    Args:
        kind: the class.
        called: the method whose inherited version reads. A redefinition of it calls that by ``super()``, and is not asked again.
    """
    found: set[str] = set()
    for base in kind.__mro__:
        own = {*_SAMPLES, *METHODS}.intersection(vars(base))
        if "make_access" in vars(base):
            if found & _SAMPLES or not found:
                return frozenset(found) or None
            return None if called else frozenset(METHODS)
        if called not in own and not found & _SAMPLES:
            found |= own
    return frozenset(found)


def _new(column: Any) -> Any:
    """A copied column, as the client's class may keep the original."""
    return column.copy() if isinstance(column, np.ndarray) else column


class DefaultAccess(SampleAccess):
    """Access to an iterator by its public methods.

    Args:
        iterator: any ``DatasetIteratorIF``.
        methods: the public methods to call; the others are built on these, ``__getitem__`` and ``__len__``.
    """

    n_samples = property(lambda self: len(self._iterator))

    def __init__(self, iterator: Any, methods: Collection[str]) -> None:
        self._iterator, self._methods = iterator, methods

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DefaultAccess) and self._iterator is other._iterator

    def __hash__(self) -> int:
        return id(self._iterator)

    def sample(self, position: int) -> Any:
        try:
            return self._iterator[position]
        except StopIteration as error:
            raise stopped_by(type(self._iterator).__getitem__) from error

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        if "__getitems__" not in self._methods:
            return super().samples(positions)
        try:
            return self._iterator.__getitems__(positions.tolist())  # type: ignore[no-any-return]  # samples
        except StopIteration as error:
            raise stopped_by(type(self._iterator).__getitems__) from error

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if "read_batch" not in self._methods:
            return super().batch(positions)
        try:
            batch = self._iterator.read_batch(positions)
        except StopIteration as error:
            raise stopped_by(type(self._iterator).read_batch) from error
        return map_columns(_new, batch)  # type: ignore[no-any-return]  # a batch

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        if "read_column" in self._methods:
            try:
                return [_new(self._iterator.read_column(key, positions)) for key in keys]
            except StopIteration as error:
                raise stopped_by(type(self._iterator).read_column) from error
        keys = [self._iterator._column_key(key) for key in keys]
        if len(keys) > 1 and self.n_samples and "read_batch" in self._methods:
            batch = self.batch(
                np.arange(self.n_samples, dtype=np.intp) if positions is None else positions
            )
            if not isinstance(batch, np.ndarray):
                return [value_of(batch, key) for key in keys]
        return super().columns(keys, positions)

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        if "__iter__" in self._methods and start == 0:
            return iterate_all(self._iterator, stop)
        return super().iterate(start, stop)


def access_to(iterator: Any, called: str = "") -> SampleAccess:
    """The access of an iterator; :class:`DefaultAccess` where its class has none, or redefines a public reading method.

    Args:
        iterator: a ``DatasetIteratorIF``; of anything else see :func:`~data_stack.dataset.iterator.contract.as_iterator`.
        called: the public method whose inherited version reads, which a redefinition may call by ``super()``.
    """
    methods: frozenset[str] | None = iterator._public_methods[called]
    return own_access(iterator) if methods is None else DefaultAccess(iterator, methods)


def own_access(iterator: Any) -> SampleAccess:
    """The access from ``make_access``, also where a subclass redefines public methods; made on first use."""
    access: SampleAccess | None = iterator._sample_access
    if access is None:
        access = iterator.make_access()
        if iterator._keeps_access:
            iterator._sample_access = access
    return access


def stack_columns(samples: Any, keys: Sequence[int | str], access: SampleAccess) -> list[Column]:
    """Columns of samples of ``access``; without samples they have the dtype and shape of sample 0, or of an empty batch."""
    values: list[list[Any]] = [[] for _ in keys]
    for sample in samples:
        for key, column in zip(keys, values, strict=True):
            column.append(value_of(sample, key))
    if values and not values[0] and access.n_samples:
        first = access.sample(0)
        return [stack_values([value_of(first, key)])[:0] for key in keys]
    if values and not values[0] and len(batch := access.empty_batch()):
        return [value_of(batch, key) for key in keys]
    return [stack_values(column) for column in values]


# ---------------------------------------------------------------------- who may write into what is read


def detach(batch: Any) -> Any:
    """A batch that shares no memory with its source, so that its receiver may write into it.

    Accesses return new arrays. Parts of other arrays, such as those of a mapped file or of a reader's cache, are copied, and so
    are the values in columns of objects.
    """
    if isinstance(batch, dict):
        return {key: detach(column) for key, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple([detach(column) for column in batch])  # n-grams have batches in batches
    whole = (
        batch.base
        if isinstance(batch.base, np.ndarray) and batch.base.nbytes == batch.nbytes
        else batch
    )
    new = batch if batch.flags.writeable and whole.flags.owndata else batch.copy()
    return copy_objects(new) if new.dtype.hasobject else new
