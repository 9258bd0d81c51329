"""Threads that begin together, and take turns as often as Python lets them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")

#: How often Python's threads take turns while they race, in seconds. The default is 5 ms, in which
#: a thread does thousands of steps alone.
_TURN_SECONDS = 1e-6

_PATIENCE_SECONDS = 120


def race(work: Callable[[int], _Result], n_threads: int = 8) -> list[_Result]:
    """Call a function in several threads at the same moment; raise what one of them raised.

    Args:
        work: called with the number of the thread, from 0.
        n_threads: how many threads there are.

    Returns:
        What the function returned, by the number of the thread.
    """
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []
    start = threading.Barrier(n_threads)

    def run(number: int) -> None:
        try:
            start.wait(_PATIENCE_SECONDS)
            results[number] = work(number)
        except BaseException as error:  # raised below, in the thread of the test
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True) for number in range(n_threads)
    ]
    turn_before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_PATIENCE_SECONDS)
    finally:
        sys.setswitchinterval(turn_before)
    if errors:
        raise errors[0]
    assert len(results) == n_threads, "a thread hangs"
    return [results[number] for number in range(n_threads)]
