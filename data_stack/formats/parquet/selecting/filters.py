"""What ``filters=`` of a dataset may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.expressions import ArrowPredicate
from data_stack.formats.parquet.selecting.predicate import Bools, Columns, Predicate, PredicateError, column_of


def as_predicate(value: Any) -> Predicate:
    """Convert a filter to a predicate.

    Args:
        value: a :class:`Predicate`; an expression of ``pyarrow.compute``; filters as for :func:`pyarrow.parquet.read_table`: a
            list of ``(field, operator, value)``, all of which must hold, or a list of such lists, one of which must hold; or an
            object with ``get_fields()`` and ``do_include(values)``, see :class:`RowPredicate`.

    Raises:
        ConfigError: ``value`` is something else.
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
                f"invalid filters {shorten(value)}: {error}. Pass filters such as [('speed', '>', 3), ('day', 'in', ['mon'])]"
            ) from error
    if all(callable(getattr(value, name, None)) for name in ("get_fields", "do_include")) and not isinstance(value, type):
        return RowPredicate(value)
    raise ConfigError(
        f'{shorten(value)} is not a filter. Pass an expression such as col("speed") > 3, filters such as [("speed", ">", 3)], or '
        f"an object with get_fields() and do_include(values)"
    )


class RowPredicate(Predicate):
    """Calls a function for each row.

    Args:
        function: an object with two methods: ``get_fields()`` returns the names of the columns, at least one, and
            ``do_include(values)`` returns whether to select a row. ``values`` is a dict with numbers and texts of Python, times
            and arrays of numpy, and None for null. A method ``content()`` may return plain data that identifies the object.
    """

    def __init__(self, function: Any) -> None:
        names: Any = function.get_fields()
        if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
            raise ConfigError(f"get_fields() of {shorten(function)} must return a set of names, got {shorten(names)}")
        names = list(names)
        if not names or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"get_fields() of {shorten(function)} must return names of fields, got {shorten(names)}")
        super().__init__(names)
        self.function = function

    def mask(self, columns: Columns) -> Bools:
        given = {name: _plain_values(column_of(columns, name)) for name in self.fields}
        answers = []
        for row in zip(*given.values(), strict=True):
            values: Mapping[str, Any] = dict(zip(given, row, strict=True))
            try:
                answers.append(bool(self.function.do_include(values)))
            except Exception as error:
                shown = ", ".join(f"{name}={shorten(value)}" for name, value in values.items())
                what = f"{self!r} raised {type(error).__name__}: {error}, for {shown}"
                raise PredicateError(what, len(answers)) from error
        return np.array(answers, dtype=bool)

    def content(self) -> Any:
        own = getattr(self.function, "content", None)
        return content_of(self.function) if own is None else own()

    def __repr__(self) -> str:
        return repr(self.function)


def _plain_values(column: npt.NDArray[Any]) -> list[Any]:
    if column.ndim != 1 or column.dtype.kind in "mMV":
        return list(column)
    if column.dtype != object:
        return list(column.tolist())
    return [item.item() if isinstance(item, np.generic) and item.dtype.kind not in "mM" else item for item in column]
