"""Sources and transforms of a known nature, for a loader to choose its workers by; worker processes import them from here."""

from __future__ import annotations

import os
import time
from typing import Any, NoReturn

import numpy as np

from data_stack.dataset.iterator import Batch, DatasetIterator

__all__ = ["Computing", "Waiting", "computing", "fail_elsewhere"]


class Computing(DatasetIterator):
    """Rows that Python computes under its lock, so many steps for each; a row names who did so."""

    def __init__(self, n: int, n_steps: int = 1500) -> None:
        self.n, self.n_steps = n, n_steps

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[int, int]:
        total = 0
        for step in range(self.n_steps):
            total += step
        return index, os.getpid()


def computing(number: int) -> int:
    """The same number, after a while."""
    for _ in range(1500):
        pass
    return number


class Waiting(DatasetIterator):
    """Numbers of which each request takes a while, as those to a store do."""

    def __init__(self, n: int, seconds: float = 0.004, every: int = 1) -> None:
        self.n, self.seconds, self.every, self.n_requests = n, seconds, every, 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index

    def read_batch(self, indices: Any) -> Batch:
        self.n_requests += 1
        if self.n_requests % self.every == 0:
            time.sleep(self.seconds)
        return np.array(indices)


class _FailsElsewhere:
    """A transform that other processes cannot even unpickle."""

    def __call__(self, batch: Any) -> Any:
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, (os.getpid(),)


def _refuse(pid: int) -> NoReturn:
    raise ImportError("what this needs is not installed here")


fail_elsewhere = _FailsElsewhere()
