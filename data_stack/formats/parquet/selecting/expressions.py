"""Expressions over columns, and what is asked of them: ``col("speed") > 3``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import shown
from data_stack.dataset.recipes.functions import code_content
from data_stack.dataset.recipes.functions import shown as shown_function
from data_stack.dataset.recipes.recipe_values import content_of, known_content
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.errors import PredicateError
from data_stack.formats.parquet.selecting.membership import Membership
from data_stack.formats.parquet.selecting.predicate import ColumnStatistics, Predicate, Truth, Truths, column_of
from data_stack.formats.parquet.selecting.ranges import (
    ANYTHING,
    Range,
    arithmetic_range,
    comparison_truths,
    constant_range,
    range_of,
)
from data_stack.formats.parquet.selecting.values import (
    Bools,
    Values,
    arithmetic,
    comparable,
    compare,
    compare_with,
    objects,
    shown_kind,
    typed,
)

__all__ = ["Comparison", "Expression", "IsIn", "IsNull", "Matches", "col", "function_content", "values_for_functions"]


_NANOSECOND = 10**9  # in attoseconds
_NUMPY_SCALARS = (np.number, np.bool_, np.str_, np.bytes_)
_NEVER_NULL = {str, bytes, bool, int, float, type(None)}


def col(name: str) -> Expression:
    """The column of that name, to be compared::

        (col("speed") > 3) & col("weather").isin(["rain", "snow"]) & ~col("name").matches("^test")

    Each comparison needs its parentheses, for ``&`` binds tighter than ``>`` in Python.

    Numbers compare exactly: a float32 column that has the float32 nearest to 0.1 has no 0.1. Times without a zone are UTC.
    For nulls see :class:`Predicate`; NaN is no null, and as everywhere it is different from all and neither less nor greater.
    """
    given: object = name
    if not isinstance(given, str) or not given:
        raise ConfigError(f"a column is named by a text, got {shown(name)}")
    return _Column(name)


class Expression(ABC):
    """A value for each row, made from columns; comparing it makes a :class:`Predicate`.

    ``+ - * / // %`` take expressions, numbers, and for times also durations. Integers do not overflow, floats are float64, and
    what is divided by zero is null. An expression of bools may stand where a predicate does.
    """

    __array_ufunc__ = None  # numpy's own values leave operators to us

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The columns that are needed, sorted, each once."""

    @abstractmethod
    def values(self, columns: Mapping[str, npt.NDArray[Any]]) -> Values:
        """The value for each row. For ``columns`` see :meth:`Predicate.mask`."""

    @abstractmethod
    def range(self, statistics: Mapping[str, ColumnStatistics]) -> Range:
        """What statistics tell of the values."""

    @abstractmethod
    def content(self) -> Any:
        """Plain JSON data that names this expression exactly."""

    def isin(self, values: Iterable[Any]) -> Predicate:
        """Whether the value is one of ``values``; unknown of null."""
        return IsIn(self, Membership(values, "isin"))

    def between(self, low: Any, high: Any) -> Predicate:
        """Whether ``low <= value <= high``."""
        above, below = _comparison(self, ">=", low), _comparison(self, "<=", high)
        return above & below

    def matches(self, pattern: str | re.Pattern[str]) -> Predicate:
        """Whether a regular expression is found in the text: ``^`` and ``$`` tie it to the ends, as everywhere in :mod:`re`."""
        return Matches(self, pattern)

    def is_null(self) -> Predicate:
        """Whether there is no value. NaN is a value."""
        return IsNull(self)

    def is_not_null(self) -> Predicate:
        """Whether there is a value."""
        return ~IsNull(self)

    def apply(self, function: Callable[..., Any], *, batched: bool = False) -> Expression:
        """What a function makes of the value: a bool, to be used as a predicate, or anything to be compared.

        Args:
            function: is given a value and gives one; numbers and bools arrive as Python's. Null is not given to it, and stays
                null. ``batched``, it is given the column as it is read, nulls included, shape (n, ...), and gives an array of
                shape (n,).
            batched: whether the function takes many values at once.
        """
        return _Applied(self, function, batched)

    def as_predicate(self) -> Predicate:
        """Whether the value is true, of an expression of bools."""
        return Comparison(self, "==", _Literal(True), is_bare=True)

    def __gt__(self, other: Any) -> Predicate:
        return _comparison(self, ">", other)

    def __ge__(self, other: Any) -> Predicate:
        return _comparison(self, ">=", other)

    def __lt__(self, other: Any) -> Predicate:
        return _comparison(self, "<", other)

    def __le__(self, other: Any) -> Predicate:
        return _comparison(self, "<=", other)

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]  # as numpy, pandas, pyarrow and Spark have it
        return _comparison(self, "==", other)

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return _comparison(self, "!=", other)

    __hash__ = None  # type: ignore[assignment]  # in a set or dict, __eq__ would have to say true or false

    def __add__(self, other: Any) -> Expression:
        return _Arithmetic(self, "+", _operand(other))

    def __radd__(self, other: Any) -> Expression:
        return _Arithmetic(_operand(other), "+", self)

    def __sub__(self, other: Any) -> Expression:
        return _Arithmetic(self, "-", _operand(other))

    def __rsub__(self, other: Any) -> Expression:
        return _Arithmetic(_operand(other), "-", self)

    def __mul__(self, other: Any) -> Expression:
        return _Arithmetic(self, "*", _operand(other))

    def __rmul__(self, other: Any) -> Expression:
        return _Arithmetic(_operand(other), "*", self)

    def __truediv__(self, other: Any) -> Expression:
        return _Arithmetic(self, "/", _operand(other))

    def __rtruediv__(self, other: Any) -> Expression:
        return _Arithmetic(_operand(other), "/", self)

    def __floordiv__(self, other: Any) -> Expression:
        return _Arithmetic(self, "//", _operand(other))

    def __rfloordiv__(self, other: Any) -> Expression:
        return _Arithmetic(_operand(other), "//", self)

    def __mod__(self, other: Any) -> Expression:
        return _Arithmetic(self, "%", _operand(other))

    def __rmod__(self, other: Any) -> Expression:
        return _Arithmetic(_operand(other), "%", self)

    def __neg__(self) -> Expression:
        return _Arithmetic(_Literal(0), "-", self)

    def __and__(self, other: Any) -> Predicate:
        return self.as_predicate() & _combinable(other, "&")

    def __rand__(self, other: Any) -> Predicate:
        return _combinable(other, "&") & self.as_predicate()

    def __or__(self, other: Any) -> Predicate:
        return self.as_predicate() | _combinable(other, "|")

    def __ror__(self, other: Any) -> Predicate:
        return _combinable(other, "|") | self.as_predicate()

    def __invert__(self) -> Predicate:
        return ~self.as_predicate()

    def __bool__(self) -> NoReturn:
        raise ConfigError(
            f"{shown(self)} is neither true nor false by itself. Combine with &, | and ~ instead of and, or and not, and put "
            f"each comparison in parentheses; for a < x < b write col(…).between(a, b)"
        )

    def _as_operand(self) -> str:
        return repr(self)


