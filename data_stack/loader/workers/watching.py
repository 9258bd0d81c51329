"""What is seen of batches while they are made where that was chosen: whether they cost what they did then."""

from __future__ import annotations

import statistics
import time
from collections import deque

from data_stack.loader.jobs import MadeBatch
from data_stack.loader.workers.clocks import wanted_seconds
from data_stack.loader.workers.workers import Workers

__all__ = ["Pace", "Watch", "seconds_of"]

# Batches that were cheap are looked at further: of a store that is read block by block, most are, and the others wait.
_N_WATCHED = 32
_SECONDS_TO_MIND = 0.001

# A batch that costs so many times as much, or as little, as those that were measured is of another kind.
_DEARER = 3.0
_CHEAPER = 1.25

_N_PACED = 16
_N_AVERAGED = 64
# Whoever waits for less than this part of the time would gain nothing by other workers.
_LEAST_WAITING = 0.05


def seconds_of(made: MadeBatch) -> float:
    """How long a batch took whoever made it, a sample."""
    return (made.read_seconds + made.collate_seconds + made.transform_seconds) / max(1, made.n_samples)


class Watch:
    """Whether batches that are made in the consumer's thread have begun to wait, or to cost more than those that were measured.

    The seconds that batches say they took cost nothing to add. Only if they are many is the processor's clock asked, too.

    Args:
        seconds_a_sample: what those cost.
    """

    def __init__(self, seconds_a_sample: float) -> None:
        self._reference = seconds_a_sample
        self.waits = ""
        """What shows that some batches wait for something; "" if none do."""
        self.is_dearer = False
        self.n_windows = 0
        """Groups of batches that were looked at."""
        self.seconds_a_sample = seconds_a_sample
        """What those of the last group cost."""
        self._n_dearer = 0
        self._begin(looks_closer=False)

    def _begin(self, *, looks_closer: bool) -> None:
        self._looks_closer = looks_closer
        self._n_batches, self._n_samples, self._seconds, self._computing = 0, 0, 0.0, 0.0

    def next_of(self, workers: Workers) -> MadeBatch:
        """The next batch of inline workers."""
        wanted = wanted_seconds() if self._looks_closer else 0.0
        made = workers.next()
        if self._looks_closer:
            self._computing += wanted_seconds() - wanted
        self._seconds += made.read_seconds + made.collate_seconds + made.transform_seconds
        self._n_samples += made.n_samples
        self._n_batches += 1
        if self._n_batches >= _N_WATCHED:
            self._look()
        return made

    def _look(self) -> None:
        is_slow = self._seconds > _N_WATCHED * _SECONDS_TO_MIND
        if self._looks_closer and is_slow and self._computing < 0.5 * self._seconds:
            self.waits = (
                f"{_N_WATCHED} batches took {self._seconds * 1e3:.3g} ms and computed {self._computing / self._seconds:.0%} "
                f"of that: now and then one of them waits"
            )
        # twice, for the machine may have been busy for a moment
        self._n_dearer = self._n_dearer + 1 if is_slow and self._seconds > _DEARER * self._reference * self._n_samples else 0
        self.is_dearer = self._n_dearer >= 2
        self.n_windows += 1
        self.seconds_a_sample = self._seconds / max(1, self._n_samples)
        self._begin(looks_closer=is_slow)


class Pace:
    """How fast the last batches came from threads or processes: medians, which a pause of the program does not change.

    Args:
        seconds_a_sample: what batches cost that were made in the consumer's thread.
    """

    def __init__(self, seconds_a_sample: float) -> None:
        self._reference = seconds_a_sample
        self.n_batches = 0
        self._made: deque[float] = deque(maxlen=_N_AVERAGED)
        self._waited: deque[float] = deque(maxlen=_N_PACED)
        self._cycles: deque[float] = deque(maxlen=_N_PACED)
        self._last: float | None = None

    def next_of(self, workers: Workers) -> MadeBatch:
        """The next batch of the workers."""
        began = time.perf_counter()
        made = workers.next()
        ended = time.perf_counter()
        if self._last is not None:
            self.n_batches += 1
            n_samples = max(1, made.n_samples)
            self._made.append(seconds_of(made))
            self._waited.append((ended - began) / n_samples)
            self._cycles.append((ended - self._last) / n_samples)
        self._last = ended
        return made

    def pause(self) -> None:
        """There is no batch before the next one."""
        self._last = None

    @property
    def is_time_to_look(self) -> bool:
        """Whether the figures below are all of new batches."""
        return self.n_batches % _N_PACED == 0 and self.n_batches > 0

    @property
    def keeps_consumer_waiting(self) -> bool:
        """Whether the consumer would have something of faster workers."""
        return statistics.median(self._waited) > _LEAST_WAITING * statistics.median(self._cycles)

    @property
    def is_cheaper(self) -> bool:
        """Whether batches have come to cost much less than those that were measured, as when files are open and caches full."""
        return statistics.fmean(self._made) * _CHEAPER < self._reference

    @property
    def making_seconds(self) -> float:
        """What a worker takes for a sample."""
        return statistics.median(self._made)

    @property
    def cycle_seconds(self) -> float | None:
        """From batch to batch, with all that the consumer does, a sample; None if too few have come."""
        return statistics.median(self._cycles) if len(self._cycles) == _N_PACED else None
