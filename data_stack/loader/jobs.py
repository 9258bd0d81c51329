"""Makes batches from jobs: the contract of workers, of which one kind works in the consumer's thread."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to, copy_value, detach
from data_stack.dataset.iterator.epochs import at_epoch, has_random_layers, list_draws
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import derive_generator, derive_seed
from data_stack.exception import LoadingError
from data_stack.loader.collation import Collation
from data_stack.util.functions import has_parameter
from data_stack.util.interrupts import is_from_signal_handler, suppress_own

# Small batches are made in one request: of plain columns of Parquet, each column stays in the processor's cache meanwhile.
_MIN_TOGETHER, _MAX_TOGETHER = 8, 32
_MAX_BYTES_TOGETHER = 4 << 20
_MAX_SECONDS_TOGETHER = 0.016


class Job(NamedTuple):  # a frozen dataclass takes 1 us to make
    """One batch to make.

    Attributes:
        epoch: whose stack the samples are of.
        step: number of the batch in the epoch, counted from where the iteration entered the epoch.
        position: of its first sample in the epoch's order.
        indices: of its samples, shape ``(n,)``, not empty.
        seed: of the draws of the transform.
        after: the epoch and position of the next sample, of all ranks together.
        ahead: one sample of each block that is needed soon, shape ``(n,)``, for the source to prefetch; None for no change.
    """

    epoch: int
    step: int
    position: int
    indices: IndexArrayOfInts
    seed: int
    after: tuple[int, int]
    ahead: IndexArrayOfInts | None = None

    @property
    def samples(self) -> str:
        """The indices of its samples, or the first of them, for a message."""
        return ", ".join(map(str, self.indices[:8].tolist())) + (
            ", …" if len(self.indices) > 8 else ""
        )

    def __str__(self) -> str:
        return f"step {self.step} of epoch {self.epoch} (samples {self.samples})"


@dataclass(slots=True)
class MadeBatch:
    """A batch with its figures.

    Attributes:
        batch: the samples, collated and transformed.
        n_bytes: of its arrays.
        read_seconds: to read the samples.
        collate_seconds: to collate them.
        transform_seconds: of the transform.
    """

    batch: Any
    n_bytes: int = 0
    read_seconds: float = 0.0
    collate_seconds: float = 0.0
    transform_seconds: float = 0.0


class EpochStacks:
    """A stack of iterators, whose random layers are redrawn for each epoch. Threads may share it.

    Args:
        iterator: the stack in epoch 0.
        redraw: whether to redraw its random layers, if any, for each epoch.

    Attributes:
        iterator: the stack in epoch 0.
        differ: whether the stacks of two epochs differ.
    """

    def __init__(self, iterator: DatasetIteratorIF, redraw: bool) -> None:
        self.iterator, self.differ = iterator, redraw and has_random_layers(iterator)
        self._draw = functools.lru_cache(2)(
            functools.partial(at_epoch, iterator)
        )  # at an epoch's end batches of two are made

    def at(self, epoch: int) -> DatasetIteratorIF:
        """The stack of an epoch.

        Raises:
            ConfigError: it cannot be redrawn, see :func:`data_stack.dataset.iterator.epochs.at_epoch`.
        """
        return self._draw(epoch) if self.differ else self.iterator

    def __getstate__(self) -> dict[str, Any]:
        # layers that hold epoch 0 in memory pickle without the sources of other epochs
        held = list_draws(self.iterator) if self.differ else []
        return {
            "iterator": self.iterator,
            "differ": self.differ,
            "sources": [(each, each.underlying_iterators) for each in held],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for layer, source in state["sources"]:
            layer.attach_source(source)
        self.__init__(state["iterator"], state["differ"])  # type: ignore[misc]


class BatchMaker:
    """Makes the batches of jobs, which are the same in every thread and process. It pickles if its arguments do.

    Args:
        stacks: the samples.
        collate: None for the columns that ``read_batch`` returns; a :class:`~data_stack.loader.collation.Collation`; or a
            function of a list of samples.
        transform: None, or a function of the collated batch. If it has a parameter ``rng``, it gets a ``numpy.random.Generator``
            that depends on seed, epoch and the batch's first position.

    Attributes:
        is_in_worker_process: whether it works for another process, where no program sets alarms.
    """

    def __init__(
        self,
        stacks: EpochStacks,
        *,
        collate: Collation | Callable[[list[Any]], Any] | None = None,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        self.stacks = stacks
        self._collate, self._transform = collate, transform
        self._reads_columns = collate is None or isinstance(collate, Collation)
        self.is_in_worker_process = False
        self._transform_draws = transform is not None and has_parameter(transform, "rng")

    def n_together(self, made: MadeBatch) -> int:
        """The number of batches like ``made`` to make in one request: several if they are small rows of numbers."""
        seconds = made.read_seconds + made.collate_seconds + made.transform_seconds
        if not (self._reads_columns and access_to(self.stacks.iterator).fixed_columns):
            return 1
        n_small = min(
            _MAX_BYTES_TOGETHER // max(made.n_bytes, 1),
            int(_MAX_SECONDS_TOGETHER / max(seconds, 1e-9)),
            _MAX_TOGETHER,
        )
        return max(1, n_small)

    @property
    def only_gathers(self) -> bool:
        """Whether batches are only copied rows of arrays, which are not requested from a remote store."""
        if self._collate is not None or self._transform is not None:
            return False
        samples = access_to(self.stacks.iterator)
        return samples.fixed_columns and not samples.prefers_blocks

    @property
    def releases_gil(self) -> bool:
        """Whether batches are only read, from a source that releases the GIL."""
        return (
            self._collate is None
            and self._transform is None
            and access_to(self.stacks.iterator).releases_gil
        )

    def make(self, job: Job) -> MadeBatch:
        """The batch of a job.

        Raises:
            LoadingError: a sample could not be read, or the batch could not be collated or transformed.
        """
        return next(self.make_several([job]))

    def make_several(self, jobs: Sequence[Job]) -> Iterator[MadeBatch]:
        """The batches of jobs of one epoch, one by one; several, see :meth:`n_together`, are read in one request.

        Raises (while iterating):
            LoadingError: as :meth:`make`, after the batches of the jobs before.
        """
        started = time.perf_counter()
        is_one = len(jobs) == 1
        indices = jobs[0].indices if is_one else np.concatenate([job.indices for job in jobs])
        try:
            samples = access_to(self.stacks.at(jobs[0].epoch))
            read = (
                detach(samples.batch(indices))
                if self._reads_columns
                else list(map(copy_value, samples.samples(indices)))
            )
        except Exception as error:
            self._pass_alarm(error)
            if is_one:
                raise self._blame(jobs[0], error) from error
            yield from map(self.make, jobs)  # reading each job by itself shows which one fails
            return
        seconds, stop = (time.perf_counter() - started) / len(jobs), 0
        for ahead in [job.ahead for job in jobs if job.ahead is not None and len(job.ahead)][-1:]:
            with suppress_own(Exception):  # reading the samples raises the errors
                samples.prefetch(ahead)  # the blocks of earlier jobs have been read
        for job in jobs:
            start, stop = stop, stop + len(job.indices)
            yield self._finish(job, read if is_one else _rows_of(read, start, stop), seconds)

    def _finish(self, job: Job, batch: Any, read_seconds: float) -> MadeBatch:
        problem, started = "a batch could not be collated", time.perf_counter()
        try:
            if self._collate is not None:
                batch = (
                    self._collate.collate(batch)
                    if isinstance(self._collate, Collation)
                    else self._collate(batch)
                )
            problem, collated = "the transform of a batch failed", time.perf_counter()
            if self._transform is not None:
                options = {}
                if self._transform_draws:
                    options["rng"] = derive_generator(
                        derive_seed("transform", job.seed, job.epoch), job.position
                    )
                batch = self._transform(batch, **options)
        except Exception as error:
            self._pass_alarm(error)
            raise _failure(problem, job, error) from error
        ended = time.perf_counter()
        return MadeBatch(
            batch, _n_bytes_of(batch), read_seconds, collated - started, ended - collated
        )

    def _pass_alarm(self, error: Exception) -> None:
        """Raise an error that a signal handler of the program raised while a batch was made.

        In a worker process only functions of the user set alarms, and samples are to blame.
        """
        if not self.is_in_worker_process and is_from_signal_handler(error):
            raise error

    def _blame(self, job: Job, error: Exception) -> LoadingError:
        """The error for the first sample of a job that cannot be read by itself."""
        try:
            samples = access_to(self.stacks.at(job.epoch))
        except Exception as its_error:  # noqa: BLE001  # the same error as before
            self._pass_alarm(its_error)
            return LoadingError(
                f"the stack of epoch {job.epoch} could not be made",
                error,
                epoch=job.epoch,
                step=job.step,
            )
        for index in job.indices.tolist():
            try:
                samples.sample(index)
            except Exception as its_error:  # noqa: BLE001  # any error of a source
                self._pass_alarm(its_error)
                place = None
                with suppress_own(Exception):
                    place = samples.locate(index)
                sample = f"sample {index}" if place is None else f"sample {index} ({place})"
                return LoadingError(
                    f"{sample} could not be read",
                    its_error,
                    epoch=job.epoch,
                    step=job.step,
                    index=index,
                )
        return _failure("a batch could not be read", job, error)


def _rows_of(batch: Any, start: int, stop: int) -> Any:
    if isinstance(batch, dict):  # n-grams are dicts of dicts
        return {key: _rows_of(column, start, stop) for key, column in batch.items()}
    return (
        tuple([column[start:stop] for column in batch])
        if isinstance(batch, tuple)
        else batch[start:stop]
    )


def _n_bytes_of(batch: Any) -> int:
    """Bytes of the arrays and tensors in a batch; a column of objects counts its references."""
    if isinstance(batch, dict):
        return sum(map(_n_bytes_of, batch.values()))
    if isinstance(batch, (tuple, list)):
        return sum(map(_n_bytes_of, batch))
    n_bytes = getattr(batch, "nbytes", 0)
    return n_bytes if isinstance(n_bytes, int) else 0


def _failure(problem: str, job: Job, error: Exception) -> LoadingError:
    return LoadingError(
        f"{problem} (of the samples {job.samples})", error, epoch=job.epoch, step=job.step
    )


class Workers(ABC):
    """Makes the batches of jobs, and delivers them in the order of the jobs; the kind of workers does not change the batches.

    One thread uses it. Nothing runs before the first job.
    """

    kind: str
    """"inline", "threads" or "processes"."""

    choice: str = ""
    """Why these workers were chosen; "" if the caller chose them."""

    n_workers: int
    """Threads or processes; 0 if the consumer's thread does the jobs."""

    capacity: int
    """The number of jobs that should be in flight; it may change at any time."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Queue a job; never waits for a batch."""
        raise NotImplementedError

    @abstractmethod
    def next(self) -> MadeBatch:
        """Wait for the batch of the oldest job that has not been delivered.

        Raises:
            LoadingError: the batch could not be made. All other jobs are dropped, as by :meth:`cancel`.
            WorkerError: a worker died or is stuck. All jobs are dropped, and worker processes are ended.
            BaseException: an interruption of the waiting, such as KeyboardInterrupt; call :meth:`cancel` or :meth:`close` then.
        """
        raise NotImplementedError

    @abstractmethod
    def cancel(self) -> None:
        """Drop all jobs; the workers stay ready for others."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Drop all jobs and release every thread, process, descriptor and piece of shared memory.

        Closing twice has no effect; the next job starts the workers again. Delivered batches stay valid. It returns within
        seconds, even if a worker hangs.
        """
        raise NotImplementedError

    def expect(self, n_jobs: int) -> None:  # noqa: B027  # most kinds ignore it
        """Announce the approximate number of jobs before the first job of an iteration."""

    is_ready: bool = True
    """Whether the workers have started, so that a job would begin at once."""

    def start(self) -> None:
        """Start the workers, so that the first job finds them ready; optional."""
        return


class InlineWorkers(Workers):
    """Makes a batch when it is requested, without threads or processes."""

    kind = "inline"
    n_workers = 0

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker
        self._jobs: deque[Job] = deque()
        self._making: Iterator[MadeBatch] = iter(())
        self.capacity = 1  # the first batch does not wait for others

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def next(self) -> MadeBatch:
        try:
            if (made := next(self._making, None)) is None:
                jobs = [self._jobs.popleft()]
                while self._jobs and self._jobs[0].epoch == jobs[0].epoch:
                    jobs.append(self._jobs.popleft())
                self._making = self._maker.make_several(jobs)
                made = next(self._making)
                n_together = self._maker.n_together(made)
                # a few larger ones at once leave the processor's cache
                self.capacity = n_together if n_together >= _MIN_TOGETHER else 1
        except BaseException:
            self.cancel()
            raise
        return made

    def cancel(self) -> None:
        self._jobs.clear()
        self._making = iter(())

    def close(self) -> None:
        self.cancel()
