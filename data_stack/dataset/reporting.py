"""Reports on an iterator and all that it is stacked on: sizes, layouts, distributions of targets."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.iterator import ColumnKey, DatasetIteratorIF, adapted
from data_stack.exception import ConfigError, MissingDependencyError

__all__ = ["DatasetIteratorReport", "DatasetIteratorReportGenerator"]

# More distinct targets than this are no classes: they are reported as ranges.
_MAX_CLASSES = 1000
_MAX_CLASSES_OF_FLOATS = 100
_N_RANGES = 10

_SPEED_MAX_SAMPLES = 10_000
_SPEED_MAX_SECONDS = 0.2


@dataclass
class DatasetIteratorReport:
    """What is known of one iterator.

    Attributes:
        identifier: of its meta; None without one.
        name: the dataset's name; of an iterator without meta, its class.
        tag: the dataset's tag, e.g. ``"train"``; None without one.
        length: number of samples.
        sample_pos: position or key of the sample proper; None without meta.
        target_pos: position or key of the target; None without meta.
        tag_pos: position or key of the tag; None without meta.
        target_dist: number of samples for each target, ordered by target; see :class:`DatasetIteratorReportGenerator`.
        iteration_speed: samples per second; None if it was not measured.
        sub_reports: of the underlying iterators, in order; a shared one has one report, found in several places.
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


class DatasetIteratorReportGenerator:
    """Makes reports.

    Targets are counted as plain Python values: numpy and tensor numbers as their value, one-hot vectors as the position
    of their one, bytes as text, vectors as tuples. Numbers of more than 1,000 distinct values (100 if fractional), as in
    a regression, are counted in ten ranges of equal width such as ``"[0.5, 1.0)"``; of other targets of more than
    1,000 distinct values the most frequent are counted and the rest is summed up as ``"(others)"``. An iterator without
    meta, or whose samples have no target, has an empty distribution. Targets are read as a column: samples that need not
    be built are not.
    """

    class ReportFormat(Enum):
        """What a report is given as."""

        DATA_CLASS = "data_class"
        YAML = "yaml"
        JSON = "json"
        DICT = "dict"

    @staticmethod
    def generate_report(
        iterator: DatasetIteratorIF, report_format: ReportFormat | str = ReportFormat.DATA_CLASS, *, measure_speed: bool = False
    ) -> Any:
        """A report on ``iterator`` and, nested in it, on what it is stacked on.

        Args:
            iterator: with or without meta.
            report_format: a DatasetIteratorReport, the same as a dict, or that as JSON or YAML text.
            measure_speed: iterate over up to 10,000 samples of each iterator, for 0.2 s at most (or one sample).

        Raises:
            MissingDependencyError: for YAML, PyYAML is not installed.
        """
        formats = DatasetIteratorReportGenerator.ReportFormat
        wanted = formats(report_format)
        report = _report(iterator, measure_speed, {})
        if wanted is formats.DATA_CLASS:
            return report
        as_dict = dataclasses.asdict(report)
        if wanted is formats.DICT:
            return as_dict
        if wanted is formats.JSON:
            return json.dumps(_with_text_keys(as_dict), indent=4)
        return _as_yaml(as_dict)

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


def _report(iterator: Any, measure_speed: bool, done: dict[int, tuple[Any, DatasetIteratorReport]]) -> DatasetIteratorReport:
    if id(iterator) in done:
        return done[id(iterator)][1]
    sub_reports = [_report(underlying, measure_speed, done) for underlying in getattr(iterator, "underlying_iterators", [])]
    meta = getattr(iterator, "dataset_meta", None)
    speed = DatasetIteratorReportGenerator.measure_iteration_speed(iterator) if measure_speed else None
    if meta is None:
        name = type(iterator).__name__
        report = DatasetIteratorReport(None, name, None, len(iterator), None, None, None, {}, speed, sub_reports)
    else:
        report = DatasetIteratorReport(
            identifier=meta.identifier,
            name=meta.dataset_name,
            tag=meta.dataset_tag,
            length=len(iterator),
            sample_pos=meta.sample_pos,
            target_pos=meta.target_pos,
            tag_pos=meta.tag_pos,
            target_dist=_distribution(adapted(iterator), meta.target_pos),
            iteration_speed=speed,
            sub_reports=sub_reports,
        )
    done[id(iterator)] = iterator, report  # kept alive, so that nothing else gets its id
    return report


