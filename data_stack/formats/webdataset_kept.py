"""The bytes of remote shards that stay in memory after their headers were read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from data_stack.util.forks import fork_lock

#: The length of a piece. Each piece of a shard but the last one has it.
PIECE_BYTES: Final = 1 << 20


class KeptPieces:
    """Pieces of the shards of a dataset, kept so that they are not fetched again.

    The headers of small files lie all over a shard, so that reading them fetches the files, too.
    If such shards exceed the limit, none is kept: a few of many would save little.
    Threads may share the pieces.

    Args:
        max_bytes: the limit of all shards together, in bytes.
    """

    #: The limit of all shards together, in bytes.
    _max_bytes: int
    #: The sizes of the shards in bytes, by their numbers.
    _sizes: dict[int, int]
    #: The size of all of them.
    _n_bytes: int
    #: The pieces by the numbers of their shard and of the piece.
    _pieces: dict[tuple[int, int], bytes]
    #: Held by a thread that adds a shard or a piece.
    _lock: threading.Lock

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sizes = {}
        self._n_bytes = 0
        self._pieces = {}
        self._lock = fork_lock()

    def expect(self, shard_number: int, size: int) -> None:
        """Expect the pieces of a shard; drop all pieces if the shards exceed the limit."""
        with self._lock:
            # After an error, the headers of a shard may be read again.
            self._n_bytes += size - self._sizes.get(shard_number, 0)
            self._sizes[shard_number] = size
            if self._n_bytes > self._max_bytes:
                self._pieces.clear()

    def keep(self, shard_number: int, piece_number: int, data: bytes) -> None:
        """Keep a piece of an expected shard, unless the shards exceed the limit."""
        with self._lock:
            if self._n_bytes <= self._max_bytes:
                self._pieces[shard_number, piece_number] = data

    def has(self, shard_number: int, offset: int, size: int) -> bool:
        """Return whether all bytes of a range of a shard are kept."""
        numbers = _pieces_in(offset, offset + size)
        return all((shard_number, number) in self._pieces for number in numbers)

    def has_all(self, shard_number: int, ranges: Sequence[tuple[int, int]]) -> bool:
        """Return whether all bytes of ranges, each an offset and a size, of a shard are kept."""
        return all(self.has(shard_number, offset, size) for offset, size in ranges)

    def find(self, shard_number: int, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Return the bytes of ranges, each an offset and a size, of a shard.

        None if some of the bytes are not kept.
        """
        if not self._pieces:
            return None
        contents = []
        for offset, size in ranges:
            content = self._find_range(shard_number, offset, offset + size)
            if content is None:
                return None
            contents.append(content)
        return contents

    def _find_range(self, shard_number: int, start: int, end: int) -> bytes | None:
        """Return the bytes of a range of a shard; None if some of them are not kept."""
        parts = []
        for number in _pieces_in(start, end):
            piece = self._pieces.get((shard_number, number))
            if piece is None:
                return None
            piece_start = number * PIECE_BYTES
            parts.append(piece[max(0, start - piece_start) : end - piece_start])
        if len(parts) == 1:
            return parts[0]
        return b"".join(parts)


def _pieces_in(start: int, end: int) -> range:
    """Return the numbers of the pieces that hold a range of bytes; none if it is empty."""
    if start >= end:
        return range(0)
    return range(start // PIECE_BYTES, -(-end // PIECE_BYTES))
