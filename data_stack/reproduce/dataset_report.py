"""Reports on a prepared dataset: its description, splits, resources and timings."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.places import DatasetDescription, Place
from data_stack.repository.repository import default_repository
from data_stack.show.leakage import DuplicatesReport, find_duplicates
from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph, Table, size_text
from data_stack.show.reporting import DatasetIteratorReport, DatasetIteratorReportGenerator, kind_of, plain_report

if TYPE_CHECKING:
    from data_stack.factories.manifest import Manifest


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetReport(Document):
    """A prepared dataset. It prints as text, and shows as HTML in a notebook.

    Attributes:
        description: name, version, licence and so on.
        storage: the store, without credentials.
        splits: ``iterator.report()`` of each split, by its name, in the dataset's order.
        manifest: resources with sizes and digests; None for a factory of the original DataStack.
        steps: (name, seconds), in order.
        duplicates: equal samples within and between the splits; None unless requested.
        iterators: the splits themselves, by name.
    """

    description: DatasetDescription
    storage: str
    splits: dict[str, DatasetIteratorReport]
    manifest: Manifest | None
    steps: tuple[tuple[str, float], ...]
    duplicates: DuplicatesReport | None = None
    iterators: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

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
            statistics: read all samples for missing values, extremes, means and distinct values of each column.
            duplicates: read all samples, and search for equal ones.

        Raises:
            DataStackError: as ``data_stack.load`` raises.
        """
        dataset = default_repository().resolve(name, None if storage is None else as_storage_connector(storage))
        factory: Any = None if isinstance(dataset, Place) else dataset.factory
        steps = list(factory.prepare(offline=offline).steps) if hasattr(factory, "prepare") else []
        started = time.perf_counter()
        loaded = dataset.load(split, **(config or {}))
        steps.append(("open", time.perf_counter() - started))
        splits = loaded if isinstance(loaded, dict) else {split or "all": loaded}
        started = time.perf_counter()
        generate = DatasetIteratorReportGenerator.generate_report
        reports = {each: generate(iterator, statistics=statistics) for each, iterator in splits.items()}
        steps.append(("read all samples" if statistics else "read all targets", time.perf_counter() - started))
        return cls(
            description=dataset.describe(),
            storage=name if factory is None else repr(factory.storage_connector),
            splits=reports,
            manifest=factory.manifest() if hasattr(factory, "manifest") else None,
            steps=tuple(steps),
            duplicates=find_duplicates(splits) if duplicates else None,
            iterators=splits,
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data; full digests, sizes in bytes, times in seconds."""
        fields: dict[str, Any] = {
            **dataclasses.asdict(self.description),
            "storage": self.storage,
            "splits": {name: plain_report(report, has_text_keys=True) for name, report in self.splits.items()},
            "manifest": dataclasses.asdict(self.manifest) if self.manifest is not None else None,
            "steps": [{"step": step, "seconds": round(seconds, 6)} for step, seconds in self.steps],
        }
        return fields if self.duplicates is None else {**fields, "duplicates": self.duplicates.to_dict()}

    def plot(self) -> Any:
        """Plot the number of samples by target of all splits side by side, as ``iterator.report().plot()`` does for one.

        Raises:
            ConfigError: the targets were not counted.
            MissingDependencyError: matplotlib is not installed.
        """
        from data_stack.show.plots import plot_counts

        first = next(iter(self.splits.values()), None)
        names, kind = (None, None) if first is None else (first.class_names, first.target_kind)
        counts = {name: split.target_dist for name, split in self.splits.items()}
        return plot_counts(counts, names, title=self.description.name, kind=kind)

    def document(self, level: int = 1) -> list[Block]:
        """The description of the dataset, and the report of each split."""
        facts = [each for each in self.description.facts() if each[0] not in ("splits", "options")]
        blocks = [*self.description.header(level), Facts([*facts, ("stored in", self.storage)])]
        rows = [
            (name, f"{split.length:,}", *(_kind_at(split, position) for position in (split.sample_pos, split.target_pos)))
            for name, split in self.splits.items()
        ]
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


def _kind_at(report: DatasetIteratorReport, position: int | str | None) -> str:
    return next((kind_of(column) for column in report.columns if column.key == position), "-")


def _blocks_of_resources(manifest: Manifest) -> list[Block]:
    rows, raw = [], {each.identifier for each in manifest.sources}
    blocks: list[Block] = []
    for source in manifest.sources:
        rows.append((source.identifier, size_text(source.size), source.sha256 or f"md5 {source.md5_sum}"))
        verified = "verified" if source.verified else "NOT VERIFIED: its definition has no digest"
        blocks.append(Paragraph(f"{source.identifier}: from {source.origin or 'the store'}, {verified}"))
    # Without preprocessing, sources are listed as prepared, too.
    prepared = [each for each in manifest.prepared if each.identifier not in raw]
    rows += [(each.identifier, size_text(each.size), each.sha256 or "-") for each in prepared]
    if manifest.adopted:
        blocks.append(Paragraph("adopted: the store had all resources, without a manifest"))
    return [Table(["resource", "size", "sha256"], rows, frozenset({1})), *blocks]
