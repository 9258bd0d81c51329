"""Memory that is lent again once nobody refers to it."""

from __future__ import annotations

import threading

import numpy as np

from data_stack.util.reused_memory import ReusedMemory

MIB = 1 << 20


def address_of(buffer: memoryview) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


def test_memory_is_lent_again_once_its_buffer_is_gone() -> None:
    memory = ReusedMemory()
    buffer = memory.lend(MIB)
    address = address_of(buffer)

    del buffer

    assert address_of(memory.lend(MIB - 1000)) == address


def test_memory_with_a_view_is_not_lent_again() -> None:
    memory = ReusedMemory()
    buffer = memory.lend(MIB)
    buffer[:] = b"a" * MIB
    view = buffer[5:10].toreadonly()
    array = np.frombuffer(buffer, np.uint8)[:10]

    del buffer
    others = [memory.lend(MIB) for _ in range(4)]
    for other in others:
        other[:] = b"b" * MIB

    assert bytes(view) == b"aaaaa"
    assert bytes(array) == b"a" * 10


def test_a_buffer_has_the_length_that_was_asked_for() -> None:
    memory = ReusedMemory()

    for n_bytes in (0, 1, 1000, 300_000, MIB, 5 * MIB, 300_000):
        assert len(memory.lend(n_bytes)) == n_bytes


def test_a_long_memory_does_not_serve_short_buffers() -> None:
    memory = ReusedMemory()
    address = address_of(memory.lend(4 * MIB))

    assert address_of(memory.lend(MIB)) != address
    assert address_of(memory.lend(3 * MIB)) == address


def test_threads_never_share_a_buffer() -> None:
    memory = ReusedMemory()
    are_own = list[bool]()

    def fill(number: int) -> None:
        for _ in range(200):
            buffer = memory.lend(MIB // 2)
            buffer[:1000] = bytes([number]) * 1000
            are_own.append(bytes(buffer[:1000]) == bytes([number]) * 1000)

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(are_own) == 1600
    assert all(are_own)
