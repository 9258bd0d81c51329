"""Petastorm's predicates, which select the same rows (https://github.com/uber/petastorm, ``petastorm/predicates.py``).

They treat null as a value, so ``in_negate(p)`` selects exactly the rows that ``p`` does not select.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.codecs.plain_data import canonical_json, shorten
from data_stack.dataset.recipes.functions import code_content
from data_stack.dataset.recipes.functions import shorten as shown_function
from data_stack.dataset.recipes.recipe_values import content_if_known, content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import (
    Columns,
    Predicate,
    PredicateError,
    TypedColumns,
    as_predicate,
    as_times,
    column_of,
)
from data_stack.values.stacked_values import objects
from data_stack_petastorm.plain_times import as_numpy_time

__all__ = [
    "PredicateBase",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
]

_N_BUCKETS = 2**63 - 1  # sys.maxsize of the machines that Petastorm runs on

_ALL = (all, np.all, np.logical_and.reduce)
_ANY = (any, np.any, np.logical_or.reduce)

_Bools = npt.NDArray[np.bool_]


class PredicateBase(ABC):
    """Derive from it for a predicate of your own."""

    @abstractmethod
    def get_fields(self) -> Any:
        """Return the names of the required fields, at least one."""

    @abstractmethod
    def do_include(self, values: Mapping[str, Any]) -> Any:
        """Return whether to include a row.

        Args:
            values: the values of a row by name; for :func:`~data_stack_petastorm.reader.make_batch_reader` a DataFrame of rows,
                for which the result is a Series or array of bools.
        """


class _Known:
    """A predicate that is identified by its class and arguments."""

    _arguments: tuple[Any, ...]

    def content(self) -> Any:
        """Plain JSON data that identifies this predicate."""
        return {type(self).__name__: list(map(_content, self._arguments))}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(_shorten, self._arguments))})"


def _content(argument: Any) -> Any:
    if isinstance(argument, Predicate):
        return argument.content()
    if isinstance(argument, frozenset):
        return sorted(canonical_json(content_of(value)) for value in argument)
    if isinstance(argument, list):
        return list(map(_content, argument))
    # for a function: its name or content, and its code
    return (
        [content_of(argument), code_content(argument, content_if_known)]
        if callable(argument)
        else content_of(argument)
    )


def _shorten(argument: Any) -> str:
    if isinstance(argument, (list, frozenset)):
        texts = list(map(_shorten, argument))
        return f"[{', '.join(texts if isinstance(argument, list) else sorted(texts)[:8])}]"
    return shown_function(argument) if callable(argument) else shorten(argument)


class _OfColumns(_Known, Predicate, PredicateBase):
    """A predicate of whole columns.

    Args:
        fields: the columns that the predicate needs.
        arguments: the arguments of the class.
        bound: an expression of pyarrow that is true of each selected row; None without one.
    """

    def __init__(
        self, fields: Iterable[str], *arguments: Any, bound: pc.Expression | None = None
    ) -> None:
        super().__init__(fields, bound)
        self._arguments = arguments

    def get_fields(self) -> set[str]:
        """Return the names of the required fields."""
        return set(self.fields)

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Return whether to include a row."""
        return bool(self.mask({name: objects([values[name]]) for name in self.fields})[0])


class _OfOneColumn(_OfColumns):
    """A predicate of the values of one field."""

    def __init__(self, field: Any, *arguments: Any, bound: pc.Expression | None = None) -> None:
        super().__init__([_check_field(field, type(self).__name__)], *arguments, field, bound=bound)

    def mask(self, columns: Columns) -> _Bools:
        return self._mask_of(column_of(columns, self.fields[0]))

    @abstractmethod
    def _mask_of(self, column: npt.NDArray[Any]) -> _Bools:
        """Which values are selected."""


class in_set(_OfOneColumn):  # noqa: N801  # Petastorm's spelling
    """Selects rows whose value is one of several; null if None is among them.

    Args:
        inclusion_values: hashable values, compared as in Python: 1 equals 1.0, but not "1".
        predicate_field: the field.
    """

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        self._members = _check_members(inclusion_values, "in_set")
        try:
            bound = pc.field(predicate_field).isin(list(self._members))
        except (
            pa.ArrowException,
            ValueError,
            TypeError,
            OverflowError,
        ):  # values of several types, or without a type of Arrow
            bound = None
        super().__init__(predicate_field, self._members, bound=bound)

    def _mask_of(self, column: npt.NDArray[Any]) -> _Bools:
        return _are_members(column, self._members)


