"""Batches made by the kind of workers that makes them soonest, which a few batches of each kind show."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections import deque

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.reports.held_memory import HeldMemory
from data_stack.exception import ConfigError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.choice import Figure, chosen
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.processes import ProcessWorkers
from data_stack.loader.workers.threads import ThreadWorkers
from data_stack.loader.workers.workers import Workers
from data_stack.util.processors import n_processors

__all__ = ["AutomaticWorkers"]

# Worker processes are fresh interpreters: so long they take to start, until that has been measured.
_START_SECONDS = 0.6
_BYTES_SENT_A_SECOND = 1e9
_MOST_BYTES_SENT = 4 << 30

# So many batches are measured inline, or one that takes long; of others so many from each worker, and for so long that the
# GIL, which changes hands every 5 ms, weighs little.
_N_INLINE = 3
_N_ROUNDS = 4
_LONG_SECONDS = 0.1
_SHORT_SECONDS = 0.05

# Batches that cost another multiple than before are of another kind: what was measured of other workers is out of date.
_CHANGED = 2.0

_MOST_CHARACTERS = 160


class AutomaticWorkers(Workers):
    """Makes a few batches by each kind of workers that may be worth it, and goes on with the kind that was fastest.

    What only copies rows of arrays stays in the consumer's thread. Of all else the first batches are made there, some by threads
    if that could be faster, some by processes if what is left of the iteration is worth starting them;
    :func:`~data_stack.loader.workers.choice.chosen` says which. Batches that are measured are handed out like all others, each is
    made once, and while processes start they are made as before.

    The choice stays until the epoch ends. Then the figures of the whole epoch take the place of those of its first batches, and
    all is chosen again; if batches have come to cost half or twice as much, every kind is measured again.

    Args:
        maker: makes the batches.
        n_workers: threads or processes, at least 1.
        prefetch: batches that each of them makes ahead.
        timeout_seconds: how long to wait for a batch that another thread or process makes.
    """

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        self._maker, self._most_workers = maker, n_workers
        self._prefetch, self._timeout_seconds = prefetch, timeout_seconds
        self.choice = ""

        self._workers: Workers = InlineWorkers(maker)
        self._has_proved = False  # whether these have made a batch
        self._starting: Workers | None = None  # processes that are chosen, and not ready
        self._started_at, self._start_seconds = 0.0, _START_SECONDS
        self._wanted = "inline"  # the kind to go on with when all that was given has been handed out
        self._given: deque[Job] = deque()  # to the workers, and not handed out
        self._n_given = 0
        self._jobs: deque[Job] = deque()  # that wait for the wanted ones

        self._figures: dict[str, Figure] = {}
        self._meter = _Meter(1)
        self._epoch: int | None = None
        self._n_left, self._n_expected = math.inf, 0
        self._n_iterations = 0  # since the workers are kept
        self._is_kept = False
        self._left_at: float | None = None  # when the consumer went with its last batch
        self._refusal: str | None = None  # why there can be no processes; None if that has not been looked at

    @property
    def kind(self) -> str:  # type: ignore[override]  # read-only here
        return self._workers.kind

    @property
    def n_workers(self) -> int:  # type: ignore[override]  # read-only here
        return self._workers.n_workers

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        return self._workers.capacity

    @property
    def n_ready(self) -> int:
        return self._workers.n_ready

    def start(self) -> None:
        self._is_kept = True  # what starting processes costs is paid once for all iterations

    def expect(self, n_jobs: int) -> None:
        self._n_expected = self._n_left = n_jobs

    def submit(self, job: Job) -> None:
        if job.epoch != self._epoch:
            self._begin_epoch(job.epoch)
        self._jobs.append(job)
        if self._wanted == self.kind:
            self._give_jobs()

    def next(self) -> MadeBatch:
        asked = time.perf_counter()
        try:
            if self._starting is not None and self._starting.is_ready:
                self._wanted = "processes"
            if not self._given and self._wanted != self.kind:
                self._change()
            elif self._wanted == self.kind:
                self._give_jobs()
            made = self._next_made()
        except BaseException:
            self.cancel()
            raise
        self._given.popleft()
        self._has_proved = True
        self._n_left -= 1
        now = time.perf_counter()
        self._meter.add(made, now - asked, None if self._left_at is None else asked - self._left_at)
        if self.kind not in self._figures and self._meter.is_enough(self._workers):
            self._figures[self.kind] = self._meter.figure()
            self._choose()
        self._left_at = time.perf_counter()
        return made

    def cancel(self) -> None:
        self._forget()
        self._workers.cancel()

    def close(self) -> None:
        self._forget()
        self._workers.close()
        self._end_starting()
        self._is_kept, self._n_iterations = False, 0
        if self.kind == "processes":  # batches are made here again until others are ready, if they are worth it
            self._go_over(self._workers_of(self._best_without_processes()))

    def _forget(self) -> None:
        """All jobs. What was measured, and chosen, stays."""
        self._jobs.clear()
        self._given.clear()
        self._n_given, self._wanted = 0, self.kind
        self._left_at = None
        if self._epoch is not None:
            self._n_iterations += 1
            self._end_epoch()
            self._epoch = None

    # --------------------------------------------------------------------------------------------------------- making batches

    def _next_made(self) -> MadeBatch:
        try:
            return self._workers.next()
        except WorkerError as error:
            if self._has_proved or self.kind != "processes":
                raise
            # They do not work here at all: their interpreter lacks something, say. What this thread can make shall not fail.
            warnings.warn(f"no worker process works, so there will be none: {error}", RuntimeWarning, stacklevel=4)
            self._refusal = f"they failed ({_in_short(error)})"
            self._jobs.extendleft(reversed(self._given))
            self._given.clear()
            self._wanted = self._best_without_processes()
            self._change()
            return self._workers.next()

    def _give_jobs(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            self._given.append(job)
            self._workers.submit(job._replace(number=self._n_given))  # jobs that others made do not count for them
            self._n_given += 1

    def _change(self) -> None:
        """Go on with the wanted workers; these are over."""
        self._workers.close()
        if self._wanted == "processes" and self._starting is not None:
            self._start_seconds = max(self._start_seconds / 2, time.monotonic() - self._started_at)
            workers, self._starting = self._starting, None
        else:
            workers = self._workers_of(self._wanted)
        self._go_over(workers)
        self._give_jobs()

    def _go_over(self, workers: Workers) -> None:
        self._workers, self._wanted, self._n_given, self._has_proved = workers, workers.kind, 0, False
        self._meter = _Meter(max(1, int(min(workers.n_workers, self._n_left // 2))))

    def _workers_of(self, kind: str) -> Workers:
        if kind == "inline":
            return InlineWorkers(self._maker)
        made_by = ThreadWorkers if kind == "threads" else ProcessWorkers
        return made_by(self._maker, self._most_workers, prefetch=self._prefetch, timeout_seconds=self._timeout_seconds)

    # --------------------------------------------------------------------------------------------------------------- choosing

    def _begin_epoch(self, epoch: int) -> None:
        if self._epoch is not None:
            self._end_epoch()
        self._epoch = epoch
        if self._figures:
            self._choose()

    def _end_epoch(self) -> None:
        """Keep what the epoch's batches took; if that is another thing than before, forget all other figures."""
        if not self._meter.n_batches or self._meter.n_batches < self.n_workers:
            return
        before, now = self._figures.get(self.kind), self._meter.figure()
        if before is not None and not 1 / _CHANGED < now.making_seconds / max(before.making_seconds, 1e-9) < _CHANGED:
            self._figures.clear()
        self._figures[self.kind] = now
        self._meter = _Meter(0)

    def _choose(self) -> None:
        if "inline" not in self._figures or self._maker.only_gathers:
            # Copying rows is over before a thread could hand them over, and is as fast in one thread as in two.
            self._wanted, self.choice = "inline", "inline: it only copies rows of arrays" if self._maker.only_gathers else ""
            return
        if self._refusal is None and "threads" in self._figures:
            self._look_for_refusal()
        choice = chosen(
            self._figures,
            n_left=self._n_left + self._n_expected * self._n_iterations * self._is_kept,
            n_workers=self._most_workers,
            n_processors=n_processors(),
            start_seconds=0.0 if self.kind == "processes" else self._start_seconds,
            refusal=self._refusal or "",
        )
        self.choice = f"{choice.kind}: {choice.reason}"
        if choice.kind == self.kind or choice.kind != "processes":
            self._end_starting()
            self._wanted = choice.kind
            return
        self._wanted = self._best_without_processes()
        if self._starting is None:
            self._start_processes()

    def _best_without_processes(self) -> str:
        without = {kind: figure.cycle_seconds for kind, figure in self._figures.items() if kind != "processes"}
        return min(without, key=without.__getitem__, default="inline")

    def _look_for_refusal(self) -> None:
        n_bytes = _n_bytes_held(self._maker.stacks.at(0))
        self._start_seconds += n_bytes / _BYTES_SENT_A_SECOND
        if n_processors() == 1:
            self._refusal = "there is one processor"
        elif self._maker.releases_gil:
            self._refusal = "the source decodes without the GIL, as it says"
        else:
            too_much = f"{n_bytes / 1e9:.1f} GB in memory are too much to send"
            self._refusal = too_much if n_bytes > _MOST_BYTES_SENT else ""

    def _start_processes(self) -> None:
        processes = self._workers_of("processes")
        self._started_at = time.monotonic()
        try:
            processes.start()
        except (ConfigError, OSError) as error:
            processes.close()
            self._refusal = _in_short(error)
            self._choose()
            return
        self._starting = processes

    def _end_starting(self) -> None:
        if self._starting is not None:
            self._start_seconds = max(self._start_seconds, time.monotonic() - self._started_at)
            self._starting.close()
            self._starting = None


