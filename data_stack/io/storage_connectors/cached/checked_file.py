"""An open file of a cache, whose pages are verified whenever they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack.io.byte_source import ByteSource
from data_stack.io.integrity import DIGEST_BYTES, digests_of_blocks
from data_stack.io.storage_connectors.file.opened_file import OpenedFile
from data_stack.util.forks import fork_lock

#: Each page has a digest of its own. A disk and the system read whole pages, and hashing one takes
#: 0.14 µs. With blocks of 64 KiB, a random read of 4 KiB would take ten times as long.
PAGE_BYTES = 4096

#: At most this much is read and verified at once. A read of a gigabyte that begins inside of a page
#: needs a copy of its pages, and must not hold all of them.
_MAX_PIECE_BYTES = 1 << 20


class CheckedFile(ByteSource):
    """A verified file, each page of which is compared with its digest on every read.

    A disk that flips a bit leaves the size and the times of a file as they are. The first page that
    differs ends the use of the file: from then on, the bytes come from another source.

    A memory map of the file (:meth:`fileno`) is not verified.

    Args:
        file: the open file. It is closed with the source.
        sha256: the SHA-256 of the file, 64 hex digits.
        digests: the digests of its pages, one after the other, as
            :func:`~data_stack.io.integrity.digests_of_blocks` returns them.
        read_again: called once if a page is damaged. It removes the file, and returns a source of
            the same bytes.
    """

    # Attributes in place of the abstract properties; the constructor sets them.
    size = 0
    sha256: str | None = None
    _file: OpenedFile
    _digests: Any
    _read_again: Callable[[], ByteSource]
    #: The source that replaces the file once a page was damaged.
    _replacement: ByteSource | None
    #: Held while the replacement is opened.
    _lock: Any

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
        self._replacement = None
        self._lock = fork_lock()

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        end = min(offset + len(buffer), self.size)
        n_bytes = max(0, end - offset)
        if 0 < n_bytes <= _MAX_PIECE_BYTES:
            self._read_piece(offset, buffer[:n_bytes])
            return n_bytes

        # Pieces end at multiples of the limit, so that all but the ends of a read are whole pages.
        position = offset
        while position < end:
            stop = min(end, (position // _MAX_PIECE_BYTES + 1) * _MAX_PIECE_BYTES)
            self._read_piece(position, buffer[position - offset : stop - offset])
            position = stop
        return n_bytes

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        if self._replacement is not None:
            self._replacement.close()

    def _read_piece(self, offset: int, buffer: memoryview) -> None:
        if self._replacement is not None or not self._read_verified(offset, buffer):
            self._read_replacement(offset, buffer)

    def _read_verified(self, offset: int, buffer: memoryview) -> bool:
        """Fill ``buffer`` from the file. Return whether all pages that it touches are intact."""
        end = offset + len(buffer)
        first_page = offset // PAGE_BYTES
        end_page = -(-end // PAGE_BYTES)
        start = first_page * PAGE_BYTES
        stop = min(end_page * PAGE_BYTES, self.size)

        is_aligned = start == offset and stop == end
        pages = buffer
        if not is_aligned:
            pages = memoryview(bytearray(stop - start))
        if self._file.readinto_at(start, pages) != stop - start:
            return False

        expected = self._digests[first_page * DIGEST_BYTES : end_page * DIGEST_BYTES]
        if digests_of_blocks(pages, PAGE_BYTES) != expected:
            return False
        if not is_aligned:
            buffer[:] = pages[offset - start : end - start]
        return True

    def _read_replacement(self, offset: int, buffer: memoryview) -> None:
        with self._lock:
            if self._replacement is None:
                self._replacement = self._read_again()
        # The replacement has the same length, so it fills the buffer.
        self._replacement.readinto_at(offset, buffer)
