"""Measures how fast workers deliver batches."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

#: The number of steps of the consumer whose median counts.
_MAX_STEPS = 64

#: A measurement ends after four rounds in at least 0.05 s, as the GIL changes hands only every
#: 5 ms. Fewer rounds suffice if they take long.
_FOUR_ROUNDS_SECONDS = 0.05
_TWO_ROUNDS_SECONDS = 0.5
_MAX_PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """How fast the workers of one kind deliver batches to the consumer.

    Attributes:
        waiting_seconds: how long the consumer waits for a batch, on average.
        step_seconds: how long the consumer uses a batch. This is the median, which ignores
            pauses such as a validation.
    """

    waiting_seconds: float
    step_seconds: float

    @property
    def batch_seconds(self) -> float:
        """The time from one batch to the next, in seconds."""
        return self.waiting_seconds + self.step_seconds


def is_enough(n_rounds: int, elapsed_seconds: float) -> bool:
    """Return whether a measurement suffices: many quick batches, or a few slow ones.

    Args:
        n_rounds: the number of whole rounds that were measured. A round is one batch of each
            worker. Workers finish the batches of a round at about the same time, so that a part of
            a round tells nothing.
        elapsed_seconds: how long they took together.
    """
    if n_rounds == 0:
        return False
    if n_rounds >= 4:
        return elapsed_seconds > _FOUR_ROUNDS_SECONDS
    if n_rounds >= 2:
        return elapsed_seconds > _TWO_ROUNDS_SECONDS
    return elapsed_seconds > _MAX_PROBE_SECONDS


class Probe:
    """Measures the workers of one kind by the first batches that they deliver.

    The first round is not measured, as it opens files and fills queues. Inline, a batch that takes
    longer than a second is always measured.

    Args:
        n_workers: the number of workers; 0 for inline.
    """

    #: Whether the batches are made in the thread of the consumer.
    _is_inline: bool
    #: The number of batches in a round.
    _n_batches_of_round: int
    #: The number of batches that were delivered, measured or not.
    _n_delivered: int
    #: The number of measured batches.
    _n_measured: int
    #: How long the consumer waited for all measured batches.
    _waiting_seconds: float
    #: How long the consumer waited for the measured batches, and used the batches before them.
    _elapsed_seconds: float
    #: How long the consumer used each of the last batches.
    _steps_seconds: deque[float]
    #: When the last batch was delivered; None at the beginning of an iteration.
    _delivered_at: float | None

    def __init__(self, n_workers: int) -> None:
        self._is_inline = n_workers == 0
        self._n_batches_of_round = max(1, n_workers)
        self._n_delivered = 0
        self._n_measured = 0
        self._waiting_seconds = 0.0
        self._elapsed_seconds = 0.0
        self._steps_seconds = deque(maxlen=_MAX_STEPS)
        self._delivered_at = None

    def add(self, asked_at: float, delivered_at: float) -> None:
        """Add a batch, by the times at which the consumer asked for it and got it.

        Args:
            asked_at: when the consumer asked for the batch.
            delivered_at: when the consumer got it.
        """
        waiting_seconds = delivered_at - asked_at
        step_seconds = 0.0
        if self._delivered_at is not None:
            step_seconds = asked_at - self._delivered_at
        self._delivered_at = delivered_at

        self._n_delivered += 1
        is_of_first_round = self._n_delivered <= self._n_batches_of_round
        # The first batches of several workers take as long as a whole round.
        is_slow = self._is_inline and waiting_seconds > _MAX_PROBE_SECONDS
        if is_slow or not is_of_first_round:
            self._n_measured += 1
            self._waiting_seconds += waiting_seconds
            self._elapsed_seconds += waiting_seconds + step_seconds
            self._steps_seconds.append(step_seconds)

    def pause(self) -> None:
        """Note the end of an iteration: the time until the next one is no step of the consumer."""
        self._delivered_at = None

    @property
    def is_done(self) -> bool:
        """Whether the measured batches suffice."""
        if self._n_measured == 0:
            return False
        n_rounds = self._n_measured // self._n_batches_of_round
        return is_enough(n_rounds, self._elapsed_seconds)

    def measurement(self) -> Measurement:
        """Return the measurement. At least one batch must have been measured."""
        return Measurement(
            waiting_seconds=self._waiting_seconds / self._n_measured,
            step_seconds=statistics.median(self._steps_seconds),
        )
