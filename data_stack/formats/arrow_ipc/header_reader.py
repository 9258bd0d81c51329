"""Reads the headers of the messages of an Arrow file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.io.positional import PositionalFile

#: Comes before the size of each header; files of Arrow before version 0.15 lack it.
_CONTINUATION: Final = b"\xff\xff\xff\xff"

#: The size of the continuation and the size, which come before the FlatBuffer of a header.
_PREFIX_BYTES: Final = 8

#: The size of the size alone, in files of Arrow before version 0.15.
_OLD_PREFIX_BYTES: Final = 4

#: The largest header and footer that are read. That of 100,000 columns has 10 MiB.
_MAX_HEADER_BYTES: Final = 256 << 20

#: How much is read to find a header, which is mostly smaller.
_READ_AHEAD_BYTES: Final = 1 << 12

#: Messages up to this size are read with those after them, rather than skipped: a line of 1 Gbit/s
#: transfers as much in the time of a request to another city, 20 ms.
_MAX_READ_THROUGH_BYTES: Final = 2 << 20

#: The number of bytes of such messages that the first request reads, and the most that a later one
#: reads.
_FIRST_READ_THROUGH_BYTES: Final = 64 << 10
_LAST_READ_THROUGH_BYTES: Final = 8 << 20

#: Headers whose places are known are read together, this number of bytes by one request.
_BYTES_AT_ONCE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """The header of a message.

    Attributes:
        data: its FlatBuffer.
        n_bytes: its size, with what comes before the FlatBuffer.
    """

    data: bytes
    n_bytes: int


class HeaderReader:
    """Reads headers out of the map of a file, or by few requests.

    Args:
        file: the file.
        mapped: the bytes of the file, mapped into memory; None if it is read by range.
        end: where the last message ends.
    """

    #: The file.
    _file: PositionalFile

    #: Where the last message ends.
    _end: int

    #: Whether the file is mapped into memory.
    _is_mapped: bool

    #: Where the piece of the file that was read last begins.
    _piece_start: int

    #: The bytes of that piece; all of a mapped file.
    _piece: memoryview

    #: The position of the last header that was asked for.
    _last_start: int

    #: How many bytes were read at once, when the last piece was read through.
    _read_through_bytes: int

    def __init__(self, file: PositionalFile, mapped: memoryview | None, end: int) -> None:
        self._file = file
        self._end = end
        self._is_mapped = mapped is not None
        self._piece_start = 0
        self._piece = memoryview(b"")
        if mapped is not None:
            self._piece = mapped[:end]
        self._last_start = 0
        self._read_through_bytes = _FIRST_READ_THROUGH_BYTES

    def read(self, start: int) -> StoredHeader | None:
        """Return the header of the message at a position.

        Returns:
            None for the mark of a stream's end.

        Raises:
            DatasetFileCorruptError: the header is too large to be one, or is cut off.
        """
        # The old mark of a stream's end has four bytes, behind which nothing need follow.
        n_left = max(_OLD_PREFIX_BYTES, self._end - start)
        prefix = self._read(start, min(_PREFIX_BYTES, n_left))
        prefix_bytes = count_prefix_bytes(prefix)
        if len(prefix) < prefix_bytes:
            raise DatasetFileCorruptError(f"it ends within the message at byte {start}")
        size = int.from_bytes(prefix[prefix_bytes - 4 : prefix_bytes], "little")
        if size == 0:
            return None
        check_header_size(size)
        data = self._read(start + prefix_bytes, size)
        self._last_start = start
        return StoredHeader(data, prefix_bytes + size)

    def read_many(self, places: Iterable[tuple[int, int]]) -> Iterable[StoredHeader | None]:
        """Yield headers whose places are known, as :meth:`read` returns them.

        Args:
            places: where each header begins, and its size.
        """
        group: list[tuple[int, int]] = []
        group_bytes = 0
        for start, n_bytes in places:
            check_header_size(n_bytes)
            group.append((start, n_bytes))
            group_bytes += n_bytes
            if group_bytes > _BYTES_AT_ONCE:
                yield from self._read_group(group)
                group = []
                group_bytes = 0
        yield from self._read_group(group)

    def _read_group(self, places: list[tuple[int, int]]) -> Iterable[StoredHeader | None]:
        """Yield headers that are read by one request."""
        if self._is_mapped:
            for start, _ in places:
                yield self.read(start)
            return
        pieces = self._file.read_ranges(places)
        for (start, _), piece in zip(places, pieces, strict=True):
            self._piece_start = start
            self._piece = memoryview(piece)
            yield self.read(start)

    def _read(self, start: int, n_bytes: int) -> bytes:
        """Return bytes of the file.

        Raises:
            DatasetFileCorruptError: the file ends before.
        """
        offset = start - self._piece_start
        if offset < 0 or offset + n_bytes > len(self._piece):
            if not self._is_mapped:
                self._read_piece(start, n_bytes)
                offset = 0
            elif offset < 0:
                raise DatasetFileCorruptError(f"a message begins at byte {start}")
        data = bytes(self._piece[offset : offset + n_bytes])
        if len(data) < n_bytes:
            raise DatasetFileCorruptError(f"it ends within the message at byte {start}")
        return data

    def _read_piece(self, start: int, n_bytes: int) -> None:
        """Read a piece of the file that begins with some bytes."""
        wanted_bytes = max(n_bytes, _READ_AHEAD_BYTES)
        last_message_bytes = start - self._last_start
        if 0 < last_message_bytes <= _MAX_READ_THROUGH_BYTES:
            wanted_bytes = max(n_bytes, self._read_through_bytes)
            self._read_through_bytes = min(2 * self._read_through_bytes, _LAST_READ_THROUGH_BYTES)
        wanted_bytes = min(wanted_bytes, max(0, self._end - start))
        self._piece = memoryview(self._file.read_at(start, wanted_bytes))
        self._piece_start = start


def count_prefix_bytes(header: bytes | memoryview) -> int:
    """Return how many bytes come before the FlatBuffer of a header.

    Args:
        header: the first four bytes of the header, or more.
    """
    if bytes(header[:4]) == _CONTINUATION:
        return _PREFIX_BYTES
    return _OLD_PREFIX_BYTES


def check_header_size(n_bytes: int) -> None:
    """Check the size of a header or footer.

    Raises:
        DatasetFileCorruptError: it is negative, or too large to be one.
    """
    if not 0 <= n_bytes <= _MAX_HEADER_BYTES:
        raise DatasetFileCorruptError(f"a header states a size of {n_bytes} bytes")
