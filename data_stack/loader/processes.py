"""Batches made by worker processes, which return them in shared memory."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import math
import socket
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import wait as connection_wait
from queue import SimpleQueue
from typing import Any

from data_stack.exception import ConfigError, LoadingError, WorkerDifferenceError, WorkerError
from data_stack.loader.comparison import (
    describe_value,
    find_difference,
    make_here,
    plain_values,
)
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.plan import group_shard
from data_stack.loader.workers import PrefetchingWorkers
from data_stack.processes.channel import Channel, Payload
from data_stack.processes.child_process import ChildProcess, end_all, loaded_modules
from data_stack.processes.fork_server import hold, is_readable
from data_stack.processes.pickling import dump, dump_error, imported_modules, load
from data_stack.processes.program_settings import ProgramSettings
from data_stack.processes.seeding import draw_entropy, seed_generators
from data_stack.util.executor import set_process_share
from data_stack.util.forks import call_in_forks
from data_stack.util.interrupts import is_from_signal_handler
from data_stack.util.logger import logger

_Open = Callable[[], Any]  # unpickles what a message brought
_Name = tuple[str, str]  # of a module, and of a value in it

#: A batch is compared again in a later iteration if that takes less than this share of the time.
_COMPARING_SHARE = 0.02

#: How long a worker may take to say the values of its modules, for a message.
_VALUES_SECONDS = 5.0
_SLICE_SECONDS = 0.1
_MAX_NAMED_VALUES = 5

_AGAIN = "All workers of this loader have ended; iterating again starts new ones"


class ProcessWorkers(PrefetchingWorkers):
    """Worker processes, each of which makes whole batches.

    Each is a fork of the fork server, a fresh interpreter that holds imports; the first loader of a process starts it. It has
    this process's ``sys.path``, current folder and environment. It does not import the user's script, so scripts need no
    ``if __name__ == "__main__"`` and notebooks work: functions and classes of a script or a cell are pickled by value. All
    workers share one copy of the arrays that the iterator holds. Shared memory has no name in ``/dev/shm`` or elsewhere, so the
    system frees it even if a process is killed.

    While the consumer waits for a batch, it watches the workers. If one died, it raises an error within 5 s and ends all of them;
    if a batch takes longer than 5 s, it warns.

    After a fork, both processes share the memory of batches received before: each sees what the other writes there.

    Decoding threads of data_stack share the processors among the workers. Numerical libraries start a thread for each processor
    in each worker; set ``OMP_NUM_THREADS=1`` to prevent that.
    """

    kind = "processes"
    advice = f"It was ended. {_AGAIN}"

    #: Entropy of the generators of the current iteration; None before its first job.
    _entropy: bytes | None
    #: Whether to compare the first batch of an iteration with that of this process.
    _compares: bool
    #: The number of the job whose batch is compared; None if none is.
    _compared_number: int | None
    #: When a batch was last found to be the same, in seconds of the monotonic clock; None: never.
    _compared_at: float | None
    #: How long the last comparison took.
    _comparing_seconds: float
    #: Values of modules that the workers get when an epoch begins, as they had others.
    _handed_over: set[_Name]

    def __init__(
        self,
        maker: BatchMaker,
        n_workers: int,
        *,
        prefetch: int,
        timeout_seconds: float | None,
        max_bytes: float = math.inf,
        compares: bool = True,
    ) -> None:
        super().__init__(
            maker,
            n_workers,
            prefetch=prefetch,
            timeout_seconds=timeout_seconds,
            max_bytes=max_bytes,
        )
        self._entropy = None
        self._compares = compares
        self._compared_number = None
        self._compared_at = None
        self._comparing_seconds = 0.0
        self._handed_over = set()
        self._workers: list[_Worker] = []
        self._numbers = itertools.count()  # of jobs, over all iterations
        self._order: deque[tuple[int, Job]] = deque()  # jobs that have not been delivered
        self._waiting: deque[tuple[int, Job]] = deque()  # not given to a worker yet
        self._done: dict[int, tuple[_Worker, Any, _Open | None]] = {}
        weakref.finalize(self, end_all, self._workers)
        call_in_forks(self._forget_workers)

    def start(self) -> None:
        """Start the processes, unless they run.

        Raises:
            ConfigError: the maker cannot be pickled, or this Python cannot start interpreters.
            OSError: the system lacks resources for them.
        """
        if self._workers:
            return
        try:
            hold([__name__])  # the imports take their time, as does pickling
            with contextlib.closing(_pack(self._maker, self._max_bytes)) as package:
                for number in range(self.n_workers):
                    self._workers.append(_Worker(number, self.n_workers))
                    self._workers[-1].channel.send(("package",), package)
        except BaseException:
            self.close()
            raise

    @property
    def is_ready(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether all workers can make batches, or one has failed, which :meth:`next` raises."""
        self._exchange(0)
        has_failed = any(worker.failure or worker.is_gone for worker in self._workers)
        return has_failed or all(worker.is_ready for worker in self._workers)

    def submit(self, job: Job) -> None:
        self.start()
        numbered = next(self._numbers), job
        if self._entropy is None:  # an iteration begins
            rank, _ = group_shard() or (0, 1)
            self._entropy = draw_entropy(rank)
            if self._compares and self._is_time_to_compare():
                self._compared_number = numbered[0]
        self._order.append(numbered)
        self._waiting.append(numbered)
        self._exchange()

    def next(self) -> MadeBatch:
        number, job = self._order[0]

        def is_done(seconds: float) -> bool:
            if number not in self._done:
                for worker in self._workers:
                    worker.check(self._done)
                self._exchange(0 if number in self._done else seconds)
            return number in self._done

        try:
            self._wait(
                job,
                is_done,
                lambda: (
                    next(
                        (each for each in self._workers if number in each.jobs), self._workers[0]
                    ).name
                ),
            )
        except WorkerError:
            self.close()
            raise
        self._order.popleft()
        worker, head, unpickle = self._done.pop(number)
        is_compared = number == self._compared_number
        if unpickle is None:
            _, _, error, pickled_cause = head
            error.worker = worker.name
            if is_compared and self._begins_again(worker, job, None):
                return self.next()
            self.cancel()
            raise error from None if pickled_cause is None else load(pickled_cause)
        try:
            made: MadeBatch = unpickle()
        except Exception as error:  # an object cannot be unpickled
            self.cancel()
            if is_from_signal_handler(error):
                raise
            problem = f"the batch of {worker.name} could not be unpickled"
            raise LoadingError(problem, error, epoch=job.epoch, step=job.step) from error
        self._observe_size(made.n_bytes)
        if is_compared and self._begins_again(worker, job, made):
            return self.next()
        return made

    def cancel(self) -> None:
        self._drop_jobs()
        self._entropy = None
        self._compared_number = None
        if any(worker.failure or worker.is_gone for worker in self._workers):
            end_all(self._workers)

    def close(self) -> None:
        end_all(self._workers)
        self.cancel()

    # ---------------------------------------------------------------------------------------------------------------- private

    def _is_time_to_compare(self) -> bool:
        """Whether a comparison takes a small part of the time since the last one, if any."""
        if self._compared_at is None:
            return True
        seconds = time.monotonic() - self._compared_at
        return self._comparing_seconds < _COMPARING_SHARE * seconds

    def _begins_again(self, worker: _Worker, job: Job, made: MadeBatch | None) -> bool:
        """Compare a worker's batch with that of this process, which makes it now.

        A worker process does not have what the program sets at run time. If batches differ, the
        workers get the plain values that the modules of the functions have here and not there,
        and make all their batches again. If the first one still differs, it is an error.

        This process makes the batch after the worker, so that what kills or hangs a worker does
        not happen here first.

        Args:
            worker: made the batch.
            job: of the batch.
            made: the batch; None if the worker could not make it.

        Returns:
            Whether the workers make the batches of this and of all later jobs again.

        Raises:
            WorkerDifferenceError: the worker's batch is another one.
        """
        began_at = time.monotonic()
        here = make_here(self._maker, job, None if made is None else made.batch)
        if here.difference is None:
            self._compared_at = time.monotonic()
            self._comparing_seconds = self._compared_at - began_at
            return False

        self._compared_at = None
        differing = self._differing_values(worker, job)
        if differing.keys() - self._handed_over and here.error is None:
            self._handed_over |= differing.keys()
            logger.info(
                "worker processes get values that the program has set in modules: %s",
                _list_values(differing),
            )
            self._make_again(job)
            return True
        if made is None:  # the error of the worker says more
            return False
        self.close()
        raise WorkerDifferenceError(
            worker.name,
            f"makes another batch of {job} than this process: {here.difference}. "
            f"{_advise(differing)}",
        ) from here.error

    def _differing_values(self, worker: _Worker, job: Job) -> dict[_Name, tuple[Any, Any]]:
        """Plain values of modules that differ, here and in a worker; none if it does not say."""
        own = plain_values(imported_modules(self._maker))
        number = next(self._numbers)
        worker.jobs[number] = job
        worker.channel.send(("values", number, sorted({module for module, _ in own})))
        deadline = time.monotonic() + _VALUES_SECONDS
        while number not in self._done and not worker.is_gone and time.monotonic() < deadline:
            self._exchange(_SLICE_SECONDS)
        if number not in self._done:
            return {}
        _, head, _ = self._done.pop(number)
        theirs = head[2]
        return {
            name: (value, theirs[name])
            for name, value in own.items()
            if name in theirs and find_difference(value, theirs[name]) is not None
        }

    def _make_again(self, job: Job) -> None:
        """Let the workers begin anew with a job and all later ones."""
        jobs = [job, *(later for _, later in self._order)]
        self._drop_jobs()
        for worker in self._workers:
            worker.begun = None
        self._compared_number = None
        for again in jobs:
            numbered = next(self._numbers), again
            if self._compared_number is None:
                self._compared_number = numbered[0]
            self._order.append(numbered)
            self._waiting.append(numbered)
        self._exchange()

    def _drop_jobs(self) -> None:
        self._order.clear()
        self._waiting.clear()
        self._done.clear()
        for worker in self._workers:
            worker.jobs.clear()
            worker.channel.send(("forget", next(self._numbers)))

    def _values_to_hand_over(self) -> dict[_Name, Any]:
        """The values of this moment."""
        values = plain_values({module for module, _ in self._handed_over}, with_others=False)
        return {name: value for name, value in values.items() if name in self._handed_over}

    def _forget_workers(self) -> None:
        """In a fork, leave the workers to the parent."""
        for worker in self._workers:
            worker.forget()
        self._workers.clear()
        self.cancel()

    def _exchange(self, seconds: float | None = None) -> None:
        """Receive messages, waiting a limited time for the first one (None: none), and hand jobs to the least busy workers."""
        workers: dict[Any, _Worker] = {
            worker.channel: worker for worker in self._workers if not worker.channel.is_ended
        }
        try:
            for channel in () if seconds is None else connection_wait(list(workers), seconds):
                workers[channel].take_message(self._done)
            while self._waiting and self._workers:
                worker = min(self._workers, key=lambda each: len(each.jobs))
                if len(worker.jobs) >= self._prefetch:
                    break
                number, job = self._waiting.popleft()
                worker.jobs[number] = job
                if self._entropy is not None and worker.begun != (self._entropy, job.epoch):
                    worker.begun = self._entropy, job.epoch
                    settings = ProgramSettings.of_thread(), self._values_to_hand_over()
                    facts = self._entropy, job.epoch, worker.number
                    worker.channel.send(("begin", *facts, *settings))
                worker.channel.send(("job", number, job._replace(ahead=None)))
        except BaseException:  # an interruption may have cut a message off
            self.close()
            raise


