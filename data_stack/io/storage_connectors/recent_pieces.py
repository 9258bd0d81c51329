"""The pieces of resources that were fetched last, kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from data_stack.util.forks import fork_lock

#: The number of a source, and that of the first block of a piece.
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Neighbouring blocks that were fetched together.

    Attributes:
        first: the number of the first block.
        n_blocks: how many blocks there are.
        data: the bytes of the blocks, end to end.
    """

    first: int
    n_blocks: int
    data: bytes | memoryview = field(repr=False)

    @property
    def numbers(self) -> range:
        """The numbers of the blocks."""
        return range(self.first, self.first + self.n_blocks)


def index_pieces(pieces: Iterable[Piece]) -> dict[int, Piece]:
    """Return the piece of each block, by the number of the block."""
    piece_of: dict[int, Piece] = {}
    for piece in pieces:
        piece_of.update(dict.fromkeys(piece.numbers, piece))
    return piece_of


def pieces_of(numbers: Sequence[int], piece_of: dict[int, Piece]) -> list[Piece]:
    """Return the pieces that have some blocks, each once.

    Args:
        numbers: the numbers of the blocks, ascending.
        piece_of: the piece of each of them.
    """
    pieces: list[Piece] = []
    for number in numbers:
        piece = piece_of[number]
        if not pieces or pieces[-1] is not piece:
            pieces.append(piece)
    return pieces


class RecentPieces:
    """The pieces of all sources that were fetched last. Threads may share them.

    The oldest piece goes first. A read makes a piece the newest, unless the piece was prefetched.
    Prefetched pieces are needed in the order in which they came: while the pieces of a window of a
    shuffle are read, those of the next window must stay, although nobody has read them yet.

    Args:
        max_bytes: the limit of all pieces together; the newest piece stays even if it exceeds it.
        max_bytes_prefetching: the limit while some of the pieces were prefetched.

    Attributes:
        n_bytes: the length of all pieces.
    """

    n_bytes: int
    _max_bytes: int
    _max_bytes_prefetching: int
    #: The pieces, the oldest first.
    _pieces: OrderedDict[_Key, Piece]
    #: The keys of those that were prefetched.
    _prefetched: set[_Key]
    #: The pieces of each source, by the numbers of their blocks.
    _piece_of: dict[int, dict[int, Piece]]
    #: Guards the attributes above.
    _lock: threading.Lock

    def __init__(self, max_bytes: int, max_bytes_prefetching: int) -> None:
        self.n_bytes = 0
        self._max_bytes = max_bytes
        self._max_bytes_prefetching = max_bytes_prefetching
        self._pieces = OrderedDict()
        self._prefetched = set()
        self._piece_of = {}
        self._lock = fork_lock()

    def find(self, source: int, numbers: Iterable[int]) -> dict[int, Piece]:
        """Return the pieces of those blocks that are kept.

        Args:
            source: the number of the source.
            numbers: the numbers of the blocks.

        Returns:
            The piece of each block, by the number of the block.
        """
        pieces: dict[int, Piece] = {}
        with self._lock:
            piece_of = self._piece_of.get(source)
            if piece_of is None:
                return pieces
            for number in numbers:
                piece = piece_of.get(number)
                if piece is None:
                    continue
                pieces[number] = piece
                key = (source, piece.first)
                if key not in self._prefetched:
                    self._pieces.move_to_end(key)
        return pieces

    def has(self, source: int, number: int) -> bool:
        """Return whether a block is kept; this does not count as a read."""
        return number in self._piece_of.get(source, ())

    def put(self, source: int, piece: Piece, *, is_prefetched: bool) -> None:
        """Keep a piece, and drop the oldest ones above the limit.

        Args:
            source: the number of the source.
            piece: the piece.
            is_prefetched: whether it was fetched before anybody needs it.
        """
        key = (source, piece.first)
        with self._lock:
            if key in self._pieces:
                self._remove(key)
            self._pieces[key] = piece
            if is_prefetched:
                self._prefetched.add(key)
            piece_of = self._piece_of.setdefault(source, {})
            older_pieces = {piece_of[number] for number in piece.numbers if number in piece_of}
            piece_of.update(dict.fromkeys(piece.numbers, piece))
            self.n_bytes += len(piece.data)
            # Nobody would find or drop a piece all of whose blocks are in newer ones.
            for older in older_pieces:
                if all(piece_of.get(number) is not older for number in older.numbers):
                    self._remove((source, older.first))
            while self.n_bytes > self._limit and len(self._pieces) > 1:
                self._remove(next(iter(self._pieces)))

    @property
    def _limit(self) -> int:
        """The limit of the pieces that are kept now."""
        if self._prefetched:
            return self._max_bytes_prefetching
        return self._max_bytes

    def drop(self, source: int) -> None:
        """Drop all pieces of a source."""
        with self._lock:
            pieces = self._piece_of.get(source, {}).values()
            for key in {(source, piece.first) for piece in pieces}:
                self._remove(key)

    def _remove(self, key: _Key) -> None:
        """Remove a piece. The caller holds the lock."""
        source, _ = key
        piece = self._pieces.pop(key)
        self._prefetched.discard(key)
        self.n_bytes -= len(piece.data)
        piece_of = self._piece_of[source]
        for number in piece.numbers:
            # Another piece may have the block as well.
            if piece_of.get(number) is piece:
                del piece_of[number]
        if not piece_of:
            del self._piece_of[source]
