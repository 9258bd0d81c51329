"""Petastorm's predicates, which select the same rows as there (https://github.com/uber/petastorm, ``petastorm/predicates.py``).

Unlike comparisons, they are true or false of every row: null is a value as any other to them, so that ``in_negate(p)`` selects
exactly the rows that ``p`` does not.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.recipes.functions import code_content
from data_stack.dataset.recipes.functions import shorten as shown_function
from data_stack.dataset.recipes.recipe_values import content_if_known, content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.columns import objects
from data_stack.formats.parquet.selecting.expressions import check_field
from data_stack.formats.parquet.selecting.predicate import (
    Bools,
    Columns,
    Combination,
    Predicate,
    PredicateError,
    Statistics,
    column_of,
)
from data_stack.formats.parquet.selecting.values import Members, values_and_nulls

__all__ = [
    "PetastormPredicate",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
    "wrap",
]

_N_BUCKETS = 2**63 - 1  # sys.maxsize of the machines that Petastorm runs on

_ALL = (all, np.all, np.logical_and.reduce)
_ANY = (any, np.any, np.logical_or.reduce)


class _TrueOrFalse(Predicate):
    """Knows an answer for every row.

    Args:
        fields: as for :class:`Predicate`.
        arguments: what it was made with, which tells it apart from others.
    """

    def __init__(self, fields: Iterable[str], *arguments: Any) -> None:
        super().__init__(fields)
        self._arguments = arguments

    def content(self) -> Any:
        return {type(self).__name__: list(map(_content, self._arguments))}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(_shorten, self._arguments))})"

    def truths(self, columns: Columns) -> tuple[Bools, Bools]:
        answers = self._answers(columns)
        return answers, ~answers

    @abstractmethod
    def _answers(self, columns: Columns) -> Bools:
        """Shape (n,)."""


def _content(argument: Any) -> Any:
    if isinstance(argument, (Members, Predicate)):
        return argument.content()
    if isinstance(argument, list):
        return list(map(_content, argument))
    # of a function its name, or what is known of it, and its code
    return [content_of(argument), code_content(argument, content_if_known)] if callable(argument) else content_of(argument)


def _shorten(argument: Any) -> str:
    if isinstance(argument, (Members, Predicate)):
        return repr(argument)
    if isinstance(argument, list):
        return f"[{', '.join(map(_shorten, argument))}]"
    return shown_function(argument) if callable(argument) else shorten(argument)


class in_set(_TrueOrFalse):  # noqa: N801  # Petastorm's spelling
    """Whether a field's value is one of several; null if None is among them.

    Args:
        inclusion_values: hashable values, compared as Python does: 1 and 1.0 are the same, "1" is another.
        predicate_field: the field.
    """

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        self._members = Members(inclusion_values, "in_set")
        self._field = check_field(predicate_field, "in_set")
        super().__init__([predicate_field], self._members, predicate_field)

    def _answers(self, columns: Columns) -> Bools:
        try:
            return _are_members(column_of(columns, self._field), self._members)
        except PredicateError as error:
            raise PredicateError(f"in {self!r}: {error}") from error

    def could_be(self, truth: bool, statistics: Statistics) -> bool:
        known = statistics.get(self._field)
        if known is None or not truth:
            return True
        if self._members.has_null and known.n_nulls != 0:
            return True
        return known.n_nulls != known.n_rows and self._members.could_contain(known)


def _are_members(column: npt.NDArray[Any], members: Members) -> Bools:
    values, nulls = values_and_nulls(column)
    answers = np.full(len(column), members.has_null)
    answers[~nulls] = members.contains(values)
    return answers


class in_intersection(_TrueOrFalse):  # noqa: N801
    """Whether at least one value of a list or array is one of several. A row without a list is not selected.

    Args:
        inclusion_values: hashable values, compared as for :class:`in_set`.
        _predicate_field: the field; its values are lists or arrays of any shape. A text is taken as one value.
    """

    def __init__(self, inclusion_values: Iterable[Any], _predicate_field: str) -> None:
        self._members = Members(inclusion_values, "in_intersection")
        self._field = check_field(_predicate_field, "in_intersection")
        super().__init__([_predicate_field], self._members, _predicate_field)

    def _answers(self, columns: Columns) -> Bools:
        column = column_of(columns, self._field)
        try:
            if column.ndim > 1:
                each = _are_members(column.reshape(-1), self._members)
                return np.asarray(each.reshape(column.shape).any(axis=tuple(range(1, column.ndim))), dtype=bool)
            rows = [_list(value) for value in values_for_functions(column)]
            return np.fromiter((bool(_are_members(row, self._members).any()) for row in rows), bool, len(rows))
        except PredicateError as error:
            raise PredicateError(f"in {self!r}: {error}") from error


def _list(value: Any) -> npt.NDArray[Any]:
    """What is in a row's value, shape (n,)."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value.reshape(-1)
    if value is None or isinstance(value, (list, tuple)):
        return objects(value or ())
    if isinstance(value, (str, bytes)):
        return objects([value])
    raise PredicateError(f"{shorten(value)} is no list or array; use in_set")


