"""The contract of a predicate, which says of rows whether they are read, and how predicates are combined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, shorten
from data_stack.exception import ConfigError
from data_stack.formats.parquet.columns import objects

__all__ = ["Bools", "ColumnStatistics", "Columns", "Combination", "Predicate", "PredicateError", "Statistics", "column_of"]

Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]


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


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known of a column's values in a part of a dataset, without reading them.

    Attributes:
        n_rows: number of rows.
        n_nulls: number of nulls; None if that is not known.
        bounds: no value is less than the first or greater than the second, shape ``(2,)``, of the column's dtype; NaN and nulls
            aside. None if they are not known.
        is_exact: whether the bounds are values of the column, not just bounds, as shortened texts are.
    """

    n_rows: int
    n_nulls: int | None
    bounds: npt.NDArray[Any] | None = None
    is_exact: bool = False


Statistics = Mapping[str, ColumnStatistics]


class Predicate(ABC):
    """Says of rows whether they are wanted. It never changes, and can be sent to other processes.

    Combine predicates with ``&``, ``|`` and ``~``. As in SQL, a comparison with a null is neither true nor false, and so is its
    negation: neither ``col("a") > 3`` nor ``~(col("a") > 3)`` selects a row without ``a``; ``col("a").is_null()`` does.

    Petastorm's own methods, ``get_fields`` and ``do_include``, are there as well.

    Args:
        fields: the columns that are needed.

    Attributes:
        fields: the columns that are needed, sorted, each once.
    """

    __array_ufunc__ = None  # numpy's own values leave operators to us

    def __init__(self, fields: Iterable[str]) -> None:
        self.fields = tuple(sorted(set(fields)))

    @abstractmethod
    def truths(self, columns: Columns) -> tuple[Bools, Bools]:
        """Of which rows it is true, and of which false; of others it is neither. For ``columns`` see :meth:`mask`."""

    @abstractmethod
    def content(self) -> Any:
        """Plain JSON data that names this predicate exactly."""

    def could_be(self, truth: bool, statistics: Statistics) -> bool:
        """Whether it may be true (or false) of some row of a part with these statistics; False only if that is certain."""
        return True

    def mask(self, columns: Columns) -> Bools:
        """Which rows are wanted: bools, shape (n,).

        Args:
            columns: for each of ``fields`` n values: shape (n,), or (n, ...) where each value is an array. Of objects, None is
                null; so is NaT, but not NaN.

        Raises:
            ConfigError: a column is missing.
            PredicateError: the predicate cannot be applied to these values.
        """
        return self.truths(columns)[0]

    def get_fields(self) -> set[str]:
        """The columns that are needed: :attr:`fields` in Petastorm's manner."""
        return set(self.fields)

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Whether one row is wanted: :meth:`mask` in Petastorm's manner.

        Args:
            values: at least the fields needed.
        """
        return bool(self.mask({name: objects([values[name]]) for name in self.fields if name in values})[0])

    def __and__(self, other: Any) -> Predicate:
        return Combination("&", self, other) if isinstance(other, Predicate) else NotImplemented

    def __or__(self, other: Any) -> Predicate:
        return Combination("|", self, other) if isinstance(other, Predicate) else NotImplemented

    def __invert__(self) -> Predicate:
        return _Not(self)

    def __bool__(self) -> NoReturn:
        raise ConfigError(
            f"{shorten(self)} is neither true nor false by itself, it is so of rows. Combine predicates with &, | and ~ instead "
            f"of and, or and not, and put each comparison in parentheses; for a < x < b write col(…).between(a, b)"
        )

    def __repr__(self) -> str:
        return canonical_json(self.content())


def column_of(columns: Columns, name: str) -> npt.NDArray[Any]:
    """A column by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in columns:
        raise ConfigError(f"the predicate needs column {name!r}, which is not there; there are {shorten(sorted(columns))}")
    return np.asarray(columns[name])


class Combination(Predicate):
    """``left & right``, or ``left | right``; flat, for a filter may have thousands.

    Args:
        sign: ``"&"`` or ``"|"``.
        parts: at least one predicate.
    """

    def __init__(self, sign: str, *parts: Predicate) -> None:
        self._sign, self._parts = sign, list[Predicate]()
        for part in parts:
            self._parts += part._parts if isinstance(part, Combination) and part._sign == sign else [part]
        super().__init__(name for part in parts for name in part.fields)

    def truths(self, columns: Columns) -> tuple[Bools, Bools]:
        true, false = self._parts[0].truths(columns)
        for part in self._parts[1:]:
            its_true, its_false = part.truths(columns)
            if self._sign == "&":
                true, false = true & its_true, false | its_false
            else:
                true, false = true | its_true, false & its_false
        return true, false

    def could_be(self, truth: bool, statistics: Statistics) -> bool:
        return (all if truth == (self._sign == "&") else any)(part.could_be(truth, statistics) for part in self._parts)

    def content(self) -> Any:
        return {self._sign: [part.content() for part in self._parts]}

    def __repr__(self) -> str:
        return "(" + f" {self._sign} ".join(map(repr, self._parts)) + ")"


class _Not(Predicate):
    """``~predicate``: true where it is false, and unknown where it is unknown."""

    def __init__(self, predicate: Predicate) -> None:
        super().__init__(predicate.fields)
        self._predicate = predicate

    def truths(self, columns: Columns) -> tuple[Bools, Bools]:
        true, false = self._predicate.truths(columns)
        return false, true

    def could_be(self, truth: bool, statistics: Statistics) -> bool:
        return self._predicate.could_be(not truth, statistics)

    def content(self) -> Any:
        return {"~": self._predicate.content()}

    def __repr__(self) -> str:
        return f"~{self._predicate!r}"
