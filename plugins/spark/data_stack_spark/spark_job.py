"""A job of Spark that attempts tasks in its executors."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Generator, Sequence
from typing import Any, Union

from pyspark import RDD, InheritableThread, SparkContext
from pyspark.accumulators import AddingAccumulatorParam

from data_stack.engines.attempts import Failure, unpack
from data_stack_spark.attempts import attempt_by_spark

#: How often the job is asked for new results.
_CHECK_SECONDS = 0.1

#: How long a cancelled job may take to end.
_GRACE_SECONDS = 10.0


#: How an attempt at a task ended: its result, and its failure or None.
_End = tuple[Any, Union[Failure, None]]


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

    def iterate_ends(self) -> Generator[tuple[int, _End], None, None]:
        """Run the job, and yield the number of each task as it ends, with its result or failure.

        Some tasks are missing if Spark aborts the job; :attr:`problem` tells why. Closing the
        generator cancels the job.
        """
        # Spark delivers the updates of an accumulator with the end of each task, so results arrive
        # even if the job fails later.
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
        n_taken = 0
        try:
            while n_taken < len(accumulator.value) or thread.is_alive():
                if n_taken == len(accumulator.value):
                    thread.join(_CHECK_SECONDS)
                    continue
                number, packed_end = accumulator.value[n_taken]
                # The list stays; without this, this process would keep all results.
                accumulator.value[n_taken] = None
                n_taken += 1
                # Spark may run a task several times. Its first end counts.
                if number not in ended_numbers:
                    ended_numbers.add(number)
                    yield number, unpack(packed_end)
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