def _distribution(iterator: DatasetIteratorIF, target_pos: ColumnKey) -> dict[Any, int]:
    try:
        targets = iterator.read_column(target_pos)
    except ConfigError:  # the samples have no target
        return {}
    if targets.ndim == 2 and targets.shape[1] > 1 and targets.dtype.kind in "biuf" and _is_one_hot(targets):
        targets = targets.argmax(axis=1)
    elif targets.ndim > 1 and targets[0:1].size == 1:
        targets = targets.reshape(len(targets))
    if targets.ndim == 1 and targets.dtype.kind in "iuf":
        n_distinct = len(np.unique(targets))
        if n_distinct > (_MAX_CLASSES_OF_FLOATS if targets.dtype.kind == "f" else _MAX_CLASSES):
            return _distribution_of_ranges(targets.astype(np.float64))
    counts = Counter(_plain(target) for target in targets.tolist())
    if len(counts) > _MAX_CLASSES:
        counts = Counter(dict(counts.most_common(_MAX_CLASSES)))
        counts["(others)"] += len(targets) - counts.total()
    return {target: counts[target] for target in sorted(counts, key=_order)}


def _is_one_hot(targets: npt.NDArray[Any]) -> bool:
    return bool(((targets == 0) | (targets == 1)).all() and (targets.sum(axis=1) == 1).all())


def _distribution_of_ranges(targets: npt.NDArray[np.float64]) -> dict[Any, int]:
    finite = targets[np.isfinite(targets)]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            counts, edges = np.histogram(finite, bins=_N_RANGES)
    except ValueError:  # too wide or too narrow to be divided
        counts, edges = np.array([len(finite)]), np.array([finite.min(), finite.max()])
    names = _range_names(edges, 6)
    if len(set(names)) < len(names):
        names = _range_names(edges, 17)
    ranges = dict(zip(names, counts.tolist(), strict=True))
    others = Counter(str(target) for target in targets[~np.isfinite(targets)].tolist())
    return ranges | dict(sorted(others.items()))


def _range_names(edges: npt.NDArray[np.float64], n_digits: int) -> list[str]:
    texts = [f"{edge:.{n_digits}g}" for edge in edges.tolist()]
    closing = [")"] * (len(texts) - 2) + ["]"]
    return [f"[{low}, {high}{end}" for low, high, end in zip(texts, texts[1:], closing, strict=False)]


def _plain(target: Any) -> Any:
    """A target as a hashable Python value; equal targets give equal values."""
    if hasattr(target, "tolist"):  # an array of its own shape in a ragged column
        target = target.tolist()
    if isinstance(target, bytes):
        return target.decode("utf-8", errors="backslashreplace")
    if isinstance(target, (list, tuple)):
        return tuple(_plain(value) for value in target)
    if isinstance(target, float) and target != target:
        return "nan"  # no nan equals another
    if target is None or isinstance(target, (str, bool, int, float)):
        return target
    return str(target)


def _order(target: Any) -> tuple[int, Any]:
    """Numbers by size, then text, then tuples by their values, then None."""
    if isinstance(target, (int, float)):
        return 0, target
    if isinstance(target, str):
        return 1, target
    return (2, tuple(map(_order, target))) if isinstance(target, tuple) else (3, 0)


def _with_text_keys(report: dict[str, Any]) -> dict[str, Any]:
    texts: dict[str, int] = {}
    for target, count in report["target_dist"].items():
        text = str(target)
        texts[json.dumps(text) if text in texts else text] = count  # the label "1" beside the label 1
    return report | {"target_dist": texts, "sub_reports": [_with_text_keys(sub_report) for sub_report in report["sub_reports"]]}


def _as_yaml(report: dict[str, Any]) -> str:
    try:
        import yaml  # optional, for this format alone
    except ModuleNotFoundError as error:
        raise MissingDependencyError("a report in YAML", "PyYAML", "yaml") from error
    text: str = yaml.safe_dump(_with_plain_keys(report), indent=4, sort_keys=False, allow_unicode=True)
    return text


def _with_plain_keys(report: dict[str, Any]) -> dict[str, Any]:
    """Tuples as text: YAML's safe form has no key of several values."""
    counts = {str(target) if isinstance(target, tuple) else target: count for target, count in report["target_dist"].items()}
    return report | {"target_dist": counts, "sub_reports": [_with_plain_keys(sub_report) for sub_report in report["sub_reports"]]}