class in_intersection(_OfOneColumn):  # noqa: N801
    """Selects rows whose list or array contains at least one of several values. A missing list is not selected.

    Args:
        inclusion_values: hashable values, compared as for :class:`in_set`.
        _predicate_field: the field; its values are lists or arrays of any shape. A text is one value.
    """

    def __init__(self, inclusion_values: Iterable[Any], _predicate_field: str) -> None:
        self._members = _check_members(inclusion_values, "in_intersection")
        super().__init__(_predicate_field, self._members)

    def _mask_of(self, column: npt.NDArray[Any]) -> _Bools:
        rows = map(_elements, column)
        return np.fromiter(
            (bool(_are_members(row, self._members).any()) for row in rows), bool, len(column)
        )


class in_pseudorandom_split(_OfOneColumn):  # noqa: N801
    """Selects one subset of a pseudorandom split, which is reproducible and the same as Petastorm's.

    The MD5 of ``str(value)`` determines the subset, so rows with the same value stay together, and sizes are approximate. All
    nulls are in the subset of one text: "nan" for floats, "NaT" for timestamps, and "None" for others, as Petastorm reads them.

    Args:
        fraction_list: the fraction of values in each subset, each in [0, 1], with a sum of at most 1.
        subset_index: the subset, counted from 0.
        predicate_field: the field to split by: numbers, texts, bytes, times.
    """

    def __init__(
        self, fraction_list: Sequence[float], subset_index: int, predicate_field: str
    ) -> None:
        fractions = [float(fraction) for fraction in fraction_list]
        if not all(0 <= fraction <= 1 for fraction in fractions) or sum(fractions) > 1 + 1e-9:
            raise ConfigError(
                f"fractions must be between 0 and 1, with a sum of at most 1; got {shorten(fraction_list)}"
            )
        if not 0 <= subset_index < len(fractions):
            raise ConfigError(f"subset_index must be in [0, {len(fractions)}), got {subset_index}")
        super().__init__(predicate_field, fractions, int(subset_index))
        # In floats, as in Petastorm: rounding decides the subset of a bucket at a border.
        high_borders = [sum(fraction_list[: i + 1]) for i in range(len(fraction_list))]
        low = high_borders[subset_index - 1] if subset_index else 0
        self._low = math.ceil(low * (_N_BUCKETS - 1))
        self._high = math.ceil(high_borders[subset_index] * (_N_BUCKETS - 1))

    def mask(self, columns: Columns) -> _Bools:
        (name,) = self.fields
        column = column_of(columns, name)
        if column.ndim != 1:
            raise PredicateError(f"{self!r} cannot split by arrays of shape {column.shape[1:]}")
        dtype = columns.dtypes.get(name) if isinstance(columns, TypedColumns) else None
        text_of_null = _text_of_null(column, dtype)
        # the texts of others differ from those of Python's values
        values = column.tolist() if column.dtype.kind in "biuSUO" else column
        texts = (text_of_null if value is None else str(value) for value in values)
        return np.fromiter(
            (self._low <= _bucket(text) < self._high for text in texts), bool, len(column)
        )

    def _mask_of(self, column: npt.NDArray[Any]) -> _Bools:
        return self.mask({self.fields[0]: column})


def _text_of_null(column: npt.NDArray[Any], dtype: Any) -> str:
    """The text of a missing value as Petastorm reads it: pandas makes NaN of a missing float, and NaT of a missing timestamp.

    Args:
        column: the values.
        dtype: the dtype of the field; None if only the values tell it.
    """
    if dtype is None and column.dtype == object:
        first = next((value for value in column if value is not None), None)
        dtype = first.dtype if isinstance(first, np.generic) else np.dtype(type(first))
    if not isinstance(dtype, np.dtype):
        return "None"
    if dtype.kind == "f":
        return "nan"
    is_timestamp = dtype.kind == "M" and np.datetime_data(dtype)[0] != "D"
    return "NaT" if is_timestamp else "None"


class in_lambda(_Known, PredicateBase):  # noqa: N801
    """Rows for which a function returns True.

    Args:
        predicate_fields: the fields that the function receives, in this order.
        predicate_func: takes the values of a row, one argument each (numbers and text of Python, None for null), then
            ``state_arg``, if given; returns a bool.
        state_arg: a further argument of the function; None to omit it.
    """

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
        self._fields = [_check_field(name, "in_lambda") for name in predicate_fields]
        self._arguments = (
            self._fields,
            predicate_func,
            *([] if state_arg is None else [state_arg]),
        )

    def get_fields(self) -> set[str]:
        """Return the names of the required fields."""
        return set(self._fields)

    def do_include(self, values: Mapping[str, Any]) -> Any:
        """Call the function."""
        _, function, *state = self._arguments
        return function(*(values[name] for name in self._fields), *state)


