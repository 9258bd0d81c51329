"""The iterations of a loader: its place, workers and statistics."""

from __future__ import annotations

import contextlib
import copy
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from data_stack.exception import TooManyDamagedSamplesError
from data_stack.loader.batch_maker import MadeBatch
from data_stack.loader.conversion import Conversion, Pairs
from data_stack.loader.cursors import Cursors
from data_stack.loader.damage_record import DamageRecord
from data_stack.loader.damaged_sample import DamagedSample
from data_stack.loader.delivery import Delivery, DeliveryObserver
from data_stack.loader.job import Job
from data_stack.loader.plan import Plan
from data_stack.loader.progress import Progress
from data_stack.loader.ranks import LoaderShard
from data_stack.loader.schedule import Schedule
from data_stack.loader.statistics import LoaderStatistics, StatisticsRecorder
from data_stack.loader.workers.base import Workers
from data_stack.util.forks import call_in_forks


class _Iteration:
    """One iteration, which is the current one until another begins.

    Args:
        recorder: records its figures.

    Attributes:
        recorder: as passed.
        has_begun: whether its first batch has been requested.
        is_of_parent: whether this process is a fork of the one in which it began. Only that one can
            continue it.
    """

    def __init__(self, recorder: StatisticsRecorder) -> None:
        self.recorder = recorder
        self.has_begun = False
        self.is_of_parent = False
        call_in_forks(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        self.is_of_parent = True


#: What accompanies a batch through its conversion, which passes it on: the job of the batch, what
#: it took to make it, without the batch itself, and the number of jobs that are in flight.
_Mark = tuple[Job, MadeBatch, int]


class Session:
    """The place of a loader, its workers and its current iteration.

    A loader shares it with all loaders that its method ``convert`` makes. It pickles without
    workers and iteration.

    Args:
        plan: the plan of epoch 0.
        seed: the seed of the order.
        shard: the shard of the loader.
        make_workers: returns workers that do not run yet.
        stop_prefetching: cancels what an iteration that has ended has asked the source to prefetch.
        damage: the damaged samples that the training has met.
        observers: are told of each delivered batch.
    """

    #: The plan of epoch 0; rank and world follow :attr:`shard`.
    plan: Plan
    #: The seed of the order.
    seed: int
    #: The shard of the loader.
    shard: LoaderShard
    #: The place of the next batch.
    progress: Progress
    #: Where the mix of the stack continues another one; None if it does not.
    cursors: Cursors | None
    #: Whether the next iteration compares its start with those of the other ranks.
    compares_ranks: bool
    #: The fingerprint of the stack of iterators, once computed.
    fingerprint: str | None
    #: The workers of the current or last iteration.
    workers: Workers
    #: The damaged samples that the training has met.
    damage: DamageRecord
    #: Samples per second of the training step alone, once measured; 0 before.
    speed_without_loading: float
    #: Returns workers that do not run yet.
    _make_workers: Callable[[], Workers]
    #: Cancels what an iteration that has ended has asked the source to prefetch.
    _stop_prefetching: Callable[[], None]
    #: Are told of each delivered batch.
    _observers: Sequence[DeliveryObserver]
    #: Whether the workers stay when an iteration ends.
    _keeps_workers: bool
    #: The current iteration; None if there is none.
    _iteration: _Iteration | None
    #: The figures of the last iteration.
    _last_statistics: LoaderStatistics

    def __init__(
        self,
        plan: Plan,
        seed: int,
        shard: LoaderShard,
        make_workers: Callable[[], Workers],
        stop_prefetching: Callable[[], None],
        damage: DamageRecord,
        observers: Sequence[DeliveryObserver] = (),
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.shard = shard
        self.progress = Progress()
        self.cursors = None
        self.compares_ranks = True
        self.fingerprint = None
        self.workers = make_workers()  # wrong arguments fail here
        self.damage = damage
        self._make_workers = make_workers
        self._stop_prefetching = stop_prefetching
        self._observers = observers
        self.speed_without_loading = 0.0
        self._keeps_workers = False
        self._iteration = None
        self._last_statistics = LoaderStatistics()

    # ------------------------------------------------------------------ the place

    def tell(self) -> tuple[int, int, int]:
        """Return the epoch and position of the next batch, and the first epoch of its iteration."""
        progress = self.progress
        if self._iteration is not None:
            return progress.epoch, progress.position, progress.first_epoch
        return progress.start_of_next()

    def go_to(self, epoch: int, position: int, first_epoch: int) -> None:
        """Let the next iteration begin at a place; this ends the current one."""
        self.end_iteration()
        self.progress.go_to(epoch, position, first_epoch)

    def redirect_iteration(self, epoch: int) -> bool:
        """Let the current iteration begin at an epoch, if its first batch was not requested yet.

        Returns:
            Whether there is such an iteration; otherwise nothing has changed.
        """
        if self._iteration is None or self._iteration.has_begun:
            return False
        self.progress.go_to(epoch, 0, epoch)
        return True

    def update_shard(self) -> None:
        """Use the shard of the process group or launcher, unless the shard is final."""
        if self._iteration is not None:
            return
        has_become_final = self.shard.update()
        if has_become_final:
            self.compares_ranks = True  # there is somebody to compare with now
        rank, world = self.shard.shard
        if (rank, world) != (self.plan.rank, self.plan.world):
            self.plan = replace(self.plan, rank=rank, world=world)

    def continue_from(
        self, other: Session, cursors: Cursors | None, damaged_samples: Iterable[DamagedSample]
    ) -> None:
        """Begin where the session of a loader with another mix is.

        Args:
            other: the other session.
            cursors: how far the sources of the mixes were read in the present epoch.
            damaged_samples: the damaged samples that are known, with their positions in this mix.
        """
        self.seed = other.seed
        self.shard = copy.copy(other.shard)
        self.cursors = cursors
        self.damage.replace_samples(damaged_samples)
        self._observers = other._observers  # one trace shows both
        self.go_to(other.progress.epoch, 0, other.progress.first_epoch)

    # ------------------------------------------------------------------ the iteration

    def iterate(
        self, make_schedule: Callable[[], Schedule], conversion: Conversion | None
    ) -> Iterator[Any]:
        """Begin an iteration here. When it yields a batch, the place is behind the batch.

        Args:
            make_schedule: returns the batches from here on; called when the first one is requested.
            conversion: converts the batches; None leaves them as the workers made them.
        """
        self._iteration = _Iteration(StatisticsRecorder(self.workers))
        return self._deliver(self._iteration, make_schedule, conversion)

    def end_iteration(self) -> None:
        """End the current iteration, if any, and close the workers unless they are kept."""
        if self._iteration is None:
            return
        self._last_statistics = self._iteration.recorder.read()
        # The parent process reports what was noted of its own iteration.
        if not self._iteration.is_of_parent:
            for observer in self._observers:
                observer.end()
        self._iteration = None
        if self._keeps_workers:
            self.workers.cancel()
        else:
            # The next iteration starts them again, and "auto" keeps its measurements.
            self.workers.close()
        self._stop_prefetching()

    def keep_workers(self) -> None:
        """Start the workers, and keep them until :meth:`close`."""
        self._keeps_workers = True
        self.workers.start()

    def close(self) -> None:
        """End the current iteration and all workers."""
        self._keeps_workers = False
        self.end_iteration()
        self.workers.close()

    def statistics(self) -> LoaderStatistics:
        """Return the figures of the current iteration until now, or of the last one."""
        statistics = replace(self._last_statistics)
        if self._iteration is not None:
            statistics = self._iteration.recorder.read()
        statistics.damaged = self.damage.count_by_error()
        statistics.speed_without_loading = self.speed_without_loading
        return statistics

    def note_model_speed(self, samples_per_second: float) -> None:
        """Keep the speed of the training step alone for the figures."""
        self.speed_without_loading = samples_per_second

    def _deliver(
        self,
        iteration: _Iteration,
        make_schedule: Callable[[], Schedule],
        conversion: Conversion | None,
    ) -> Iterator[Any]:
        """Yield the batches of an iteration to the consumer: made, converted and counted.

        This is the generator that the consumer holds. It is run when a batch is requested.
        """
        self._check_is_current(iteration)
        iteration.has_begun = True
        recorder = iteration.recorder
        schedule = make_schedule()
        end_epoch = schedule.end_epoch
        recorder.begin()
        told_observers = []
        for observer in self._observers:
            if observer.begin(self.shard.shard):
                told_observers.append(observer)
        pairs: Pairs = self._make_batches(schedule)
        if conversion is not None:
            pairs = conversion.convert_all(recorder.time_making(pairs))
        try:
            while True:
                asked_at = time.perf_counter()
                pair = next(pairs, None)
                delivered_at = time.perf_counter()
                waiting_seconds = delivered_at - asked_at
                if pair is None:
                    # A rank with fewer steps than others continues with the same epoch as they.
                    self.progress.finish(end_epoch)
                    break
                batch, (job, made, n_in_flight) = pair
                del pair
                recorder.add_delivered(made, len(job.indices), waiting_seconds)
                if told_observers:
                    making_seconds = recorder.split_wait(waiting_seconds)
                    delivery = Delivery(
                        job, made, n_in_flight, asked_at, making_seconds, delivered_at
                    )
                    for observer in told_observers:
                        observer.add(delivery)

                # The place advances last, so that an interruption loses no batch.
                epoch, position = job.place_after
                self.progress.receive(epoch, position, end_epoch)
                yield batch
                del batch  # free the batch before the next one is made
                self._check_is_current(iteration)
        except KeyboardInterrupt:
            with contextlib.suppress(KeyboardInterrupt):  # pressed again: do not wait
                self.end_iteration()
            raise
        finally:
            if self._iteration is iteration:
                self.end_iteration()

    def _make_batches(self, schedule: Schedule) -> Iterator[tuple[Any, _Mark]]:
        """Yield the batches that the workers make, each with its mark, in the scheduled order."""
        workers = self.workers
        jobs = schedule.jobs()
        submitted = deque[Job]()  # the jobs whose batches were not received, the oldest first
        workers.expect(schedule.n_jobs)
        while True:
            # Keep as many jobs in flight as the workers have capacity for.
            while len(submitted) < workers.capacity:
                next_job = next(jobs, None)
                if next_job is None:
                    break
                workers.submit(self.damage.inform(next_job))
                submitted.append(next_job)
            if not submitted:
                return

            made = self._receive(submitted[0])
            job = submitted.popleft()
            pair = (made.batch, (job, made, len(submitted)))
            made.batch = None
            yield pair
            del pair  # free the batch before the next one is made

    def _receive(self, job: Job) -> MadeBatch:
        """Wait for the batch of a job, and note the damaged samples that it has met.

        Raises:
            LoadingError: as :meth:`Workers.next`.
            TooManyDamagedSamplesError: more samples are damaged than the loader allows.
        """
        try:
            made = self.workers.next()
        except TooManyDamagedSamplesError as error:
            # This raises the error with all samples.
            self.damage.add(error.samples, job, self.plan.rank)
            raise
        if made.damage is not None:
            self.damage.add(made.damage.samples, job, self.plan.rank)
        return made

    def _check_is_current(self, iteration: _Iteration) -> None:
        """Check that an iteration may continue.

        Raises:
            RuntimeError: it has ended, or this is a fork of its process.
        """
        if self._iteration is not iteration or iteration.is_of_parent:
            raise RuntimeError(
                "this iteration of a loader has ended: another one began, or the loader was closed "
                "or loaded a state, or this is a fork of its process; call iter(loader) again, and "
                "make a second loader for two iterations at a time"
            )

    # ------------------------------------------------------------------ copies

    def __getstate__(self) -> dict[str, Any]:
        # A copy iterates independently, with workers of its own.
        return {
            **self.__dict__,
            "progress": copy.copy(self.progress),
            "shard": copy.copy(self.shard),
            "damage": copy.copy(self.damage),
            "workers": None,
            "_iteration": None,
            "_keeps_workers": False,
            "_last_statistics": LoaderStatistics(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.workers = self._make_workers()
