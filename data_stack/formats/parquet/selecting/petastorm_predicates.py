"""Petastorm's predicates, which select the same rows as there (https://github.com/uber/petastorm, ``petastorm/predicates.py``).

Null is a value like another to them, so that ``in_negate(p)`` selects exactly the rows that ``p`` does not.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import math
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.codecs.plain_data import canonical_json, shorten
from data_stack.dataset.recipes.functions import code_content
from data_stack.dataset.recipes.functions import shorten as shown_function
from data_stack.dataset.recipes.recipe_values import content_if_known, content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.expressions import ArrowPredicate
from data_stack.formats.parquet.selecting.predicate import Bools, Columns, Predicate, PredicateError, as_times, column_of
from data_stack.values.stacked_values import objects

_N_BUCKETS = 2**63 - 1  # sys.maxsize of the machines that Petastorm runs on

_ALL = (all, np.all, np.logical_and.reduce)
_ANY = (any, np.any, np.logical_or.reduce)


def as_predicate(value: Any) -> Predicate:
    """A predicate of anything that says which rows are wanted.

    Args:
        value: a :class:`Predicate`; an object with Petastorm's ``get_fields`` and ``do_include``; an expression of
            ``pyarrow.compute``; or filters as :func:`pyarrow.parquet.read_table` takes them: a list of
            ``(field, operator, value)``, all of which must hold, or a list of such lists, one of which must hold.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(value, Predicate):
        return value
    if isinstance(value, pc.Expression):
        return ArrowPredicate(value)
    if isinstance(value, (list, tuple)):
        try:
            return ArrowPredicate(pq.filters_to_expression([value] if isinstance(value, tuple) else value))
        except (pa.ArrowException, ValueError, TypeError, IndexError) as error:
            raise ConfigError(
                f"{shorten(value)} are no filters such as [('speed', '>', 3), ('day', 'in', ['mon', 'tue'])]: {error}"
            ) from error
    if all(callable(getattr(value, name, None)) for name in ("get_fields", "do_include")) and not isinstance(value, type):
        return _PetastormPredicate(value)
    raise ConfigError(
        f'{shorten(value)} is no predicate. Give an expression such as col("speed") > 3, in_set([…], "field"), '
        f'in_lambda(["field"], function) or filters such as [("speed", ">", 3)]'
    )


class _ArgumentPredicate(Predicate):
    """A predicate that its arguments tell apart from others of its class.

    Args:
        fields: as for :class:`Predicate`.
        arguments: what it was made with.
        bound: as for :class:`Predicate`.
    """

    def __init__(self, fields: Iterable[str], *arguments: Any, bound: pc.Expression | None = None) -> None:
        super().__init__(fields, bound)
        self._arguments = arguments

    def content(self) -> Any:
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
    # of a function its name, or what is known of it, and its code
    return [content_of(argument), code_content(argument, content_if_known)] if callable(argument) else content_of(argument)


def _shorten(argument: Any) -> str:
    if isinstance(argument, Predicate):
        return repr(argument)
    if isinstance(argument, (list, frozenset)):
        texts = list(map(_shorten, argument))
        return f"[{', '.join(texts if isinstance(argument, list) else sorted(texts)[:8])}]"
    return shown_function(argument) if callable(argument) else shorten(argument)


def _check_field(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} takes the name of a field, got {shorten(name)}")
    return name


def _check_members(values: Iterable[Any], what: str) -> frozenset[Any]:
    """A set of values, with times as numpy's; None stands for null."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ConfigError(f"{what} takes a list or a set of values, got {shorten(values)}: write [{shorten(values)}]")
    items = [_as_numpy_time(value) for value in values]
    items = [item.item() if isinstance(item, np.generic) and item.dtype.kind not in "mM" else item for item in items]
    try:
        return frozenset(item for item in items if item == item)  # NaN equals nothing
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} takes values that can be hashed: {error}") from error


def _as_numpy_time(value: Any) -> Any:
    """A time of Python's or pandas' as numpy's, in UTC if it has a zone, a time of day since midnight; others as they are."""
    if hasattr(value, "to_datetime64"):  # pandas' are more exact than their base class
        return value.to_datetime64()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date.min, value) - datetime.datetime.min
    if isinstance(value, datetime.date):
        return np.datetime64(value)
    return np.timedelta64(value) if isinstance(value, datetime.timedelta) else value


