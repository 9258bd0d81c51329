"""Filters as pyarrow takes them, and whatever else may stand for a predicate, as predicates."""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.expressions import Expression, col
from data_stack.formats.parquet.selecting.petastorm_predicates import in_negate, wrap
from data_stack.formats.parquet.selecting.predicate import Bools, Columns, Predicate, PredicateError, column_of
from data_stack.formats.parquet.selecting.values import OPERATORS

__all__ = ["ArrowPredicate", "as_predicate", "predicate_of_filters"]

_OPERATORS: Final[dict[str, Callable[[Expression, Any], Predicate]]] = {
    "=": OPERATORS["=="],
    **OPERATORS,
    "in": lambda column, values: _is_in(column, values),
    "not in": lambda column, values: in_negate(_is_in(column, values)),  # a null is in no list, so it is not in one
}
_FORM = '("speed", ">", 3)'
#: Where a batch has nothing but nulls of a column, its type is not known, but functions ask for one.
_TYPES_OF_NULLS: Final = (pa.null(), pa.string(), pa.float64(), pa.bool_(), pa.timestamp("us"))


class ArrowPredicate(Predicate):
    """An expression of ``pyarrow.compute``, evaluated by pyarrow; no statistics spare reading the columns that it needs.

    Args:
        expression: gives bools; null is neither true nor false.

    Raises:
        ConfigError: it needs no column, or asks for one not by name.
    """

    def __init__(self, expression: pc.Expression) -> None:
        self._expression = expression
        try:
            # what pickle would be given: an Arrow file, in whose metadata the expression stands
            self._serialized = expression.__reduce__()[1][0].to_pybytes()
        except pa.ArrowException as error:
            raise ConfigError(f"columns of {shorten(expression)} are named: {error}") from error
        super().__init__(_fields_in(self._serialized))
        if not self.fields:
            raise ConfigError(f"{shorten(expression)} needs no field, so it says the same of all rows")

    def truths(self, columns: Columns) -> tuple[Bools, Bools]:
        import pyarrow.dataset  # brings pandas, which is slow to import

        problem: Exception | None = None
        for type_of_nulls in _TYPES_OF_NULLS:
            try:
                table = pa.table({name: _arrow_array(column_of(columns, name), type_of_nulls) for name in self.fields})
                found = pyarrow.dataset.dataset(table).to_table(columns={"found": self._expression}, use_threads=False)["found"]
                if not pa.types.is_boolean(found.type):
                    raise TypeError(f"it gives values of type {found.type}, not bools")
                true, false = (found.fill_null(null).to_numpy() for null in (False, True))
                return true, ~false
            except (pa.ArrowException, ValueError, TypeError) as error:
                problem = problem or error
        raise PredicateError(f"pyarrow cannot evaluate {shorten(self._expression)}: {problem}") from problem

    def content(self) -> Any:
        return {"arrow": hashlib.sha256(self._serialized).hexdigest()}

    def __repr__(self) -> str:
        return str(self._expression)


def _arrow_array(column: npt.NDArray[Any], type_of_nulls: pa.DataType) -> pa.Array:
    array = pa.array(list(column) if column.ndim > 1 or column.dtype == object else column)
    return array.cast(type_of_nulls) if pa.types.is_null(array.type) else array


def _fields_in(serialized: bytes) -> set[str]:
    """The columns that a serialized expression names; of nested fields, the outermost ones."""
    with pa.ipc.open_file(serialized) as file:
        tokens = iter(re.findall(r"^(field_ref|nested_field_ref): '(.*)'$", file.schema.to_string(truncate_metadata=False), re.M))
    names = set()
    for kind, value in tokens:
        nested = [next(tokens)[1] for _ in range(int(value))] if kind == "nested_field_ref" else [value]
        names.add(nested[0])
    return names


def as_predicate(value: Any) -> Predicate:
    """What may be asked of rows, as a predicate.

    Args:
        value: a :class:`Predicate`; an object with Petastorm's ``get_fields`` and ``do_include``; or filters, for which see
            :func:`predicate_of_filters`.

    Raises:
        ConfigError: it is none of these.
    """
    found = wrap(value)
    if found is not None:
        return found
    if isinstance(value, (list, tuple, pc.Expression)):
        return predicate_of_filters(value)
    raise ConfigError(
        f'no predicate: {shorten(value)}. Give col("speed") > 3, in_set([…], "field"), in_lambda(["field"], function), '
        f"filters such as [{_FORM}], or an expression of pyarrow.compute"
    )


def predicate_of_filters(filters: Any) -> Predicate:
    """The filters of pyarrow as a predicate.

    Args:
        filters: a list of ``(field, operator, value)``, all of which must hold, with the operators ``=``, ``==``, ``!=``, ``<``,
            ``>``, ``<=``, ``>=``, ``in`` and ``not in``; a list of such lists, one of which must hold; or a
            ``pyarrow.compute.Expression``. A row without a value meets no condition, except ``in`` with
            None among the values, and ``not in`` without, as with pyarrow.

    Raises:
        ConfigError: not of that form; the message shows the part that is wrong.
    """
    if isinstance(filters, pc.Expression):
        return ArrowPredicate(filters)
    if isinstance(filters, tuple) and len(filters) == 3 and isinstance(filters[0], str) and isinstance(filters[1], str):
        filters = [filters]
    if not isinstance(filters, (list, tuple)) or not filters:
        raise ConfigError(f"filters are a list of conditions such as {_FORM}, or a list of such lists; got {shorten(filters)}")
    if all(isinstance(part, list) for part in filters):
        return reduce(operator.or_, map(_conjunction, filters))
    return _conjunction(filters)


def _conjunction(conditions: Sequence[Any]) -> Predicate:
    if not conditions:
        raise ConfigError(f"an empty list is no filter; leave it out, or give conditions such as {_FORM}")
    return reduce(operator.and_, map(_condition, conditions))


def _condition(condition: Any) -> Predicate:
    if not isinstance(condition, (tuple, list)) or len(condition) != 3:
        raise ConfigError(f"{shorten(condition)} is no condition of a filter; it should be (field, operator, value) as {_FORM}")
    name, sign, value = condition
    if not isinstance(sign, str) or sign not in _OPERATORS:
        raise ConfigError(
            f"condition {shorten(condition)} of the filters has an unknown operator {shorten(sign)}; there are "
            f"{', '.join(_OPERATORS)}"
        )
    try:
        return _OPERATORS[sign](col(name), value)
    except ConfigError as error:
        raise ConfigError(f"condition {shorten(condition)} of the filters: {error}") from error


def _is_in(column: Expression, values: Any) -> Predicate:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return column.isin(values)  # raises
    items = list(values)
    found = column.isin([item for item in items if item is not None])
    return found | column.is_null() if None in items else found  # as pyarrow: a null is in a list that has one