def _advise(differing: dict[_Name, tuple[Any, Any]]) -> str:
    """What may be behind a difference, and what to do, for a message."""
    cause = "A worker process does not have what the program sets at run time"
    if differing:
        cause = f"{cause}: {_list_values(differing)}"
    return (
        f"{cause}. Pass such values to functions as arguments (functools.partial), keep what "
        f"depends on the order of sets or on the process out of batches, or use "
        f"worker_kind='threads'; compare_workers=False accepts the batches of the workers"
    )


def _list_values(differing: dict[_Name, tuple[Any, Any]]) -> str:
    texts = [
        f"{module}.{name} is {describe_value(own)} here, {describe_value(other)} there"
        for (module, name), (own, other) in differing.items()
    ]
    return "; ".join(texts[:_MAX_NAMED_VALUES])


class _Worker(ChildProcess):
    """One worker process, its jobs by number, the current one first, and whether it is ready to do them."""

    #: Whose generators and settings it has: the entropy of an iteration, and the epoch.
    begun: tuple[bytes, int] | None

    def __init__(self, number: int, n_workers: int) -> None:
        super().__init__(__name__, n_workers)
        self.number = number
        self.begun = None
        self.name = f"worker process {number + 1} (pid {self.pid})"
        self.jobs: dict[int, Job] = {}
        self.is_ready = False
        self.failure: WorkerError | None = None

    def take_message(self, done: dict[int, tuple[_Worker, Any, _Open | None]]) -> None:
        """Read the next message; a finished batch goes into ``done``."""
        message = self.channel.receive()
        if message is None:
            return
        head, unpickle = message
        if head[0] == "ready":
            self.is_ready = True
            hold(head[1])
        elif head[0] == "unfit":
            problem = f"could not unpickle the dataset or a function: {head[1]}; try worker_kind='threads'"
            self.failure = WorkerError(
                self.name, f"{problem}. {_AGAIN}\n\nIn the worker:\n{head[2]}"
            )
        elif self.jobs.pop(head[1], None) is not None:  # None: it was cancelled
            done[head[1]] = self, head, unpickle

    def check(self, done: dict[int, tuple[_Worker, Any, _Open | None]]) -> None:
        """Raise WorkerError if it has failed or ended; what it sent before says what it was doing."""
        if self.is_gone:
            while not self.channel.is_ended and is_readable(self.channel, 0):
                self.take_message(done)
        if self.failure is not None:
            raise self.failure
        if self.is_gone:
            job = next(iter(self.jobs.values()), None)
            place = "" if job is None else f" while it made {job}"
            if not self.is_ready:
                place = " while it started. See what it wrote to standard error"
            raise WorkerError(self.name, f"{self.describe_end()}{place}. {_AGAIN}")


