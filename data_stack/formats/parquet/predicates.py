"""The contract of predicates, which select rows, with the one that calls a function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.types import FieldDtype

Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, "npt.NDArray[Any] | pa.Array"]
"""Columns by name: values of numpy, or cells of Arrow for a predicate that takes them."""


class TypedColumns(dict[str, Any]):
    """Columns with what their values do not tell.

    Args:
        columns: as in :data:`Columns`.
        types: the stored types of instants (times with a zone, here in UTC), times of day, and
            maps, by the names of such columns.
        dtypes: the dtypes of columns by name, also of those whose values are objects because of
            nulls.
        zones: the time zones of instants, by the names of such columns.
    """

    def __init__(
        self,
        columns: Columns,
        types: Mapping[str, pa.DataType],
        *,
        dtypes: Mapping[str, FieldDtype] = MappingProxyType({}),
        zones: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(columns)
        self.types = types
        self.dtypes = dtypes
        self.zones = zones


class PredicateError(ConfigError):
    """A predicate cannot be applied to its values; the original error is chained.

    Attributes:
        reason: what is wrong, and what to do.
        row: position of the row in the columns passed to ``mask``; None if the error concerns no
            single row.
    """

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason, row)
        self.reason = reason
        self.row = row

    def __str__(self) -> str:
        if self.row is None:
            return self.reason
        return f"row {self.row} of the examined ones: {self.reason}"


class Predicate(ABC):
    """Selects rows. It is immutable and can be pickled.

    Args:
        fields: the columns that the predicate needs.
        bound: an expression of ``pyarrow.compute`` that is true of each selected row, to skip row
            groups by their statistics; None without one.

    Attributes:
        fields: the columns that the predicate needs, sorted, each once.
        bound: as given.
    """

    #: Whether :meth:`mask` takes cells of Arrow as well, which need not become values first.
    takes_cells: bool = False

    fields: tuple[str, ...]
    bound: pc.Expression | None

    def __init__(self, fields: Iterable[str], bound: pc.Expression | None = None) -> None:
        self.fields = tuple(sorted(set(fields)))
        self.bound = bound

    @abstractmethod
    def mask(self, columns: Columns) -> Bools:
        """Return which rows are selected: bools, shape ``(n,)``.

        Args:
            columns: n values for each of ``fields``: shape ``(n,)``, or ``(n, ...)`` for arrays.
                None (among objects) and NaT are null, NaN is not.

        Raises:
            ConfigError: a column is missing.
            PredicateError: the predicate cannot be applied to these values.
        """

    @abstractmethod
    def content(self) -> Any:
        """Return plain JSON data that identifies this predicate."""


class RowPredicate(Predicate):
    """Calls a function for each row.

    Args:
        function: an object with two methods: ``get_fields()`` returns the names of the columns,
            at least one, and ``do_include(values)`` returns whether to select a row. ``values`` is
            a dict with numbers and texts of Python, times and arrays of numpy, and None for null.
            A method ``content()`` may return plain data that identifies the object.

    Raises:
        ConfigError: ``get_fields()`` does not return names.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(_names_of_fields(function))
        self.function = function

    def mask(self, columns: Columns) -> Bools:
        values_of_fields = {name: _plain_values(column_of(columns, name)) for name in self.fields}
        names = list(values_of_fields)
        answers: list[bool] = []
        for row in zip(*values_of_fields.values(), strict=True):
            values: Mapping[str, Any] = dict(zip(names, row, strict=True))
            try:
                answers.append(bool(self.function.do_include(values)))
            except Exception as error:
                shown = ", ".join(f"{name}={shorten(value)}" for name, value in values.items())
                raise PredicateError(
                    f"{self!r} raised {type(error).__name__}: {error}, for {shown}",
                    row=len(answers),
                ) from error
        return np.array(answers, dtype=bool)

    def content(self) -> Any:
        own_content = getattr(self.function, "content", None)
        if own_content is None:
            return content_of(self.function)
        return own_content()

    def __repr__(self) -> str:
        return repr(self.function)


def column_of(columns: Columns, name: str) -> npt.NDArray[Any]:
    """Return a column by its name, as values.

    Raises:
        ConfigError: the column is missing.
    """
    return np.asarray(column_or_cells(columns, name))


def column_or_cells(columns: Columns, name: str) -> Any:
    """Return a column by its name, as values or as cells of Arrow.

    Raises:
        ConfigError: the column is missing.
    """
    if name not in columns:
        known = shorten(sorted(columns))
        raise ConfigError(
            f"the predicate needs column {name!r}, which does not exist; columns: {known}"
        )
    return columns[name]


def as_times(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert a column of numpy times as objects to an array of times, with NaT for None.

    Other columns are unchanged.
    """
    if column.dtype != object:
        return column
    first_value = next((value for value in column if value is not None), None)
    if not isinstance(first_value, (np.datetime64, np.timedelta64)):
        return column
    return np.array(["NaT" if value is None else value for value in column], first_value.dtype)


def _names_of_fields(function: Any) -> list[str]:
    names: Any = function.get_fields()
    is_listing = isinstance(names, Iterable) and not isinstance(names, (str, bytes))
    fields = list(names) if is_listing else []
    if not fields or not all(isinstance(name, str) for name in fields):
        raise ConfigError(
            f"get_fields() of {shorten(function)} must return a set of names of fields, "
            f"got {shorten(names)}"
        )
    return fields


def _plain_values(column: npt.NDArray[Any]) -> list[Any]:
    """Numbers and texts of Python, times and arrays of numpy."""
    if column.ndim != 1 or column.dtype.kind in "mMV":
        return list(column)
    if column.dtype != object:
        return list(column.tolist())
    return [_plain_value(value) for value in column]


def _plain_value(value: Any) -> Any:
    is_number = isinstance(value, np.generic) and value.dtype.kind not in "mM"
    return value.item() if is_number else value
