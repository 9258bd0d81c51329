"""Values travel in shared memory that is used again, and nobody sees the values of others."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from full_disk import files_limited
from hypothesis import given, settings
from hypothesis import strategies as st

from data_stack.loader.workers.received_segments import ReceivedSegments
from data_stack.loader.workers.segment_pool import (
    AddSegment,
    Content,
    DropSegments,
    ReturnSegments,
    SegmentPool,
)
from data_stack.processes.channel import Channel
from data_stack.processes.pickling import load
from data_stack.values.large_arrays import owns_memory

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no Unix sockets")

Array = npt.NDArray[Any]
SHAPE = (3, 1 << 20)
UINT8 = np.dtype(np.uint8)


class Line:
    """A pool, and the receiver of its values, at both ends of a channel."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._sending = Channel(ours)
        self._receiving = Channel(theirs)
        self.pool = SegmentPool(self._sending)
        self.received = ReceivedSegments()
        self.n_segments = 0

    def make(self, value: int) -> Array:
        """An array in a segment."""
        array = self.pool.empty_array(SHAPE, UINT8)
        assert array is not None
        array[:] = value
        return array

    def send(self, values: list[Any]) -> Any:
        """The one value of a list, as it is received."""
        self._sending.send(self.pool.lend(values))
        while True:
            message = self._receiving.receive()
            assert message is not None
            if isinstance(message.head, DropSegments):
                self.received.drop(message.head.numbers)
                continue
            if not isinstance(message.head, AddSegment):
                break
            assert message.load_payload is not None
            self.received.add(message.head.number, message.load_payload())
            self.n_segments += 1
        content: Content = message.head
        pickled, *buffers = self.received.open(content)
        return load(pickled, buffers)

    def give_back(self) -> ReturnSegments | None:
        """Return the segments to the pool to whose values nothing refers."""
        unused = self.received.take_unused()
        if unused is not None:
            self.pool.take_back(unused)
        return unused

    def close(self) -> None:
        self._sending.close()
        self._receiving.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


# ---------------------------------------------------------------------- memory is used again


def test_one_segment_serves_one_value_after_the_other(line: Line) -> None:
    for number in range(20):
        value = line.send([line.make(number)])
        assert (value == number).all()
        del value
        line.give_back()

    assert line.n_segments == 1


def test_a_value_that_is_kept_stays_as_it_is(line: Line) -> None:
    kept = line.send([line.make(200)])[1, 5:]  # a view of a view

    for number in range(5):
        line.give_back()
        line.send([line.make(number)])

    assert (kept == 200).all()
    kept[:] = 7  # it belongs to the receiver
    assert line.n_segments == 2


def test_memory_returns_to_the_system_with_both_ends(line: Line) -> None:
    line.send([line.make(1)])
    assert "memfd" in maps_of_this_process() or sys.platform != "linux"

    line.close()
    line.pool = SegmentPool(line._sending)
    line.received = ReceivedSegments()
    gc.collect()

    assert "memfd" not in maps_of_this_process()


def maps_of_this_process() -> str:
    if sys.platform != "linux":
        return ""
    with open("/proc/self/maps") as file:
        return file.read()


def test_memory_that_few_values_need_returns_to_the_system(line: Line) -> None:
    kept = [line.send([line.make(number)]) for number in range(3)]
    assert maps_of_this_process().count("memfd") == 6 or sys.platform != "linux"

    kept.clear()
    for number in range(5):
        line.give_back()
        line.send([line.make(number)])

    assert maps_of_this_process().count("memfd") == 2 or sys.platform != "linux"
    assert line.n_segments == 3


def test_segments_grow_with_the_values(line: Line) -> None:
    for n_bytes in (1 << 20, 3 << 20, 2 << 20, 3 << 20):
        array = line.pool.empty_array((n_bytes,), UINT8)
        assert array is not None
        array[:] = 1
        values = [array]
        del array
        assert line.send(values).nbytes == n_bytes
        line.give_back()

    assert line.n_segments == 2
    # One segment is left, of which each end has a map.
    assert maps_of_this_process().count("memfd") == 2 or sys.platform != "linux"


# ---------------------------------------------------------------------- arrays of the sender


def test_an_array_of_the_pool_owns_its_memory(line: Line) -> None:
    array = line.make(3)

    assert owns_memory(array)
    assert array.flags.writeable
    assert not owns_memory(array[1:])


def test_the_sender_keeps_an_array_that_it_still_refers_to(line: Line) -> None:
    mine = line.make(5)

    theirs = line.send([mine])
    theirs[:] = 9

    assert (mine == 5).all()
    mine[:] = 6
    assert (theirs == 9).all()


