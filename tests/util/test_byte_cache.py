"""Values that were used last, within a number of bytes."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from process_harness import in_fork

from data_stack.util.byte_cache import ByteCache


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))))
def test_it_counts_what_it_keeps_and_keeps_to_its_limit(puts: list[tuple[int, int]]) -> None:
    cache: ByteCache[int, bytes] = ByteCache(16, len)

    for key, size in puts:
        cache.put(key, bytes(size))

    kept = cache.get_many(range(6))
    assert cache.n_bytes == sum(map(len, kept.values())) <= 16


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_can_use_it_though_a_thread_of_its_parent_was_in_it() -> None:
    inside, go = threading.Event(), threading.Event()

    def size_of(value: bytes) -> int:
        if value == b"slow":
            inside.set()
            go.wait(0.5)  # longer than a fork that does not wait takes
        return len(value)

    cache: ByteCache[int, bytes] = ByteCache(100, size_of)
    cache.put(1, b"quick")
    thread = threading.Thread(target=cache.put, args=(2, b"slow"))
    thread.start()
    inside.wait(10)

    def use() -> bool:
        go.set()
        cache.put(3, b"new")
        return cache.get(1) == b"quick" and cache.get(3) == b"new"

    status = in_fork(use)
    go.set()
    thread.join()

    assert status == 0
    assert cache.n_bytes == 9
