"""All samples of an iterator, read once and kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Union

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    Batch,
    Column,
    ColumnKey,
    DatasetIteratorIF,
    Sample,
)
from data_stack.dataset.iterator.ownership import copy_objects, copy_value
from data_stack.dataset.iterator.registry import OPERATIONS, layer
from data_stack.dataset.iterator.sample_columns import (
    OBJECT,
    SampleStructure,
    ValueKind,
    kind_of,
    torch_module,
)
from data_stack.dataset.iterator.stacking import as_array, stack_values
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.recipe_values import content_digest, content_of
from data_stack.exception import DataStackError
from data_stack.io.progress import new_bar, shows_progress

__all__ = ["InMemoryDatasetIterator"]

# So many samples, or samples of so many bytes, are read before they are put into their columns.
_SAMPLES_AT_ONCE = 1024
_BYTES_AT_ONCE = 4 << 20


@layer("in_memory")
class InMemoryDatasetIterator(AccessedDatasetIterator):
    """The samples of ``dataset_iterator``, read from first to last when this is made, then kept as columns.

    Samples come back as they were read, type and all: tuples, lists, dicts with names for keys, bare values. A column whose
    values are all of one kind is one array: Python's bools, ints (of 64 bits), floats and complex numbers, numpy's scalars of one
    dtype, arrays of one dtype and shape, torch's tensors of one dtype and shape (without gradient, in this machine's memory). A
    million small samples then take the memory of their bytes, cost no Python objects, and stay shared with forked workers. Any
    other column, such as one of strings, is a list of what was read, and samples that differ in their structure are kept as they
    are.

    What it gives is the receiver's to write into: arrays, tensors, lists, dicts and sets are copies, at any depth, in samples
    and in batches. Only objects of other classes are those that were read; and a whole column of numbers is not copied, but
    read-only. Rows of a memory-mapped file become plain arrays.

    The iterator read from stays referenced, because ``underlying_iterators`` names it; with ``keep_source=False`` it is
    let go and ``underlying_iterators`` is empty. A pickle holds the samples only, so that it reaches workers even where
    the source has open files: there ``underlying_iterators`` is empty too.

    Args:
        dataset_iterator: what is read; any iterable of samples will do. One that has a length is read into columns of
            that length: at no time are the samples there twice.
        progress: a progress bar on stderr: True, False, or None for one if stderr is a terminal or this a notebook.
        keep_source: whether ``underlying_iterators`` names ``dataset_iterator``.
    """

    _known_fingerprint: str | None = None

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF | Iterable[Sample],
        *,
        progress: bool | None = False,
        keep_source: bool = True,
    ) -> None:
        samples: Iterable[Sample] = dataset_iterator
        if shows_progress(progress):
            samples = new_bar(samples, desc="Loading iterator to memory")
        self._underlying: list[Any] = [dataset_iterator] if keep_source else []
        try:
            n_expected = len(dataset_iterator)  # type: ignore[arg-type]  # of some iterables
        except TypeError:
            n_expected = 0
        self._samples = _read(samples, n_expected)

    def make_access(self) -> SampleAccess:
        return _ListAccess(self._samples) if isinstance(self._samples, list) else _ColumnarAccess(*self._samples)

    def __getstate__(self) -> dict[str, Any]:
        # the source stays behind, but what it is known by decides the fingerprint there too
        known = self._known_fingerprint or self._fingerprint_of_source()
        return {**super().__getstate__(), "_underlying": [], "_known_fingerprint": known}

    def _fingerprint_of_source(self) -> str | None:
        try:
            return OPERATIONS["fingerprint"](self) if self._stack_on() else None
        except DataStackError:  # that it cannot be described is no reason not to be pickled
            return None

    def stand_on(self, source: Sequence[Any]) -> None:
        """Put back the ``underlying_iterators`` that a pickle of this iterator left behind."""
        self._underlying = list(source)

    def _stack_on(self) -> list[DatasetIteratorIF]:
        return [source for source in self._underlying if isinstance(source, DatasetIteratorIF)]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that was read, unless it was let go."""
        return self._underlying


# ------------------------------------------------------------------ reading


