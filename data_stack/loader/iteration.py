"""One iteration of a loader: jobs go to the workers, and the batches that come back to the consumer."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from data_stack.loader.epoch_position import EpochPosition
from data_stack.loader.schedule import Mark, Schedule
from data_stack.loader.statistics import Counters
from data_stack.loader.workers.workers import Workers

__all__ = ["Iteration", "Pairs"]

Pairs = Iterator[tuple[Any, Any]]
"""Batches, each with what the loader knows of it."""


class Iteration:
    """One iteration of a loader.

    Args:
        schedule: what is to be made.
        place: that of the loader; it is moved behind each batch that the consumer receives.
        workers: gives those that make the batches; called in the thread and the moment in which the first batch is asked for.
        counters: count what it does.
        progress: gives what draws the progress, or None; called when the first batch is asked for.
        when_over: called once, at its end: what workers have not handed out is wanted by nobody.
    """

    def __init__(
        self,
        schedule: Schedule,
        place: EpochPosition,
        *,
        workers: Callable[[], Workers],
        counters: Counters,
        progress: Callable[[], Any],
        when_over: Callable[[Iteration], None],
    ) -> None:
        self._schedule, self._place = schedule, place
        self._workers, self._counters = workers, counters
        self._progress, self._when_over = progress, when_over
        self._pid = os.getpid()
        self._is_over = False
        self.first_epoch = place.first_epoch

    def batches(self, convert: Callable[[Pairs], Pairs] | None) -> Iterator[Any]:
        """The batches, made something else of if ``convert`` is given; when one is given, the loader's place is behind it."""
        counters, clock = self._counters, time.perf_counter
        self._check()
        counters.begin()
        pairs: Iterator[tuple[Any, Mark]] = self._made()
        if convert is not None:
            pairs = convert(pairs)
        bar = self._progress()
        end_epoch = self._schedule.end_epoch
        try:
            while True:
                asked = clock()
                pair = next(pairs, None)
                counters.waiting_seconds += clock() - asked
                if pair is None:
                    # also for a rank that has had a step less than others, or none: all begin the same epoch next
                    self._place.receive(end_epoch, 0, end_epoch)
                    break
                batch, mark = pair
                del pair
                counters.received(mark.n_samples, mark.n_bytes)
                if bar is not None:
                    bar.update()
                self._place.receive(mark.epoch, mark.position, end_epoch)  # last: an interruption before it loses no batch
                yield batch
                del batch  # what the consumer lets go of is free before the next one is asked for
                self._check()
        finally:
            if bar is not None:
                bar.close()
            self.end()

    def end(self) -> None:
        """Let go of the workers; calling it again does nothing, nor does calling it in a fork."""
        if self._is_over or self._pid != os.getpid():
            return
        self._is_over = True
        self._when_over(self)

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("this iteration of a loader was begun in another process; call iter(loader) in this one")
        if self._is_over:
            raise RuntimeError(
                "this iteration of a loader has ended: another one was begun since, or the loader was closed or given a state; "
                "call iter(loader), and make a second loader for a second iteration at the same time"
            )

    def _made(self) -> Iterator[tuple[Any, Mark]]:
        """The batches as the workers make them."""
        counters, clock = self._counters, time.perf_counter
        asked = clock()
        jobs = self._schedule.jobs()
        marks: deque[Mark] = deque()
        workers = self._workers()
        workers.expect(self._schedule.n_jobs)
        while True:
            while len(marks) < workers.capacity and (scheduled := next(jobs, None)) is not None:
                job, mark = scheduled
                workers.submit(job)
                marks.append(mark)
            if not marks:
                return
            counters.asked(workers.n_ready)
            made = workers.next()
            counters.made(made)
            mark = marks.popleft()
            mark.n_bytes = made.n_bytes
            counters.making_seconds += clock() - asked
            batch = made.batch
            del made
            yield batch, mark
            del batch
            asked = clock()
