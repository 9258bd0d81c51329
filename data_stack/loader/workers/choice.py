"""Which kind of workers makes the batches that are left soonest: a pure function of what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Choice", "Figure", "chosen"]

# Another kind of workers must be so much faster, for figures of a few batches are rough.
_CLEARLY = 0.9

# What it costs to hand a batch over, which a kind that was not measured is taken to cost besides making it.
_THREAD_SECONDS = 1e-4
_PROCESS_SECONDS = 3e-4


@dataclass(frozen=True, slots=True)
class Figure:
    """What the batches of one kind of workers took, on average.

    Attributes:
        making_seconds: for making a batch, in the thread that made it.
        waiting_seconds: from when the consumer asked for a batch until it had it.
        step_seconds: from when it had a batch until it asked for the next one.
    """

    making_seconds: float
    waiting_seconds: float
    step_seconds: float

    @property
    def cycle_seconds(self) -> float:
        """From one batch to the next, as the consumer had them."""
        return self.waiting_seconds + self.step_seconds


@dataclass(frozen=True, slots=True)
class Choice:
    """Workers to go on with.

    Attributes:
        kind: "inline", "threads" or "processes". If it was not measured, it is to be tried: by its figure all is chosen again.
        reason: the figures, in words.
    """

    kind: str
    reason: str


def chosen(
    figures: Mapping[str, Figure],
    *,
    n_left: float,
    n_workers: int,
    n_processors: int,
    start_seconds: float,
    refusal: str = "",
) -> Choice:
    """The kind of workers by which the batches that are left come soonest; of kinds that hardly differ, the simplest.

    A kind that was not measured is taken to be as fast as it could be, and so it is tried where that would be worth it: threads
    that all wait at once, processes that all compute at once.

    Args:
        figures: those of the kinds that were measured; "inline" is one of them.
        n_left: how many batches will be asked for.
        n_workers: threads or processes.
        n_processors: which they share.
        start_seconds: until processes are ready, while batches are made as before; 0 if they are.
        refusal: why there can be no processes; "" if there can.
    """
    reason = "a batch came every " + ", ".join(
        f"{_time(figure.cycle_seconds)} {'inline' if kind == 'inline' else f'from {n_workers} {kind}'}"
        for kind, figure in figures.items()
    )
    reason += f"; no processes: {refusal}" if refusal else ""
    own = figures["inline"]
    best, best_seconds = "inline", own.cycle_seconds
    for kind, n_at_once, hand_over_seconds, start in (
        ("threads", n_workers, _THREAD_SECONDS, 0.0),
        ("processes", min(n_workers, n_processors), _PROCESS_SECONDS, start_seconds),
    ):
        if n_left < 1 or (kind == "processes" and refusal):
            continue
        if kind in figures:
            seconds = figures[kind].cycle_seconds
        else:
            seconds = max(own.step_seconds, own.making_seconds / min(n_at_once, n_left)) + hand_over_seconds
        n_meanwhile = min(n_left, start / best_seconds) if best_seconds else n_left
        seconds = (n_meanwhile * best_seconds + (n_left - n_meanwhile) * seconds) / n_left
        if seconds < _CLEARLY * best_seconds:
            best, best_seconds = kind, seconds
            if kind not in figures:
                break  # what is better yet is asked when it has been tried
    return Choice(best, reason)


def _time(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
