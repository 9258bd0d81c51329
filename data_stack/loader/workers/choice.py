"""Which kind of workers suits batches, by what the first of them cost: pure functions of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Choice", "Cost", "Nature", "Trial", "chosen", "kept_or_chosen", "nature_of", "overall"]

Nature = Literal["cheap", "waits", "parallel", "computes"]
"""What making a batch is: too little work to give away; waiting for a store; computing on several processors; or on one."""

# Below these a batch is a gather, and handing it from thread to thread costs what it saves: 64 rows of 256 bytes take 10 µs
# inline and 20 to 29 µs from threads, 256 rows of 3 kB 102 µs and 97 to 164 µs (2 processors). No training step notices these.
_CHEAP_SECONDS = 0.0003
_CHEAP_SECONDS_A_SAMPLE = 1e-6

# Processor time by wall time of a batch. A thread that waits half of the time leaves room for another.
_WAITS_BELOW = 0.5
_IS_PARALLEL_ABOVE = 1.4

# Threads must reach this part of what as many processors could, or processes are better, whose batches cost a copy in memory.
_LEAST_EFFICIENCY = 0.7

# Under Python's lock two threads are together as fast as one (0.8 to 1.05 times, if they have the processors). What makes them
# slower is memory: gathers of 38 MB a batch were 0.15 to 0.3 times as fast, those of 5 MB of bytes objects 0.35 to 0.5 times,
# since each new page is a matter of the whole process.
_LEAST_OF_A_LOCK = 0.6

# From here on threads are better than none, where there can be no processes.
_LEAST_GAIN = 1.2

# Two threads that had no processor for a larger part of the time, because other programs had them, show nothing, unless they
# computed at once all the same, or could hardly have done so. (Those that wait for Python's lock then wait for a processor
# whenever they look for it: beside two and four other programs, two threads under the lock computed or could have 0.95 to 1.8
# at a time, two free ones 1.3 to 1.95.)
_MOST_DELAYED = 0.1
_SURELY_LOCKED = 1.25

# Two threads that both computed all the time, and were no faster than one: the memory is the limit, and more workers are none.
_COMPUTED_AT_ONCE = 1.6

# What two threads cannot be.
_MOST_GAIN = 2.3

# If batches that were made in the consumer's thread came so many times as fast as from the workers, they are made there. If it
# was the other way round, workers stay although batches seem too little for them; but that must be clear, for those made in the
# consumer's thread were few, and paid for the clocks: of 20 µs each, they seemed up to 2.1 times as slow, and were not.
_FASTER = 1.15
_CLEARLY_FASTER = 2.2

# Worker processes are fresh interpreters: until they have made their first batches the machine has spent about so much on them.
_START_SECONDS = 0.6
_LEAST_RETURN = 1.5  # what is saved later by what is spent on them, for both are estimates
_BYTES_SENT_A_SECOND = 1e9
_MOST_BYTES_SENT = 4 << 30


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a batch that was made in the consumer's thread.

    Attributes:
        n_samples: of it.
        seconds: wall time, without what other programs kept the thread from running.
        own_seconds: processor time of the thread that made it.
        all_seconds: processor time of all threads of the process meanwhile.
    """

    n_samples: int
    seconds: float
    own_seconds: float
    all_seconds: float

    @property
    def seconds_a_sample(self) -> float:
        """Wall time of a sample."""
        return self.seconds / max(1, self.n_samples)


@dataclass(frozen=True, slots=True)
class Trial:
    """What two threads did at once.

    Attributes:
        gain: how many times as fast as one thread they were, or would have been if they had had the processors. More than 2
            says that batches have become cheaper since one thread was measured.
        n_at_once: how many of them computed at a time, on average.
        delayed: for which part of the time they were kept from running by other programs.
        is_last: whether there will be no other, however busy the machine was.
    """

    gain: float
    n_at_once: float
    delayed: float = 0.0
    is_last: bool = False

    @property
    def is_conclusive(self) -> bool:
        """Whether the machine had the processors for it, or they show the same without."""
        had_processors = self.delayed <= _MOST_DELAYED or self.n_at_once >= 2 * _LEAST_EFFICIENCY
        return had_processors or self.is_surely_locked or self.is_last

    @property
    def is_surely_locked(self) -> bool:
        """Whether they could not have computed at once, whoever had the processors."""
        return self.could_at_once < _SURELY_LOCKED

    @property
    def could_at_once(self) -> float:
        """How many of them computed at a time, or waited for a processor."""
        return self.n_at_once + 2 * self.delayed

    @property
    def is_of_stale_cost(self) -> bool:
        """Whether one thread must be measured again."""
        return self.gain > _MOST_GAIN


