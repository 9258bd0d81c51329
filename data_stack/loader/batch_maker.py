"""Makes the batch of a job: reads its samples, collates and transforms them."""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from data_stack.dataset.iterator import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.detached_batches import detach
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import derive_generator, derive_seed
from data_stack.exception import ConfigError, LoadingError
from data_stack.io.read_clock import read_clock
from data_stack.loader.collation.collation import Collation
from data_stack.loader.empty_batch import without_rows
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.error_policy import ErrorPolicy
from data_stack.loader.job import Job
from data_stack.loader.loading_errors import error_of_batch, error_of_sample
from data_stack.loader.readable_samples import BatchDamage, ReadableSamples
from data_stack.loader.sample_keys import SampleKeys
from data_stack.util.functions import has_parameter
from data_stack.util.interrupts import is_from_signal_handler, suppress_own
from data_stack.values.copies import copy_value

#: Small batches are read in one request, which reads several columns of Parquet, one after the
#: other: the processor's cache then serves one column at a time. More batches are no faster.
_MAX_BATCHES_OF_REQUEST = 32

#: The maximum size of the batches of one request.
_MAX_BYTES_OF_REQUEST = 2 << 20

#: How long the batches of one request may take, as the consumer waits for all of them.
_MAX_SECONDS_OF_REQUEST = 0.016


class Reading(NamedTuple):  # a frozen dataclass would take a microsecond to make
    """How the samples of some batches were read: one request to the stack.

    Attributes:
        seconds: how long the request took.
        fetch_seconds: how long it waited for the bytes of resources; the remaining time parsed,
            decompressed, decoded and gathered. Bytes that other threads of a source read, and those
            of memory maps, do not count.
        n_batches: the number of batches that the request was for.
        began_at: when the request began, by ``time.perf_counter()``, the clock of which all
            processes of a machine share.
        process_id: the process that read.
        thread_id: the thread that read, as the operating system numbers it.
    """

    seconds: float = 0.0
    fetch_seconds: float = 0.0
    n_batches: int = 1
    began_at: float = 0.0
    process_id: int = 0
    thread_id: int = 0


#: The reading of a batch that was not measured.
_NO_READING = Reading()


class _Stopwatch:
    """Measures the reading of some batches, which begins now."""

    #: When reading began.
    _began_at: float
    #: What the clock of this thread showed then.
    _fetch_seconds_before: float

    def __init__(self) -> None:
        self._began_at = time.perf_counter()
        self._fetch_seconds_before = read_clock.seconds

    def stop(self, n_batches: int) -> Reading:
        """Return how the samples of a number of batches were read."""
        # Arguments by name would take a third of a microsecond more.
        return Reading(
            time.perf_counter() - self._began_at,
            read_clock.seconds - self._fetch_seconds_before,
            n_batches,
            self._began_at,
            os.getpid(),
            threading.get_native_id(),
        )


@dataclass(slots=True)
class MadeBatch:
    """A batch, and what it took to make it.

    Attributes:
        batch: the samples, collated and transformed.
        n_bytes: the size of its arrays.
        reading: how its samples were read.
        collate_seconds: how long collating them took.
        transform_seconds: how long the transform took.
        damage: how the batch differs from that of undamaged samples; None if it does not.
        collate_began_at: when collating began, by ``time.perf_counter()``; the transform follows.
    """

    batch: Any
    n_bytes: int = 0
    reading: Reading = _NO_READING
    collate_seconds: float = 0.0
    transform_seconds: float = 0.0
    damage: BatchDamage | None = None
    collate_began_at: float = 0.0


