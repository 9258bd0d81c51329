"""All samples of an iterator, read once and kept."""

from __future__ import annotations

import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from data_stack.dataset.iterator.ownership import copied, copied_objects
from data_stack.dataset.iterator.registry import OPERATIONS, layer
from data_stack.dataset.iterator.sample_columns import (
    Rows,
    SampleStructure,
    ValueKind,
    accessible,
    kind_of,
    rows_of,
    stacked_rows,
    values_of,
)
from data_stack.dataset.iterator.stacking import stack_values
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DataStackError
from data_stack.io.progress import new_bar, shows_progress

__all__ = ["InMemoryDatasetIterator"]

# So many samples, or samples of so many bytes, are read before they are put into their columns.
_SAMPLES_AT_ONCE = 1024
_BYTES_AT_ONCE = 4 << 20

# Columns of unknown length grow by this. realloc moves pages instead of copying them, but what is added is touched.
_GROWTH = 1.25

_STR, _BYTES = ValueKind("str"), ValueKind("bytes")


@layer("in_memory")
class InMemoryDatasetIterator(AccessedDatasetIterator):
    """The samples of ``dataset_iterator``, read from first to last when this is made, then kept as columns.

    Samples come back as they were read, type and all: tuples, lists, dicts with names for keys, named tuples, bare values.
    A column whose values are all of one kind is one array: Python's bools, ints (of 64 bits), floats and complex numbers,
    numpy's scalars of one dtype, arrays of one dtype and shape, torch's tensors of one dtype and shape (without gradient,
    in this machine's memory). Strings, and bytes, lie end to end. A million small samples then take the memory of their
    bytes, cost no Python objects, and stay shared with forked workers. Any other column is a list of what was read, and
    samples that differ in their structure are kept as they are.

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
        self._keep(_read(samples, _length_of(dataset_iterator)))

    def _keep(self, samples: _Samples) -> None:
        self._samples = samples
        self._sample_access = None

    def make_access(self) -> SampleAccess:
        samples = self._samples
        return _ColumnarAccess(samples) if isinstance(samples, _ColumnarSamples) else _ListAccess(samples)

    def __getstate__(self) -> dict[str, Any]:
        # the source stays behind, but what it is known by decides the fingerprint there too
        known = self._known_fingerprint or self._fingerprint_of_source()
        return {**super().__getstate__(), "_underlying": [], "_known_fingerprint": known}

    def _fingerprint_of_source(self) -> str | None:
        try:
            return OPERATIONS["fingerprint"](self) if self._stacked_on() else None
        except DataStackError:  # that it cannot be described is no reason not to be pickled
            return None

    def stand_on(self, source: Sequence[Any]) -> None:
        """Put back the ``underlying_iterators`` that a pickle of this iterator left behind."""
        self._underlying = list(source)

    def _arguments(self) -> dict[str, Any]:
        if self._stacked_on():
            return {}
        return {"samples": self._samples.described() if isinstance(self._samples, _ColumnarSamples) else self._samples}

    def _stacked_on(self) -> list[DatasetIteratorIF]:
        return [source for source in self._underlying if isinstance(source, DatasetIteratorIF)]

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        if underlying:
            return cls(*underlying, **arguments)
        rebuilt = cls((), keep_source=False)
        samples = arguments["samples"]
        rebuilt._keep(_ColumnarSamples.of_description(samples) if isinstance(samples, Mapping) else list(samples))
        return rebuilt

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that was read, unless it was let go."""
        return self._underlying


# ------------------------------------------------------------------ samples as columns


