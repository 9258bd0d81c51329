"""Pieces that are kept in memory: which go first, and which are found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_stack.io.storage_connectors.recent_pieces import (
    Piece,
    RecentPieces,
    index_pieces,
    pieces_of,
)


def piece_at(first: int, n_blocks: int = 1) -> Piece:
    return Piece(first, n_blocks, bytes(n_blocks * 10))


def kept_numbers(recent: RecentPieces, source: int = 0) -> list[int]:
    return [number for number in range(100) if recent.has(source, number)]


def test_a_piece_is_found_by_each_of_its_blocks() -> None:
    recent = RecentPieces(100, 100)
    piece = piece_at(4, 3)

    recent.put(0, piece, is_prefetched=False)

    assert recent.find(0, range(3, 9)) == {4: piece, 5: piece, 6: piece}
    assert recent.find(1, range(3, 9)) == {}


def test_the_piece_that_was_not_read_for_longest_goes_first() -> None:
    recent = RecentPieces(30, 30)
    for number in range(3):
        recent.put(0, piece_at(number), is_prefetched=False)

    recent.find(0, [0])
    recent.put(0, piece_at(3), is_prefetched=False)

    assert kept_numbers(recent) == [0, 2, 3]


def test_prefetched_pieces_go_in_the_order_in_which_they_came() -> None:
    recent = RecentPieces(30, 30)
    for number in range(3):
        recent.put(0, piece_at(number), is_prefetched=True)

    recent.find(0, [0])
    recent.put(0, piece_at(3), is_prefetched=True)

    assert kept_numbers(recent) == [1, 2, 3]


def test_prefetched_pieces_raise_the_limit() -> None:
    recent = RecentPieces(20, 30)
    recent.put(0, piece_at(0), is_prefetched=True)

    for number in range(1, 3):
        recent.put(0, piece_at(number), is_prefetched=False)

    assert kept_numbers(recent) == [0, 1, 2]


def test_without_prefetched_pieces_the_limit_is_the_lower_one() -> None:
    recent = RecentPieces(20, 30)

    for number in range(3):
        recent.put(0, piece_at(number), is_prefetched=False)

    assert kept_numbers(recent) == [1, 2]


def test_the_newest_piece_stays_even_above_the_limit() -> None:
    recent = RecentPieces(30, 30)
    recent.put(0, piece_at(0), is_prefetched=False)

    recent.put(0, piece_at(1, 9), is_prefetched=False)

    assert kept_numbers(recent) == list(range(1, 10))
    assert recent.n_bytes == 90


def test_a_block_stays_while_another_piece_has_it() -> None:
    recent = RecentPieces(60, 60)
    recent.put(0, piece_at(0, 3), is_prefetched=False)
    newer = piece_at(2, 3)
    recent.put(0, newer, is_prefetched=False)

    recent.put(0, piece_at(9), is_prefetched=False)

    assert kept_numbers(recent) == [2, 3, 4, 9]
    assert recent.find(0, [2]) == {2: newer}


def test_a_piece_without_blocks_of_its_own_goes() -> None:
    recent = RecentPieces(100, 100)
    recent.put(0, piece_at(1), is_prefetched=True)
    recent.put(0, piece_at(0, 3), is_prefetched=False)

    recent.drop(0)

    assert recent.n_bytes == 0


def test_dropping_a_source_leaves_the_others() -> None:
    recent = RecentPieces(100, 100)
    recent.put(0, piece_at(0, 2), is_prefetched=True)
    recent.put(1, piece_at(0, 2), is_prefetched=False)

    recent.drop(0)
    recent.drop(7)

    assert kept_numbers(recent, 0) == []
    assert kept_numbers(recent, 1) == [0, 1]
    assert recent.n_bytes == 20


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 12), st.integers(1, 5), st.booleans(), st.booleans()
        ),
        max_size=40,
    )
)
def test_every_piece_is_counted_and_indexed(
    steps: list[tuple[int, int, int, bool, bool]],
) -> None:
    recent = RecentPieces(100, 100)

    for source, first, n_blocks, is_prefetched, is_drop in steps:
        if is_drop:
            recent.drop(source)
        else:
            newest = piece_at(first, n_blocks)
            recent.put(source, newest, is_prefetched=is_prefetched)
            assert recent.find(source, newest.numbers) == dict.fromkeys(newest.numbers, newest)

        pieces = {}
        for each_source in range(3):
            for piece in recent.find(each_source, range(20)).values():
                pieces[each_source, piece.first] = piece
        assert sum(len(piece.data) for piece in pieces.values()) == recent.n_bytes
        assert recent.n_bytes <= 100


def test_pieces_of_blocks_come_once_in_order() -> None:
    first, second = piece_at(0, 3), piece_at(3, 2)

    piece_of = index_pieces([first, second])

    assert pieces_of([1, 2, 3, 4], piece_of) == [first, second]
