"""The program of a worker process, which makes the batches of jobs until the consumer closes the channel."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any, NoReturn

from data_stack.exception import LoadingError
from data_stack.loader.jobs import BatchMaker, Job
from data_stack.processes.channel import Channel, Parcel
from data_stack.processes.child_process import loaded_modules
from data_stack.processes.pickling import dump_error
from data_stack.util.processors import set_process_share


def main(channel: int, n_workers: int) -> NoReturn:
    """Work for the process that started this one, as one of ``n_workers``."""
    worker = _Worker(Channel(socket.socket(fileno=channel)))
    set_process_share(n_workers)
    threading.Thread(target=worker.listen, name="listener", daemon=True).start()
    status = 0
    try:
        worker.work()
    except BaseException:  # noqa: BLE001  # the consumer sees the exit status
        traceback.print_exc()
        status = 1
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    os._exit(status)  # threads of user code are not waited for


class _Worker:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._messages: SimpleQueue[tuple[Any, Parcel | None] | None] = SimpleQueue()  # None: the last one
        self._first_wanted = 0  # jobs before it were cancelled
        self._maker: BatchMaker | None = None

    def listen(self) -> None:
        """Receive messages, also while a batch is being made."""
        while (message := self._channel.receive()) is not None:
            if message[0][0] == "forget":  # handled before the jobs that came earlier, which need not be done
                self._first_wanted = message[0][1]
            else:
                self._messages.put(message)
        self._messages.put(None)

    def work(self) -> None:
        """Handle messages until the other end of the channel is closed."""
        while (message := self._messages.get()) is not None:
            (kind, *facts), parcel = message
            if kind == "job":
                self._do(*facts)
            elif parcel is not None:
                self._unpack(parcel)
            del message, parcel

    def _unpack(self, parcel: Parcel) -> None:
        try:
            # private pages: memory that no worker writes to is shared by all
            self._maker, sys.argv[:] = parcel.open(is_private=True)
        except Exception as error:  # noqa: BLE001  # an object cannot be unpickled
            self._channel.send(("unfit", f"{type(error).__name__}: {error}", _traceback_of(error)))
        else:
            self._channel.send(("ready", loaded_modules()))

    def _do(self, number: int, job: Job) -> None:
        if self._maker is None or number < self._first_wanted:
            return
        problem = "making a batch was interrupted"
        try:
            made = self._maker.make(job)
            problem = "a batch cannot be sent from a worker process to the consumer; use worker_kind='threads'"
            parcel = Parcel.of(made)
        except BaseException as error:  # noqa: BLE001  # also SystemExit of user code
            if isinstance(error, LoadingError):
                failure, cause = error, error.__cause__ or error
            else:
                failure, cause = LoadingError(problem, error, epoch=job.epoch, step=job.step), error
            failure.traceback_text = _traceback_of(cause)
            self._channel.send(("error", number, failure, dump_error(cause)))
        else:
            self._channel.send(("batch", number), parcel)


def _traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
