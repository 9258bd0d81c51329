"""What a resource promises: lazy, positional, safe across threads, out of blocks in few requests
and little memory.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import threading
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from far_store import Claimed, CountedBlocks
from hypothesis import given
from hypothesis import strategies as st
from plain_connector import FilesConnector, PlainConnector
from process_census import descriptors
from process_harness import in_fork, until
from sizes import sized
from writing import resource_of

from data_stack import Resources
from data_stack.exception import ResourceChangedError, StorageUnavailableError
from data_stack.factories.resource_record import ResourceRecord
from data_stack.io.resources import ResourceFactory, StreamedResource, StreamedTextResource
from data_stack.io.storage_connectors import (
    FileStorageConnector,
    InMemoryStorageConnector,
    StorageConnector,
)
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.testing.comparing import assert_same_bytes

CONTENT = bytes(range(256)) * 400  # 100 KiB, every position tells where it is


@pytest.fixture(params=["file", "memory"])
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> StorageConnector:
    return FileStorageConnector(tmp_path) if request.param == "file" else InMemoryStorageConnector()


@pytest.fixture
def resource(connector: StorageConnector) -> Iterator[StreamedResource]:
    connector.set_resource("a/content.bin", CONTENT)
    with connector.get_resource("a/content.bin") as resource:
        yield resource


def test_nothing_is_opened_before_the_first_byte(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    connector.set_resource("lazy.bin", b"abc")

    resource = connector.get_resource("lazy.bin")
    before = descriptors()
    resource.read(1)
    after = descriptors()
    resource.close()

    assert [path for path in after if path not in before] == [str(tmp_path / "lazy.bin")]
    assert descriptors() == before


def test_iterating_gives_chunks_from_the_start_every_time() -> None:
    with StreamedResource("x", io.BytesIO(b"abcdefgh"), chunk_size=3) as resource:
        resource.read(5)

        assert list(resource) == list(resource) == [b"abc", b"def", b"gh"]
        resource.seek(6)
        assert next(resource) == b"gh"
        with pytest.raises(StopIteration):
            next(resource)


def test_only_a_wrapped_buffer_can_be_written(
    resource: StreamedResource,
) -> None:
    with StreamedResource("x", io.BytesIO()) as wrapped:
        assert wrapped.writable()
        assert wrapped.write(b"zz") == 2
        assert list(wrapped) == [b"zz"]

    with pytest.raises(io.UnsupportedOperation):
        resource.write(b"zz")


# ---------------------------------------------------------------------- text


def test_the_factory_makes_both_kinds() -> None:
    types = ResourceFactory.SupportedStreamedResourceTypes
    with ResourceFactory.get_resource(
        identifier="b", file_like_object=io.BytesIO(b"x"), chunk_size=1
    ) as binary:
        assert isinstance(binary, StreamedResource)
        assert binary.chunk_size == 1
    with ResourceFactory.get_resource(
        "t", io.BytesIO(b"x"), resource_type=types.STREAMED_TEXT_RESOURCE
    ) as text:
        assert isinstance(text, StreamedTextResource)


# ---------------------------------------------------------------------- threads and processes


def test_forking_while_a_thread_reads_does_not_hang_the_child(resource: StreamedResource) -> None:
    done = threading.Event()

    def keep_reading() -> None:
        while not done.is_set():
            resource.seek(0)
            resource.read(60_000)

    thread = threading.Thread(target=keep_reading)
    thread.start()
    try:
        for _ in range(sized(3, 8)):
            assert in_fork(lambda: resource.seek(7) == 7 and resource.read(5) == CONTENT[7:12]) == 0
    finally:
        done.set()
        thread.join()


def test_a_pickled_resource_refuses_bytes_that_were_replaced_meanwhile(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    connector.set_resource("x", b"old")
    with connector.get_resource("x") as resource:
        pickled = pickle.dumps(resource)

    connector.set_resource("x", b"new")

    with (
        pickle.loads(pickled) as reopened,
        pytest.raises(ResourceChangedError, match="'x' was replaced"),
    ):
        reopened.read()
    with pickle.loads(pickled) as reopened, pytest.raises(ResourceChangedError):
        reopened.read_at(0, 1)
    connector.set_resource("x", b"old")
    with pickle.loads(pickled) as reopened:
        assert reopened.read() == b"old"


@pytest.fixture(params=[PlainConnector, FilesConnector])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> PlainConnector:
    made: PlainConnector = request.param(tmp_path / "store")
    made.set_resource("words/x", [CONTENT])
    return made


def test_a_copy_stands_at_its_start_and_reads_by_itself(plain: PlainConnector) -> None:
    with plain.get_resource("words/x") as resource:
        resource.seek(1000)

        with pickle.loads(pickle.dumps(resource)) as copied:
            assert (copied.identifier, copied.read(3), resource.tell()) == (
                "words/x",
                CONTENT[:3],
                1000,
            )
            assert copied.read_at(5, 4) == CONTENT[5:9]
            with pickle.loads(pickle.dumps(copied)) as copied_again:
                assert copied_again.read() == CONTENT


def test_replaced_bytes_of_known_digest_are_refused(
    tmp_path: Path,
) -> None:
    connector = PlainConnector(tmp_path)
    connector.set_resource("words/x", [b"old"])
    record = ResourceRecord(
        "x", 3, "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4"
    )
    with (
        connector.get_resource("words/x") as direct,
        Resources(connector, "words", [record])["x"] as pinned,
    ):
        pickled = [pickle.dumps(direct), pickle.dumps(pinned)]

    connector.set_resource("words/x", [b"new"])

    for each in pickled:
        with (
            pickle.loads(each) as reopened,
            pytest.raises(ResourceChangedError, match="'words/x' was replaced"),
        ):
            reopened.read()
    with (
        Resources(connector, "words", [record])["x"] as changed,
        pytest.raises(ResourceChangedError),
    ):
        changed.read_at(0, 1)


def test_a_claimed_size_takes_no_memory() -> None:
    assert (
        StreamedResource.from_source("x", Claimed(1 << 60), InMemoryStorageConnector()).read(
            1 << 60
        )
        == b""
    )


# ---------------------------------------------------------------------- out of blocks


DATA = hashlib.shake_128(b"blocks").digest(1 << 20)


class ZeroBlocks(Blocks):
    """256 MiB of zeros, a megabyte each."""

    size, block_bytes, sha256 = 1 << 28, 1 << 20, None

    def fetch_run(self, first: int, n_blocks: int) -> bytes:
        return bytes(n_blocks * self.block_bytes)


def blocked(blocks: Blocks) -> StreamedResource:
    return StreamedResource.from_source("x", BlockedSource(blocks), InMemoryStorageConnector())


def in_blocks(data: bytes, block_bytes: int, requests: list[list[int]]) -> StreamedResource:
    return blocked(CountedBlocks(resource_of(data), requests, block_bytes))


STEPS = (
    "read",
    "readline",
    "readinto",
    "seek",
    "from_end",
    "read_at",
    "readinto_at",
    "prefetch",
    "read_ranges",
    "read_views",
)


@given(
    size=st.integers(0, 300),
    block_bytes=st.none() | st.integers(1, 400),
    steps=st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 400), st.integers(-1, 400)), max_size=30
    ),
)
def test_a_resource_reads_like_a_file_in_any_order(
    size: int, block_bytes: int | None, steps: list[tuple[str, int, int]]
) -> None:
    """In blocks, or out of memory."""
    data = DATA[:size]
    model = io.BytesIO(data)
    with resource_of(data) if block_bytes is None else in_blocks(data, block_bytes, []) as resource:
        assert (resource.size, resource.sha256) == (size, hashlib.sha256(data).hexdigest())
        for step, offset, count in steps:
            n = max(0, count)
            if step in ("read", "readline"):
                assert getattr(resource, step)(count) == getattr(model, step)(count)
            elif step == "seek":
                assert resource.seek(offset) == model.seek(offset)
            elif step == "from_end":
                assert resource.seek(-min(size, offset), os.SEEK_END) == model.seek(
                    -min(size, offset), os.SEEK_END
                )
            elif step == "readinto":
                ours, theirs = bytearray(n), bytearray(n)
                assert (resource.readinto(ours), ours) == (model.readinto(theirs), theirs)
            elif step == "read_at":
                assert resource.read_at(offset, n) == data[offset : offset + n]
            elif step == "readinto_at":
                buffer = bytearray(n)
                n_read = resource.readinto_at(offset, buffer)
                assert (n_read, bytes(buffer[:n_read])) == (
                    len(data[offset : offset + n]),
                    data[offset : offset + n],
                )
            elif step == "prefetch":
                assert int(block_bytes is not None) <= resource.prefetch([(offset, n), (0, n)]) <= 2
            else:
                ranges = [(offset, n), (0, n), (n, 3), (offset // 2, n)]
                assert getattr(resource, step)(ranges) == [
                    data[start : start + length] for start, length in ranges
                ]
            assert resource.tell() == model.tell()


@pytest.mark.parametrize("block_bytes", [None, 8])
def test_an_empty_zip_is_read_out_of_a_resource(block_bytes: int | None) -> None:
    file = io.BytesIO()
    zipfile.ZipFile(file, "w").close()
    data = file.getvalue()

    # zipfile looks for a record before the start of the file.
    with resource_of(data) if block_bytes is None else in_blocks(data, block_bytes, []) as resource:
        assert zipfile.ZipFile(resource).namelist() == []


# ---------------------------------------------------------------------- requests


def test_random_reads_fetch_each_block_once() -> None:
    requests: list[list[int]] = []
    ranges = [(offset, 100) for offset in (900_000, 5, 500_000, 5, 29_950)]

    with in_blocks(DATA, 10_000, requests) as resource:
        for offset in (555_555, 9_990, 555_000, 9_995):
            resource.read_at(offset, 10)
    with in_blocks(DATA, 10_000, requests) as resource:
        assert resource.read_ranges(ranges) == [DATA[offset : offset + 100] for offset, _ in ranges]

    assert requests == [[55], [0], [1], [0, 2, 3, 50, 90]]


def test_views_of_one_block_share_its_memory() -> None:
    with in_blocks(DATA, 10_000, []) as resource:
        first, second, across = resource.read_views([(5, 100), (9_000, 900), (9_999, 2)])

        assert first.obj is second.obj
        assert first.readonly
        assert across == DATA[9_999:10_001]


def test_more_than_there_is_room_for_is_prefetched_in_part() -> None:
    with blocked(ZeroBlocks()) as resource:
        n_at_hand = resource.prefetch([(number << 20, 1) for number in range(100)])

        assert 16 <= n_at_hand < 32
        assert resource.prefetch([(0, 1 << 28)]) == 1
        assert resource.prefetch([]) == 0


# ------------------------------------------------------------------- threads, forks, errors, memory


def test_an_error_of_a_store_does_not_stop_later_reads() -> None:
    with in_blocks(DATA, 10_000, []) as resource:
        beginning = resource.read(25_000)
        with mock.patch.object(
            CountedBlocks, "fetch", side_effect=StorageUnavailableError("the server is away")
        ):
            with pytest.raises(StorageUnavailableError):
                resource.read_at(900_000, 10)
            with pytest.raises(StorageUnavailableError):
                resource.read_ranges([(900_000, 10)])

        assert_same_bytes(beginning + resource.read(), DATA)


def test_reading_much_takes_little_memory_and_leaves_no_thread() -> None:
    n_threads = threading.active_count()
    with blocked(ZeroBlocks()) as resource:
        tracemalloc.start()
        n_bytes = sum(map(len, resource))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert n_bytes == 1 << 28
    assert peak < 64 << 20
    # Idle threads of other tests may have ended.
    assert until(lambda: threading.active_count() <= n_threads)