def _pack(maker: BatchMaker, max_bytes: float) -> Payload:
    """What workers need to make batches.

    Raises:
        ConfigError: a part cannot be pickled; the message names it.
        OSError: memory is exhausted, or the arrays are larger than ``max_bytes``.
    """
    try:
        return Payload((maker, list(sys.argv)), max_bytes)
    except OSError:
        raise
    except Exception as error:  # an object cannot be pickled
        if is_from_signal_handler(error):
            raise
        parts = {
            "the iterator": maker.stacks.iterator,
            "collate": maker._collate,
            "the transform": maker._transform,
        }
        culprits = []
        for name, part in parts.items():
            try:
                dump(part)
            except Exception:  # noqa: BLE001  # any error of an object
                culprits.append(f"{name} {part!r:.200}")
        raise ConfigError(
            f"{', '.join(culprits)} cannot be sent to worker processes: {type(error).__name__}: {error}. "
            f"Use worker_kind='threads', or open files and connections when they are first used"
        ) from error


# -------------------------------------------------------------------------------------------------------- in a worker process


def main(descriptor: int, n_workers: int) -> None:
    """Work for the process that started this one, as one of ``n_workers``."""
    set_process_share(n_workers)
    program = _Program(Channel(socket.socket(fileno=descriptor)))
    threading.Thread(target=program.listen, name="listener", daemon=True).start()
    try:
        program.work()
    finally:
        program.channel.close()
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()


