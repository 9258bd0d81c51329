"""Plans what loading a dataset would do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from data_stack.exception import ConfigError, DataStackError, LicenseDeniedError
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.readiness import Readiness
from data_stack.factories.stored import StoredDataset
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.planned_source import PlannedSource, ask_sources
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import ResourceInfo
from data_stack.repository.default_storage import Storage, as_storage_connector, check_there
from data_stack.repository.repository import default_repository
from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph, Table, size_text
from data_stack.util.distributions import distributions_of
from data_stack.util.program_lines import warn_deprecated


@dataclass(frozen=True, slots=True)
class Plan(Document):
    """A plan of what loading a dataset would do.

    It prints as text, and shows as HTML in a notebook.

    Attributes:
        name: the name of the dataset.
        version: the version of the prepared data; None for a legacy factory.
        storage: the store, as text.
        is_ready: whether the dataset is prepared, and would only be opened.
        reason: why stored data cannot be used; None if they can be used, or nothing is stored.
        sources: the sources of the dataset; empty if the dataset is ready.
        steps: what would be done, in order.
        bytes_free: free bytes on the disk of the store; None for stores that are not folders.
        license: the license in the card; None if the card names none.
        code: the package whose code would run, ``"lazy-data-stack-digits 0.2.0"``.
        problems: why loading would fail; empty if no problem is known.
    """

    name: str
    version: str | None
    storage: str
    code: str
    license: str | None
    steps: tuple[str, ...]
    is_ready: bool = False
    reason: str | None = None
    sources: tuple[PlannedSource, ...] = ()
    bytes_free: int | None = None
    problems: tuple[str, ...] = ()

    @property
    def licence(self) -> str | None:
        """Return :attr:`license`, by the name that it had before version 0.2."""
        warn_deprecated("plan.licence", instead="plan.license", since="0.2", removed_in="1.0")
        return self.license

    @property
    def works(self) -> bool:
        """Whether no problem is known."""
        return not self.problems

    @property
    def bytes_to_fetch(self) -> int | None:
        """Bytes of the sources that are missing in the store; None if one size is unknown."""
        n_bytes = 0
        for source in self.sources:
            if source.is_stored:
                continue
            if source.size is None:
                return None
            n_bytes += source.size
        return n_bytes

    def document(self, level: int = 1) -> list[Block]:
        """Return facts, sources and problems."""
        prepared = "no"
        if self.is_ready:
            prepared = "yes"
        elif self.reason is not None:
            prepared = f"no: {self.reason}"
        facts = [
            ("storage", self.storage),
            ("prepared", prepared),
            ("steps", ", ".join(self.steps)),
            ("to fetch", size_text(self.bytes_to_fetch)),
            ("free on disk", size_text(self.bytes_free)),
            ("license", self.license or "unknown"),
            ("executes code from", self.code),
        ]
        title = f"Plan of {self.name} {self.version or ''}".rstrip()
        blocks: list[Block] = [Heading(level, title), Facts(facts)]
        if self.sources:
            blocks.append(_table_of_sources(self.sources))
        for source in self.sources:
            for place, reason in source.refusals:
                blocks.append(Paragraph(f"No answer from {place}: {reason}"))
        for problem in self.problems:
            blocks.append(Paragraph(f"Problem: {problem}"))
        return blocks


def _table_of_sources(sources: tuple[PlannedSource, ...]) -> Table:
    """Return the size of each source, and where it would come from."""
    rows = []
    for source in sources:
        place = source.source or "no source answers"
        if source.is_stored:
            place = "the store"
        rows.append((source.identifier, size_text(source.size), place))
    return Table(("source", "size", "from"), rows, frozenset({1}))


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

    Requests the first bytes of each source that is missing in the store, and its mirrors if the
    source does not answer.

    Args:
        name: the name of the dataset, as for :func:`data_stack.load`.
        storage: where the dataset would be kept: a connector, a path or a URL; None for the default
            store.
        offline: use no network; None reads ``DATA_STACK_OFFLINE``.
        timeout_seconds: how long a source may send nothing.
        config: further options of the dataset.

    Raises:
        DatasetNotFoundError, AmbiguousDatasetError, PluginError: the dataset is unknown, or its
            plugin is broken.
        ConfigError: ``storage`` is not a store.
        StorageError: the store cannot be read.
    """
    connector = as_storage_connector(storage)
    check_there(connector, may_be_new=True)
    dataset = default_repository().resolve(name, connector)
    description = dataset.describe()
    factory = dataset.factory
    module = type(factory).__module__
    package, _, _ = module.partition(".")
    problems = _find_problems(LicenseDeniedError, dataset.check_license)
    # What a legacy factory does is not known before it is called.
    step_of_legacy_factory = (
        f"{type(factory).__qualname__}.get_dataset_iterator, whose steps are not known"
    )
    partial_plan = Plan(
        name=name,
        version=description.version,
        storage=repr(connector),
        code=", ".join(distributions_of(package)) or module,
        license=description.license,
        steps=(step_of_legacy_factory,),
        bytes_free=_measure_free_bytes(connector),
        problems=tuple(problems),
    )
    if not isinstance(factory, DatasetFactory):
        return partial_plan

    definition = DatasetDefinition(factory, DatasetFactory)
    problems += _find_problems(ConfigError, lambda: definition.check_config(config))
    partial_plan = replace(partial_plan, problems=tuple(problems))
    readiness = factory.readiness()
    if readiness.manifest is not None or factory.is_ready():
        return replace(partial_plan, is_ready=True, steps=("open",))

    stored = StoredDataset(connector, definition)
    sources = _find_sources(stored, offline=offline, timeout_seconds=timeout_seconds)
    return _plan_preparation(partial_plan, stored, readiness, sources)


