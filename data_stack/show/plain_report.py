"""Converts reports to plain data."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from data_stack.show.iterator_report import DatasetIteratorReport
from data_stack.show.target_distribution import plain_value

#: Parsers of JSON and YAML limit nesting.
_MAX_DEPTH = 25


def plain_report(report: DatasetIteratorReport, *, has_text_keys: bool) -> dict[str, Any]:
    """Return the report as a tree of JSON's types of bounded depth, with each shared report once.

    Args:
        report: a report of any depth.
        has_text_keys: whether the keys of all dicts are text, as JSON requires. Otherwise targets
            stay what they are, except tuples, which become text.
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
            # If the label 1 and the label "1" both occur, the second one becomes '"1"'.
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
