"""Prepares a dataset shard by shard: one after the other in this process, or as the tasks of an engine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from data_stack.dataset.code_digest import find_changed_module, module_digests
from data_stack.dataset.engine import PreparationEngine, ShardAuthor
from data_stack.dataset.journal import Journal, Step
from data_stack.dataset.prepared import PreparedResources, Resources, Superseded
from data_stack.dataset.stored import StoredDataset
from data_stack.exception import ConfigError
from data_stack.io.progress import with_bar
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.util.logger import logger

__all__ = ["EnginePreparation", "Shard", "check_shards", "prepare_in_turn"]

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Shard:
    """An independent part of a preparation.

    Attributes:
        value: what the author describes it by, plain JSON data.
        digest: 64 hex digits that name it, of its value alone.
        name: for people, e.g. ``shard {"file": "raw/part-0.csv"}``.
    """

    value: Any
    digest: str
    name: str


def check_shards(values: Any, who: str) -> tuple[Shard, ...]:
    """The shards that an author's ``preparation_shards`` gave.

    Each value is what becomes of it as JSON (tuples become lists), so that it is the same wherever the shard is prepared.

    Raises:
        ConfigError: it is no list, or one of them is no plain JSON data, or there twice.
    """
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise ConfigError(f"preparation_shards() of {who} must return a list of plain JSON values, got {values!r:.80}")
    shards: dict[str, Shard] = {}
    for value in values:
        try:
            text = json.dumps(value, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"preparation_shards() of {who} gave a shard that is no plain JSON data ({error}): {value!r:.80}; use numbers of "
                f"Python's, strings, None, lists and dicts"
            ) from error
        digest = hashlib.sha256(text.encode("ascii")).hexdigest()
        if digest in shards:
            raise ConfigError(f"preparation_shards() of {who} gave one shard twice: {text:.200}")
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({digest[:8]})"
        shards[digest] = Shard(json.loads(text), digest, f"shard {shown}")
    return tuple(shards.values())


def prepare_in_turn(factory: ShardAuthor, raw: Resources, prepared: PreparedResources) -> None:
    """Prepare all shards in this process; those that an engine has completed before it was interrupted are taken over."""
    shards = check_shards(factory.preparation_shards(raw), type(factory).__qualname__)
    by_name = {shard.name: shard for shard in shards}
    for name in prepared.steps(by_name):
        factory.prepare_shard(by_name[name].value, raw, prepared)
    _finish(factory, raw, prepared)


def _finish(factory: ShardAuthor, raw: Resources, prepared: PreparedResources) -> None:
    """Let the author finish what all shards made."""
    try:
        factory.finish_preparation(raw, prepared)
    except Exception as error:
        if not prepared.is_whole():
            raise Superseded from error  # another process that works without a lease has published or removed what it reads
        raise


class EnginePreparation:
    """Does what ``preprocess`` does, by the tasks of an engine.

    A dataset that has no shards is one task: its ``preprocess``.

    Args:
        factory: of the dataset.
        engine: runs the tasks.
        has_shards: whether it has any.

    Raises:
        ConfigError: the tasks cannot reach the store of the factory.
    """

    def __init__(self, factory: ShardAuthor, engine: PreparationEngine, *, has_shards: bool) -> None:
        self._factory, self._engine, self._has_shards = factory, engine, has_shards
        if engine.leaves_process and isinstance(factory.storage_connector, InMemoryStorageConnector):
            raise ConfigError(
                f"{type(engine).__name__} prepares in other processes, which cannot store anything in the memory of this one "
                f"({factory.storage_connector!r}): use a folder or a server, or no engine"
            )

    def __call__(self, raw: Resources, prepared: PreparedResources) -> None:
        """Prepare what is not prepared yet. What the shards made is published with all the rest, when that is there.

        Raises:
            TaskError: a shard could not be prepared.
            ConfigError: the shards are none, two of them make the same resource, or tasks see another store than this process.
        """
        factory, stored = self._factory, prepared.stored
        if self._has_shards:
            shards = check_shards(factory.preparation_shards(raw), type(factory).__qualname__)
        else:
            shards = (Shard(None, hashlib.sha256(b"preprocess()").hexdigest(), "preprocess()"),)
        name, started = stored.definition.card.name, time.perf_counter()
        opening = stored.open_shards(prepared.fingerprint)
        left = {shard.name: shard for shard in shards if prepared.step_that_made(shard.name) is None}
        n_done = len(shards) - len(left)
        if n_done:
            logger.info("dataset %r: %d of %d shards were prepared before", name, n_done, len(shards))
        work = ShardWork(
            factory,
            raw,
            opening,
            module_digests(factory),
            folder=stored.definition.folder,
            has_shards=self._has_shards,
        )
        bar = {"desc": f"{name}: preparing", "unit": "shard", "total": len(shards), "initial": n_done}
        try:
            with contextlib.closing(self._results(work, left, name)) as results:
                for task, done in with_bar(results, prepared.shows_progress, **bar):
                    if done is not None:
                        prepared.note(done)
                    if done is None or prepared.step_that_made(task) is None:
                        self._explain(opening, task, prepared)
        except (Exception, KeyboardInterrupt):
            stored.write_journal(prepared.journal)
            raise
        stored.write_journal(prepared.journal)
        _check_apart(shards, prepared)
        for shard in shards:
            if not prepared.take_over(shard.name):
                self._explain(opening, shard.name, prepared)
        prepared.timings.append((f"{len(shards)} shards" if len(shards) != 1 else shards[0].name, time.perf_counter() - started))
        if self._has_shards:
            _finish(factory, raw, prepared)

    def _results(self, work: ShardWork, left: dict[str, Shard], name: str) -> Generator[tuple[str, Step | None], None, None]:
        if left:
            yield from self._engine.run(work, left, title=f"data-stack: preparing {name}")

    @staticmethod
    def _explain(opening: str, task: str, prepared: PreparedResources) -> NoReturn:
        """A task did not leave what it should have left."""
        if not prepared.stored.wants_shards(opening):
            raise Superseded  # another process has prepared the dataset meanwhile, and cleaned up
        raise ConfigError(
            f"what {task} of dataset {prepared.stored.definition.card.name!r} stored is not in {prepared.stored.connector!r} "
            f"as this process sees it, or the task does not see what this process stored. All machines that run tasks must reach "
            f"the same store under the same name: a shared folder, MongoDB or an object store"
        )


class ShardWork:
    """One attempt at a shard, in whatever process.

    Args:
        factory: of the dataset; it is sent with its storage connector.
        raw: the sources.
        opening: of the preparation, by the process that leads.
        digests: of the modules with the author's code.
        folder: where the dataset lies in the store.
        has_shards: False where ``preprocess`` is the one shard.
    """

    def __init__(
        self,
        factory: ShardAuthor,
        raw: Resources,
        opening: str,
        digests: Mapping[str, str],
        *,
        folder: str,
        has_shards: bool,
    ) -> None:
        self._factory, self._raw, self._has_shards = factory, raw, has_shards
        self._opening, self._digests, self._folder = opening, digests, folder

    def __repr__(self) -> str:
        return f"the factory {type(self._factory).__qualname__}"

    def __call__(self, shard: Shard) -> Step | None:
        """Prepare the shard.

        Returns:
            What it consists of; None if it is not wanted any more.

        Raises:
            ConfigError: the code is another one in this process.
        """
        if (changed := find_changed_module(self._digests)) is not None:
            raise ConfigError(
                f"module {changed!r} is another one where the shard is to be prepared than where the preparation was begun: it "
                f"was edited meanwhile, or another version of its package is installed there. Prepare the dataset again with the "
                f"same code everywhere"
            )
        definition = replace(self._factory._check_definition(), folder=self._folder)
        stored = StoredDataset(self._factory.storage_connector, definition)
        if not stored.wants_shards(self._opening):
            return None
        prepared = ShardResources(stored, self._opening)
        try:
            if self._has_shards:
                self._factory.prepare_shard(shard.value, self._raw, prepared)
            else:
                self._factory.preprocess(self._raw, prepared)
            prepared.check_wanted()  # after all of it was stored: either it is removed with the rest, or here
        except Superseded:
            prepared.discard()
            return None
        except BaseException:
            prepared.discard()
            raise
        return prepared.step_of(shard.name, prepared)


class ShardResources(PreparedResources):
    """What one attempt at a shard has made so far: nothing else of the dataset is seen, and nothing has its own name yet.

    No step is noted: an attempt that was broken off is begun again.
    """

    def __init__(self, stored: StoredDataset, opening: str) -> None:
        super().__init__(stored, Journal(""), hold=True, progress=False)
        self._opening = opening

    def publish(self) -> None:
        raise ConfigError("the resources of a shard are published by the process that prepares the dataset")

    def check_wanted(self) -> None:
        """Go no further if the shard is not wanted any more."""
        if not self._stored.wants_shards(self._opening):
            raise Superseded

    def note(self, done: Step) -> None:
        """An attempt is done as a whole."""


def _check_apart(shards: Sequence[Shard], prepared: PreparedResources) -> None:
    """Refuse two shards that make the same resource."""
    makers: dict[str, Shard] = {}
    for shard in shards:
        step = prepared.journal.step(shard.name)
        for record in () if step is None else step.resources:
            name = record.identifier
            other = makers.setdefault(name.casefold(), shard)
            if other is not shard:
                raise ConfigError(f"both {other.name} and {shard.name} make the resource {name!r}; each needs names of its own")
