"""A bag: the records of one column in a ``.bag``, with an index in an ``.idx``.

The index has the end of each record in the bag, as a little-endian uint64.
"""

from __future__ import annotations

import copy
import operator
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.formats.records.record_offsets import find_offsets_in_bag, find_offsets_in_index
from data_stack.formats.records.stored_file import StoredFile
from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack_granular.arguments import local_path, slice_positions
from data_stack_granular.closing import Closing

#: The size of an entry of the index.
_ENTRY_BYTES = 8


class BagWriter(Closing):
    """Appends records to a bag in a local folder; existing records stay.

    An interrupted writer may have left a record without its entry in the index. Append the same
    bytes again: they are not written twice.

    Args:
        bag_path: path of the records.
        idx_path: path of the index; None: the same name with ``.idx``.

    Attributes:
        bag_path: path of the records.
        idx_path: path of the index.
        length: number of records, including those not flushed yet.
        offset: where the next record to flush begins, in bytes.

    Raises:
        ConfigError: a path is a URL.
        DatasetFileCorruptError: the bag is shorter than its index says.
    """

    bag_path: Path
    idx_path: Path
    #: The open files, to which all writes append.
    bag: BinaryIO
    idx: BinaryIO
    length: int
    offset: int
    #: Appended records that are not flushed yet.
    _records: list[bytes]

    def __init__(self, bag_path: Any, idx_path: Any = None) -> None:
        self.bag_path = local_path(bag_path)
        if idx_path is None:
            self.idx_path = self.bag_path.with_suffix(".idx")
        else:
            self.idx_path = local_path(idx_path)
        self._records = []
        self.bag = self.bag_path.open("a+b")
        self.idx = self.idx_path.open("a+b")

        try:
            self._resume()
        except BaseException:
            self.bag.close()
            self.idx.close()
            raise

    def _resume(self) -> None:
        """Find the end of the records that are in the index.

        Raises:
            DatasetFileCorruptError: the bag is shorter than its index says.
        """
        idx_bytes = self.idx.seek(0, os.SEEK_END)
        self.length = idx_bytes // _ENTRY_BYTES
        # An interrupted writer may have left a part of an entry, which would shift the next ones.
        self.idx.truncate(self.length * _ENTRY_BYTES)

        # The last entry is the end of the records. An empty index has none, and reads as 0.
        self.idx.seek(max(0, self.length - 1) * _ENTRY_BYTES)
        self.offset = int.from_bytes(self.idx.read(_ENTRY_BYTES), "little")
        bag_bytes = self.bag.seek(0, os.SEEK_END)
        if bag_bytes < self.offset:
            raise DatasetFileCorruptError(
                f"{self.bag_path} is truncated: its index says {self.offset:,} bytes. Restore it"
            )

    @property
    def size(self) -> int:
        """Bytes of the flushed records and the index."""
        return self.offset + self.length * _ENTRY_BYTES

    def __len__(self) -> int:
        return self.length

    def append(self, record: Any, flush: bool = True) -> int:
        """Append a record of bytes. ``flush`` makes it visible to readers that are opened later.

        Returns:
            The position of the record.

        Raises:
            ConfigError: the record is not bytes, the bag is full, or the writer is closed; or as
                for :meth:`flush`.
        """
        if self.closed:
            raise ConfigError(f"{self.bag_path} is closed: open it again to append records")
        if self.length >= MAX_RECORDS:
            raise ConfigError(
                f"{self.bag_path} is full with {MAX_RECORDS:,} records: write to another bag"
            )
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
            ConfigError: an interrupted writer left other bytes, or another writer appends at the
                same time.
        """
        n_flushed = self.length - len(self._records)
        idx_bytes = self.idx.seek(0, os.SEEK_END)
        if idx_bytes != n_flushed * _ENTRY_BYTES:
            raise ConfigError(
                f"another writer appended to {self.bag_path}: open only one at a time"
            )

        # Records come before their entries: an index never names bytes that are not there.
        data = b"".join(self._records)
        self.bag.write(self._without_existing(data))
        self.bag.flush()

        entries = []
        for record in self._records:
            self.offset += len(record)
            entries.append(struct.pack("<Q", self.offset))
        self.idx.write(b"".join(entries))
        self.idx.flush()
        self._records.clear()

    def _without_existing(self, data: bytes) -> bytes:
        """Return ``data`` without the first bytes, if an interrupted writer wrote them already.

        Raises:
            ConfigError: the interrupted writer wrote other bytes.
        """
        bag_bytes = self.bag.seek(0, os.SEEK_END)
        if bag_bytes <= self.offset:
            return data
        self.bag.seek(self.offset)
        existing = self.bag.read(len(data))
        if not data.startswith(existing):
            raise ConfigError(
                f"{self.bag_path} does not match what an interrupted writer wrote "
                f"from byte {self.offset} on"
            )
        return data[len(existing) :]

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

    ``reader[3]`` is bytes; ``reader[2:5]`` and ``reader[range(2, 5)]`` are lists of bytes.

    Args:
        bag_source: path of the records, or the bytes of the file.
        idx_source: path of the index, or the bytes of the file; None: the index beside the bag.
        cache_index: ignored, as files are mapped, and processes share their pages.
        cache_data: ignored, likewise.
        single_file: whether the index follows the records, as in Granular until 0.21.

    Attributes:
        length: number of records; 0 after closing.

    Raises:
        FileNotFoundError: a file does not exist.
        DatasetFileCorruptError: the files are damaged. A damaged record raises when it is read.
    """

    bag_source: Any
    #: None if the index follows the records.
    idx_source: Any
    length: int
    _bag: Bag

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
        self.bag_source = bag_source
        self.idx_source = idx_source

        file = _open_source(bag_source)
        if single_file:
            offsets, n_bytes = find_offsets_in_bag(file.name, file)
        else:
            n_bytes = file.size
            offsets = find_offsets_in_index(_open_source(idx_source), n_bytes)
        self._bag = Bag(file.name, file, n_bytes, offsets)
        self.length = offsets.n_records

    @property
    def size(self) -> int:
        """Bytes of the records and their index."""
        if self.length == 0:
            return 0
        last_record = range(self.length - 1, self.length)
        _, ends = self._bag.bounds(last_record)
        return int(ends[0]) + self.length * _ENTRY_BYTES

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (slice, range)):
            return self._bag.records(slice_positions(index, self.length))
        # A range checks the bounds, and counts negative positions from the end.
        position = range(self.length)[operator.index(index)]
        return self._bag.record(position)

    def copy(self) -> BagReader:
        """Return another reader of the same records."""
        return copy.copy(self)

    def close(self) -> None:
        self._bag.close()
        self.length = 0
        self.closed = True

    def __reduce__(self) -> tuple[Any, ...]:
        # The copy opens the files again, with the arguments of the constructor in their order.
        cache_index = True
        cache_data = False
        single_file = self.idx_source is None
        arguments = (self.bag_source, self.idx_source, cache_index, cache_data, single_file)
        return type(self), arguments


def _open_source(source: Any) -> StoredFile:
    """Open a local file by its path, or bytes as if they were a file."""
    if isinstance(source, (str, os.PathLike)):
        path = local_path(source).absolute()
        return StoredFile(folder_of(path.parent), path.name, None)
    store = InMemoryStorageConnector()
    store.set_resource("bytes", bytes(source))
    return StoredFile(folder_of(store), "bytes", None)
