"""Defines predicates, which select rows of a dataset by the values of its columns."""

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

#: Whether each row is selected, shape ``(n_rows,)``.
Bools = npt.NDArray[np.bool_]
#: Columns by name: arrays of values, or cells of Arrow for a predicate that takes them.
Columns = Mapping[str, "npt.NDArray[Any] | pa.Array"]


class TypedColumns(dict[str, Any]):
    """Columns by name, with their types where the values do not show them.

    Args:
        columns: the columns, see :data:`Columns`.
        types: the stored types, by name, of columns of times of day, of maps, and of instants
            (times with a zone). Their values do not show them: a time of day is a duration in
            numpy, and an instant is a time in UTC without a zone.
        dtypes: the dtypes of columns by name. A column with nulls may be an array of objects; its
            dtype here is that of the values which are not null.
        zones: the time zones of columns of instants, by name, as the first file states them.
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
    """Raised when a predicate cannot be applied to the values of columns.

    If another error is the reason, it is chained.

    Attributes:
        reason: what is wrong, and what to do.
        row: index of the row in the columns that were passed to :meth:`Predicate.mask`; None if
            the error is not of one row.
    """

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason, row)
        self.reason = reason
        self.row = row

    def __str__(self) -> str:
        if self.row is None:
            return self.reason
        return f"row {self.row} of the columns: {self.reason}"


class Predicate(ABC):
    """Selects rows by the values of columns. It is immutable and can be pickled.

    Args:
        fields: the names of the columns that the predicate needs.
        bound: an expression of ``pyarrow.compute`` that is true for each selected row, and may be
            true for others. Row groups for which it cannot be true, according to their statistics,
            are not read. None if there is no such expression.

    Attributes:
        fields: the names of the columns that the predicate needs, sorted, each once.
        bound: the expression, or None.
    """

    #: Whether :meth:`mask` takes cells of Arrow, too. Then they are not converted to values.
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
            columns: n values for each of ``fields``, shape ``(n,)``, or ``(n, ...)`` if the values
                are arrays. None in an array of objects and NaT stand for null; NaN does not.

        Raises:
            ConfigError: a column is missing.
            PredicateError: the predicate cannot be applied to these values.
        """

    @abstractmethod
    def content(self) -> Any:
        """Return plain JSON data that identifies this predicate.

        The fingerprint of a dataset with this filter depends on it.
        """


class RowPredicate(Predicate):
    """Asks an object about each row, as Petastorm's predicates are asked.

    Args:
        function: an object with two methods. ``get_fields()`` returns the names of the columns, at
            least one. ``do_include(values)`` returns whether to select a row; ``values`` is a dict
            with numbers and texts of Python, times and arrays of numpy, and None for null. The
            object may have a method ``content()``, which returns plain data that identifies it.

    Raises:
        ConfigError: ``get_fields()`` does not return names.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(_names_of_fields(function))
        self.function = function

    def mask(self, columns: Columns) -> Bools:
        lists_of_values = [_plain_values(column_of(columns, name)) for name in self.fields]
        answers: list[bool] = []
        for number, row in enumerate(zip(*lists_of_values, strict=True)):
            values: dict[str, Any] = dict(zip(self.fields, row, strict=True))
            try:
                answers.append(bool(self.function.do_include(values)))
            except Exception as error:  # the function is the user's
                shown = ", ".join(f"{name}={shorten(value)}" for name, value in values.items())
                raise PredicateError(
                    f"{self!r} raised {type(error).__name__}: {error}, for {shown}", row=number
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
    """Return a column by its name, as an array of values.

    Cells of Arrow are converted.

    Raises:
        ConfigError: the column is missing.
    """
    return np.asarray(column_or_cells(columns, name))


def column_or_cells(columns: Columns, name: str) -> Any:
    """Return a column by its name, as it is: an array of values, or cells of Arrow.

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
    """Convert times of numpy in an array of objects to an array of times.

    Args:
        column: objects, of which the first that is not None is a ``datetime64`` or ``timedelta64``.
            Any other array is returned unchanged.

    Returns:
        The times, of the dtype of the first one, with NaT for None.
    """
    if column.dtype != object:
        return column
    first_value = _first_value(column)
    if not isinstance(first_value, (np.datetime64, np.timedelta64)):
        return column
    times = np.full(column.shape, "NaT", first_value.dtype)
    for number, value in enumerate(column):
        if value is not None:
            times[number] = value
    return times


def _first_value(column: npt.NDArray[Any]) -> Any:
    """Return the first value that is not None; None without one."""
    for value in column:
        if value is not None:
            return value
    return None


def _names_of_fields(function: Any) -> list[str]:
    """Return the names of the columns that a function needs.

    Raises:
        ConfigError: its method ``get_fields()`` does not return names.
    """
    names: Any = function.get_fields()
    fields: list[Any] = []
    if isinstance(names, Iterable) and not isinstance(names, (str, bytes)):
        fields = list(names)
    has_only_names = all(isinstance(name, str) for name in fields)
    if not fields or not has_only_names:
        raise ConfigError(
            f"get_fields() of {shorten(function)} must return a set or list of names of fields, "
            f"got {shorten(names)}"
        )
    return fields


def _plain_values(column: npt.NDArray[Any]) -> list[Any]:
    """Return the values of a column: numbers and texts of Python, times and arrays of numpy."""
    if column.ndim != 1:
        return list(column)
    if column.dtype.kind in "mMV":
        # Python's times would lose nanoseconds, and its tuples the names of fields.
        return list(column)
    if column.dtype != object:
        return list(column.tolist())
    return [_plain_value(value) for value in column]


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        return value.item()
    return value
