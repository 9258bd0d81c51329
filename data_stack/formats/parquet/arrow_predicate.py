"""Selects rows by an expression of pyarrow."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import LocalFileSystem

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.times import is_instant
from data_stack.formats.parquet.predicates import (
    Bools,
    Columns,
    Predicate,
    PredicateError,
    TypedColumns,
    as_times,
    column_or_cells,
)

#: The types to try for a column whose values are all null. Most functions of pyarrow refuse its own
#: type, ``null``.
_TYPES_OF_NULLS: Final = (pa.null(), pa.string(), pa.float64(), pa.bool_(), pa.timestamp("us"))
#: The errors that pyarrow raises if an expression does not fit the types of its columns.
_TYPE_MISMATCH_ERRORS: Final = (pa.ArrowException, ValueError, TypeError)


class ArrowPredicate(Predicate):
    """Selects the rows for which an expression of ``pyarrow.compute`` is true.

    Args:
        expression: returns a bool for each row. A row for which it is null is not selected.

    Raises:
        ConfigError: the expression uses no column, or refers to a column by number.
    """

    #: pyarrow evaluates the expression on cells of Arrow without converting them.
    takes_cells = True

    #: The expression: it excludes row groups as well as rows.
    bound: pc.Expression

    #: The expression as pyarrow serializes it.
    _serialized: bytes

    def __init__(self, expression: pc.Expression) -> None:
        try:
            self._serialized = _serialize(expression)
        except pa.ArrowException as error:
            raise ConfigError(
                f"{shorten(expression)} must refer to columns by name: {error}"
            ) from error
        super().__init__(_find_fields(self._serialized), expression)
        if not self.fields:
            raise ConfigError(f"{shorten(expression)} uses no column: it is the same for all rows")

    def mask(self, columns: Columns) -> Bools:
        # An expression fits only some types of times and nulls. The first types that fit are right.
        first_error: Exception | None = None
        for view in self._views_of(columns):
            for type_of_nulls in _TYPES_OF_NULLS:
                try:
                    arrays = self._make_arrays(columns, view, type_of_nulls)
                    answers = _evaluate(self.bound, arrays)
                    return np.asarray(answers.fill_null(False), bool)
                except _TYPE_MISMATCH_ERRORS as error:
                    # The first types are the usual ones, so their error tells most.
                    if first_error is None:
                        first_error = error
        raise PredicateError(
            f"pyarrow cannot evaluate {shorten(self.bound)}: {first_error}"
        ) from first_error

    def _views_of(self, columns: Columns) -> list[_TimeView]:
        """Return the ways to see the times in these columns, in the order in which to try them."""
        if isinstance(columns, TypedColumns) and not columns.types:
            return [_TimeView()]  # no column has instants or times of day
        return _list_time_views(self._serialized)

    def _make_arrays(
        self, columns: Columns, view: _TimeView, type_of_nulls: pa.DataType
    ) -> dict[str, pa.Array]:
        """Return the columns of the expression as arrays of Arrow, with the times of a view."""
        arrays: dict[str, pa.Array] = {}
        for name in self.fields:
            column = column_or_cells(columns, name)
            if not isinstance(columns, TypedColumns):
                array = _arrow_array(column, type_of_nulls, None)
                arrays[name] = _cast_times(array, view.type_of(array.type))
            elif name in columns.types:
                stored_type = columns.types[name]
                array = _arrow_array(column, type_of_nulls, stored_type)
                arrays[name] = _cast_times(array, view.type_of(stored_type))
            else:
                arrays[name] = _arrow_array(column, type_of_nulls, None)
        return arrays

    def content(self) -> Any:
        return {"arrow": hashlib.sha256(self._serialized).hexdigest()}


def could_match(
    expression: pc.Expression, types: pa.Schema, alternatives: Sequence[Sequence[pc.Expression]]
) -> Bools:
    """Find the parts of a dataset that may have rows for which an expression is true.

    A part is a file or a row group. pyarrow has a function that decides this, but only for the
    files of a dataset of pyarrow. So a dataset is made whose files do not exist: each is named by
    the number of its part. pyarrow simplifies the expression for each of them, and opens none.

    Args:
        expression: the expression.
        types: the types of its columns.
        alternatives: what is known of each part: a sequence of expressions, at least one of which
            is true of each row of the part.

    Returns:
        Bools, shape ``(n_parts,)``: False where no row of the part can match.
    """
    import pyarrow.dataset as arrow_dataset  # It imports pandas, which is slow.

    file_format = arrow_dataset.ParquetFileFormat()
    file_system = LocalFileSystem()
    fragments = []
    for number, guarantees in enumerate(alternatives):
        for guarantee in guarantees:
            fragments.append(file_format.make_fragment(str(number), file_system, guarantee))
    parts = arrow_dataset.FileSystemDataset(fragments, types, file_format, file_system)
    is_match = np.zeros(len(alternatives), bool)
    try:
        for fragment in parts.get_fragments(filter=expression):
            is_match[int(fragment.path)] = True
    except _TYPE_MISMATCH_ERRORS:
        # The same error is raised, with the name of the file, when the rows are read.
        is_match[:] = True
    return is_match


def _arrow_array(
    column: Any, type_of_nulls: pa.DataType, stored_type: pa.DataType | None
) -> pa.Array:
    """Return a column as an array of Arrow.

    Args:
        column: values of numpy, or cells of Arrow, which are returned unchanged.
        type_of_nulls: the type of the array if all values are null.
        stored_type: the type of the column in the files, if values do not tell it.
    """
    if isinstance(column, pa.Array):
        return column
    values: Any = as_times(np.asarray(column))
    if values.ndim > 1 or values.dtype == object:
        values = list(values)  # pyarrow takes arrays of one dimension, and lists of any objects
    if stored_type is not None and pa.types.is_nested(stored_type):
        array = pa.array(values, stored_type)  # a map would become a list of pairs
    else:
        array = pa.array(values)
    if pa.types.is_null(array.type):
        return array.cast(type_of_nulls)
    return array


def _evaluate(expression: pc.Expression, arrays: Mapping[str, pa.Array]) -> pa.ChunkedArray:
    """Evaluate an expression for some columns.

    Returns:
        Bools and nulls, one for each row.

    Raises:
        pyarrow.ArrowException, ValueError: the expression does not fit the types of the columns.
        TypeError: it does not fit them, or it does not return bools.
    """
    import pyarrow.dataset  # It imports pandas, which is slow.

    rows = pyarrow.dataset.dataset(pa.table(dict(arrays)))
    answers = rows.to_table(columns={"answer": expression}, use_threads=False)["answer"]
    if not pa.types.is_boolean(answers.type):
        raise TypeError(f"it returns values of type {answers.type}, not bools")
    return answers


# ---------------------------------------------------------------------- how times are seen


def is_seen_otherwise(type_: pa.DataType) -> bool:
    """Return whether an expression may see a column of this type as another type.

    These are the types that pyarrow does not infer from values: instants, times of day, and maps
    at any depth.
    """
    has_map = "map<" in str(type_)  # the text of a type has those of the types in it
    return is_instant(type_) or pa.types.is_time(type_) or has_map


@dataclass(frozen=True)
class _TimeView:
    """A way in which an expression may see instants and times of day.

    pyarrow compares two instants if they differ in the zone or in the unit, but not if they differ
    in both. So one view has the stored unit, another microseconds.

    The samples have times of day as durations, but files have them as times. An expression may be
    written for either.

    Attributes:
        zone: the time zone of instants; None for instants without a zone.
        unit: the unit of instants; None for the stored unit.
        with_durations: whether times of day are seen as durations.
    """

    zone: str | None = None
    unit: str | None = None
    with_durations: bool = False

    def type_of(self, type_: pa.DataType) -> pa.DataType:
        """Return the type as which a column of ``type_`` is seen."""
        if pa.types.is_timestamp(type_):
            unit = self.unit or type_.unit
            return pa.timestamp(unit, self.zone)
        if pa.types.is_time(type_) and self.with_durations:
            return pa.duration(type_.unit)
        return type_


def _list_time_views(serialized: bytes) -> list[_TimeView]:
    """List the views to try for a serialized expression, in this order.

    A time without a zone in an expression is in UTC, as in samples. So the first view has no zones.

    A time with a zone is compared only with columns that have one. So the next views have each zone
    of the expression, then UTC, then UTC in microseconds.
    """
    zones = _find_zones(serialized)
    if "UTC" not in zones:
        zones.append("UTC")
    views = []
    for with_durations in (False, True):
        views.append(_TimeView(with_durations=with_durations))
        for zone in zones:
            views.append(_TimeView(zone, with_durations=with_durations))
        views.append(_TimeView("UTC", "us", with_durations))
    return views


def types_seen(expression: pc.Expression, types: pa.Schema) -> pa.Schema:
    """Return the types of columns as :class:`ArrowPredicate` sees them.

    Args:
        expression: the expression.
        types: the types of its columns in the files.

    Returns:
        The types for which pyarrow can evaluate the expression. If it can for none, those in which
        instants have no zones.
    """
    types_of_views = []
    for view in _list_time_views(_serialize(expression)):
        seen = []
        for field in types:
            if is_seen_otherwise(field.type):
                seen.append((field.name, view.type_of(field.type)))
            else:
                seen.append((field.name, field.type))
        types_of_views.append(pa.schema(seen))
    for schema in types_of_views:
        if _is_suitable(expression, schema):
            return schema
    return types_of_views[0]


def _is_suitable(expression: pc.Expression, types: pa.Schema) -> bool:
    """Return whether pyarrow can evaluate an expression for columns of some types."""
    # A table without rows would not do: some functions check their types only if there is a row.
    row_of_nulls = {field.name: pa.nulls(1, field.type) for field in types}
    try:
        _evaluate(expression, row_of_nulls)
    except _TYPE_MISMATCH_ERRORS:
        return False
    return True


def _cast_times(times: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert a column to the type as which a view sees it.

    Args:
        times: instants, times of day, or durations, which are times of day in samples; columns of
            other types are cast to their own type.
        type_: the type that :meth:`_TimeView.type_of` returned.
    """
    if not pa.types.is_time(type_):
        return times.cast(type_)
    # pyarrow has no cast from durations to times of day: both are numbers of the same ticks.
    ticks = times.cast(pa.duration(type_.unit)).view(pa.int64())
    if pa.types.is_time32(type_):
        ticks = ticks.cast(pa.int32())
    return ticks.view(type_)


