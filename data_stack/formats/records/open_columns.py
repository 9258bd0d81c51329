"""Opens the columns of a record dataset on their first read, within a limit of open files."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from threading import Lock

from data_stack.codecs.codec import Codec
from data_stack.exception import StorageError
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.sample_references import SampleReferences
from data_stack.formats.records.value_column import ValueColumn
from data_stack.io.local_files import most_open_files
from data_stack.util.forks import fork_lock


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
    """

    #: The open columns of all datasets that share one limit, such as the shards of a reader.
    _sharers: weakref.WeakSet[OpenColumns]

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
        self._sharers = weakref.WeakSet()
        self._locks = {}
        self._is_closed = False
        self.by_name: dict[str, ValueColumn] = {}

    def share_limit(self, sharers: weakref.WeakSet[OpenColumns]) -> None:
        """Share one limit of open files with the columns that join the same ``sharers``."""
        self._sharers = sharers

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
        self._make_room()
        lock = self._locks.setdefault(name, fork_lock())
        with lock:
            by_name = self.by_name
            column = by_name.get(name)
            if column is None:
                column = self._files.column(name, self._codecs[name], self._n_records)
                by_name[name] = column
        return column

    def _make_room(self) -> None:
        """Close the files of all sharers before those of one more would exceed the limit."""
        if self in self._sharers:
            return
        # Two files for each column, and one for the references.
        max_sharers = most_open_files() // (2 * len(self._codecs) + 1)
        if len(self._sharers) >= max_sharers:
            for sharer in list(self._sharers):
                sharer.release()
        self._sharers.add(self)

    def release(self) -> None:
        """Close all files until they are needed again; reads of other threads finish first."""
        self.by_name = {}
        self._sharers.discard(self)
        if self._references is not None:
            self._references.release()

    def close(self) -> None:
        """Close all files; :meth:`get` fails afterwards."""
        self._is_closed = True
        columns = list(self.by_name.values())
        self.release()
        for column in columns:
            column.bag.close()
