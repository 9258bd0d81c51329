"""Tasks in the executors of a Spark cluster."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, TypeVar

from pyspark import InheritableThread, SparkContext
from pyspark.accumulators import AddingAccumulatorParam
from pyspark.sql import SparkSession

from data_stack.engines import PreparationEngine
from data_stack.engines.attempts import Failure, pack, unpack
from data_stack.exception import ConfigError
from data_stack_spark.attempts import attempt_by_spark

logger = logging.getLogger("data_stack")

Result = TypeVar("Result")

_PROBLEM_CHARACTERS = 4000
_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 10.0


class SparkEngine(PreparationEngine):
    """Runs tasks in the executors of Spark, all in one job.

    A task that raises is retried in another job. Spark itself repeats tasks whose executor or Python process dies
    (``spark.task.maxFailures``); if it aborts the job, in local mode at once, the unfinished tasks are retried too. Executors
    need data_stack, this package and the modules of the dataset at the same versions; functions and classes of a script or a
    notebook are sent by value.

    Args:
        master: the cluster, ``"spark://host:7077"`` or ``"local[4]"``: each :meth:`run` starts and stops a session.
            None: use ``session``.
        session: runs the tasks and is not stopped; None without a master: the active session.
        attempts: maximum number of attempts at a task, besides Spark's own repetitions.

    Raises:
        ConfigError: master and session are both set, or ``attempts`` is less than 1.
    """

    def __init__(
        self, master: str | None = None, *, session: SparkSession | None = None, attempts: int = 3
    ) -> None:
        if master is not None and session is not None:
            raise ConfigError("SparkEngine takes a master or a session, got both")
        if type(attempts) is not int or attempts < 1:
            raise ConfigError(f"attempts must be an integer, at least 1, got {attempts!r:.40}")
        self._master, self._session, self.attempts = master, session, attempts

    def __repr__(self) -> str:
        return f"SparkEngine({self._master!r}, attempts={self.attempts})"

    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        package = pack(work)
        left, failures = dict(tasks), Counter[str]()
        with self._context(title) as context:
            while left:
                names = list(left)
                problem = ""
                with contextlib.closing(_job(context, package, list(left.values()), title)) as ends:
                    try:
                        for position, (result, failure) in ends:
                            if failure is None:
                                del left[names[position]]
                                yield names[position], result
                            else:
                                self._note(names[position], failure, failures)
                    except _JobError as error:
                        problem = str(error)
                if not problem:
                    continue
                blamed = re.search(r"Task (\d+) in stage", problem)
                culprit = names[int(blamed[1])] if blamed else None
                for name in (
                    [culprit] if culprit in left else list(left)
                ):  # any of them may be the cause
                    self._note(
                        name,
                        Failure(f"was aborted by Spark:\n{problem[:_PROBLEM_CHARACTERS]}"),
                        failures,
                    )

    def _note(self, task: str, failure: Failure, failures: Counter[str]) -> None:
        failures[task] += 1
        if failures[task] >= self.attempts:
            raise failure.error(task, failures[task])
        logger.warning("%s: attempt %d %s; retrying", task, failures[task], failure.problem)

    @contextlib.contextmanager
    def _context(self, title: str) -> Iterator[SparkContext]:
        if self._master is None:
            session = self._session or SparkSession.getActiveSession()
            if session is None:
                raise ConfigError(
                    'SparkEngine needs a master, e.g. SparkEngine("local[4]") or SparkEngine("spark://host:7077"), or a session'
                )
            yield session.sparkContext
            return
        if SparkContext._active_spark_context is not None:
            raise ConfigError(
                f"cannot start a Spark session with master {self._master!r}: this process already has one; "
                f"use SparkEngine(session=...), or stop it"
            )
        session = _start(self._master, title)
        try:
            context = session.sparkContext
            context.setLogLevel("ERROR")  # we report failures ourselves
            yield context
        finally:
            session.stop()


class _JobError(Exception):
    """Spark aborted a job."""


def _start(master: str, title: str) -> SparkSession:
    """Start a session without the services that tasks do not need."""
    builder = SparkSession.builder.appName(title).master(master)
    builder = builder.config("spark.ui.enabled", "false").config(
        "spark.ui.showConsoleProgress", "false"
    )
    is_here = master.startswith("local")
    python = os.environ.get("PYSPARK_PYTHON")
    if is_here:
        # The same interpreter and packages; on other machines their paths may differ.
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
        builder = builder.config(
            "spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, map(os.fspath, sys.path)))
        )
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.driver.bindAddress", "127.0.0.1"
        )
    try:
        return builder.getOrCreate()
    except Exception as error:  # errors of Spark, Java or others
        raise ConfigError(
            f"Spark could not be started with master {master!r}: {type(error).__name__}: {error}"
        ) from error
    finally:
        if is_here and python is None:
            del os.environ["PYSPARK_PYTHON"]


def _job(
    context: SparkContext, package: bytes, arguments: list[Any], title: str
) -> Generator[tuple[int, tuple[Any, Failure | None]], None, None]:
    """Run one task for each argument; yield position and result of each as it ends.

    Raises:
        _JobError: Spark aborted the job. The tasks that were done have been yielded.
    """
    group = f"data-stack-{secrets.token_hex(8)}"
    # Spark delivers the updates of an accumulator with the end of each task, so results arrive even if the job fails later.
    ends: Any = context.accumulator([], AddingAccumulatorParam[Any]([]))
    sent = context.broadcast(package)
    rdd = context.parallelize(list(enumerate(arguments)), len(arguments)).map(
        functools.partial(attempt_by_spark, sent, ends)
    )
    problems: list[str] = []

    def run() -> None:
        context.setJobGroup(group, title, interruptOnCancel=True)
        try:
            rdd.count()
        except Exception as error:  # noqa: BLE001  # the waiting thread raises it
            problems.append(f"{type(error).__name__}: {error}")

    thread = InheritableThread(target=run, name="data_stack-spark-job", daemon=True)
    given: set[int] = set()
    n_taken = 0
    thread.start()
    try:
        while n_taken < len(ends.value) or thread.is_alive():
            if n_taken == len(ends.value):
                thread.join(_LOOK_SECONDS)
                continue
            position, end = ends.value[n_taken]
            ends.value[n_taken] = None  # this process would keep all results
            n_taken += 1
            if position not in given:  # a task may run several times; its first result counts
                given.add(position)
                yield position, unpack(end)
    finally:
        if thread.is_alive():
            context.cancelJobGroup(group)
            thread.join(_GRACE_SECONDS)
        ends.value = []  # the context keeps a reference to it
        sent.unpersist()
    if problems:
        raise _JobError(problems[0])
