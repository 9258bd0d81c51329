"""Digests of blocks or of the whole, by which the content of a resource is told."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import pytest
from far_store import Claimed
from hypothesis import given
from hypothesis import strategies as st
from process_harness import flipped, n_bytes_read
from s3_server import S3Server

from data_stack.io.byte_source import ByteSource
from data_stack.io.checked_json import read_checked_json, to_checked_json
from data_stack.io.content import FileDigests, content_of_resource, contents_of_resources
from data_stack.io.folder import folder_of
from data_stack.io.integrity import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    BlockDigests,
    Digest,
    block_digest,
    differing_blocks,
    digest_of_block,
    digests_of_blocks,
)
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector

PIECE = bytes(range(256)) * 4096  # 1 MiB
DATA = hashlib.shake_128(b"blocks").digest(5 * BLOCK_BYTES + 77)
#: Of the specification of XXH3 (64 bits, no seed), as it is published with the reference
#: implementation's test vectors.
KNOWN = {b"": "2d06800538d394c2", b"a": "e6c632b61e964e1f", b"abc": "78af5f94892f3950"}


@pytest.mark.parametrize("data", KNOWN)
def test_the_digest_of_a_block_is_the_published_algorithm(data: bytes) -> None:
    assert block_digest(data).hex() == KNOWN[data]


@given(block_bytes=st.integers(1, 9), pieces=st.lists(st.binary(max_size=30)))
def test_pieces_of_any_size_give_the_digests_of_their_blocks(
    block_bytes: int, pieces: list[bytes]
) -> None:
    digests = BlockDigests(block_bytes)

    for piece in pieces:
        digests.update(memoryview(piece))

    assert digests.digests() == digests_of_blocks(b"".join(pieces), block_bytes)


def test_a_digest_in_the_background_is_that_of_the_bytes() -> None:
    pieces: list[bytes | bytearray] = [
        DATA,
        DATA[:1000],
        bytearray(b"changes later"),
        *[DATA] * 60,
        b"",
        DATA[:7],
    ]
    digest, lent = Digest(), bytearray(PIECE)
    for piece in [*pieces, lent]:
        digest.update(piece)
    lent[:] = bytes(len(lent))

    assert digest.sha256 == hashlib.sha256(b"".join(pieces) + PIECE).hexdigest()
    assert digest.blocks == digests_of_blocks(b"".join(pieces) + PIECE)


@pytest.mark.parametrize(
    "position", [0, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 9, len(DATA) - 1]
)
def test_one_flipped_bit_is_located(position: int) -> None:
    digests, block = digests_of_blocks(DATA), position // BLOCK_BYTES

    assert differing_blocks(digests, digests_of_blocks(flipped(DATA, 8 * position + 2))) == [block]
    assert digest_of_block(digests, block) == block_digest(
        DATA[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        to_checked_json({"a": "ä"})[:-1],
        to_checked_json({"a": "ä"})[1:],
        block_digest(b"[1]") + b"[1]",
    ],
)
def test_damaged_checked_json_is_empty(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)

    assert read_checked_json(str(tmp_path / "x")) == {}


def test_checked_json_that_could_not_be_read_back_is_refused(tmp_path: Path) -> None:
    largest = {"a": "x" * (BLOCK_BYTES - DIGEST_BYTES - len('{"a": ""}'))}
    (tmp_path / "x").write_bytes(to_checked_json(largest))

    assert read_checked_json(str(tmp_path / "x")) == largest
    with pytest.raises(ValueError, match="does not fit"):
        to_checked_json({"a": largest["a"] + "x"})


def test_checked_json_is_read_back_but_not_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(to_checked_json({"a": "ä"}))
    (tmp_path / "link").symlink_to("x")

    assert read_checked_json(str(tmp_path / "x")) == {"a": "ä"}
    assert read_checked_json(str(tmp_path / "link")) == {}
    assert read_checked_json(str(tmp_path / "missing")) == {}


def write_pieces(folder: Path, *names: str) -> None:
    """Write files of a piece each, of different content."""
    for name in names:
        (folder / name).write_bytes(PIECE + name.encode())


def n_pieces_read(files: FileDigests, folder: Path, name: str) -> int:
    """How many pieces are read to tell the digest of a file, which must be right."""
    n_before = n_bytes_read()
    with folder_of(folder).open(name) as resource:
        assert files.sha256_of(resource) == hashlib.sha256(PIECE + name.encode()).hexdigest()
    return (n_bytes_read() - n_before) // len(PIECE)


def test_new_files_are_read_again(tmp_path: Path) -> None:
    """They may change within a step of the clock of files."""
    write_pieces(tmp_path, "a")
    files = FileDigests(settling_ns=1000 * 10**9)

    assert [n_pieces_read(files, tmp_path, name) for name in "aa"] == [1, 1]


def test_files_are_read_again_once_too_many_are_remembered(tmp_path: Path) -> None:
    write_pieces(tmp_path, "a", "b", "c")
    files = FileDigests(max_files=2, settling_ns=0)

    n_pieces = [n_pieces_read(files, tmp_path, name) for name in "aabbacab"]

    assert n_pieces == [1, 0, 1, 0, 0, 1, 1, 1]


def test_contents_come_in_order(tmp_path: Path) -> None:
    write_pieces(tmp_path, "a", "b", "c")
    folder = folder_of(tmp_path)

    found = contents_of_resources([functools.partial(folder.open, name) for name in "abc"])

    assert found == [hashlib.sha256(PIECE + name.encode()).hexdigest() for name in "abc"]


def content_of(source: ByteSource) -> str:
    return content_of_resource(
        StreamedResource.from_source("x", source, InMemoryStorageConnector())
    )


def test_what_a_store_knows_of_the_content_is_not_read() -> None:
    found = [content_of(Claimed(9, *known)) for known in (("ab", "v1"), ("ab", None), (None, "v1"))]

    assert found == ["ab", "ab", "v1"]


@pytest.mark.parametrize(("size", "n_said"), [((1 << 30) - 1, 0), (1 << 30, 1)])
def test_the_log_says_what_takes_a_second_to_hash(
    size: int, n_said: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    assert content_of(Claimed(size)) == hashlib.sha256().hexdigest()

    assert caplog.text.count("computing the SHA-256 of 'x'") == n_said


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    files = FileDigests(settling_ns=0)
    (tmp_path / "x").write_bytes(PIECE * 3)
    with folder_of(tmp_path).open("x") as resource:
        first, n_read = files.sha256_of(resource), n_bytes_read()
        assert files.sha256_of(resource) == first == hashlib.sha256(PIECE * 3).hexdigest()
        assert n_bytes_read() - n_read < len(PIECE)
        (tmp_path / "x").write_bytes(b"other")
        assert files.sha256_of(resource) == hashlib.sha256(b"other").hexdigest()


def test_a_file_of_others_in_a_bucket_is_not_fetched(
    s3_server: S3Server,
) -> None:
    bucket = s3_server.new_bucket()
    connector = FsspecStorageConnector(f"s3://{bucket}", **s3_server.options())

    def found(data: bytes) -> tuple[str, str]:
        tag = s3_server.client.put_object(Bucket=bucket, Key="x", Body=data)["ETag"]
        with connector.get_resource("x") as resource:
            return content_of_resource(resource), tag

    (one, its_tag), (same, _), (other, _) = found(b"content"), found(b"content"), found(b"another")

    assert its_tag.strip('"') in one
    assert one == same != other
