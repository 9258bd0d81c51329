"""Batches made where they are made fastest, which the first of them show, and later ones again."""

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
from data_stack.loader.workers.choice import Choice, Cost, Trial, chosen, kept_or_chosen, nature_of, overall
from data_stack.loader.workers.clocks import delayed_seconds, wanted_seconds
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.processes import ProcessWorkers
from data_stack.loader.workers.threads import ThreadWorkers
from data_stack.loader.workers.trial import made_by_two
from data_stack.loader.workers.watching import Pace, Watch, seconds_of
from data_stack.loader.workers.workers import Workers
from data_stack.util.processors import n_processors

__all__ = ["AutomaticWorkers"]

# So many batches are measured, or so much time of them.
_N_MEASURED = 4
_SECONDS_MEASURED = 0.1

# Two threads are tried on so many batches each that Python's lock, which changes hands every 5 ms, weighs little.
_SECONDS_TRIED = 0.02
_MOST_TRIED = 8
_MOST_TRIALS = 4  # if other programs keep the processors
_N_BETWEEN_TRIALS = 4  # batches; each time twice as many

# Batches that are made here while processes start are measured again if they become so many times as cheap or as dear.
_CHANGED = 1.5
_N_RECENT = 4
_MOST_MEASURED_AGAIN = 4

# A choice is examined after so many batches if these have become cheaper or dearer, each time after twice as many, and at most
# for this part of the time.
_N_BEFORE_EXAMINED = 32
_PART_EXAMINED_ONCE_CHANGED = 0.25
# Without a sign of change it is examined first after so long, or at most for this part of the time: batches that are made at
# once may hide that each by itself has become cheaper. Then it is each time after twice as long, until it is as long, and as
# small a part, as below. That doubles with each examination that leads to a change.
_SECONDS_BEFORE_FIRST_EXAMINED = 1.0
_PART_FIRST_EXAMINED = 0.05
_SECONDS_BEFORE_EXAMINED = 10.0
_PART_EXAMINED = 0.01

_N_STEPS = 16
_MOST_CHARACTERS = 160


