"""The contract of a predicate, which says of rows whether they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import objects

Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]


class InstantColumns(dict[str, npt.NDArray[Any]]):
    """Columns, some of which are times of a known zone: instants, in UTC.

    Args:
        columns: as in :data:`Columns`.
        instants: the names of these.
    """

    def __init__(self, columns: Columns, instants: frozenset[str]) -> None:
        super().__init__(columns)
        self.instants = instants


class PredicateError(ConfigError):
    """A predicate cannot be applied to the values it was given; what it raised itself is chained.

    Attributes:
        reason: what is wrong, and what to do.
        row: position of the row in the columns that were given to ``mask``; None if no single row is to blame.
    """

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason, row)
        self.reason, self.row = reason, row

    def __str__(self) -> str:
        return self.reason if self.row is None else f"row {self.row} of those looked at: {self.reason}"


class Predicate(ABC):
    """Says of rows whether they are wanted. It never changes, and can be sent to other processes.

    Predicates combine by :class:`in_reduce` and :class:`in_negate`, which take expressions of pyarrow as well.
    Petastorm's own methods, ``get_fields`` and ``do_include``, are there too.

    Args:
        fields: the columns that are needed.
        bound: an expression of ``pyarrow.compute`` that is true of each wanted row, to skip row groups by their statistics;
            None if there is no such expression.

    Attributes:
        fields: the columns that are needed, sorted, each once.
        bound: as given.
    """

    def __init__(self, fields: Iterable[str], bound: pc.Expression | None = None) -> None:
        self.fields, self.bound = tuple(sorted(set(fields))), bound

    @abstractmethod
    def mask(self, columns: Columns) -> Bools:
        """Which rows are wanted: bools, shape (n,).

        Args:
            columns: for each of ``fields`` n values: shape (n,), or (n, ...) where each value is an array. Of objects, None is
                null; so is NaT, but not NaN.

        Raises:
            ConfigError: a column is missing.
            PredicateError: the predicate cannot be applied to these values.
        """

    @abstractmethod
    def content(self) -> Any:
        """Plain JSON data that names this predicate exactly."""

    def get_fields(self) -> set[str]:
        """The columns that are needed: :attr:`fields` in Petastorm's manner."""
        return set(self.fields)

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Whether one row is wanted: :meth:`mask` in Petastorm's manner.

        Args:
            values: at least the fields needed.
        """
        return bool(self.mask({name: objects([values[name]]) for name in self.fields if name in values})[0])

    def __bool__(self) -> NoReturn:
        raise ConfigError(f"{shorten(self)} has no truth value: combine predicates by in_reduce([…], all), not by and")


def column_of(columns: Columns, name: str) -> npt.NDArray[Any]:
    """A column by its name.

    Raises:
        ConfigError: the column is missing.
    """
    if name not in columns:
        raise ConfigError(f"the predicate needs column {name!r}, which is not there; there are {shorten(sorted(columns))}")
    return np.asarray(columns[name])


def as_times(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column of objects that are times of numpy as an array of times, NaT for None; another column as it is."""
    first = next((value for value in column if value is not None), None) if column.dtype == object else None
    if not isinstance(first, (np.datetime64, np.timedelta64)):
        return column
    return np.array(["NaT" if value is None else value for value in column], first.dtype)
