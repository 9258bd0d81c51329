"""Builds samples from columns that are opened at the first access."""

from __future__ import annotations

import functools
import itertools
import math
import mmap
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    Batch,
    ColumnKey,
    Sample,
    SampleAccess,
    SourceAccess,
)
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceChangedError
from data_stack.formats.remote import RemoteAccess
from data_stack.io.content import contents_of_resources
from data_stack.io.local_files import map_file, most_open_files
from data_stack.io.location import is_path
from data_stack.io.positional import PositionalFile
from data_stack.io.versions import LocalVersion, local_version_of
from data_stack.util.forks import fork_lock
from data_stack.values.stacked_values import python_values, stack_values
from data_stack.values.stacking import SampleForm, all_columns, take_runs

#: Ranges this close are fetched together: a request costs about as much as this number of bytes.
_GAP_BYTES = 1 << 14
#: Maximum size of a request, so that a large batch is not in memory twice.
_REQUEST_BYTES = 16 << 20


class Column(ABC):
    """One value for each sample."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of values."""

    @abstractmethod
    def value(self, index: int) -> Any:
        """The value at ``index`` in ``[0, len(self))``; the caller's own."""

    @abstractmethod
    def read(self, indices: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        """The values at ``indices``, each in ``[0, len(self))``, stacked; all values for None. The caller's own."""

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        """What :meth:`value` returns for each of ``indices``, in one request."""
        rows = self.read(_wide(indices))
        return list(rows) if rows.ndim > 1 else python_values(rows)

    def runs(self, starts: IndexArrayOfInts, length: int) -> npt.NDArray[Any] | None:
        """``length`` consecutive values from each of ``starts`` on, shape ``(n, length, ...)``, the caller's own.

        None where :meth:`read` is as fast, or dtype and shape depend on which values are read, or are objects.
        """
        return None

    remote_bytes: int = 0
    """Size of each value in bytes if it is read by range from a store; 0 if it is local, or its size is unknown."""

    def fetch(self, places: range) -> None:  # noqa: B027  # most have nothing to fetch
        """Fetch neighbouring values from a store into its cache."""

    def declare(self) -> DeclaredColumn | None:
        """The column's declaration in a schema; None without a schema."""
        return None


class ArrayColumn(Column):
    """A column in memory, shape ``(n_samples, ...)``; values of a 1-dimensional column are Python scalars."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def value(self, index: int) -> Any:
        value = self._array[index]
        # A copy, so that changing a sample does not change the dataset; .item() for labels that hash and compare like Python's.
        if isinstance(value, np.ndarray):
            return value.copy()
        return python_values(value) if isinstance(value, np.generic) else value

    def read(self, indices: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        return self._array.copy() if indices is None else self._array[indices]

    def runs(self, starts: IndexArrayOfInts, length: int) -> npt.NDArray[Any] | None:
        return None if self._array.dtype.hasobject else take_runs(self._array, starts, length)


#: Those of columns.
_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class StoredRowsColumn(Column):
    """The rows of an array in C order, read on demand; the rows of a batch in one request if the store supports it.

    Args:
        file: the file of the array.
        offset: offset of the first row in bytes.
        shape: shape of the array; at least one dimension.
        dtype: dtype of the array.
        mapped: map a file of a local store into memory.
    """

    def __init__(
        self,
        file: PositionalFile,
        offset: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        mapped: bool = False,
    ) -> None:
        self._file, self._offset, self._length = file, offset, shape[0]
        self._row_shape, self._dtype = shape[1:], dtype
        self._row_bytes = math.prod(self._row_shape) * dtype.itemsize
        self._mapped: npt.NDArray[Any] | None = None
        n_bytes = self._length * self._row_bytes
        # A file that a caller has open may be cut short, and reading the missing part of a map ends the process. Each map keeps
        # a descriptor open.
        if mapped and n_bytes and file.resource.is_sealed and len(_maps) < most_open_files():
            data = map_file(file.resource, file.size)
            if data is not None and offset + n_bytes <= file.size:
                _maps.add(data)
                self._mapped = np.ndarray(shape, dtype, data, offset)

    def __len__(self) -> int:
        return self._length

    remote_bytes = property(lambda self: self._row_bytes if self._file.resource.prefetches else 0)

    def fetch(self, places: range) -> None:
        self._file.resource.prefetch(
            [(self._offset + places.start * self._row_bytes, len(places) * self._row_bytes)]
        )

    def value(self, index: int) -> Any:
        row = self._run(index, 1)[0]
        return row if self._row_shape else python_values(row)

    def read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        if indices is None:
            return self._run(0, self._length)
        if len(indices) and (np.diff(indices) == 1).all():
            return self._run(int(indices[0]), len(indices))
        if (mapped := self._rows()) is not None:
            # take() is faster, but first copies an array of rows that are not aligned
            return mapped.take(indices, axis=0) if mapped.flags.aligned else mapped[indices]
        return self._fetch(indices, 1)[:, 0]

    def runs(self, starts: IndexArrayOfInts, length: int) -> npt.NDArray[Any]:
        mapped = self._rows()
        return self._fetch(starts, length) if mapped is None else take_runs(mapped, starts, length)

    def _rows(self) -> npt.NDArray[Any] | None:
        """All rows, mapped; None if they are not."""
        if self._mapped is not None:
            self._file.check_usable()
        return self._mapped

    def _run(self, first: int, count: int) -> npt.NDArray[Any]:
        """Read consecutive rows into a new array."""
        if (mapped := self._rows()) is not None:
            copied: npt.NDArray[Any] = mapped[first : first + count].copy()
            return copied
        values = np.empty(count * self._row_bytes, np.uint8)
        offset = self._offset + first * self._row_bytes
        n_read = self._file.readinto_at(offset, values.data)
        if n_read != len(values):
            raise _cut_short(self._file, offset, offset + len(values))
        rows: npt.NDArray[Any] = np.ndarray((count, *self._row_shape), self._dtype, values.data)
        return rows

    def _fetch(self, firsts: IndexArrayOfInts, count: int) -> npt.NDArray[Any]:
        """Read ``count`` rows from each of ``firsts`` on into a new array, shape ``(n, count, ...)``."""
        n_bytes = count * self._row_bytes
        n_runs, n_at_once = len(firsts), max(1, _REQUEST_BYTES // max(1, n_bytes))
        rows: npt.NDArray[Any] = np.empty((n_runs, count, *self._row_shape), self._dtype)
        for start in range(0, n_runs if n_bytes else 0, n_at_once):
            begins = self._offset + firsts[start : start + n_at_once] * self._row_bytes
            data = b"".join(read_together(self._file, begins, begins + n_bytes))
            rows[start : start + n_at_once] = np.ndarray(
                (len(begins), *rows.shape[1:]), self._dtype, data
            )
        return rows


def read_together(
    file: PositionalFile, starts: IndexArrayOfInts, ends: IndexArrayOfInts
) -> list[bytes]:
    """The bytes of some ranges of a file, in one request if the store supports it; what lies close together is one range of it.

    Raises:
        DatasetFileCorruptError: the file ends before.
    """
    order = np.argsort(starts, kind="stable")
    firsts, lasts = starts[order], np.maximum.accumulate(ends[order])
    breaks = np.flatnonzero(firsts[1:] > lasts[:-1] + _GAP_BYTES) + 1
    runs = list(itertools.pairwise([0, *breaks.tolist(), len(order)])) if len(order) else []
    spans = [(int(firsts[first]), int(lasts[stop - 1])) for first, stop in runs]
    found = [b""] * len(order)
    pieces = file.read_ranges([(start, end - start) for start, end in spans])
    for (start, end), piece, (first, stop) in zip(spans, pieces, runs, strict=True):
        if len(piece) != end - start:
            raise _cut_short(file, start, end)
        for index in order[first:stop].tolist():
            found[index] = piece[int(starts[index]) - start : int(ends[index]) - start]
    return found


def _cut_short(file: PositionalFile, start: int, end: int) -> DatasetFileCorruptError:
    return DatasetFileCorruptError(
        f"{file.name!r} is cut short: it ends within the bytes {start:,} to {end:,}"
    )


class ColumnsDatasetIterator(AccessedDatasetIterator):
    """Samples from columns: a tuple with a value per column, or a dict if the columns have names.

    Columns are opened on the first access to a sample or the length. Threads may share an iterator; it pickles as its
    arguments, so that spawned workers open the columns themselves.

    Args:
        columns: the sources of the columns, in a sequence for tuple samples or in a mapping ``{field: source}`` for dict
            samples. A source may occur several times (as target and tag); it is opened once.

    Raises:
        DatasetFileCorruptError: at the first access, if the columns have different lengths.
    """

    _keeps_access = False

    #: Whether opened columns belong to the process that opened them; a forked child then opens its own.
    _opens_in_each_process = False
    #: Whether each column is a file (a path, a resource or an open binary file); otherwise columns are names within one file.
    _columns_are_files = False

    #: The columns and the process that opened them.
    _opened: tuple[int, list[Column]] | None

    def __init__(self, columns: Sequence[Any] | Mapping[str, Any]) -> None:
        sources = columns.values() if isinstance(columns, Mapping) else columns
        # A single resource or path is also iterable, by chunks or characters.
        sources = [columns] if hasattr(columns, "read") or is_path(columns) else list(sources)
        if not sources:
            raise ConfigError("a dataset needs at least one column")
        is_named = isinstance(columns, Mapping)
        self._form = (
            SampleForm("dict", tuple(columns)) if is_named else SampleForm.tuples(len(sources))
        )
        keys = [os.fspath(source) if is_path(source) else id(source) for source in sources]
        files = {
            key: PositionalFile(source)
            if self._columns_are_files or hasattr(source, "read")
            else source
            for key, source in dict(zip(keys, sources, strict=True)).items()
        }
        self._sources = tuple(files[key] for key in keys)
        self._start_afresh()

    @abstractmethod
    def _open_columns(self) -> list[Column]:
        """Open the columns; called at the first access, and again in a forked child if ``_opens_in_each_process``."""

    def _open_each(self, open_column: Callable[[Any], Column]) -> list[Column]:
        """Open a column for each source by ``open_column``, which is called once for a source that occurs several times.

        A source is an argument of the constructor; files are PositionalFiles.
        """
        distinct = {source: open_column(source) for source in dict.fromkeys(self._sources)}
        return [distinct[source] for source in self._sources]

    def make_access(self) -> SampleAccess:
        return _ColumnsAccess(self)

    def _columns(self) -> list[Column]:
        """The opened columns, one for each field; a source that is given twice is opened once."""
        opened = self._opened
        if opened is not None and (not self._opens_in_each_process or opened[0] == os.getpid()):
            return opened[1]
        with self._lock:
            if self._opened is None or self._opened is opened:  # no other thread was faster
                columns = self._open_columns()
                _check_lengths(self._form.keys, columns)
                self._note_versions()
                self._opened = (os.getpid(), columns)
            return self._opened[1]

    def _arguments(self) -> dict[str, Any]:
        keys = [None if isinstance(source, PositionalFile) else source for source in self._sources]
        return {"fields": self._form.keys if self._form.kind == "dict" else None, "keys": keys}

    def _content_of_files(self) -> list[str]:
        """What identifies the content of each file."""
        files = [
            each
            for each in (*self._sources, *vars(self).values())
            if isinstance(each, PositionalFile)
        ]
        distinct = list(dict.fromkeys(files))
        for file in distinct:
            self._check_unwritten(file)
        contents = contents_of_resources(
            [functools.partial[Any](nullcontext, file.resource) for file in distinct]
        )
        known = dict(zip(distinct, contents, strict=True))
        return [known[file] for file in files]

    def _note_versions(self) -> None:
        """Note the versions of the files whose columns were opened just now."""
        for file in (*self._sources, *vars(self).values()):
            if isinstance(file, PositionalFile):
                self._versions.setdefault(file, local_version_of(file.resource))

    def _check_unwritten(self, file: PositionalFile) -> None:
        """Raise if an open file was written to after its columns were opened. One that was replaced is still the old one.

        Raises:
            ResourceChangedError: its size or the time of its content is another one.
        """
        before = self._versions.get(file)
        now = None if before is None else local_version_of(file.resource)
        if before is not None and now is not None and before[:2] != now[:2]:
            raise ResourceChangedError(file.name, str(before), str(now))

    def _start_afresh(self) -> None:
        self._opened = None
        self._versions: dict[PositionalFile, LocalVersion | None] = {}
        self._lock = fork_lock()

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_opened", "_lock", "_versions")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_afresh()


def _check_lengths(names: Sequence[Any], columns: Sequence[Column]) -> None:
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        pairs = list(zip(names, lengths, strict=True))
        shown = ", ".join(f"{name}: {length}" for name, length in pairs)
        alike = [name for name, length in pairs if length == lengths[0]]
        raise DatasetFileCorruptError(
            f"the columns differ in length: {shown:.1000}; choose those of one length, such as columns={alike!r:.200}"
        )


class _ColumnsAccess(RemoteAccess):
    """Access to the columns of an iterator, which are opened when they are first needed."""

    source: ColumnsDatasetIterator

    n_samples = property(lambda self: len(self.source._columns()[0]))

    def sample(self, position: int) -> Sample:
        return self.source._form.make([column.value(position) for column in self.source._columns()])

    def values_of_sample(self, position: int, keys: Sequence[ColumnKey]) -> list[Any]:
        return [column.value(position) for column in self._columns_of(keys)]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        self.await_prefetched(positions)
        values = [column.values(positions) for column in self.source._columns()]
        return [self.source._form.make(row) for row in zip(*values, strict=True)]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        self.await_prefetched(positions)
        columns = self.source._columns()
        values: list[Any] = []
        for i, column in enumerate(columns):
            first = columns.index(column)
            # A column that occurs twice is read once and copied, so that changes of one copy do not affect the other.
            values.append(column.read(_wide(positions)) if first == i else values[first].copy())
        return self.source._form.make(values)  # type: ignore[no-any-return]  # a batch

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        wide = None if positions is None else _wide(positions)
        return [column.read(wide) for column in self._columns_of(keys)]

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        declared = self.declare_columns()
        return declared is not None and all(each.is_fixed for each in declared.values())

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        wanted, wide = (
            self.source._columns() if keys is None else self._columns_of(keys),
            _wide(starts),
        )
        found = all_columns(column.runs(wide, length) for column in wanted)
        return found if found is None or keys is not None else self.source._form.make(found)

    def remote_bytes(self) -> float:
        return sum(
            column.remote_bytes
            for column in {id(each): each for each in self.source._columns()}.values()
        )

    def fetches(
        self, places: range, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        distinct = {id(each): each for each in self.source._columns() if each.remote_bytes}
        return [functools.partial(column.fetch, places) for column in distinct.values()]

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        declared = [column.declare() for column in self.source._columns()]
        known = [each for each in declared if each is not None]
        form = self.source._form
        return (
            None
            if form.kind == "tuple" or len(known) < len(declared)
            else dict(zip(form.keys, known, strict=True))
        )

    def content_fingerprint(self) -> list[str] | None:
        is_of_files_only = getattr(type(self.source)._open_columns, "is_of_files_only", False)
        return self.source._content_of_files() if is_of_files_only else None

    def _columns_of(self, keys: Sequence[ColumnKey]) -> list[Column]:
        form, columns = self.source._form, self.source._columns()
        return [columns[form.keys.index(form.find(key))] for key in keys]


def _wide(positions: IndexArrayOfInts) -> npt.NDArray[np.int64]:
    return positions.astype(np.int64, copy=False)


def of_files_only(open_columns: Callable[[Any], list[Column]]) -> Callable[[Any], list[Column]]:
    """Decorates an ``_open_columns`` whose result depends only on files and arguments."""
    open_columns.is_of_files_only = True  # type: ignore[attr-defined]  # read by content_fingerprint()
    return open_columns


# ---------------------------------------------------------------------- samples by name


def by_name(sample: Any, names: Sequence[str] | None) -> Mapping[str, Any]:
    """The values of a sample, or the columns of a batch, by name.

    Args:
        sample: a dict; or a tuple, or a bare value, which counts as a tuple of one.
        names: a name for each value of a tuple; None if samples are dicts.

    Raises:
        ConfigError: the number of names differs from that of values.
    """
    if isinstance(sample, Mapping):
        return sample
    values = sample if isinstance(sample, (tuple, list)) else (sample,)
    if names is None or isinstance(names, str) or len(names) != len(values):
        raise ConfigError(
            f"writing samples of {len(values)} unnamed columns needs names=[…], one for each; got {names!r:.80}"
        )
    return dict(zip(names, values, strict=True))


def samples_at_once(sample: Mapping[str, Any]) -> int:
    """The number of samples like this one to read together."""
    sizes = (
        len(each) if isinstance(each, (str, bytes)) else int(getattr(each, "nbytes", 64))
        for each in sample.values()
    )
    return max(1, min(4096, (8 << 20) // max(1, sum(sizes))))


class FieldsAccess(SourceAccess):
    """Access to dict samples whose fields are read one by one."""

    @abstractmethod
    def fields(self) -> Sequence[str]:
        """The keys of the samples."""

    @abstractmethod
    def values(self, field: str, positions: Sequence[int]) -> list[Any]:
        """The values of a field, in one request."""

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        rows = range(self.n_samples) if positions is None else positions.tolist()
        wanted = map(SampleForm("dict", tuple(self.fields())).find, keys)
        columns = [
            stack_values(self.values(key, rows or range(min(1, self.n_samples)))) for key in wanted
        ]
        return columns if rows else [column[:0] for column in columns]
