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

_MAX_NAMES_IN_A_CELL = 10

#: At most the last layers are listed.
_MAX_LAYERS = 100

#: Parsers of JSON and YAML limit nesting.
_MAX_DEPTH = 25

#: Shapes and dtypes are found from this many samples at most.
_N_SAMPLES_TO_FIND_COLUMNS = 8

#: Iterating is measured for this long at most, and over this many samples.
_MAX_MEASURED_SECONDS = 0.2
_MAX_MEASURED_SAMPLES = 10_000


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
        target_dist: number of samples for each target, ordered by target; see
            :class:`DatasetIteratorReportGenerator`.
        iteration_speed: samples per second; None if not measured.
        sub_reports: those of the underlying iterators, in order; a shared iterator has one report.
        target_kind: that of its meta: ``"label"``, ``"one_hot"``, ``"real"`` or None.
        class_names: those of its meta, in the order of their numbers.
        feature_names: those of its meta.
        provenance: that of its meta: the layers above the loaded dataset, lowest first.
        columns: shape and dtype of each column; empty in sub-reports, and if there are no samples.
        left_out: what of the place is not read and may be data, with the rules that leave it out;
            empty if that is nothing.
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


def plain_report(report: DatasetIteratorReport, *, has_text_keys: bool) -> dict[str, Any]:
    """Return the report as a tree of JSON's types of bounded depth, with each shared report once.

    Args:
        report: a report of any depth.
        has_text_keys: convert all targets to text, as JSON requires; otherwise tuples only, as YAML
            does.
    """
    return _PlainReports(has_text_keys).convert(report, depth=0)


class _PlainReports:
    """Converts the reports of one tree, and numbers them.

    Args:
        has_text_keys: see :func:`plain_report`.
    """

    def __init__(self, has_text_keys: bool) -> None:
        self._has_text_keys = has_text_keys
        #: The number of each converted report, by its ``id``.
        self._numbers: dict[int, int] = {}

    def convert(self, report: DatasetIteratorReport, depth: int) -> dict[str, Any]:
        """Convert a report, or refer to it if it was converted before, or is too deep."""
        number = self._numbers.get(id(report))
        if number is not None:
            return {**_plain_names(report), "see_report": number}
        number = len(self._numbers) + 1
        self._numbers[id(report)] = number
        if depth > _MAX_DEPTH:
            return {**_plain_names(report), "report_number": number}

        fields: dict[str, Any] = {}
        for field in dataclasses.fields(report):
            fields[field.name] = getattr(report, field.name)
        fields["sub_reports"] = ()
        fields["columns"] = [dataclasses.asdict(column) for column in report.columns]
        plain_fields = plain_data_of(fields)
        plain_fields["target_dist"] = self._convert_counts(report.target_dist)
        sub_reports = [self.convert(below, depth + 1) for below in report.sub_reports]
        plain_fields["sub_reports"] = sub_reports
        plain_fields["report_number"] = number
        return dict(plain_fields)

    def _convert_counts(self, target_dist: Mapping[Any, int]) -> dict[Any, int]:
        counts: dict[Any, int] = {}
        for target, count in target_dist.items():
            key = target
            if self._has_text_keys or isinstance(target, tuple):
                key = str(target)
            # The label "1" beside the label 1.
            while key in counts:
                key = json.dumps(key)
            counts[key] = count
        return counts


def _plain_names(report: DatasetIteratorReport) -> dict[str, Any]:
    """Return what identifies a report whose other facts are left out."""
    names = {
        "identifier": report.identifier,
        "name": report.name,
        "tag": report.tag,
        "length": report.length,
    }
    return dict(plain_data_of(names))


