"""Makes the tables of columns and of targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.show.column_report import ColumnReport
from data_stack.show.markup import Table, bar, number_text, readable
from data_stack.show.target_distribution import class_name


def table_of_columns(
    columns: Sequence[ColumnReport], values: Mapping[Any, str] | None = None
) -> Table:
    """Return a table with a row for each column of an iterator.

    Args:
        columns: the columns, with or without statistics.
        values: what to say about the values of a column, such as ``"10 classes"``, by its key.
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
        target_dist: the number of samples of each target; at least one target.
        class_names: the names of the classes, in the order of their numbers; None if unknown.
        target_kind: the kind of the targets in the meta.
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
