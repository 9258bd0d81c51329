"""Measures how fast a training would be if loading took no time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any


class SpeedWithoutLoading:
    """One batch, again and again, for the loop of a training whose step is measured.

    Each iteration is measured by itself. The first step is not measured, as frameworks compile and
    allocate in it. All steps get the same object: a step that changes it in place changes it for
    all.

    Args:
        batch: the batch.
        n_samples: the number of its samples, at least 1.
        n_batches: how often it is returned, at least 2.
        report: called with the samples per second when an iteration ends.

    Attributes:
        samples_per_second: the speed of the last iteration, as far as it has come; 0 before its
            second step.
    """

    samples_per_second: float
    #: The batch.
    _batch: Any
    #: The number of its samples.
    _n_samples: int
    #: How often it is returned.
    _n_batches: int
    #: Called with the samples per second at the end.
    _report: Callable[[float], None]

    def __init__(
        self, batch: Any, n_samples: int, n_batches: int, report: Callable[[float], None]
    ) -> None:
        self.samples_per_second = 0.0
        self._batch = batch
        self._n_samples = n_samples
        self._n_batches = n_batches
        self._report = report

    def __len__(self) -> int:
        return self._n_batches

    def __iter__(self) -> Iterator[Any]:
        self.samples_per_second = 0.0
        yield self._batch
        first_step_ended_at = time.perf_counter()
        try:
            for n_measured_steps in range(1, self._n_batches):
                yield self._batch
                seconds = time.perf_counter() - first_step_ended_at
                self.samples_per_second = n_measured_steps * self._n_samples / seconds
        finally:
            self._report(self.samples_per_second)

    def __repr__(self) -> str:
        return (
            f"<SpeedWithoutLoading: {self._n_batches} times a batch of {self._n_samples}, "
            f"{self.samples_per_second:,.0f} samples/s>"
        )
