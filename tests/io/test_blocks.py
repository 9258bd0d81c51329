"""Reading by position out of blocks gives the bytes that a plain slice does, in few requests and little memory."""

from __future__ import annotations

import hashlib
import threading
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import StorageUnavailableError
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.testing.storage import assert_same_bytes

DATA = hashlib.shake_128(b"blocks").digest(1 << 20)


class SlicedBlocks(Blocks):
    """Blocks of a bytes object; remembers the requests, and fails those it is told to."""

    def __init__(self, data: bytes, block_bytes: int) -> None:
        self.size, self.block_bytes, self.sha256 = len(data), block_bytes, hashlib.sha256(data).hexdigest()
        self.data = data
        self.requests: list[list[int]] = []
        self.fails = False
        self.is_closed = False

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        assert list(numbers) == sorted(set(numbers))
        assert numbers
        assert numbers[0] >= 0
        assert numbers[-1] * self.block_bytes < self.size
        if self.fails:
            raise StorageUnavailableError("the server is away")
        self.requests.append(list(numbers))
        return [self.data[number * self.block_bytes : (number + 1) * self.block_bytes] for number in numbers]

    def close(self) -> None:
        self.is_closed = True


class ZeroBlocks(Blocks):
    """256 MiB of zeros, a megabyte each."""

    size, block_bytes, sha256 = 1 << 28, 1 << 20, None

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        return [bytes(self.block_bytes) for _ in numbers]


def resource_of(blocks: Blocks) -> StreamedResource:
    return StreamedResource.from_source("x", BlockedSource(blocks), InMemoryStorageConnector())


@pytest.fixture
def blocks() -> SlicedBlocks:
    return SlicedBlocks(DATA, 10_000)


# ---------------------------------------------------------------------- laws

reads = st.lists(
    st.one_of(
        st.tuples(st.just("read_at"), st.integers(0, 400), st.integers(0, 400)),
        st.tuples(st.just("read"), st.just(0), st.integers(-1, 200)),
        st.tuples(st.just("seek"), st.integers(0, 400), st.just(0)),
        st.tuples(st.just("readinto_at"), st.integers(0, 400), st.integers(0, 400)),
        st.tuples(st.just("prefetch"), st.integers(0, 400), st.integers(0, 400)),
        st.tuples(st.just("read_ranges"), st.integers(0, 400), st.integers(0, 100)),
    ),
    max_size=30,
)


@given(size=st.integers(0, 300), block_bytes=st.integers(1, 400), steps=reads)
def test_any_sequence_of_reads_gives_slices_of_the_bytes(size: int, block_bytes: int, steps: list[tuple[str, int, int]]) -> None:
    data = DATA[:size]
    position = 0
    with resource_of(SlicedBlocks(data, block_bytes)) as resource:
        assert (resource.size, resource.sha256) == (size, hashlib.sha256(data).hexdigest())
        for step, offset, count in steps:
            if step == "read_at":
                assert resource.read_at(offset, count) == data[offset : offset + count]
            elif step == "read":
                expected = data[position:] if count < 0 else data[position : position + count]
                assert resource.read(count) == expected
                position += len(expected)
            elif step == "seek":
                position = resource.seek(offset)
            elif step == "readinto_at":
                buffer = bytearray(count)
                n_read = resource.readinto_at(offset, buffer)
                assert buffer[:n_read] == data[offset : offset + count]
                assert n_read == len(data[offset : offset + count])
            elif step == "prefetch":
                assert 1 <= resource.prefetch([(offset, count), (0, count)]) <= 2
            else:
                ranges = [(offset, count), (0, count), (count, 3), (offset // 2, count)]
                assert resource.read_ranges(ranges) == [data[start : start + length] for start, length in ranges]


# ---------------------------------------------------------------------- requests


def test_random_reads_fetch_the_blocks_they_touch_once_and_a_batch_of_ranges_in_one_request(blocks: SlicedBlocks) -> None:
    ranges = [(offset, 100) for offset in (900_000, 5, 500_000, 5, 29_950)]

    with resource_of(blocks) as resource:
        for offset in (555_555, 9_990, 555_000, 9_995):
            resource.read_at(offset, 10)
    with resource_of(blocks) as resource:
        assert resource.read_ranges(ranges) == [DATA[offset : offset + 100] for offset, _ in ranges]

    assert blocks.requests == [[55], [0], [1], [0, 2, 3, 50, 90]]


def test_more_than_there_is_room_for_is_prefetched_in_part() -> None:
    with resource_of(ZeroBlocks()) as resource:
        n_at_hand = resource.prefetch([(number << 20, 1) for number in range(100)])

        assert 8 <= n_at_hand < 16
        assert resource.prefetch([(0, 1 << 28)]) == 1
        assert resource.prefetch([]) == 0


# ---------------------------------------------------------------------- threads, forks, errors, memory


def test_what_a_store_says_reaches_the_reader_and_a_later_read_goes_on(blocks: SlicedBlocks) -> None:
    with resource_of(blocks) as resource:
        beginning = resource.read(25_000)
        blocks.fails = True
        with pytest.raises(StorageUnavailableError):
            resource.read_at(900_000, 10)
        with pytest.raises(StorageUnavailableError):
            resource.read_ranges([(900_000, 10)])
        blocks.fails = False

        assert_same_bytes(beginning + resource.read(), DATA)


def test_reading_much_takes_little_memory_and_leaves_no_thread() -> None:
    n_threads = threading.active_count()
    with resource_of(ZeroBlocks()) as resource:
        tracemalloc.start()
        n_bytes = sum(map(len, resource))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert n_bytes == 1 << 28
    assert peak < 64 << 20
    assert threading.active_count() <= n_threads  # idle threads of other tests may have ended
