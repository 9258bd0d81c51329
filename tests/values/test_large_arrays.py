"""Memory of large arrays: whose it is, and when it serves the next one."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator.ownership import detach
from data_stack.values import large_arrays
from data_stack.values.large_arrays import has_own_memory, new_array, take_values

MEBI = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_lies_idle() -> Iterator[None]:
    large_arrays._idle.clear()
    yield
    large_arrays._idle.clear()


def idle_bytes() -> int:
    return sum(map(len, large_arrays._idle))


@pytest.mark.parametrize("shape", [(), (0, 5), (3,), (5 * MEBI,), (2, 3, MEBI), (9 * MEBI, 0)])
@pytest.mark.parametrize("dtype", ["uint8", "<f8", "S7", object, [("a", "i4"), ("b", "f8")]])
def test_an_array_has_the_shape_and_dtype_that_are_asked_for_and_is_its_owners(shape: tuple[int, ...], dtype: object) -> None:
    array = new_array(shape, np.dtype(dtype))  # type: ignore[call-overload]  # any dtype

    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))  # type: ignore[call-overload]
    assert has_own_memory(array)
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.flags.aligned


def test_memory_is_reused_once_the_last_view_is_freed() -> None:
    first = new_array((16, MEBI), "uint8")
    first[:] = 1
    view = first[3:].reshape(-1).view("uint16")
    place = first.ctypes.data
    del first

    second = new_array((16, MEBI), "uint8")
    second[:] = 2
    del view
    gc.collect()
    third = new_array((16, MEBI), "uint8")

    assert second.ctypes.data != place
    assert third.ctypes.data == place
    assert (second == 2).all()


def test_a_new_batch_is_not_copied_but_a_part_of_another_array_is() -> None:
    mine = new_array((16, MEBI), "uint8")

    given: Any = detach({"new": mine, "reshaped": mine.reshape(-1), "part": mine[1:]})

    assert given["new"] is mine
    assert given["reshaped"].ctypes.data == mine.ctypes.data
    assert has_own_memory(given["part"])


def test_little_lies_idle() -> None:
    arrays = [new_array((12, MEBI), "uint8") for _ in range(6)]
    assert idle_bytes() == 0

    del arrays

    assert 0 < idle_bytes() <= 32 * MEBI
    large = new_array((40, MEBI), "uint8")
    del large
    assert idle_bytes() <= 32 * MEBI


def test_threads_never_share_memory() -> None:
    problems: list[int] = []

    def fill(number: int) -> None:
        kept = []
        for turn in range(40):
            array = new_array((4, MEBI), "uint8")
            array[:] = number
            kept.append(array)
            if turn % 3:
                del kept[0]
            problems.extend(number for each in kept if not (each == number).all())

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not problems


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_writes_into_memory_of_its_own() -> None:
    array = new_array((16, MEBI), "uint8")
    array[:] = 1
    pid = os.fork()
    if pid == 0:
        array[:] = 2
        del array
        again = new_array((16, MEBI), "uint8")
        again[:] = 3
        os._exit(0)
    os.waitpid(pid, 0)

    assert (array == 1).all()


@pytest.mark.parametrize("n_places", [0, 5, 3 * MEBI // 24])
@pytest.mark.parametrize("are_apart", [False, True])
def test_values_that_are_taken_are_those_at_the_places(n_places: int, are_apart: bool) -> None:
    places = np.random.default_rng(0).integers(0, 1000, n_places)
    memory = np.random.default_rng(1).integers(0, 256, (1000, 40 if are_apart else 24), dtype=np.uint8)
    values = memory[:, :24].view("V24")[:, 0]

    found = take_values(values, places)

    assert found.tobytes() == memory[places, :24].tobytes()
    assert found.flags.owndata == (n_places < 1000)
    assert has_own_memory(found)
