"""The contract of a predicate, which says of rows whether they are read, and how predicates are combined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, shown
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.values import Bools, objects

__all__ = ["ANY_TRUTH", "Both", "ColumnStatistics", "Either", "Not", "Predicate", "Truth", "Truths", "column_of", "negated"]

Truth = bool | None
"""True, False, or None for unknown: what a comparison with null gives."""

ANY_TRUTH: frozenset[Truth] = frozenset((True, False, None))


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known of a column's values in a part of a dataset, without reading them.

    Attributes:
        minimum: no value is less; None if that is not known. NaN is not covered, nor are nulls. Of a partition, the value itself.
        maximum: no value is greater; None if that is not known.
        n_nulls: number of nulls; None if that is not known.
        n_rows: number of rows.
        is_exact: whether ``minimum`` and ``maximum`` are values of the column, not just bounds, as shortened texts are.
    """

    minimum: Any | None
    maximum: Any | None
    n_nulls: int | None
    n_rows: int
    is_exact: bool


@dataclass(frozen=True)
class Truths:
    """What a predicate says of each row: true, false, or neither, which is unknown. Both of shape (n,)."""

    true: Bools
    false: Bools


class Predicate(ABC):
    """Says of rows whether they are wanted. It is a value: it never changes, it can be compared, and sent to other processes.

    Combine predicates with ``&``, ``|`` and ``~``. As in SQL, a comparison with a null is neither true nor false, and so is its
    negation: neither ``col("a") > 3`` nor ``~(col("a") > 3)`` selects a row without ``a``; ``col("a").is_null()`` does.

    Petastorm's own methods, ``get_fields`` and ``do_include``, are there as well.
    """

    __array_ufunc__ = None  # numpy's own values leave operators to us

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The columns that are needed, sorted, each once."""

    @abstractmethod
    def truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        """What is true, and what is false. For ``columns`` see :meth:`mask`."""

    @abstractmethod
    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        """What it may say of some row of a part with these statistics: at least whatever it does say of one."""

    @abstractmethod
    def content(self) -> Any:
        """Plain JSON data that names this predicate exactly: the same for the same rows selected in the same way."""

    def mask(self, columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
        """Which rows are wanted: bools, shape (n,).

        Args:
            columns: for each of ``fields`` n values: shape (n,), or (n, ...) where each value is an array. Of objects, None is
                null; so is NaT, but not NaN.

        Raises:
            ConfigError: a column is missing.
            PredicateError: the predicate cannot be applied to these values.
        """
        return self.truths(columns).true

    def could_match(self, statistics: Mapping[str, ColumnStatistics]) -> bool:
        """False only if certainly no row is wanted. A column without statistics may have any values."""
        return True in self.possible_truths(statistics)

    def must_match(self, statistics: Mapping[str, ColumnStatistics]) -> bool:
        """True only if certainly every row is wanted, so that no row need be looked at."""
        return self.possible_truths(statistics) <= {True}

    def get_fields(self) -> set[str]:
        """The columns that are needed: :attr:`fields` in Petastorm's manner."""
        return set(self.fields)

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Whether one row is wanted: :meth:`mask` in Petastorm's manner.

        Args:
            values: at least the fields needed.
        """
        columns = {name: objects([values[name]]) for name in self.fields if name in values}
        return bool(self.mask(columns)[0])

    def __and__(self, other: Any) -> Predicate:
        found = _predicate_in(other)
        return NotImplemented if found is None else Both(self, found)

    def __rand__(self, other: Any) -> Predicate:
        found = _predicate_in(other)
        return NotImplemented if found is None else Both(found, self)

    def __or__(self, other: Any) -> Predicate:
        found = _predicate_in(other)
        return NotImplemented if found is None else Either(self, found)

    def __ror__(self, other: Any) -> Predicate:
        found = _predicate_in(other)
        return NotImplemented if found is None else Either(found, self)

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise ConfigError(
            f"{shown(self)} is neither true nor false by itself, it says so of rows. Combine predicates with &, | and ~ instead "
            f"of and, or and not, and put each comparison in parentheses; for a < x < b write col(…).between(a, b)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Predicate):
            return NotImplemented
        return self is other or (type(self) is type(other) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> str:
        return canonical_json(self.content())

    def _in_parentheses(self) -> str:
        """How it stands in the text of a combination."""
        return repr(self)


def _predicate_in(value: Any) -> Predicate | None:
    if isinstance(value, Predicate):
        return value
    to_predicate = getattr(value, "as_predicate", None)  # an expression such as col("is_night")
    found = to_predicate() if callable(to_predicate) else None
    return found if isinstance(found, Predicate) else None


def column_of(columns: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """A column by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in columns:
        raise ConfigError(f"the predicate needs column {name!r}, which is not there; there are {shown(sorted(columns))}")
    return columns[name]


def negated(truths: frozenset[Truth]) -> frozenset[Truth]:
    """What the negation may be."""
    return frozenset(None if truth is None else not truth for truth in truths)


class _Combination(Predicate):
    """Of several predicates, one after the other; flat, for a filter may have thousands."""

    _sign = ""
    _parts: tuple[Predicate, ...]

    def __init__(self, *parts: Predicate) -> None:
        kind = type(self)
        self._parts = tuple(inner for part in parts for inner in (part._parts if type(part) is kind else (part,)))

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(sorted({name for part in self._parts for name in part.fields}))

    def truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        return reduce(self._both_truths, (part.truths(columns) for part in self._parts))

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        return reduce(
            lambda ones, others: frozenset(self._truth(one, other) for one in ones for other in others),
            (part.possible_truths(statistics) for part in self._parts),
        )

    def content(self) -> Any:
        return {self._sign: [part.content() for part in self._parts]}

    @abstractmethod
    def _both_truths(self, one: Truths, other: Truths) -> Truths:
        """Of many rows."""

    @abstractmethod
    def _truth(self, one: Truth, other: Truth) -> Truth:
        """Of one row."""

    def __repr__(self) -> str:
        return f" {self._sign} ".join(part._in_parentheses() for part in self._parts)

    def _in_parentheses(self) -> str:
        return f"({self!r})"


class Both(_Combination):
    """``left & right``."""

    _sign = "&"

    def _both_truths(self, one: Truths, other: Truths) -> Truths:
        return Truths(one.true & other.true, one.false | other.false)

    def _truth(self, one: Truth, other: Truth) -> Truth:
        if one is False or other is False:
            return False
        return None if one is None or other is None else True


class Either(_Combination):
    """``left | right``."""

    _sign = "|"

    def _both_truths(self, one: Truths, other: Truths) -> Truths:
        return Truths(one.true | other.true, one.false & other.false)

    def _truth(self, one: Truth, other: Truth) -> Truth:
        if one is True or other is True:
            return True
        return None if one is None or other is None else False


class Not(Predicate):
    """``~predicate``: true where it is false, and unknown where it is unknown."""

    def __init__(self, predicate: Predicate) -> None:
        self._predicate = predicate

    @property
    def fields(self) -> tuple[str, ...]:
        return self._predicate.fields

    def truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        found = self._predicate.truths(columns)
        return Truths(found.false, found.true)

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        return negated(self._predicate.possible_truths(statistics))

    def content(self) -> Any:
        return {"~": self._predicate.content()}

    def __repr__(self) -> str:
        return f"~{self._predicate._in_parentheses()}"