class _ColumnarSamples:
    """Samples of one structure, at least one, as a column for each of their parts."""

    def __init__(self, structure: SampleStructure, columns: list[_KeptColumn]) -> None:
        self.structure, self.columns = structure, columns
        self._n_samples = len(columns[0])

    def __len__(self) -> int:
        return self._n_samples

    def between(self, first: int, end: int) -> Iterator[Sample]:
        """Consecutive samples."""
        for start in range(first, end, _SAMPLES_AT_ONCE):
            stop = min(start + _SAMPLES_AT_ONCE, end)
            yield from self.structure.samples_of([column.between(start, stop) for column in self.columns])

    def reader(self) -> Callable[[int], Sample]:
        return self.structure.reader([column.accessible() for column in self.columns])

    def at(self, positions: IndexArrayOfInts) -> list[Sample]:
        return self.structure.samples_of([column.at(positions) for column in self.columns])

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self.structure.batch_of([column.stacked(positions) for column in self.columns])

    def described(self) -> dict[str, Any]:
        """All of it as arrays, lists and names."""
        structure = self.structure
        return {
            "form": structure.form,
            "keys": list(structure.keys),
            "made_by": structure.made_by,
            "columns": [{"kind": column.kind.name, **column.described()} for column in self.columns],
        }

    @classmethod
    def of_description(cls, description: Mapping[str, Any]) -> _ColumnarSamples:
        """What :meth:`described` described.

        Raises:
            ConfigError: it describes no samples; a recipe may be anyone's.
        """
        try:
            columns = [_column_of_description(**column) for column in description["columns"]]
            keys, made_by = tuple(description["keys"]), description["made_by"]
            structure = SampleStructure(description["form"], len(columns), keys, made_by)
            samples = cls(structure, columns)
            if len({len(column) for column in columns}) != 1 or not len(samples):
                raise ValueError(f"columns of {[len(column) for column in columns]} values")
            if structure != SampleStructure.of(samples.reader()(0)) and structure.form != "bare":
                raise ValueError(f"no samples are {structure}")
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise ConfigError(f"this describes no samples of an in-memory iterator ({str(error)[:200]})") from error
        return samples


class _ColumnarAccess(SampleAccess):
    """Access to samples kept as columns, as copies."""

    def __init__(self, samples: _ColumnarSamples) -> None:
        self._samples, self.n_samples = samples, len(samples)
        self.sample = samples.reader()  # type: ignore[method-assign, assignment]  # a closure takes half the time of a method

    def sample(self, position: int) -> Sample:
        return self._samples.reader()(position)

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return self._samples.at(positions)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self._samples.batch(positions)

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        numbers = [self._samples.structure.column_at(key) for key in keys]
        found = [self._samples.columns[number].stacked(positions) for number in numbers if number is not None]
        # bare values have no columns of ours, and the default knows what to say of others
        return found if len(found) == len(keys) else super().columns(keys, positions)

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return self._samples.between(start, stop)


