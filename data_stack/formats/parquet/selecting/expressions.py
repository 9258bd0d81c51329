"""What is asked of one column: ``col("speed") > 3``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.predicate import (
    Bools,
    Columns,
    ColumnStatistics,
    Predicate,
    PredicateError,
    Statistics,
    column_of,
)
from data_stack.formats.parquet.selecting.values import Members, as_numpy_time, compare, values_and_nulls

__all__ = ["Expression", "check_field", "col"]

_OPPOSITES: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def check_field(name: Any, what: str) -> str:
    """The name of a field, if it is one."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} takes the name of a field, got {shorten(name)}")
    return name


def col(name: str) -> Expression:
    """The column of that name, to be compared with values::

        (col("speed") > 3) & col("weather").isin(["rain", "snow"]) & ~col("label").is_null()

    Each comparison needs its parentheses, for ``&`` binds tighter than ``>`` in Python. ``col("id") % 10 == 3`` takes every tenth
    row, a column of bools may stand by itself: ``col("is_night")``. For what is asked of several columns at once, or of something
    computed of them, give an expression of ``pyarrow.compute`` or :class:`in_lambda`.

    Values compare as those of numpy and Python do, and times without a zone are UTC. For nulls see :class:`Predicate`; NaN is no
    null, and as everywhere it is different from all and neither less nor greater.
    """
    return Expression(check_field(name, "col"))


class _OfColumn(Predicate):
    """What is asked of the values of one column; unknown of null."""

    def __init__(self, field: str, modulus: int | None = None) -> None:
        super().__init__([field])
        self._field, self._modulus = field, modulus

    @property
    def _name(self) -> str:
        return f'col("{self._field}")' + (f" % {self._modulus}" if self._modulus else "")

    def truths(self, columns: Columns) -> tuple[Bools, Bools]:
        values, nulls = values_and_nulls(column_of(columns, self._field))
        answers = np.zeros(len(nulls), bool)
        try:
            if self._modulus and len(values):
                wide = f"{values.dtype.kind}8" if values.dtype.kind in "iu" else values.dtype  # one that holds the modulus
                values = values.astype(wide) % self._modulus
            answers[~nulls] = self._answers(values)
        except (TypeError, ValueError, ArithmeticError, PredicateError) as error:
            raise PredicateError(f"in {self!r}: {error}") from error
        return answers, ~answers & ~nulls

    @abstractmethod
    def _answers(self, values: Any) -> Bools:
        """Of values that are not null."""

    def could_be(self, truth: bool, statistics: Statistics) -> bool:
        known = statistics.get(self._field)
        if known is None:
            return True
        return known.n_nulls != known.n_rows and (bool(self._modulus) or self._could_be(truth, known))

    def _could_be(self, truth: bool, known: ColumnStatistics) -> bool:
        """Likewise of values that are not null."""
        return True

    def content(self) -> Any:
        return [self._field, self._modulus, *self._ask()]

    @abstractmethod
    def _ask(self) -> tuple[Any, ...]:
        """Plain data that names what is asked."""


class _Comparison(_OfColumn):
    def __init__(self, field: str, modulus: int | None, sign: str, value: Any, *, is_bare: bool = False) -> None:
        super().__init__(field, modulus)
        self._sign, self._given, self._value, self._is_bare = sign, value, as_numpy_time(value), is_bare

    def _answers(self, values: Any) -> Bools:
        return compare(values, self._sign, self._value)

    def _could_be(self, truth: bool, known: ColumnStatistics) -> bool:
        is_unequal = self._sign == "!="
        if known.bounds is None or self._value != self._value:
            return True
        if known.bounds.dtype.kind == "f" and truth == is_unequal:  # of NaN
            return True
        sign = self._sign if truth else _OPPOSITES[self._sign]
        low, high = known.bounds[:1], known.bounds[1:]
        try:
            if sign == "==":
                return bool(compare(low, "<=", self._value)[0] and compare(high, ">=", self._value)[0])
            if sign == "!=":
                return not (known.is_exact and compare(known.bounds, "==", self._value).all())
            return bool(compare(low if sign in ("<", "<=") else high, sign, self._value)[0])
        except PredicateError:  # it is raised again when the rows are looked at
            return True

    def _ask(self) -> tuple[Any, ...]:
        return self._sign, content_of(self._value)

    def __repr__(self) -> str:
        return self._name if self._is_bare else f"({self._name} {self._sign} {self._given!r})"


