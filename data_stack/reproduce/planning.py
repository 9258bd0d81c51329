"""Datasets by their names: what loading one would do, what a prepared one holds."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from data_stack.exception import ConfigError, DataStackError, LicenseDeniedError
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import Manifest
from data_stack.factories.readiness import Readiness
from data_stack.factories.stored import StoredDataset
from data_stack.io.retriever.planned_source import PlannedSource, ask_sources
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.repository.default_storage import Storage, as_storage_connector, check_there
from data_stack.repository.description import DatasetDescription
from data_stack.repository.places import Place
from data_stack.repository.repository import default_repository
from data_stack.reproduce.duplicates import DuplicatesReport, find_duplicates
from data_stack.show.iterator_report import DatasetIteratorReport
from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph, Table, size_text
from data_stack.show.plain_report import plain_report
from data_stack.show.report_tables import kind_of
from data_stack.show.reporting import DatasetIteratorReportGenerator
from data_stack.util.distributions import distributions_of
from data_stack.util.program_lines import warn_deprecated


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
        license: of the card; None if it names no license.
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
        sizes = [source.size for source in self.sources if not source.is_stored]
        return None if None in sizes else sum(filter(None, sizes))

    def document(self, level: int = 1) -> list[Block]:
        facts = [
            ("storage", self.storage),
            (
                "prepared",
                "yes" if self.is_ready else "no" if self.reason is None else f"no: {self.reason}",
            ),
            ("steps", ", ".join(self.steps)),
            ("to fetch", size_text(self.bytes_to_fetch)),
            ("free on disk", size_text(self.bytes_free)),
            ("license", self.license or "unknown"),
            ("executes code from", self.code),
        ]
        blocks: list[Block] = [
            Heading(level, f"Plan of {self.name} {self.version or ''}".rstrip()),
            Facts(facts),
        ]
        if self.sources:
            places = [
                "the store" if each.is_stored else each.source or "no source answers"
                for each in self.sources
            ]
            rows = [
                (each.identifier, size_text(each.size), place)
                for each, place in zip(self.sources, places, strict=True)
            ]
            blocks.append(Table(("source", "size", "from"), rows, frozenset({1})))
        blocks += [
            Paragraph(f"No answer from {place}: {reason}")
            for each in self.sources
            for place, reason in each.refusals
        ]
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

    Requests the first bytes of each source that is missing in the store, and its mirrors if the
    source does not answer.

    Args:
        name: as for :func:`data_stack.load`, like ``storage`` and ``config``.
        storage: where the dataset would be kept.
        offline: use no network; None reads ``DATA_STACK_OFFLINE``.
        timeout_seconds: longest silence of a source.
        config: further options of the dataset.

    Raises:
        DatasetNotFoundError, AmbiguousDatasetError, PluginError: the dataset is unknown, or its
            plugin is broken.
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
        license=description.license,
        steps=(f"{type(factory).__qualname__}.get_dataset_iterator, whose steps are not known",),
        bytes_free=_free_bytes(connector),
        problems=_problem(LicenseDeniedError, dataset.check_license),
    )
    if not isinstance(factory, DatasetFactory):
        return base
    definition = DatasetDefinition(factory, DatasetFactory)
    base = replace(
        base,
        problems=base.problems + _problem(ConfigError, lambda: definition.check_config(config)),
    )
    readiness = factory.readiness()
    if readiness.manifest is not None or factory.is_ready():
        return replace(base, is_ready=True, steps=("open",))
    return _unprepared(
        base, StoredDataset(connector, definition), readiness, offline, timeout_seconds
    )


def _unprepared(
    base: Plan,
    stored: StoredDataset,
    readiness: Readiness,
    offline: bool | None,
    timeout_seconds: float,
) -> Plan:
    """The plan of a dataset that is not ready; asks the sources that are not stored."""
    definition, connector = stored.definition, stored.connector
    known: dict[str, Any] = {}
    for each in definition.sources:
        info = stored.stat(each.identifier)
        is_same = (
            info is not None
            and each.size in (None, info.size)
            and each.sha256 in (None, info.sha256 or each.sha256)
        )
        known[each.identifier] = info if is_same else None
    missing = [each for each in definition.sources if known[each.identifier] is None]
    sources = [
        PlannedSource(name, info.size, True) for name, info in known.items() if info is not None
    ]
    sources += (
        ask_sources(missing, offline=offline, timeout_seconds=timeout_seconds) if missing else []
    )
    steps = [f"retrieve {len(missing)} of {len(sources)} sources"] if missing else []
    if definition.has_preprocess:
        what = "prepare in shards" if definition.has_shards else "preprocess"
        steps.append(f"resume: {what}" if readiness.resumes else what)
    planned = replace(base, reason=readiness.reason, sources=tuple(sources), steps=(*steps, "open"))
    problems = [
        f"no source of {each.identifier!r} answers"
        for each in sources
        if not each.is_stored and each.source is None
    ]
    free, needed = planned.bytes_free, planned.bytes_to_fetch
    if free is not None and (needed or 0) > free:
        disk = f"its disk has {size_text(free)} free"
        problems.append(
            f"{connector!r} needs {size_text(needed)}, {disk}; make room, or use another store"
        )
    return replace(planned, problems=(*planned.problems, *problems))


def _problem(kind: type[DataStackError], check: Callable[[], object]) -> tuple[str, ...]:
    """The message of the error that a check raises; empty if it passes."""
    try:
        check()
    except kind as error:
        return (str(error),)
    return ()


def _free_bytes(connector: StorageConnector) -> int | None:
    """Free bytes of the disk of a folder, which may not exist yet; None for other stores."""
    connector = uncached(connector)
    if not isinstance(connector, FileStorageConnector):
        return None
    folder = connector.root_path
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


@dataclass(frozen=True, slots=True)
class DatasetReport(Document):
    """A prepared dataset. It prints as text, and shows as HTML in a notebook.

    Attributes:
        description: name, version, license and so on.
        storage: the store, without credentials.
        splits: ``iterator.report()`` of each split, by its name, in the dataset's order.
        manifest: resources with sizes and digests; None for a factory of the original DataStack.
        steps: (name, seconds), in order.
        duplicates: equal samples within and between the splits; None unless requested.
    """

    description: DatasetDescription
    storage: str
    splits: dict[str, DatasetIteratorReport]
    manifest: Manifest | None
    steps: tuple[tuple[str, float], ...]
    duplicates: DuplicatesReport | None = None

    @classmethod
    def of(
        cls,
        name: str,
        split: str | None = None,
        *,
        storage: Storage | None = None,
        config: Mapping[str, Any] | None = None,
        offline: bool | None = None,
        statistics: bool = False,
        duplicates: bool = False,
    ) -> DatasetReport:
        """Prepare a dataset if it is not ready, and read all targets and eight samples of each split.

        Args:
            name: of the dataset, as for ``data_stack.load``.
            split: the only split of the report; None for all.
            storage: the store: a connector, a path or a URL; None for the default store.
            config: further options of the dataset.
            offline: use no network; None reads ``DATA_STACK_OFFLINE``.
            statistics: read all samples for missing values, extremes, means and distinct values of
                each column.
            duplicates: read all samples, and search for equal ones.

        Raises:
            DataStackError: as ``data_stack.load`` raises.
        """
        dataset = default_repository().resolve(
            name, None if storage is None else as_storage_connector(storage)
        )
        factory: Any = None if isinstance(dataset, Place) else dataset.factory
        steps = list(factory.prepare(offline=offline).steps) if hasattr(factory, "prepare") else []
        started = time.perf_counter()
        loaded = dataset.load(split, **(config or {}))
        steps.append(("open", time.perf_counter() - started))
        splits = loaded if isinstance(loaded, dict) else {split or "all": loaded}
        started = time.perf_counter()
        generate = DatasetIteratorReportGenerator.generate_report
        reports = {
            each: generate(iterator, statistics=statistics) for each, iterator in splits.items()
        }
        steps.append(
            (
                "read all samples" if statistics else "read all targets",
                time.perf_counter() - started,
            )
        )
        return cls(
            description=dataset.describe(),
            storage=name if factory is None else repr(factory.storage_connector),
            splits=reports,
            manifest=factory.manifest() if hasattr(factory, "manifest") else None,
            steps=tuple(steps),
            duplicates=find_duplicates(splits) if duplicates else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data; full digests, sizes in bytes, times in seconds."""
        fields: dict[str, Any] = {
            **asdict(self.description),
            "storage": self.storage,
            "splits": {
                name: plain_report(report, has_text_keys=True)
                for name, report in self.splits.items()
            },
            "manifest": asdict(self.manifest) if self.manifest is not None else None,
            "steps": [{"step": step, "seconds": round(seconds, 6)} for step, seconds in self.steps],
        }
        return (
            fields
            if self.duplicates is None
            else {**fields, "duplicates": self.duplicates.to_dict()}
        )

    def document(self, level: int = 1) -> list[Block]:
        """The description of the dataset, and the report of each split."""
        facts = [each for each in self.description.facts() if each[0] not in ("splits", "options")]
        blocks = [*self.description.header(level), Facts([*facts, ("stored in", self.storage)])]
        rows = []
        for name, split in self.splits.items():
            kinds = {column.key: kind_of(column) for column in split.columns}
            rows.append(
                (
                    name,
                    f"{split.length:,}",
                    *(kinds.get(key, "-") for key in (split.sample_pos, split.target_pos)),
                )
            )
        blocks.append(Table(["split", "samples", "sample", "target"], rows, frozenset({1})))
        for split in self.splits.values():
            blocks += split.document(level + 1)
        if self.duplicates is not None:
            blocks += self.duplicates.document(level + 1)
        if self.manifest is not None:
            blocks += [Heading(level + 1, "Resources"), *_blocks_of_resources(self.manifest)]
        times = [*self.steps, ("all", sum(seconds for _, seconds in self.steps))]
        rows = [(step, f"{seconds:.3f} s") for step, seconds in times]
        return [*blocks, Heading(level + 1, "Time"), Table(["step", "time"], rows, frozenset({1}))]


def _blocks_of_resources(manifest: Manifest) -> list[Block]:
    rows, raw = [], {each.identifier for each in manifest.sources}
    blocks: list[Block] = []
    for source in manifest.sources:
        rows.append(
            (source.identifier, size_text(source.size), source.sha256 or f"md5 {source.md5_sum}")
        )
        verified = "verified" if source.verified else "NOT VERIFIED: its definition has no digest"
        blocks.append(
            Paragraph(f"{source.identifier}: from {source.origin or 'the store'}, {verified}")
        )
    # Without preprocessing, sources are listed as prepared, too.
    prepared = [each for each in manifest.prepared if each.identifier not in raw]
    rows += [(each.identifier, size_text(each.size), each.sha256 or "-") for each in prepared]
    if manifest.adopted:
        blocks.append(Paragraph("adopted: the store had all resources, without a manifest"))
    return [Table(["resource", "size", "sha256"], rows, frozenset({1})), *blocks]
