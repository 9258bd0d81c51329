"""One column of records: its ``.bag``, and its ``.idx`` with the end of each record as a little-endian uint64."""

from __future__ import annotations

import io
import mmap
import operator
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack_granular.utils import Closing

__all__ = ["BagReader", "BagWriter"]

_END = struct.Struct("<Q")
_MAX_RECORDS = 2**32 - 1


class BagWriter(Closing):
    """Appends records to a bag; what is there already stays.

    A record that an interrupted writer left in the bag without its entry in the index is taken up if the same bytes are
    appended again.

    Args:
        bag_path: a path, or an object with ``open``, ``exists`` and ``with_suffix``.
        idx_path: of the index; None for the same name with ``.idx``.

    Attributes:
        length: number of records, those included that were not flushed yet.
        offset: where the next record to be flushed begins.
    """

    def __init__(self, bag_path: Any, idx_path: Any = None) -> None:
        self.bag_path = local_path(bag_path)
        self.idx_path = self.bag_path.with_suffix(".idx") if idx_path is None else local_path(idx_path)
        self.length = self.offset = 0
        if self.idx_path.exists():
            with self.idx_path.open("rb") as index:
                self.length, torn = divmod(index.seek(0, os.SEEK_END), _END.size)
                if self.length:
                    index.seek((self.length - 1) * _END.size)
                    self.offset = _END.unpack(index.read(_END.size))[0]
            if torn:  # of an interrupted writer: what is appended behind it could not be found
                with self.idx_path.open("r+b") as index:
                    index.truncate(self.length * _END.size)
        self.bag, self.idx = self.bag_path.open("ab"), self.idx_path.open("ab")
        if self.bag.tell() < self.offset:
            raise DatasetFileCorruptError(
                f"{self.bag_path} is cut short: it has {self.bag.tell():,} bytes, its index says {self.offset:,}. Restore it "
                f"from a copy"
            )
        self._records: list[bytes] = []

    @property
    def size(self) -> int:
        """Bytes of the flushed records, and of the index."""
        return self.offset + _END.size * self.length

    def __len__(self) -> int:
        return self.length

    def append(self, record: Any, flush: bool = True) -> int:
        """Append a record, which is bytes; ``flush``: so that readers that are opened from now on see it.

        Returns:
            Its position.

        Raises:
            ConfigError: it is not bytes, or the writer is closed.
        """
        if self.closed or not isinstance(record, bytes) or self.length >= _MAX_RECORDS:
            raise ConfigError(
                f"{self.bag_path} takes bytes, at most {_MAX_RECORDS} records, until it is closed; not {record!r:.60}"
            )
        self._records.append(record)
        self.length += 1
        if flush:
            self.flush()
        return self.length - 1

    def flush(self) -> None:
        """Write what was appended.

        Raises:
            ValueError: an interrupted writer left other bytes there.
        """
        if not self._records:
            return
        data = b"".join(self._records)
        n_flushed = self.length - len(self._records)
        if self.idx.seek(0, os.SEEK_END) != n_flushed * _END.size:
            raise ConfigError(f"another writer appended to {self.bag_path}: only one may have it open. Open it again")
        if self.bag.seek(0, os.SEEK_END) > self.offset:
            with self.bag_path.open("rb") as bag:
                bag.seek(self.offset)
                there = bag.read(len(data))
            if not data.startswith(there):
                raise ConfigError(
                    f"{self.bag_path} has {len(there)} bytes behind its records that an interrupted writer left, which does not "
                    f"match what is appended now. Append the same records, or cut the file to {self.offset} bytes"
                )
            data = data[len(there) :]
        self.bag.write(data)
        self.bag.flush()
        ends = self.offset + np.cumsum([len(record) for record in self._records], dtype=np.uint64)
        self.idx.write(ends.astype("<u8").tobytes())
        self.idx.flush()
        self.offset = int(ends[-1])
        self._records.clear()

    def close(self) -> None:
        if not self.closed:
            self.flush()
            self.bag.close()
            self.idx.close()
        super().close()