class _IsIn(_OfColumn):
    def __init__(self, field: str, modulus: int | None, members: Members) -> None:
        super().__init__(field, modulus)
        if members.has_null:
            raise ConfigError(
                f"null equals nothing; for rows without a value write {self._name}.isin([…]) | {self._name}.is_null()"
            )
        self._members = members

    def _answers(self, values: Any) -> Bools:
        return self._members.contains(values)

    def _could_be(self, truth: bool, known: ColumnStatistics) -> bool:
        return not truth or self._members.could_contain(known)

    def _ask(self) -> tuple[Any, ...]:
        return "isin", self._members.content()

    def __repr__(self) -> str:
        return f"{self._name}.isin({self._members!r})"


class _IsNull(_OfColumn):
    def truths(self, columns: Columns) -> tuple[Bools, Bools]:
        nulls = values_and_nulls(column_of(columns, self._field))[1]
        return nulls, ~nulls

    def _answers(self, values: Any) -> Bools:
        raise NotImplementedError  # nothing is asked of values

    def could_be(self, truth: bool, statistics: Statistics) -> bool:
        known = statistics.get(self._field)
        return known is None or known.n_nulls != (0 if truth else known.n_rows)

    def _ask(self) -> tuple[Any, ...]:
        return ("is_null",)

    def __repr__(self) -> str:
        return f"{self._name}.is_null()"


class Expression(_Comparison):
    """A column, or its remainder; comparing it makes a :class:`Predicate`. By itself it says whether the value is true."""

    def __init__(self, field: str, modulus: int | None = None) -> None:
        super().__init__(field, modulus, "==", True, is_bare=True)

    def isin(self, values: Iterable[Any]) -> Predicate:
        """Whether the value is one of ``values``; unknown of null."""
        return _IsIn(self._field, self._modulus, Members(values, "isin"))

    def between(self, low: Any, high: Any) -> Predicate:
        """Whether ``low <= value <= high``."""
        return self._compare(">=", low) & self._compare("<=", high)

    def is_null(self) -> Predicate:
        """Whether there is no value. NaN is a value."""
        return _IsNull(self._field)

    def is_not_null(self) -> Predicate:
        """Whether there is a value."""
        return ~_IsNull(self._field)

    def __mod__(self, modulus: int) -> Expression:
        given: Any = modulus
        if not isinstance(given, int) or given < 1 or self._modulus:
            raise ConfigError(f"{self!r} % takes an integer from 1 on, got {shorten(modulus)}")
        return Expression(self._field, modulus)

    def _compare(self, sign: str, value: Any) -> Predicate:
        if value is None:
            raise ConfigError(f"nothing compares with null; write {self!r}.{'is_not_null' if sign == '!=' else 'is_null'}()")
        if isinstance(value, (Predicate, list, tuple, set, frozenset, dict, np.ndarray)):
            raise ConfigError(
                f"{self!r} {sign} takes a single value, not {shorten(value)}. Put comparisons in parentheses; for several "
                f"values see isin([…]), for other columns expressions of pyarrow.compute"
            )
        return _Comparison(self._field, self._modulus, sign, value)

    def __gt__(self, other: Any) -> Predicate:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Predicate:
        return self._compare(">=", other)

    def __lt__(self, other: Any) -> Predicate:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Predicate:
        return self._compare("<=", other)

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]  # as numpy, pandas, pyarrow and Spark have it
        return self._compare("==", other)

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._compare("!=", other)

    __hash__ = None  # type: ignore[assignment]  # in a set or dict, __eq__ would have to say true or false
