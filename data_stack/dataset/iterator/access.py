"""The access to samples below the public methods, which layers and loaders read through."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.positions import IndexArrayOfInts, Positions
from data_stack.util.program_lines import warn_deprecated
from data_stack.values.copies import copy_value as copy_value  # for plugins
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import Batch, ColumnArray, empty_like, stack_samples, value_of

ColumnKey = Union[int, str]
"""Names a column: a position in tuple samples, a key of dict samples."""

#: Dtypes of declared columns whose values numpy holds as objects.
_DTYPES_OF_OBJECTS = frozenset(("str", "bytes", "object", "Decimal"))


class DeclaredColumn(NamedTuple):
    """A column as a schema declares it.

    Attributes:
        dtype: the name of the dtype of the values, such as ``"int32"``; None if only the values
            tell.
        shape: the shape of a value, with None for a dimension that varies; None if only the values
            tell.
        is_nullable: whether values may be missing.
        origin: what the column is in the library that it comes from, such as a type of Arrow's;
            None if unknown.
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    is_nullable: bool = False
    origin: Any = None

    @property
    def is_fixed(self) -> bool:
        """Whether all values have one dtype of numpy and one shape."""
        if self.dtype is None or self.dtype in _DTYPES_OF_OBJECTS:
            return False
        if self.is_nullable:
            return False
        return self.shape is not None and None not in self.shape


class DistinctValues(NamedTuple):
    """The distinct values of a column, in the order in which they appear.

    Attributes:
        values: each value once, in the form of a column, shape ``(n_distinct, ...)``.
        first: where each value appears first, ascending, shape ``(n_distinct,)``. The numbers are
            indices into the positions that were passed.
    """

    values: ColumnArray
    first: npt.NDArray[np.intp]