def _find_sources(
    stored: StoredDataset, *, offline: bool | None, timeout_seconds: float
) -> tuple[PlannedSource, ...]:
    """Find the sources that the store has, and ask for the first bytes of all others."""
    sources = []
    missing = []
    for definition in stored.definition.sources:
        info = stored.stat(definition.identifier)
        if info is not None and _may_be_source(info, definition):
            sources.append(PlannedSource(definition.identifier, info.size, is_stored=True))
        else:
            missing.append(definition)
    if missing:
        sources += ask_sources(missing, offline=offline, timeout_seconds=timeout_seconds)
    return tuple(sources)


def _may_be_source(info: ResourceInfo, definition: ResourceDefinition) -> bool:
    """Return whether a stored resource has the size and the digest of a source, if known."""
    has_size = definition.size is None or definition.size == info.size
    is_digest_unknown = definition.sha256 is None or not info.sha256
    return has_size and (is_digest_unknown or definition.sha256 == info.sha256)


def _plan_preparation(
    partial_plan: Plan,
    stored: StoredDataset,
    readiness: Readiness,
    sources: tuple[PlannedSource, ...],
) -> Plan:
    """Add steps and problems to the plan of a dataset that is not ready.

    Args:
        partial_plan: the plan without steps and without problems of sources.
        stored: the dataset in its store.
        readiness: why the dataset is not ready.
        sources: the sources of the dataset.
    """
    missing = [source for source in sources if not source.is_stored]
    steps = []
    if missing:
        steps.append(f"retrieve {len(missing)} of {len(sources)} sources")
    if stored.definition.has_preprocess:
        step = "prepare in shards" if stored.definition.has_shards else "preprocess"
        steps.append(f"resume: {step}" if readiness.resumes else step)
    steps.append("open")
    planned = replace(partial_plan, reason=readiness.reason, sources=sources, steps=tuple(steps))

    problems = list(partial_plan.problems)
    for source in missing:
        if source.source is None:
            problems.append(f"no source of {source.identifier!r} answers")
    n_free = planned.bytes_free
    n_needed = planned.bytes_to_fetch
    if n_free is not None and n_needed is not None and n_needed > n_free:
        problems.append(
            f"{stored.connector!r} needs {size_text(n_needed)}, its disk has {size_text(n_free)} "
            f"free; make room, or use another store"
        )
    return replace(planned, problems=tuple(problems))


def _find_problems(error_class: type[DataStackError], check: Callable[[], object]) -> list[str]:
    """Return the message of the error that a check raises; nothing if it passes."""
    try:
        check()
    except error_class as error:
        return [str(error)]
    return []


def _measure_free_bytes(connector: StorageConnector) -> int | None:
    """Return the free bytes of a folder's disk; None for other stores."""
    connector = uncached(connector)
    if not isinstance(connector, FileStorageConnector):
        return None
    folder = connector.root_path
    # The folder may not exist yet.
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free
