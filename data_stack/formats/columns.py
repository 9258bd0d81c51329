"""Samples from columns that are opened at the first access."""

from __future__ import annotations

import functools
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    Batch,
    ColumnKey,
    Sample,
    SampleAccess,
)
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceChangedError
from data_stack.formats.column_reader import ColumnReader, as_int64
from data_stack.formats.remote import RemoteAccess
from data_stack.io.content import contents_of_resources
from data_stack.io.location import is_path_or_url
from data_stack.io.positional import PositionalFile
from data_stack.io.versions import LocalVersion, local_version_of
from data_stack.util.forks import fork_lock
from data_stack.values.stacking import SampleForm, all_columns

#: The attributes that are not pickled: another process makes its own.
_NOT_PICKLED: Final = frozenset({"_opened", "_lock", "_versions"})


@dataclass(frozen=True, slots=True)
class _OpenedColumns:
    """The columns of an iterator, opened.

    Attributes:
        process: the process that opened them.
        readers: the reader of each column.
    """

    process: int
    readers: list[ColumnReader]


class ColumnsDatasetIterator(AccessedDatasetIterator):
    """Samples from columns: a tuple with a value per column, or a dict if the columns have names.

    Columns are opened on the first access to a sample or the length. Threads may share an
    iterator; it pickles as its arguments, so that spawned workers open the columns themselves.

    A subclass defines :meth:`_open_columns`.

    Args:
        columns: the sources of the columns, in a sequence for tuple samples or in a mapping
            ``{field: source}`` for dict samples. A source may occur several times (as target and
            tag); it is opened once.

    Raises:
        DatasetFileCorruptError: at the first access, if the columns have different lengths.
    """

    #: The access refers to the iterator: they would keep each other in memory.
    _keeps_access = False

    #: Whether opened columns belong to the process that opened them. A forked child then opens its
    #: own.
    _opens_in_each_process = False

    #: Whether each source is a file (a path, a resource or an open binary file). Otherwise sources
    #: are the names of columns within one file.
    _columns_are_files = False

    #: Whether samples are tuples or dicts, and the names or positions of their columns.
    _form: SampleForm

    #: The source of each column; of files, the opened file.
    _sources: tuple[Any, ...]

    #: The opened columns; None before the first access.
    _opened: _OpenedColumns | None

    #: The versions of the files when their columns were opened.
    _versions: dict[PositionalFile, LocalVersion | None]

    #: Held by the thread that opens the columns.
    _lock: threading.Lock

    def __init__(self, columns: Sequence[Any] | Mapping[str, Any]) -> None:
        sources = _list_sources(columns)
        if not sources:
            raise ConfigError("a dataset needs at least one column")
        if isinstance(columns, Mapping):
            self._form = SampleForm("dict", tuple(columns))
        else:
            self._form = SampleForm.tuples(len(sources))
        self._sources = self._open_distinct_files(sources)
        self._start_afresh()

    def _open_distinct_files(self, sources: Sequence[Any]) -> tuple[Any, ...]:
        """Return the sources, with one PositionalFile for a file that occurs several times."""
        files: dict[Any, Any] = {}
        opened = []
        for source in sources:
            # Two equal paths are one file; resources and open files are compared by identity.
            key = os.fspath(source) if is_path_or_url(source) else id(source)
            if key not in files:
                is_file = self._columns_are_files or hasattr(source, "read")
                files[key] = PositionalFile(source) if is_file else source
            opened.append(files[key])
        return tuple(opened)

    # ------------------------------------------------------------------ opening columns

    @abstractmethod
    def _open_columns(self) -> list[ColumnReader]:
        """Open the columns, one for each source.

        Called at the first access, and again in a forked child if ``_opens_in_each_process``.
        """

    def _open_per_source(self, open_column: Callable[[Any], ColumnReader]) -> list[ColumnReader]:
        """Open a column for each source.

        Args:
            open_column: opens the column of a source, which is an argument of the constructor; a
                file is a PositionalFile. It is called once for a source that occurs several times.
        """
        readers = {source: open_column(source) for source in dict.fromkeys(self._sources)}
        return [readers[source] for source in self._sources]

    def _columns(self) -> list[ColumnReader]:
        """Return the opened columns, one for each field; opens them at the first call."""
        opened = self._opened
        if opened is not None and self._may_use(opened):
            return opened.readers
        with self._lock:
            # Another thread may have opened them while this one waited: then they are not those
            # that were found above.
            if self._opened is not None and self._opened is not opened:
                return self._opened.readers
            readers = self._open_columns()
            _check_lengths(self._form.keys, readers)
            self._note_versions()
            self._opened = _OpenedColumns(os.getpid(), readers)
            return readers

    def _may_use(self, opened: _OpenedColumns) -> bool:
        """Return whether this process may use opened columns."""
        return not self._opens_in_each_process or opened.process == os.getpid()

    def _start_afresh(self) -> None:
        """Forget the opened columns, in a new iterator or another process."""
        self._opened = None
        self._versions = {}
        self._lock = fork_lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_afresh()

    # ------------------------------------------------------------------ access, recipe

    def make_access(self) -> SampleAccess:
        return ColumnsAccess(self)

    def _arguments(self) -> dict[str, Any]:
        keys = [None if isinstance(source, PositionalFile) else source for source in self._sources]
        fields = self._form.keys if self._form.kind == "dict" else None
        return {"fields": fields, "keys": keys}

    # ------------------------------------------------------------------ files

    def _files(self) -> list[PositionalFile]:
        """Return the files among the sources, and those that a subclass keeps as attributes.

        A subclass with one file for all columns keeps it as an attribute.
        """
        files = []
        for value in [*self._sources, *self.__dict__.values()]:
            if isinstance(value, PositionalFile):
                files.append(value)
        return files

    def _locate_row(self, position: int) -> str | None:
        """Return the row of a sample in the files, for messages; None without files."""
        names = [file.name for file in dict.fromkeys(self._files())]
        if not names:
            return None
        return f"row {position} of {', '.join(names):.500}"

    def _content_of_files(self) -> list[str]:
        """Return what identifies the content of each file.

        Raises:
            ResourceChangedError: a file was written to after its columns were opened.
        """
        files = self._files()
        distinct_files = list(dict.fromkeys(files))
        for file in distinct_files:
            self._check_unwritten(file)
        # The resources stay open: a nullcontext does not close what it hands out.
        opens = [functools.partial[Any](nullcontext, file.resource) for file in distinct_files]
        contents = dict(zip(distinct_files, contents_of_resources(opens), strict=True))
        return [contents[file] for file in files]

    def _note_versions(self) -> None:
        """Note the versions of the files whose columns were opened just now."""
        for file in self._files():
            self._versions.setdefault(file, local_version_of(file.resource))

    def _check_unwritten(self, file: PositionalFile) -> None:
        """Check that an open file was not written to after its columns were opened.

        Only size and modification time are compared: replacing or renaming a file changes the other
        fields of its version, but not the bytes of the file that is open.

        Raises:
            ResourceChangedError: the file was written to.
        """
        before = self._versions.get(file)
        now = local_version_of(file.resource)
        if before is None or now is None:
            return
        if (before.size, before.modified_ns) != (now.size, now.modified_ns):
            raise ResourceChangedError(file.name, str(before), str(now))