class SampleAccess(ABC):
    """Reads samples at positions that are checked already, and describes them.

    An iterator makes an access to itself
    (:meth:`~data_stack.dataset.iterator.AccessedDatasetIterator.make_access`). A layer holds the
    access of the iterator that it is stacked on (:func:`access_to`). A loader reads through the
    access of the top layer. Here is a whole layer, which a loader treats like those of data_stack::

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

    A subclass defines ``n_samples`` and ``sample``, and overrides what it can do faster or knows
    better. Positions are Python ints in ``[0, n_samples)``, or integer arrays of shape ``(n,)`` in
    that range, which must not be written to. Threads may share an access. An access is not pickled
    with its iterator, but made again.

    Attributes:
        n_samples: how many there are.
        fixed_columns: whether every batch has columns of one dtype and shape. Then reading only
            copies rows of arrays, and several batches may be read as one.
        releases_gil: whether reading mostly runs without the GIL, as image codecs do; then a loader
            uses threads.
        prefers_blocks: whether a random order takes many more requests to a remote store than an
            order by blocks.
        stacks_samples: whether a batch is the samples stacked, and costs as much as reading these
            one by one. Then a combination of many parts reads few samples of a part one by one.
        n_at_once: how many samples to read in one request where each is used by itself, as by a
            map. It is small where samples are decoded one by one, so that few are in memory. It has
            no limit where one request for many costs less.
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
        """Read one sample."""

    def make_sample_reader(self) -> Callable[[int], Any]:
        """Return a function that reads one sample, as :meth:`sample` does.

        A caller that reads many samples one by one makes one reader. An access overrides this where
        a function is faster than the method, or where it only forwards samples from below.
        """
        return self.sample

    def values_of_sample(self, position: int, keys: Sequence[int | str]) -> list[Any] | None:
        """Read the values of some columns of one sample, without reading the others.

        Returns:
            The values as :meth:`sample` has them; None where a sample is read as a whole.
        """
        return None

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        """Read the samples at ``positions``, in that order."""
        return [self.sample(position) for position in positions.tolist()]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        """Read the samples at ``positions`` as stacked columns.

        See ``DatasetIteratorIF.read_batch``.
        """
        if len(positions) == 0:
            return self.empty_batch()
        return stack_samples(self.samples(positions))

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        """Read several columns of the samples at ``positions`` (None: of all), in one request.

        See ``DatasetIteratorIF.read_column``.

        Raises:
            ConfigError: the samples have no such column.
        """
        if positions is None:
            return stack_columns(self.iterate(0, self.n_samples), keys, self)
        return stack_columns(self.samples(positions), keys, self)

    def iterate_column(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        """Iterate over the values of a column, each decoded when the iterator yields it.

        A map of the values then has one of them in memory at a time.

        Returns:
            The values; None where they are not decoded one by one.
        """
        return None

    def each(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        """Call :meth:`iterate_column`, which is its new name."""
        warn_deprecated(
            "SampleAccess.each()",
            instead="SampleAccess.iterate_column()",
            since="0.2",
            removed_in="1.0",
        )
        return self.iterate_column(key, positions)

    def distinct_values(
        self, key: int | str, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        """Find the distinct values of a column without making a Python object of each value.

        Two values are one value here exactly if Python compares them as equal.

        Args:
            key: the column.
            positions: the positions of the samples; None for all samples.

        Returns:
            The distinct values. None where this access cannot find them exactly; the caller then
            compares the values of :meth:`columns`.

        Raises:
            ConfigError: the samples have no such column.
        """
        return None

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[int | str] | None = None
    ) -> Batch | None:
        """Read several runs of consecutive samples, as windows need them.

        Args:
            starts: the first position of each run, shape ``(n,)``; all runs end at ``n_samples`` or
                before.
            length: the length of each run, at least 1.
            keys: the columns to read, in a tuple; None for all, in the form of a batch.

        Returns:
            Columns of shape ``(n, length, ...)``, which belong to the caller. None where nothing is
            faster than :meth:`batch` of all positions, or where columns are not always of one shape
            and of one dtype other than object. An access that returns columns for an empty array
            of ``starts`` returns columns for all ``starts``.

        Raises:
            ConfigError: the samples have no such column.
        """
        return None

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        """Iterate over the samples from ``start`` to ``stop``."""
        read = self.make_sample_reader()
        for position in range(start, stop):
            yield read(position)

    def empty_batch(self) -> Batch:
        """Return the columns of no samples, with the dtype and shape of those of sample 0.

        The batch of an empty iterator is ``()``.
        """
        if self.n_samples == 0:
            return ()
        return empty_like(self.batch(np.zeros(1, dtype=np.intp)))

    # ------------------------------------------------------------------ what is known of them

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Return the lengths of the blocks that are read as a whole.

        Returns:
            Shape ``(n_blocks,)``, of sum ``n_samples``; None without blocks.
        """
        return None

    def prefetch(  # noqa: B027  # most accesses have nothing to do
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        """Start to read, in the background, the blocks of samples that are needed soon.

        Args:
            positions: the positions of the samples, in the order in which they are needed; empty if
                no samples are needed soon, so that reads that have not begun may be cancelled.
            keys: the columns that will be read; None for those of the last request.
        """

    def locate(self, position: int) -> str | None:
        """Return where a sample is stored, for messages; None if unknown.

        An example is ``"row 3 of row group 0 of a.parquet"``.
        """
        return None

    def origins(self, position: int) -> Sequence[Origin]:
        """Return the samples of sources that a sample is made of, in their order in the sample.

        By default, this access is the source. A layer whose samples are made of others forwards
        the question, as :class:`OneToOneAccess` does; one that puts several together returns the
        origins of all. No sample is read.
        """
        return [Origin(position, location=self.locate(position))]

    def unwrap(self) -> tuple[SampleAccess, Positions | None]:
        """Return the access whose samples these are, and their positions in it.

        By default, that is this access itself. Layers that only rearrange samples return an access
        below, so that a stack of them is one request.

        Returns:
            An access, and the position in it of each sample here; None for all samples in order.
        """
        return self, None

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        """Return the columns of dict samples by a schema; None without a schema."""
        return None

    def content_fingerprint(self) -> Any:
        """Return plain data that identifies the samples of a source: the digests of its files.

        Together with the arguments of the source it decides the samples. Without it, a fingerprint
        holds a digest of a few samples, which may miss a difference.
        """
        return None


def split_positions(positions: IndexArrayOfInts, n_at_once: int) -> Iterator[IndexArrayOfInts]:
    """Yield ``positions`` in parts of at most ``n_at_once``, and at least one part."""
    n_positions = max(1, len(positions))
    for start in range(0, n_positions, n_at_once):
        yield positions[start : start + n_at_once]


def stack_columns(
    samples: Any, keys: Sequence[int | str], access: SampleAccess
) -> list[ColumnArray]:
    """Stack some columns of samples.

    Without samples, the columns have the dtype and shape of sample 0 of ``access``, or of its empty
    batch.

    Args:
        samples: an iterable of samples.
        keys: the columns.
        access: the access that reads the samples.

    Returns:
        For each key a column of shape ``(n_samples, ...)``.

    Raises:
        ConfigError: a sample has no such column.
    """
    values: list[list[Any]] = [[] for _ in keys]
    for sample in samples:
        for key, column in zip(keys, values, strict=True):
            column.append(value_of(sample, key))
    if not keys:
        return []
    if values[0]:
        return [stack_values(column) for column in values]
    if access.n_samples:
        first = access.sample(0)
        return [stack_values([value_of(first, key)])[:0] for key in keys]
    empty_batch = access.empty_batch()
    if len(empty_batch):
        return [value_of(empty_batch, key) for key in keys]
    return [stack_values(column) for column in values]
