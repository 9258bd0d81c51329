"""An engine that runs tasks in processes of this machine."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from multiprocessing.connection import wait as connection_wait
from typing import Any

from data_stack.engines.attempts import Failure, pack
from data_stack.engines.engine import PreparationEngine, Result
from data_stack.engines.task_process import EndedTask, TaskProcess
from data_stack.exception import ConfigError
from data_stack.processes.child_process import end_all
from data_stack.util.executor import n_processors
from data_stack.util.logger import logger

#: How often the processes are asked whether they still live.
_CHECK_SECONDS = 0.25


class ProcessEngine(PreparationEngine):
    """Runs tasks in processes of this machine.

    A process that dies is replaced, and its task is attempted again. Each process is a fork of a
    fresh interpreter, with this process's ``sys.path``, current folder and environment. It does not
    import the user's script, so scripts need no ``if __name__ == "__main__"`` and notebooks work:
    functions and classes of a script or a cell are pickled by value. The global generators of
    random numbers are seeded anew for each process; tasks have the settings of ``decimal``, numpy's
    errors, torch's default dtype and gradient mode, and the locale of the thread that runs them.
    Output of tasks goes to standard error. The processes end with this one.

    Args:
        n_processes: number of simultaneous processes; None for one per processor of this process.
        attempts: maximum number of attempts at a task that raises or whose process dies.

    Raises:
        ConfigError: a number is less than 1.
    """

    def __init__(self, n_processes: int | None = None, *, attempts: int = 3) -> None:
        if n_processes is None:
            n_processes = n_processors()
        _check_at_least_one("n_processes", n_processes)
        _check_at_least_one("attempts", attempts)
        self.n_processes = n_processes
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"ProcessEngine({self.n_processes}, attempts={self.attempts})"

    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        """Call ``work(task)`` for each of the tasks; see :meth:`PreparationEngine.run`."""
        packed_work = pack(work)
        waiting = deque(tasks)
        n_failures = Counter[str]()
        n_processes = min(self.n_processes, len(tasks))
        processes: list[TaskProcess] = []
        try:
            while waiting or any(process.task is not None for process in processes):
                # Start processes, also in place of those that have died.
                while waiting and len(processes) < n_processes:
                    processes.append(TaskProcess())

                # Give each idle process a task.
                for process in processes:
                    if waiting and process.task is None:
                        task = waiting.popleft()
                        process.start(task, packed_work, tasks[task])

                channels = [process.channel.fileno() for process in processes]
                connection_wait(channels, _CHECK_SECONDS)

                for ended in _take_ended_tasks(processes):
                    if ended.failure is None:
                        yield ended.name, ended.result
                    else:
                        n_failures[ended.name] += 1
                        self._check_may_try_again(ended.name, n_failures[ended.name], ended.failure)
                        waiting.append(ended.name)
        finally:
            end_all(processes)

    def _check_may_try_again(self, task: str, n_failures: int, failure: Failure) -> None:
        """Log a failed attempt at a task.

        Raises:
            TaskError: no attempt is left.
        """
        if n_failures >= self.attempts:
            raise failure.error(task, n_failures)
        logger.warning("%s: attempt %d %s; trying again", task, n_failures, failure.problem)


def _take_ended_tasks(processes: list[TaskProcess]) -> Iterator[EndedTask]:
    """Yield the tasks that have ended since the last call; remove processes that have died."""
    for process in list(processes):
        ended = process.take_ended_task()
        if process.is_gone:
            processes.remove(process)
            process.end(time.monotonic())
        if ended is not None:
            yield ended


def _check_at_least_one(name: str, value: object) -> None:
    # bool is a subclass of int.
    if type(value) is not int or value < 1:
        raise ConfigError(f"{name} must be an integer of at least 1, got {value!r:.40}")
