"""Filters of rows: expressions of pyarrow, and functions."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.compute import field as col
from pyarrow.fs import LocalFileSystem

from data_stack.codecs.fitting import as_dtype
from data_stack.codecs.plain_data import shorten
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.types import FieldDtype

__all__ = [
    "Columns",
    "Predicate",
    "PredicateError",
    "RowPredicate",
    "TypedColumns",
    "as_predicate",
    "as_times",
    "col",
    "column_of",
]

Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, "npt.NDArray[Any] | pa.Array"]
"""Columns by name: values of numpy, or cells of Arrow for a predicate that takes them."""


class TypedColumns(dict[str, Any]):
    """Columns with what their values do not tell.

    Args:
        columns: as in :data:`Columns`.
        types: the stored types of instants (times with a zone, here in UTC), times of day, and maps, by the names of such
            columns.
        dtypes: the dtypes of columns by name, also of those whose values are objects because of nulls.
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
        row: position of the row in the columns passed to ``mask``; None if the error concerns no single row.
    """

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason, row)
        self.reason, self.row = reason, row

    def __str__(self) -> str:
        return (
            self.reason
            if self.row is None
            else f"row {self.row} of the examined ones: {self.reason}"
        )


class Predicate(ABC):
    """Selects rows. It is immutable and can be pickled.

    Args:
        fields: the columns that the predicate needs.
        bound: an expression of ``pyarrow.compute`` that is true of each selected row, to skip row groups by their statistics;
            None without one.

    Attributes:
        fields: the columns that the predicate needs, sorted, each once.
        bound: as given.
    """

    #: Whether :meth:`mask` takes cells of Arrow as well, which need not become values first.
    takes_cells: bool = False

    def __init__(self, fields: Iterable[str], bound: pc.Expression | None = None) -> None:
        self.fields, self.bound = tuple(sorted(set(fields))), bound

    @abstractmethod
    def mask(self, columns: Columns) -> Bools:
        """Which rows are selected: bools, shape (n,).

        Args:
            columns: n values for each of ``fields``: shape (n,), or (n, ...) for arrays. None (among objects) and NaT are null,
                NaN is not.

        Raises:
            ConfigError: a column is missing.
            PredicateError: the predicate cannot be applied to these values.
        """

    @abstractmethod
    def content(self) -> Any:
        """Plain JSON data that identifies this predicate."""


def column_of(columns: Columns, name: str) -> npt.NDArray[Any]:
    """A column by its name.

    Raises:
        ConfigError: the column is missing.
    """
    return np.asarray(_column_or_cells(columns, name))


def _column_or_cells(columns: Columns, name: str) -> Any:
    if name not in columns:
        raise ConfigError(
            f"the predicate needs column {name!r}, which does not exist; columns: {shorten(sorted(columns))}"
        )
    return columns[name]


def as_times(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert a column of numpy times as objects to an array of times, with NaT for None; other columns are unchanged."""
    first = (
        next((value for value in column if value is not None), None)
        if column.dtype == object
        else None
    )
    if not isinstance(first, (np.datetime64, np.timedelta64)):
        return column
    return np.array(["NaT" if value is None else value for value in column], first.dtype)


# ---------------------------------------------------------------------- expressions of pyarrow

#: Types to try for a column of nulls, which has none, because functions need a type.
_TYPES_OF_NULLS: Final = (pa.null(), pa.string(), pa.float64(), pa.bool_(), pa.timestamp("us"))
#: Errors of pyarrow for an expression that does not fit the types of columns.
_UNSUITABLE: Final = (pa.ArrowException, ValueError, TypeError)
#: Parts of an expression, as text, which may make it true for NaN although comparisons with NaN are false, such as ``~(x > 3)``.
#: Also ``is_in``, whose doubles pyarrow rounds for a float32 column, but not when it compares them with bounds. pyarrow has no
#: public way to walk through an expression; every call and negation is excluded, so a wrong match only skips an optimization.
_TRUE_BEYOND_BOUNDS: Final = re.compile(r"\b\w+\(|\bfalse\b|\bnan\b", re.IGNORECASE)


def is_instant(type_: pa.DataType) -> bool:
    """Whether values of a type are times with a zone."""
    return pa.types.is_timestamp(type_) and type_.tz is not None


def is_seen_otherwise(type_: pa.DataType) -> bool:
    """Whether pyarrow does not infer a type from its values. Some are seen in several ways, see :func:`_ways_to_see`."""
    return is_instant(type_) or pa.types.is_time(type_) or "map<" in str(type_)


