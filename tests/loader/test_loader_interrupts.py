"""What Ctrl-C in a loop over a loader shows, and whose an alarm in it is."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import LoadingError
from data_stack.loader import Loader

SCRIPT = """
import sys, time
import numpy as np
from data_stack import Loader, SequenceDatasetIterator

KIND = sys.argv[-1]

def slow(sample):
    is_first = sample[0] == 0
    if KIND == "inline" and not is_first:
        print("slow", flush=True)
        time.sleep(600)  # so that Ctrl-C comes in here
    time.sleep(0.2)
    return sample

def train():
    numbers = SequenceDatasetIterator([np.arange(100_000)]).map(slow)
    loader = Loader(numbers, 1, worker_kind=KIND, workers=None if KIND in ("auto", "inline") else 2)
    for batch in loader:
        print("batch", flush=True)

if __name__ == "__main__":
    train()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("kind", "n_times"),
    [
        ("inline", 1),
        ("threads", 1),
        ("threads", 2),
        ("processes", 1),
        ("processes", 2),
        ("auto", 1),
    ],
)
def test_ctrl_c_ends_the_program_and_shows_where_it_was(
    tmp_path: Path, kind: str, n_times: int
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)

    with subprocess.Popen(
        [sys.executable, "-u", tmp_path / "script.py", kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout is not None
        lines = iter(script.stdout.readline, "")
        assert "batch\n" in lines
        if kind == "inline":
            assert next(lines) == "slow\n"
        for _ in range(n_times):
            time.sleep(0.1)
            script.send_signal(signal.SIGINT)
        _, errors = script.communicate(timeout=120)

    assert "in train" in errors
    # A second Ctrl-C may come while Python exits, which prints a colon behind it.
    assert errors.splitlines()[-1].startswith("KeyboardInterrupt")
    assert ("in slow" in errors) or kind != "inline"


@pytest.fixture
def _restored_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def raise_timeout(*_: Any) -> None:
    raise TimeoutError("the program's alarm")


def slowly(sample: Any) -> Any:
    time.sleep(0.002)
    return sample


@pytest.mark.usefixtures("_restored_handler")
@pytest.mark.parametrize("kind", ["inline", "threads", "processes", "auto"])
def test_an_alarm_while_a_loader_works_is_the_programs(kind: Any) -> None:
    signal.signal(signal.SIGALRM, raise_timeout)
    numbers = SequenceDatasetIterator([np.arange(100)]).map(slowly)

    for number in range(6):
        with Loader(numbers, 5, worker_kind=kind, workers=None, epochs=None) as loader:
            batches = iter(loader)
            next(batches)  # Python's own Thread.start() may not be interrupted
            with pytest.raises(TimeoutError, match="the program's alarm"):
                signal.setitimer(signal.ITIMER_REAL, 0.003 + 0.023 * number)
                for _ in batches:
                    pass


class Limited:
    """A function that limits its own time, as libraries do."""

    def __call__(self, sample: Any) -> Any:
        if sample[0] == 7:
            before = signal.signal(signal.SIGALRM, raise_timeout)
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            try:
                time.sleep(10)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
        return sample


@pytest.mark.usefixtures("_restored_handler")
@pytest.mark.parametrize("kind", ["inline", "processes"])
def test_a_functions_own_alarm_is_the_samples_error(kind: Any) -> None:
    numbers = SequenceDatasetIterator([np.arange(12)]).map(Limited())

    with pytest.raises(LoadingError, match="sample 7 could not be read") as raised:
        list(Loader(numbers, 4, worker_kind=kind))

    assert type(raised.value.__cause__) is TimeoutError