@dataclass(frozen=True, slots=True)
class Choice:
    """Workers that were chosen.

    Attributes:
        kind: of them.
        n_workers: how many; 0 for inline.
        reason: why, with the figures.
        is_final: False if it is only for the few batches that are left of an iteration.
    """

    kind: Literal["inline", "threads", "processes"]
    n_workers: int
    reason: str
    is_final: bool = True


def overall(costs: Sequence[Cost]) -> Cost:
    """What a batch costs, the first one left out if there are others: it opened files and filled caches."""
    steady = costs[1:] or costs
    seconds = statistics.median(cost.seconds for cost in steady)
    total = sum(cost.seconds for cost in steady)
    own = sum(cost.own_seconds for cost in steady) / total
    # The least, for what other threads did meanwhile (a model's that still spin, a trainer's own) is no work on the batch.
    every = min(cost.all_seconds / cost.seconds for cost in steady)
    return Cost(round(statistics.median(cost.n_samples for cost in steady)), seconds, own * seconds, every * seconds)


def nature_of(cost: Cost) -> Nature:
    """What making a batch of such cost is."""
    if cost.seconds < _CHEAP_SECONDS or cost.seconds < _CHEAP_SECONDS_A_SAMPLE * cost.n_samples:
        return "cheap"
    if cost.all_seconds > _IS_PARALLEL_ABOVE * cost.seconds:
        return "parallel"
    if cost.own_seconds < _WAITS_BELOW * cost.seconds:
        return "waits"
    return "computes"


def chosen(
    cost: Cost,
    trial: Trial | None,
    *,
    n_workers: int,
    n_processors: int,
    step_seconds: float,
    idle_seconds: float,
    n_left: int | None,
    n_bytes_held: int,
    refusal: str = "",
    start_seconds: float = 0.0,
    leaves_lock: bool = False,
    only_gathers: bool = False,
) -> Choice:
    """The workers that suit.

    Args:
        cost: of a batch.
        trial: of two threads; None if there was none, which suits batches of another nature than "computes".
        n_workers: the most there may be, at least 1.
        n_processors: that this process may use.
        step_seconds: what the consumer does between two batches takes so long.
        idle_seconds: of these, its thread computes nothing: it waits for a GPU, or for threads of its own.
        n_left: how many batches will be asked for; None if that is not known, and taken to be many.
        n_bytes_held: what the dataset holds in memory, and would have to be sent to processes.
        refusal: why there can be no processes; "" if there can.
        start_seconds: what processes took to start; 0 if that is not known.
        leaves_lock: whether the source says that it computes without Python's lock, so that nobody need try that out.
        only_gathers: whether all that is done is to copy rows out of arrays. What other threads do meanwhile is no part of it:
            they read the next row groups.
    """
    nature = nature_of(cost)
    told = f"a batch takes {_time(cost.seconds)}"
    if nature == "cheap":
        return Choice("inline", 0, f"{told}, {_time(cost.seconds / max(1, cost.n_samples))} a sample: too little to hand over")
    if leaves_lock and n_processors > 1:
        return Choice("threads", n_workers, f"{told}, most of it without Python's lock, as the source says")
    if nature == "parallel" and not only_gathers:
        return Choice(
            "threads",
            1,
            f"{told} and computes on {cost.all_seconds / cost.seconds:.1f} processors already: one thread makes them ahead",
        )
    if nature == "waits":
        return Choice("threads", n_workers, f"{told} and computes {cost.own_seconds / cost.seconds:.0%} of it: it waits")
    at_most = min(n_workers, n_processors)
    alone = (
        Choice(
            "threads",
            1,
            f"{told}; the consumer waits for something else {_time(idle_seconds)} a step: one thread makes them ahead",
        )
        if idle_seconds > 0.2 * min(cost.seconds, step_seconds) > 0
        else Choice("inline", 0, f"{told} of computing")
    )
    if n_processors == 1:
        return _because(alone, "there is one processor")
    if trial is None:
        return _because(alone, "rows are only copied" if only_gathers else "too few batches to try out anything")
    if not trial.is_conclusive:
        return replace(_because(alone, "other programs keep the processors busy"), is_final=False)
    gain = min(trial.gain, trial.could_at_once if trial.is_surely_locked else trial.n_at_once)
    compared = f"two threads were {gain:.1f} times as fast as one"
    if _speed(gain, at_most) >= _LEAST_EFFICIENCY * at_most and gain >= 2 * _LEAST_EFFICIENCY:
        return Choice("threads", n_workers, f"{told}; {compared}")
    if gain < _LEAST_OF_A_LOCK and trial.delayed <= _MOST_DELAYED:
        return _because(alone, f"{compared}: they are in each other's way")
    if gain < 2 * _LEAST_EFFICIENCY and trial.n_at_once >= _COMPUTED_AT_ONCE:
        return Choice("threads", 1, f"{told}; {compared}, though both computed all the time: one thread makes them ahead")
    if gain >= _LEAST_GAIN:
        alone = Choice("threads", n_workers, told)
    saved = cost.seconds + step_seconds - max(cost.seconds / at_most, step_seconds)
    start = max(start_seconds, _START_SECONDS + n_bytes_held / _BYTES_SENT_A_SECOND)
    locked = f"{compared}: the rest holds Python's lock"
    if refusal:
        return _because(alone, f"{locked}, but {refusal}")
    if n_bytes_held > _MOST_BYTES_SENT:
        return _because(alone, f"{locked}, but {n_bytes_held / 1e9:.1f} GB in memory are too much to send to processes")
    if n_left is not None and n_left * saved < _LEAST_RETURN * start:
        too_few = f"{locked}, but processes take {_time(start)} to start, which {n_left} batches are not worth"
        return replace(_because(alone, too_few), is_final=False)
    if saved < 0.2 * cost.seconds:  # one worker, and a consumer that does nothing meanwhile
        return _because(alone, f"{locked}, but a process would be no faster")
    return Choice("processes", n_workers, f"{told}; {locked}")


