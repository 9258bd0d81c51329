"""Makes reports on an iterator and all that it is stacked on: sizes, layouts, distributions of targets."""

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
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, as_iterator, column_names
from data_stack.dataset.iterator.registry import OPERATIONS
from data_stack.dataset.iterator.stacking import as_array, value_of
from data_stack.dataset.positions import as_index_array
from data_stack.dataset.reports import column_statistics
from data_stack.dataset.reports.column_report import ColumnReport
from data_stack.dataset.reports.report import DatasetIteratorReport, plain_report
from data_stack.dataset.reports.target_distribution import MOST_VALUES_OF_A_TARGET, n_values_of, target_distribution
from data_stack.exception import ConfigError, MissingDependencyError

__all__ = ["DatasetIteratorReport", "DatasetIteratorReportGenerator"]

_SPEED_MAX_SAMPLES = 10_000
_SPEED_MAX_SECONDS = 0.2

_SAMPLES_LOOKED_AT = 8  # of the iterator reported on, where no schema tells

# Layouts are told of so many iterators of a stack, for a sample may be a picture to decode.
_MOST_SAMPLES_READ = 100

# Target columns of this many bytes at most are kept during a report, for what is stacked on their iterators.
_MOST_BYTES_KEPT = 1 << 28


class DatasetIteratorReportGenerator:
    """Makes reports.

    Targets are counted as plain Python values: numpy and tensor numbers as their value, one-hot vectors as the position
    of their one, bytes, dates and other objects as text, vectors as tuples. Numbers of more than 1,000 distinct values (100 if
    fractional), as in a regression, are counted in ten ranges of equal width such as ``"[0.5, 1.0)"``; of other targets of
    more than 1,000 distinct values the most frequent are counted and the rest is summed up as ``"(others)"``. Targets of more
    than 64 values each, such as masks, are not counted, nor read. An iterator without meta, or whose samples have no target,
    has an empty distribution.

    Targets are read as a column. Of samples the first one is read, for shapes and dtypes; of the iterator itself, where no schema
    tells them, eight between the first and the last. What a layer only rearranges is not
    read again where the iterator below it has been reported on.
    """

    class ReportFormat(Enum):
        """What a report is given as."""

        DATA_CLASS = "data_class"
        YAML = "yaml"
        JSON = "json"
        DICT = "dict"
        MARKDOWN = "markdown"
        HTML = "html"

    @staticmethod
    def generate_report(
        iterator: DatasetIteratorIF,
        report_format: ReportFormat | str = ReportFormat.DATA_CLASS,
        *,
        measure_speed: bool = False,
        statistics: bool = False,
    ) -> Any:
        """A report on ``iterator`` and, nested in it, on what it is stacked on.

        Args:
            iterator: with or without meta.
            report_format: a DatasetIteratorReport, the same as a dict, or that as JSON or YAML text, or as a document in
                Markdown or HTML. Dict, JSON and YAML number their reports and tell of an iterator once: where it is met again,
                there stand its name and length with ``"see_report": n``; of what lies more than 25 layers deep only these two.
            measure_speed: iterate over up to 10,000 samples of each iterator, for 0.2 s at most (or one sample).
            statistics: read all samples of ``iterator`` (not of those below it), and tell what is missing in each column, the
                extremes, mean and deviation of its numbers, and how many values are distinct. Memory stays bounded.

        Raises:
            ConfigError: there is no such format.
            MissingDependencyError: for YAML, PyYAML is not installed.
        """
        formats = DatasetIteratorReportGenerator.ReportFormat
        try:
            wanted = formats(report_format)
        except ValueError:
            known = ", ".join(repr(each.value) for each in formats)
            raise ConfigError(f"there is no report format {report_format!r}: there are {known}") from None
        report = _Reporter(measure_speed).report(iterator)
        if statistics and report.columns:
            report.columns = column_statistics.with_statistics(as_iterator(iterator), report.columns)
        if wanted is formats.DICT:
            return plain_report(report, has_text_keys=False)
        if wanted is formats.JSON:
            return json.dumps(plain_report(report, has_text_keys=True), indent=4, allow_nan=False)
        if wanted is formats.YAML:
            return _as_yaml(plain_report(report, has_text_keys=False))
        if wanted is formats.MARKDOWN:
            return report.to_markdown()
        return report.to_html() if wanted is formats.HTML else report

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
    """Makes the reports of one stack, each iterator's once."""

    def __init__(self, measure_speed: bool) -> None:
        self._measures_speed = measure_speed
        self._columns: dict[tuple[SampleAccess, ColumnKey], npt.NDArray[Any]] = {}
        self._n_bytes_kept = 0
        self._n_samples_read = 0

    def report(self, iterator: Any) -> DatasetIteratorReport:
        nodes = _find_below(iterator)
        reports = {id(node): self._bare_report(node, is_root=node is iterator) for node, _ in nodes}
        for node, underlying in nodes:
            reports[id(node)].sub_reports += [reports[id(each)] for each in underlying]
        return reports[id(iterator)]

    def _bare_report(self, iterator: Any, is_root: bool) -> DatasetIteratorReport:
        """The report without those that are nested in it."""
        meta = getattr(iterator, "dataset_meta", None)
        speed = DatasetIteratorReportGenerator.measure_iteration_speed(iterator) if self._measures_speed else None
        n_samples = len(iterator)
        sample: Any = None
        columns: tuple[ColumnReport, ...] = ()
        if n_samples and (is_root or (meta is not None and self._n_samples_read < _MOST_SAMPLES_READ)):
            declared = access_to(iterator).unwrap()[0].declare_columns() if isinstance(iterator, DatasetIteratorIF) else None
            looked_at = _positions_looked_at(n_samples) if is_root and declared is None else [0]
            self._n_samples_read += len(looked_at)
            samples = [iterator[position] for position in looked_at]
            sample = samples[0]
            columns = column_statistics.columns_of_samples(samples, meta, column_names(iterator), declared)
        if meta is None:
            name = type(iterator).__name__
            return DatasetIteratorReport(None, name, None, n_samples, None, None, None, {}, speed, [], columns=columns)
        class_names, feature_names = getattr(meta, "class_names", None), getattr(meta, "feature_names", None)
        return DatasetIteratorReport(
            identifier=meta.identifier,
            name=meta.dataset_name,
            tag=meta.dataset_tag,
            length=n_samples,
            sample_pos=meta.sample_pos,
            target_pos=meta.target_pos,
            tag_pos=meta.tag_pos,
            target_dist=self._distribution(as_iterator(iterator), meta.target_pos, sample),
            iteration_speed=speed,
            sub_reports=[],
            target_kind=getattr(meta, "target_kind", None),
            class_names=None if class_names is None else tuple(class_names),
            feature_names=None if feature_names is None else tuple(feature_names),
            provenance=tuple(getattr(meta, "provenance", ())),
            columns=columns,
        )

    def _distribution(self, iterator: DatasetIteratorIF, target_pos: ColumnKey, sample: Any) -> dict[Any, int]:
        try:
            if sample is not None and _is_no_class(value_of(sample, target_pos)):
                return {}
            return target_distribution(self._target_column(iterator, target_pos))
        except ConfigError:  # the samples have no target
            return {}

    def _target_column(self, iterator: DatasetIteratorIF, key: ColumnKey) -> npt.NDArray[Any]:
        """A column of ``iterator``, taken from that of the iterator below which has it, if that one was read."""
        source, positions = access_to(iterator).unwrap()
        if (source, key) in self._columns:
            column = self._columns[source, key]
        elif positions is None:
            (column,) = source.columns([key])
            if self._n_bytes_kept + column.nbytes <= _MOST_BYTES_KEPT:
                self._n_bytes_kept += column.nbytes
                self._columns[source, key] = column
        else:
            return source.columns([key], as_index_array(positions))[0]
        return column if positions is None else column.take(as_index_array(positions), axis=0)


