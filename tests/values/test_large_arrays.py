"""Large arrays have memory of their own, which returns to the system with them."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from data_stack.dataset.iterator.detached_batches import detach
from data_stack.values.large_arrays import empty_array, owns_memory
from data_stack.values.stacked_values import stack_values

UINT8 = np.dtype(np.uint8)
LARGE = (8, 1 << 20)


def resident_bytes() -> int:
    """Memory of this process that is in RAM, without that of files."""
    status = Path("/proc/self/smaps_rollup").read_text()
    match = re.search(r"Anonymous:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) << 10


@pytest.mark.parametrize("shape", [LARGE, (3, 5), (0, 4), (1 << 22,), ((1 << 22) + 1,)])
@pytest.mark.parametrize("dtype", ["u1", "<f4", ">i2", "M8[s]", "U3", "O"])
def test_an_array_is_as_numpy_makes_it(shape: tuple[int, ...], dtype: str) -> None:
    array = empty_array(shape, np.dtype(dtype))

    wanted = np.empty(shape, dtype)
    assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert owns_memory(array)


def test_only_an_array_itself_owns_its_memory() -> None:
    array = empty_array(LARGE, UINT8)
    small = np.arange(3)

    assert owns_memory(array)
    assert not owns_memory(array[1:])
    assert not owns_memory(array.reshape(-1))
    assert owns_memory(small)
    assert not owns_memory(small[1:])
    assert not owns_memory(np.frombuffer(bytearray(8), np.uint8))


def test_a_large_batch_is_handed_on_without_a_copy() -> None:
    rows = [np.full(1 << 20, number, np.uint8) for number in range(8)]

    column = stack_values(rows)

    assert detach(column) is column
    assert detach(column[1:]) is not column
    assert column.sum(axis=1).tolist() == [number << 20 for number in range(8)]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system counts none")
def test_memory_returns_to_the_system_with_the_last_view() -> None:
    before = resident_bytes()
    array = empty_array((64, 1 << 20), UINT8)
    array[:] = 1
    view = array[3]
    del array

    held = resident_bytes() - before
    assert view.sum() == 1 << 20
    del view

    # Other memory of the process may have been returned meanwhile.
    assert held >= 56 << 20
    assert resident_bytes() - before < 32 << 20


def test_a_fork_sees_no_later_change() -> None:
    array = empty_array(LARGE, UINT8)
    array[:] = 1
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        array[:] = 2
        os.write(writing, b"!")
        os._exit(0)
    os.waitpid(pid, 0)

    assert os.read(reading, 1) == b"!"
    assert int(array.max()) == 1
    os.close(reading)
    os.close(writing)


def test_a_large_array_survives_pickling() -> None:
    array = empty_array(LARGE, UINT8)
    array[:] = np.arange(8, dtype=np.uint8)[:, None]

    for protocol in (2, 5):
        assert np.array_equal(pickle.loads(pickle.dumps(array, protocol)), array)


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 10), (1 << 62, 4)])
def test_an_array_beyond_memory_is_an_error_as_of_numpy(shape: tuple[int, ...]) -> None:
    with pytest.raises((MemoryError, ValueError)):
        empty_array(shape, UINT8)