def kept_or_chosen(choice: Choice, *, old: Choice, old_cycle_seconds: float | None, own_cycle_seconds: float | None) -> Choice:
    """The old workers or others, by how fast batches came from the old ones and were made in the consumer's thread between.

    Args:
        choice: what suits by what batches cost now.
        old: the workers until now, threads or processes.
        old_cycle_seconds: from one sample to the next with these, and all that the consumer does with it; None if not known.
        own_cycle_seconds: the same with batches made in its thread.
    """
    is_same = (old.kind, old.n_workers) == (choice.kind, choice.n_workers)
    if not choice.is_final:
        choice = old
    if old_cycle_seconds is None or own_cycle_seconds is None:
        return choice
    old_rate = f"every {_time(old_cycle_seconds)} from {_counted(old)}"
    own_rate = f"every {_time(own_cycle_seconds)} if they are made inline"
    if own_cycle_seconds * _FASTER < old_cycle_seconds:
        return Choice("inline", 0, f"samples came {old_rate}, and come {own_rate}")
    if not is_same and choice.kind == "inline" and old_cycle_seconds * _CLEARLY_FASTER < own_cycle_seconds:
        return Choice(old.kind, old.n_workers, f"samples come {old_rate}, and {own_rate}")
    return choice


def _because(choice: Choice, reason: str) -> Choice:
    return Choice(choice.kind, choice.n_workers, f"{choice.reason}; {reason}")


def _counted(choice: Choice) -> str:
    if choice.n_workers > 1:
        return f"{choice.n_workers} {choice.kind}"
    return "one thread" if choice.kind == "threads" else "one process"


def _speed(gain: float, n_threads: int) -> float:
    """How many times as fast as one thread ``n_threads`` are, if two are ``gain`` times as fast (Amdahl's law)."""
    serial = min(1.0, max(0.0, 2 / gain - 1))
    return 1 / (serial + (1 - serial) / n_threads)


def _time(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.2g} µs" if seconds < 1e-4 else f"{seconds * 1e6:.0f} µs"
