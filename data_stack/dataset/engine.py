"""Interfaces of a preparation in parts: the author of the parts, and the engine that runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from data_stack.dataset.definition import DatasetDefinition
from data_stack.dataset.prepared import PreparedResources, Resources
from data_stack.io.storage_connectors.connector import StorageConnector

Result = TypeVar("Result")


class ShardAuthor(Protocol):
    """The methods of :class:`data_stack.dataset.declarative.DatasetFactory` that preparing shards uses."""

    @property
    def storage_connector(self) -> StorageConnector: ...

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None: ...

    def preparation_shards(self, raw: Resources) -> Sequence[Any]: ...

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None: ...

    def finish_preparation(self, raw: Resources, prepared: PreparedResources) -> None: ...

    def _check_definition(self) -> DatasetDefinition: ...


class PreparationEngine(ABC):
    """Runs independent tasks, concurrently if it can, each until one attempt succeeds.

    ``data_stack.distributed`` has an engine for the processes of one machine, the package datastack-spark one for Spark. Your
    own engine defines :meth:`run`: ``factory.prepare(engine=MyEngine(...))``; a plugin adds it to ``data-stack prepare
    --engine`` by the hook ``data_stack_engines``. Tasks are idempotent: an attempt may be killed anywhere, a task may be
    attempted several times, even concurrently, and an abandoned attempt may go on.
    """

    #: Whether tasks run outside of this process, where a store in this one's memory cannot be reached.
    leaves_process: ClassVar[bool] = True

    @abstractmethod
    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        """Call ``work(task)`` for each of the tasks.

        Args:
            work: the function; cloudpickle pickles it, its arguments and its results.
            tasks: the arguments of ``work``, by readable names.
            title: of the whole job, for monitoring.

        Yields:
            Name and result of each task, once, in the order of completion.

        Raises:
            TaskError: a task has failed too often. No task runs any more, as far as the engine can tell.
            ConfigError: the engine or the work cannot be used like this.
        """
