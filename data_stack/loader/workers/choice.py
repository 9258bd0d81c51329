"""Chooses the kind of workers that delivers batches fastest, by measurements."""

from __future__ import annotations

from collections.abc import Mapping

from data_stack.loader.workers.measuring import Measurement

#: The kinds that are measured after inline, in this order: threads start at once.
_OTHER_KINDS = ("threads", "processes")

#: What handing a batch over to the consumer costs.
_HAND_OVER_SECONDS = {"threads": 1e-4, "processes": 3e-4}

#: What starting the workers costs. The fork server takes most of it, and only the first time.
_START_SECONDS = {"threads": 0.0, "processes": 0.25}

#: A kind is clearly faster than another if it takes less than this part of the time of the other.
#: Smaller differences do not count, as the measurements of a few batches are rough.
_CLEARLY_FASTER = 0.9

#: Processes are clearly faster than threads at this part. Both measurements are of whole rounds of
#: several batches, and less rough than those of inline.
_CLEARLY_FASTER_THAN_THREADS = 0.95


def choose_kind(
    measurements: Mapping[str, Measurement],
    *,
    n_workers: int,
    n_processors: int,
    n_batches: float,
    can_use_processes: bool,
    are_kept: bool,
) -> str:
    """Choose the kind of workers that makes the next batches.

    Args:
        measurements: the measurements of the kinds that have been tried, at least of "inline".
        n_workers: the number of threads or processes.
        n_processors: the number of processors of this machine.
        n_batches: the number of batches until the end of the iteration.
        can_use_processes: whether processes may be used.
        are_kept: whether the workers are used for more than this iteration.

    Returns:
        A kind that has not been measured and could be clearly faster than all measured kinds; or
        the fastest measured kind.
    """
    # Find the fastest kind so far. Processes may have failed after their measurement.
    usable_measurements = dict(measurements)
    if not can_use_processes:
        usable_measurements.pop("processes", None)
    fastest = _fastest_kind(usable_measurements)
    fastest_seconds = usable_measurements[fastest].batch_seconds
    if n_batches < 1:
        return fastest

    # Find a kind to measure next.
    for kind in _OTHER_KINDS:
        if kind in measurements:
            continue
        if kind == "processes" and not can_use_processes:
            continue

        # A worker helps only if it has a batch to make; a process also needs a processor.
        n_at_once = min(n_workers, n_batches)
        if kind == "processes":
            n_at_once = min(n_at_once, n_processors)
        possible_seconds = _shortest_batch_seconds(kind, measurements["inline"], n_at_once)
        if possible_seconds >= _part_of_clearly_faster(fastest) * fastest_seconds:
            continue

        # Workers that are kept start once for all iterations, so their start counts for nothing.
        start_seconds = 0.0 if are_kept else _START_SECONDS[kind]
        saved_seconds = n_batches * (fastest_seconds - possible_seconds)
        if saved_seconds > start_seconds:
            return kind
    return fastest


def _fastest_kind(measurements: Mapping[str, Measurement]) -> str:
    """Return the kind with the shortest time from batch to batch.

    Of kinds that are about equally fast, it is the one that takes the least memory: inline, then
    threads.
    """
    fastest = "inline"
    for kind in _OTHER_KINDS:
        if kind not in measurements:
            continue
        limit_seconds = _part_of_clearly_faster(fastest) * measurements[fastest].batch_seconds
        if measurements[kind].batch_seconds < limit_seconds:
            fastest = kind
    return fastest


def _part_of_clearly_faster(kind: str) -> float:
    """Return the part of the time of a kind that a clearly faster kind takes at most."""
    if kind == "threads":
        return _CLEARLY_FASTER_THAN_THREADS
    return _CLEARLY_FASTER


def _shortest_batch_seconds(kind: str, inline: Measurement, n_at_once: float) -> float:
    """Return the shortest time from batch to batch that workers of a kind could reach.

    Workers make batches while the consumer uses another one. So the time is that of the slower
    side: of the consumer, or of the workers if all of them make batches at once.

    Args:
        kind: the kind.
        inline: the measurement of inline, where the consumer waits while a batch is made.
        n_at_once: the number of workers that make batches at once.
    """
    making_seconds = inline.waiting_seconds / n_at_once
    return max(inline.step_seconds, making_seconds) + _HAND_OVER_SECONDS[kind]
