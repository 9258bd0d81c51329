"""Batches made by the kind of workers that makes them soonest, which a few batches of each kind show."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.reports.held_memory import HeldMemory
from data_stack.exception import ConfigError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.workers import Workers
from data_stack.util.processors import n_processors

__all__ = ["AutomaticWorkers"]

_CLEARLY = 0.9  # another kind of workers must be so much faster, for figures of a few batches are rough
_CHANGED = 2.0  # batches that cost another multiple than before are of another kind: every kind is measured again

# So many batches of each worker are measured, and for so long that the GIL, which changes hands every 5 ms, weighs little.
_N_ROUNDS = 4
_LEAST_SECONDS = 0.05
_MOST_SECONDS = 1.0

# What it takes to hand a batch over, and to start: worker processes are fresh interpreters, to which the iterator is sent.
_HAND_OVER_SECONDS = {"threads": 1e-4, "processes": 3e-4}
_START_SECONDS = {"threads": 0.0, "processes": 0.6}
_MOST_BYTES_SENT = 4 << 30


class AutomaticWorkers(Workers):
    """Makes a few batches by each kind of workers that may be worth it, and goes on with the kind that was fastest.

    What only copies rows of arrays stays in the consumer's thread. Of all else the first batches are made there, some by threads
    if that could be faster, some by processes if what is left of the iteration is worth starting them. Batches that are measured
    are handed out like all others, each is made once, and while processes start they are made as before.

    The rule: of the kinds that were measured, that with the shortest time from batch to batch, inline if none is clearly faster.
    The choice stays until the epoch ends. Then the figure of the whole epoch takes the place of that of its first batches, and
    all is chosen again; if batches have come to cost half or twice as much, every kind is measured again.

    Args:
        maker: makes the batches.
        n_workers: threads or processes, at least 1.
        make_workers: gives so many of a kind, not running yet.
    """

    def __init__(self, maker: BatchMaker, n_workers: int, make_workers: Callable[[str], Workers]) -> None:
        self._maker, self._most_workers, self._make_workers = maker, n_workers, make_workers
        self._workers: Workers = InlineWorkers(maker)
        self._next: Workers | None = None  # to go on with when they are ready, and all that was given has been handed out
        self._jobs: deque[Job] = deque()  # that no workers have
        self._given: deque[Job] = deque()  # to these, and not handed out
        self._figures: dict[str, tuple[float, float]] = {}  # of each kind: seconds from batch to batch, and for making one
        self._measured = _Figure(1)
        self._epoch: int | None = None
        self._left_at: float | None = None  # when the consumer went with its last batch
        self._n_left, self._is_kept = math.inf, False
        self._refusal: str | None = None  # why there can be no processes; None if that has not been looked at
        self.choice = ""

    @property
    def kind(self) -> str:  # type: ignore[override]  # read-only here
        return self._workers.kind

    @property
    def n_workers(self) -> int:  # type: ignore[override]  # read-only here
        return self._workers.n_workers

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        return self._workers.capacity

    def start(self) -> None:
        self._is_kept = True  # what starting processes costs is paid once for all iterations

    def expect(self, n_jobs: int) -> None:
        self._n_left = n_jobs

    def submit(self, job: Job) -> None:
        if job.epoch != self._epoch:
            self._take_figure()
            self._epoch = job.epoch
            self._choose()
        self._jobs.append(job)
        self._deal()

    def next(self) -> MadeBatch:
        asked = time.perf_counter()
        try:
            self._deal()
            made = self._next_made()
        except BaseException:
            self.cancel()
            raise
        self._given.popleft()
        self._n_left -= 1
        now = time.perf_counter()
        self._measured.add(made, now - asked, asked - (self._left_at or asked))
        self._left_at = now
        if self.kind not in self._figures and self._has_measured_enough():
            self._figures[self.kind] = self._measured.seconds
            self._choose()
        return made

    def cancel(self) -> None:
        self._take_figure()
        self._epoch = self._left_at = None
        self._jobs.clear()
        self._given.clear()
        self._workers.cancel()

    def close(self) -> None:
        self.cancel()
        self._turn_to(self.kind)
        self._workers.close()
        self._is_kept = False
        if self.kind == "processes":  # batches are made here again until others are ready, if they are worth it
            self._workers = InlineWorkers(self._maker)

    # --------------------------------------------------------------------------------------------------------- making batches

    def _deal(self) -> None:
        """Give all jobs to the workers; first to go over to the next ones, where these are ready and nothing is under way."""
        if self._next is not None and self._next.is_ready:
            if self._given:
                return
            self._workers.close()
            self._workers, self._next = self._next, None
            n_workers = self.n_workers
            self._measured = _Figure(n_workers if self._n_left > 4 * n_workers > 0 else 1)
        while self._jobs:
            self._given.append(self._jobs.popleft())
            self._workers.submit(self._given[-1])

    def _next_made(self) -> MadeBatch:
        try:
            return self._workers.next()
        except WorkerError as error:
            if self._measured.n_batches or self.kind != "processes":
                raise
            # They do not work here at all: their interpreter lacks something, say. What this thread can make shall not fail.
            warnings.warn(f"no worker process works, so there will be none: {error}", RuntimeWarning, stacklevel=4)
            self._refusal = f"they failed ({str(error).splitlines()[0][:160]})"
            self._jobs.extendleft(reversed(self._given))
            self._given.clear()
            self._workers = InlineWorkers(self._maker)
            self._choose()
            self._deal()
            return self._workers.next()

    # --------------------------------------------------------------------------------------------------------------- choosing

    def _has_measured_enough(self) -> bool:
        n_batches, n_workers = self._measured.n_batches, max(1, self.n_workers)
        seconds = n_batches * self._measured.seconds[0]
        if isinstance(self._workers, InlineWorkers):  # several may be made in one request
            return n_batches > 0 and self._workers.n_ready == 0 and (n_batches >= _N_ROUNDS or seconds > _MOST_SECONDS)
        return n_batches >= n_workers and seconds > (_LEAST_SECONDS if n_batches >= _N_ROUNDS * n_workers else _MOST_SECONDS)

    def _take_figure(self) -> None:
        """Keep what the batches of the whole epoch took; if that is another thing than before, forget all other figures."""
        if self._measured.n_batches <= self.n_workers:
            return
        now, before = self._measured.seconds, self._figures.get(self.kind)
        if before is not None and not 1 / _CHANGED < now[1] / max(before[1], 1e-9) < _CHANGED:
            self._figures.clear()
        self._figures[self.kind], self._measured = now, _Figure(0)

    def _choose(self) -> None:
        """Go on with the kind that is worth a try, or else with the best one."""
        if self._maker.only_gathers or "inline" not in self._figures:
            # Copying rows is over before a thread could hand them over, and is as fast in one thread as in two.
            self.choice = "inline: it only copies rows of arrays" if self._maker.only_gathers else ""
            self._turn_to("inline")
            return
        untried = [kind for kind in ("threads", "processes") if kind not in self._figures and self._is_worth_a_try(kind)]
        wanted = untried[0] if untried else self._best()
        figures = ", ".join(
            f"{seconds * 1e3:.3g} ms " + ("inline" if kind == "inline" else f"from {self._most_workers} {kind}")
            for kind, (seconds, _) in self._figures.items()
        )
        refused = f"; no processes: {self._refusal}" if self._refusal else ""
        self.choice = f"{wanted}: a batch came every {figures}{refused}"
        self._turn_to(wanted)

    def _best(self) -> str:
        seconds = {kind: figure[0] for kind, figure in self._figures.items() if not (kind == "processes" and self._refusal)}
        best = min(seconds, key=seconds.__getitem__)
        return best if seconds[best] < _CLEARLY * seconds["inline"] else "inline"

    def _is_worth_a_try(self, kind: str) -> bool:
        """Whether a kind could be clearly faster: threads that all wait at once, processes that all compute at once."""
        n_at_once, start_seconds = min(self._most_workers, self._n_left), 0.0 if self._is_kept else _START_SECONDS[kind]
        if kind == "processes":
            n_at_once = min(n_at_once, n_processors())
            if self._refusal is None:
                self._refusal = self._reason_against_processes()
        if self._n_left < 1 or (kind == "processes" and self._refusal):
            return False
        seconds, making_seconds = self._figures["inline"]  # besides making a batch, the consumer's own step
        possible = max(seconds - making_seconds, making_seconds / n_at_once) + _HAND_OVER_SECONDS[kind]
        best = self._figures[self._best()][0]
        return possible < _CLEARLY * best and self._n_left * (best - possible) > start_seconds

    def _reason_against_processes(self) -> str:
        if n_processors() == 1:
            return "there is one processor"
        if self._maker.releases_gil:
            return "the source decodes without the GIL, as it says"
        n_bytes = _n_bytes_held(self._maker.stacks.at(0))
        return f"{n_bytes / 1e9:.1f} GB in memory are too much to send" if n_bytes > _MOST_BYTES_SENT else ""

    def _turn_to(self, kind: str) -> None:
        """Go on with a kind of workers, when they are ready."""
        if self._next is not None and self._next.kind != kind:
            self._next.close()
            self._next = None
        if self._next is not None or kind == self.kind:
            return
        workers = self._make_workers(kind)
        try:
            workers.start()
        except (ConfigError, OSError) as error:
            self._refusal = str(error)[:160]
            self._choose()
        else:
            self._next = workers


class _Figure:
    """What the batches of one kind of workers took.

    Args:
        n_skipped: how many of the first do not count, unless they take long, as they open files and fill queues.
    """

    def __init__(self, n_skipped: int) -> None:
        self._n_skipped = n_skipped
        self.n_batches = 0
        self._making = self._waiting = 0.0
        self._steps: deque[float] = deque([0.0], maxlen=64)  # whose median tells nothing of a pause of the consumer

    def add(self, made: MadeBatch, waiting_seconds: float, step_seconds: float) -> None:
        """A batch was waited for so long, and before it the consumer was busy so long."""
        self._n_skipped -= 1
        if self._n_skipped < 0 or waiting_seconds > _MOST_SECONDS:
            self.n_batches += 1
            self._making += made.read_seconds + made.collate_seconds + made.transform_seconds
            self._waiting += waiting_seconds
            self._steps.append(step_seconds)

    @property
    def seconds(self) -> tuple[float, float]:
        """From batch to batch as the consumer has them, and for making one, on average."""
        n_batches = max(1, self.n_batches)
        return self._waiting / n_batches + statistics.median(self._steps), self._making / n_batches


def _n_bytes_held(iterator: DatasetIteratorIF) -> int:
    """What a stack of iterators holds in memory, about."""
    held, n_bytes = HeldMemory(), 0
    todo, seen = [iterator], {id(iterator)}
    while todo:
        layer = todo.pop()
        n_bytes += held.of(layer)[1]
        for below in layer._stack_on():
            if id(below) not in seen:
                seen.add(id(below))
                todo.append(below)
    return n_bytes
