"""Threads that are shared: they come when there is something to do, and go; a forked process has its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from process_harness import in_fork, run_python, until

from data_stack.util.executor import Executor, computing, waiting


def executor(most_threads: Callable[[], int] | None = None) -> Executor:
    return Executor("test-executor", most_threads, grace_seconds=1.0)


def test_a_result_or_an_error_comes_back_from_a_named_thread() -> None:
    pool = executor()

    name = pool.submit(lambda: threading.current_thread().name)
    failing = pool.submit(int, "x")

    assert name.result().startswith("test-executor-")
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result()


@pytest.mark.parametrize(("most", "expected"), [(lambda: 2, 2), (None, 5)], ids=["two at most", "as many as wait"])
def test_an_executor_has_no_more_threads_than_it_may(most: Callable[[], int] | None, expected: int) -> None:
    pool, go = executor(most), threading.Event()
    running: set[str] = set()

    def work() -> None:
        running.add(threading.current_thread().name)
        go.wait(30)

    futures = [pool.submit(work) for _ in range(5)]
    assert until(lambda: len(running) == expected)
    time.sleep(0.05)
    n_running = len(running)
    go.set()
    for future in futures:
        future.result()

    assert n_running == expected


def test_map_keeps_the_order_and_is_no_further_ahead_than_it_may() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.01 if number % 2 else 0)
        return number * number

    results = executor().map(work, range(20), at_once=3)

    assert next(results) == 0
    assert until(lambda: len(begun) >= 3)
    time.sleep(0.05)
    assert len(begun) <= 4
    assert list(results) == [number * number for number in range(1, 20)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_threads_of_its_own_even_if_the_parent_was_at_work() -> None:
    go = threading.Event()
    busy = waiting.submit(go.wait, 30)

    status = in_fork(lambda: waiting.submit(lambda: 7).result(30) + computing.submit(lambda: 1).result(30))
    go.set()

    assert status == 8
    assert busy.result()


@pytest.mark.parametrize("seconds", [0.2, 60])
def test_the_end_of_python_waits_for_a_moment_only(seconds: float) -> None:
    program = f"""
import time
from data_stack.util.executor import waiting
waiting.submit(time.sleep, {seconds})
waiting.submit(print, "done")
time.sleep(0.1)
"""
    began = time.monotonic()

    assert run_python("-c", program) == ("done\n", "")
    assert time.monotonic() - began < 15
