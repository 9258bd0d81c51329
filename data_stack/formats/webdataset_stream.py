"""A stream over a remote shard that fetches ahead of the reader."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait

from data_stack.formats.webdataset_kept import PIECE_BYTES
from data_stack.io.positional_stream import PositionalStream
from data_stack.io.resources import StreamedResource
from data_stack.util.executor import waiting


class PieceStream(PositionalStream):
    """A raw stream over a remote file, whose bytes come in pieces, several requests at once.

    While pieces are read one after the other, as many of the next ones are being fetched as were
    read, up to a limit. After a jump over a piece, only the piece is fetched that is needed, so
    that the content of a large file in a tar is skipped.

    One thread reads the stream. Closing it leaves the file open.

    Args:
        file: the file.
        max_ahead: the limit of the pieces that are fetched before they are needed.
        keep: called with the number and the bytes of each piece that is read.
    """

    _file: StreamedResource
    _max_ahead: int
    _keep: Callable[[int, bytes], None]
    #: The number of the piece that was read last; -1 before the first one.
    _number: int
    #: The bytes of this piece.
    _piece: bytes
    #: How many pieces were read one after the other, up to this one.
    _n_sequential: int
    #: The pieces behind it that are being fetched, by their numbers.
    _ahead: dict[int, Future[bytes]]

    def __init__(
        self, file: StreamedResource, max_ahead: int, keep: Callable[[int, bytes], None]
    ) -> None:
        self._file = file
        self._max_ahead = max_ahead
        self._keep = keep
        self._number = -1
        self._piece = b""
        self._n_sequential = 0
        self._ahead = {}

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._file.size

    def readinto_at(self, offset: int, buffer: memoryview, /) -> int:
        n_read = 0
        n_wanted = min(len(buffer), max(0, self.size - offset))
        while n_read < n_wanted:
            number, start = divmod(offset + n_read, PIECE_BYTES)
            piece = self._get_piece(number)
            part = piece[start : start + n_wanted - n_read]
            if not part:
                break
            buffer[n_read : n_read + len(part)] = part
            n_read += len(part)
        return n_read

    def close(self) -> None:
        self._drop_ahead()
        super().close()

    def _get_piece(self, number: int) -> bytes:
        """Return a piece, and fetch some of the next ones."""
        if number == self._number:
            return self._piece
        if number == self._number + 1:
            self._n_sequential += 1
        else:
            self._drop_ahead()
            self._n_sequential = 0

        future = self._ahead.pop(number, None)
        self._fetch_ahead(number)
        self._piece = self._fetch(number) if future is None else future.result()
        self._number = number
        self._keep(number, self._piece)
        return self._piece

    def _fetch_ahead(self, number: int) -> None:
        """Begin to fetch the pieces behind one."""
        n_pieces = -(-self.size // PIECE_BYTES)
        n_ahead = min(self._n_sequential, self._max_ahead)
        for next_number in range(number + 1, min(number + 1 + n_ahead, n_pieces)):
            if next_number not in self._ahead:
                self._ahead[next_number] = waiting.submit(self._fetch, next_number)

    def _fetch(self, number: int) -> bytes:
        # Unlike read_at(), this does not make the file read ahead on its own.
        return self._file.read_ranges([(number * PIECE_BYTES, PIECE_BYTES)])[0]

    def _drop_ahead(self) -> None:
        """Cancel what is being fetched, and wait for requests that were sent."""
        futures = self._ahead.values()
        wait([future for future in futures if not future.cancel()])
        self._ahead = {}
