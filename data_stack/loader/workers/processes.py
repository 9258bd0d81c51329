"""Makes batches ahead of the consumer in processes, which return them in shared memory."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import wait as wait_for_channels
from typing import Any, NamedTuple, NoReturn

from data_stack.exception import LoadingError, WorkerDifferenceError, WorkerError
from data_stack.loader.batch_maker import BatchMaker, MadeBatch
from data_stack.loader.job import Job
from data_stack.loader.ranks import find_group_shard
from data_stack.loader.workers import worker_process
from data_stack.loader.workers.base import WorkerOptions
from data_stack.loader.workers.first_batch_check import (
    FirstBatchCheck,
    ValueDifference,
    advise,
    differing_values,
)
from data_stack.loader.workers.messages import (
    BatchFailed,
    BeginEpoch,
    Forget,
    MakeBatch,
    TellValues,
    Unpack,
    ValueName,
    Values,
)
from data_stack.loader.workers.packing import pack_maker
from data_stack.loader.workers.prefetching import PrefetchingWorkers
from data_stack.loader.workers.worker_handle import ALL_HAVE_ENDED, Answer, WorkerHandle
from data_stack.processes.child_process import end_all
from data_stack.processes.fork_server import hold
from data_stack.processes.held_modules import modules_to_unpickle
from data_stack.processes.pickling import load
from data_stack.processes.program_settings import ProgramSettings
from data_stack.processes.seeding import draw_entropy
from data_stack.util.forks import call_in_forks
from data_stack.util.interrupts import is_from_signal_handler

#: How long a worker may take to tell the values of its modules, for a message.
_VALUES_SECONDS = 5.0

#: While this process waits for these values, it looks so often whether the worker still lives.
_SLICE_SECONDS = 0.1


class _NumberedJob(NamedTuple):
    """A job with its number, over all iterations."""

    number: int
    job: Job


class ProcessWorkers(PrefetchingWorkers):
    """Worker processes, each of which makes whole batches.

    Each is a fork of the fork server, a fresh interpreter that holds imports; the first loader of a
    process starts it. It has this process's ``sys.path``, current folder and environment. It does
    not import the user's script, so scripts need no ``if __name__ == "__main__"`` and notebooks
    work: functions and classes of a script or a cell are pickled by value. All workers share one
    copy of the arrays that the iterator holds. Shared memory has no name in ``/dev/shm`` or
    elsewhere, so the system frees it even if a process is killed. A worker makes another batch in
    the memory of one to which nothing in this process refers any more.

    While the consumer waits for a batch, it watches the workers. If one died, it raises an error
    within 5 s and ends all of them; if a batch takes longer than 5 s, it warns.

    After a fork, both processes share the memory of batches received before: each sees what the
    other writes there.

    Decoding threads of data_stack share the processors among the workers. Numerical libraries start
    a thread for each processor in each worker; set ``OMP_NUM_THREADS=1`` to prevent that.
    """

    kind = "processes"
    advice = f"It was ended. {ALL_HAVE_ENDED}"

    #: The processes; none before the first job.
    _workers: list[WorkerHandle]
    #: Numbers the jobs, over all iterations, and the questions between them.
    _numbers: itertools.count[int]
    #: Jobs that have not been delivered, the oldest first.
    _undelivered: deque[_NumberedJob]
    #: Those of them that no worker has been given.
    _waiting: deque[_NumberedJob]
    #: The answers of workers that have not been used, by the number of the job.
    _answers: dict[int, Answer]
    #: Seeds the generators of the current iteration; None before its first job.
    _entropy: bytes | None
    #: Compares the first batch with that of this process.
    _first_batch_check: FirstBatchCheck

    def __init__(self, maker: BatchMaker, options: WorkerOptions) -> None:
        super().__init__(maker, options)
        self._workers = []
        self._numbers = itertools.count()
        self._undelivered = deque()
        self._waiting = deque()
        self._answers = {}
        self._entropy = None
        self._first_batch_check = FirstBatchCheck(maker, is_enabled=options.compares_batches)
        weakref.finalize(self, end_all, self._workers)
        call_in_forks(self._leave_workers_to_parent)

    # ------------------------------------------------------------------ the interface of workers

    def start(self) -> None:
        """Start the processes, unless they run.

        Raises:
            ConfigError: the maker cannot be pickled, this Python cannot start interpreters, or this
                is a worker that imports modules of the program.
            OSError: the system lacks resources for them.
        """
        if self._workers:
            return
        worker_process.check_may_start_workers()
        try:
            # The fork server imports while this process pickles.
            hold([worker_process.__name__])
            payload = pack_maker(self._maker, self._options.max_bytes_sent)
            with contextlib.closing(payload):
                # What the server imports before it forks, the workers share. They took 20 MiB each
                # for numpy, OpenCV and the modules of a dataset.
                hold(modules_to_unpickle(payload.modules))
                for number in range(self.n_workers):
                    worker = WorkerHandle(number, self.n_workers)
                    self._workers.append(worker)
                    worker.channel.send(Unpack(), payload)
        except BaseException:
            self.close()
            raise

    @property
    def is_ready(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether all workers can make batches, or one has failed, which :meth:`next` raises."""
        self._receive_messages(0)
        self._hand_jobs_out()
        has_failed = any(worker.has_failed for worker in self._workers)
        return has_failed or all(worker.is_ready for worker in self._workers)

    def submit(self, job: Job) -> None:
        self.start()
        numbered_job = _NumberedJob(next(self._numbers), job)
        if self._entropy is None:
            self._begin_iteration(numbered_job.number)
        self._undelivered.append(numbered_job)
        self._waiting.append(numbered_job)
        self._hand_jobs_out()

    def next(self) -> MadeBatch:
        # Wait for the answer to the oldest job.
        number, job = self._undelivered[0]
        try:
            self._wait(
                job,
                is_done=lambda seconds: self._is_answered(number, seconds),
                describe_worker=lambda: self._worker_of(number).name,
            )
        except WorkerError:
            self.close()
            raise
        self._undelivered.popleft()
        answer = self._answers.pop(number)

        # An answer without a batch says why the worker could not make it.
        made = None
        if answer.unpickle is not None:
            made = self._unpickle(answer.worker, answer.unpickle, job)

        # The first batch of an iteration may show that the workers lack values of modules.
        if number == self._first_batch_check.job_number:
            must_make_again = self._check_first_batch(answer.worker, job, made)
            if must_make_again:
                self._make_again(job)
                return self.next()
            # Now the workers may work ahead.
            self._first_batch_check.job_number = None
            self._hand_jobs_out()

        if made is None:
            self._raise_failure(answer.worker, answer.message)
        self.observe_size(made.n_bytes)
        return made

    def cancel(self) -> None:
        self._drop_jobs()
        self._entropy = None
        self._first_batch_check.job_number = None
        if any(worker.has_failed for worker in self._workers):
            end_all(self._workers)

    def close(self) -> None:
        end_all(self._workers)
        self.cancel()

    # ------------------------------------------------------------------ jobs and answers

    def _begin_iteration(self, number: int) -> None:
        """Begin an iteration with the job of a number: with other random numbers in its workers."""
        shard = find_group_shard()
        rank = 0 if shard is None else shard.rank
        self._entropy = draw_entropy(rank)
        if self._first_batch_check.is_due():
            self._first_batch_check.job_number = number

    def _is_answered(self, number: int, seconds: float) -> bool:
        """Return whether a job has been answered, waiting some seconds at most.

        Raises:
            WorkerError: a worker has failed or ended.
        """
        if number in self._answers:
            return True
        for worker in self._workers:
            worker.check(self._answers)  # reads what a worker has sent before its end
        if number in self._answers:
            return True
        self._receive_messages(seconds)
        self._hand_jobs_out()
        return number in self._answers

    def _worker_of(self, number: int) -> WorkerHandle:
        """Return the worker that does a job; any worker if the job is not assigned yet."""
        for worker in self._workers:
            if number in worker.jobs:
                return worker
        return self._workers[0]

    def _receive_messages(self, seconds: float) -> None:
        """Receive messages, waiting a limited time for the first one."""
        workers: dict[Any, WorkerHandle] = {}
        for worker in self._workers:
            if not worker.channel.is_ended:
                workers[worker.channel] = worker
        try:
            for channel in wait_for_channels(list(workers), seconds):
                workers[channel].receive_message(self._answers)
        except BaseException:  # an interruption may have cut a message off
            self.close()
            raise

    def _hand_jobs_out(self) -> None:
        """Give waiting jobs to the least busy workers, as many as each may have."""
        max_jobs = self._max_jobs_of_worker()
        try:
            while self._waiting and self._workers:
                for worker in self._workers:
                    worker.return_segments()
                # Of equally busy workers, the one with the fewest batches here has free memory.
                worker = min(
                    self._workers, key=lambda worker: (len(worker.jobs), worker.segments.n_used)
                )
                if len(worker.jobs) >= max_jobs:
                    return
                number, job = self._waiting.popleft()
                worker.jobs[number] = job
                self._begin_epoch(worker, job.epoch)
                # A worker does only some of the jobs, so it would prefetch blocks for the others.
                worker.channel.send(MakeBatch(number, job._replace(to_prefetch=None)))
        except BaseException:  # an interruption may have cut a message off
            self.close()
            raise

    def _max_jobs_of_worker(self) -> int:
        """Return how many jobs a worker may have now."""
        number_to_check = self._first_batch_check.job_number
        if number_to_check is None or self._first_batch_check.has_passed:
            return self._options.prefetch
        # This process makes the first batch as well. If the workers worked ahead meanwhile, there
        # would be more batches in memory than at any later time. In later iterations the workers
        # keep the memory of their batches in any case, so they need not wait.
        return 0 if number_to_check in self._answers else 1

    def _begin_epoch(self, worker: WorkerHandle, epoch: int) -> None:
        """Let a worker begin an epoch of this iteration, unless it has."""
        if self._entropy is None or worker.begun_epoch == (self._entropy, epoch):
            return
        worker.begun_epoch = (self._entropy, epoch)
        worker.channel.send(
            BeginEpoch(
                self._entropy,
                epoch,
                worker.number,
                ProgramSettings.of_thread(),
                self._first_batch_check.values_to_hand_over(),
            )
        )

    def _raise_failure(self, worker: WorkerHandle, message: BatchFailed) -> NoReturn:
        """Drop all jobs, and raise the error of a batch that a worker could not make."""
        self.cancel()
        error = message.error
        error.worker = worker.name
        if message.pickled_cause is None:
            raise error from None
        raise error from load(message.pickled_cause)

    def _unpickle(self, worker: WorkerHandle, unpickle: Callable[[], Any], job: Job) -> MadeBatch:
        """Return the batch that a worker has sent.

        Raises:
            LoadingError: an object in it cannot be unpickled.
        """
        try:
            made: MadeBatch = unpickle()
        except Exception as error:  # an object cannot be unpickled
            self.cancel()
            if is_from_signal_handler(error):
                raise
            problem = f"the batch of {worker.name} could not be unpickled"
            raise LoadingError(problem, error, epoch=job.epoch, step=job.step) from error
        return made

    def _drop_jobs(self) -> None:
        """Drop all jobs here and in the workers, which stay."""
        self._undelivered.clear()
        self._waiting.clear()
        self._answers.clear()
        for worker in self._workers:
            worker.jobs.clear()
            worker.channel.send(Forget(next(self._numbers)))

    def _leave_workers_to_parent(self) -> None:
        """Begin without workers in a fork of this process; they go on for the parent."""
        for worker in self._workers:
            worker.forget()
        self._workers.clear()
        self.cancel()

    # ------------------------------------------------------------------ the check of a batch

    def _check_first_batch(self, worker: WorkerHandle, job: Job, made: MadeBatch | None) -> bool:
        """Compare a worker's batch with that of this process, which makes it now.

        Args:
            worker: the worker that made the batch.
            job: the job.
            made: the batch; None if the worker could not make it.

        Returns:
            Whether the workers must make the batches of this and of all later jobs again: with
            values of modules that they lacked.

        Raises:
            WorkerDifferenceError: the batch differs, and no value of a module is to blame.
        """
        verdict = self._first_batch_check.compare(job, made)
        if verdict.difference is None:
            return False

        # Values that the program has set in modules may be the reason.
        differences = self._ask_for_differing_values(worker, job)
        if verdict.error is None and self._first_batch_check.hand_over(differences):
            return True

        if made is None:  # the error of the worker says more
            return False
        self.close()
        raise WorkerDifferenceError(
            worker.name,
            f"makes another batch of {job} than this process: {verdict.difference}. "
            f"{advise(differences)}",
        ) from verdict.error

    def _ask_for_differing_values(
        self, worker: WorkerHandle, job: Job
    ) -> dict[ValueName, ValueDifference]:
        """Return the values of modules that differ in a worker; none if it does not answer."""
        values_here = self._first_batch_check.values_here()
        modules = sorted({module_name for module_name, _ in values_here})
        number = next(self._numbers)
        worker.jobs[number] = job
        worker.channel.send(TellValues(number, modules))

        deadline = time.monotonic() + _VALUES_SECONDS
        while number not in self._answers and not worker.is_gone and time.monotonic() < deadline:
            self._receive_messages(_SLICE_SECONDS)
        answer = self._answers.pop(number, None)
        if answer is None or not isinstance(answer.message, Values):
            return {}
        return differing_values(values_here, answer.message.values)

    def _make_again(self, job: Job) -> None:
        """Let the workers begin anew with a job and all later ones."""
        later_jobs = [later.job for later in self._undelivered]
        self._drop_jobs()
        for worker in self._workers:
            worker.begun_epoch = None

        for job_to_repeat in [job, *later_jobs]:
            numbered_job = _NumberedJob(next(self._numbers), job_to_repeat)
            self._undelivered.append(numbered_job)
            self._waiting.append(numbered_job)
        self._first_batch_check.job_number = self._undelivered[0].number
        self._hand_jobs_out()