class in_negate(_OfColumns):  # noqa: N801
    """Selects the rows that a predicate does not select; unlike ``~``, also rows with null.

    Args:
        predicate: a predicate, or an expression of pyarrow.
    """

    def __init__(self, predicate: Any) -> None:
        self._predicate = as_predicate(predicate)
        super().__init__(self._predicate.fields, self._predicate)

    def mask(self, columns: Columns) -> _Bools:
        return ~self._predicate.mask(columns)


class in_reduce(_OfColumns):  # noqa: N801
    """Selects rows for which a function of the results of several predicates returns True.

    Args:
        predicate_list: at least one predicate, or expression of pyarrow.
        reduce_func: ``all``, ``any``, ``numpy.all``, ``numpy.any``, or a function that takes a list with one bool for each
            predicate and returns a bool.
    """

    def __init__(self, predicate_list: Iterable[Any], reduce_func: Callable[..., Any]) -> None:
        self._predicates = [as_predicate(predicate) for predicate in predicate_list]
        if not self._predicates:
            raise ConfigError("in_reduce needs at least one predicate")
        if not callable(reduce_func):
            raise ConfigError(
                f"in_reduce needs a function such as all or any, got {shorten(reduce_func)}"
            )
        names = (name for predicate in self._predicates for name in predicate.fields)
        bounds = [predicate.bound for predicate in self._predicates if predicate.bound is not None]
        bound = functools.reduce(operator.and_, bounds) if bounds and reduce_func in _ALL else None
        if reduce_func in _ANY and len(bounds) == len(self._predicates):
            bound = functools.reduce(operator.or_, bounds)
        super().__init__(names, self._predicates, reduce_func, bound=bound)
        self._function = reduce_func

    def mask(self, columns: Columns) -> _Bools:
        masks = np.stack([predicate.mask(columns) for predicate in self._predicates])
        if self._function in _ALL:
            return np.asarray(masks.all(axis=0))
        if self._function in _ANY:
            return np.asarray(masks.any(axis=0))
        try:
            return np.array(
                [bool(self._function(answers)) for answers in masks.T.tolist()], dtype=bool
            )
        except Exception as error:
            raise PredicateError(f"{self!r} raised {type(error).__name__}: {error}") from error


def _check_field(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} needs the name of a field, got {shorten(name)}")
    return name


def _check_members(values: Iterable[Any], what: str) -> frozenset[Any]:
    """A set of values, with times of numpy; None stands for null."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ConfigError(
            f"{what} needs a list or set of values, got {shorten(values)}: pass [{shorten(values)}]"
        )
    items = [as_numpy_time(value) for value in values]
    items = [
        item.item() if isinstance(item, np.generic) and item.dtype.kind not in "mM" else item
        for item in items
    ]
    try:
        return frozenset(item for item in items if item == item)  # NaN equals nothing
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} needs hashable values: {error}") from error


def _are_members(column: npt.NDArray[Any], members: frozenset[Any]) -> _Bools:
    """Whether each value is among ``members``: 1 equals 1.0, and times are compared as instants."""
    column = as_times(column)
    try:
        if column.dtype.kind not in "mM":  # a numpy scalar equals Python's number, and has its hash
            return np.fromiter(map(members.__contains__, column.tolist()), bool, len(column))
    except TypeError as error:
        raise PredicateError(
            f"the values are lists or arrays: use in_intersection ({error})"
        ) from error
    times = [
        value
        for value in members
        if isinstance(value, np.generic) and value.dtype.kind == column.dtype.kind
    ]
    found = np.isin(column, np.array(times)) if times else np.zeros(len(column), bool)
    return found | np.isnat(column) if None in members else found


def _elements(value: Any) -> npt.NDArray[Any]:
    """The elements of a row's value, shape (n,)."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value.reshape(-1)
    if value is None or isinstance(value, (list, tuple)):
        return objects(value or ())
    if isinstance(value, (str, bytes)):
        return objects([value])
    raise PredicateError(f"{shorten(value)} is not a list or array: use in_set")


def _bucket(text: str) -> int:
    # not used for security
    return (
        int.from_bytes(hashlib.md5(text.encode("utf-8"), usedforsecurity=False).digest(), "big")
        % _N_BUCKETS
    )
