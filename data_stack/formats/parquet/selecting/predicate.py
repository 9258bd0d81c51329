"""The contract of a predicate, which selects rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError

Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]


class InstantColumns(dict[str, npt.NDArray[Any]]):
    """Columns that may include instants: times with a zone, in UTC.

    Args:
        columns: as in :data:`Columns`.
        instants: names of the columns of instants.
    """

    def __init__(self, columns: Columns, instants: frozenset[str]) -> None:
        super().__init__(columns)
        self.instants = instants


class PredicateError(ConfigError):
    """A predicate cannot be applied to its values; the original error is chained.

    Attributes:
        reason: what is wrong, and what to do.
        row: position of the row in the columns passed to ``mask``; None if the error concerns no single row.
    """

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason, row)
        self.reason, self.row = reason, row

    def __str__(self) -> str:
        return self.reason if self.row is None else f"row {self.row} of the examined ones: {self.reason}"


class Predicate(ABC):
    """Selects rows. It is immutable and can be pickled.

    Args:
        fields: the columns that the predicate needs.
        bound: an expression of ``pyarrow.compute`` that is true of each selected row, to skip row groups by their statistics;
            None without one.

    Attributes:
        fields: the columns that the predicate needs, sorted, each once.
        bound: as given.
    """

    def __init__(self, fields: Iterable[str], bound: pc.Expression | None = None) -> None:
        self.fields, self.bound = tuple(sorted(set(fields))), bound

    @abstractmethod
    def mask(self, columns: Columns) -> Bools:
        """Which rows are selected: bools, shape (n,).

        Args:
            columns: n values for each of ``fields``: shape (n,), or (n, ...) for arrays. None (among objects) and NaT are null,
                NaN is not.

        Raises:
            ConfigError: a column is missing.
            PredicateError: the predicate cannot be applied to these values.
        """

    @abstractmethod
    def content(self) -> Any:
        """Plain JSON data that identifies this predicate."""


def column_of(columns: Columns, name: str) -> npt.NDArray[Any]:
    """A column by its name.

    Raises:
        ConfigError: the column is missing.
    """
    if name not in columns:
        raise ConfigError(f"the predicate needs column {name!r}, which does not exist; columns: {shorten(sorted(columns))}")
    return np.asarray(columns[name])


def as_times(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert a column of numpy times as objects to an array of times, with NaT for None; other columns are unchanged."""
    first = next((value for value in column if value is not None), None) if column.dtype == object else None
    if not isinstance(first, (np.datetime64, np.timedelta64)):
        return column
    return np.array(["NaT" if value is None else value for value in column], first.dtype)