def values_for_functions(column: npt.NDArray[Any]) -> list[Any]:
    """The values of a column as a function of the user's gets them: Python's own numbers and texts, numpy's times and arrays."""
    if column.ndim != 1 or column.dtype.kind in "mMV":
        return list(column)
    if column.dtype != object:
        return list(column.tolist())
    return [item.item() if isinstance(item, np.generic) and item.dtype.kind not in "mM" else item for item in column]


class RowFunction(_TrueOrFalse):
    """Asks a function row by row."""

    @abstractmethod
    def ask(self, values: Mapping[str, Any]) -> Any:
        """What the function gives for values of the fields."""

    def _answers(self, columns: Columns) -> Bools:
        given = {name: values_for_functions(column_of(columns, name)) for name in self.fields}
        answers = []
        for row in zip(*given.values(), strict=True):
            values = dict(zip(given, row, strict=True))
            try:
                answers.append(bool(self.ask(values)))
            except Exception as error:
                told = ", ".join(f"{name}={shorten(value)}" for name, value in values.items())
                what = f"{self!r} raised {type(error).__name__}: {error}, given {told}"
                raise PredicateError(what, len(answers)) from error
        return np.array(answers, dtype=bool)


class in_lambda(RowFunction):  # noqa: N801
    """What a function says of each row.

    Args:
        predicate_fields: the fields that it is given, in this order.
        predicate_func: takes the values of a row, one argument each: numbers and texts as Python's, null
            as None; then ``state_arg``, if there is one. Gives a bool.
        state_arg: what else it is given; None for nothing.
    """

    def __init__(self, predicate_fields: Sequence[str], predicate_func: Callable[..., Any], state_arg: Any = None) -> None:
        if not isinstance(predicate_fields, (list, tuple)) or not predicate_fields:
            raise ConfigError(f"in_lambda takes a list of at least one field, got {shorten(predicate_fields)}")
        if not callable(predicate_func):
            raise ConfigError(f"in_lambda takes a function, got {shorten(predicate_func)}")
        fields = [check_field(name, "in_lambda") for name in predicate_fields]
        super().__init__(fields, fields, predicate_func, *([] if state_arg is None else [state_arg]))

    def ask(self, values: Mapping[str, Any]) -> Any:
        fields, function, *state = self._arguments
        return function(*(values[name] for name in fields), *state)


class in_negate(_TrueOrFalse):  # noqa: N801
    """The rows that a predicate does not select: also those of which it says neither true nor false, unlike ``~``.

    Args:
        predicate: ours, or an object with Petastorm's two methods.
    """

    def __init__(self, predicate: Any) -> None:
        self._predicate = _check_predicate(predicate, "in_negate")
        super().__init__(self._predicate.fields, self._predicate)

    def _answers(self, columns: Columns) -> Bools:
        return ~self._predicate.mask(columns)


class in_reduce(_TrueOrFalse):  # noqa: N801
    """What a function makes of the answers of several predicates.

    Args:
        predicate_list: at least one predicate, ours or objects with Petastorm's two methods.
        reduce_func: ``all``, ``any``, ``numpy.all``, ``numpy.any``, or a function that is given a list of one bool for each
            predicate and gives a bool.
    """

    def __init__(self, predicate_list: Iterable[Any], reduce_func: Callable[..., Any]) -> None:
        self._predicates = [_check_predicate(predicate, "in_reduce") for predicate in predicate_list]
        if not self._predicates:
            raise ConfigError("in_reduce takes at least one predicate")
        if not callable(reduce_func):
            raise ConfigError(f"in_reduce takes a function such as all or any, got {shorten(reduce_func)}")
        names = (name for predicate in self._predicates for name in predicate.fields)
        super().__init__(names, self._predicates, reduce_func)
        self._function = reduce_func

    def _answers(self, columns: Columns) -> Bools:
        masks = np.stack([predicate.mask(columns) for predicate in self._predicates])
        if self._function in _ALL:
            return np.asarray(masks.all(axis=0))
        if self._function in _ANY:
            return np.asarray(masks.any(axis=0))
        try:
            return np.array([bool(self._function(answers)) for answers in masks.T.tolist()], dtype=bool)
        except Exception as error:
            raise PredicateError(f"{self!r} raised {type(error).__name__}: {error}") from error

    def could_be(self, truth: bool, statistics: Statistics) -> bool:
        if truth and self._function in (*_ALL, *_ANY):
            return Combination("&" if self._function in _ALL else "|", *self._predicates).could_be(True, statistics)
        return True


