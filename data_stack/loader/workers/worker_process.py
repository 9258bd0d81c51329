"""The program of a worker process: it makes batches for the process that started it."""

from __future__ import annotations

import atexit
import contextlib
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from data_stack.exception import ConfigError, LoadingError
from data_stack.loader.batch_maker import BatchMaker
from data_stack.loader.job import Job
from data_stack.loader.workers.messages import (
    BatchFailed,
    BatchMade,
    BeginEpoch,
    Forget,
    MakeBatch,
    Ready,
    TellValues,
    Unfit,
    Unpack,
    Values,
)
from data_stack.loader.workers.module_values import plain_values
from data_stack.loader.workers.segment_pool import ReturnSegments, SegmentPool
from data_stack.processes.channel import Channel
from data_stack.processes.held_modules import modules_imported_since
from data_stack.processes.pickling import dump_error
from data_stack.processes.seeding import seed_generators
from data_stack.util.executor import set_process_share
from data_stack.values.large_arrays import arrays_made_by

#: Whether this is a worker that unpickles what it needs, which imports modules of the program.
_is_unpacking = False


def check_may_start_workers() -> None:
    """Check that workers may be started here.

    Raises:
        ConfigError: this is a worker that imports modules of the program. If such a module started
            workers, they would import it as well, and start others without end.
    """
    if _is_unpacking:
        raise ConfigError(
            "a worker process imports a module of the program, and that module starts worker "
            "processes when it is imported, which would start others without end. Put this part "
            "of the module under `if __name__ == '__main__':`"
        )


def main(descriptor: int, n_workers: int) -> None:
    """Make batches for the process that started this one.

    Args:
        descriptor: a socket that is connected to that process.
        n_workers: the number of worker processes, which share the processors.
    """
    set_process_share(n_workers)
    program = _WorkerProgram(Channel(socket.socket(fileno=descriptor)))
    threading.Thread(target=program.listen, name="listener", daemon=True).start()
    try:
        program.work()
    finally:
        program.channel.close()
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()


class _WorkerProgram:
    """Receives messages in one thread, and handles them in another."""

    #: Leads to the process that started this one.
    channel: Channel
    #: The shared memory in which batches arise, and are sent.
    _segments: SegmentPool
    #: Received messages, each with a function that unpickles what came with it; None at the end.
    _messages: SimpleQueue[tuple[Any, Callable[[], Any] | None] | None]
    #: The number of the first job that was not dropped.
    _first_wanted: int
    #: Makes the batches; None before it has been unpickled.
    _maker: BatchMaker | None

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._segments = SegmentPool(channel)
        self._messages = SimpleQueue()
        self._first_wanted = 0
        self._maker = None

    def listen(self) -> None:
        """Receive messages, also while a batch is being made, until the channel is closed."""
        try:
            while True:
                # All workers share the memory that comes with a message. What one of them writes to
                # its private pages is not seen by the others.
                received = self.channel.receive(is_private=True)
                if received is None:
                    return
                message, _ = received
                if isinstance(message, Forget):
                    # It overtakes the jobs that came before it, so that they need not be done.
                    self._first_wanted = message.first_wanted
                elif isinstance(message, ReturnSegments):
                    # It overtakes jobs as well, so that the next of them can use the memory.
                    self._segments.take_back(message)
                else:
                    self._messages.put(received)
        finally:
            self._messages.put(None)

    def work(self) -> None:
        """Handle messages until the channel is closed."""
        while True:
            received = self._messages.get()
            if received is None:
                return
            message, unpickle = received
            if isinstance(message, MakeBatch):
                self._make_batch(message.number, message.job)
            elif isinstance(message, BeginEpoch):
                _begin_epoch(message)
            elif isinstance(message, TellValues):
                values = plain_values(message.modules, with_others=False)
                self.channel.send(Values(message.number, values))
            elif isinstance(message, Unpack) and unpickle is not None:
                self._unpack(unpickle)

    def _unpack(self, unpickle: Callable[[], Any]) -> None:
        global _is_unpacking
        _is_unpacking = True
        n_modules_before = len(sys.modules)
        try:
            maker, program_arguments = unpickle()
        except Exception as error:  # noqa: BLE001  # an object cannot be unpickled
            self.channel.send(Unfit(f"{type(error).__name__}: {error}", _format(error)))
            return
        finally:
            _is_unpacking = False
        sys.argv[:] = program_arguments
        self._maker = maker
        self._maker.is_in_worker_process = True
        self.channel.send(Ready(modules_imported_since(n_modules_before)))

    def _make_batch(self, number: int, job: Job) -> None:
        if self._maker is None or number < self._first_wanted:
            return

        try:
            # The pool empties the list, so that nothing refers to the arrays that it sends.
            with arrays_made_by(self._segments.empty_array):
                made = [self._maker.make(job)]
        except LoadingError as error:
            self._send_failure(number, error, error.__cause__ or error)
            return
        except BaseException as error:  # noqa: BLE001  # also SystemExit of user code
            problem = "making a batch was interrupted"
            failure = LoadingError(problem, error, epoch=job.epoch, step=job.step)
            self._send_failure(number, failure, error)
            return

        try:
            content = self._segments.lend(made)
        except BaseException as error:  # noqa: BLE001  # an object cannot be pickled
            problem = (
                "a batch cannot be sent from a worker process to the consumer; "
                "use worker_kind='threads'"
            )
            failure = LoadingError(problem, error, epoch=job.epoch, step=job.step)
            self._send_failure(number, failure, error)
            return

        self.channel.send(BatchMade(number, content))

    def _send_failure(self, number: int, failure: LoadingError, cause: BaseException) -> None:
        failure.traceback_text = _format(cause)
        self.channel.send(BatchFailed(number, failure, dump_error(cause)))


def _begin_epoch(message: BeginEpoch) -> None:
    """Give this process generators of its own, and what the program has set by now."""
    for (module_name, name), value in message.values.items():
        if module_name in sys.modules:
            setattr(sys.modules[module_name], name, value)
    seed_generators(message.entropy, message.epoch, message.worker_number)
    message.settings.apply_to_process()


def _format(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