def _are_members(column: npt.NDArray[Any], members: frozenset[Any]) -> Bools:
    """Of each value whether it is among ``members``: 1 and 1.0 are the same, and so are times of one moment."""
    column = as_times(column)
    try:
        if column.dtype.kind not in "mM":
            return np.fromiter(map(members.__contains__, values_for_functions(column)), bool, len(column))
    except TypeError as error:
        raise PredicateError(f"the values are lists or arrays; in_intersection looks at what is in them ({error})") from error
    times = [value for value in members if isinstance(value, np.generic) and value.dtype.kind == column.dtype.kind]
    found = np.isin(column, np.array(times)) if times else np.zeros(len(column), bool)
    return found | np.isnat(column) if None in members else found


class in_set(_ArgumentPredicate):  # noqa: N801  # Petastorm's spelling
    """Whether a field's value is one of several; null if None is among them.

    Args:
        inclusion_values: hashable values, compared as Python does: 1 and 1.0 are the same, "1" is another.
        predicate_field: the field.
    """

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        self._members = _check_members(inclusion_values, "in_set")
        self._field = _check_field(predicate_field, "in_set")
        try:
            bound = pc.field(predicate_field).isin(list(self._members))
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # values of several types, or without a type of Arrow
            bound = None
        super().__init__([predicate_field], self._members, predicate_field, bound=bound)

    def mask(self, columns: Columns) -> Bools:
        return _are_members(column_of(columns, self._field), self._members)


class in_intersection(_ArgumentPredicate):  # noqa: N801
    """Whether at least one value of a list or array is one of several. A row without a list is not selected.

    Args:
        inclusion_values: hashable values, compared as for :class:`in_set`.
        _predicate_field: the field; its values are lists or arrays of any shape. A text is taken as one value.
    """

    def __init__(self, inclusion_values: Iterable[Any], _predicate_field: str) -> None:
        self._members = _check_members(inclusion_values, "in_intersection")
        self._field = _check_field(_predicate_field, "in_intersection")
        super().__init__([_predicate_field], self._members, _predicate_field)

    def mask(self, columns: Columns) -> Bools:
        rows = [_list(value) for value in column_of(columns, self._field)]
        return np.fromiter((bool(_are_members(row, self._members).any()) for row in rows), bool, len(rows))


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


class RowFunction(_ArgumentPredicate):
    """Calls a function for each row."""

    @abstractmethod
    def ask(self, values: Mapping[str, Any]) -> Any:
        """The result of the function for the values of a row."""

    def mask(self, columns: Columns) -> Bools:
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
    """Rows for which a function returns True.

    Args:
        predicate_fields: the fields that the function gets, in this order.
        predicate_func: takes the values of a row, one argument each (numbers and text as Python's, null
            as None), then ``state_arg``, if there is one; returns a bool.
        state_arg: a further argument; None for no such argument.
    """

    def __init__(self, predicate_fields: Sequence[str], predicate_func: Callable[..., Any], state_arg: Any = None) -> None:
        if not isinstance(predicate_fields, (list, tuple)) or not predicate_fields:
            raise ConfigError(f"in_lambda takes a list of at least one field, got {shorten(predicate_fields)}")
        if not callable(predicate_func):
            raise ConfigError(f"in_lambda takes a function, got {shorten(predicate_func)}")
        fields = [_check_field(name, "in_lambda") for name in predicate_fields]
        super().__init__(fields, fields, predicate_func, *([] if state_arg is None else [state_arg]))

    def ask(self, values: Mapping[str, Any]) -> Any:
        fields, function, *state = self._arguments
        return function(*(values[name] for name in fields), *state)


class in_negate(_ArgumentPredicate):  # noqa: N801
    """The rows that a predicate does not select, unlike ``~`` also those without a value.

    Args:
        predicate: anything that :func:`as_predicate` takes.
    """

    def __init__(self, predicate: Any) -> None:
        self._predicate = as_predicate(predicate)
        super().__init__(self._predicate.fields, self._predicate)

    def mask(self, columns: Columns) -> Bools:
        return ~self._predicate.mask(columns)


class in_reduce(_ArgumentPredicate):  # noqa: N801
    """Rows for which a function of the answers of several predicates returns True.

    Args:
        predicate_list: at least one predicate; anything that :func:`as_predicate` takes.
        reduce_func: ``all``, ``any``, ``numpy.all``, ``numpy.any``, or a function that takes a list with one bool for each
            predicate and returns a bool.
    """

    def __init__(self, predicate_list: Iterable[Any], reduce_func: Callable[..., Any]) -> None:
        self._predicates = [as_predicate(predicate) for predicate in predicate_list]
        if not self._predicates:
            raise ConfigError("in_reduce takes at least one predicate")
        if not callable(reduce_func):
            raise ConfigError(f"in_reduce takes a function such as all or any, got {shorten(reduce_func)}")
        names = (name for predicate in self._predicates for name in predicate.fields)
        bounds = [predicate.bound for predicate in self._predicates if predicate.bound is not None]
        bound = functools.reduce(operator.and_, bounds) if bounds and reduce_func in _ALL else None
        if reduce_func in _ANY and len(bounds) == len(self._predicates):
            bound = functools.reduce(operator.or_, bounds)
        super().__init__(names, self._predicates, reduce_func, bound=bound)
        self._function = reduce_func

    def mask(self, columns: Columns) -> Bools:
        masks = np.stack([predicate.mask(columns) for predicate in self._predicates])
        if self._function in _ALL:
            return np.asarray(masks.all(axis=0))
        if self._function in _ANY:
            return np.asarray(masks.any(axis=0))
        try:
            return np.array([bool(self._function(answers)) for answers in masks.T.tolist()], dtype=bool)
        except Exception as error:
            raise PredicateError(f"{self!r} raised {type(error).__name__}: {error}") from error


