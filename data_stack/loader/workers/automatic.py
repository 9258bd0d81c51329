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
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.threads import ThreadWorkers
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
_START_SECONDS = 0.6
_N_KEPT = 10  # for how many iterations workers are taken to be kept that are kept
_BYTES_SENT_A_SECOND = 1e9
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
        prefetch: batches that each of them makes ahead.
        timeout_seconds: how long to wait for a batch that another thread or process makes.
    """

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        self._maker, self._most_workers = maker, n_workers
        self._prefetch, self._timeout_seconds = prefetch, timeout_seconds
        self._workers: Workers = InlineWorkers(maker)
        self._wanted = "inline"  # the kind to go on with when all that was given has been handed out
        self._starting: tuple[Workers, float] | None = None  # processes that are not ready, and since when they start
        self._jobs: deque[Job] = deque()  # that wait for the wanted workers
        self._given: deque[Job] = deque()  # to these, and not handed out
        self._n_given = 0
        self._figures: dict[str, tuple[float, float]] = {}  # of each kind: seconds from batch to batch, and for making one
        self._measured = _Figure()
        self._epoch: int | None = None
        self._left_at: float | None = None  # when the consumer went with its last batch
        self._n_left, self._is_kept = math.inf, False
        self._refusal: str | None = None  # why there can be no processes; None if that has not been looked at
        self._start_seconds = _START_SECONDS
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

    @property
    def n_ready(self) -> int:
        return self._workers.n_ready

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
        self._give_jobs()

    def next(self) -> MadeBatch:
        asked = time.perf_counter()
        try:
            if self._starting is not None and self._starting[0].is_ready:
                self._wanted = "processes"
            if not self._given and self._wanted != self.kind:
                self._change()
            self._give_jobs()
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
        self._n_given, self._wanted = 0, self.kind
        self._workers.cancel()

    def close(self) -> None:
        self.cancel()
        self._end_starting()
        self._workers.close()
        self._is_kept = False
        if self.kind == "processes":  # batches are made here again until others are ready, if they are worth it
            self._go_over(self._workers_of(self._best("processes")))

    # --------------------------------------------------------------------------------------------------------- making batches

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
            self._wanted = self._best("processes")
            self._change()
            return self._workers.next()

    def _give_jobs(self) -> None:
        while self._jobs and self._wanted == self.kind:
            job = self._jobs.popleft()
            self._given.append(job)
            self._workers.submit(job._replace(number=self._n_given))  # jobs that others made do not count for them
            self._n_given += 1

    def _change(self) -> None:
        """Go on with the wanted workers; these are over."""
        self._workers.close()
        if self._wanted == "processes" and self._starting is not None:
            workers, began = self._starting
            self._starting, self._start_seconds = None, max(self._start_seconds / 2, time.monotonic() - began)
        else:
            workers = self._workers_of(self._wanted)
        self._go_over(workers)
        self._give_jobs()

    def _go_over(self, workers: Workers) -> None:
        self._workers, self._wanted, self._n_given = workers, workers.kind, 0
        self._measured = _Figure(workers.n_workers if self._n_left > 4 * workers.n_workers > 0 else 1)

    def _workers_of(self, kind: str) -> Workers:
        if kind == "inline":
            return InlineWorkers(self._maker)
        options = {"prefetch": self._prefetch, "timeout_seconds": self._timeout_seconds}
        if kind == "threads":
            return ThreadWorkers(self._maker, self._most_workers, **options)  # type: ignore[arg-type]  # it has the types
        from data_stack.loader.workers.processes import ProcessWorkers  # needs cloudpickle, which takes 15 ms

        return ProcessWorkers(self._maker, self._most_workers, **options)  # type: ignore[arg-type]  # likewise

    # --------------------------------------------------------------------------------------------------------------- choosing

    def _has_measured_enough(self) -> bool:
        measured, n_workers = self._measured, max(1, self.n_workers)
        seconds = measured.n_batches * measured.seconds[0]
        if self.n_workers == 0:  # several may be made in one request
            return measured.n_batches > 0 and self.n_ready == 0 and (measured.n_batches >= _N_ROUNDS or seconds > _MOST_SECONDS)
        n_batches = measured.n_batches
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
            self._wanted, self.choice = "inline", "inline: it only copies rows of arrays" if self._maker.only_gathers else ""
            return
        self._wanted = self._best()
        for kind in ("threads", "processes"):
            if kind not in self._figures and self._is_worth_a_try(kind):
                self._wanted = kind
                break
        figures = ", ".join(
            f"{seconds * 1e3:.3g} ms " + ("inline" if kind == "inline" else f"from {self._most_workers} {kind}")
            for kind, (seconds, _) in self._figures.items()
        )
        refused = f"; no processes: {self._refusal}" if self._refusal else ""
        self.choice = f"{self._wanted}: a batch came every {figures}{refused}"
        if self._wanted != "processes" or self.kind == "processes":
            self._end_starting()
        else:
            self._wanted = self._best("processes")
            self._start_processes()

    def _best(self, without: str = "") -> str:
        seconds = {kind: figure[0] for kind, figure in self._figures.items() if kind != without}
        best = min(seconds, key=seconds.__getitem__, default="inline")
        return best if seconds.get(best, 0.0) < _CLEARLY * seconds.get("inline", math.inf) else "inline"

    def _is_worth_a_try(self, kind: str) -> bool:
        """Whether a kind could be clearly faster: threads that all wait at once, processes that all compute at once."""
        n_at_once, start_seconds = self._most_workers, 0.0
        if kind == "processes":
            n_at_once = min(n_at_once, n_processors())
            start_seconds = self._start_seconds / (_N_KEPT if self._is_kept else 1)
            if self._refusal is None:
                self._look_for_refusal()
            if self._refusal:
                return False
        if self._n_left < 1:
            return False
        seconds, making_seconds = self._figures["inline"]  # besides making a batch, the consumer's own step
        possible = max(seconds - making_seconds, making_seconds / min(n_at_once, self._n_left)) + _HAND_OVER_SECONDS[kind]
        best = self._figures[self._best()][0]
        return possible < _CLEARLY * best and self._n_left * (best - possible) > start_seconds

    def _look_for_refusal(self) -> None:
        n_bytes = _n_bytes_held(self._maker.stacks.at(0))
        self._start_seconds += n_bytes / _BYTES_SENT_A_SECOND
        if n_processors() == 1:
            self._refusal = "there is one processor"
        elif self._maker.releases_gil:
            self._refusal = "the source decodes without the GIL, as it says"
        else:
            self._refusal = f"{n_bytes / 1e9:.1f} GB in memory are too much to send" if n_bytes > _MOST_BYTES_SENT else ""

    def _start_processes(self) -> None:
        if self._starting is not None:
            return
        processes = self._workers_of("processes")
        try:
            processes.start()
        except (ConfigError, OSError) as error:
            self._refusal = str(error)[:160]
            self._choose()
            return
        self._starting = processes, time.monotonic()

    def _end_starting(self) -> None:
        if self._starting is not None:
            self._starting[0].close()
            self._starting = None


class _Figure:
    """What the batches of one kind of workers took.

    Args:
        n_skipped: how many of the first do not count, unless they take long, as they open files and fill queues.
    """

    def __init__(self, n_skipped: int = 1) -> None:
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
        for below in layer._stacked_on():
            if id(below) not in seen:
                seen.add(id(below))
                todo.append(below)
    return n_bytes
