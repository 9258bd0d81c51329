"""What users do to a loader that it was not made for: exact batches all the same, or an error that says what happened."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, LoadingError
from data_stack.loader import Loader, Order
from data_stack.loader.workers.automatic import WorkerKind

REPOSITORY = Path(__file__).parents[2]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="what the system does with forks and limits is Linux's here")


def loader(n_samples: int = 40, batch_size: int = 10, *, kind: WorkerKind = "processes", **options: Any) -> Loader:
    workers = None if kind == "inline" else 2
    numbers = SequenceDatasetIterator([np.arange(n_samples)])
    return Loader(numbers, batch_size, worker_kind=kind, workers=workers, **options)


def run(script: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False, **options)


# --------------------------------------------------------------------------------------------------- what functions of users do


def with_no_descriptor_left(batch: Any) -> Any:
    if batch[0][0] == 20:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
    return np.full(10_000 * (batch[0][0] + 1), batch[0][0])  # too long for the memory that is there


@linux_only
def test_a_worker_without_room_for_a_batch_says_so_and_the_batches_before_arrive() -> None:
    received = []

    with pytest.raises(LoadingError, match=r"a batch cannot be sent .* Too many open files"):
        for batch in loader(transform=with_no_descriptor_left, prefetch=1):
            received.append(batch[0])  # what came before the error is looked at

    assert received == [0, 10]


# ----------------------------------------------------------------------------------------------------- how a program is started


# ------------------------------------------------------------------------------------------------------ orders, states, kills


class Given(Order):
    """What a function makes of positions."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def indices(self, positions: Any, n_samples: int, seed: int, epoch: int) -> Any:
        return self._function(positions)

    def content(self) -> dict[str, Any]:
        return {"order": "given"}


@pytest.mark.parametrize("function", [lambda positions: positions % 2 == 0, lambda positions: positions / 1])
def test_an_order_that_gives_no_integers_is_an_error_and_no_other_samples(function: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigError, match=r"gave indices of shape .* of dtype .*give one integer for each"):
        list(loader(kind="inline", shuffle=Given(function)))


TRAINING = """
import json, sys, time

import numpy as np
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import Loader


def jittered(sample, rng):
    return sample[0], sample[1] + rng.integers(0, 100, 3)


def drawn(batch, rng):
    return *batch, rng.integers(0, 1 << 30)


def made(kind):
    columns = [np.arange(200), np.arange(600).reshape(200, 3)]
    samples = SequenceDatasetIterator(columns).map(jittered, seed=3)
    samples = samples.combine(SequenceDatasetIterator(columns).skip(90)).shuffle(seed=5)
    workers = None if kind == "inline" else 2
    return Loader(samples, 20, shuffle=True, seed=7, epochs=3, transform=drawn, worker_kind=kind, workers=workers)


path, kind, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
loader = made(kind)
lines = [line for line in open(path) if line.endswith("\\n")]
open(path, "w").writelines(lines)
if lines:
    loader.load_state_dict(json.loads(lines[-1])["state"])
with open(path, "a", buffering=1) as log:
    for numbers, rows, draw in loader:
        received = [numbers.tolist(), rows.tolist(), int(draw)]
        log.write(json.dumps({"received": received, "state": loader.state_dict()}) + "\\n")
        time.sleep(seconds)
"""


@pytest.mark.full
@linux_only
def test_a_training_that_is_killed_again_and_again_receives_what_an_uninterrupted_one_does(tmp_path: Path) -> None:
    script, whole, broken = tmp_path / "training.py", tmp_path / "whole", tmp_path / "broken"
    script.write_text(TRAINING)
    whole.touch()
    broken.touch()
    draws = random.Random(1)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    assert run(script, str(whole), "inline", "0").returncode == 0
    for kind in ("processes", "threads", "auto", "inline", "processes", "processes"):
        command = [sys.executable, str(script), str(broken), kind, "0.02"]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as training:
            n_bytes = broken.stat().st_size
            deadline = time.monotonic() + 20
            while broken.stat().st_size <= n_bytes and training.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(draws.uniform(0, 0.1))
            training.kill()
    assert run(script, str(broken), "threads", "0").returncode == 0

    expected, received = ([json.loads(line) for line in path.read_text().splitlines()] for path in (whole, broken))
    assert len(expected) == 48
    assert received == expected
