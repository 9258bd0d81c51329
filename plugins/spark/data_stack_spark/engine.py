"""An engine that runs tasks in the executors of a Spark cluster."""

from __future__ import annotations

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from data_stack.engines import PreparationEngine
from data_stack.engines.attempts import Failure, pack
from data_stack.exception import ConfigError
from data_stack_spark.session import start_session
from data_stack_spark.spark_job import SparkJob

logger = logging.getLogger("data_stack")

Result = TypeVar("Result")

#: How much of Spark's message about an aborted job is quoted.
_MAX_PROBLEM_CHARACTERS = 4000


class SparkEngine(PreparationEngine):
    """Runs tasks in the executors of Spark, all in one job.

    A task that raises is retried in another job. Spark itself repeats tasks whose executor or
    Python process dies (``spark.task.maxFailures``); if it aborts the job, in local mode at once,
    the unfinished tasks are retried too. Executors need data_stack, this package and the modules of
    the dataset at the same versions; functions and classes of a script or a notebook are sent by
    value.

    Args:
        master: the cluster, ``"spark://host:7077"`` or ``"local[4]"``: each :meth:`run` starts and
            stops a session. None: use ``session``.
        session: runs the tasks and is not stopped; None without a master: the active session.
        attempts: maximum number of attempts at a task, besides Spark's own repetitions.

    Attributes:
        attempts: maximum number of attempts at a task.

    Raises:
        ConfigError: master and session are both set, or ``attempts`` is less than 1.
    """

    attempts: int
    _master: str | None
    _session: SparkSession | None

    def __init__(
        self, master: str | None = None, *, session: SparkSession | None = None, attempts: int = 3
    ) -> None:
        if master is not None and session is not None:
            raise ConfigError("SparkEngine takes a master or a session, got both")
        if type(attempts) is not int or attempts < 1:
            raise ConfigError(f"attempts must be an integer, at least 1, got {attempts!r:.40}")
        self.attempts = attempts
        self._master = master
        self._session = session

    def __repr__(self) -> str:
        return f"SparkEngine({self._master!r}, attempts={self.attempts})"

    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        """Call ``work(task)`` for each of the tasks; see :meth:`PreparationEngine.run`."""
        packed_work = pack(work)
        unfinished = dict(tasks)
        n_failures = Counter[str]()
        with self._context(title) as context:
            # Each job attempts all unfinished tasks.
            while unfinished:
                names = list(unfinished)
                job = SparkJob(context, packed_work, list(unfinished.values()), title)
                with contextlib.closing(job.iterate_outcomes()) as outcomes:
                    for number, outcome in outcomes:
                        name = names[number]
                        result, failure = outcome
                        if failure is not None:
                            self._note_failure(name, failure, n_failures)
                            continue
                        del unfinished[name]
                        yield name, result

                if job.problem is None:
                    continue
                failure = Failure(f"was aborted by Spark:\n{job.problem[:_MAX_PROBLEM_CHARACTERS]}")
                for name in find_suspects(job.problem, names, unfinished):
                    self._note_failure(name, failure, n_failures)

    def _note_failure(self, task: str, failure: Failure, n_failures: Counter[str]) -> None:
        """Count a failed attempt.

        Raises:
            TaskError: it was the last attempt.
        """
        n_failures[task] += 1
        if n_failures[task] >= self.attempts:
            raise failure.error(task, n_failures[task])
        logger.warning("%s: attempt %d %s; retrying", task, n_failures[task], failure.problem)

    @contextlib.contextmanager
    def _context(self, title: str) -> Iterator[SparkContext]:
        """Return the context that runs the tasks in the block.

        Raises:
            ConfigError: there is no session, or a new one cannot be started.
        """
        if self._master is None:
            session = self._session or SparkSession.getActiveSession()
            if session is None:
                raise ConfigError(
                    'SparkEngine needs a master, e.g. SparkEngine("local[4]") or '
                    'SparkEngine("spark://host:7077"), or a session'
                )
            yield session.sparkContext
            return

        if SparkContext._active_spark_context is not None:
            raise ConfigError(
                f"cannot start a Spark session with master {self._master!r}: "
                "this process already has one; use SparkEngine(session=...), or stop it"
            )
        session = start_session(self._master, title)
        try:
            context = session.sparkContext
            context.setLogLevel("ERROR")  # we report failures ourselves
            yield context
        finally:
            session.stop()


def find_suspects(problem: str, names: Sequence[str], unfinished: Collection[str]) -> list[str]:
    """Return the tasks that may have made Spark abort a job.

    Args:
        problem: Spark's message.
        names: the tasks of the job, by their numbers.
        unfinished: the tasks of the job without a result.
    """
    blamed = re.search(r"Task (\d+) in stage", problem)
    if blamed is not None:
        culprit = names[int(blamed[1])]
        # If an executor is lost, Spark repeats its tasks, also one whose result arrived already.
        if culprit in unfinished:
            return [culprit]
    # Spark names no unfinished task: each may be the cause.
    return list(unfinished)
