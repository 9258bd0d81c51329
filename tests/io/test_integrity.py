"""Digests of blocks or of the whole, by which the content of a resource is told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from process_harness import n_bytes_read
from s3_server import S3Server

from data_stack.io import integrity
from data_stack.io.folder import folder_of
from data_stack.io.integrity import (
    BLOCK_BYTES,
    BlockDigests,
    Digest,
    block_digest,
    content_of_resource,
    differing_blocks,
    digest_of_block,
    digests_of_blocks,
)
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector

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
    digest, lent = Digest(), bytearray(PIECE)
    for piece in [*pieces, lent]:
        digest.update(piece)
    lent[:] = bytes(len(lent))

    assert digest.sha256 == hashlib.sha256(b"".join(pieces) + PIECE).hexdigest()
    assert digest.blocks == digests_of_blocks(b"".join(pieces) + PIECE)


@pytest.mark.parametrize("position", [0, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 9, len(DATA) - 1])
def test_one_flipped_bit_is_located(position: int) -> None:
    damaged = bytearray(DATA)
    damaged[position] ^= 4

    digests, block = digests_of_blocks(DATA), position // BLOCK_BYTES
    assert differing_blocks(digests, digests_of_blocks(damaged)) == [block]
    assert digest_of_block(digests, block) == block_digest(DATA[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "_RESTLESS_NS", 0)
    (tmp_path / "x").write_bytes(PIECE * 3)
    with folder_of(tmp_path).open("x") as resource:
        first, n_read = content_of_resource(resource), n_bytes_read()
        assert content_of_resource(resource) == first == hashlib.sha256(PIECE * 3).hexdigest()
        assert n_bytes_read() - n_read < len(PIECE)
        (tmp_path / "x").write_bytes(b"other")
        assert content_of_resource(resource) == hashlib.sha256(b"other").hexdigest()


def test_a_file_that_others_put_into_a_bucket_is_told_by_its_tag_and_not_fetched(s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket()
    connector = FsspecStorageConnector(f"s3://{bucket}", **s3_server.options())

    def found(data: bytes) -> tuple[str, str]:
        tag = s3_server.client.put_object(Bucket=bucket, Key="x", Body=data)["ETag"]
        with connector.get_resource("x") as resource:
            return content_of_resource(resource), tag

    (one, its_tag), (same, _), (other, _) = found(b"content"), found(b"content"), found(b"another")

    assert its_tag.strip('"') in one
    assert one == same != other