class AutomaticWorkers(Workers):
    """Makes the first batches in the consumer's thread, measures them, and goes on as suits them. No batch is made twice.

    What is measured: how long a batch takes, and how much of that is computing, of how many threads; then, if one thread computes
    all the time, how much faster two are (at first a source is believed that tells, see :meth:`_is_told`). What that leads to is
    in :mod:`data_stack.loader.workers.choice`. If it is processes, batches are made here until the first of them is ready.

    First batches are often not like later ones: files are opened, caches filled, checksums checked, functions compiled. So a
    choice is examined again when batches have come to cost something else, and now and then without a sign of that: the workers
    hand out what they have, then batches are measured here as at first, and their rate is compared with that of the workers, who
    rest meanwhile. That takes a hundredth of the time, and none if the consumer hardly waits for batches; intervals grow, so that
    there are few changes.

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
        self._started_at = self._start_seconds = 0.0  # of them; and what the slowest took
        self._resting: Workers | None = None  # that were chosen, while the choice is examined
        self._is_draining = False  # whether the chosen ones are to rest when they have handed out what they were given

        self._costs: list[Cost] = []
        self._cost = Cost(1, 0.0, 0.0, 0.0)  # of a batch, when it was measured last
        self._recent: deque[float] = deque(maxlen=_N_RECENT)  # seconds a sample, of batches made here since
        self._n_measured_again = 0
        self._trial: Trial | None = None
        self._n_trials = 0
        self._n_made, self._next_trial = 0, 0  # batches made here, and after how many to try again what was not conclusive
        self._refusal = ""  # why there can be no processes
        self._steps: list[tuple[float, float]] = []  # of the consumer between two batches: how long, and how long it did nothing
        self._left: tuple[float, float] | None = None  # when it went for the last time
        self._asks = True  # whether there is something to decide
        self._n_expected: int | None = None
        self._is_used = False  # whether this iteration has had a batch
        self._n_iterations = 1  # with the same workers

        self._current: Choice | None = None  # that is followed
        self._watch, self._pace = Watch(0.0), Pace(0.0)
        self._waits_at_times = False  # whether the chosen ones were because some of many batches wait
        self._n_examined = self._n_changes = 0
        self._chosen_at = 0.0

    @property
    def kind(self) -> str:  # type: ignore[override]  # read-only here
        workers = self._chosen or self._resting
        return "inline" if workers is None else workers.kind

    @property
    def n_workers(self) -> int:  # type: ignore[override]  # read-only here
        workers = self._chosen or self._resting
        return 0 if workers is None else workers.n_workers

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        if self._chosen is not None:
            return len(self._tried) + self._chosen.capacity
        return len(self._tried) + (2 * self._n_pairs() if self._wants_trial() else 1)

    def expect(self, n_jobs: int) -> None:
        self._n_expected = n_jobs

    def submit(self, job: Job) -> None:
        if self._chosen is None or self._is_draining:
            self._jobs.append(job)
        else:
            self._give(job, self._chosen)

    def next(self) -> MadeBatch:
        try:
            if self._is_draining and not self._given:
                self._rest()
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
        self._is_used = True
        if self._n_expected is not None:
            self._n_expected -= 1
        if self._chosen is not None or not self._asks:
            self._left = None
        else:
            wanted = wanted_seconds()
            self._left = time.perf_counter(), wanted
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
        self._end_starting()
        if self._chosen is not None:
            self._chosen.close()
            if self._chosen.kind == "processes":  # batches are made here again until others are ready, if they are worth it
                self._chosen, self._asks = None, True
        self._n_iterations = 1

    def _forget(self) -> None:
        """All jobs. What was measured, and chosen, stays."""
        self._jobs.clear()
        self._tried.clear()
        self._given.clear()
        self._n_given = 0
        self._is_draining = False
        self._left, self._n_expected = None, None
        self._pace.pause()
        if self._is_used:
            self._is_used = False
            self._n_iterations += 1
        self._asks = self._starting is None
        if self._resting is not None:  # what is left undone is done another time: iterations may be too short for it
            self._chosen, self._resting, self._asks = self._resting, None, False
            self._chosen_at = time.monotonic()

    # --------------------------------------------------------------------------------------------------------- making batches

    def _made_here(self, job: Job) -> MadeBatch:
        self._n_made += 1
        if self._has_measured():
            made = self._maker.make(job)
            self._notice(made)
            return made
        delayed, began, own, every = delayed_seconds(), time.perf_counter(), time.thread_time(), time.process_time()
        made = self._maker.make(job)
        every, own, seconds = time.process_time() - every, time.thread_time() - own, time.perf_counter() - began
        seconds = max(1e-9, own, seconds - (delayed_seconds() - delayed))
        self._costs.append(Cost(made.n_samples, seconds, own, every))
        if self._has_measured():
            self._cost = overall(self._costs)
        return made

    def _notice(self, made: MadeBatch) -> None:
        """Measure batches again that are made here if they have changed."""
        self._recent.append(seconds_of(made))
        if len(self._recent) == _N_RECENT and self._n_measured_again < _MOST_MEASURED_AGAIN:
            # cheaper or dearer all of them: a busy machine makes some batches dear, and none cheap
            measured = self._cost.seconds_a_sample
            if max(self._recent) * _CHANGED < measured or min(self._recent) > 2 * _CHANGED * measured:
                self._measure_again()

    def _measure_again(self) -> None:
        self._n_measured_again += 1
        self._forget_costs()

    def _forget_costs(self) -> None:
        self._costs.clear()
        self._recent.clear()
        self._steps.clear()
        self._trial, self._n_trials, self._next_trial = None, 0, 0
        self._asks = True

    def _made_by(self, workers: Workers) -> MadeBatch:
        try:
            made = self._watch.next_of(workers) if workers.kind == "inline" else self._pace.next_of(workers)
        except WorkerError as error:
            if self._has_proved or workers.kind != "processes":
                raise
            # They do not work here at all: their interpreter lacks something, say. What this thread can make shall not fail.
            warnings.warn(f"no worker process works, so there will be none: {error}", RuntimeWarning, stacklevel=4)
            self._refusal = f"they failed ({_in_short(error)})"
            workers.close()
            self._take_back()
            self._asks = True
            self._settle()
            return self.next()
        self._given.popleft()
        self._has_proved = True
        if workers.kind == "inline":
            self._look_at_own(workers)
        elif self._pace.is_time_to_look and not self._is_draining:
            self._is_draining = self._should_examine_workers()
        return made

    def _give(self, job: Job, workers: Workers) -> None:
        """Submit a job to the chosen workers, for whom those that were made here do not count."""
        if job.number != self._n_given:
            job = job._replace(number=self._n_given)
        self._n_given += 1
        self._given.append(job)
        workers.submit(job)

    def _take_back(self) -> None:
        """Have no chosen workers any more, and the jobs again that they had, before those that nobody was given."""
        self._jobs.extendleft(reversed(self._given))
        self._given.clear()
        self._n_given, self._chosen = 0, None
        self._is_draining = False

    # ------------------------------------------------------------------------------------------------------- examining a choice

    def _look_at_own(self, workers: Workers) -> None:
        """After a batch of inline workers."""
        if workers.n_ready > 0:
            return  # some are made already, in the same request
        watch = self._watch
        if watch.waits:
            self._take_back()
            self._n_changes += 1
            self._choose(Choice("threads", self._most_workers, watch.waits))
            # a few batches made here would not show it, only that all of the threads' have become cheaper
            self._waits_at_times, self._pace = True, Pace(watch.seconds_a_sample)
        elif watch.n_windows:
            watch.n_windows = 0
            if (watch.is_dearer and self._may_examine_again()) or self._should_try_again():
                self._take_back()
                self._begin_examination()

    def _may_examine_again(self) -> bool:
        return time.monotonic() > self._chosen_at + math.ldexp(_SECONDS_MEASURED, self._n_examined)

    def _should_try_again(self) -> bool:
        """Whether batches that were no better made by others may be so by now."""
        nature = nature_of(self._cost)
        if nature == "cheap" or (nature == "computes" and self._trial is None and not self._is_told()):
            return False
        return time.monotonic() > self._chosen_at + self._interval(self._cost.seconds)

    def _should_examine_workers(self) -> bool:
        pace = self._pace
        making_seconds = pace.making_seconds * self._cost.n_samples
        seems_cheap = nature_of(Cost(self._cost.n_samples, making_seconds, making_seconds, making_seconds)) == "cheap"
        if not (pace.keeps_consumer_waiting or (seems_cheap and pace.is_cheaper)):
            return False
        elapsed = time.monotonic() - self._chosen_at
        if pace.is_cheaper:
            is_due = pace.n_batches >= _N_BEFORE_EXAMINED << self._n_examined
            return is_due and elapsed * _PART_EXAMINED_ONCE_CHANGED > _examining_seconds(making_seconds)
        return not self._waits_at_times and elapsed > self._interval(max(making_seconds, self._cost.seconds))

    def _interval(self, batch_seconds: float) -> float:
        """After how many seconds to examine the choice without a sign of change."""
        spent = _examining_seconds(batch_seconds)
        first = max(_SECONDS_BEFORE_FIRST_EXAMINED, spent / _PART_FIRST_EXAMINED)
        longest = max(math.ldexp(_SECONDS_BEFORE_EXAMINED, self._n_changes), spent / _PART_EXAMINED)
        return min(longest, math.ldexp(first, self._n_examined))

    def _rest(self) -> None:
        """Let the chosen workers do nothing, as they have handed out all they were given, while batches are measured here."""
        workers = self._chosen
        if workers is not None:
            self._take_back()
            self._resting = workers
            workers.cancel()  # there is nothing; the next of their jobs will have the number 0
            self._begin_examination()

    def _begin_examination(self) -> None:
        self._n_examined += 1
        self._n_measured_again = 0
        self._forget_costs()

    def _end_examination(self, choice: Choice, resting: Workers, step_seconds: float) -> None:
        """Go on with the workers that rested, or with others."""
        own_cycle = (self._cost.seconds + step_seconds) / self._cost.n_samples
        old = self._current or Choice("inline", 0, "")
        choice = kept_or_chosen(choice, old=old, old_cycle_seconds=self._pace.cycle_seconds, own_cycle_seconds=own_cycle)
        self._resting = None
        if (choice.kind, choice.n_workers) == (resting.kind, resting.n_workers):
            self._follow(choice)
            self._go_over(resting)
            self._has_proved = True
        else:
            resting.close()
            self._n_changes += 1
            self._choose(choice)

    # --------------------------------------------------------------------------------------------------------------- choosing

    def _decide(self) -> None:
        """Before a batch is made here: choose, if enough is known and there is a choice."""
        if self._left is not None:
            wall, wanted = time.perf_counter() - self._left[0], wanted_seconds() - self._left[1]
            self._steps.append((wall, max(0.0, wall - wanted)))
            del self._steps[:-_N_STEPS]
        if self._asks and self._has_measured():
            if self._wants_trial():
                n_pairs = self._n_pairs()
                # there are fewer if the iteration ends, or if nobody knew that so many would be wanted
                if len(self._jobs) >= 2 * n_pairs and self._try_two(n_pairs):
                    self._settle()
            elif self._trial is None or self._trial.is_conclusive:
                self._settle()
        elif self._starting is not None and not self._asks and self._starting.is_ready:
            self._go_over(self._starting)

    def _has_measured(self) -> bool:
        return len(self._costs) >= _N_MEASURED or sum(cost.seconds for cost in self._costs) >= _SECONDS_MEASURED

    def _wants_trial(self) -> bool:
        return (
            self._asks
            and not self._is_told()
            and (self._trial is None or not self._trial.is_conclusive)
            and self._n_made >= self._next_trial
            and self._has_measured()
            and n_processors() > 1
            and nature_of(self._cost) == "computes"
        )

    def _is_told(self) -> bool:
        """Whether two threads are not tried out, since the source tells what suits it: that it leaves Python's lock, or that rows
        are only copied, which one thread does as fast. That saves the first tenth of a second; a later examination looks for
        itself.
        """
        return self._n_examined == 0 and (self._maker.leaves_lock or self._maker.only_gathers)

    def _n_pairs(self) -> int:
        return max(1, min(_MOST_TRIED, math.ceil(_SECONDS_TRIED / self._cost.seconds)))

    def _try_two(self, n_pairs: int) -> bool:
        """Make batches in this thread and another at once; gives whether that is a result, or as good as there will be one."""
        jobs = [self._jobs.popleft() for _ in range(2 * n_pairs)]
        alone = self._cost.seconds
        made, trial = made_by_two(self._maker, jobs, seconds_alone=alone, timeout_seconds=self._timeout_seconds)
        self._tried.extend(made)
        if trial is None:
            return False
        self._left = None
        if trial.is_of_stale_cost and self._n_measured_again < _MOST_MEASURED_AGAIN:
            self._measure_again()
            return False
        trial = replace(trial, gain=min(2.0, trial.gain))
        if self._trial is not None and not trial.is_conclusive:
            trial = max(self._trial, trial, key=lambda each: each.n_at_once)
        self._trial = trial
        self._n_trials += 1
        self._next_trial = self._n_made + (_N_BETWEEN_TRIALS << self._n_trials)
        if self._n_trials == _MOST_TRIALS:  # on a machine so busy it matters less; but threads have been given their chance
            self._trial = replace(trial, is_last=True)
        return True

    def _settle(self) -> None:
        """Choose, all being known that there is to know."""
        steps = self._steps or [(0.0, 0.0)]
        step_seconds = statistics.median(wall for wall, _ in steps)
        left = None if self._n_expected is None else self._n_expected * self._n_iterations  # more of them will come
        choice = chosen(
            self._cost,
            self._trial,
            n_workers=self._most_workers,
            n_processors=n_processors(),
            step_seconds=step_seconds,
            idle_seconds=statistics.median(idle for _, idle in steps),
            n_left=left,
            n_bytes_held=0 if self._trial is None else _n_bytes_held(self._maker.stacks.at(0)),
            start_seconds=self._start_seconds,
            refusal=self._refusal or ("rows of arrays are copied no faster by processes" if self._maker.only_gathers else ""),
            leaves_lock=self._is_told() and self._maker.leaves_lock,
            only_gathers=self._is_told() and self._maker.only_gathers,
        )
        if self._resting is not None:
            self._end_examination(choice, self._resting, step_seconds)
        elif choice.is_final:
            self._choose(choice)
        else:
            self._current, self.choice = None, f"inline for now: {choice.reason}"
            self._asks = self._trial is not None and not self._trial.is_conclusive
            self._end_starting()

    def _choose(self, choice: Choice) -> None:
        number = choice.n_workers
        self._follow(choice)
        if choice.kind != "processes":
            self._end_starting()
        if choice.kind == "inline":
            self._go_over(InlineWorkers(self._maker))
        elif choice.kind == "threads":
            self._go_over(ThreadWorkers(self._maker, number, prefetch=self._prefetch, timeout_seconds=self._timeout_seconds))
        elif self._starting is None:
            processes = ProcessWorkers(self._maker, number, prefetch=self._prefetch, timeout_seconds=self._timeout_seconds)
            try:
                processes.start()
            except (ConfigError, OSError) as error:
                processes.close()
                self._refusal = f"there are none ({_in_short(error)})"
                self._settle()
                return
            self._starting, self._started_at = processes, time.monotonic()
            if processes.is_ready:
                self._go_over(processes)

    def _end_starting(self) -> None:
        if self._starting is not None:
            starting, self._starting = self._starting, None
            self._start_seconds = max(self._start_seconds, time.monotonic() - self._started_at)
            starting.close()

    def _follow(self, choice: Choice) -> None:
        self._current, self.choice = choice, f"{choice.kind}: {choice.reason}"
        self._asks = False

    def _go_over(self, workers: Workers) -> None:
        if self._starting is not None:
            self._start_seconds = max(self._start_seconds, time.monotonic() - self._started_at)
        self._chosen, self._starting, self._has_proved = workers, None, False
        self._chosen_at = time.monotonic()
        self._watch, self._pace = Watch(self._cost.seconds_a_sample), Pace(self._cost.seconds_a_sample)
        self._waits_at_times = False
        jobs = list(self._jobs)
        self._jobs.clear()
        for job in jobs:
            self._give(job, workers)


def _told(outcome: MadeBatch | LoadingError) -> MadeBatch:
    if isinstance(outcome, LoadingError):
        raise outcome
    return outcome


def _in_short(error: Exception) -> str:
    """What an error says, without where that came from."""
    said = " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split()).rstrip(":. ")
    return said if len(said) <= _MOST_CHARACTERS else f"{said[:_MOST_CHARACTERS]}…"


def _examining_seconds(batch_seconds: float) -> float:
    """What it costs about to examine a choice: batches made one by one, and the wait for the first of the workers again."""
    return min(_N_MEASURED * batch_seconds, max(_SECONDS_MEASURED, batch_seconds)) + batch_seconds


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
