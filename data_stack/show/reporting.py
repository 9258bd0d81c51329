"""Makes reports on iterators."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.stack import walk_stack
from data_stack.dataset.positions import as_index_array
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.io.account import PlaceAccount
from data_stack.show.column_report import ColumnReport, columns_of
from data_stack.show.column_statistics import with_statistics
from data_stack.show.iterator_report import DatasetIteratorReport
from data_stack.show.plain_report import plain_report
from data_stack.show.target_distribution import (
    MAX_VALUES_OF_A_TARGET,
    n_values_of,
    target_distribution,
)
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import as_array, one_hot_positions
from data_stack.values.stacking import value_of

#: Shapes and dtypes are found from this many samples at most.
_N_SAMPLES_TO_FIND_COLUMNS = 8

#: The maximum time for which iterating is measured.
_MAX_MEASURED_SECONDS = 0.2

#: The maximum number of samples over which iterating is measured.
_MAX_MEASURED_SAMPLES = 10_000


class DatasetIteratorReportGenerator:
    """Makes reports.

    The report counts targets as plain Python values: numbers of numpy and of tensors by value,
    one-hot vectors by the position of their one, vectors as tuples, and bytes, dates and other
    objects as text. More than 1,000 distinct numbers (100 if fractional), as in a regression, are
    counted in ten ranges of equal width such as ``"[0.5, 1.0)"``. If there are more than 1,000
    other distinct targets, the most frequent ones are counted, and the rest as ``"(others)"``.
    Targets of more than 64 values each, such as masks, are not counted. The distribution of an
    iterator without meta or targets is empty.

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
        """Report on an iterator, and on the iterators below it, in nested reports.

        Args:
            iterator: with or without meta.
            report_format: ``"data_class"`` for a DatasetIteratorReport (which prints as text, and
                has ``to_html()``), or ``"dict"``, ``"json"`` or ``"yaml"``. The last three number
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
            for iterator_below in below:
                reports[id(node)].sub_reports.append(reports[id(iterator_below)])
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
        """Return the number of samples of each target; empty if they cannot be counted."""
        try:
            targets = self._read_targets(iterator, target_pos)
        except ConfigError:
            # The samples have no target.
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
    """Return whether a target has few values, or is one-hot."""
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
