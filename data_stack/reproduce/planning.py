"""``data_stack.plan``: what loading a dataset would do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from data_stack.exception import ConfigError, DataStackError, LicenceDeniedError
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.stored import Readiness, StoredDataset
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.inquiry import ask_sources
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.cached import uncached
from data_stack.io.storage_connectors.connector import ResourceInfo
from data_stack.repository.default_storage import Storage, as_storage_connector, check_there
from data_stack.repository.repository import default_repository
from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph, Table, size_text
from data_stack.util.distributions import distributions_of


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A source of a dataset.

    Attributes:
        identifier: relative to the dataset.
        size: bytes; None if unknown.
        is_stored: whether the store has it; its bytes are compared with its digest when it is used.
        source: the first of its sources that answers; None if it is stored, or if no source answers.
        refusals: ``(source, reason)`` of each source that did not answer.
    """

    identifier: str
    size: int | None
    is_stored: bool
    source: str | None
    refusals: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Plan(Document):
    """What loading a dataset would do. It prints as text, and shows as HTML in a notebook.

    Attributes:
        name: of the dataset.
        version: of its prepared data; None for a legacy factory.
        storage: the store.
        is_ready: whether the dataset is prepared, and would only be opened.
        reason: why stored data cannot be used; None if nothing is stored, or it can.
        sources: what would be retrieved; empty if the dataset is ready.
        steps: what would be done, in order.
        bytes_free: on the disk of the store; None for stores that are not folders.
        licence: of the card; None if it names no licence.
        code: the package whose code would run, ``"datastack-digits 1.0.0"``.
        problems: why loading would fail; empty if no problem is known.
    """

    name: str
    version: str | None
    storage: str
    code: str
    licence: str | None
    steps: tuple[str, ...]
    is_ready: bool = False
    reason: str | None = None
    sources: tuple[PlannedSource, ...] = ()
    bytes_free: int | None = None
    problems: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether no problem is known."""
        return not self.problems

    @property
    def bytes_to_fetch(self) -> int | None:
        """Bytes of the sources that are missing in the store; None if one size is unknown."""
        sizes = [source.size for source in self.sources if not source.is_stored]
        return None if None in sizes else sum(filter(None, sizes))

    def document(self, level: int = 1) -> list[Block]:
        facts = [
            ("storage", self.storage),
            ("prepared", "yes" if self.is_ready else "no" if self.reason is None else f"no: {self.reason}"),
            ("steps", ", ".join(self.steps)),
            ("to fetch", _size(self.bytes_to_fetch)),
            ("free on disk", _size(self.bytes_free)),
            ("licence", self.licence or "unknown"),
            ("executes code from", self.code),
        ]
        blocks: list[Block] = [Heading(level, f"Plan of {self.name} {self.version or ''}".rstrip()), Facts(facts)]
        if self.sources:
            rows = [
                (each.identifier, _size(each.size), "the store" if each.is_stored else each.source or "no source answers")
                for each in self.sources
            ]
            blocks.append(Table(("source", "size", "from"), rows, frozenset({1})))
        blocks += [Paragraph(f"No answer from {place}: {reason}") for each in self.sources for place, reason in each.refusals]
        return [*blocks, *(Paragraph(f"Problem: {problem}") for problem in self.problems)]


def plan(
    name: str,
    storage: Storage | None = None,
    *,
    offline: bool | None = None,
    timeout_seconds: float = 10.0,
    **config: Any,
) -> Plan:
    """Find out what loading a dataset would retrieve, run and need; nothing is written.

    ::

        print(data_stack.plan("mnist", storage="/data/sets"))

    Requests the first bytes of each source that is missing in the store, and its mirrors if the source does not answer.

    Args:
        name: as for :func:`data_stack.load`, like ``storage`` and ``config``.
        storage: where the dataset would be kept.
        offline: use no network; None reads ``DATA_STACK_OFFLINE``.
        timeout_seconds: longest silence of a source.
        config: further options of the dataset.

    Raises:
        DatasetNotFoundError, AmbiguousDatasetError, PluginError: the dataset is unknown, or its plugin is broken.
        ConfigError: ``storage`` is not a store. StorageError: the store cannot be read.
    """
    connector = as_storage_connector(storage)
    check_there(connector, may_be_new=True)
    dataset = default_repository().resolve(name, connector)
    description, factory = dataset.describe(), dataset.factory
    module = type(factory).__module__
    base = Plan(
        name=name,
        version=description.version,
        storage=repr(connector),
        code=", ".join(distributions_of(module.partition(".")[0])) or module,
        licence=description.license,
        steps=(f"{type(factory).__qualname__}.get_dataset_iterator, whose steps are not known",),
        bytes_free=_free_bytes(connector),
        problems=_problem(LicenceDeniedError, dataset.check_licence),
    )
    if not isinstance(factory, DatasetFactory):
        return base
    definition = DatasetDefinition(factory, DatasetFactory)
    base = replace(base, problems=base.problems + _problem(ConfigError, lambda: definition.check_config(config)))
    readiness = factory.readiness()
    if readiness.manifest is not None or factory.is_ready():
        return replace(base, is_ready=True, steps=("open",))
    return _unprepared(base, StoredDataset(connector, definition), readiness, offline, timeout_seconds)


def _unprepared(base: Plan, stored: StoredDataset, readiness: Readiness, offline: bool | None, timeout_seconds: float) -> Plan:
    """The plan of a dataset that is not ready; asks the sources that are not stored."""
    definition, connector = stored.definition, stored.connector
    known = {each.identifier: _stored_source(stored, each) for each in definition.sources}
    missing = [each for each in definition.sources if known[each.identifier] is None]
    answers = ask_sources(missing, offline=offline, timeout_seconds=timeout_seconds) if missing else []
    sources = [PlannedSource(name, info.size, True, None, ()) for name, info in known.items() if info is not None]
    for each, answer in zip(missing, answers, strict=True):
        sources.append(PlannedSource(each.identifier, answer.size, False, answer.source, answer.refusals))
    steps = [f"retrieve {len(missing)} of {len(sources)} sources"] if missing else []
    if definition.has_preprocess:
        what = "prepare in shards" if definition.has_shards else "preprocess"
        steps.append(f"resume: {what}" if readiness.resumes else what)
    planned = replace(base, reason=readiness.reason, sources=tuple(sources), steps=(*steps, "open"))
    problems = [f"no source of {each.identifier!r} answers" for each in sources if not each.is_stored and each.source is None]
    free, needed = planned.bytes_free, planned.bytes_to_fetch
    if free is not None and (needed or 0) > free:
        problems.append(
            f"{connector!r} needs {_size(needed)}, but its disk has {_size(free)} free; make room, or use another store"
        )
    return replace(planned, problems=(*planned.problems, *problems))


def _problem(kind: type[DataStackError], check: Callable[[], object]) -> tuple[str, ...]:
    """The message of the error that a check raises; empty if it passes."""
    try:
        check()
    except kind as error:
        return (str(error),)
    return ()


def _stored_source(stored: StoredDataset, definition: ResourceDefinition) -> ResourceInfo | None:
    """The stored source; None if it is missing, or has another size or recorded digest."""
    info = stored.stat(definition.identifier)
    if info is None or definition.size not in (None, info.size):
        return None
    return None if None not in (definition.sha256, info.sha256) and definition.sha256 != info.sha256 else info


def _free_bytes(connector: StorageConnector) -> int | None:
    """Free bytes of the disk of a folder, which may not exist yet; None for other stores."""
    connector = uncached(connector)
    if not isinstance(connector, FileStorageConnector):
        return None
    folder = connector.root_path
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


def _size(n_bytes: int | None) -> str:
    return "unknown" if n_bytes is None else size_text(n_bytes)
