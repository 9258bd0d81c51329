"""Finds columns of files that are not read, because the names of folders hold their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.formats.parquet.files import partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.partitions import partition_column
from data_stack.formats.parquet.schema import Field
from data_stack.io.account import LeftOut

#: The rule that leaves out a column of files, as the names of their folders take precedence.
OTHER_VALUES: Final = "other values than the name of the folder, which takes precedence"
#: The same, where the footer does not tell the values.
UNKNOWN_VALUES: Final = "values without statistics; the name of the folder takes precedence"

#: How many characters of a value are shown.
_SHOWN_CHARACTERS: Final = 40


@dataclass(frozen=True)
class _Bounds:
    """The values of a column of one file, as far as its footer tells.

    Attributes:
        minimum: the smallest value; None if all values are null.
        maximum: the largest value; None if all values are null.
        has_nulls: whether any value is null.
    """

    minimum: Any
    maximum: Any
    has_nulls: bool

    def __str__(self) -> str:
        if self.minimum is None:
            return "null"
        text = f"{self.minimum!s:.{_SHOWN_CHARACTERS}}"
        if self.minimum != self.maximum:
            text += f" to {self.maximum!s:.{_SHOWN_CHARACTERS}}"
        if self.has_nulls:
            text += " and null"
        return text


def replaced_columns(footers: Footers, fields: Mapping[str, Field]) -> list[LeftOut]:
    """Return the columns of files that have, or may have, other values than their folder's name.

    A column of which the footer shows that it has the value of its folder alone is not listed.

    Args:
        footers: the footers of the files.
        fields: the fields that are read, by name.

    Raises:
        DatasetFileCorruptError, StorageError: as :meth:`Footers.of`.
    """
    files = footers.files
    left_out: list[LeftOut] = []
    for name in partition_names(files.partitions):
        if name not in fields:
            continue
        numbers = [file for file in range(files.n_files) if name in footers.columns(file)]
        if not numbers:  # as most writers do it
            continue
        values = partition_column(fields[name], files)
        for file in numbers:
            column = f"{files.paths[file]}, column {name}"
            value = values[file]
            bounds = _bounds_of_column(footers, file, name)
            is_equal = None
            if bounds is not None:
                is_equal = _has_value_alone(fields[name], bounds, value)
            if is_equal is None:
                left_out.append(LeftOut(column, UNKNOWN_VALUES))
            elif not is_equal:
                shown = "null" if value is None else f"{value!s:.{_SHOWN_CHARACTERS}}"
                left_out.append(LeftOut(f"{column}: {bounds} instead of {shown}", OTHER_VALUES))
    return left_out


def _bounds_of_column(footers: Footers, file: int, name: str) -> _Bounds | None:
    """Return the bounds of a column of a file; None if its footer does not tell them."""
    facts = footers.facts(file)
    leaves = facts.columns[name]
    if len(leaves) != 1:
        return None
    (leaf,) = leaves
    metadata = footers.of(file)
    minima: list[Any] = []
    maxima: list[Any] = []
    has_nulls = False
    for index in np.flatnonzero(facts.n_rows).tolist():
        n_nulls = int(facts.chunks["n_nulls"][index, leaf])
        if n_nulls < 0 and not facts.is_required[leaf]:
            return None
        has_nulls = has_nulls or n_nulls > 0
        if n_nulls == facts.n_rows[index]:
            continue
        try:
            statistics = metadata.row_group(index).column(leaf).statistics
            if statistics is None or not statistics.has_min_max:
                return None
            minima.append(statistics.min)
            maxima.append(statistics.max)
        except (ValueError, OverflowError, NotImplementedError, pa.ArrowException):
            # A bound that Python's type does not hold, such as a date out of its range.
            return None
    if not minima:
        return _Bounds(None, None, has_nulls)
    return _Bounds(min(minima), max(maxima), has_nulls)


def _has_value_alone(field: Field, bounds: _Bounds, value: Any) -> bool | None:
    """Return whether all values within bounds are the value of a folder.

    Args:
        field: the field of the column.
        bounds: the bounds of the column of the file.
        value: the value of the folder; None for null.

    Returns:
        None if they cannot be compared.
    """
    if bounds.minimum is None:
        has_no_rows = not bounds.has_nulls
        return value is None or has_no_rows
    has_one_value = bounds.minimum == bounds.maximum and not bounds.has_nulls
    if value is None or not has_one_value:
        return False
    return _is_value(field, bounds.minimum, value)


def _is_value(field: Field, bound: Any, value: Any) -> bool | None:
    """Return whether a bound is a value of a field; None if it is of an incomparable type."""
    if bound == value:
        return True
    try:
        cells = pa.array([bound]).cast(field.arrow_type())
        column = field.cells.column(field, cells, has_nulls=False)
        return bool(column.value(0) == value)
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return None
