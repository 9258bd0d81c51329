"""Petastorm's predicates, which select the same rows as Petastorm.

A null is a value for them, so ``in_negate(p)`` selects exactly the rows that ``p`` does not select
(https://github.com/uber/petastorm, ``petastorm/predicates.py``).
"""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import (
    Columns,
    Predicate,
    PredicateError,
    as_predicate,
)
from data_stack_petastorm.column_predicate import (
    ColumnPredicate,
    IdentifiedPredicate,
    OneColumnPredicate,
    check_field_name,
)
from data_stack_petastorm.membership import are_members, check_members, elements_of
from data_stack_petastorm.pseudorandom_split import bucket_of, buckets_of_subset, texts_of

__all__ = [
    "PredicateBase",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
]

#: Functions for :class:`in_reduce` which are True if all predicates select a row. It computes their
#: results for all rows at once.
_FUNCTIONS_OF_ALL: Final = (all, np.all, np.logical_and.reduce)

#: Functions for :class:`in_reduce` which are True if any predicate selects a row.
_FUNCTIONS_OF_ANY: Final = (any, np.any, np.logical_or.reduce)

#: The sum of fractions may be above 1 by this much, because floats are rounded.
_MAX_ROUNDING: Final = 1e-9

_Bools = npt.NDArray[np.bool_]


class PredicateBase(ABC):
    """Base class of predicates; derive a predicate of your own from it."""

    @abstractmethod
    def get_fields(self) -> Any:
        """Return the names of the fields that :meth:`do_include` needs, at least one."""

    @abstractmethod
    def do_include(self, values: Mapping[str, Any]) -> Any:
        """Return whether to include a row.

        :func:`~data_stack_petastorm.reader.make_batch_reader` passes a DataFrame of many rows, and
        expects a Series or array with a bool for each.

        Args:
            values: the values of the row by the name of their field; or the DataFrame.
        """


class in_set(OneColumnPredicate, PredicateBase):  # noqa: N801  # Petastorm's spelling
    """Selects rows whose value is one of several.

    Args:
        inclusion_values: hashable values, compared as in Python: 1 equals 1.0, but not "1". None
            selects rows with null.
        predicate_field: the field.
    """

    _members: frozenset[Any]

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        self._members = check_members(inclusion_values, "in_set")
        bound = _bound_of_members(predicate_field, self._members)
        super().__init__(predicate_field, self._members, bound=bound)

    def _select(self, column: npt.NDArray[Any], dtype: Any) -> _Bools:
        return are_members(column, self._members)


def _bound_of_members(field: Any, members: frozenset[Any]) -> pc.Expression | None:
    """Return an expression of pyarrow that is true of all rows whose value is a member.

    None if the members have several types, or a type that Arrow lacks.
    """
    try:
        return pc.field(field).isin(list(members))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None


class in_intersection(OneColumnPredicate, PredicateBase):  # noqa: N801
    """Selects rows whose list or array contains at least one of several values.

    A missing list is not selected.

    Args:
        inclusion_values: hashable values, compared as for :class:`in_set`.
        _predicate_field: the field; its values are lists or arrays of any shape. A text is one
            value.
    """

    _members: frozenset[Any]

    def __init__(self, inclusion_values: Iterable[Any], _predicate_field: str) -> None:
        self._members = check_members(inclusion_values, "in_intersection")
        super().__init__(_predicate_field, self._members)

    def _select(self, column: npt.NDArray[Any], dtype: Any) -> _Bools:
        answers = []
        for value in column:
            are_elements_members = are_members(elements_of(value), self._members)
            answers.append(bool(are_elements_members.any()))
        return np.array(answers, dtype=bool)


class in_pseudorandom_split(OneColumnPredicate, PredicateBase):  # noqa: N801
    """Selects one subset of a reproducible pseudorandom split of the rows.

    Each value is in the same subset as in Petastorm. The MD5 digest of ``str(value)`` determines
    the subset, so rows with the same value are in the same subset, and the sizes of subsets are
    approximate. Nulls have the text that Petastorm has for them: "nan" for floats, "NaT" for
    timestamps, and "None" for other types.

    Args:
        fraction_list: the fraction of values in each subset, each in [0, 1], with a sum of at most
            1.
        subset_index: the subset, counted from 0.
        predicate_field: the field to split by: numbers, texts, bytes, times.

    Raises:
        ConfigError: an argument is out of its range.
    """

    _buckets: range

    def __init__(
        self, fraction_list: Sequence[float], subset_index: int, predicate_field: str
    ) -> None:
        fractions = [float(fraction) for fraction in fraction_list]
        are_fractions = all(0 <= fraction <= 1 for fraction in fractions)
        if not are_fractions or sum(fractions) > 1 + _MAX_ROUNDING:
            raise ConfigError(
                "fractions must be between 0 and 1, with a sum of at most 1; got "
                f"{shorten(fraction_list)}"
            )
        if not 0 <= subset_index < len(fractions):
            raise ConfigError(f"subset_index must be in [0, {len(fractions)}), got {subset_index}")
        super().__init__(predicate_field, fractions, int(subset_index))
        self._buckets = buckets_of_subset(fraction_list, subset_index)

    def _select(self, column: npt.NDArray[Any], dtype: Any) -> _Bools:
        if column.ndim != 1:
            raise PredicateError(f"{self!r} cannot split by arrays of shape {column.shape[1:]}")
        # Comparing twice is faster than asking the range.
        start = self._buckets.start
        stop = self._buckets.stop
        answers = [start <= bucket_of(text) < stop for text in texts_of(column, dtype)]
        return np.array(answers, dtype=bool)


