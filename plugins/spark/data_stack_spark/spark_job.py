"""A job of Spark that attempts tasks in its executors."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Generator, Iterator, Sequence
from threading import Thread
from typing import Any, Union

from pyspark import RDD, InheritableThread, SparkContext
from pyspark.accumulators import AddingAccumulatorParam

from data_stack.engines.attempts import Failure, unpack
from data_stack_spark.attempts import attempt_by_spark

#: How often the accumulator is asked for new outcomes.
_CHECK_SECONDS = 0.1

#: How long a cancelled job may take to end.
_GRACE_SECONDS = 10.0

#: The outcome of an attempt at a task: a result and None, or None and a failure.
Outcome = tuple[Any, Union[Failure, None]]


class SparkJob:
    """Attempts one task for each argument, all in one job.

    Args:
        context: the context that runs the job.
        packed_work: the function of the tasks, see :func:`data_stack.engines.attempts.pack`.
        arguments: the arguments of the tasks.
        title: the name of the job in Spark's interface.

    Attributes:
        problem: why Spark aborted the job; None if it has not.
    """

    problem: str | None
    _context: SparkContext
    _packed_work: bytes
    _numbered_arguments: list[tuple[int, Any]]
    _title: str
    #: The name by which Spark cancels the job.
    _group: str

    def __init__(
        self, context: SparkContext, packed_work: bytes, arguments: Sequence[Any], title: str
    ) -> None:
        self.problem = None
        self._context = context
        self._packed_work = packed_work
        self._numbered_arguments = list(enumerate(arguments))
        self._title = title
        self._group = f"data-stack-{secrets.token_hex(8)}"

    def iterate_outcomes(self) -> Generator[tuple[int, Outcome], None, None]:
        """Run the job, and yield the number and the outcome of each task as it ends.

        Some tasks are missing if Spark aborts the job; :attr:`problem` tells why. Closing the
        generator cancels the job.
        """
        # Spark delivers the updates of an accumulator as each task ends. So outcomes arrive even if
        # the job fails later.
        accumulator: Any = self._context.accumulator([], AddingAccumulatorParam[Any]([]))
        broadcast = self._context.broadcast(self._packed_work)
        attempt = functools.partial(attempt_by_spark, broadcast, accumulator)
        n_partitions = len(self._numbered_arguments)
        rdd = self._context.parallelize(self._numbered_arguments, n_partitions).map(attempt)

        thread = InheritableThread(
            target=functools.partial(self._run, rdd), name="data_stack-spark-job", daemon=True
        )
        thread.start()
        ended_numbers: set[int] = set()
        try:
            for number, packed_outcome in _take_outcomes(accumulator, thread):
                # Spark may run a task several times. Its first outcome counts.
                if number not in ended_numbers:
                    ended_numbers.add(number)
                    yield number, unpack(packed_outcome)
        finally:
            if thread.is_alive():
                self._context.cancelJobGroup(self._group)
                thread.join(_GRACE_SECONDS)
            accumulator.value = []  # the context keeps a reference to it
            broadcast.unpersist()

    def _run(self, rdd: RDD[Any]) -> None:
        """Run the job to its end, in a thread of its own."""
        self._context.setJobGroup(self._group, self._title, interruptOnCancel=True)
        try:
            rdd.count()
        except Exception as error:  # noqa: BLE001  # the engine attempts the tasks again
            self.problem = f"{type(error).__name__}: {error}"


def _take_outcomes(accumulator: Any, job: Thread) -> Iterator[tuple[int, bytes]]:
    """Yield what tasks add to an accumulator, until the thread of the job has ended.

    Yields:
        The number of a task, and its packed outcome.
    """
    n_taken = 0
    while True:
        # The job is looked at first: what its tasks add while it ends is then still taken.
        is_running = job.is_alive()
        while n_taken < len(accumulator.value):
            numbered_outcome = accumulator.value[n_taken]
            # The list stays. Without this, this process would keep all results.
            accumulator.value[n_taken] = None
            n_taken += 1
            yield numbered_outcome
        if not is_running:
            return
        job.join(_CHECK_SECONDS)