class in_pseudorandom_split(_TrueOrFalse):  # noqa: N801
    """One part of a dataset that is split at random, but always in the same way, and as Petastorm splits it.

    A row belongs to the part in whose range the MD5 of ``str(value)`` lies, so rows with the same value stay together, and the
    parts have the wanted sizes only roughly. All nulls lie in one part, that of the text "None", as there.

    Args:
        fraction_list: the part of all values that is wanted for each subset, each in [0, 1], together at most 1.
        subset_index: which subset, from 0 on.
        predicate_field: the field whose values are split: numbers, texts, bytes, times.
    """

    def __init__(self, fraction_list: Sequence[float], subset_index: int, predicate_field: str) -> None:
        fractions = [float(fraction) for fraction in fraction_list]
        if not all(0 <= fraction <= 1 for fraction in fractions) or sum(fractions) > 1 + 1e-9:
            raise ConfigError(f"fractions lie between 0 and 1, and their sum is at most 1; got {shorten(fraction_list)}")
        if not 0 <= subset_index < len(fractions):
            raise ConfigError(f"subset_index {subset_index} is not in [0, {len(fractions)}), the subsets that have a fraction")
        self._field = check_field(predicate_field, "in_pseudorandom_split")
        super().__init__([predicate_field], fractions, int(subset_index), predicate_field)
        # In floats, as Petastorm does: the last places decide in which part a bucket at a border lies.
        high_borders = [sum(fraction_list[: i + 1]) for i in range(len(fraction_list))]
        low = high_borders[subset_index - 1] if subset_index else 0
        self._low = math.ceil(low * (_N_BUCKETS - 1))
        self._high = math.ceil(high_borders[subset_index] * (_N_BUCKETS - 1))

    def _answers(self, columns: Columns) -> Bools:
        column = column_of(columns, self._field)
        if column.ndim != 1:
            raise PredicateError(f"in {self!r}: the field's values are arrays of shape {column.shape[1:]}; split by one value")
        values = column.tolist() if column.dtype.kind in "biuSUO" else column  # the texts of others differ from Python's
        return np.fromiter((self._low <= _bucket(str(value)) < self._high for value in values), bool, len(column))


def _bucket(text: str) -> int:
    # not to keep anything secret
    return int.from_bytes(hashlib.md5(text.encode("utf-8"), usedforsecurity=False).digest(), "big") % _N_BUCKETS


class PetastormPredicate(RowFunction):
    """An object with Petastorm's two methods, such as a subclass of its ``PredicateBase``, asked row by row.

    Args:
        predicate: has ``get_fields() -> set of names`` and ``do_include(values: dict) -> bool``. Values are given as to
            :class:`in_lambda`.
    """

    def __init__(self, predicate: Any) -> None:
        names = predicate.get_fields()
        if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
            raise ConfigError(f"get_fields() of {shorten(predicate)} gives a set of names of fields, not {shorten(names)}")
        super().__init__((check_field(name, f"get_fields() of {shorten(predicate)}") for name in names), predicate)
        if not self.fields:
            raise ConfigError(f"get_fields() of {shorten(predicate)} names no field")
        self._predicate = predicate

    def ask(self, values: Mapping[str, Any]) -> Any:
        return self._predicate.do_include(values)


def wrap(value: Any) -> Predicate | None:
    """A predicate of ours as it is, one of Petastorm's kind as one of ours; None for anything else."""
    if isinstance(value, Predicate):
        return value
    has_methods = all(callable(getattr(value, name, None)) for name in ("get_fields", "do_include"))
    return PetastormPredicate(value) if has_methods and not isinstance(value, type) else None


def _check_predicate(value: Any, what: str) -> Predicate:
    found = wrap(value)
    if found is None:
        raise ConfigError(
            f'{what} takes predicates such as in_set(["rain"], "weather") or col("speed") > 3, got {shorten(value)}'
        )
    return found
