"""The report on an iterator, as data and as a document."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from data_stack.show.column_report import ColumnReport
from data_stack.show.markup import Block, Document, Facts, Heading, readable
from data_stack.show.report_tables import table_of_columns, table_of_targets

#: The maximum number of names of classes or features that are listed.
_MAX_NAMES_IN_A_CELL = 10

#: The maximum number of layers that are listed, those at the top of the stack.
_MAX_LAYERS = 100


@dataclasses.dataclass(repr=False)  # there may be a thousand layers
class DatasetIteratorReport(Document):
    """The report on one iterator. It prints as text, and shows as HTML in a notebook.

    Attributes:
        identifier: the identifier in the meta; None without meta.
        name: the name of the dataset in the meta; without meta, the name of the iterator's class.
        tag: the tag of the dataset in the meta, such as ``"train"``; None without meta.
        length: number of samples.
        sample_pos: position or key of the sample proper; None without meta.
        target_pos: position or key of the target; None without meta.
        tag_pos: position or key of the tag; None without meta.
        target_dist: number of samples for each target, ordered by target; see
            :class:`DatasetIteratorReportGenerator`.
        iteration_speed: samples per second; None if not measured.
        sub_reports: the reports on the underlying iterators, in order. An iterator that occurs
            twice in the stack has one report.
        target_kind: the kind of the targets in the meta: ``"label"``, ``"one_hot"``, ``"real"`` or
            None.
        class_names: the names of classes in the meta, in the order of their numbers.
        feature_names: the names of features in the meta.
        provenance: the layers above the loaded dataset in the meta, lowest first.
        columns: shape and dtype of each column; empty in sub-reports, and if there are no samples.
        left_out: for samples of a file or folder, which files of the place are not read although
            they may be data, and why; empty if all are read.
    """

    identifier: str | None
    name: str | None
    tag: str | None
    length: int
    sample_pos: int | str | None
    target_pos: int | str | None
    tag_pos: int | str | None
    target_dist: dict[Any, int]
    iteration_speed: float | None
    sub_reports: list[DatasetIteratorReport]
    target_kind: str | None = None
    class_names: tuple[Any, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    provenance: tuple[str, ...] = ()
    columns: tuple[ColumnReport, ...] = ()
    left_out: str = ""

    def plot(self) -> Any:
        """Plot the number of samples by target, as a figure of matplotlib that notebooks display.

        Raises:
            ConfigError: the targets were not counted.
            MissingDependencyError: matplotlib is not installed.
        """
        from data_stack.show.plots import plot_counts

        counts = {self._name_of_target(): self.target_dist}
        return plot_counts(counts, self.class_names, title=_title(self), kind=self.target_kind)

    def document(self, level: int = 1) -> list[Block]:
        """Return the facts, columns and targets of the iterator."""
        blocks: list[Block] = [Heading(level, f"Report on {_title(self)}"), Facts(_facts(self))]
        if self.columns:
            blocks.append(Heading(level + 1, "Columns"))
            blocks.append(table_of_columns(self.columns))
        if self.target_dist:
            blocks.append(Heading(level + 1, "Targets"))
            blocks.append(table_of_targets(self.target_dist, self.class_names, self.target_kind))
        return blocks

    def _name_of_target(self) -> str:
        for column in self.columns:
            if column.role == "target":
                return str(column.name or column.key)
        return "target"


def _title(report: DatasetIteratorReport) -> str:
    names = [readable(name) for name in (report.name, report.tag) if name is not None]
    return " ".join(names) or "an iterator"


def _facts(report: DatasetIteratorReport) -> list[tuple[str, str]]:
    """Return the names and texts of the facts that are known."""
    speed = ""
    if report.iteration_speed is not None:
        speed = f"{report.iteration_speed:,.0f} samples per second"
    facts = [
        ("samples", f"{report.length:,}"),
        ("identifier", readable(report.identifier or "")),
        ("classes", _list_first(report.class_names or ())),
        ("features", _list_first(report.feature_names or ())),
        ("left out", readable(_left_out_below(report), 1000)),
        ("layers", " → ".join(readable(layer) for layer in report.provenance[-_MAX_LAYERS:])),
        ("speed", speed),
    ]
    return [(name, text) for name, text in facts if text]


def _list_first(names: Sequence[Any]) -> str:
    """Return the first names, and how many there are if not all are shown."""
    text = ", ".join(readable(name) for name in names[:_MAX_NAMES_IN_A_CELL])
    if len(names) > _MAX_NAMES_IN_A_CELL:
        text += f", … ({len(names):,} in all)"
    return text


def _left_out_below(report: DatasetIteratorReport) -> str:
    """Return what the sources of a stack leave out, each text once."""
    pending = [report]
    seen = {id(report)}
    texts: dict[str, None] = {}
    while pending:
        above = pending.pop()
        if above.left_out:
            texts[above.left_out] = None
        for below in above.sub_reports:
            if id(below) not in seen:
                seen.add(id(below))
                pending.append(below)
    return "; ".join(texts)
