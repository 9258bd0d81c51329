"""Prepares a dataset shard by shard, in this process or as tasks of an engine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from data_stack.engines.engine import PreparationEngine
from data_stack.exception import ConfigError
from data_stack.factories.code_digest import find_changed_module, module_digests
from data_stack.factories.journal import WHOLE, Journal, Step
from data_stack.factories.prepared import PreparedResources, Resources, Superseded
from data_stack.factories.stored import StoredDataset
from data_stack.io.progress import with_bar

#: Shards are named in messages and in the journal by up to this many characters of their values.
_MAX_SHOWN_CHARACTERS = 60

#: Openings of which this process has the same code. It has loaded that code, so it does not read
#: its files again for each shard.
_compared_openings: set[str] = set()


def prepare_in_turn(factory: Any, raw: Resources, prepared: PreparedResources) -> None:
    """Prepare all shards in this process; takes over those that an interrupted engine completed."""
    shards = _list_shards(factory, raw)
    for name in prepared.steps(shards):
        factory.prepare_shard(shards[name], raw, prepared)
    _finish(factory, raw, prepared)


def prepare_by(
    engine: PreparationEngine, factory: Any, raw: Resources, prepared: PreparedResources
) -> None:
    """Prepare all shards that are not done as tasks of an engine.

    All resources are published together. A dataset without shards is one task.

    Raises:
        TaskError: a shard could not be prepared.
        ConfigError: invalid shards, two shards made the same resource, or tasks see another store
            than this process.
    """
    started_at = time.perf_counter()
    stored = prepared.stored
    has_shards = stored.definition.has_shards
    shards = {WHOLE: None}
    if has_shards:
        shards = _list_shards(factory, raw)

    # The tasks that are left; each gets the name and the value of its shard.
    opening = stored.open_shards(prepared.journal.attempt)
    tasks = {}
    for name, value in shards.items():
        if prepared.step_that_made(name) is None:
            tasks[name] = (name, value)
    work = _ShardWork(factory, raw, opening, module_digests(factory))
    try:
        _run_tasks(engine, work, tasks, prepared, n_shards=len(shards))
    except (Exception, KeyboardInterrupt):
        # The next preparation takes over what was done. (If another process has prepared the
        # dataset, Superseded is raised, which is neither of these; then no journal is needed.)
        stored.write_journal(prepared.journal)
        raise
    stored.write_journal(prepared.journal)

    for name in shards:
        _take_over(name, prepared)

    # The report names a single shard, and counts several.
    title = f"{len(shards)} shards"
    if len(shards) == 1:
        (title,) = shards
    prepared.timings.append((title, time.perf_counter() - started_at))
    if has_shards:
        _finish(factory, raw, prepared)


def _run_tasks(
    engine: PreparationEngine,
    work: _ShardWork,
    tasks: Mapping[str, tuple[str, Any]],
    prepared: PreparedResources,
    *,
    n_shards: int,
) -> None:
    """Run tasks by an engine, and note each finished one.

    Raises:
        Superseded: shards of this preparation are no longer accepted.
        ConfigError: a task has stored its resources where this process cannot see them.
    """
    if not tasks:
        # An engine is not started for nothing.
        return
    dataset_name = prepared.stored.definition.card.name
    results = engine.run(work, tasks, title=f"preparing {dataset_name}")
    with contextlib.closing(results):
        finished: Iterable[tuple[str, Step | None]] = with_bar(
            results,
            prepared.shows_progress,
            desc=f"{dataset_name}: preparing",
            unit="shard",
            total=n_shards,
            initial=n_shards - len(tasks),
        )
        for task, step in finished:
            if step is not None:
                prepared.note(step)
            if prepared.step_that_made(task) is None:
                raise _error_of_missing_resources(task, prepared.stored, work.opening)


def _error_of_missing_resources(
    task: str, stored: StoredDataset, opening: str
) -> Superseded | ConfigError:
    """Return why this process does not see the resources that a task has made."""
    if not stored.wants_shards(opening):
        # Another process has prepared the dataset.
        return Superseded()
    return ConfigError(
        f"the resources of {task} of {stored.folder!r} are not in {stored.connector!r}. All "
        f"machines that run tasks must reach the same store by the same name: a shared folder, "
        f"MongoDB or an object store"
    )


def _take_over(name: str, prepared: PreparedResources) -> None:
    """Take over the resources of a finished shard."""
    try:
        is_complete = prepared.take_over(name)
    except ConfigError as error:
        raise ConfigError(f"{error}. {name} made it too; shards need distinct names") from error
    if not is_complete:
        # Another process that works without a lease has replaced the resources.
        raise Superseded


def _list_shards(factory: Any, raw: Resources) -> dict[str, Any]:
    """Return the values of an author's ``preparation_shards`` by their names.

    A name is for messages and the journal: ``shard {"file": "part-0"}``. The values go through JSON
    (tuples become lists), so that they are the same wherever the shard is prepared.

    Raises:
        ConfigError: they are not a list, or a value is not plain JSON data, or occurs twice.
    """
    method = f"preparation_shards() of {type(factory).__qualname__}"
    values = factory.preparation_shards(raw)
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise ConfigError(f"{method} must return a list of plain JSON values, got {values!r:.80}")
    shards: dict[str, Any] = {}
    for value in values:
        try:
            text = json.dumps(value, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{method} must return plain JSON values ({error}): {value!r:.80}"
            ) from error
        name = _shard_name(text)
        if name in shards:
            raise ConfigError(f"{method} returned one shard twice: {text:.200}")
        shards[name] = json.loads(text)
    return shards


def _shard_name(text: str) -> str:
    """Return the name of a shard, given its value as JSON; a long one ends with a digest."""
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return f"shard {text}"
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    return f"shard {text[:_MAX_SHOWN_CHARACTERS]}... ({digest[:8]})"


def _finish(factory: Any, raw: Resources, prepared: PreparedResources) -> None:
    """Call the author's ``finish_preparation``."""
    try:
        factory.finish_preparation(raw, prepared)
    except Exception as error:
        if not prepared.is_whole():
            # Another process without a lease has published or removed the resources.
            raise Superseded from error
        raise