# ---------------------------------------------------------------------- what an expression names


def _serialize(expression: pc.Expression) -> bytes:
    """Serialize an expression.

    pyarrow has no public way to do so, but an expression can be pickled: its pickle calls a
    function whose argument is the serialized expression.

    Returns:
        An Arrow file. The metadata of its schema hold the expression, its row the literals.

    Raises:
        pyarrow.ArrowException: the expression refers to a column by number.
    """
    _, arguments = expression.__reduce__()
    buffer = arguments[0]
    serialized: bytes = buffer.to_pybytes()
    return serialized


def _find_fields(serialized: bytes) -> set[str]:
    """Find the names of the columns in a serialized expression.

    pyarrow has no public way to list them. But the metadata have an entry for each column,
    ``field_ref: 'name'``. A field ``b`` of a struct ``a`` has three entries, ``nested_field_ref:
    '2'``, ``field_ref: 'a'`` and ``field_ref: 'b'``, of which the first name is that of the column.

    The text of the metadata is read, as a dict would keep one entry of each key. So a name that
    contains a quote before a line break is not found whole.
    """
    with pa.ipc.open_file(serialized) as file:
        text = file.schema.to_string(truncate_metadata=False)
    pattern = re.compile(r"^(field_ref|nested_field_ref): '(.*?)'$", re.MULTILINE | re.DOTALL)
    names: set[str] = set()
    entries = pattern.findall(text)
    position = 0
    while position < len(entries):
        key, value = entries[position]
        n_names = 1
        if key == "nested_field_ref":
            n_names = int(value)
            position += 1
        _, name_of_column = entries[position]
        names.add(name_of_column)
        position += n_names
    return names


def _find_zones(serialized: bytes) -> list[str]:
    """Find the time zones of the literals in a serialized expression, each once."""
    with pa.ipc.open_file(serialized) as file:
        text = file.schema.to_string(show_schema_metadata=False)
    zones: list[str] = []
    for zone in re.findall(r"timestamp\[\w+, tz=(.+?)\]", text):
        if zone not in zones:
            zones.append(zone)
    return zones
