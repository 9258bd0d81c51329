"""An open file of a cache, whose pages are checked whenever they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack.io.byte_source import ByteSource
from data_stack.io.integrity import DIGEST_BYTES, digests_of_blocks
from data_stack.io.storage_connectors.file_source import OpenedFile
from data_stack.util.forks import fork_lock

#: A page has a digest of its own. A disk and the system read whole pages, and hashing one takes 0.14 µs: with blocks of 64 KiB,
#: a random read of 4 KiB would take ten times as long.
PAGE_BYTES = 4096
#: What is read and checked at once: a read of a gigabyte that begins inside of a page must not hold it twice.
_AT_ONCE_BYTES = 1 << 20


class CheckedFile(ByteSource):
    """A verified file, each page of which is compared with its digest on every read.

    A disk that flips a bit leaves size and times as they are. The first page that differs ends the use of the file: from then on,
    the bytes come from another source.

    A map of the file (:meth:`fileno`) is not checked.

    Args:
        file: the open file; it is closed with the source.
        sha256: of its bytes.
        digests: of its pages, one after the other, as :func:`~data_stack.io.integrity.digests_of_blocks` makes them.
        read_again: called once where a page is damaged; removes the file, and returns a source of the same bytes.
    """

    size = 0
    sha256: str | None = None

    def __init__(
        self,
        file: OpenedFile,
        sha256: str,
        digests: Any,
        read_again: Callable[[], ByteSource],
    ) -> None:
        self.size = file.size
        self.sha256 = sha256
        self._file = file
        self._digests = digests
        self._read_again = read_again
        self._other: ByteSource | None = None
        self._lock = fork_lock()

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        end = min(offset + len(buffer), self.size)
        position = offset
        while position < end:
            stop = min(end, (position // _AT_ONCE_BYTES + 1) * _AT_ONCE_BYTES)
            part = buffer[position - offset : stop - offset]
            if self._other is not None or not self._read_checked(position, part):
                self._read_other(position, part)
            position = stop
        return max(0, end - offset)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        if self._other is not None:
            self._other.close()

    def _read_checked(self, offset: int, buffer: memoryview) -> bool:
        """Fill ``buffer`` from the file; whether the pages are as they should be."""
        end = offset + len(buffer)
        first_page = offset // PAGE_BYTES
        end_page = -(-end // PAGE_BYTES)
        start = first_page * PAGE_BYTES
        stop = min(end_page * PAGE_BYTES, self.size)
        is_aligned = start == offset and stop == end
        pages = buffer if is_aligned else memoryview(bytearray(stop - start))
        if self._file.readinto_at(start, pages) != stop - start:
            return False
        expected = self._digests[first_page * DIGEST_BYTES : end_page * DIGEST_BYTES]
        if digests_of_blocks(pages, PAGE_BYTES) != expected:
            return False
        if not is_aligned:
            buffer[:] = pages[offset - start : end - start]
        return True

    def _read_other(self, offset: int, buffer: memoryview) -> None:
        with self._lock:
            if self._other is None:
                self._other = self._read_again()
        self._other.readinto_at(offset, buffer)  # of the same length
