"""One column of records: its ``.bag``, and its ``.idx`` with the end of each record as a little-endian uint64."""

from __future__ import annotations

import contextlib
import copy
import itertools
import operator
import os
import struct
from pathlib import Path
from typing import Any, TypeVar

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.formats.records.record_offsets import find_offsets_in_bag, find_offsets_in_index
from data_stack.formats.records.stored_file import StoredFile
from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

_ENTRY = 8
_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """A context manager that calls ``close()``; an error of its block takes precedence over one of closing.

    Attributes:
        closed: whether it is closed.
    """

    closed = False

    def close(self) -> None:
        """Close all files. Closing again does nothing."""
        self.closed = True

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(*([] if error[0] is None else [Exception])):
            self.close()


class BagWriter(Closing):
    """Appends records to a bag in a local folder; existing records stay.

    If an interrupted writer left a record without its entry in the index, append the same bytes again: they are not written
    twice.

    Args:
        bag_path: path of the records.
        idx_path: path of the index; None: the same name with ``.idx``.

    Attributes:
        length: number of records, including those not flushed yet.
        offset: where the next record to flush begins.

    Raises:
        ConfigError: a path is a URL.
        DatasetFileCorruptError: the bag is shorter than its index says.
    """

    def __init__(self, bag_path: Any, idx_path: Any = None) -> None:
        self.bag_path = local_path(bag_path)
        self.idx_path = (
            self.bag_path.with_suffix(".idx") if idx_path is None else local_path(idx_path)
        )
        self.bag, self.idx = self.bag_path.open("a+b"), self.idx_path.open("a+b")
        self.length = self.idx.seek(0, os.SEEK_END) // _ENTRY
        self.idx.truncate(_ENTRY * self.length)  # a torn entry would shift those after it
        self.idx.seek(max(0, self.length - 1) * _ENTRY)
        self.offset = int.from_bytes(self.idx.read(_ENTRY), "little")
        self._records: list[bytes] = []
        if self.bag.seek(0, os.SEEK_END) < self.offset:
            raise DatasetFileCorruptError(
                f"{self.bag_path} is truncated: its index says {self.offset:,} bytes. Restore it"
            )

    @property
    def size(self) -> int:
        """Bytes of the flushed records and the index."""
        return self.offset + _ENTRY * self.length

    def __len__(self) -> int:
        return self.length

    def append(self, record: Any, flush: bool = True) -> int:
        """Append a record of bytes. ``flush`` makes it visible to readers that are opened afterwards.

        Returns:
            Its position.

        Raises:
            ConfigError: the record is not bytes, or the writer is closed; or as for :meth:`flush`.
        """
        if self.closed or self.length >= MAX_RECORDS:
            raise ConfigError(f"{self.bag_path} is closed, or full with {MAX_RECORDS:,} records")
        if not isinstance(record, bytes):
            raise ConfigError(f"{self.bag_path} takes records of bytes, got {record!r:.60}")
        self._records.append(record)
        self.length += 1
        if flush:
            self.flush()
        return self.length - 1

    def flush(self) -> None:
        """Write the appended records.

        Raises:
            ConfigError: an interrupted writer left other bytes, or another writer appends at the same time.
        """
        data = b"".join(self._records)
        if self.idx.seek(0, os.SEEK_END) != _ENTRY * (self.length - len(self._records)):
            raise ConfigError(
                f"another writer appended to {self.bag_path}: open only one at a time"
            )
        if self.bag.seek(0, os.SEEK_END) > self.offset:
            self.bag.seek(self.offset)
            there = self.bag.read(len(data))
            if not data.startswith(there):
                raise ConfigError(
                    f"{self.bag_path} does not match what an interrupted writer wrote from byte {self.offset} on"
                )
            data = data[len(there) :]
        self.bag.write(data)
        self.bag.flush()
        *earlier, self.offset = ends = list(
            itertools.accumulate(map(len, self._records), initial=self.offset)
        )
        self.idx.write(struct.pack(f"<{len(earlier)}Q", *ends[1:]))
        self.idx.flush()
        self._records.clear()

    def close(self) -> None:
        try:
            if not self.closed:
                self.flush()
        finally:
            self.bag.close()
            self.idx.close()
            self.closed = True


class BagReader(Closing):
    """The records that a bag has when it is opened.

    ``reader[3]`` is bytes, ``reader[2:5]`` and ``reader[range(2, 5)]`` are lists of them.

    Args:
        bag_source, idx_source: a path, or the bytes themselves; None: the index beside the bag.
        cache_index, cache_data: ignored; files are mapped, and processes share their pages.
        single_file: whether the index follows the records, as in Granular until 0.21.

    Raises:
        FileNotFoundError: a file does not exist.
        DatasetFileCorruptError: the files are damaged. A damaged record raises when it is read.
    """

    def __init__(
        self,
        bag_source: Any,
        idx_source: Any = None,
        cache_index: bool = True,
        cache_data: bool = False,
        single_file: bool = False,
    ) -> None:
        if idx_source is None and not single_file:
            idx_source = local_path(bag_source).with_suffix(".idx")
        self.bag_source, self.idx_source, file = bag_source, idx_source, _stored(bag_source)
        if single_file:
            offsets, n_bytes = find_offsets_in_bag(file.name, file)
        else:
            n_bytes = file.size
            offsets = find_offsets_in_index(_stored(idx_source), n_bytes)
        self._bag = Bag(file.name, file, n_bytes, offsets)
        self.length = offsets.n_records

    @property
    def size(self) -> int:
        """Bytes of the records and their index."""
        return (
            int(self._bag.bounds(range(self.length - 1, self.length))[1][0]) + _ENTRY * self.length
            if self.length
            else 0
        )

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (slice, range)):
            return self._bag.records(places(index, self.length))
        return self._bag.record(range(self.length)[operator.index(index)])

    def copy(self) -> BagReader:
        """Return another reader of the same records."""
        return copy.copy(self)

    def close(self) -> None:
        self._bag.close()
        self.length, self.closed = 0, True

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.bag_source, self.idx_source, True, False, self.idx_source is None)


def local_path(path: Any) -> Path:
    """Convert to a local path.

    Raises:
        ConfigError: the path is a URL.
    """
    if "://" in str(path):
        raise ConfigError(
            f"{path!s:.80} is a URL: read it with DatasetReader, or write to it with data_stack's RecordWriter"
        )
    return Path(path)


def places(index: slice | range, length: int) -> range:
    """Return the positions of a slice or range that exist.

    Raises:
        ConfigError: the step is not 1, or a position is negative.
    """
    if index.step not in (None, 1) or min(index.start or 0, index.stop or 0) < 0:
        raise ConfigError(
            f"slices of records must have step 1 and no negative positions, got {index!r}"
        )
    return range(length)[index.start : index.stop]


def _stored(source: Any) -> StoredFile:
    if isinstance(source, (str, os.PathLike)):
        path = local_path(source).absolute()
        return StoredFile(folder_of(path.parent), path.name, None)
    store = InMemoryStorageConnector()
    with store.create("bytes") as file:
        file.write(bytes(source))
    return StoredFile(folder_of(store), "bytes", None)