class BagReader(Closing):
    """The records of a bag, as many as there were when it was opened.

    ``reader[3]`` is bytes, ``reader[2:5]`` and ``reader[range(2, 5)]`` are lists of them.

    Args:
        bag_source, idx_source: a path, an object with ``open``, or the bytes themselves; None for the index beside the bag.
        cache_index, cache_data: read the file into memory; otherwise it is mapped.
        single_file: the index follows the records, as Granular wrote it until 0.21.

    Raises:
        DatasetFileCorruptError: the files are damaged; those of a record, when it is read.
    """

    def __init__(
        self,
        bag_source: Any,
        idx_source: Any = None,
        cache_index: bool = True,
        cache_data: bool = False,
        single_file: bool = False,
    ) -> None:
        self.bag_source = local_path(bag_source)
        if idx_source is None and not single_file:
            if not hasattr(self.bag_source, "with_suffix"):
                raise ConfigError("the index is found beside a bag that is a path; give idx_source, too")
            idx_source = self.bag_source.with_suffix(".idx")
        self.idx_source = local_path(idx_source)
        self._caches = cache_index, cache_data
        self._open(None)

    def _open(self, length: int | None) -> None:
        caches_index, caches_data = self._caches
        self._data = _content(self.bag_source, caches_data)
        if self.idx_source is not None:
            index = _content(self.idx_source, caches_index)
        else:  # behind the records, perhaps after a zero; its last entry says where it begins
            start = int.from_bytes(self._data[-_END.size :], "little")
            index = self._data[start:]
            if index[: _END.size] == bytes(_END.size):
                index = index[_END.size :]
        self.length = len(index) // _END.size if length is None else length
        self._ends: npt.NDArray[np.uint64] = np.frombuffer(index, "<u8", self.length)

    @property
    def size(self) -> int:
        """Bytes of the records, and of their index."""
        return int(self._ends[-1]) + _END.size * self.length if self.length else 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, (slice, range)):
            place = operator.index(index)
            if not -self.length <= place < self.length:
                raise IndexError(f"there is no record {place} in {self.bag_source!s:.200}, which has {self.length}")
            return self._record(place % self.length)
        return [self._record(place) for place in places(index, self.length)]

    def _record(self, place: int) -> bytes:
        start, end = int(self._ends[place - 1]) if place else 0, int(self._ends[place])
        if not start <= end <= len(self._data):
            raise DatasetFileCorruptError(f"record {place} of {self.bag_source!s:.200} is damaged: bytes {start} to {end}")
        return bytes(self._data[start:end])

    def copy(self) -> BagReader:
        """Another reader of the same records."""
        twin = object.__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin

    def close(self) -> None:
        self._data, self._ends, self.length = b"", self._ends[:0], 0
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("bag_source", "idx_source", "_caches", "length")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open(state["length"])


def local_path(source: Any) -> Any:
    """A string as a path; anything else as it is.

    Raises:
        ConfigError: it is a URL.
    """
    if isinstance(source, str) and "://" in source:
        raise ConfigError(f"{source!r:.80} is a URL: read it with DatasetReader, write it with data_stack's RecordWriter")
    return Path(source) if isinstance(source, (str, os.PathLike)) else source


def places(index: slice | range, length: int) -> range:
    """The positions that a slice or range names; what lies behind the end is left out.

    Raises:
        ConfigError: it has another step than 1, or negative positions.
    """
    if index.step not in (None, 1) or (index.start or 0) < 0 or (index.stop is not None and index.stop < 0):
        raise ConfigError(f"records are read from one position to a later one, none of them negative, not by {index!r}")
    return range(length)[index.start : index.stop]


def _content(source: Any, cache: bool) -> Any:
    if not hasattr(source, "open"):
        return memoryview(source).cast("B").toreadonly()
    with source.open("rb") as file:
        if not cache:
            try:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except (AttributeError, io.UnsupportedOperation, ValueError):  # no file of this machine, or an empty one
                pass
        return file.read()
