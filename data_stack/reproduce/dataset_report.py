"""Reports on a prepared dataset: its description, splits, resources."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.description import DatasetDescription
from data_stack.repository.places import Place
from data_stack.repository.repository import default_repository
from data_stack.reproduce.duplicates import DuplicatesReport, find_duplicates
from data_stack.show.iterator_report import DatasetIteratorReport
from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph, Table, size_text
from data_stack.show.plain_report import plain_report
from data_stack.show.report_tables import kind_of
from data_stack.show.reporting import DatasetIteratorReportGenerator

#: The facts of a description that the report shows at length.
_FACTS_SHOWN_BELOW = ("splits", "options")


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
        """Prepare a dataset if it is not ready, and report on it.

        All targets and eight samples of each split are read.

        Args:
            name: the name of the dataset, as for ``data_stack.load``.
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
        connector = None if storage is None else as_storage_connector(storage)
        dataset = default_repository().resolve(name, connector)
        # A file or folder has no factory; one of the original DataStack has no prepare().
        factory: Any = None if isinstance(dataset, Place) else dataset.factory
        steps: list[tuple[str, float]] = []
        if hasattr(factory, "prepare"):
            steps += factory.prepare(offline=offline).steps

        started_at = time.perf_counter()
        loaded = dataset.load(split, **(config or {}))
        if isinstance(loaded, dict):
            splits = loaded
        else:
            splits = {split or "all": loaded}
        steps.append(("open", time.perf_counter() - started_at))

        started_at = time.perf_counter()
        reports: dict[str, DatasetIteratorReport] = {}
        for split_name, iterator in splits.items():
            reports[split_name] = DatasetIteratorReportGenerator.generate_report(
                iterator, statistics=statistics
            )
        step = "read all samples" if statistics else "read all targets"
        steps.append((step, time.perf_counter() - started_at))

        # A file or folder is its own store.
        storage_text = name if factory is None else repr(factory.storage_connector)
        manifest = factory.manifest() if hasattr(factory, "manifest") else None
        duplicates_report = find_duplicates(splits) if duplicates else None
        return cls(
            description=dataset.describe(),
            storage=storage_text,
            splits=reports,
            manifest=manifest,
            steps=tuple(steps),
            duplicates=duplicates_report,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data: full digests, sizes in bytes, times in seconds."""
        splits: dict[str, Any] = {}
        for name, report in self.splits.items():
            splits[name] = plain_report(report, has_text_keys=True)
        steps = [{"step": step, "seconds": round(seconds, 6)} for step, seconds in self.steps]
        fields: dict[str, Any] = {
            **asdict(self.description),
            "storage": self.storage,
            "splits": splits,
            "manifest": None if self.manifest is None else asdict(self.manifest),
            "steps": steps,
        }
        if self.duplicates is not None:
            fields["duplicates"] = self.duplicates.to_dict()
        return fields

    def document(self, level: int = 1) -> list[Block]:
        """Return the description of the dataset, and the report of each split."""
        blocks = self.description.header(level)
        blocks.append(Facts(self._facts()))
        blocks.append(self._table_of_splits())
        for report in self.splits.values():
            blocks += report.document(level + 1)
        if self.duplicates is not None:
            blocks += self.duplicates.document(level + 1)
        if self.manifest is not None:
            blocks.append(Heading(level + 1, "Resources"))
            blocks += _blocks_of_resources(self.manifest)
        blocks.append(Heading(level + 1, "Time"))
        blocks.append(self._table_of_steps())
        return blocks

    def _facts(self) -> list[tuple[str, str]]:
        facts = []
        for name, text in self.description.facts():
            if name not in _FACTS_SHOWN_BELOW:
                facts.append((name, text))
        facts.append(("stored in", self.storage))
        return facts

    def _table_of_splits(self) -> Table:
        """Return the length of each split, and what its samples and targets are."""
        rows = []
        for name, report in self.splits.items():
            kinds = {column.key: kind_of(column) for column in report.columns}
            sample = kinds.get(report.sample_pos, "-")
            target = kinds.get(report.target_pos, "-")
            rows.append((name, f"{report.length:,}", sample, target))
        return Table(["split", "samples", "sample", "target"], rows, frozenset({1}))

    def _table_of_steps(self) -> Table:
        all_seconds = sum(seconds for _, seconds in self.steps)
        rows = []
        for step, seconds in (*self.steps, ("all", all_seconds)):
            rows.append((step, f"{seconds:.3f} s"))
        return Table(["step", "time"], rows, frozenset({1}))


def _blocks_of_resources(manifest: Manifest) -> list[Block]:
    """Return a table of all resources, and where each source is from."""
    rows = []
    for source in manifest.sources:
        digest = source.sha256 or f"md5 {source.md5_sum}"
        rows.append((source.identifier, size_text(source.size), digest))
    # Without preprocessing, sources are listed as prepared, too.
    names_of_sources = {source.identifier for source in manifest.sources}
    for resource in manifest.prepared:
        if resource.identifier not in names_of_sources:
            digest = resource.sha256 or "-"
            rows.append((resource.identifier, size_text(resource.size), digest))

    blocks: list[Block] = [Table(["resource", "size", "sha256"], rows, frozenset({1}))]
    for source in manifest.sources:
        blocks.append(Paragraph(_origin_of(source)))
    if manifest.adopted:
        blocks.append(Paragraph("adopted: the store had all resources, without a manifest"))
    return blocks


def _origin_of(source: SourceRecord) -> str:
    """Return where a source is from, and whether its digest was compared."""
    verified = "NOT VERIFIED: its definition has no digest"
    if source.verified:
        verified = "verified"
    return f"{source.identifier}: from {source.origin or 'the store'}, {verified}"