def _list_sources(columns: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
    """Return the sources of the columns that a caller gave to the constructor."""
    if isinstance(columns, Mapping):
        return list(columns.values())
    # A single resource or path is also iterable, by chunks or characters.
    if hasattr(columns, "read") or is_path_or_url(columns):
        return [columns]
    return list(columns)


def _check_lengths(names: Sequence[Any], readers: Sequence[ColumnReader]) -> None:
    """Check that all columns have the same number of values.

    Raises:
        DatasetFileCorruptError: their lengths differ; the message names columns of one length.
    """
    lengths = [len(reader) for reader in readers]
    if len(set(lengths)) == 1:
        return
    lengths_by_name = dict(zip(names, lengths, strict=True))
    shown_lengths = ", ".join(f"{name}: {length}" for name, length in lengths_by_name.items())
    names_of_one_length = [name for name, length in lengths_by_name.items() if length == lengths[0]]
    raise DatasetFileCorruptError(
        f"the columns differ in length: {shown_lengths:.1000}; choose those of one length, "
        f"such as columns={names_of_one_length!r:.200}"
    )


class ColumnsAccess(RemoteAccess):
    """Access to the columns of an iterator, which are opened when they are first needed."""

    source: ColumnsDatasetIterator

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return len(self.source._columns()[0])

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        declared = self.declare_columns()
        if declared is None:
            return False
        return all(column.is_fixed for column in declared.values())

    def sample(self, position: int) -> Sample:
        readers = self.source._columns()
        return self.source._form.make([reader.value(position) for reader in readers])

    def values_of_sample(self, position: int, keys: Sequence[ColumnKey]) -> list[Any]:
        return [reader.value(position) for reader in self.readers_of(keys)]

    def locate(self, position: int) -> str | None:
        return self.source._locate_row(position)

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        self.await_prefetched(positions)
        columns = [reader.values(positions) for reader in self.source._columns()]
        return [self.source._form.make(values) for values in zip(*columns, strict=True)]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        self.await_prefetched(positions)
        readers = self.source._columns()
        wide_positions = as_int64(positions)
        columns: list[Any] = []
        for number, reader in enumerate(readers):
            first_number = readers.index(reader)
            # A column that occurs twice is read once and copied, so that changes of one copy do
            # not affect the other.
            if first_number < number:
                columns.append(columns[first_number].copy())
            else:
                columns.append(reader.read(wide_positions))
        return self.source._form.make(columns)  # type: ignore[no-any-return]  # a batch

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        wide_positions = None if positions is None else as_int64(positions)
        return [reader.read(wide_positions) for reader in self.readers_of(keys)]

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[ColumnKey] | None = None
    ) -> Batch | None:
        readers = self.source._columns() if keys is None else self.readers_of(keys)
        wide_starts = as_int64(starts)
        columns = all_columns(reader.runs(wide_starts, length) for reader in readers)
        if columns is None or keys is not None:
            return columns
        return self.source._form.make(columns)  # type: ignore[no-any-return]  # a batch

    def remote_bytes(self) -> float:
        return sum(reader.remote_bytes for reader in _distinct(self.source._columns()))

    def fetches(
        self, positions: range, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        return [
            functools.partial(reader.fetch, positions)
            for reader in _distinct(self.source._columns())
            if reader.remote_bytes
        ]

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        form = self.source._form
        if form.kind == "tuple":
            return None
        declared = {}
        for name, reader in zip(form.keys, self.source._columns(), strict=True):
            column = reader.declare()
            if column is None:
                return None
            declared[name] = column
        return declared

    def content_fingerprint(self) -> list[str] | None:
        # See of_files_only().
        open_columns = type(self.source)._open_columns
        if not getattr(open_columns, "is_of_files_only", False):
            return None
        return self.source._content_of_files()

    def readers_of(self, keys: Sequence[ColumnKey]) -> list[ColumnReader]:
        """Return the readers of some columns."""
        form = self.source._form
        readers = self.source._columns()
        return [readers[form.keys.index(form.find(key))] for key in keys]


def _distinct(readers: Iterable[ColumnReader]) -> list[ColumnReader]:
    """Return readers without those that occur before."""
    return list({id(reader): reader for reader in readers}.values())


def of_files_only(
    open_columns: Callable[[Any], list[ColumnReader]],
) -> Callable[[Any], list[ColumnReader]]:
    """Declare that an ``_open_columns`` depends on files and arguments only; a decorator.

    The contents of the files then are the fingerprint of the samples. A subclass that overrides
    ``_open_columns`` makes no such declaration, unless it is decorated, too: so the declaration is
    an attribute of the function, not of the class.
    """
    open_columns.is_of_files_only = True  # type: ignore[attr-defined]
    return open_columns
