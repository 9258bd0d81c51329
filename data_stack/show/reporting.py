"""Reports on iterators."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess, access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.stack import walk_stack
from data_stack.dataset.positions import as_index_array
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.io.account import PlaceAccount
from data_stack.show.column_report import ColumnReport, columns_of
from data_stack.show.column_statistics import with_statistics
from data_stack.show.markup import (
    Block,
    Document,
    Facts,
    Heading,
    Table,
    bar,
    number_text,
    readable,
)
from data_stack.show.target_distribution import (
    MAX_VALUES_OF_A_TARGET,
    class_name,
    n_values_of,
    plain_value,
    target_distribution,
)
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import as_array, one_hot_positions
from data_stack.values.stacking import value_of

_MAX_NUMBERS_IN_A_CELL = 10


@dataclasses.dataclass(repr=False)  # there may be a thousand layers
class DatasetIteratorReport(Document):
    """The report on one iterator. It prints as text, and shows as HTML in a notebook.

    Attributes:
        identifier: that of its meta.
        name: the dataset's name; of an iterator without meta, its class.
        tag: the dataset's tag, e.g. ``"train"``.
        length: number of samples.
        sample_pos: position or key of the sample proper; None without meta.
        target_pos: position or key of the target; None without meta.
        tag_pos: position or key of the tag; None without meta.
        target_dist: number of samples for each target, ordered by target; see :class:`DatasetIteratorReportGenerator`.
        iteration_speed: samples per second; None if not measured.
        sub_reports: those of the underlying iterators, in order; a shared iterator has one report.
        target_kind: that of its meta: ``"label"``, ``"one_hot"``, ``"real"`` or None.
        class_names: those of its meta, in the order of their numbers.
        feature_names: those of its meta.
        provenance: that of its meta: the layers above the loaded dataset, lowest first.
        columns: shape and dtype of each column; empty in sub-reports, and if there are no samples.
        left_out: what of the place is not read and may be data, with the rules that leave it out; empty if that is nothing.
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

        name = next(
            (str(each.name or each.key) for each in self.columns if each.role == "target"), "target"
        )
        return plot_counts(
            {name: self.target_dist}, self.class_names, title=_title(self), kind=self.target_kind
        )

    def document(self, level: int = 1) -> list[Block]:
        """The facts, columns and targets of the iterator."""
        blocks: list[Block] = [Heading(level, f"Report on {_title(self)}"), Facts(_facts(self))]
        if self.columns:
            blocks += [Heading(level + 1, "Columns"), table_of_columns(self.columns)]
        if self.target_dist:
            blocks += [
                Heading(level + 1, "Targets"),
                table_of_targets(self.target_dist, self.class_names, self.target_kind),
            ]
        return blocks


def plain_report(report: DatasetIteratorReport, *, has_text_keys: bool) -> dict[str, Any]:
    """The report as a tree of JSON's types of bounded depth, with each shared report once.

    Args:
        report: a report of any depth.
        has_text_keys: convert all targets to text, as JSON requires; otherwise tuples only, as YAML does.
    """
    numbers: dict[int, int] = {}

    def plain(each: DatasetIteratorReport, depth: int) -> dict[str, Any]:
        is_known = id(each) in numbers
        number = numbers.setdefault(id(each), len(numbers) + 1)
        if is_known or depth > 25:  # parsers of JSON and YAML limit nesting
            name = {
                "identifier": each.identifier,
                "name": each.name,
                "tag": each.tag,
                "length": each.length,
            }
            return {**plain_data_of(name), "see_report" if is_known else "report_number": number}
        counts: dict[Any, int] = {}
        for target, count in each.target_dist.items():
            key = target if not has_text_keys and not isinstance(target, tuple) else str(target)
            while key in counts:  # the label "1" beside the label 1
                key = json.dumps(key)
            counts[key] = count
        fields = {field.name: getattr(each, field.name) for field in dataclasses.fields(each)}
        fields |= {
            "sub_reports": (),
            "columns": [dataclasses.asdict(column) for column in each.columns],
        }
        below = [plain(sub_report, depth + 1) for sub_report in each.sub_reports]
        return {
            **plain_data_of(fields),
            "target_dist": counts,
            "sub_reports": below,
            "report_number": number,
        }

    return plain(report, 0)