def test_a_view_that_the_sender_keeps_is_enough(line: Line) -> None:
    array = line.make(5)
    mine = array[2, 10:20]
    values = [{"array": array}]
    del array

    theirs = line.send(values)["array"]
    theirs[:] = 9

    assert mine.tolist() == [5] * 10


def test_arrays_that_overlap_arrive_as_two(line: Line) -> None:
    array = line.make(5)
    values = [(array, array[1:])]
    del array

    whole, part = line.send(values)
    whole[:] = 0

    assert (part == 5).all()


def test_parts_of_one_array_arrive_side_by_side(line: Line) -> None:
    array = line.make(5)
    array[2] = 6
    values = [(array[:1], array[2:])]
    del array

    first, last = line.send(values)

    assert (first == 5).all()
    assert (last == 6).all()
    assert line.n_segments == 1


def test_a_sender_that_keeps_many_arrays_gets_ordinary_ones(line: Line) -> None:
    kept = [line.pool.empty_array(SHAPE, UINT8) for _ in range(20)]

    assert [array is None for array in kept] == [False] * 16 + [True] * 4


@pytest.mark.parametrize(
    ("shape", "dtype"), [((100,), "u1"), ((1 << 20,), "O"), ((0, 1 << 21), "u1")]
)
def test_small_arrays_and_objects_are_not_shared(
    line: Line, shape: tuple[int, ...], dtype: str
) -> None:
    assert line.pool.empty_array(shape, np.dtype(dtype)) is None


# ---------------------------------------------------------------------- any value


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 63, 5_000, 20_000, 1_500_000]), max_size=5),
    are_read_only=st.booleans(),
    text=st.text(max_size=20),
)
def test_every_value_arrives_as_it_was(sizes: list[int], are_read_only: bool, text: str) -> None:
    line = Line()
    arrays = []
    for number, size in enumerate(sizes):
        array = np.arange(size, dtype=np.uint32) * (number + 1)
        array.flags.writeable = not are_read_only
        arrays.append(array)

    received_arrays, received_text = line.send([(arrays, text * 2_000)])

    assert received_text == text * 2_000
    for array, received in zip(arrays, received_arrays, strict=True):
        assert np.array_equal(array, received)
        assert received.flags.aligned
        assert received.flags.writeable == array.flags.writeable
    line.close()


def test_what_cannot_be_pickled_leaves_the_pool_usable(line: Line) -> None:
    values = [(line.make(1), threading.Lock())]

    with pytest.raises(TypeError):
        line.pool.lend(values)
    values.clear()

    assert (line.send([line.make(2)]) == 2).all()


def test_exhausted_memory_is_an_error_that_says_so(line: Line) -> None:
    array = np.zeros(SHAPE, np.uint8)

    with files_limited(1 << 20):
        assert line.pool.empty_array(SHAPE, UINT8) is None
        with pytest.raises(OSError, match=r"no shared memory is left for 3\.2 MB"):
            line.pool.lend([array])

    assert (line.send([array]) == 0).all()


# ---------------------------------------------------------------------- forks


def in_child(is_as_expected: Callable[..., bool], *arguments: Any) -> int:
    """The pid of a child that waits for the parent, and exits with 0 if a condition then holds."""
    go, start = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(start)
            os.read(go, 1)
            os._exit(0 if is_as_expected(*arguments) else 3)
        except BaseException:  # the parent sees the status
            os._exit(4)
    os.close(go)
    _starts[pid] = start
    return pid


_starts: dict[int, int] = {}


def is_all(array: Array, value: int) -> bool:
    return bool((array == value).all())


def makes_no_array(pool: SegmentPool) -> bool:
    return pool.empty_array(SHAPE, UINT8) is None


def status_of(pid: int) -> int:
    """Let the child begin, and return its exit status."""
    os.close(_starts.pop(pid))
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_fork_of_the_receiver_keeps_its_values(line: Line) -> None:
    value = line.send([line.make(200)])
    pid = in_child(is_all, value, 200)

    del value
    returned = line.give_back()
    line.send([line.make(1)])

    assert returned == ReturnSegments([], [0])
    assert status_of(pid) == 0


def test_a_fork_of_the_sender_keeps_its_arrays(line: Line) -> None:
    values = [line.make(200)]
    mine = values[0]
    pid = in_child(is_all, mine, 200)
    del mine

    theirs = line.send(values)
    theirs[:] = 9
    line.send([line.make(1)])

    assert status_of(pid) == 0


def test_a_fork_makes_no_array_in_a_segment(line: Line) -> None:
    line.send([line.make(200)])
    line.give_back()

    pid = in_child(makes_no_array, line.pool)

    assert status_of(pid) == 0
