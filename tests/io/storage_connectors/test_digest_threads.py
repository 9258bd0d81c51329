"""The thread that hashes in the background ends, whatever becomes of the bytes that it hashes."""

from __future__ import annotations

import gc
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from block_digests import digests_of_blocks

from data_stack.io.integrity import Digest
from data_stack.io.storage_connectors import FileStorageConnector

PIECE = bytes(range(256)) * 4096  # 1 MiB


def hashing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("data_stack-digest")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    until = time.monotonic() + 10
    while hashing() and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert hashing() == []


def test_a_digest_in_the_background_is_that_of_the_bytes() -> None:
    digest = Digest()
    for _ in range(20):
        digest.update(PIECE)
    digest.update(bytearray(b"end"))

    assert digest.size == 20 * len(PIECE) + 3
    assert digest.sha256 == hashlib.sha256(PIECE * 20 + b"end").hexdigest()
    assert digest.blocks == digests_of_blocks(PIECE * 20 + b"end")


def test_the_thread_of_a_digest_that_was_given_up_ends() -> None:
    digest = Digest()
    digest.update(PIECE)
    assert hashing() != []

    del digest


def test_a_writer_that_fails_leaves_no_thread(tmp_path: Path) -> None:
    connector = FileStorageConnector(str(tmp_path))

    with pytest.raises(KeyError), connector.create("x") as file:
        file.write(PIECE)
        raise KeyError("an error of the writer")

    assert connector.list_resources() == []
