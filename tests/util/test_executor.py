"""Shared threads, locks, caches: they begin afresh in a forked process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from multiprocessing.pool import Pool

import pytest
from hypothesis import given
from hypothesis import strategies as st
from process_harness import in_fork, run_python, until
from worker_subjects import Numbers

from data_stack.loader import Loader
from data_stack.util.byte_cache import ByteCache
from data_stack.util.executor import (
    Executor,
    computing,
    n_processors,
    n_threads,
    n_threads_here,
    waiting,
)
from data_stack.util.forks import call_in_forks, fork_lock


@pytest.mark.parametrize(
    ("most", "expected"), [(lambda: 2, 2), (None, 5)], ids=["two at most", "as many as wait"]
)
def test_an_executor_has_no_more_threads_than_it_may(
    most: Callable[[], int] | None, expected: int
) -> None:
    pool, go = Executor("test-executor", most, grace_seconds=1.0), threading.Event()
    running: set[str] = set()

    def work() -> None:
        running.add(threading.current_thread().name)
        go.wait(120)

    futures = [pool.submit(work) for _ in range(5)]
    assert until(lambda: len(running) == expected)
    time.sleep(0.05)
    n_running = len(running)
    go.set()
    for future in futures:
        future.result()

    assert n_running == expected


def test_map_keeps_the_order_and_its_limit_of_prefetching() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.01 if number % 2 else 0)
        return number * number

    results = Executor("test-executor", None, grace_seconds=1.0).map(work, range(20), at_once=3)

    assert next(results) == 0
    assert until(lambda: len(begun) >= 3)
    time.sleep(0.05)
    assert len(begun) <= 4
    assert list(results) == [number * number for number in range(1, 20)]


def test_a_fork_of_a_busy_parent_has_its_own_threads() -> None:
    go = threading.Event()
    busy = waiting.submit(go.wait, 120)

    status = in_fork(
        lambda: waiting.submit(lambda: 7).result(60) + computing.submit(lambda: 1).result(60)
    )
    go.set()

    assert status == 8
    assert busy.result()


@pytest.mark.parametrize("seconds", [0.2, 3600])
def test_the_end_of_python_waits_a_moment_and_says_nothing(seconds: float) -> None:
    program = f"""
import time
from data_stack.util.byte_cache import ByteCache
from data_stack.util.executor import waiting
kept = ByteCache(1, len)
waiting.submit(time.sleep, {seconds})
waiting.submit(print, "done").result()
"""

    assert run_python("-W", "error", "-c", program) == ("done\n", "")


def test_no_thread_is_started_while_python_ends() -> None:
    program = """
from data_stack.util.executor import waiting

class Late:
    def __init__(self):
        self.me = self  # only the end of Python frees it

    def __del__(self):
        try:
            waiting.submit(print, "done")
        except RuntimeError as error:
            print(error)

late = Late()
"""
    output, errors = run_python("-W", "error", "-c", program)

    assert (output, errors) == ("Python is exiting, so no thread can be started\n", "")


class Counted:
    def __init__(self) -> None:
        self.n_forks = 0
        call_in_forks(self.begin)

    def begin(self) -> None:
        self.n_forks += 1


def test_a_method_is_called_in_the_child_only() -> None:
    counted = Counted()

    assert in_fork(lambda: counted.n_forks + 6) == 7
    assert counted.n_forks == 0


def test_a_lock_is_free_in_a_fork() -> None:
    lock = fork_lock()

    with lock:
        assert in_fork(lambda: 7 * lock.acquire(timeout=60)) == 7


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))))
def test_it_counts_what_it_keeps_and_keeps_to_its_limit(puts: list[tuple[int, int]]) -> None:
    cache: ByteCache[int, bytes] = ByteCache(16, len)

    for key, size in puts:
        cache.put(key, bytes(size))

    kept = cache.get_many(range(6))
    assert cache.n_bytes == sum(map(len, kept.values())) <= 16


def test_a_fork_can_use_a_cache_locked_in_its_parent() -> None:
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
    assert inside.wait(60)

    def use() -> bool:
        go.set()
        cache.put(3, b"new")
        return cache.get(1) == b"quick" and cache.get(3) == b"new"

    status = in_fork(use)
    go.set()
    thread.join()

    assert status == 0
    assert cache.n_bytes == 9


def test_a_process_by_itself_has_all_its_permitted_processors() -> None:
    assert n_threads() == n_processors() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("n_workers", [1, 3])
def test_worker_threads_share_them(n_workers: int) -> None:
    with Loader(
        Numbers(8),
        4,
        worker_kind="threads",
        workers=n_workers,
        transform=lambda batch: n_threads_here(),
    ) as loader:
        found = set(loader)

    assert found == {max(1, n_processors() // n_workers)}
    assert n_threads_here() == n_processors()


def test_a_process_of_multiprocessing_has_one(spawned: Pool) -> None:
    assert spawned.apply(n_threads) == 1


def test_ctrl_c_while_threads_start_leaves_an_executor_that_works() -> None:
    program = """
import collections, os, signal, threading, time
from data_stack.util.executor import Executor

executor = Executor("test-executor", None, grace_seconds=1.0)
is_over = threading.Event()
# Ctrl-C raises only while tasks are submitted, so that none ends the program itself.
is_submitting = False

def raise_while_submitting(number, frame):
    global is_submitting
    if is_submitting:
        is_submitting = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, raise_while_submitting)

def interrupt():
    while not is_over.wait(0.0005):
        os.kill(os.getpid(), signal.SIGINT)

raised = collections.Counter()
interrupter = threading.Thread(target=interrupt)
interrupter.start()
# On a busy machine, few come in the first seconds.
begun_at = time.monotonic()
while time.monotonic() < begun_at + 5.0 or (
    raised["KeyboardInterrupt"] <= 20 and time.monotonic() < begun_at + 40.0
):
    try:
        is_submitting = True
        # Each call that sleeps keeps a thread, so that the next one starts another.
        for _ in range(20):
            executor.submit(time.sleep, 0.001)
        is_submitting = False
    except BaseException as error:
        raised[type(error).__name__] += 1
is_over.set()
interrupter.join()
time.sleep(0.1)
assert executor.submit(int, "7").result(60) == 7
print(sorted(raised), raised["KeyboardInterrupt"] > 20)
"""

    output, _ = run_python("-c", program)

    assert output == "['KeyboardInterrupt'] True\n"
