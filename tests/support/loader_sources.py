"""Sources and transforms of a known nature, for a loader to choose its workers by; worker processes import them from here."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from data_stack.dataset.iterator import DatasetIterator


class Computing(DatasetIterator):
    """Rows that Python computes under the GIL, ``n_steps`` for each; a row holds the process number."""

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


class _FailsElsewhere:
    """A transform that other processes cannot even unpickle."""

    def __call__(self, batch: Any) -> Any:
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, (os.getpid(),)


def _refuse(pid: int) -> NoReturn:
    raise ImportError("what this needs is not installed here")


fail_elsewhere = _FailsElsewhere()