def plain_data_of(value: Any) -> Any:
    """Return a value in JSON's types.

    Tuples become lists; NaN, infinities and other objects become text.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain_data_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data_of(item) for item in value]
    plain = plain_value(value)
    if isinstance(plain, tuple):
        return [plain_data_of(item) for item in plain]
    return plain


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
    """Return a table with a row for each column of an iterator.

    Args:
        columns: with or without statistics.
        values: texts about the values of columns, by key.
    """
    has_statistics = any(column.statistics is not None for column in columns)
    header = ["column", "role", "dtype", "shape"]
    if values:
        header.append("values")
    n_texts = len(header)
    if has_statistics:
        header += ["missing", "numbers", "infinite", "min", "max", "mean", "std", "distinct"]

    rows = []
    for column in columns:
        row = [_name_of(column), column.role or "", column.dtype, _shape_text(column.shape)]
        if values:
            row.append(values.get(column.key, ""))
        if column.statistics is not None:
            # The attributes of ColumnStatistics are in the order of the header.
            row += [number_text(number) for number in dataclasses.astuple(column.statistics)]
        rows.append(row)
    numbers = frozenset(range(n_texts, len(header)))
    return Table(header, rows, numbers)


def kind_of(column: ColumnReport) -> str:
    """Return type and shape of the values of a column, e.g. ``"uint8 8 × 8"``."""
    return f"{column.dtype} {_shape_text(column.shape)}"


def _name_of(column: ColumnReport) -> str:
    """Return the name of a column, or its key; empty for bare samples."""
    if column.key is None:
        return ""
    return readable(column.key if column.name is None else column.name)


def _shape_text(shape: tuple[int | None, ...] | None) -> str:
    if shape is None:
        return "varies"
    if not shape:
        return "one value"
    return " × ".join("?" if size is None else str(size) for size in shape)


def table_of_targets(
    target_dist: Mapping[Any, int], class_names: Sequence[Any] | None, target_kind: str | None
) -> Table:
    """Return targets with their counts, shares and bars.

    Args:
        target_dist: counts by target, at least one.
        class_names: in the order of their numbers; None if unknown.
        target_kind: that of the meta.
    """
    names = {target: class_name(target, class_names, target_kind) for target in target_dist}
    has_names = any(name is not None for name in names.values())
    n_samples = max(1, sum(target_dist.values()))
    max_count = max(1, max(target_dist.values()))

    header = ["target"]
    if has_names:
        header.append("name")
    n_texts = len(header)
    header += ["samples", "share", ""]
    rows = []
    for target, count in target_dist.items():
        row = [readable(target)]
        if has_names:
            row.append(names[target] or "")
        row += [f"{count:,}", f"{100 * count / n_samples:.1f} %", bar(count / max_count)]
        rows.append(row)
    return Table(header, rows, frozenset({n_texts, n_texts + 1}))


class DatasetIteratorReportGenerator:
    """Makes reports.

    The report counts targets as plain Python values: numbers of numpy and of tensors by value,
        one-hot vectors by the position
    of their one, vectors as tuples, and bytes, dates and other objects as text. More than 1,000
    distinct numbers (100 if fractional), as in a regression, are counted in ten ranges of equal
    width such as ``"[0.5, 1.0)"``. If there are more than 1,000 other distinct targets, the most
    frequent ones are counted, and the rest as ``"(others)"``. Targets of more than 64 values each,
    such as masks, are not counted. The distribution of an iterator without meta or targets is
    empty.

    Targets are read as a column, once for a source and all views of it. Shapes and dtypes come from
    the schema, or from eight samples.
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
            report_format: ``"data_class"`` for a DatasetIteratorReport (which prints as text, and
                has ``to_html()``), or ``"dict"``, ``"json"`` or ``"yaml"``. The latter three number
                the reports and contain each iterator once: further occurrences have name, length
                and ``"see_report": n``; layers deeper than 25 have only name and length.
            measure_speed: iterate over up to 10,000 samples of each iterator, for 0.2 s at most (or
                one sample).
            statistics: read all samples of ``iterator``, in bounded memory, and add the number of
                missing and of distinct values, the extremes, the mean and the standard deviation of
                each column.

        Raises:
            ConfigError: ``report_format`` is unknown.
            MissingDependencyError: for YAML, PyYAML is not installed.
        """
        formats = DatasetIteratorReportGenerator.ReportFormat
        try:
            chosen_format = formats(report_format)
        except ValueError:
            known_names = [known_format.value for known_format in formats]
            raise ConfigError(
                f"unknown report format {report_format!r}"
                f"{did_you_mean(report_format, known_names)}; "
                f"known formats: {', '.join(repr(name) for name in known_names)}"
            ) from None
        report = _Reporter(measure_speed).report(iterator)
        report.columns = _columns_of(as_iterator(iterator))
        if statistics:
            report.columns = with_statistics(as_iterator(iterator), report.columns)
        if chosen_format is formats.DICT:
            return plain_report(report, has_text_keys=False)
        if chosen_format is formats.JSON:
            return json.dumps(plain_report(report, has_text_keys=True), indent=4, allow_nan=False)
        if chosen_format is formats.DATA_CLASS:
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
        """Return samples per second of iterating, for 0.2 s and over 10,000 samples at most.

        The speed is 0 for an empty iterator.
        """
        n_samples = 0
        started_at = time.perf_counter()
        for _ in islice(iterator, _MAX_MEASURED_SAMPLES):
            n_samples += 1
            if time.perf_counter() - started_at > _MAX_MEASURED_SECONDS:
                break
        return n_samples / max(time.perf_counter() - started_at, 1e-9)


class _Reporter:
    """Makes one report for each iterator of a stack."""

    def __init__(self, measure_speed: bool) -> None:
        self._measures_speed = measure_speed
        #: The targets of a source, which are read once for all its views, by source and key.
        self._columns: dict[tuple[SampleAccess, ColumnKey], npt.NDArray[Any]] = {}

    def report(self, iterator: Any) -> DatasetIteratorReport:
        """Report on an iterator and those below; a shared one has one report."""
        nodes = list(walk_stack(iterator, _iterators_below))
        reports = {id(node): self._report_alone(node) for node, _ in nodes}
        for node, below in nodes:
            reports[id(node)].sub_reports += [
                reports[id(iterator_below)] for iterator_below in below
            ]
        return reports[id(iterator)]

    def _report_alone(self, iterator: Any) -> DatasetIteratorReport:
        """Return the report without sub-reports."""
        meta = getattr(iterator, "dataset_meta", None)
        speed = None
        if self._measures_speed:
            speed = DatasetIteratorReportGenerator.measure_iteration_speed(iterator)
        n_samples = len(iterator)
        target_dist: dict[Any, int] = {}
        if n_samples and meta is not None:
            target_dist = self._count_targets(as_iterator(iterator), meta.target_pos)
        account = getattr(iterator, "account", None)
        left_out = account.summary() if isinstance(account, PlaceAccount) else ""
        return DatasetIteratorReport(
            identifier=getattr(meta, "identifier", None),
            name=type(iterator).__name__ if meta is None else meta.dataset_name,
            tag=getattr(meta, "dataset_tag", None),
            length=n_samples,
            sample_pos=getattr(meta, "sample_pos", None),
            target_pos=getattr(meta, "target_pos", None),
            tag_pos=getattr(meta, "tag_pos", None),
            target_dist=target_dist,
            iteration_speed=speed,
            sub_reports=[],
            target_kind=getattr(meta, "target_kind", None),
            class_names=getattr(meta, "class_names", None),
            feature_names=getattr(meta, "feature_names", None),
            provenance=tuple(getattr(meta, "provenance", ())),
            left_out=left_out,
        )

    def _count_targets(self, iterator: DatasetIteratorIF, target_pos: ColumnKey) -> dict[Any, int]:
        try:
            targets = self._read_targets(iterator, target_pos)
        except ConfigError:  # the samples have no target
            return {}
        if targets is None:
            return {}
        return target_distribution(targets)

    def _read_targets(
        self, iterator: DatasetIteratorIF, target_pos: ColumnKey
    ) -> npt.NDArray[Any] | None:
        """Return the targets, shape ``(n, ...)``; None if they are too large to be counted."""
        source, positions = access_to(iterator).unwrap()
        column = self._columns.get((source, target_pos))
        if column is None:
            if not _is_countable(value_of(iterator[0], target_pos)):
                return None
            if positions is not None:
                # A view alone may be a small part of its source.
                (targets,) = source.columns([target_pos], as_index_array(positions))
                return targets
            (column,) = source.columns([target_pos])
            self._columns[source, target_pos] = column
        if positions is None:
            return column
        return column.take(as_index_array(positions), axis=0)


def _iterators_below(iterator: Any) -> list[Any]:
    return list(getattr(iterator, "underlying_iterators", ()))


def _is_countable(target: Any) -> bool:
    """Whether a target has few values, or is one-hot."""
    if n_values_of(target) <= MAX_VALUES_OF_A_TARGET:
        return True
    return one_hot_positions(as_array(target)[np.newaxis]) is not None


def _columns_of(iterator: DatasetIteratorIF) -> tuple[ColumnReport, ...]:
    """Return the columns, by the schema and some samples spread over the iterator."""
    n_samples = len(iterator)
    if not n_samples:
        return ()
    n_read = min(n_samples, _N_SAMPLES_TO_FIND_COLUMNS)
    positions = np.linspace(0, n_samples - 1, n_read).round().astype(int)
    samples = [iterator[position] for position in sorted(set(positions.tolist()))]
    return columns_of(iterator, samples)


def features(iterator: DatasetIteratorIF) -> dict[int | str, ColumnReport]:
    """Return ``iterator.features``: the columns by name, or else by key."""
    reports: dict[int | str, ColumnReport] = {}
    for column in _columns_of(iterator):
        key = "value" if column.key is None else column.key
        reports[column.name or key] = column
    return reports
