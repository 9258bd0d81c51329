"""What is known of one column of an iterator, and of the numbers in it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ColumnReport", "ColumnStatistics"]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """All values of a column; of arrays and lists, all values in them.

    Attributes:
        n_missing: how many values are None, NaN or NaT.
        n_numbers: how many numbers (bools are 0 and 1) there are.
        n_infinite: how many of them are infinite.
        min, max: of the numbers; of dates and times as text; None if there are none.
        mean, std: of the finite numbers, ``std`` of the population (divided by n); None if there are none.
        n_distinct: how many samples differ in this column; None of arrays, and of more than 100,000.
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
        role: ``"sample"``, ``"target"`` or ``"tag"``, by the meta; otherwise None.
        dtype: as a schema declares it, e.g. ``"utf8[]"``; otherwise of the column in a batch, e.g. ``"uint8"``, or where that is
            object the types of the values. Where a value may be missing, or is in a sample looked at, ``" or None"`` follows.
        shape: of one value, ``()`` of a number or text; an extent that differs between the samples looked at, or may by the
            schema, is None, and the whole is None if the number of extents differs or is unknown.
        statistics: None unless asked for.
        name: what the dataset calls the column of tuple samples; otherwise None.
    """

    key: int | str | None
    role: str | None
    dtype: str
    shape: tuple[int | None, ...] | None
    statistics: ColumnStatistics | None = None
    name: str | None = None
