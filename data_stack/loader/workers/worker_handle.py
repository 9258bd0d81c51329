"""One worker process, as the loader sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from data_stack.exception import WorkerError
from data_stack.loader.job import Job
from data_stack.loader.workers import worker_process
from data_stack.loader.workers.messages import BatchMade, Ready, Unfit
from data_stack.loader.workers.received_segments import ReceivedSegments
from data_stack.loader.workers.segment_pool import AddSegment, DropSegments
from data_stack.processes.child_process import ChildProcess
from data_stack.processes.fork_server import hold, is_readable
from data_stack.processes.pickling import load

ALL_HAVE_ENDED = "All workers of this loader have ended; iterating again starts new ones"
"""What follows from the end of a worker, for messages."""


class Answer(NamedTuple):
    """What a worker answered to a job, or to a question.

    Attributes:
        worker: the worker.
        message: the message.
        unpickle: returns the batch that came with the message; None if it brought none.
    """

    worker: WorkerHandle
    message: Any
    unpickle: Callable[[], Any] | None


class WorkerHandle(ChildProcess):
    """One worker process, with the jobs that it has been given.

    Args:
        number: its number, from 0 on.
        n_workers: the number of all workers.
    """

    #: Its number, from 0 on.
    number: int
    #: Its name in messages.
    name: str
    #: The jobs that it has not answered, by their numbers, the current one first.
    jobs: dict[int, Job]
    #: The shared memory in which its batches come.
    segments: ReceivedSegments
    #: The epoch that it has begun: the entropy of the iteration, and the number of the epoch. None
    #: before the first one.
    begun_epoch: tuple[bytes, int] | None
    #: Whether it has unpickled what it needs.
    is_ready: bool
    #: Why it cannot make batches; None if it can.
    failure: WorkerError | None

    def __init__(self, number: int, n_workers: int) -> None:
        super().__init__(worker_process.__name__, n_workers)
        self.number = number
        self.name = f"worker process {number + 1} (pid {self.pid})"
        self.jobs = {}
        self.segments = ReceivedSegments()
        self.begun_epoch = None
        self.is_ready = False
        self.failure = None

    @property
    def has_failed(self) -> bool:
        """Whether it cannot make batches any more."""
        return self.failure is not None or self.is_gone

    def receive_message(self, answers: dict[int, Answer]) -> None:
        """Read the next message; an answer to a job that was not dropped goes into ``answers``."""
        received = self.channel.receive()
        if received is None:
            return
        message, load_payload = received
        if isinstance(message, AddSegment) and load_payload is not None:
            self.segments.add(message.number, load_payload())
            return
        if isinstance(message, DropSegments):
            self.segments.drop(message.numbers)
            return

        # A batch whose job was dropped is opened as well, so that its segments are returned.
        unpickle = None
        if isinstance(message, BatchMade):
            content, *buffers = self.segments.open(message.content)
            unpickle = functools.partial(load, content, buffers)

        if isinstance(message, Ready):
            self.is_ready = True
            hold(message.modules)  # so that later workers need not import them
        elif isinstance(message, Unfit):
            self.failure = WorkerError(
                self.name,
                f"could not unpickle the dataset or a function: {message.problem}; "
                f"try worker_kind='threads'. {ALL_HAVE_ENDED}\n\n"
                f"In the worker:\n{message.traceback_text}",
            )
        elif message.number in self.jobs:
            del self.jobs[message.number]
            answers[message.number] = Answer(self, message, unpickle)

    def return_segments(self) -> None:
        """Let the worker use the memory of batches again to which nothing refers any more."""
        unused = self.segments.take_unused()
        if unused is not None:
            self.channel.send(unused)

    def check(self, answers: dict[int, Answer]) -> None:
        """Check that it can make batches; what it sent before its end says what it was doing.

        Raises:
            WorkerError: it has failed or ended.
        """
        if self.is_gone:
            while not self.channel.is_ended and is_readable(self.channel, 0):
                self.receive_message(answers)
        if self.failure is not None:
            raise self.failure
        if self.is_gone:
            raise WorkerError(
                self.name, f"{self.describe_end()}{self._describe_work()}. {ALL_HAVE_ENDED}"
            )

    def _describe_work(self) -> str:
        """Return what it was doing, for a message; "" if it did nothing."""
        if not self.is_ready:
            return " while it started. See what it wrote to standard error"
        for job in self.jobs.values():
            return f" while it made {job}"
        return ""