class _ListAccess(SampleAccess):
    """Access to samples kept as they are, as copies."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples, self.n_samples = samples, len(samples)

    def sample(self, position: int) -> Sample:
        return copied(self._samples[position])


_Samples = Union[list[Sample], _ColumnarSamples]


def _length_of(samples: Any) -> int:
    """How many samples there will be, as far as that can be known; 0 otherwise."""
    try:
        return len(samples)
    except TypeError:
        return 0


def _read(samples: Iterable[Sample], n_expected: int) -> _Samples:
    """All of ``samples``, as columns if they have one structure."""
    source = iter(samples)
    block = list(itertools.islice(source, 1))
    if not block:
        return []
    structure = SampleStructure.of(block[0])
    split = structure.columns_of(block)
    if split is None or (structure.form == "bare" and kind_of(block) == _ObjectColumn.kind):
        return [*block, *source]
    columns = [_column_for(kind_of(values), n_expected) for values in split]
    row_bytes = sum(column.kind.row_bytes for column in columns if column.kind.is_fixed)
    at_once = max(1, min(_SAMPLES_AT_ONCE, _BYTES_AT_ONCE // max(1, row_bytes)))
    while block:
        split = structure.columns_of(block)
        if split is None:
            kept = structure.samples_of([column.released() for column in columns])
            return [*kept, *block, *source]
        for number, values in enumerate(split):
            if not columns[number].extended(values):
                columns[number] = _ObjectColumn([*columns[number].released(), *values])
        block = list(itertools.islice(source, at_once))
    if structure.form == "bare" and isinstance(columns[0], _ObjectColumn):
        return columns[0].released()
    for column in columns:
        column.finish()
    return _ColumnarSamples(structure, columns)


class _KeptColumn(ABC):
    """The values of one column, all of one kind. First it is extended, then finished, then read."""

    kind: ValueKind

    @abstractmethod
    def __len__(self) -> int:
        """Number of values."""

    @abstractmethod
    def extended(self, values: Sequence[Any]) -> bool:
        """Whether ``values`` are of the column's kind, and now in it; otherwise it is as it was."""

    def finish(self) -> None:  # noqa: B027  # most have nothing to do
        """Let go of what was reserved for more values."""

    @abstractmethod
    def released(self) -> list[Any]:
        """All values, none of which keeps the column's memory alive."""

    @abstractmethod
    def accessible(self) -> Any:
        """What gives a value by position."""

    @abstractmethod
    def between(self, start: int, stop: int) -> list[Any]:
        """Consecutive values."""

    def at(self, positions: IndexArrayOfInts) -> list[Any]:
        """Values by position."""
        values = self.accessible()
        return [values[position] for position in positions.tolist()]

    @abstractmethod
    def stacked(self, positions: IndexArrayOfInts | None) -> Column:
        """What :func:`stack_values` makes of the values at ``positions``, of all for None."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """The values, and what of their kind they do not say themselves."""


class _RowsColumn(_KeptColumn):
    """Values of one size, as rows of one array."""

    def __init__(self, kind: ValueKind, rows: Rows) -> None:
        self.kind, self._rows, self._n_values = kind, rows, len(rows)

    @classmethod
    def reserved(cls, kind: ValueKind, n_expected: int) -> _RowsColumn:
        """An empty column with room for ``n_expected`` values."""
        column = cls(kind, _reserved((n_expected, *kind.row_shape), kind.row_dtype))
        column._n_values = 0
        return column

    def __len__(self) -> int:
        return self._n_values

    def extended(self, values: Sequence[Any]) -> bool:
        if kind_of(values) != self.kind:
            return False
        stop = self._n_values + len(values)
        _make_room(self._rows, stop)
        rows_of(self.kind, values, self._rows[self._n_values : stop])
        self._n_values = stop
        return True

    def finish(self) -> None:
        _cut(self._rows, self._n_values)

    def released(self) -> list[Any]:
        rows = self._rows[: self._n_values]
        if self.kind.name == "tensor":
            return [tensor.clone() for tensor in values_of(self.kind, rows)]
        return [row.copy() for row in values_of(self.kind, rows)] if self.kind.name == "array" else values_of(self.kind, rows)

    def accessible(self) -> Any:
        values = accessible(self.kind, self._rows)
        if self.kind.name == "array":
            return _ArrayCopies(values)
        return _Copies(values) if self.kind.name == "tensor" else values

    def between(self, start: int, stop: int) -> list[Any]:
        return list(map(copied, values_of(self.kind, self._rows[start:stop])))

    def at(self, positions: IndexArrayOfInts) -> list[Any]:
        if self.kind.name in ("array", "tensor"):
            return super().at(positions)  # each by itself: what is kept of one keeps no others alive
        return values_of(self.kind, self._rows.take(positions, axis=0))

    def stacked(self, positions: IndexArrayOfInts | None) -> Column:
        if positions is not None:
            return stacked_rows(self.kind, self._rows.take(positions, axis=0))
        column: Column = stacked_rows(self.kind, self._rows).view()
        if column.dtype == object:  # tensors of a dtype that numpy lacks
            return copied_objects(column)
        column.flags.writeable = False
        return column

    def described(self) -> dict[str, Any]:
        if self.kind.name == "tensor":
            return {"values": self._rows, "dtype": self.kind.dtype, "shape": list(self.kind.shape)}
        return {"values": self._rows}


class _TextColumn(_KeptColumn):
    """Strings or bytes, end to end."""

    def __init__(self, kind: ValueKind, n_expected: int) -> None:
        self.kind = kind
        self._data = bytearray()
        self._n_values = 0
        self._ends = _reserved((n_expected + 1,), np.dtype(np.int64))  # where each value ends, after a 0
        self._ends[0] = 0

    def __len__(self) -> int:
        return self._n_values

    def extended(self, values: Sequence[Any]) -> bool:
        if kind_of(values) != self.kind:
            return False
        if self.kind.name == "str":
            values = [value.encode("utf-8", "surrogatepass") for value in values]  # any string Python can have
        start, stop = self._n_values, self._n_values + len(values)
        _make_room(self._ends, stop + 1)
        self._ends[start + 1 : stop + 1] = np.cumsum(list(map(len, values)), dtype=np.int64) + len(self._data)
        self._data += b"".join(values)
        self._n_values = stop
        return True

    def finish(self) -> None:
        _cut(self._ends, self._n_values + 1)

    def released(self) -> list[Any]:
        return self.between(0, self._n_values)

    def accessible(self) -> _Texts | _Bytes:
        return (_Texts if self.kind.name == "str" else _Bytes)(self._data, self._ends)

    def between(self, start: int, stop: int) -> list[Any]:
        values = self.accessible()
        return [values[position] for position in range(start, stop)]

    def stacked(self, positions: IndexArrayOfInts | None) -> Column:
        return _objects(self.released() if positions is None else self.at(positions))

    def described(self) -> dict[str, Any]:
        return {"values": self.released()}


class _Bytes:
    """Bytes by position."""

    def __init__(self, data: bytearray, ends: Rows) -> None:
        self._data, self._ends = memoryview(data), ends.data

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._data[self._ends[index] : self._ends[index + 1]])


class _Texts(_Bytes):
    """Strings by position."""

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # the same of strings
        return str(self._data[self._ends[index] : self._ends[index + 1]], "utf-8", "surrogatepass")


class _NoneColumn(_KeptColumn):
    """Nothing but None."""

    kind = ValueKind("none")

    def __init__(self, n_values: int = 0) -> None:
        self._n_values = n_values

    def __len__(self) -> int:
        return self._n_values

    def extended(self, values: Sequence[Any]) -> bool:
        if kind_of(values) != self.kind:
            return False
        self._n_values += len(values)
        return True

    def released(self) -> list[Any]:
        return [None] * self._n_values

    def accessible(self) -> _Nones:
        return _Nones()

    def between(self, start: int, stop: int) -> list[Any]:
        return [None] * (stop - start)

    def stacked(self, positions: IndexArrayOfInts | None) -> Column:
        return np.empty(self._n_values if positions is None else len(positions), dtype=object)

    def described(self) -> dict[str, Any]:
        return {"values": self._n_values}


class _Nones:
    """None at every position."""

    def __getitem__(self, index: int) -> None:
        return None


class _ObjectColumn(_KeptColumn):
    """Values of any kinds, as they are."""

    kind = ValueKind("object")

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def extended(self, values: Sequence[Any]) -> bool:
        self._values += values
        return True

    def released(self) -> list[Any]:
        return self._values

    def accessible(self) -> _Copies:
        return _Copies(self._values)

    def between(self, start: int, stop: int) -> list[Any]:
        return list(map(copied, self._values[start:stop]))

    def stacked(self, positions: IndexArrayOfInts | None) -> Column:
        if positions is None:
            return copied_objects(stack_values(self._values))
        return stack_values(self.at(positions)) if len(positions) else stack_values(self._values[:1])[:0]

    def described(self) -> dict[str, Any]:
        return {"values": self._values}


class _Copies:
    """Values by position, for the receiver to write into."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __getitem__(self, index: int) -> Any:
        return copied(self._values[index])