@dataclass(frozen=True, repr=False)
class _ShardWork:
    """Prepares shards in any process.

    Args:
        factory: the factory of the dataset; it pickles with its storage connector.
        raw: the sources.
        opening: token of the leading process, see :meth:`StoredDataset.open_shards`.
        digests: the digests of the modules with the author's code.
    """

    factory: Any
    raw: Resources
    opening: str
    digests: Mapping[str, str]

    def __repr__(self) -> str:
        return f"the factory {type(self.factory).__qualname__}"

    def __call__(self, shard: tuple[str, Any]) -> Step | None:
        """Prepare a shard, given by its name and value.

        Returns:
            Its resources; None if shards are no longer accepted.

        Raises:
            ConfigError: this process has other code.
        """
        self._check_code()
        stored = StoredDataset(self.factory.storage_connector, self.factory._check_definition())
        if not stored.wants_shards(self.opening):
            return None
        name, value = shard
        # An interrupted attempt at a shard starts over, so its journal is empty. The leading
        # process publishes what a complete attempt made.
        prepared = PreparedResources(
            stored, Journal(""), hold=True, progress=False, opening=self.opening
        )
        try:
            if stored.definition.has_shards:
                self.factory.prepare_shard(value, self.raw, prepared)
            else:
                self.factory.preprocess(self.raw, prepared)
            # After the last resource was stored, see open_shards().
            prepared.check_wanted()
        except Superseded:
            prepared.discard()
            return None
        except BaseException:
            prepared.discard()
            raise
        return prepared.step_of(name, prepared)

    def _check_code(self) -> None:
        """Check that this process has the code of the one that started the preparation."""
        if self.opening in _compared_openings:
            return
        changed_module = find_changed_module(self.digests)
        if changed_module is not None:
            raise ConfigError(
                f"module {changed_module!r} differs between this process and the one that started "
                f"the preparation; install the same code everywhere, and prepare the dataset again"
            )
        _compared_openings.add(self.opening)
