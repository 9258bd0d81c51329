"""Opens the columns of a record dataset on their first read, within a limit of open files."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from data_stack.codecs.codec import Codec
from data_stack.exception import StorageError
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.sample_references import SampleReferences
from data_stack.formats.records.value_column import ValueColumn
from data_stack.io.local_files import most_open_files
from data_stack.util.forks import fork_lock


class OpenFilesLimit:
    """One limit of open files for several datasets, such as the shards of a reader.

    Threads may share it. Threads that open datasets at the same moment may exceed the limit by
    their number; the limit is far below that of the system.
    """

    #: The columns of the datasets that have open files, by their ids.
    _open: weakref.WeakValueDictionary[int, OpenColumns]

    def __init__(self) -> None:
        self._open = weakref.WeakValueDictionary()

    def make_room_for(self, columns: OpenColumns, max_datasets: int) -> None:
        """Close the files of all datasets before those of one more would exceed the limit.

        Args:
            columns: the columns of a dataset, which is going to open files.
            max_datasets: the limit.
        """
        if id(columns) in self._open:
            return
        if len(self._open) >= max_datasets:
            # A list of references: a loop over the values would fail if another thread added one.
            for reference in self._open.valuerefs():
                open_columns = reference()
                if open_columns is not None:
                    open_columns.release()
        self._open[id(columns)] = columns

    def leave(self, columns: OpenColumns) -> None:
        """Note that a dataset has closed its files."""
        self._open.pop(id(columns), None)


class OpenColumns:
    """The columns whose files are open. Threads may share them.

    Args:
        files: the files of the dataset.
        codecs: the codec of each column that may be read.
        references: maps samples to records, in a file of its own; None without one.
        n_records: the number of records of each column; None where columns differ in it.

    Attributes:
        by_name: the open columns. It is replaced as a whole when the files are closed, so that a
            thread that reads keeps the columns that it has.
        sample_reader: reads a sample of the open columns; None if there is none yet.
    """

    #: The limit of open files, which other datasets may share.
    _limit: OpenFilesLimit

    #: A lock for each column: of two threads that need it, one fetches the index.
    _locks: dict[str, Lock]

    def __init__(
        self,
        files: RecordFiles,
        codecs: Mapping[str, Codec],
        references: SampleReferences | None,
        n_records: int | None,
    ) -> None:
        self._files = files
        self._codecs = codecs
        self._references = references
        self._n_records = n_records
        self._limit = OpenFilesLimit()
        self._locks = {}
        self._is_closed = False
        self.by_name: dict[str, ValueColumn] = {}
        self.sample_reader: Callable[[int], Any] | None = None

    def share_limit(self, limit: OpenFilesLimit) -> None:
        """Share one limit of open files with the columns of other datasets."""
        self._limit = limit

    def get_all(self, names: Sequence[str]) -> list[ValueColumn]:
        """Return several columns, as :meth:`get` does."""
        by_name = self.by_name
        try:
            return [by_name[name] for name in names]
        except KeyError:
            return [self.get(name) for name in names]

    def get(self, name: str) -> ValueColumn:
        """Return a column, opening it if it is not open.

        Raises:
            StorageError: the columns were closed.
            DatasetFileCorruptError: a file is missing or damaged.
        """
        column = self.by_name.get(name)
        if column is not None:
            return column
        if self._is_closed:
            raise StorageError(
                f"the reader of {self._files.folder.name!r} is closed; open the dataset again"
            )
        # Two files for each column, and one for the references.
        max_datasets = most_open_files() // (2 * len(self._codecs) + 1)
        self._limit.make_room_for(self, max_datasets)
        lock = self._locks.setdefault(name, fork_lock())
        with lock:
            by_name = self.by_name
            column = by_name.get(name)
            if column is None:
                column = self._files.column(name, self._codecs[name], self._n_records)
                by_name[name] = column
        return column

    def keep_sample_reader(
        self, by_name: Mapping[str, ValueColumn], sample_reader: Callable[[int], Any]
    ) -> None:
        """Keep a function that reads a sample, until the files are closed.

        Args:
            by_name: the columns that it reads.
            sample_reader: the function.
        """
        self.sample_reader = sample_reader
        # Another thread may have closed these files before it was kept.
        if self.by_name is not by_name:
            self.sample_reader = None

    def release(self) -> None:
        """Close all files until they are needed again; reads of other threads finish first."""
        self.by_name = {}
        self.sample_reader = None
        self._limit.leave(self)
        if self._references is not None:
            self._references.release()

    def close(self) -> None:
        """Close all files; :meth:`get` fails afterwards."""
        self._is_closed = True
        columns = list(self.by_name.values())
        self.release()
        for column in columns:
            column.bag.close()
