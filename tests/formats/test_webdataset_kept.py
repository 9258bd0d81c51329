"""Pieces of shards that stay in memory."""

from __future__ import annotations

import random

import pytest

from data_stack.formats.webdataset_kept import PIECE_BYTES, KeptPieces

SIZE = 2 * PIECE_BYTES + 1000


@pytest.fixture(scope="module")
def data() -> bytes:
    return random.Random(0).randbytes(SIZE)


def keep_shard(kept: KeptPieces, shard_number: int, data: bytes) -> None:
    kept.expect(shard_number, len(data))
    for start in range(0, len(data), PIECE_BYTES):
        kept.keep(shard_number, start // PIECE_BYTES, data[start : start + PIECE_BYTES])


@pytest.mark.parametrize(
    ("offset", "size"),
    [
        (0, 0),
        (0, 1),
        (PIECE_BYTES - 1, 1),
        (PIECE_BYTES - 1, 2),
        (PIECE_BYTES, PIECE_BYTES),
        (17, 2 * PIECE_BYTES),
        (0, SIZE),
        (SIZE - 1, 1),
        (SIZE, 0),
    ],
)
def test_a_range_is_joined_from_its_pieces(data: bytes, offset: int, size: int) -> None:
    kept = KeptPieces(SIZE)
    keep_shard(kept, 3, data)

    assert kept.has(3, offset, size)
    assert kept.find(3, [(offset, size)]) == [data[offset : offset + size]]


def test_a_range_with_a_missing_piece_is_not_found(data: bytes) -> None:
    kept = KeptPieces(SIZE)
    kept.expect(0, SIZE)
    kept.keep(0, 0, data[:PIECE_BYTES])

    assert kept.find(0, [(0, 5), (PIECE_BYTES - 1, 2)]) is None
    assert not kept.has(0, PIECE_BYTES - 1, 2)


def test_a_piece_of_another_shard_is_not_found(data: bytes) -> None:
    kept = KeptPieces(SIZE)
    keep_shard(kept, 0, data)

    assert kept.find(1, [(0, 5)]) is None


def test_no_piece_is_kept_above_the_limit(data: bytes) -> None:
    kept = KeptPieces(2 * SIZE - 1)
    keep_shard(kept, 0, data)

    keep_shard(kept, 1, data)

    assert kept.find(0, [(0, 5)]) is None
    assert kept.find(1, [(0, 5)]) is None


def test_a_shard_that_comes_again_counts_once(data: bytes) -> None:
    kept = KeptPieces(SIZE)
    keep_shard(kept, 0, data)

    keep_shard(kept, 0, data)

    assert kept.find(0, [(0, SIZE)]) == [data]
