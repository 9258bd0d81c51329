"""The memory of a large array is used again once nothing refers to the array, and not before."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from data_stack.values.array_pool import ArrayPool
from data_stack.values.large_arrays import (
    LARGE_BYTES,
    arrays_made_by,
    empty_array,
    owns_memory,
)

UINT8 = np.dtype(np.uint8)
SHAPE = (8, 1 << 20)


def made_by(pool: ArrayPool, value: int, shape: tuple[int, ...] = SHAPE) -> Any:
    array = pool.empty_array(shape, UINT8)
    assert array is not None
    array[:] = value
    return array


def address_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_without_an_array() -> None:
    pool = ArrayPool()

    addresses = {address_of(made_by(pool, number)) for number in range(5)}

    assert len(addresses) == 1


def test_an_array_that_is_kept_stays_as_it_is() -> None:
    pool = ArrayPool()
    whole = made_by(pool, 1)
    part = made_by(pool, 2)[3:, 5:]
    view = memoryview(made_by(pool, 3))

    for number in range(4, 9):
        made_by(pool, number)
    pool.clear()
    made_by(pool, 9)

    assert (whole == 1).all()
    assert (part == 2).all()
    assert view[7, 7] == 3


def test_an_array_of_a_pool_owns_its_memory() -> None:
    array = made_by(ArrayPool(), 1)

    assert owns_memory(array)
    assert array.flags.writeable
    assert not owns_memory(array[1:])


def test_smaller_arrays_use_memory_of_up_to_twice_their_size() -> None:
    pool = ArrayPool()
    large = made_by(pool, 1, (16 << 20,))
    address = address_of(large)
    del large

    assert address_of(made_by(pool, 2, (9 << 20,))) == address
    assert address_of(made_by(pool, 3, (16 << 20,))) == address
    assert len(made_by(pool, 4, (5 << 20,))) == 5 << 20


@pytest.mark.parametrize(
    ("shape", "dtype"), [((LARGE_BYTES - 1,), "u1"), ((LARGE_BYTES,), "O"), ((0, 9 << 20), "u1")]
)
def test_small_arrays_and_objects_are_numpys(shape: tuple[int, ...], dtype: str) -> None:
    assert ArrayPool().empty_array(shape, np.dtype(dtype)) is None


def test_a_program_that_keeps_many_arrays_gets_others() -> None:
    pool = ArrayPool()
    kept = [pool.empty_array((LARGE_BYTES,), UINT8) for _ in range(34)]

    assert [array is None for array in kept] == [False] * 32 + [True] * 2


def test_a_pool_serves_the_thread_that_asks_for_it() -> None:
    pool = ArrayPool()
    others: list[Any] = []

    with arrays_made_by(pool.empty_array):
        first_address = address_of(empty_array(SHAPE, UINT8))
        second = empty_array(SHAPE, UINT8)
        thread = threading.Thread(target=lambda: others.append(empty_array(SHAPE, UINT8)))
        thread.start()
        thread.join()
    outside = empty_array(SHAPE, UINT8)

    assert address_of(second) == first_address
    assert address_of(others[0]) != first_address
    assert address_of(outside) != first_address


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")
def test_a_fork_keeps_its_own_arrays() -> None:
    pool = ArrayPool()
    array = made_by(pool, 1)
    go, start = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(start)
            os.read(go, 1)
            os._exit(0 if (array == 1).all() else 3)
        finally:
            os._exit(4)

    address = address_of(array)
    del array
    assert address_of(made_by(pool, 2)) == address
    os.close(go)
    os.close(start)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