def _find_below(root: Any) -> list[tuple[Any, list[Any]]]:
    """All iterators of a stack with what they are stacked on, each once; as a rule after what is below it."""
    found: dict[int, tuple[Any, list[Any]]] = {}
    waiting = [root]
    while waiting:
        iterator = waiting.pop()
        if id(iterator) not in found:
            below = list(getattr(iterator, "underlying_iterators", ()))
            found[id(iterator)] = iterator, below
            waiting += below
    return list(reversed(found.values()))


def _positions_looked_at(n_samples: int) -> list[int]:
    """The first one, the last one, and some between: of what all look alike in one of them, another may lack a value."""
    return sorted({round(part * (n_samples - 1) / (_SAMPLES_LOOKED_AT - 1)) for part in range(_SAMPLES_LOOKED_AT)})


def _is_no_class(target: Any) -> bool:
    """Whether a target has so many values that only one-hot vectors of that length would be counted, and is none."""
    if n_values_of(target) <= MOST_VALUES_OF_A_TARGET:
        return False
    array = as_array(target)
    return not (array.ndim == 1 and array.dtype.kind in "biuf" and np.count_nonzero(array) == 1 and array.max() == 1)


def _as_yaml(report: Any) -> str:
    try:
        import yaml  # optional, for this format alone
    except ModuleNotFoundError as error:
        raise MissingDependencyError("a report in YAML", "PyYAML", "yaml") from error
    text: str = yaml.safe_dump(report, indent=4, sort_keys=False, allow_unicode=True)
    return text


OPERATIONS["report"] = DatasetIteratorReportGenerator.generate_report
