"""Prepares a dataset shard by shard, in this process or as tasks of an engine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar

from data_stack.exception import ConfigError
from data_stack.factories.code_digest import find_changed_module, module_digests
from data_stack.factories.manifest import Journal, Step
from data_stack.factories.prepared import PreparedResources, Resources, Superseded
from data_stack.factories.stored import StoredDataset
from data_stack.io.progress import with_bar
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

Result = TypeVar("Result")


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


_SHOWN_CHARACTERS = 60


def check_shards(values: Any, who: str) -> dict[str, Any]:
    """The shards of an author's ``preparation_shards``, by names for messages and the journal: ``shard {"file": "part-0"}``.

    Values go through JSON (tuples become lists), so that they are the same wherever the shard is prepared.

    Raises:
        ConfigError: it is not a list, or a value is not plain JSON data, or occurs twice.
    """
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise ConfigError(f"preparation_shards() of {who} must return a list of plain JSON values, got {values!r:.80}")
    shards: dict[str, Any] = {}
    for value in values:
        try:
            text = json.dumps(value, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"preparation_shards() of {who} must return plain JSON values ({error}): {value!r:.80}") from error
        digest = hashlib.sha256(text.encode("ascii")).hexdigest()
        name = "shard " + (text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({digest[:8]})")
        if name in shards:
            raise ConfigError(f"preparation_shards() of {who} returned one shard twice: {text:.200}")
        shards[name] = json.loads(text)
    return shards


def prepare_in_turn(factory: Any, raw: Resources, prepared: PreparedResources) -> None:
    """Prepare all shards in this process; takes over those that an interrupted engine completed."""
    shards = check_shards(factory.preparation_shards(raw), type(factory).__qualname__)
    for name in prepared.steps(shards):
        factory.prepare_shard(shards[name], raw, prepared)
    _finish(factory, raw, prepared)


def _finish(factory: Any, raw: Resources, prepared: PreparedResources) -> None:
    """Call the author's ``finish_preparation``."""
    try:
        factory.finish_preparation(raw, prepared)
    except Exception as error:
        if not prepared.is_whole():
            raise Superseded from error  # another process without a lease has published or removed the resources
        raise


class EnginePreparation:
    """Replaces ``preprocess`` by tasks of an engine; a dataset without shards is one task.

    Args:
        factory: of the dataset.
        engine: runs the tasks.
        has_shards: whether the dataset has shards.

    Raises:
        ConfigError: the tasks cannot reach the store of the factory.
    """

    def __init__(self, factory: Any, engine: PreparationEngine, *, has_shards: bool) -> None:
        self._factory, self._engine, self._has_shards = factory, engine, has_shards
        if engine.leaves_process and isinstance(factory.storage_connector, InMemoryStorageConnector):
            raise ConfigError(
                f"{type(engine).__name__} prepares in other processes, which cannot reach a store in the memory of this process "
                f"({factory.storage_connector!r}): use a folder or a server, or no engine"
            )

    def __call__(self, raw: Resources, prepared: PreparedResources) -> None:
        """Prepare all shards that are not done; all resources are published together.

        Raises:
            TaskError: a shard could not be prepared.
            ConfigError: invalid shards, two shards made the same resource, or tasks see another store than this process.
        """
        factory, stored = self._factory, prepared.stored
        who = type(factory).__qualname__
        shards = check_shards(factory.preparation_shards(raw), who) if self._has_shards else {"preprocess()": None}
        name, started = stored.definition.card.name, time.perf_counter()
        opening = stored.open_shards(prepared.journal.attempt)
        left = {each: (each, value) for each, value in shards.items() if prepared.step_that_made(each) is None}
        work = ShardWork(factory, raw, opening, module_digests(factory), self._has_shards)
        bar = {"desc": f"{name}: preparing", "unit": "shard", "total": len(shards), "initial": len(shards) - len(left)}
        try:
            nothing = (each for each in dict[str, Step | None]().items())  # an engine is not started for no tasks
            with contextlib.closing(self._engine.run(work, left, title=f"preparing {name}") if left else nothing) as results:
                for task, done in with_bar(results, prepared.shows_progress, **bar):
                    if done is not None:
                        prepared.note(done)
                    if done is None or prepared.step_that_made(task) is None:
                        self._explain(opening, task, prepared)
        except (Exception, KeyboardInterrupt):
            stored.write_journal(prepared.journal)
            raise
        stored.write_journal(prepared.journal)
        for each in shards:
            try:
                if not prepared.take_over(each):
                    raise Superseded  # another process without a lease has replaced it
            except ConfigError as error:
                raise ConfigError(f"{error}. {each} made it too; shards need distinct names") from error
        title = f"{len(shards)} shards" if len(shards) != 1 else next(iter(shards))
        prepared.timings.append((title, time.perf_counter() - started))
        if self._has_shards:
            _finish(factory, raw, prepared)

    @staticmethod
    def _explain(opening: str, task: str, prepared: PreparedResources) -> NoReturn:
        """Raise the error for a task whose resources are missing."""
        if not prepared.stored.wants_shards(opening):
            raise Superseded  # another process has prepared the dataset
        raise ConfigError(
            f"the resources of {task} of {prepared.stored.folder!r} are not in {prepared.stored.connector!r}. "
            f"All machines that run tasks must reach the same store by the same name: a shared folder, MongoDB or an object store"
        )


@dataclass(frozen=True, repr=False)
class ShardWork:
    """Prepares shards in any process.

    Args:
        factory: of the dataset; it pickles with its storage connector.
        raw: the sources.
        opening: token of the leading process, see :meth:`StoredDataset.open_shards`.
        digests: of the modules with the author's code.
        has_shards: False if ``preprocess`` is the one shard.
    """

    factory: Any
    raw: Resources
    opening: str
    digests: Mapping[str, str]
    has_shards: bool

    def __repr__(self) -> str:
        return f"the factory {type(self.factory).__qualname__}"

    def __call__(self, shard: tuple[str, Any]) -> Step | None:
        """Prepare a shard, given by its name and value.

        Returns:
            Its resources; None if shards are no longer accepted.

        Raises:
            ConfigError: this process has other code.
        """
        if (changed := find_changed_module(self.digests)) is not None:
            raise ConfigError(
                f"module {changed!r} differs between the process that prepares a shard and the one that started the preparation; "
                f"install the same code everywhere, and prepare the dataset again"
            )
        stored = StoredDataset(self.factory.storage_connector, self.factory._check_definition())
        if not stored.wants_shards(self.opening):
            return None
        name, value = shard
        prepared = ShardResources(stored, self.opening)
        try:
            if self.has_shards:
                self.factory.prepare_shard(value, self.raw, prepared)
            else:
                self.factory.preprocess(self.raw, prepared)
            prepared.check_wanted()  # see open_shards
        except BaseException as error:
            prepared.discard()
            if isinstance(error, Superseded):
                return None
            raise
        return prepared.step_of(name, prepared)


class ShardResources(PreparedResources):
    """The resources of one attempt at a shard, under temporary names; an interrupted attempt starts over."""

    def __init__(self, stored: StoredDataset, opening: str) -> None:
        super().__init__(stored, Journal(""), hold=True, progress=False)
        self._opening = opening

    def publish(self) -> None:
        raise ConfigError("the resources of a shard are published by the process that prepares the dataset")

    def check_wanted(self) -> None:
        """Stop if shards are no longer accepted."""
        if not self.stored.wants_shards(self._opening):
            raise Superseded

    def note(self, done: Step) -> None:
        """A shard has no steps."""
