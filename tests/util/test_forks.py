"""Objects that begin afresh in a fork."""

from __future__ import annotations

import pytest
from process_harness import in_fork, run_python

from data_stack.util.forks import ForkLock, call_in_forks


class Counted:
    def __init__(self) -> None:
        self.n_forks = 0
        call_in_forks(self.begin)

    def begin(self) -> None:
        self.n_forks += 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_method_is_called_in_the_child_only() -> None:
    counted = Counted()

    assert in_fork(lambda: counted.n_forks + 6) == 7
    assert counted.n_forks == 0


def test_nothing_is_said_at_the_end_of_python() -> None:
    program = "from data_stack.util.byte_cache import ByteCache; import data_stack.util.executor; kept = ByteCache(1, len)"

    assert run_python("-W", "error", "-c", program) == ("", "")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_is_free_in_a_fork() -> None:
    lock = ForkLock()

    with lock:
        assert in_fork(lock.__enter__) == 0