class in_lambda(IdentifiedPredicate, PredicateBase):  # noqa: N801
    """Selects rows for which a function returns True.

    Args:
        predicate_fields: the fields that the function receives, in this order.
        predicate_func: takes the values of a row, one argument each (numbers and text of Python,
            None for null), then ``state_arg``, if given; returns a bool.
        state_arg: a further argument of the function; None to omit it.

    Raises:
        ConfigError: the fields are not a list of names, or the function cannot be called.
    """

    _fields: list[str]
    _function: Callable[..., Any]
    #: The state in a tuple; empty without one.
    _state: tuple[Any, ...]

    def __init__(
        self,
        predicate_fields: Sequence[str],
        predicate_func: Callable[..., Any],
        state_arg: Any = None,
    ) -> None:
        if not isinstance(predicate_fields, (list, tuple)) or not predicate_fields:
            raise ConfigError(
                f"in_lambda needs a list of at least one field, got {shorten(predicate_fields)}"
            )
        if not callable(predicate_func):
            raise ConfigError(f"in_lambda needs a function, got {shorten(predicate_func)}")
        self._fields = [check_field_name(name, "in_lambda") for name in predicate_fields]
        self._function = predicate_func
        self._state = ()
        if state_arg is not None:
            self._state = (state_arg,)
        self._arguments = (self._fields, predicate_func, *self._state)

    def get_fields(self) -> set[str]:
        """Return the names of the fields that the function receives."""
        return set(self._fields)

    def do_include(self, values: Mapping[str, Any]) -> Any:
        """Return what the function returns for a row."""
        arguments = [values[name] for name in self._fields]
        return self._function(*arguments, *self._state)


class in_negate(ColumnPredicate, PredicateBase):  # noqa: N801
    """Selects the rows that a predicate does not select, also those with null.

    The operator ``~`` of pyarrow's expressions selects no rows with null.

    Args:
        predicate: a predicate, or an expression of pyarrow.
    """

    _predicate: Predicate

    def __init__(self, predicate: Any) -> None:
        self._predicate = as_predicate(predicate)
        super().__init__(self._predicate.fields, self._predicate)

    def mask(self, columns: Columns) -> _Bools:
        return ~self._predicate.mask(columns)


class in_reduce(ColumnPredicate, PredicateBase):  # noqa: N801
    """Selects rows by a function of the results of several predicates.

    Args:
        predicate_list: at least one predicate, or expression of pyarrow.
        reduce_func: ``all``, ``any``, ``numpy.all``, ``numpy.any``, or a function that takes a list
            with one bool for each predicate and returns a bool.

    Raises:
        ConfigError: there is no predicate, or the function cannot be called.
    """

    _predicates: list[Predicate]
    _function: Callable[..., Any]

    def __init__(self, predicate_list: Iterable[Any], reduce_func: Callable[..., Any]) -> None:
        self._predicates = [as_predicate(predicate) for predicate in predicate_list]
        if not self._predicates:
            raise ConfigError("in_reduce needs at least one predicate")
        if not callable(reduce_func):
            raise ConfigError(
                f"in_reduce needs a function such as all or any, got {shorten(reduce_func)}"
            )
        names: list[str] = []
        for predicate in self._predicates:
            names.extend(predicate.fields)
        bound = _combined_bound(self._predicates, reduce_func)
        super().__init__(names, self._predicates, reduce_func, bound=bound)
        self._function = reduce_func

    def mask(self, columns: Columns) -> _Bools:
        masks = np.stack([predicate.mask(columns) for predicate in self._predicates])
        if self._function in _FUNCTIONS_OF_ALL:
            return np.asarray(masks.all(axis=0))
        if self._function in _FUNCTIONS_OF_ANY:
            return np.asarray(masks.any(axis=0))
        results_of_rows = masks.T.tolist()
        try:
            answers = [bool(self._function(results)) for results in results_of_rows]
        except Exception as error:
            raise PredicateError(f"{self!r} raised {type(error).__name__}: {error}") from error
        return np.array(answers, dtype=bool)


def _combined_bound(
    predicates: Sequence[Predicate], reduce_func: Callable[..., Any]
) -> pc.Expression | None:
    """Return an expression of pyarrow that is true of each row that :class:`in_reduce` selects.

    None if the bounds of the predicates do not yield one.
    """
    bounds = [predicate.bound for predicate in predicates if predicate.bound is not None]
    if not bounds:
        return None
    if reduce_func in _FUNCTIONS_OF_ALL:
        # All predicates select a selected row, so it satisfies the bounds of those that have one.
        return functools.reduce(operator.and_, bounds)
    all_have_bounds = len(bounds) == len(predicates)
    if reduce_func in _FUNCTIONS_OF_ANY and all_have_bounds:
        # At least one predicate selects a selected row, so it satisfies at least one bound.
        return functools.reduce(operator.or_, bounds)
    return None