class _Program:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._messages: SimpleQueue[tuple[Any, _Open | None] | None] = (
            SimpleQueue()
        )  # None: the last one
        self._first_wanted = 0  # jobs before it were cancelled
        self._maker: BatchMaker | None = None

    def listen(self) -> None:
        """Receive messages, also while a batch is being made."""
        try:
            # private pages: memory that no worker writes to is shared by all
            while (message := self.channel.receive(is_private=True)) is not None:
                if (
                    message[0][0] == "forget"
                ):  # handled before the jobs that came earlier, which need not be done
                    self._first_wanted = message[0][1]
                else:
                    self._messages.put(message)
        finally:
            self._messages.put(None)

    def work(self) -> None:
        """Handle messages until the other end of the channel is closed."""
        while (message := self._messages.get()) is not None:
            (kind, *facts), unpickle = message
            if kind == "begin":
                self._begin(*facts)
            elif kind == "job":
                self._do(*facts)
            elif kind == "values":
                number, modules = facts
                self.channel.send(("values", number, plain_values(modules, with_others=False)))
            elif unpickle is not None:
                self._unpack(unpickle)

    def _unpack(self, unpickle: _Open) -> None:
        try:
            self._maker, sys.argv[:] = unpickle()
        except Exception as error:  # noqa: BLE001  # an object cannot be unpickled
            self.channel.send(("unfit", f"{type(error).__name__}: {error}", _traceback_of(error)))
        else:
            self._maker.is_in_worker_process = True
            self.channel.send(("ready", loaded_modules()))

    def _begin(
        self,
        entropy: bytes,
        epoch: int,
        worker: int,
        settings: ProgramSettings,
        values: dict[_Name, Any],
    ) -> None:
        """Begin an epoch with generators of its own, and with what the program has set by now."""
        for (module, name), value in values.items():
            if module in sys.modules:
                setattr(sys.modules[module], name, value)
        seed_generators(entropy, epoch, worker)
        settings.apply_to_process()

    def _do(self, number: int, job: Job) -> None:
        if self._maker is None or number < self._first_wanted:
            return
        problem = "making a batch was interrupted"
        try:
            made = self._maker.make(job)
            problem = "a batch cannot be sent from a worker process to the consumer; use worker_kind='threads'"
            payload = Payload(made)
        except BaseException as error:  # noqa: BLE001  # also SystemExit of user code
            cause, failure = error.__cause__ or error, error
            if not isinstance(failure, LoadingError):
                cause, failure = error, LoadingError(problem, error, epoch=job.epoch, step=job.step)
            failure.traceback_text = _traceback_of(cause)
            self.channel.send(("error", number, failure, dump_error(cause)))
        else:
            with contextlib.closing(payload):
                self.channel.send(("batch", number), payload)


def _traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