def plain_data_of(value: Any) -> Any:
    """``value`` in JSON's types: tuples become lists; NaN, infinities and other objects become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain_data_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data_of(item) for item in value]
    plain = plain_value(value)
    return [plain_data_of(item) for item in plain] if isinstance(plain, tuple) else plain


def _title(report: DatasetIteratorReport) -> str:
    return (
        " ".join(readable(part) for part in (report.name, report.tag) if part is not None)
        or "an iterator"
    )


def _facts(report: DatasetIteratorReport) -> list[tuple[str, str]]:
    facts = {"samples": f"{report.length:,}", "identifier": readable(report.identifier or "")}
    for name, values in (
        ("classes", report.class_names or ()),
        ("features", report.feature_names or ()),
    ):
        more = f", … ({len(values):,} in all)" if len(values) > _MAX_NUMBERS_IN_A_CELL else ""
        facts[name] = ", ".join(map(readable, values[:_MAX_NUMBERS_IN_A_CELL])) + more
    facts["left out"] = readable(_left_out_below(report), 1000)
    facts["layers"] = " → ".join(map(readable, report.provenance[-100:]))
    speed = report.iteration_speed
    facts["speed"] = "" if speed is None else f"{speed:,.0f} samples per second"
    return [(name, text) for name, text in facts.items() if text]


def _left_out_below(report: DatasetIteratorReport) -> str:
    """What the sources of a stack leave out, each once."""
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


def table_of_columns(
    columns: Sequence[ColumnReport], values: Mapping[Any, str] | None = None
) -> Table:
    """A table with a row for each column of an iterator.

    Args:
        columns: with or without statistics.
        values: texts about the values of columns, by key.
    """
    header = ["column", "role", "dtype", "shape"] + (["values"] if values else [])
    if any(column.statistics is not None for column in columns):
        header += ["missing", "numbers", "infinite", "min", "max", "mean", "std", "distinct"]
    rows = []
    for column in columns:
        numbers = () if column.statistics is None else dataclasses.astuple(column.statistics)
        about = [values.get(column.key, "")] if values else []
        name = (
            ""
            if column.key is None
            else readable(column.key if column.name is None else column.name)
        )
        rows.append(
            [
                name,
                column.role or "",
                column.dtype,
                _shape(column.shape),
                *about,
                *map(number_text, numbers),
            ]
        )
    return Table(header, rows, frozenset(range(5 if values else 4, len(header))))


def kind_of(column: ColumnReport) -> str:
    """Type and shape of the values of a column, e.g. ``"uint8 8 × 8"``."""
    return f"{column.dtype} {_shape(column.shape)}"


def _shape(shape: tuple[int | None, ...] | None) -> str:
    extents = " × ".join("?" if extent is None else str(extent) for extent in shape or ())
    return "varies" if shape is None else extents or "one value"


def table_of_targets(
    target_dist: Mapping[Any, int], class_names: Sequence[Any] | None, target_kind: str | None
) -> Table:
    """Targets with their counts, shares and bars.

    Args:
        target_dist: counts by target, at least one.
        class_names: in the order of their numbers; None if unknown.
        target_kind: that of the meta.
    """
    names = {target: class_name(target, class_names, target_kind) for target in target_dist}
    has_names = any(name is not None for name in names.values())
    n_all, most = sum(target_dist.values()), max(target_dist.values())
    rows = []
    for target, count in target_dist.items():
        row = [readable(target)] + ([names[target] or ""] if has_names else [])
        rows.append(
            [*row, f"{count:,}", f"{100 * count / max(1, n_all):.1f} %", bar(count / max(1, most))]
        )
    header = ["target", *(["name"] if has_names else []), "samples", "share", ""]
    return Table(header, rows, frozenset({len(header) - 3, len(header) - 2}))


class DatasetIteratorReportGenerator:
    """Makes reports.

    The report counts targets as plain Python values: numbers of numpy and of tensors by value, one-hot vectors by the position
    of their one, vectors as tuples, and bytes, dates and other objects as text. More than 1,000 distinct numbers (100 if
    fractional), as in a regression, are counted in ten ranges of equal width such as ``"[0.5, 1.0)"``. If there are more than
    1,000 other distinct targets, the most frequent ones are counted, and the rest as ``"(others)"``. Targets of more than 64
    values each, such as masks, are not counted. The distribution of an iterator without meta or targets is empty.

    Targets are read as a column, once for a source and all views of it. Shapes and dtypes come from the schema, or from eight
    samples.
    """

    class ReportFormat(Enum):
        """The formats of a report."""

        DATA_CLASS = "data_class"
        YAML = "yaml"
        JSON = "json"
        DICT = "dict"

    @staticmethod
    def generate_report(
        iterator: DatasetIteratorIF,
        report_format: ReportFormat | str = ReportFormat.DATA_CLASS,
        *,
        measure_speed: bool = False,
        statistics: bool = False,
    ) -> Any:
        """Report on ``iterator`` and, nested in it, on the iterators below.

        Args:
            iterator: with or without meta.
            report_format: ``"data_class"`` for a DatasetIteratorReport (which prints as text, and has ``to_html()``), or
                ``"dict"``, ``"json"`` or ``"yaml"``. The latter three number the reports and contain each iterator once:
                further occurrences have name, length and ``"see_report": n``; layers deeper than 25 have only name and length.
            measure_speed: iterate over up to 10,000 samples of each iterator, for 0.2 s at most (or one sample).
            statistics: read all samples of ``iterator``, in bounded memory, and add the number of missing and of distinct values,
                the extremes, the mean and the standard deviation of each column.

        Raises:
            ConfigError: ``report_format`` is unknown.
            MissingDependencyError: for YAML, PyYAML is not installed.
        """
        formats = DatasetIteratorReportGenerator.ReportFormat
        try:
            wanted = formats(report_format)
        except ValueError:
            known = [each.value for each in formats]
            near, names = did_you_mean(report_format, known), ", ".join(map(repr, known))
            raise ConfigError(
                f"unknown report format {report_format!r}{near}; known formats: {names}"
            ) from None
        report = _Reporter(measure_speed).report(iterator)
        report.columns = _columns_of(as_iterator(iterator))
        if statistics:
            report.columns = with_statistics(as_iterator(iterator), report.columns)
        if wanted is formats.DICT:
            return plain_report(report, has_text_keys=False)
        if wanted is formats.JSON:
            return json.dumps(plain_report(report, has_text_keys=True), indent=4, allow_nan=False)
        if wanted is formats.DATA_CLASS:
            return report
        try:
            import yaml  # optional, for this format alone
        except ModuleNotFoundError as error:
            raise MissingDependencyError("a report in YAML", "PyYAML", "yaml") from error
        return yaml.safe_dump(
            plain_report(report, has_text_keys=False), indent=4, sort_keys=False, allow_unicode=True
        )

    @staticmethod
    def measure_iteration_speed(iterator: Iterable[Any]) -> float:
        """Samples per second of iterating over up to 10,000 samples, for 0.2 s at most; 0 for an empty iterator."""
        started, n_samples = time.perf_counter(), 0
        for n_samples, _ in enumerate(islice(iterator, 10_000), start=1):  # noqa: B007  # counted to the last
            if time.perf_counter() - started > 0.2:
                break
        return n_samples / max(time.perf_counter() - started, 1e-9)


class _Reporter:
    """Makes one report for each iterator of a stack."""

    def __init__(self, measure_speed: bool) -> None:
        self._measures_speed = measure_speed
        self._columns: dict[tuple[SampleAccess, ColumnKey], npt.NDArray[Any]] = {}

    def report(self, iterator: Any) -> DatasetIteratorReport:
        nodes = list(
            walk_stack(iterator, lambda node: list(getattr(node, "underlying_iterators", ())))
        )
        reports = {id(node): self._bare_report(node) for node, _ in nodes}
        for node, underlying in nodes:
            reports[id(node)].sub_reports += [reports[id(each)] for each in underlying]
        return reports[id(iterator)]

    def _bare_report(self, iterator: Any) -> DatasetIteratorReport:
        """The report without sub-reports."""
        meta = getattr(iterator, "dataset_meta", None)
        speed = (
            DatasetIteratorReportGenerator.measure_iteration_speed(iterator)
            if self._measures_speed
            else None
        )
        n_samples = len(iterator)
        names = (
            "identifier",
            "sample_pos",
            "target_pos",
            "tag_pos",
            "target_kind",
            "class_names",
            "feature_names",
        )
        same: dict[str, Any] = {name: getattr(meta, name, None) for name in names}
        account = getattr(iterator, "account", None)
        return DatasetIteratorReport(
            name=type(iterator).__name__ if meta is None else meta.dataset_name,
            tag=getattr(meta, "dataset_tag", None),
            length=n_samples,
            target_dist=self._distribution(as_iterator(iterator), meta.target_pos)
            if n_samples and meta is not None
            else {},
            iteration_speed=speed,
            sub_reports=[],
            provenance=tuple(getattr(meta, "provenance", ())),
            left_out=account.summary() if isinstance(account, PlaceAccount) else "",
            **same,
        )

    def _distribution(self, iterator: DatasetIteratorIF, target_pos: ColumnKey) -> dict[Any, int]:
        source, positions = access_to(iterator).unwrap()
        try:
            if (source, target_pos) not in self._columns:
                target = value_of(iterator[0], target_pos)
                is_small = n_values_of(target) <= MAX_VALUES_OF_A_TARGET
                if not is_small and one_hot_positions(as_array(target)[None]) is None:
                    return {}
                if positions is not None:
                    return target_distribution(
                        source.columns([target_pos], as_index_array(positions))[0]
                    )
                (self._columns[source, target_pos],) = source.columns([target_pos])
        except ConfigError:  # the samples have no target
            return {}
        column = self._columns[source, target_pos]
        return target_distribution(
            column if positions is None else column.take(as_index_array(positions), axis=0)
        )


def _columns_of(iterator: DatasetIteratorIF) -> tuple[ColumnReport, ...]:
    n_samples = len(iterator)
    positions = sorted(
        set(np.linspace(0, n_samples - 1, min(n_samples, 8)).round().astype(int).tolist())
    )  # to find the columns
    return columns_of(iterator, [iterator[position] for position in positions]) if positions else ()


def features(iterator: DatasetIteratorIF) -> dict[int | str, ColumnReport]:
    """``iterator.features``."""
    return {
        column.name or ("value" if column.key is None else column.key): column
        for column in _columns_of(iterator)
    }
