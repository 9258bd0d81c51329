"""Prepares a dataset shard by shard, in this process or as tasks of an engine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from data_stack.exception import ConfigError, install_command
from data_stack.factories.code_digest import find_changed_module, module_digests
from data_stack.factories.journal import Journal, Step
from data_stack.factories.prepared import PreparedResources, Resources, Superseded
from data_stack.factories.stored import StoredDataset
from data_stack.io.progress import with_bar
from data_stack.plugins.first_party import extras_of
from data_stack.processes.engine import PreparationEngine as PreparationEngine
from data_stack.util.suggestions import did_you_mean

#: Openings of which this process has the same code; it has loaded it, so it does not read those files for each shard.
_compared: set[str] = set()


def engine_called(name: str, address: str | None = None) -> PreparationEngine:
    """Make an engine by its name; imports the plugins unless it is ``"processes"``.

    Args:
        name: ``"processes"``, or the name that a plugin gives it, such as ``"ray"``.
        address: of the cluster of a plugin's engine; None: the engine looks for one.

    Raises:
        ConfigError: there is no such engine; the message lists those that are installed, and says how to install ours.
    """
    from data_stack.distributed import ProcessEngine
    from data_stack.plugins.manager import default_manager

    if name == "processes":
        return ProcessEngine()
    engines: Mapping[str, Callable[..., PreparationEngine]] = default_manager().provided("engines")
    if name in engines:
        return engines[name](address, attempts=3)
    extras = extras_of("engines")
    known, missing = ["processes", *sorted(engines)], sorted(extras.keys() - engines.keys())
    problem = f"unknown engine {name!r:.60}{did_you_mean(name, [*known, *missing])}; known engines: {', '.join(known)}"
    raise ConfigError(
        problem + "".join(f"; {each} needs {install_command(extras[each])}" for each in missing)
    )


def prepare_in_turn(factory: Any, raw: Resources, prepared: PreparedResources) -> None:
    """Prepare all shards in this process; takes over those that an interrupted engine completed."""
    shards = _list_shards(factory, raw)
    for name in prepared.steps(shards):
        factory.prepare_shard(shards[name], raw, prepared)
    _finish(factory, raw, prepared)


def prepare_by(
    engine: PreparationEngine, factory: Any, raw: Resources, prepared: PreparedResources
) -> None:
    """Prepare all shards that are not done as tasks of an engine; all resources are published together.

    A dataset without shards is one task.

    Raises:
        TaskError: a shard could not be prepared.
        ConfigError: invalid shards, two shards made the same resource, or tasks see another store than this process.
    """
    stored, started = prepared.stored, time.perf_counter()
    has_shards, name = stored.definition.has_shards, stored.definition.card.name
    shards = _list_shards(factory, raw) if has_shards else {"preprocess()": None}
    opening = stored.open_shards(prepared.journal.attempt)
    left = {
        each: (each, value)
        for each, value in shards.items()
        if prepared.step_that_made(each) is None
    }
    work = _ShardWork(factory, raw, opening, module_digests(factory))
    running: Any = contextlib.nullcontext(())  # an engine is not started for no tasks
    if left:
        running = contextlib.closing(engine.run(work, left, title=f"preparing {name}"))
    try:
        with running as results:
            for task, done in with_bar(
                results,
                prepared.shows_progress,
                desc=f"{name}: preparing",
                unit="shard",
                total=len(shards),
                initial=len(shards) - len(left),
            ):
                if done is not None:
                    prepared.note(done)
                if done is not None and prepared.step_that_made(task) is not None:
                    continue
                if not stored.wants_shards(opening):
                    raise Superseded  # another process has prepared the dataset
                advice = "must reach the same store by the same name: a shared folder, MongoDB or an object store"
                problem = (
                    f"the resources of {task} of {stored.folder!r} are not in {stored.connector!r}"
                )
                raise ConfigError(f"{problem}. All machines that run tasks {advice}")
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
    if has_shards:
        _finish(factory, raw, prepared)


def _list_shards(factory: Any, raw: Resources) -> dict[str, Any]:
    """The shards of an author's ``preparation_shards``, by names for messages and the journal: ``shard {"file": "part-0"}``.

    Values go through JSON (tuples become lists), so that they are the same wherever the shard is prepared.

    Raises:
        ConfigError: it is not a list, or a value is not plain JSON data, or occurs twice.
    """
    who, values = (
        f"preparation_shards() of {type(factory).__qualname__}",
        factory.preparation_shards(raw),
    )
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise ConfigError(f"{who} must return a list of plain JSON values, got {values!r:.80}")
    shards: dict[str, Any] = {}
    for value in values:
        try:
            text = json.dumps(value, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{who} must return plain JSON values ({error}): {value!r:.80}"
            ) from error
        shown = (
            text
            if len(text) <= 60
            else f"{text[:60]}... ({hashlib.sha256(text.encode('ascii')).hexdigest()[:8]})"
        )
        if f"shard {shown}" in shards:
            raise ConfigError(f"{who} returned one shard twice: {text:.200}")
        shards[f"shard {shown}"] = json.loads(text)
    return shards


def _finish(factory: Any, raw: Resources, prepared: PreparedResources) -> None:
    """Call the author's ``finish_preparation``."""
    try:
        factory.finish_preparation(raw, prepared)
    except Exception as error:
        if not prepared.is_whole():
            raise Superseded from error  # another process without a lease has published or removed the resources
        raise


@dataclass(frozen=True, repr=False)
class _ShardWork:
    """Prepares shards in any process.

    Args:
        factory: of the dataset; it pickles with its storage connector.
        raw: the sources.
        opening: token of the leading process, see :meth:`StoredDataset.open_shards`.
        digests: of the modules with the author's code.
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
        if (
            self.opening not in _compared
            and (changed := find_changed_module(self.digests)) is not None
        ):
            advice = "install the same code everywhere, and prepare the dataset again"
            raise ConfigError(
                f"module {changed!r} differs between this process and the one that started the preparation; {advice}"
            )
        _compared.add(self.opening)
        stored = StoredDataset(self.factory.storage_connector, self.factory._check_definition())
        if not stored.wants_shards(self.opening):
            return None
        name, value = shard
        # An interrupted attempt starts over; the leading process publishes what a complete one made.
        prepared = PreparedResources(
            stored, Journal(""), hold=True, progress=False, opening=self.opening
        )
        try:
            if stored.definition.has_shards:
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
