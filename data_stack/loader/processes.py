"""Batches made by worker processes, which return them in shared memory."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import socket
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import wait as connection_wait
from queue import SimpleQueue
from typing import Any

from data_stack.exception import ConfigError, LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers import PrefetchingWorkers
from data_stack.processes.child_process import (
    Channel,
    ChildProcess,
    Parcel,
    dump,
    dump_error,
    end_all,
    load,
    loaded_modules,
)
from data_stack.processes.fork_server import hold, is_readable
from data_stack.util.executor import set_process_share
from data_stack.util.forks import call_in_forks

_Open = Callable[[], Any]  # unpickles what a message brought
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

    def __init__(self, maker: BatchMaker, n_workers: int, **options: Any) -> None:
        super().__init__(maker, n_workers, **options)
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
        if unpickle is None:
            _, _, error, pickled_cause = head
            error.worker = worker.name
            self.cancel()
            raise error from None if pickled_cause is None else load(pickled_cause)
        try:
            made: MadeBatch = unpickle()
        except Exception as error:  # an object cannot be unpickled
            self.cancel()
            problem = f"the batch of {worker.name} could not be unpickled"
            raise LoadingError(problem, error, epoch=job.epoch, step=job.step) from error
        self._observe_size(made.n_bytes)
        return made

    def cancel(self) -> None:
        self._order.clear()
        self._waiting.clear()
        self._done.clear()
        for worker in self._workers:
            worker.jobs.clear()
            worker.channel.send(("forget", next(self._numbers)))
        if any(worker.failure or worker.is_gone for worker in self._workers):
            end_all(self._workers)

    def close(self) -> None:
        end_all(self._workers)
        self.cancel()

    # ---------------------------------------------------------------------------------------------------------------- private

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
                worker.channel.send(("job", number, job._replace(ahead=None)))
        except BaseException:  # an interruption may have cut a message off
            self.close()
            raise


class _Worker(ChildProcess):
    """One worker process, its jobs by number, the current one first, and whether it is ready to do them."""

    def __init__(self, number: int, n_workers: int) -> None:
        super().__init__(__name__, n_workers)
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


def _pack(maker: BatchMaker, max_bytes: float) -> Parcel:
    """What workers need to make batches.

    Raises:
        ConfigError: a part cannot be pickled; the message names it.
        OSError: memory is exhausted, or the arrays are larger than ``max_bytes``.
    """
    try:
        return Parcel((maker, list(sys.argv)), max_bytes)
    except OSError:
        raise
    except Exception as error:  # an object cannot be pickled
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
            if kind == "job":
                self._do(*facts)
            elif unpickle is not None:
                self._unpack(unpickle)

    def _unpack(self, unpickle: _Open) -> None:
        try:
            self._maker, sys.argv[:] = unpickle()
        except Exception as error:  # noqa: BLE001  # an object cannot be unpickled
            self.channel.send(("unfit", f"{type(error).__name__}: {error}", _traceback_of(error)))
        else:
            self.channel.send(("ready", loaded_modules()))

    def _do(self, number: int, job: Job) -> None:
        if self._maker is None or number < self._first_wanted:
            return
        problem = "making a batch was interrupted"
        try:
            made = self._maker.make(job)
            problem = "a batch cannot be sent from a worker process to the consumer; use worker_kind='threads'"
            parcel = Parcel(made)
        except BaseException as error:  # noqa: BLE001  # also SystemExit of user code
            cause, failure = error.__cause__ or error, error
            if not isinstance(failure, LoadingError):
                cause, failure = error, LoadingError(problem, error, epoch=job.epoch, step=job.step)
            failure.traceback_text = _traceback_of(cause)
            self.channel.send(("error", number, failure, dump_error(cause)))
        else:
            with contextlib.closing(parcel):
                self.channel.send(("batch", number), parcel)


def _traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
