"""All samples of an iterator, read once and kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Union

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, Batch, Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.dataset.iterator.ownership import copy_objects, copy_value
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.sample_columns import (
    OBJECT,
    SampleStructure,
    ValueKind,
    estimate_bytes,
    kind_of,
    torch_module,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.recipe_values import content_digest, content_of
from data_stack.exception import DataStackError
from data_stack.io.progress import new_bar, shows_progress
from data_stack.values.stacking import as_array, stack_values

# Number of samples, or of their bytes, to read before they are copied into columns.
_SAMPLES_AT_ONCE = 1024
_BYTES_AT_ONCE = 4 << 20


@layer("in_memory")
class InMemoryDatasetIterator(AccessedDatasetIterator):
    """The samples of ``dataset_iterator``, read from first to last when this is made, then kept as columns.

    Samples come back as they were read, type and all. Of tuples, dicts with strings for keys, and bare values, a column of one
    kind is one array: Python's bools, ints (of 64 bits) and floats, numpy's scalars of one dtype, arrays of one dtype and shape,
    torch's tensors of one dtype and shape (without gradient, on the CPU). A million small samples then take the memory of their
    bytes, and stay shared with forked workers. Other columns, such as strings, are lists; samples of different structures, and
    lists, are kept as they are.

    Samples and batches may be written to: arrays, tensors, lists, dicts and sets are copies, at any depth. Objects of other
    classes are not copied; a whole column of numbers is not copied either, but read-only. Rows of a memory-mapped file become
    plain arrays.

    The iterator read from stays referenced, because ``underlying_iterators`` names it; with ``keep_source=False`` it is
    let go and ``underlying_iterators`` is empty. A pickle holds the samples only, so that it reaches workers even where
    the source has open files: there ``underlying_iterators`` is empty too.

    Args:
        dataset_iterator: what is read; any iterable of samples. One with a length is read into columns of that length, so that
            memory holds the samples only once.
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
        self._underlying: list[Any] = [dataset_iterator] if keep_source else []
        sized: Any = dataset_iterator if hasattr(dataset_iterator, "__len__") else list(dataset_iterator)
        n_samples = len(sized)
        self._samples = _read(new_bar(sized, desc="Loading iterator to memory") if shows_progress(progress) else sized, n_samples)

    def make_access(self) -> SampleAccess:
        return _ListAccess(self._samples) if isinstance(self._samples, list) else _ColumnarAccess(*self._samples)

    def __getstate__(self) -> dict[str, Any]:
        # the source is not pickled; its fingerprint is
        known = self._known_fingerprint or self._fingerprint_of_source()
        return {**super().__getstate__(), "_underlying": [], "_known_fingerprint": known}

    def _fingerprint_of_source(self) -> str | None:
        try:  # not self.fingerprint(): a client's class may have another method of that name
            return FluentIterator.fingerprint(self) if self._stack_on() else None
        except DataStackError:  # it can be pickled without
            return None

    def attach_source(self, source: Sequence[Any]) -> None:
        """Put back the ``underlying_iterators`` that a pickle of this iterator left behind."""
        self._underlying = list(source)

    def _stack_on(self) -> list[DatasetIteratorIF]:
        return [source for source in self._underlying if isinstance(source, DatasetIteratorIF)]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that was read, unless it was let go."""
        return self._underlying


# ------------------------------------------------------------------ reading


def _read(samples: Iterable[Sample], n_samples: int) -> _Samples:
    """The first ``n_samples`` of ``samples``, as columns if they have one structure."""
    source = itertools.islice(samples, n_samples)
    block = list(itertools.islice(source, 1))
    if not block:
        return []
    structure = SampleStructure.of(block[0])
    split = structure.columns_of(block)
    if split is None or (structure.form == "bare" and kind_of(block) == OBJECT):
        return [*block, *source]
    columns = [_Column(kind_of(values), n_samples) for values in split]
    at_once = max(1, min(_SAMPLES_AT_ONCE, _BYTES_AT_ONCE // estimate_bytes(block[0])))
    while block:
        split = structure.columns_of(block)
        if split is None:
            return [*structure.samples_of([column.at(range(column.n_values)) for column in columns]), *block, *source]
        for number, values in enumerate(split):
            column = columns[number]
            if column.kind not in (OBJECT, kind_of(values)):
                columns[number] = _Column(OBJECT, 0)
                columns[number].extend(column.at(range(column.n_values)))
            columns[number].extend(values)
        block = list(itertools.islice(source, at_once))
    if structure.form == "bare" and columns[0].kind == OBJECT:
        return columns[0].values  # type: ignore[no-any-return]  # a list
    for column in columns:
        column.values = column.values[: column.n_values]
    return structure, columns


# ------------------------------------------------------------------ what is kept


class _ColumnarAccess(SampleAccess):
    """Access to samples kept as columns, as copies."""

    def __init__(self, structure: SampleStructure, columns: list[_Column]) -> None:
        self._structure, self._columns, self.n_samples = structure, columns, columns[0].n_values
        # a closure takes half the time of a method
        self.sample = structure.reader([column.reader() for column in columns])  # type: ignore[method-assign, assignment]

    def sample(self, position: int) -> Sample:
        raise NotImplementedError  # each access has its own

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return self._structure.samples_of([column.at(positions.tolist()) for column in self._columns])

    def content_fingerprint(self) -> Any:
        columns = [[column.kind.name, column.values] for column in self._columns]
        return content_digest(content_of([self._structure.form, list(self._structure.keys), columns], of_samples=True))

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

    def content_fingerprint(self) -> Any:
        return content_digest(content_of(self._samples, of_samples=True))


class _Column:
    """The values of a column: rows of one array where they are of one kind, otherwise a list of them as they are."""

    def __init__(self, kind: ValueKind, most_values: int) -> None:
        self.kind, self.n_values = kind, 0
        self.values: Any = [] if kind == OBJECT else np.empty((most_values, *kind.shape), kind.dtype)

    def extend(self, values: Sequence[Any]) -> None:
        """Add values of that kind."""
        start, self.n_values = self.n_values, self.n_values + len(values)
        if self.kind == OBJECT:
            self.values += values
        elif self.kind.name in ("array", "tensor"):
            np.stack(list(map(as_array, values)), out=self.values[start : self.n_values])
        else:
            self.values[start : self.n_values] = values

    def reader(self) -> Any:
        """An object that returns a value by position."""
        if self.kind.name in ("bool", "int", "float"):
            return self.values.data  # returns a Python number, in half the time of item()
        if self.kind.name == "scalar":
            return self.values
        return _Copies(torch_module().from_numpy(self.values) if self.kind.name == "tensor" else self.values)

    def at(self, positions: Sequence[int]) -> list[Any]:
        """Several values."""
        return list(map(self.reader().__getitem__, positions))

    def stack(self, positions: IndexArrayOfInts | None) -> Column:
        """Several values, or all, as a column of a batch."""
        if self.kind == OBJECT:
            if positions is None:
                return copy_objects(stack_values(self.values))
            return stack_values(self.at(positions.tolist())) if len(positions) else stack_values(self.values[:1])[:0]
        if positions is not None:
            return self.values.take(positions, axis=0)  # type: ignore[no-any-return]  # an array
        column: Column = self.values.view()
        column.flags.writeable = False
        return column


class _Copies:
    """Values by position, for the receiver to write into."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __getitem__(self, index: int) -> Any:
        return copy_value(self._values[index, ...] if isinstance(self._values, np.ndarray) else self._values[index])


_Samples = Union[list[Sample], tuple[SampleStructure, list[_Column]]]