def _ways_to_see(bound: pc.Expression) -> list[Callable[[pa.DataType], pa.DataType]]:
    """Types to try for instants and times of day.

    pyarrow compares instants of different zones or different units, but not both. A time of day is also a duration, as it is in
    samples.
    """
    with pa.ipc.open_file(bound.__reduce__()[1][0]) as file:
        zones = re.findall(
            r"timestamp\[\w+, tz=(.+?)\]", file.schema.to_string(show_schema_metadata=False)
        )

    def see(type_: pa.DataType, zone: str | None, unit: str | None, is_span: bool) -> pa.DataType:
        if pa.types.is_time(type_):
            return pa.duration(type_.unit) if is_span else type_
        return pa.timestamp(unit or type_.unit, zone) if pa.types.is_timestamp(type_) else type_

    forms = [
        (None, None),
        *((zone, None) for zone in dict.fromkeys([*zones, "UTC"])),
        ("UTC", "us"),
    ]
    return [
        functools.partial(see, zone=zone, unit=unit, is_span=is_span)
        for is_span in (False, True)
        for zone, unit in forms
    ]


def _seen_as(times: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pa.types.is_time(type_):
        return times.cast(type_)
    ticks = times.cast(pa.duration(type_.unit)).view(pa.int64())
    return (ticks.cast(pa.int32()) if pa.types.is_time32(type_) else ticks).view(type_)


class ArrowPredicate(Predicate):
    """An expression of ``pyarrow.compute``, evaluated by pyarrow.

    Args:
        expression: returns bools; null does not select a row.

    Raises:
        ConfigError: the expression uses no column, or refers to a column by number.
    """

    takes_cells = True

    def __init__(self, expression: pc.Expression) -> None:
        try:
            # the argument of its pickle: an Arrow file with the expression in its metadata
            self._serialized = expression.__reduce__()[1][0].to_pybytes()
        except pa.ArrowException as error:
            raise ConfigError(
                f"{shorten(expression)} must refer to columns by name: {error}"
            ) from error
        super().__init__(_fields_in(self._serialized), expression)
        if not self.fields:
            raise ConfigError(f"{shorten(expression)} uses no column: it is the same for all rows")

    def mask(self, columns: Columns) -> Bools:
        types: Mapping[str, Any] = (
            columns.types if isinstance(columns, TypedColumns) else dict.fromkeys(self.fields)
        )
        ways = _ways_to_see(self.bound) if types else [lambda type_: type_]
        problem: Exception | None = None
        for see, type_of_nulls in itertools.product(ways, _TYPES_OF_NULLS):
            try:
                seen = {
                    name: _arrow_array(
                        _column_or_cells(columns, name), type_of_nulls, types.get(name)
                    )
                    for name in self.fields
                }
                for name in types.keys() & seen.keys():
                    seen[name] = _seen_as(seen[name], see(types[name] or seen[name].type))
                return np.asarray(_evaluate(self.bound, seen).fill_null(False), bool)
            except _UNSUITABLE as error:
                problem = problem or error
        raise PredicateError(
            f"pyarrow cannot evaluate {shorten(self.bound)}: {problem}"
        ) from problem

    def content(self) -> Any:
        return {"arrow": hashlib.sha256(self._serialized).hexdigest()}


def types_seen(bound: pc.Expression, types: pa.Schema) -> pa.Schema:
    """The types of columns as :class:`ArrowPredicate` sees them.

    A time without a zone in an expression is in UTC, so it is compared with columns without a zone. A time with a zone is
    compared only with columns that have a zone.

    Args:
        bound: the expression.
        types: types of its columns.
    """
    ways = [
        pa.schema(
            [
                (each.name, see(each.type) if is_seen_otherwise(each.type) else each.type)
                for each in types
            ]
        )
        for see in _ways_to_see(bound)
    ]
    for seen in ways:
        with contextlib.suppress(*_UNSUITABLE):
            _evaluate(
                bound, {field.name: pa.nulls(1, field.type) for field in seen}
            )  # pyarrow checks some types only with a row
            return seen
    return ways[0]


def could_match(
    bound: pc.Expression, types: pa.Schema, guarantees: Sequence[pc.Expression]
) -> Bools:
    """Which parts of a dataset may have rows for which an expression is true, shape ``(n,)``.

    Args:
        bound: the expression.
        types: types of its columns.
        guarantees: for each part an expression that is true for all its rows.
    """
    import pyarrow.dataset as arrow_dataset  # imports pandas, which is slow

    # pyarrow simplifies the expression for each fragment; it opens no file
    form, system = arrow_dataset.ParquetFileFormat(), LocalFileSystem()
    fragments = [
        form.make_fragment(str(number), system, each) for number, each in enumerate(guarantees)
    ]
    found = np.zeros(len(guarantees), bool)
    try:
        parts = arrow_dataset.FileSystemDataset(fragments, types, form, system).get_fragments(
            filter=bound
        )
        found[[int(part.path) for part in parts]] = True
    except _UNSUITABLE:  # raised again with the name of the file when the rows are read
        found[:] = True
    return found


def suits_bounds_of_floats(bound: pc.Expression) -> bool:
    """Whether bounds of floats, which exclude NaN, may decide an expression; False if uncertain."""
    try:
        return _TRUE_BEYOND_BOUNDS.search(str(bound)) is None
    except UnicodeDecodeError:  # pyarrow writes bytes of a view as they are
        return False


def _arrow_array(column: Any, type_of_nulls: pa.DataType, type_: pa.DataType | None) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    column = as_times(np.asarray(column))
    values = list(column) if column.ndim > 1 or column.dtype == object else column
    array = pa.array(values, type_ if type_ and pa.types.is_nested(type_) else None)
    return array.cast(type_of_nulls) if pa.types.is_null(array.type) else array


def _evaluate(bound: pc.Expression, arrays: Mapping[str, pa.Array]) -> pa.ChunkedArray:
    """Evaluate an expression for some columns.

    Raises:
        pyarrow.ArrowException, ValueError, TypeError: it does not fit their types, or does not return bools.
    """
    import pyarrow.dataset  # as above

    found = pyarrow.dataset.dataset(pa.table(dict(arrays))).to_table(
        columns={"found": bound}, use_threads=False
    )["found"]
    if not pa.types.is_boolean(found.type):
        raise TypeError(f"it returns values of type {found.type}, not bools")
    return found


def _fields_in(serialized: bytes) -> set[str]:
    """The columns in a serialized expression; of nested fields, the outermost ones. pyarrow has no public way to list them."""
    with pa.ipc.open_file(serialized) as file:
        text = file.schema.to_string(truncate_metadata=False)
    tokens = iter(
        re.findall(r"^(field_ref|nested_field_ref): '(.*?)'$", text, re.MULTILINE | re.DOTALL)
    )
    names = set()
    for kind, value in tokens:
        nested = (
            [next(tokens)[1] for _ in range(int(value))] if kind == "nested_field_ref" else [value]
        )
        names.add(nested[0])
    return names


# ---------------------------------------------------------------------- what ``filters=`` may be


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
            filters = [value] if isinstance(value, tuple) else value
            return ArrowPredicate(pq.filters_to_expression(_with_times_for_arrow(filters)))
        except (pa.ArrowException, ValueError, TypeError, IndexError) as error:
            example = [("speed", ">", 3), ("day", "in", ["mon"])]
            raise ConfigError(
                f"invalid filters {shorten(value)}: {error}. Pass filters such as {example}"
            ) from error
    if all(
        callable(getattr(value, name, None)) for name in ("get_fields", "do_include")
    ) and not isinstance(value, type):
        return RowPredicate(value)
    known = 'an expression such as col("speed") > 3, filters such as [("speed", ">", 3)]'
    raise ConfigError(
        f"{shorten(value)} is not a filter: pass {known}, or an object with get_fields() and do_include(values)"
    )


def _with_times_for_arrow(filters: Any) -> Any:
    """Filters in which each time of numpy has a unit that pyarrow knows: a day becomes a date, others "s" to "ns".

    Raises:
        ValueError: no such unit holds a time exactly.
    """
    if isinstance(filters, np.ndarray) and filters.dtype.kind == "M":
        return [_with_times_for_arrow(time) for time in filters]
    if isinstance(filters, np.datetime64):
        return _time_for_arrow(filters)
    if type(filters) in (list, tuple, set, frozenset):
        return type(filters)(map(_with_times_for_arrow, filters))
    return filters


#: For the units of numpy that pyarrow lacks, the unit that holds their times exactly.
_UNITS_FOR_ARROW: Final = {
    **dict.fromkeys(("Y", "M", "W", "D"), "D"),
    **dict.fromkeys(("h", "m"), "s"),
    **dict.fromkeys(("ps", "fs", "as"), "ns"),
}


def _time_for_arrow(time: np.datetime64) -> Any:
    """A time in a unit that pyarrow knows; a day as a date.

    Raises:
        ValueError: no such unit holds the time exactly.
    """
    unit, _ = np.datetime_data(time.dtype)
    if unit == "generic":
        raise ValueError(f"{time!r} has no unit: pass a time such as np.datetime64('2020-01-01')")
    wanted = _UNITS_FOR_ARROW.get(unit, unit)
    exact = as_dtype(np.array(time), np.dtype(f"M8[{wanted}]"))[()]
    if wanted == "D":
        return pa.scalar(exact.astype(np.int64).item(), pa.date32())
    return exact


class RowPredicate(Predicate):
    """Calls a function for each row.

    Args:
        function: an object with two methods: ``get_fields()`` returns the names of the columns, at least one, and
            ``do_include(values)`` returns whether to select a row. ``values`` is a dict with numbers and texts of Python, times
            and arrays of numpy, and None for null. A method ``content()`` may return plain data that identifies the object.
    """

    def __init__(self, function: Any) -> None:
        names: Any = function.get_fields()
        fields = (
            list(names)
            if isinstance(names, Iterable) and not isinstance(names, (str, bytes))
            else []
        )
        if not fields or not all(isinstance(name, str) for name in fields):
            raise ConfigError(
                f"get_fields() of {shorten(function)} must return a set of names of fields, got {shorten(names)}"
            )
        super().__init__(fields)
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
    return [
        item.item() if isinstance(item, np.generic) and item.dtype.kind not in "mM" else item
        for item in column
    ]