class _ArrayCopies(_Copies):
    """The same of arrays, in half the time."""

    def __getitem__(self, index: int) -> Any:
        return self._values[index].copy()


def _column_for(kind: ValueKind, n_expected: int) -> _KeptColumn:
    """An empty column for values of that kind."""
    if kind.is_fixed:
        return _RowsColumn.reserved(kind, n_expected)
    if kind.name in ("str", "bytes"):
        return _TextColumn(kind, n_expected)
    return _NoneColumn() if kind.name == "none" else _ObjectColumn([])


def _column_of_description(kind: str, values: Any, dtype: str | None = None, shape: Sequence[int] = ()) -> _KeptColumn:
    """The column that was described so.

    Raises:
        TypeError, ValueError, LookupError, AttributeError: no column is such.
    """
    if kind == "none":
        return _NoneColumn(operator.index(values))
    column: _KeptColumn
    if isinstance(values, np.ndarray):
        of_rows = ValueKind(kind, values.dtype, values.shape[1:])
        column = _RowsColumn(ValueKind(kind, dtype, tuple(shape)) if kind == "tensor" else of_rows, values)
        first = values_of(column.kind, values[:1])
        if values.shape[1:] != column.kind.row_shape or (first and kind_of(first) != column.kind):
            raise ValueError(f"values of dtype {values.dtype} and shape {values.shape} for a column of kind {kind!r:.40}")
        return column
    column = _ObjectColumn([]) if kind == "object" else _TextColumn({"str": _STR, "bytes": _BYTES}[kind], len(values))
    if not column.extended(list(values)):
        raise ValueError(f"values of other kinds for a column of kind {kind!r:.40}")
    column.finish()
    return column


def _reserved(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Rows:
    """An array whose memory is taken as it is written."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):  # so many there will not be
        return np.empty((1, *shape[1:]), dtype)


def _make_room(rows: Rows, n_rows: int) -> None:
    """Let an array have at least so many rows."""
    if n_rows > len(rows):
        # Nothing refers to the memory yet. numpy cannot know: a debugger may refer to anything.
        rows.resize((max(n_rows, int(_GROWTH * len(rows))), *rows.shape[1:]), refcheck=False)


def _cut(rows: Rows, n_rows: int) -> None:
    """Let an array have so many rows, and no memory for more."""
    if n_rows < len(rows):
        rows.resize((n_rows, *rows.shape[1:]), refcheck=False)


def _objects(values: list[Any]) -> Column:
    """Strings or bytes as an array of objects."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
