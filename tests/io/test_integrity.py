"""Digests of blocks and of the whole: whatever the pieces that bytes come in, and whichever byte is damaged."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.io.integrity import (
    BLOCK_BYTES,
    BlockDigests,
    Digest,
    block_digest,
    differing_blocks,
    digests_of_blocks,
)

PIECE = bytes(range(256)) * 4096  # 1 MiB
DATA = hashlib.shake_128(b"blocks").digest(5 * BLOCK_BYTES + 77)
#: Of the specification of XXH3 (64 bits, no seed), as it is published with the reference implementation's test vectors.
KNOWN = {b"": "2d06800538d394c2", b"a": "e6c632b61e964e1f", b"abc": "78af5f94892f3950"}


@pytest.mark.parametrize("data", KNOWN)
def test_the_digest_of_a_block_is_the_published_algorithm(data: bytes) -> None:
    assert block_digest(data).hex() == KNOWN[data]


@given(block_bytes=st.integers(1, 9), pieces=st.lists(st.binary(max_size=30)))
def test_pieces_of_any_size_give_the_digests_of_their_blocks(block_bytes: int, pieces: list[bytes]) -> None:
    digests = BlockDigests(block_bytes)

    for piece in pieces:
        digests.update(memoryview(piece))

    assert digests.digests() == digests_of_blocks(b"".join(pieces), block_bytes)


def test_a_digest_in_the_background_is_that_of_the_bytes() -> None:
    pieces: list[bytes | bytearray] = [DATA, DATA[:1000], bytearray(b"changes later"), *[DATA] * 60, b"", DATA[:7]]
    digest = Digest()
    for piece in pieces:
        digest.update(piece)

    assert digest.sha256 == hashlib.sha256(b"".join(pieces)).hexdigest()
    assert digest.blocks == digests_of_blocks(b"".join(pieces))


@pytest.mark.parametrize("position", [0, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 9, len(DATA) - 1])
def test_one_flipped_bit_is_located(position: int) -> None:
    damaged = bytearray(DATA)
    damaged[position] ^= 4

    assert differing_blocks(digests_of_blocks(DATA), digests_of_blocks(damaged)) == [position // BLOCK_BYTES]