class in_pseudorandom_split(_ArgumentPredicate):  # noqa: N801
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
        self._field = _check_field(predicate_field, "in_pseudorandom_split")
        super().__init__([predicate_field], fractions, int(subset_index), predicate_field)
        # In floats, as Petastorm does: the last places decide in which part a bucket at a border lies.
        high_borders = [sum(fraction_list[: i + 1]) for i in range(len(fraction_list))]
        low = high_borders[subset_index - 1] if subset_index else 0
        self._low = math.ceil(low * (_N_BUCKETS - 1))
        self._high = math.ceil(high_borders[subset_index] * (_N_BUCKETS - 1))

    def mask(self, columns: Columns) -> Bools:
        column = column_of(columns, self._field)
        if column.ndim != 1:
            raise PredicateError(f"in {self!r}: the field's values are arrays of shape {column.shape[1:]}; split by one value")
        values = column.tolist() if column.dtype.kind in "biuSUO" else column  # the texts of others differ from Python's
        return np.fromiter((self._low <= _bucket(str(value)) < self._high for value in values), bool, len(column))


def _bucket(text: str) -> int:
    # not to keep anything secret
    return int.from_bytes(hashlib.md5(text.encode("utf-8"), usedforsecurity=False).digest(), "big") % _N_BUCKETS


class _PetastormPredicate(RowFunction):
    """An object with Petastorm's two methods, such as a subclass of its ``PredicateBase``, called for each row.

    Args:
        predicate: has ``get_fields() -> set of names`` and ``do_include(values: dict) -> bool``. Values are given as to
            :class:`in_lambda`.
    """

    def __init__(self, predicate: Any) -> None:
        names = predicate.get_fields()
        if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
            raise ConfigError(f"get_fields() of {shorten(predicate)} gives a set of names of fields, not {shorten(names)}")
        super().__init__((_check_field(name, f"get_fields() of {shorten(predicate)}") for name in names), predicate)
        if not self.fields:
            raise ConfigError(f"get_fields() of {shorten(predicate)} names no field")
        self._predicate = predicate

    def ask(self, values: Mapping[str, Any]) -> Any:
        return self._predicate.do_include(values)


# ---------------------------------------------------------------------- of DataFrames


def on_frames(predicate: Predicate) -> Predicate:
    """A predicate whose function may be one of columns of pandas, as Petastorm's ``make_batch_reader`` has it.

    The function gets the rows at once, as a DataFrame (``do_include``) or as Series (``in_lambda``). Where it raises then, or
    gives no bool for each row, and without pandas, it is called row by row.

    Args:
        predicate: any; one that calls no function of rows is returned as it is.
    """
    return _OnFrames(predicate) if isinstance(predicate, RowFunction) else predicate


class _OnFrames(Predicate):
    def __init__(self, predicate: RowFunction) -> None:
        super().__init__(predicate.fields)
        self._predicate = predicate

    def mask(self, columns: Columns) -> Bools:
        answers = self._of_frame(columns)
        return self._predicate.mask(columns) if answers is None else answers

    def content(self) -> Any:
        return {"on_frames": self._predicate.content()}

    def __repr__(self) -> str:
        return repr(self._predicate)

    def _of_frame(self, columns: Columns) -> Bools | None:
        """A bool for each row; None if the function takes no DataFrame."""
        given = {name: column_of(columns, name) for name in self.fields}
        try:
            from data_stack.formats.parquet.transform_pandas import as_frame

            answers = np.asarray(self._predicate.ask(as_frame(given)))
        except Exception:  # noqa: BLE001  # a function of rows may do anything with columns; of rows, it says what is wrong
            return None
        is_bools = answers.dtype == bool or all(isinstance(answer, (bool, np.bool_)) for answer in answers.reshape(-1))
        n_rows = len(next(iter(given.values())))
        return answers.astype(bool) if is_bools and answers.shape == (n_rows,) else None