def _combinable(other: Any, sign: str) -> Predicate:
    if isinstance(other, Expression):
        return other.as_predicate()
    if isinstance(other, Predicate):
        return other
    raise ConfigError(
        f"{sign} combines predicates, and {shown(other)} is none. Put each comparison in parentheses: "
        f'(col("a") > 3) {sign} (col("b") < 5)'
    )


def _operand(value: Any) -> Expression:
    if isinstance(value, Expression):
        return value
    return _Literal(value)


def _comparison(left: Expression, name: str, right: Any) -> Predicate:
    if right is None:
        raise ConfigError(f"nothing compares with null; write {left!r}.{'is_not_null' if name == '!=' else 'is_null'}()")
    if isinstance(right, Predicate):
        raise ConfigError(f"{shown(right)} is a predicate, not a value to compare {left!r} with; put comparisons in parentheses")
    return Comparison(left, name, _operand(right))


class _Column(Expression):
    """A column, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def fields(self) -> tuple[str, ...]:
        return (self._name,)

    def values(self, columns: Mapping[str, npt.NDArray[Any]]) -> Values:
        try:
            return typed(column_of(columns, self._name))
        except PredicateError as error:
            raise PredicateError(f"column {self._name!r}: {error.reason}", error.row) from error

    def column(self, columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """The column as it is."""
        return np.asarray(column_of(columns, self._name))

    def range(self, statistics: Mapping[str, ColumnStatistics]) -> Range:
        return range_of(self._name, statistics)

    def content(self) -> Any:
        return {"column": self._name}

    def __repr__(self) -> str:
        return f'col("{self._name}")' if self._name.isprintable() and '"' not in self._name else f"col({self._name!r})"


class _Literal(Expression):
    """A value that is the same for all rows."""

    def __init__(self, value: Any) -> None:
        known = comparable(value)
        if known is None:
            raise ConfigError("null is no value to compare or compute with; see is_null()")
        if known[0] == "array" or known[0].startswith("other: data_stack."):
            raise ConfigError(
                f"a column is compared with single values, not with {shown(value)}; for several values see isin([…])"
            )
        self._value = value
        self.kind, self.comparable = known

    @property
    def fields(self) -> tuple[str, ...]:
        return ()

    def values(self, columns: Mapping[str, npt.NDArray[Any]]) -> Values:
        return typed(objects([self._value]))

    def range(self, statistics: Mapping[str, ColumnStatistics]) -> Range:
        return constant_range(self.kind, self.comparable)

    def content(self) -> Any:
        return {"value": content_of(self._value)}

    def __repr__(self) -> str:
        return repr(self._value.item() if isinstance(self._value, (np.number, np.bool_)) else self._value)


class _Arithmetic(Expression):
    """Two expressions, computed with."""

    def __init__(self, left: Expression, name: str, right: Expression) -> None:
        self._left, self._name, self._right = left, name, right

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(sorted({*self._left.fields, *self._right.fields}))

    def values(self, columns: Mapping[str, npt.NDArray[Any]]) -> Values:
        try:
            return arithmetic(self._left.values(columns), self._name, self._right.values(columns))
        except PredicateError as error:
            raise _in(self, error) from error

    def range(self, statistics: Mapping[str, ColumnStatistics]) -> Range:
        return arithmetic_range(self._left.range(statistics), self._name, self._right.range(statistics))

    def content(self) -> Any:
        return {self._name: [self._left.content(), self._right.content()]}

    def __repr__(self) -> str:
        return f"{self._left._as_operand()} {self._name} {self._right._as_operand()}"

    def _as_operand(self) -> str:
        return f"({self!r})"


class _Applied(Expression):
    """What a function of the user's makes of the values."""

    def __init__(self, operand: Expression, function: Callable[..., Any], batched: bool) -> None:
        if not callable(function):
            raise ConfigError(f"apply takes a function, got {shown(function)}")
        if batched and not isinstance(operand, _Column):
            raise ConfigError("apply(…, batched=True) is for columns as they are read, not for expressions of them")
        self._operand, self._function, self._batched = operand, function, batched

    @property
    def fields(self) -> tuple[str, ...]:
        return self._operand.fields

    def values(self, columns: Mapping[str, npt.NDArray[Any]]) -> Values:
        if isinstance(self._operand, _Column):
            column = self._operand.column(columns)
            return self._of_column(column) if self._batched else self._of_items(values_for_functions(column))
        found = self._operand.values(columns)
        items = found.array.tolist()
        if found.kind in ("time", "duration"):
            as_numpy = np.datetime64 if found.kind == "time" else np.timedelta64
            items = [as_numpy(item * found.unit // _NANOSECOND, "ns") for item in items]
        if found.nulls is not None:
            items = [None if is_null else item for item, is_null in zip(items, found.nulls.tolist(), strict=True)]
        return self._of_items(items)

    def _of_items(self, items: list[Any]) -> Values:
        made: list[Any] = []
        try:
            for item in items:
                made.append(None if item is None or _is_nat(item) else self._function(item))  # noqa: PERF401  # its length is needed
        except Exception as error:
            raise PredicateError(
                f"the function of {self!r} raised {type(error).__name__}: {error}, given {shown(items[len(made)])}", len(made)
            ) from error
        return typed(objects(made))

    def _of_column(self, column: npt.NDArray[Any]) -> Values:
        try:
            made = self._function(column)
        except Exception as error:
            raise PredicateError(f"the function of {self!r} raised {type(error).__name__}: {error}") from error
        array = np.asarray(made)
        if array.shape != column.shape[:1]:
            raise PredicateError(f"the function of {self!r} gave values of shape {array.shape}, not ({len(column)},)")
        return typed(array)

    def range(self, statistics: Mapping[str, ColumnStatistics]) -> Range:
        return ANYTHING

    def content(self) -> Any:
        return {"apply": [self._operand.content(), function_content(self._function), self._batched]}

    def __repr__(self) -> str:
        return f"{self._operand._as_operand()}.apply({shown_function(self._function)}{', batched=True' * self._batched})"


def _is_nat(item: Any) -> bool:
    return isinstance(item, (np.datetime64, np.timedelta64)) and bool(np.isnat(item))


def function_content(function: Any) -> Any:
    """Plain data that stands for what a function does: its name, or what is known of it, and its code."""
    return [content_of(function), code_content(function, known_content)]


def values_for_functions(column: npt.NDArray[Any]) -> list[Any]:
    """The values of a column as a function of the user's gets them: Python's own numbers and texts, numpy's times and arrays."""
    if column.ndim != 1 or column.dtype.kind in "mMV":
        return list(column)
    items: list[Any] = column.tolist()
    of_numpy = {kind for kind in set(map(type, items)) if issubclass(kind, _NUMPY_SCALARS) and kind is not np.timedelta64}
    return [item.item() if type(item) in of_numpy else item for item in items] if of_numpy else items


def _in(expression: Any, error: PredicateError) -> PredicateError:
    return PredicateError(f"in {shown(expression)}: {error.reason}", error.row)


# ---------------------------------------------------------------------- what is asked of expressions


class Comparison(Predicate):
    """Two expressions, compared.

    Args:
        left: the one.
        name: ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
        right: the other.
        is_bare: whether it was written without the comparison, ``col("is_night")``.
    """

    def __init__(self, left: Expression, name: str, right: Expression, *, is_bare: bool = False) -> None:
        self._left, self._name, self._right, self._is_bare = left, name, right, is_bare

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(sorted({*self._left.fields, *self._right.fields}))

    def truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        try:
            return self._truths(columns)
        except PredicateError as error:
            raise _in(self, error) from error

    def _truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        left = self._left.values(columns)
        if isinstance(self._right, _Literal):
            if left.kind is None:
                return _truths(np.zeros(left.array.shape, dtype=bool), left.nulls)
            return _truths(compare_with(left, self._name, self._right.kind, self._right.comparable), left.nulls)
        right = self._right.values(columns)
        if left.kind is None or right.kind is None:
            nothing = np.zeros(np.broadcast_shapes(left.array.shape, right.array.shape), dtype=bool)
            return _truths(nothing, ~nothing)
        answers = compare(left, self._name, right)
        nulls = [np.broadcast_to(side.nulls, answers.shape) for side in (left, right) if side.nulls is not None]
        return _truths(answers, np.logical_or.reduce(nulls) if nulls else None)

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        return comparison_truths(self._left.range(statistics), self._name, self._right.range(statistics))

    def content(self) -> Any:
        return {self._name: [self._left.content(), self._right.content()]}

    def __repr__(self) -> str:
        if self._is_bare:
            return repr(self._left)
        return f"{self._left!r} {self._name} {self._right!r}"

    def _in_parentheses(self) -> str:
        return repr(self) if self._is_bare else f"({self!r})"


def _truths(answers: Bools, nulls: Bools | None) -> Truths:
    if nulls is None:
        return Truths(answers, ~answers)
    return Truths(answers & ~nulls, ~answers & ~nulls)


class _OfOne(Predicate):
    """What is asked of one expression."""

    def __init__(self, operand: Expression) -> None:
        self._operand = operand

    @property
    def fields(self) -> tuple[str, ...]:
        return self._operand.fields

    def truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        try:
            return self._of_values(self._operand.values(columns))
        except PredicateError as error:
            raise _in(self, error) from error

    @abstractmethod
    def _of_values(self, values: Values) -> Truths:
        """The truths of the values of the expression."""


class IsIn(_OfOne):
    """Whether the value of an expression is one of several."""

    def __init__(self, operand: Expression, members: Membership) -> None:
        if members.has_null:
            raise ConfigError(
                f"null equals nothing; for rows without a value write {operand!r}.isin([…]) | {operand!r}.is_null()"
            )
        super().__init__(operand)
        self._members = members

    def _of_values(self, values: Values) -> Truths:
        others = self._members.kinds - {values.kind}
        if values.kind not in (None, "array") and others:
            raise PredicateError(f"{shown_kind(values.kind)} never is {shown_kind(min(others))}")
        return _truths(self._members.contains(values), values.nulls)

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        known = self._operand.range(statistics)
        truths: set[Truth] = {None} if known.may_be_null else set()
        if known.may_be_value:
            if self._members.may_contain(known) or self._members.kinds - {known.kind}:
                truths.add(True)
            if not self._members.must_contain(known):
                truths.add(False)
        return frozenset(truths)

    def content(self) -> Any:
        return {"isin": [self._operand.content(), self._members.content()]}

    def __repr__(self) -> str:
        return f"{self._operand._as_operand()}.isin({self._members!r})"


class IsNull(_OfOne):
    """Whether an expression has no value."""

    def truths(self, columns: Mapping[str, npt.NDArray[Any]]) -> Truths:
        if isinstance(self._operand, _Column):  # of columns that cannot be compared, too
            nulls = _nulls(self._operand.column(columns))
            return Truths(nulls, ~nulls)
        return super().truths(columns)

    def _of_values(self, values: Values) -> Truths:
        nulls = np.zeros(values.array.shape[:1], dtype=bool) if values.nulls is None else values.nulls
        return Truths(nulls, ~nulls)

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        known = self._operand.range(statistics)
        return frozenset([True] * known.may_be_null + [False] * known.may_be_value)

    def content(self) -> Any:
        return {"is_null": self._operand.content()}

    def __repr__(self) -> str:
        return f"{self._operand._as_operand()}.is_null()"


def _nulls(column: npt.NDArray[Any]) -> Bools:
    if column.dtype.kind in "mM" and column.ndim == 1:
        return np.asarray(np.isnat(column))
    if column.dtype != object or column.ndim != 1:
        return np.zeros(len(column), dtype=bool)
    items = column.tolist()
    if set(map(type, items)) <= _NEVER_NULL:
        return np.fromiter((item is None for item in items), dtype=bool, count=len(items))
    return np.fromiter((comparable(item) is None for item in items), dtype=bool, count=len(items))


class Matches(_OfOne):
    """Whether a regular expression is found in a text."""

    def __init__(self, operand: Expression, pattern: str | re.Pattern[str]) -> None:
        super().__init__(operand)
        try:
            self._pattern = re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ConfigError(f"no regular expression: {shown(pattern)} ({error})") from error
        if not isinstance(self._pattern.pattern, str):
            raise ConfigError(f"a regular expression over text is needed, got one over bytes: {shown(pattern)}")

    def _of_values(self, values: Values) -> Truths:
        if values.kind is None:
            return _truths(np.zeros(values.array.shape, dtype=bool), values.nulls)
        if values.kind != "text":
            raise PredicateError(f"a regular expression is looked for in text, not in {shown_kind(values.kind)}")
        items = values.array.tolist()
        found = {text: self._pattern.search(text) is not None for text in set(items)}  # each text once
        return _truths(np.fromiter(map(found.__getitem__, items), dtype=bool, count=len(items)), values.nulls)

    def possible_truths(self, statistics: Mapping[str, ColumnStatistics]) -> frozenset[Truth]:
        known = self._operand.range(statistics)
        truths: set[Truth] = {None} if known.may_be_null else set()
        if known.may_be_value and known.kind == "text" and known.is_one_value:
            truths.add(self._pattern.search(known.low) is not None)
        elif known.may_be_value:
            truths |= {True, False}
        return frozenset(truths)

    def content(self) -> Any:
        return {"matches": [self._operand.content(), self._pattern.pattern, int(self._pattern.flags)]}

    def __repr__(self) -> str:
        return f"{self._operand._as_operand()}.matches({self._pattern.pattern!r})"
