"""Decides which pieces of documents share a sequence, from their lengths alone."""

from __future__ import annotations

import bisect
import heapq
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int32]
"""The number of tokens of each piece, shape ``(n_pieces,)``."""

SequenceNumbers = npt.NDArray[np.int32]
"""The number of the sequence of each piece, shape ``(n_pieces,)``."""

#: Pieces that are turned into Python's integers at once, which take several times the memory of
#: those in an array.
_PIECES_AT_ONCE = 1 << 16

#: Sequences that :func:`fit_first` may still add to. More of them would leave less padding, and
#: take longer to search; a sequence would hold documents that lie farther apart.
_MAX_OPEN_SEQUENCES = 1024


def fit_best(lengths: Lengths, capacity: int, max_pieces: int | None = None) -> SequenceNumbers:
    """Put each piece into the fullest sequence that has room for it, the longest pieces first.

    This is best-fit decreasing. With ``max_pieces``, each piece is put into the emptiest sequence
    where that takes fewer sequences. Pieces of one length are interchangeable, so best fit
    places them together, which takes a third of a second for a million pieces.

    Source: Johnson, Near-optimal bin packing algorithms (MIT, 1973).

    Args:
        lengths: the lengths of the pieces, from 1 to ``capacity``. Of equally long pieces, the
            first one is placed first.
        capacity: the number of tokens of a sequence.
        max_pieces: the largest number of pieces in a sequence; None for no limit.

    Returns:
        The number of the sequence of each piece; each number has a piece.
    """
    if max_pieces is None:
        return _fit_fullest(lengths, capacity, sys.maxsize)
    # Long pieces fill sequences by themselves, and leave too many short ones for the last
    # sequences, which then hold ``max_pieces`` of them and much padding. Where this costs more
    # sequences, long and short pieces are spread over all sequences.
    fitted = _fit_fullest(lengths, capacity, max_pieces)
    spread = _fit_emptiest(lengths, capacity, max_pieces)
    return min(fitted, spread, key=lambda numbers: numbers.max(initial=-1))


def _fit_fullest(lengths: Lengths, capacity: int, max_pieces: int) -> SequenceNumbers:
    """Put each piece, the longest first, into the fullest sequence with room for it."""
    longest_first = _order_longest_first(lengths)
    distinct_lengths, n_of_lengths = np.unique(lengths, return_counts=True)
    numbers = np.empty(len(lengths), dtype=np.int32)
    open_sequences = _OpenSequences(capacity, max_pieces)
    start = 0
    for length, n_pieces in zip(
        distinct_lengths[::-1].tolist(), n_of_lengths[::-1].tolist(), strict=True
    ):
        stop = start + n_pieces
        while start < stop:
            placed = open_sequences.place(length, stop - start)
            numbers[longest_first[start : start + len(placed)]] = placed
            start += len(placed)
    return numbers


