"""Batches made where they are made fastest, which the first of them show."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections import deque
from dataclasses import replace

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.reports.held_memory import HeldMemory
from data_stack.exception import ConfigError, LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.choice import Choice, Cost, Trial, chosen, nature_of, overall
from data_stack.loader.workers.clocks import delayed_seconds, wanted_seconds
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.processes import ProcessWorkers
from data_stack.loader.workers.processors import n_processors
from data_stack.loader.workers.threads import ThreadWorkers
from data_stack.loader.workers.workers import Workers

__all__ = ["AutomaticWorkers"]

# So many batches are measured, or so much time of them.
_N_MEASURED = 4
_SECONDS_MEASURED = 0.1

# Two threads are tried on so many batches each that Python's lock, which changes hands every 5 ms, weighs little.
_SECONDS_TRIED = 0.02
_MOST_TRIED = 8
_MOST_TRIALS = 3  # if other programs keep the processors

# Batches that were cheap are looked at further: of a store that is read block by block, most are, and the others wait.
_N_WATCHED = 32
_SECONDS_TO_MIND = 0.001

_N_STEPS = 16


class AutomaticWorkers(Workers):
    """Makes the first batches in the consumer's thread, measures them, and goes on as suits them. No batch is made twice.

    What is measured: how long a batch takes, and how much of that is computing, of how many threads; then, if one thread computes
    all the time, how much faster two are. What that leads to is in :mod:`data_stack.loader.workers.choice`. The choice is made
    once. If it is processes, batches are made here until the first of them is ready.

    Args:
        maker: makes the batches.
        n_workers: the most threads or processes, at least 1.
        prefetch: batches that each of them makes ahead.
        timeout_seconds: how long to wait for a batch that another thread or process makes.
    """

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        self._maker, self._most_workers = maker, n_workers
        self._prefetch, self._timeout_seconds = prefetch, timeout_seconds
        self.choice = ""

        self._jobs: deque[Job] = deque()  # that nobody has been given
        self._tried: deque[MadeBatch | LoadingError] = deque()  # what a trial made, the batches before those of the jobs
        self._chosen: Workers | None = None
        self._given: deque[Job] = deque()  # to the chosen ones, and not handed out
        self._n_given = 0
        self._has_proved = False  # whether the chosen ones have made a batch
        self._starting: Workers | None = None  # processes that are chosen, and not ready

        self._costs: list[Cost] = []
        self._trial: Trial | None = None
        self._n_trials = 0
        self._n_made, self._next_trial = 0, 0  # batches made here, and after how many to try again what was not conclusive
        self._refusal = ""  # why there can be no processes
        self._steps: list[tuple[float, float]] = []  # of the consumer between two batches: how long, and how long it did nothing
        self._left: tuple[float, float] | None = None  # when it went for the last time
        self._watch = _Watch()
        self._asks = True  # whether there is something to decide in this iteration
        self._n_expected: int | None = None
        self._n_iterations = 1

    @property
    def kind(self) -> str:  # type: ignore[override]  # read-only here
        return "inline" if self._chosen is None else self._chosen.kind

    @property
    def n_workers(self) -> int:  # type: ignore[override]  # read-only here
        return 0 if self._chosen is None else self._chosen.n_workers

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        if self._chosen is not None:
            return len(self._tried) + self._chosen.capacity
        return len(self._tried) + (2 * self._n_pairs() if self._wants_trial() else 1)

    def expect(self, n_jobs: int) -> None:
        self._n_expected = n_jobs

    def submit(self, job: Job) -> None:
        if self._chosen is None:
            self._jobs.append(job)
        else:
            self._give(job, self._chosen)

    def next(self) -> MadeBatch:
        try:
            if self._chosen is None and not self._tried:
                self._decide()
            if self._tried:
                made = _told(self._tried.popleft())
            elif self._chosen is None:
                made = self._made_here(self._jobs.popleft())
            else:
                made = self._made_by(self._chosen)
        except BaseException:
            self.cancel()
            raise
        if self._n_expected is not None:
            self._n_expected -= 1
        is_settled = self._chosen is not None or self._starting is not None or not self._asks
        self._left = None if is_settled else (time.perf_counter(), wanted_seconds())
        return made

    @property
    def n_ready(self) -> int:
        return len(self._tried) + (0 if self._chosen is None else self._chosen.n_ready)

    def cancel(self) -> None:
        self._forget()
        if self._chosen is not None:
            self._chosen.cancel()

    def close(self) -> None:
        self._forget()
        for workers in (self._starting, self._chosen):
            if workers is not None:
                workers.close()
        self._starting = None

    def _forget(self) -> None:
        """All jobs. What was measured, and chosen, stays."""
        self._jobs.clear()
        self._tried.clear()
        self._given.clear()
        self._n_given = 0
        self._left, self._n_expected = None, None
        self._n_iterations += 1
        self._asks = True

    # --------------------------------------------------------------------------------------------------------- making batches

    def _made_here(self, job: Job) -> MadeBatch:
        self._n_made += 1
        if self._has_measured():
            return self._maker.make(job)
        delayed, began, own, every = delayed_seconds(), time.perf_counter(), time.thread_time(), time.process_time()
        made = self._maker.make(job)
        every, own, seconds = time.process_time() - every, time.thread_time() - own, time.perf_counter() - began
        seconds = max(1e-9, own, seconds - (delayed_seconds() - delayed))
        self._costs.append(Cost(made.n_samples, seconds, own, every))
        return made

    def _made_by(self, workers: Workers) -> MadeBatch:
        try:
            made = self._watch.next_of(workers) if workers.kind == "inline" else workers.next()
        except WorkerError as error:
            if self._has_proved or workers.kind != "processes":
                raise
            # They do not work here at all: their interpreter lacks something, say. What this thread can make shall not fail.
            warnings.warn(f"no worker process works, so there will be none: {error}", RuntimeWarning, stacklevel=4)
            self._refusal = f"they failed ({error})"
            workers.close()
            self._take_back()
            self._settle()
            return self.next()
        self._given.popleft()
        self._has_proved = True
        if self._watch.says_it_waits and workers.kind == "inline" and workers.n_ready == 0:
            self._take_back()
            self._choose(Choice("threads", self._most_workers, self._watch.told))
        return made

    def _give(self, job: Job, workers: Workers) -> None:
        """Submit a job to the chosen workers, for whom those that were made here do not count."""
        if job.number != self._n_given:
            job = replace(job, number=self._n_given)
        self._n_given += 1
        self._given.append(job)
        workers.submit(job)

    def _take_back(self) -> None:
        """Have no chosen workers any more, and the jobs again that they had."""
        self._jobs.extend(self._given)
        self._given.clear()
        self._n_given, self._chosen = 0, None

    # --------------------------------------------------------------------------------------------------------------- choosing

    def _decide(self) -> None:
        """Before a batch is made here: choose, if enough is known and there is a choice."""
        if self._left is not None:
            wall, wanted = time.perf_counter() - self._left[0], wanted_seconds() - self._left[1]
            self._steps.append((wall, max(0.0, wall - wanted)))
            del self._steps[:-_N_STEPS]
        if self._starting is not None:
            if self._starting.is_ready:
                self._go_over(self._starting)
        elif self._asks and self._has_measured():
            if self._wants_trial():
                n_pairs = self._n_pairs()
                # there are fewer if the iteration ends, or if nobody knew that so many would be wanted
                if len(self._jobs) >= 2 * n_pairs and self._try_two(n_pairs):
                    self._settle()
            elif self._trial is None or self._trial.is_conclusive:
                self._settle()

    def _has_measured(self) -> bool:
        return len(self._costs) >= _N_MEASURED or sum(cost.seconds for cost in self._costs) >= _SECONDS_MEASURED

    def _wants_trial(self) -> bool:
        return (
            self._asks
            and (self._trial is None or not self._trial.is_conclusive)
            and self._n_made >= self._next_trial
            and self._starting is None
            and self._has_measured()
            and n_processors() > 1
            and nature_of(overall(self._costs)) == "computes"
        )

    def _n_pairs(self) -> int:
        return max(1, min(_MOST_TRIED, math.ceil(_SECONDS_TRIED / overall(self._costs).seconds)))

    def _try_two(self, n_pairs: int) -> bool:
        """Make batches in this thread and another at once; gives whether none failed, so that there is a result."""
        jobs = [self._jobs.popleft() for _ in range(2 * n_pairs)]
        theirs = _TimedMaker(self._maker)
        other = ThreadWorkers(theirs, 1, prefetch=n_pairs, timeout_seconds=self._timeout_seconds)
        own: list[MadeBatch | LoadingError] = []
        try:
            ours, began = _TimedMaker(self._maker), time.perf_counter()
            for number, job in enumerate(jobs[1::2]):
                other.submit(replace(job, number=number))
            for job in jobs[::2]:
                try:
                    own.append(ours.make(job))
                except LoadingError as error:
                    own.append(error)
                    break
            for outcome in own:
                self._tried.append(outcome)
                if isinstance(outcome, LoadingError):
                    return False
                try:
                    self._tried.append(other.next())
                except LoadingError as error:
                    self._tried.append(error)
                    return False
            seconds = max(1e-9, time.perf_counter() - began)
        finally:
            other.close()
        # As it would have been if other programs had left them the processors, so that a busy machine does not mislead.
        wanted, computed = (
            ours.wanted_seconds + theirs.wanted_seconds,
            max(1e-9, ours.computing_seconds + theirs.computing_seconds),
        )
        gain = wanted / seconds * 2 * n_pairs * overall(self._costs).seconds / computed
        trial = Trial(gain, computed / seconds, (wanted - computed) / (2 * seconds))
        self._trial = (
            trial if self._trial is None or trial.is_conclusive else max(self._trial, trial, key=lambda each: each.n_at_once)
        )
        self._n_trials += 1
        self._next_trial = 2 * max(32, self._n_made)
        if self._n_trials == _MOST_TRIALS:  # on a machine so busy it matters less; but threads have been given their chance
            self._trial = replace(self._trial, delayed=0.0)
        return True

    def _settle(self) -> None:
        """Choose, all being known that there is to know."""
        steps = self._steps or [(0.0, 0.0)]
        left = None if self._n_expected is None else self._n_expected * self._n_iterations  # more of them will come
        choice = chosen(
            overall(self._costs),
            self._trial,
            n_workers=self._most_workers,
            n_processors=n_processors(),
            step_seconds=statistics.median(wall for wall, _ in steps),
            idle_seconds=statistics.median(idle for _, idle in steps),
            n_left=left,
            n_bytes_held=0 if self._trial is None else _n_bytes_held(self._maker.stacks.at(0)),
            refusal=self._refusal or ("rows of arrays are copied no faster by processes" if self._maker.only_gathers else ""),
        )
        if choice.is_final:
            self._choose(choice)
        else:
            self.choice = f"inline for now: {choice.reason}"
            self._asks = self._trial is not None and not self._trial.is_conclusive

    def _choose(self, choice: Choice) -> None:
        number = choice.n_workers
        self.choice = f"{choice.kind}: {choice.reason}"
        if choice.kind == "inline":
            self._go_over(InlineWorkers(self._maker))
        elif choice.kind == "threads":
            self._go_over(ThreadWorkers(self._maker, number, prefetch=self._prefetch, timeout_seconds=self._timeout_seconds))
        else:
            processes = ProcessWorkers(self._maker, number, prefetch=self._prefetch, timeout_seconds=self._timeout_seconds)
            try:
                processes.start()
            except (ConfigError, OSError) as error:
                processes.close()
                self._refusal = f"there are none ({error})"
                self._settle()
                return
            self._starting = processes
            if processes.is_ready:
                self._go_over(processes)

    def _go_over(self, workers: Workers) -> None:
        self._chosen, self._starting, self._has_proved = workers, None, False
        jobs = list(self._jobs)
        self._jobs.clear()
        for job in jobs:
            self._give(job, workers)


class _TimedMaker(BatchMaker):
    """Makes the batches of another maker in one thread, and tells how long that computed, and wanted to."""

    def __init__(self, maker: BatchMaker) -> None:
        self.__dict__.update(maker.__dict__)
        self.computing_seconds = self.wanted_seconds = 0.0

    @property
    def can_join(self) -> bool:
        return False

    def make(self, job: Job) -> MadeBatch:
        wanted, computed = wanted_seconds(), time.thread_time()
        try:
            return super().make(job)
        finally:
            self.computing_seconds += time.thread_time() - computed
            self.wanted_seconds += wanted_seconds() - wanted


class _Watch:
    """Looks at cheap batches further on, for some sources are cheap until they fetch their next block.

    The seconds that batches say they took cost nothing to add. Only if they are many is the processor's clock asked, too.
    """

    def __init__(self) -> None:
        self.says_it_waits = False
        self.told = ""
        self._n_batches, self._seconds, self._computing = 0, 0.0, 0.0
        self._looks_closer = False

    def next_of(self, workers: Workers) -> MadeBatch:
        wanted = wanted_seconds() if self._looks_closer else 0.0
        made = workers.next()
        if self._looks_closer:
            self._computing += wanted_seconds() - wanted
        self._seconds += made.read_seconds + made.collate_seconds + made.transform_seconds
        self._n_batches += 1
        if self._n_batches >= _N_WATCHED:
            is_slow = self._seconds > _N_WATCHED * _SECONDS_TO_MIND
            if self._looks_closer and is_slow and self._computing < 0.5 * self._seconds:
                self.says_it_waits = True
                self.told = (
                    f"{_N_WATCHED} batches took {self._seconds * 1e3:.3g} ms and computed {self._computing / self._seconds:.0%} "
                    f"of that: now and then one of them waits"
                )
            self._looks_closer = is_slow
            self._n_batches, self._seconds, self._computing = 0, 0.0, 0.0
        return made


def _told(outcome: MadeBatch | LoadingError) -> MadeBatch:
    if isinstance(outcome, LoadingError):
        raise outcome
    return outcome


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
