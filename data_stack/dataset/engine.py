"""Contracts of a preparation in parts: who knows the parts, and what runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from data_stack.dataset.definition import DatasetDefinition
from data_stack.dataset.prepared import PreparedResources, Resources
from data_stack.io.storage_connectors.connector import StorageConnector

__all__ = ["PreparationEngine", "ShardAuthor"]

Result = TypeVar("Result")


class ShardAuthor(Protocol):
    """What preparing shards asks of a factory; :class:`data_stack.dataset.declarative.DatasetFactory` documents each."""

    @property
    def storage_connector(self) -> StorageConnector: ...

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None: ...

    def preparation_shards(self, raw: Resources) -> Sequence[Any]: ...

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None: ...

    def finish_preparation(self, raw: Resources, prepared: PreparedResources) -> None: ...

    def _check_definition(self) -> DatasetDefinition: ...


class PreparationEngine(ABC):
    """Runs independent tasks, at once if it can, each until one attempt at it has ended well.

    ``data_stack.distributed`` has an engine for the processes of one machine, the package datastack-spark one for Spark. One of
    your own needs :meth:`run` alone: ``factory.prepare(engine=MyEngine(...))``; a plugin brings it to ``data-stack prepare
    --engine`` by the hook ``data_stack_engines``. The tasks look after themselves: an attempt may be killed anywhere, a task
    may be attempted again and several times at once, and an attempt that was given up may go on.
    """

    #: Whether tasks run outside of this process, where a store in this one's memory cannot be reached.
    leaves_process: ClassVar[bool] = True

    @abstractmethod
    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        """Call ``work(task)`` for each of the tasks.

        Args:
            work: what to do. It pickles by cloudpickle, and so do what it is given and gives.
            tasks: what ``work`` is called with, by names that a person can read.
            title: what all of it is, for whoever looks at what is running.

        Yields:
            Name and result of each task, once, in the order in which they are done.

        Raises:
            TaskError: a task has failed too often. Nothing runs any more, as far as the engine can tell.
            ConfigError: the engine or the work cannot be used like this.
        """
