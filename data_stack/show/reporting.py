"""Makes reports on an iterator and its stack."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess, access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.walk import walk_stack
from data_stack.dataset.positions import as_index_array
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.show.column_report import ColumnReport
from data_stack.show.column_statistics import columns_of, with_statistics
from data_stack.show.report import DatasetIteratorReport, plain_report
from data_stack.show.target_distribution import MAX_VALUES_OF_A_TARGET, n_values_of, target_distribution
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import one_hot_positions
from data_stack.values.stacking import as_array, value_of

__all__ = ["DatasetIteratorReport", "DatasetIteratorReportGenerator"]

_SPEED_MAX_SAMPLES = 10_000
_SPEED_MAX_SECONDS = 0.2

_N_SAMPLES_READ = 8  # to find the columns


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
            report_format: ``"data_class"`` for a DatasetIteratorReport (which has ``to_markdown()`` and ``to_html()``), or
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
            raise ConfigError(f"unknown report format {report_format!r}{near}; known formats: {names}") from None
        report = _Reporter(measure_speed).report(iterator)
        report.columns = _columns_of(as_iterator(iterator))
        if statistics:
            report.columns = with_statistics(as_iterator(iterator), report.columns)
        if wanted is formats.DICT:
            return plain_report(report, has_text_keys=False)
        if wanted is formats.JSON:
            return json.dumps(plain_report(report, has_text_keys=True), indent=4, allow_nan=False)
        return _as_yaml(plain_report(report, has_text_keys=False)) if wanted is formats.YAML else report

    @staticmethod
    def measure_iteration_speed(iterator: Iterable[Any]) -> float:
        """Samples per second of iterating over up to 10,000 samples, for 0.2 s at most; 0 for an empty iterator."""
        started = time.perf_counter()
        n_samples, seconds = 0, 0.0
        for n_samples, _ in enumerate(islice(iterator, _SPEED_MAX_SAMPLES), start=1):  # noqa: B007  # counted to the last
            seconds = time.perf_counter() - started
            if seconds > _SPEED_MAX_SECONDS:
                break
        return n_samples / max(seconds, 1e-9)


class _Reporter:
    """Makes one report for each iterator of a stack."""

    def __init__(self, measure_speed: bool) -> None:
        self._measures_speed = measure_speed
        self._columns: dict[tuple[SampleAccess, ColumnKey], npt.NDArray[Any]] = {}

    def report(self, iterator: Any) -> DatasetIteratorReport:
        nodes = list(walk_stack(iterator, lambda node: list(getattr(node, "underlying_iterators", ()))))
        reports = {id(node): self._bare_report(node) for node, _ in nodes}
        for node, underlying in nodes:
            reports[id(node)].sub_reports += [reports[id(each)] for each in underlying]
        return reports[id(iterator)]

    def _bare_report(self, iterator: Any) -> DatasetIteratorReport:
        """The report without sub-reports."""
        meta = getattr(iterator, "dataset_meta", None)
        speed = DatasetIteratorReportGenerator.measure_iteration_speed(iterator) if self._measures_speed else None
        n_samples = len(iterator)
        if meta is None:
            return DatasetIteratorReport(None, type(iterator).__name__, None, n_samples, None, None, None, {}, speed, [])
        return DatasetIteratorReport(
            identifier=meta.identifier,
            name=meta.dataset_name,
            tag=meta.dataset_tag,
            length=n_samples,
            sample_pos=meta.sample_pos,
            target_pos=meta.target_pos,
            tag_pos=meta.tag_pos,
            target_dist=self._distribution(as_iterator(iterator), meta.target_pos) if n_samples else {},
            iteration_speed=speed,
            sub_reports=[],
            target_kind=getattr(meta, "target_kind", None),
            class_names=getattr(meta, "class_names", None),
            feature_names=getattr(meta, "feature_names", None),
            provenance=tuple(getattr(meta, "provenance", ())),
        )

    def _distribution(self, iterator: DatasetIteratorIF, target_pos: ColumnKey) -> dict[Any, int]:
        source, positions = access_to(iterator).unwrap()
        try:
            if (source, target_pos) not in self._columns:
                if not _is_countable(value_of(iterator[0], target_pos)):
                    return {}
                if positions is not None:
                    return target_distribution(source.columns([target_pos], as_index_array(positions))[0])
                (self._columns[source, target_pos],) = source.columns([target_pos])
        except ConfigError:  # the samples have no target
            return {}
        column = self._columns[source, target_pos]
        return target_distribution(column if positions is None else column.take(as_index_array(positions), axis=0))


def _columns_of(iterator: DatasetIteratorIF) -> tuple[ColumnReport, ...]:
    n_samples = len(iterator)
    positions = sorted(set(np.linspace(0, n_samples - 1, min(n_samples, _N_SAMPLES_READ)).round().astype(int).tolist()))
    return columns_of(iterator, [iterator[position] for position in positions]) if positions else ()


def features(iterator: DatasetIteratorIF) -> dict[int | str, ColumnReport]:
    """``iterator.features``."""
    return {column.name or ("value" if column.key is None else column.key): column for column in _columns_of(iterator)}


def _is_countable(target: Any) -> bool:
    """Whether a target has few values, or is a one-hot vector."""
    return n_values_of(target) <= MAX_VALUES_OF_A_TARGET or one_hot_positions(as_array(target)[None]) is not None


def _as_yaml(report: Any) -> str:
    try:
        import yaml  # optional, for this format alone
    except ModuleNotFoundError as error:
        raise MissingDependencyError("a report in YAML", "PyYAML", "yaml") from error
    text: str = yaml.safe_dump(report, indent=4, sort_keys=False, allow_unicode=True)
    return text