class _Meter:
    """Measures the batches of one kind of workers.

    Args:
        n_skipped: how many of the first do not count, as they open files and fill queues.
    """

    def __init__(self, n_skipped: int) -> None:
        self._n_skipped = n_skipped
        self.n_batches = 0
        self._making = self._waiting = 0.0
        self._steps: deque[float] = deque(maxlen=64)  # whose median tells nothing of a pause of the consumer

    def add(self, made: MadeBatch, waiting_seconds: float, step_seconds: float | None) -> None:
        """A batch was waited for so long, and before it the consumer was busy so long."""
        is_long = self._n_skipped == 1 and waiting_seconds > _LONG_SECONDS
        if self._n_skipped and not is_long:
            self._n_skipped -= 1
            return
        self._n_skipped = 0
        self.n_batches += 1
        self._making += made.read_seconds + made.collate_seconds + made.transform_seconds
        self._waiting += waiting_seconds
        if step_seconds is not None:
            self._steps.append(step_seconds)

    def figure(self) -> Figure:
        """What they took until now; at least one must have been counted."""
        step = statistics.median(self._steps) if self._steps else 0.0
        return Figure(self._making / self.n_batches, self._waiting / self.n_batches, step)

    def is_enough(self, workers: Workers) -> bool:
        """Whether this tells enough of these workers."""
        n_at_once = workers.n_workers
        if n_at_once == 0:  # several may be made in one request
            return workers.n_ready == 0 and (self.n_batches >= _N_INLINE or self._waiting > _LONG_SECONDS)
        if self.n_batches < n_at_once:
            return False
        seconds = self.n_batches * self.figure().cycle_seconds
        return seconds >= (_SHORT_SECONDS if self.n_batches >= _N_ROUNDS * n_at_once else 10 * _LONG_SECONDS)


def _in_short(error: Exception) -> str:
    """What an error says, without where that came from."""
    said = " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split()).rstrip(":. ")
    return said if len(said) <= _MOST_CHARACTERS else f"{said[:_MOST_CHARACTERS]}…"


def _n_bytes_held(iterator: DatasetIteratorIF) -> int:
    """What a stack of iterators holds in memory, about."""
    held, n_bytes = HeldMemory(), 0
    todo, seen = [iterator], {id(iterator)}
    while todo:
        layer = todo.pop()
        n_bytes += held.of(layer)[1]
        for below in layer._stacked_on():
            if id(below) not in seen:
                seen.add(id(below))
                todo.append(below)
    return n_bytes
