"""Says what would make a training faster, from the figures of its loader."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

Stage = Literal["fetch", "decode", "collate", "transform"]
"""A part of making a batch."""

Bottleneck = Literal["model", "convert", Stage]
"""What a training waits for: its own step, or a part of loading."""

#: Fewer batches say nothing: files are opened, caches filled, kernels compiled.
_MIN_BATCHES: Final = 20

#: A consumer that waits for less than this part of the time gains nothing from a faster loader.
_SMALL_SHARE: Final = 0.05

#: More workers than this do not wait for a store at the same time.
_MAX_WAITING_WORKERS: Final = 64

#: What each stage of a worker is called in a sentence.
_STAGE_NAMES: Final[dict[Stage, str]] = {
    "fetch": "waiting for the store",
    "decode": "reading and decoding",
    "collate": "collating",
    "transform": "the transform",
}

#: What helps each stage besides more workers.
_REMEDIES: Final[dict[Stage, str]] = {
    "fetch": "a cache beside the store, or BlockShuffled(), would need fewer requests",
    "decode": "cache(storage=…), or records instead of this format, would decode less",
    "collate": "values of one shape would be collated at once",
    "transform": "map(function, batched=True), or cache(storage=…) after it, would do less",
}


@dataclass(frozen=True, slots=True)
class Pace:
    """How the time of an iteration was spent. Seconds are sums over all batches.

    Attributes:
        n_batches: the number of batches.
        elapsed_seconds: the time of the iteration.
        waiting_seconds: how long the consumer waited for batches, conversion included.
        convert_seconds: how long the consumer converted batches.
        stage_seconds: how long workers spent in each stage, summed over the workers.
        n_workers: the number of threads or processes; 0 for inline.
        n_processors: the number of processors that this program may use.
        is_automatic: whether the loader chose the kind of workers by measuring, so that more of
            them were found not to help.
    """

    n_batches: int
    elapsed_seconds: float
    waiting_seconds: float
    convert_seconds: float
    stage_seconds: dict[Stage, float]
    n_workers: int
    n_processors: int
    is_automatic: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """What a training waits for, and what would help.

    Attributes:
        bottleneck: what it waits for: "model" for its own step.
        share: the part of a batch's time that this takes: of the iteration for "model" and
            "convert", of the workers' time for the other stages.
        more_workers: how many more workers would hide loading behind the step; 0 if they would not
            help, or the machine has no processors for them.
        text: one or two sentences.
    """

    bottleneck: Bottleneck
    share: float
    more_workers: int
    text: str

    def __str__(self) -> str:
        return self.text


def advise(pace: Pace) -> Advice | None:
    """Say what would make a training faster; None before enough batches to tell.

    Args:
        pace: how the time of the iteration was spent.
    """
    if pace.n_batches < _MIN_BATCHES or pace.elapsed_seconds <= 0:
        return None
    waiting_share = pace.waiting_seconds / pace.elapsed_seconds
    if waiting_share < _SMALL_SHARE:
        return Advice(
            "model",
            1 - waiting_share,
            0,
            f"the consumer waited {waiting_share:.0%} of the time: a faster loader would not help",
        )
    if pace.convert_seconds > pace.waiting_seconds / 2:
        return _advise_on_conversion(pace)
    return _advise_on_workers(pace)


def _advise_on_conversion(pace: Pace) -> Advice:
    share = pace.convert_seconds / pace.elapsed_seconds
    return Advice(
        "convert",
        share,
        0,
        f"conversion takes {share:.0%} of the time: .torch(device=…, pin_memory=True) copies a "
        f"batch while the model uses the one before",
    )


def _advise_on_workers(pace: Pace) -> Advice:
    """Advise where the consumer waits for batches to be made."""
    making_seconds = sum(pace.stage_seconds.values())
    slowest_stage = max(pace.stage_seconds, key=lambda stage: pace.stage_seconds[stage])
    share = 0.0
    if making_seconds > 0:
        share = pace.stage_seconds[slowest_stage] / making_seconds
    text = f"{_STAGE_NAMES[slowest_stage]} takes {share:.0%} of the time of a batch"

    n_needed = _count_needed_workers(pace, making_seconds)
    n_possible = _count_possible_workers(pace, slowest_stage)
    n_more = 0
    if n_needed is None:
        text += f"; {_REMEDIES[slowest_stage]}"
    elif n_needed > n_possible:
        limit = f"{n_possible} workers"
        if n_possible == pace.n_processors:
            limit += f", one for each of {n_possible} processors,"
        text += f"; {limit} are too few to hide it: {_REMEDIES[slowest_stage]}"
    else:
        n_more = n_needed - pace.n_workers
        noun = "worker" if n_more == 1 else "workers"
        text += f"; {n_more} more {noun} would hide it: workers={n_needed}"
    return Advice(slowest_stage, share, n_more, text)


def _count_needed_workers(pace: Pace, making_seconds: float) -> int | None:
    """Return how many workers make batches as fast as the consumer uses them.

    Returns:
        More than there are now; None if more workers would not help, or it is not known.
    """
    using_seconds = pace.elapsed_seconds - pace.waiting_seconds
    if pace.is_automatic or using_seconds <= 0:
        return None
    n_needed = math.ceil(making_seconds / using_seconds)
    if n_needed <= pace.n_workers:
        return None
    return n_needed


def _count_possible_workers(pace: Pace, slowest_stage: Stage) -> int:
    # Workers that wait for a store need no processors.
    if slowest_stage == "fetch":
        return _MAX_WAITING_WORKERS
    return pace.n_processors