def _fit_emptiest(lengths: Lengths, capacity: int, max_pieces: int) -> SequenceNumbers:
    """Put each piece, the longest first, into the emptiest of as many sequences as needed."""
    n_tokens = int(lengths.sum(dtype=np.int64))
    n_sequences = max(-(-n_tokens // capacity), -(-len(lengths) // max_pieces))
    # The free tokens, negative as the heap has its smallest item first, and the sequence.
    rooms = [(-capacity, sequence) for sequence in range(n_sequences)]
    n_free_places = [max_pieces] * n_sequences
    numbers = np.empty(len(lengths), dtype=np.int32)
    for piece, length in _iterate_longest_first(lengths):
        if not rooms or -rooms[0][0] < length:
            # None of the sequences has room for it.
            heapq.heappush(rooms, (-capacity, len(n_free_places)))
            n_free_places.append(max_pieces)
        negative_room, sequence = rooms[0]
        numbers[piece] = sequence
        n_free_places[sequence] -= 1
        if n_free_places[sequence] == 0:
            heapq.heappop(rooms)
        else:
            heapq.heapreplace(rooms, (negative_room + length, sequence))
    return numbers


def _iterate_longest_first(lengths: Lengths) -> Iterator[tuple[int, int]]:
    """Yield each piece and its length, the longest first."""
    longest_first = _order_longest_first(lengths)
    for start in range(0, len(longest_first), _PIECES_AT_ONCE):
        pieces = longest_first[start : start + _PIECES_AT_ONCE]
        yield from zip(pieces.tolist(), lengths[pieces].tolist(), strict=True)


def _order_longest_first(lengths: Lengths) -> npt.NDArray[np.intp]:
    # Lengths are positive, so their negatives fit into the same type.
    return np.argsort(-lengths, kind="stable")


class _OpenSequences:
    """Sequences that have room, grouped by how much.

    Args:
        capacity: the number of tokens of a sequence.
        max_pieces: the largest number of pieces in a sequence.
    """

    #: The number of tokens of a sequence.
    _capacity: int

    #: The largest number of pieces in a sequence.
    _max_pieces: int

    #: The free tokens and the free places for pieces of each group, ascending.
    _rooms: list[tuple[int, int]]

    #: The numbers of the sequences of each group, in several arrays.
    _groups: dict[tuple[int, int], list[SequenceNumbers]]

    #: The number of sequences that were begun.
    _n_sequences: int

    def __init__(self, capacity: int, max_pieces: int) -> None:
        self._capacity = capacity
        self._max_pieces = max_pieces
        self._rooms = []
        self._groups = {}
        self._n_sequences = 0

    def place(self, length: int, n_pieces: int) -> SequenceNumbers:
        """Place pieces of one length into the sequences of one group.

        Args:
            length: the length of each piece.
            n_pieces: how many pieces there are to place, at least 1.

        Returns:
            The number of the sequence of each piece that was placed: of all of them, or of as many
            as the fullest sequences with enough room take.
        """
        room, sequences = self._take_fullest(length, n_pieces)
        n_free_tokens, n_free_places = room
        # A sequence stays the fullest one with enough room until it has no room.
        n_in_each = min(n_free_tokens // length, n_free_places)
        n_needed = -(-n_pieces // n_in_each)
        if n_needed < len(sequences):
            self._give_back(room, sequences[n_needed:])
            sequences = sequences[:n_needed]
        placed = np.repeat(sequences, n_in_each)[:n_pieces]

        # All sequences received the same number of pieces, except perhaps the last one.
        n_in_last = len(placed) - n_in_each * (len(sequences) - 1)
        self._give_back(
            (n_free_tokens - n_in_each * length, n_free_places - n_in_each), sequences[:-1]
        )
        self._give_back(
            (n_free_tokens - n_in_last * length, n_free_places - n_in_last), sequences[-1:]
        )
        return placed

    def _take_fullest(self, length: int, n_pieces: int) -> tuple[tuple[int, int], SequenceNumbers]:
        """Take out the group of the fullest sequences with enough room; begin new ones if none has.

        Returns:
            The room of each sequence, and the numbers of the sequences.
        """
        index = bisect.bisect_left(self._rooms, (length, 0))
        if index < len(self._rooms):
            room = self._rooms.pop(index)
            return room, np.concatenate(self._groups.pop(room))
        n_in_each = min(self._capacity // length, self._max_pieces)
        n_new = -(-n_pieces // n_in_each)
        first = self._n_sequences
        self._n_sequences += n_new
        new_sequences = np.arange(first, first + n_new, dtype=np.int32)
        return (self._capacity, self._max_pieces), new_sequences

    def _give_back(self, room: tuple[int, int], sequences: SequenceNumbers) -> None:
        """Keep sequences that have ``room`` for later pieces; full ones are forgotten."""
        n_free_tokens, n_free_places = room
        if len(sequences) == 0 or n_free_tokens == 0 or n_free_places == 0:
            return
        if room not in self._groups:
            bisect.insort(self._rooms, room)
            self._groups[room] = []
        self._groups[room].append(sequences)


def fit_first(
    lengths: Lengths,
    capacity: int,
    max_pieces: int | None = None,
    *,
    max_open: int = _MAX_OPEN_SEQUENCES,
) -> SequenceNumbers:
    """Put each piece into the first sequence that has room for it, in the order of the pieces.

    Few sequences are open at a time: the oldest one is closed when another one is begun. So the
    documents of a sequence lie near each other.

    Args:
        lengths: the lengths of the pieces, from 1 to ``capacity``.
        capacity: the number of tokens of a sequence.
        max_pieces: the largest number of pieces in a sequence; None for no limit.
        max_open: the number of sequences that are open, at least 1.

    Returns:
        The number of the sequence of each piece. Sequences are numbered in the order in which they
        receive their first piece.
    """
    most_pieces = sys.maxsize if max_pieces is None else max_pieces
    # The last of the open sequences is the newest one. A closed one has no room.
    n_free_tokens = np.zeros(max_open, dtype=np.int64)
    n_pieces = [0] * max_open
    n_begun = 0
    numbers = np.empty(len(lengths), dtype=np.int32)
    for piece, length in enumerate(lengths.tolist()):
        has_room = n_free_tokens >= length
        slot = int(has_room.argmax())
        if not has_room[slot]:
            n_free_tokens[:-1] = n_free_tokens[1:]
            n_pieces.append(0)
            del n_pieces[0]
            slot = max_open - 1
            n_free_tokens[slot] = capacity
            n_begun += 1
        numbers[piece] = n_begun - max_open + slot
        n_pieces[slot] += 1
        if n_pieces[slot] < most_pieces:
            n_free_tokens[slot] -= length
        else:
            n_free_tokens[slot] = 0
    return numbers
