"""The contract of engines: what runs the tasks of a preparation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar, TypeVar

Result = TypeVar("Result")


class PreparationEngine(ABC):
    """Runs independent tasks, concurrently if it can, each until one attempt succeeds.

    ``data_stack.engines`` has an engine for the processes of one machine; lazy-data-stack-spark and
    lazy-data-stack-ray have those for Spark and Ray. Your own engine defines :meth:`run`:
    ``factory.prepare(engine=MyEngine(...))``; a plugin gives it a name by the hook
    ``data_stack_engines``. Tasks are idempotent: an attempt may be killed anywhere, a task may be
    attempted several times, even concurrently, and an abandoned attempt may go on.
    """

    #: Whether tasks run outside of this process, where a store in this one's memory cannot be
    #: reached.
    leaves_process: ClassVar[bool] = True

    @abstractmethod
    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        """Call ``work(task)`` for each of the tasks.

        Args:
            work: the function; cloudpickle pickles it, its arguments and its results.
            tasks: the arguments of ``work``, by readable names.
            title: the title of the whole job, for monitoring.

        Yields:
            Name and result of each task, once, in the order of completion.

        Raises:
            TaskError: a task has failed too often. No task runs any more, as far as the engine can
                tell.
            ConfigError: the engine or the work cannot be used like this.
        """
