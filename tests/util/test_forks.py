"""Objects that begin afresh in a fork."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from data_stack.util.forks import ForkLock, call_in_forks


class Counted:
    def __init__(self) -> None:
        self.n_forks = 0
        call_in_forks(self.begin)

    def begin(self) -> None:
        self.n_forks += 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_method_is_called_in_the_child_only() -> None:
    counted = Counted()

    pid = os.fork()
    if pid == 0:  # pragma: no cover
        os._exit(counted.n_forks)
    _, status = os.waitpid(pid, 0)

    assert (os.waitstatus_to_exitcode(status), counted.n_forks) == (1, 0)


def test_nothing_is_said_at_the_end_of_python() -> None:
    program = "from data_stack.util.byte_cache import ByteCache; import data_stack.util.executor; kept = ByteCache(1, len)"

    ended = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)

    assert ended.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_is_free_in_a_fork() -> None:
    lock = ForkLock()

    with lock:
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            with lock:
                os._exit(7)
        _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 7
