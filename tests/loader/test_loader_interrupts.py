"""What Ctrl-C in a loop over a loader shows."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import sys, time
import numpy as np
from data_stack import Loader, SequenceDatasetIterator

def slow(sample):
    time.sleep(0.2)  # so that Ctrl-C comes in here
    return sample

def train():
    numbers = SequenceDatasetIterator([np.arange(100_000)]).map(slow)
    loader = Loader(numbers, 1, worker_kind=sys.argv[1], workers=None if sys.argv[1] in ("auto", "inline") else 2)
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
def test_ctrl_c_shows_where_the_program_was_and_no_frames_of_ours(
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
        assert script.stdout.readline() == "batch\n"
        for _ in range(n_times):
            time.sleep(0.1)
            script.send_signal(signal.SIGINT)
        _, errors = script.communicate(timeout=60)

    assert errors.count("Traceback") in (
        1,
        n_times,
    )  # the second may come while frames are left out
    assert errors.count("in train") == 1
    assert (
        errors.count("data_stack") <= 1 or errors.count("Traceback") == 2
    )  # the line that raises it again
    assert "concurrent/futures" not in errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert ("in slow" in errors) or kind != "inline"
