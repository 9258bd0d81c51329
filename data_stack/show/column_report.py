"""The report on one column of an iterator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of all values of a column; the values inside arrays and lists count, too.

    Attributes:
        n_missing: number of values that are None, NaN or NaT.
        n_numbers: number of numbers (bools are 0 and 1).
        n_infinite: number of infinite ones.
        min, max: of the numbers; of dates and times as text; None without values.
        mean, std: of the finite numbers, ``std`` of the population (divided by n); None without values.
        n_distinct: number of distinct values; None for arrays, and for more than 100,000.
    """

    n_missing: int
    n_numbers: int
    n_infinite: int
    min: float | int | str | None
    max: float | int | str | None
    mean: float | None
    std: float | None
    n_distinct: int | None


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """A column of an iterator.

    Attributes:
        key: position in tuple samples, key of dict samples; None of bare samples.
        role: ``"sample"``, ``"target"`` or ``"tag"``, by the meta.
        dtype: that of the schema, e.g. ``"utf8[]"``; without a schema that of the column in a batch, e.g. ``"uint8"``, or the
            types of its objects. It ends with ``" or None"`` if values may be missing.
        shape: of one value, ``()`` for a number or text. None stands for an extent that varies; the shape is None if the number
            of dimensions varies.
        statistics: None unless requested.
        name: the column's name in tuple samples, if it has one.
    """

    key: int | str | None
    role: str | None
    dtype: str
    shape: tuple[int | None, ...] | None
    statistics: ColumnStatistics | None = None
    name: str | None = None