def _read(samples: Iterable[Sample], n_expected: int) -> _Samples:
    """All of ``samples``, as columns if they have one structure."""
    source = iter(samples)
    block = list(itertools.islice(source, 1))
    if not block:
        return []
    structure = SampleStructure.of(block[0])
    split = structure.columns_of(block)
    if split is None or (structure.form == "bare" and kind_of(block) == OBJECT):
        return [*block, *source]
    kinds = list(map(kind_of, split))
    columns = [_ObjectColumn([]) if kind == OBJECT else _RowsColumn(kind, n_expected) for kind in kinds]
    row_bytes = sum(column.row_bytes for column in columns)
    at_once = max(1, min(_SAMPLES_AT_ONCE, _BYTES_AT_ONCE // max(1, row_bytes)))
    while block:
        split = structure.columns_of(block)
        if split is None:
            return [*structure.samples_of([column.at(range(len(column))) for column in columns]), *block, *source]
        for number, values in enumerate(split):
            column = columns[number]
            if isinstance(column, _ObjectColumn) or kind_of(values) == column.kind:
                column.extend(values)
            else:
                columns[number] = _ObjectColumn([*column.at(range(len(column))), *values])
        block = list(itertools.islice(source, at_once))
    if structure.form == "bare" and isinstance(columns[0], _ObjectColumn):
        return columns[0].values
    for column in columns:
        column.finish()
    return structure, columns


# ------------------------------------------------------------------ what is kept


class _ColumnarAccess(SampleAccess):
    """Access to samples kept as columns, as copies."""

    def __init__(self, structure: SampleStructure, columns: list[_Column]) -> None:
        self._structure, self._columns, self.n_samples = structure, columns, len(columns[0])
        # a closure takes half the time of a method
        self.sample = structure.reader([column.reader() for column in columns])  # type: ignore[method-assign, assignment]

    def sample(self, position: int) -> Sample:
        raise NotImplementedError  # each access has its own

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return self._structure.samples_of([column.at(positions.tolist()) for column in self._columns])

    def tell_content(self) -> Any:
        form = [self._structure.form, list(self._structure.keys)]
        return content_digest([form, [content_of(column.content(), of_samples=True) for column in self._columns]])

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self._structure.batch_of([column.stack(positions) for column in self._columns])

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        numbers = [self._structure.column_at(key) for key in keys]
        found = [self._columns[number].stack(positions) for number in numbers if number is not None]
        # bare values have no columns of ours, and the default knows what to say of others
        return found if len(found) == len(keys) else super().columns(keys, positions)

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        for first in range(start, stop, _SAMPLES_AT_ONCE):
            yield from self.samples(np.arange(first, min(first + _SAMPLES_AT_ONCE, stop)))


class _ListAccess(SampleAccess):
    """Access to samples kept as they are, as copies."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples, self.n_samples = samples, len(samples)

    def sample(self, position: int) -> Sample:
        return copy_value(self._samples[position])

    def tell_content(self) -> Any:
        return content_digest(content_of(self._samples, of_samples=True))


class _RowsColumn:
    """Values of one size, as rows of one array; with room for as many as are expected."""

    def __init__(self, kind: ValueKind, n_expected: int) -> None:
        self.kind, self._n_values = kind, 0
        try:
            self._rows = np.empty((n_expected, *kind.shape), kind.dtype)  # its memory is taken as it is written
        except (MemoryError, ValueError):  # so many there will not be
            self._rows = np.empty((1, *kind.shape), kind.dtype)
        self.row_bytes = math.prod(kind.shape) * int(kind.dtype.itemsize)

    def __len__(self) -> int:
        return self._n_values

    def extend(self, values: Sequence[Any]) -> None:
        stop = self._n_values + len(values)
        if stop > len(self._rows):
            larger = np.empty((max(stop, len(self._rows) * 5 // 4), *self.kind.shape), self.kind.dtype)
            larger[: self._n_values] = self._rows[: self._n_values]
            self._rows = larger
        if self.kind.name in ("array", "tensor"):
            np.stack(list(map(as_array, values)), out=self._rows[self._n_values : stop])
        else:
            self._rows[self._n_values : stop] = values
        self._n_values = stop

    def finish(self) -> None:
        if len(self._rows) > self._n_values:
            self._rows = self._rows[: self._n_values].copy()

    def reader(self) -> Any:
        """What gives a value by position."""
        name = self.kind.name
        if name in ("bool", "int", "float"):
            return self._rows.data  # gives a Python number, in half the time of item()
        if name == "complex":
            return self._rows.tolist()
        if name == "scalar":
            return self._rows
        return _Copies(torch_module().from_numpy(self._rows) if name == "tensor" else self._rows)

    def at(self, positions: Sequence[int]) -> list[Any]:
        return list(map(self.reader().__getitem__, positions))

    def stack(self, positions: IndexArrayOfInts | None) -> Column:
        if positions is None:
            column: Column = self._rows.view()
            column.flags.writeable = False
        else:
            column = self._rows.take(positions, axis=0)
        return column

    def content(self) -> list[Any]:
        """What tells the values from others."""
        return [self.kind.name, str(self.kind.dtype), list(self.kind.shape), self._rows]


class _ObjectColumn:
    """Values of any kinds, as they are."""

    kind, row_bytes = OBJECT, 0

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, values: Sequence[Any]) -> None:
        self.values += values

    def finish(self) -> None:
        """Nothing is reserved."""

    def reader(self) -> _Copies:
        return _Copies(self.values)

    def at(self, positions: Sequence[int]) -> list[Any]:
        return [copy_value(self.values[position]) for position in positions]

    def stack(self, positions: IndexArrayOfInts | None) -> Column:
        if positions is None:
            return copy_objects(stack_values(self.values))
        return stack_values(self.at(positions.tolist())) if len(positions) else stack_values(self.values[:1])[:0]

    def content(self) -> list[Any]:
        """What tells the values from others."""
        return self.values


class _Copies:
    """Values by position, for the receiver to write into."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __getitem__(self, index: int) -> Any:
        return copy_value(self._values[index, ...] if isinstance(self._values, np.ndarray) else self._values[index])


_Column = Union[_RowsColumn, _ObjectColumn]
_Samples = Union[list[Sample], tuple[SampleStructure, list[_Column]]]