class BatchMaker:
    """Makes the batches of jobs, which are the same in every thread and process.

    It pickles if its arguments do.

    Args:
        stacks: the samples.
        collate: None for the columns that ``read_batch`` returns; a
            :class:`~data_stack.loader.collation.Collation`; or a function of a list of samples.
        transform: None, or a function of the collated batch. If it has a parameter ``rng``, it
            gets a ``numpy.random.Generator`` that depends on the seed, the epoch and the position
            of the batch's first sample.
        policy: what to do with samples that cannot be read.
    """

    #: The samples.
    stacks: EpochStacks
    #: Combines the samples of a batch; None for columns.
    collate: Collation | Callable[[list[Any]], Any] | None
    #: Changes a collated batch; None for no change.
    transform: Callable[..., Any] | None
    #: What to do with samples that cannot be read.
    policy: ErrorPolicy
    #: Whether it works in a worker process, where only functions of the user set alarms.
    is_in_worker_process: bool
    #: Whether samples are read as columns; otherwise one by one, for a function.
    _reads_columns: bool
    #: Whether batches stay as they were read: nothing collates or transforms them.
    _only_reads: bool
    #: Whether the transform has a parameter ``rng``.
    _transform_draws: bool
    #: Identifies damaged samples.
    _keys: SampleKeys

    def __init__(
        self,
        stacks: EpochStacks,
        *,
        collate: Collation | Callable[[list[Any]], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        policy: ErrorPolicy | None = None,
    ) -> None:
        self.stacks = stacks
        self.collate = collate
        self.transform = transform
        self.policy = policy or ErrorPolicy()
        self.is_in_worker_process = False
        self._reads_columns = collate is None or isinstance(collate, Collation)
        self._only_reads = collate is None and transform is None
        self._transform_draws = transform is not None and has_parameter(transform, "rng")
        self._keys = SampleKeys(stacks)

    # ------------------------------------------------------------------ what workers ask

    @functools.cached_property
    def _reads_fixed_columns(self) -> bool:
        """Whether samples are read as columns that have one dtype and shape in every batch."""
        return self._reads_columns and access_to(self.stacks.iterator).fixed_columns

    def n_batches_of_request(self, made: MadeBatch, max_bytes: int = _MAX_BYTES_OF_REQUEST) -> int:
        """Return how many batches like ``made`` to read in one request.

        It is more than 1 if batches are small rows of numbers.

        Args:
            made: a batch.
            max_bytes: the maximum size of all batches of the request.
        """
        n_fitting = max_bytes // max(made.n_bytes, 1)
        if n_fitting <= 1 or not self._reads_fixed_columns:
            return 1
        read_seconds = made.reading.seconds / made.reading.n_batches
        seconds = read_seconds + made.collate_seconds + made.transform_seconds
        n_in_time = int(_MAX_SECONDS_OF_REQUEST / max(seconds, 1e-9))
        return max(1, min(n_fitting, n_in_time, _MAX_BATCHES_OF_REQUEST))

    @property
    def only_gathers(self) -> bool:
        """Whether batches are only copied rows of arrays on this machine."""
        if not self._only_reads:
            return False
        samples = access_to(self.stacks.iterator)
        return samples.fixed_columns and not samples.prefers_blocks

    @property
    def releases_gil(self) -> bool:
        """Whether batches are only read, from a source that releases the GIL."""
        if not self._only_reads:
            return False
        return access_to(self.stacks.iterator).releases_gil

    # ------------------------------------------------------------------ making batches

    def make(self, job: Job) -> MadeBatch:
        """Make the batch of a job.

        Raises:
            LoadingError: a sample could not be read, or the batch could not be collated or
                transformed.
        """
        # Samples that are known to be damaged are not read again.
        if self._have_known_damage([job], job.indices):
            return self._make_without_damage(job)

        stopwatch = _Stopwatch()
        try:
            samples = self.stacks.access_of(job)
            batch = self._read(samples, job.indices)
        except Exception as error:  # noqa: BLE001  # any error of a source
            self._raise_if_of_signal_handler(error)
            return self._make_after_error(job, error)
        reading = stopwatch.stop(1)

        # The blocks of this job have been read, so the source may fetch the next ones.
        _prefetch_blocks(samples, [job])
        return self._finish(job, batch, reading)

    def make_several(self, jobs: Sequence[Job]) -> Iterator[MadeBatch]:
        """Make the batches of jobs of one epoch, one by one; all are read in one request.

        Raises (while iterating):
            LoadingError: as :meth:`make`, after the batches of the jobs before.
        """
        if len(jobs) == 1:
            yield self.make(jobs[0])
            return
        indices = np.concatenate([job.indices for job in jobs])
        if self._have_known_damage(jobs, indices):
            yield from self._make_several_without_damage(jobs)
            return

        # Read the samples of all jobs.
        stopwatch = _Stopwatch()
        try:
            samples = self.stacks.access_of(jobs[0])
            read_batch = self._read(samples, indices)
        except Exception as error:  # noqa: BLE001  # any error of a source
            self._raise_if_of_signal_handler(error)
            # Reading each job by itself shows which one fails.
            for job in jobs:
                yield self.make(job)
            return
        reading = stopwatch.stop(len(jobs))

        # The blocks of these jobs have been read, so the source may fetch the next ones.
        _prefetch_blocks(samples, jobs)

        # Collate and transform each job by itself. No variable here refers to a batch that the
        # consumer has.
        row_bytes = _n_bytes_of(read_batch) // len(indices)
        start = 0
        for job in jobs:
            n_rows = len(job.indices)
            rows = slice(start, start + n_rows)
            start += n_rows
            if self._only_reads:
                yield MadeBatch(_take_rows(read_batch, rows), row_bytes * n_rows, reading)
            else:
                yield self._finish(job, _take_rows(read_batch, rows), reading)

    def choose_samples(self, job: Job) -> IndexArrayOfInts:
        """Return the samples of a job's batch, without those that the job names as damaged.

        None is read, so samples that no job has met are taken for undamaged.

        Raises:
            LoadingError: all substitutes of a sample are damaged.
        """
        if job.damaged is None:
            return job.indices
        return self._readable_samples(job).choose()

    def stop_prefetching(self) -> None:
        """Let the source cancel what it was told to prefetch and has not begun to fetch."""
        with suppress_own(Exception):
            no_positions = np.empty(0, dtype=np.intp)
            access_to(self.stacks.iterator).prefetch(no_positions)

    def _read(self, samples: SampleAccess, indices: IndexArrayOfInts) -> Any:
        """Read samples as columns, or as a list for a function; nothing else uses their memory."""
        if self._reads_columns:
            return detach(samples.batch(indices))
        return [copy_value(sample) for sample in samples.samples(indices)]

    def _finish(
        self, job: Job, batch: Any, reading: Reading, *, is_collated: bool = False
    ) -> MadeBatch:
        """Collate, unless it was done, and transform the samples of a job."""
        if self._only_reads:
            return MadeBatch(batch, _n_bytes_of(batch), reading)

        started_at = time.perf_counter()
        if self.collate is not None and not is_collated:
            batch = self._collate_batch(job, batch)
        collated_at = time.perf_counter()
        if self.transform is not None:
            batch = self._transform_batch(job, batch)
        transformed_at = time.perf_counter()
        return MadeBatch(
            batch,
            _n_bytes_of(batch),
            reading,
            collate_seconds=collated_at - started_at,
            transform_seconds=transformed_at - collated_at,
            collate_began_at=started_at,
        )

    def _collate_batch(self, job: Job, batch: Any) -> Any:
        try:
            if isinstance(self.collate, Collation):
                return self.collate.collate(batch)
            return self.collate(batch)  # type: ignore[misc]  # the caller has checked for None
        except Exception as error:
            self._raise_if_of_signal_handler(error)
            raise error_of_batch("a batch could not be collated", job, error) from error

    def _transform_batch(self, job: Job, batch: Any) -> Any:
        arguments = {}
        if self._transform_draws:
            key_parts: list[int | str] = ["transform", job.seed, job.epoch]
            # Positions began anew, at 0, when the mix was changed.
            if job.consumed is not None:
                key_parts.append(sum(number for _, number in job.consumed))
            arguments["rng"] = derive_generator(derive_seed(*key_parts), job.position)
        try:
            return self.transform(batch, **arguments)  # type: ignore[misc]  # likewise
        except Exception as error:
            self._raise_if_of_signal_handler(error)
            raise error_of_batch("the transform of a batch failed", job, error) from error

    # ------------------------------------------------------------------ damaged samples

    def _have_known_damage(self, jobs: Sequence[Job], indices: IndexArrayOfInts) -> bool:
        """Return whether the samples of jobs contain some that must not be read.

        Args:
            jobs: jobs of one epoch, the newest last.
            indices: their samples.
        """
        # A job names all damaged samples that earlier ones do.
        damaged = jobs[-1].damaged
        if damaged is None:
            return False
        try:
            samples = self.stacks.access_of(jobs[-1])
        except Exception:  # noqa: BLE001  # reading raises it again, as an error of the loader
            return False

        # np.isin() would take three times as long for as few samples.
        keys = self._keys.of(samples, indices)
        places = np.minimum(damaged.searchsorted(keys), len(damaged) - 1)
        return bool((damaged[places] == keys).any())

    def _make_several_without_damage(self, jobs: Sequence[Job]) -> Iterator[MadeBatch]:
        """Make the batches of jobs, of which some have known damage; the others in few requests."""

        def has_damage(job: Job) -> bool:
            return self._have_known_damage([job], job.indices)

        # An earlier job may have a sample whose damage was found after the job was scheduled, so
        # that only a later job names it.
        informed_jobs = [job._replace(damaged=jobs[-1].damaged) for job in jobs]
        for is_damaged, group in itertools.groupby(informed_jobs, has_damage):
            if not is_damaged:
                yield from self.make_several(list(group))
                continue
            for job in group:
                yield self._make_without_damage(job)

    def _make_without_damage(self, job: Job, error: Exception | None = None) -> MadeBatch:
        """Make the batch of a job without its damaged samples.

        Args:
            job: the job.
            error: why its samples could not be read together; None if this was not tried.

        Raises:
            LoadingError: as :meth:`make`; or no other sample can be read in place of one.
            TooManyDamagedSamplesError: more samples are damaged than the policy allows.
        """
        stopwatch = _Stopwatch()
        samples = self.stacks.access_of(job)
        readable = self._readable_samples(job)
        batch = readable.read_batch(error)
        reading = stopwatch.stop(1)
        _prefetch_blocks(samples, [job])

        # A collation may not know the columns of no samples, so it gets another sample.
        is_collated = readable.is_empty and isinstance(self.collate, Collation)
        if is_collated:
            batch = self._collate_nothing(job, readable)
        made = self._finish(job, batch, reading, is_collated=is_collated)
        made.damage = readable.damage
        return made

    def _readable_samples(self, job: Job) -> ReadableSamples:
        """Return what reads the samples of a job without those that are damaged."""
        samples = self.stacks.access_of(job)
        return ReadableSamples(
            job,
            samples,
            self.policy,
            self._keys,
            read=functools.partial(self._read, samples),
            check_error=self._raise_if_of_signal_handler,
        )

    def _collate_nothing(self, job: Job, readable: ReadableSamples) -> Any:
        """Return the collated batch of no samples: that of another sample, without its rows."""
        example = self._collate_batch(job, readable.read_example())
        try:
            return without_rows(example)
        except ConfigError as error:
            raise error_of_batch("a batch could not be collated", job, error) from error

    # ------------------------------------------------------------------ errors

    def _raise_if_of_signal_handler(self, error: Exception) -> None:
        """Raise an error again if a signal handler of the program raised it.

        A handler, of SIGALRM for example, runs wherever the main thread is, also while it makes a
        batch: no sample is to blame. In a worker process only functions of the user set alarms, so
        that their samples are to blame.
        """
        if not self.is_in_worker_process and is_from_signal_handler(error):
            raise error

    def _make_after_error(self, job: Job, error: Exception) -> MadeBatch:
        """Make the batch of a job whose samples could not be read together, if it can be made.

        Raises:
            LoadingError: it cannot be made.
        """
        if not self.policy.tolerates_damage:
            raise self._find_culprit(job, error) from error
        try:
            self.stacks.access_of(job)
        except Exception:  # noqa: BLE001  # the same error as before
            raise self._find_culprit(job, error) from error
        return self._make_without_damage(job, error)

    def _find_culprit(self, job: Job, error: Exception) -> LoadingError:
        """Return an error that names the first sample of a job that cannot be read by itself.

        Args:
            job: the job whose samples could not be read.
            error: why they could not be read together.
        """
        try:
            samples = self.stacks.access_of(job)
        except Exception as stack_error:  # noqa: BLE001  # the same error as before
            self._raise_if_of_signal_handler(stack_error)
            problem = f"the stack of epoch {job.epoch} could not be made"
            return LoadingError(problem, error, epoch=job.epoch, step=job.step)

        for index in job.indices.tolist():
            try:
                samples.sample(index)
            except Exception as sample_error:  # noqa: BLE001  # any error of a source
                self._raise_if_of_signal_handler(sample_error)
                return error_of_sample(samples, index, job, sample_error)
        return error_of_batch("a batch could not be read", job, error)


def _prefetch_blocks(samples: SampleAccess, jobs: Sequence[Job]) -> None:
    """Let the source fetch the blocks that the last job with such a request names."""
    for job in reversed(jobs):
        if job.to_prefetch is not None and len(job.to_prefetch):
            # Reading the samples raises the error again; those of signal handlers are not ours.
            with suppress_own(Exception):
                samples.prefetch(job.to_prefetch)
            return


def _take_rows(batch: Any, rows: slice) -> Any:
    """Return some rows of a batch of columns, as views.

    Args:
        batch: an array, or a tuple or dict of columns; n-grams are dicts of dicts.
        rows: which rows.
    """
    # Columns are arrays, as nearly always: a call for each takes a fifth of the time.
    if isinstance(batch, dict):
        return {
            key: column[rows] if type(column) is np.ndarray else _take_rows(column, rows)
            for key, column in batch.items()
        }
    if isinstance(batch, tuple):
        parts = [
            column[rows] if type(column) is np.ndarray else _take_rows(column, rows)
            for column in batch
        ]
        return tuple(parts)
    return batch[rows]


def _n_bytes_of(batch: Any) -> int:
    """Return the size of a batch's arrays and tensors; a column of objects counts references."""
    if isinstance(batch, np.ndarray):
        return batch.nbytes
    if isinstance(batch, (dict, tuple, list)):
        columns = batch.values() if isinstance(batch, dict) else batch
        n_bytes = 0
        for column in columns:
            # As nearly always: a call for each column would take most of the time.
            n_bytes += column.nbytes if type(column) is np.ndarray else _n_bytes_of(column)
        return n_bytes
    n_bytes = getattr(batch, "nbytes", 0)
    return n_bytes if isinstance(n_bytes, int) else 0
