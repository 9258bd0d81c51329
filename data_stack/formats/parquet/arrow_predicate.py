"""The predicate that is an expression of pyarrow."""

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

#: Types to try for a column of nulls, which has none, because functions need a type.
_TYPES_OF_NULLS: Final = (pa.null(), pa.string(), pa.float64(), pa.bool_(), pa.timestamp("us"))
#: Errors of pyarrow for an expression that does not fit the types of columns.
_UNSUITABLE: Final = (pa.ArrowException, ValueError, TypeError)


class ArrowPredicate(Predicate):
    """An expression of ``pyarrow.compute``, evaluated by pyarrow.

    Args:
        expression: returns bools; null does not select a row.

    Raises:
        ConfigError: the expression uses no column, or refers to a column by number.
    """

    takes_cells = True

    bound: pc.Expression

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
        columns_to_view: Mapping[str, pa.DataType | None] = dict.fromkeys(self.fields)
        if isinstance(columns, TypedColumns):
            columns_to_view = columns.types
        views = _list_views(self._serialized) if columns_to_view else [_View()]
        first_error: Exception | None = None
        for view in views:
            for type_of_nulls in _TYPES_OF_NULLS:
                try:
                    arrays = self._make_arrays(columns, columns_to_view, view, type_of_nulls)
                    answers = _evaluate(self.bound, arrays)
                    return np.asarray(answers.fill_null(False), bool)
                except _UNSUITABLE as error:
                    if first_error is None:
                        first_error = error
        raise PredicateError(
            f"pyarrow cannot evaluate {shorten(self.bound)}: {first_error}"
        ) from first_error

    def _make_arrays(
        self,
        columns: Columns,
        columns_to_view: Mapping[str, pa.DataType | None],
        view: _View,
        type_of_nulls: pa.DataType,
    ) -> dict[str, pa.Array]:
        """The columns that the expression uses, as it sees them."""
        arrays: dict[str, pa.Array] = {}
        for name in self.fields:
            column = column_or_cells(columns, name)
            stored_type = columns_to_view.get(name)
            array = _arrow_array(column, type_of_nulls, stored_type)
            if name in columns_to_view:
                seen_type = view.type_of(stored_type or array.type)
                array = _cast_times(array, seen_type)
            arrays[name] = array
        return arrays

    def content(self) -> Any:
        return {"arrow": hashlib.sha256(self._serialized).hexdigest()}


def could_match(
    expression: pc.Expression, types: pa.Schema, alternatives: Sequence[Sequence[pc.Expression]]
) -> Bools:
    """Find the parts of a dataset that may have rows for which an expression is true.

    Args:
        expression: the expression.
        types: types of its columns.
        alternatives: for each part some expressions, at least one of which is true of each of
            its rows.

    Returns:
        Bools, shape ``(n_parts,)``.
    """
    import pyarrow.dataset as arrow_dataset  # imports pandas, which is slow

    # pyarrow simplifies the expression for each fragment; it opens no file
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
    except _UNSUITABLE:  # raised again with the name of the file when the rows are read
        is_match[:] = True
    return is_match


def _arrow_array(
    column: Any, type_of_nulls: pa.DataType, stored_type: pa.DataType | None
) -> pa.Array:
    """A column as an array of Arrow; cells of Arrow are unchanged."""
    if isinstance(column, pa.Array):
        return column
    values: Any = as_times(np.asarray(column))
    if values.ndim > 1 or values.dtype == object:
        values = list(values)
    is_nested = stored_type is not None and pa.types.is_nested(stored_type)
    array = pa.array(values, stored_type if is_nested else None)
    if pa.types.is_null(array.type):
        return array.cast(type_of_nulls)
    return array


def _evaluate(expression: pc.Expression, arrays: Mapping[str, pa.Array]) -> pa.ChunkedArray:
    """Evaluate an expression for some columns.

    Raises:
        pyarrow.ArrowException, ValueError, TypeError: it does not fit their types, or does not
            return bools.
    """
    import pyarrow.dataset  # as above

    rows = pyarrow.dataset.dataset(pa.table(dict(arrays)))
    answers = rows.to_table(columns={"answer": expression}, use_threads=False)["answer"]
    if not pa.types.is_boolean(answers.type):
        raise TypeError(f"it returns values of type {answers.type}, not bools")
    return answers


# ---------------------------------------------------------------------- how times are seen


def is_seen_otherwise(type_: pa.DataType) -> bool:
    """Whether pyarrow does not infer a type from its values.

    An expression may see some of these types in several ways, see :func:`types_seen`.
    """
    return is_instant(type_) or pa.types.is_time(type_) or "map<" in str(type_)


@dataclass(frozen=True)
class _View:
    """A way in which an expression may see instants and times of day.

    pyarrow compares instants of different zones or of different units, but not of both. A time of
    day is also a duration, as it is in samples.

    Attributes:
        zone: of instants; None: without a zone.
        unit: of instants; None: as stored.
        with_durations: whether times of day are durations.
    """

    zone: str | None = None
    unit: str | None = None
    with_durations: bool = False

    def type_of(self, type_: pa.DataType) -> pa.DataType:
        """The type as which a type is seen."""
        if pa.types.is_timestamp(type_):
            return pa.timestamp(self.unit or type_.unit, self.zone)
        if pa.types.is_time(type_) and self.with_durations:
            return pa.duration(type_.unit)
        return type_


def _list_views(serialized: bytes) -> list[_View]:
    """List the views to try for a serialized expression.

    A time without a zone in an expression is in UTC, so the first view has no zones. A time with
    a zone is compared only with columns that have a zone.
    """
    zones = dict.fromkeys([*_find_zones(serialized), "UTC"])
    views = []
    for with_durations in (False, True):
        views.append(_View(with_durations=with_durations))
        for zone in zones:
            views.append(_View(zone, with_durations=with_durations))
        views.append(_View("UTC", "us", with_durations))
    return views


def types_seen(expression: pc.Expression, types: pa.Schema) -> pa.Schema:
    """Return the types of columns as :class:`ArrowPredicate` sees them.

    Args:
        expression: the expression.
        types: types of its columns.
    """
    types_of_views = []
    for view in _list_views(_serialize(expression)):
        seen = []
        for field in types:
            is_viewed = is_seen_otherwise(field.type)
            seen.append((field.name, view.type_of(field.type) if is_viewed else field.type))
        types_of_views.append(pa.schema(seen))
    for schema in types_of_views:
        if _is_suitable(expression, schema):
            return schema
    return types_of_views[0]


def _is_suitable(expression: pc.Expression, types: pa.Schema) -> bool:
    """Whether pyarrow can evaluate an expression for columns of some types."""
    # pyarrow checks some types only with a row
    row_of_nulls = {field.name: pa.nulls(1, field.type) for field in types}
    try:
        _evaluate(expression, row_of_nulls)
    except _UNSUITABLE:
        return False
    return True


def _cast_times(times: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert times to the type as which they are seen."""
    if not pa.types.is_time(type_):
        return times.cast(type_)
    # pyarrow has no cast from durations, which samples have, to times of day
    ticks = times.cast(pa.duration(type_.unit)).view(pa.int64())
    if pa.types.is_time32(type_):
        ticks = ticks.cast(pa.int32())
    return ticks.view(type_)


# ---------------------------------------------------------------------- what an expression names


def _serialize(expression: pc.Expression) -> bytes:
    """Serialize an expression: an Arrow file, with the expression in the metadata of its schema.

    This is the argument of its pickle; pyarrow has no public way.

    Raises:
        pyarrow.ArrowException: it refers to a column by number.
    """
    arguments = expression.__reduce__()[1]
    serialized: bytes = arguments[0].to_pybytes()
    return serialized


def _find_fields(serialized: bytes) -> set[str]:
    """Find the columns in a serialized expression; of nested fields, the outermost ones.

    pyarrow has no public way to list them. The metadata has an entry ``field_ref: 'name'`` for
    each column; a nested field has ``nested_field_ref: '2'``, before as many entries. A dict would
    keep one entry of each key, so the text of the metadata is read.
    """
    with pa.ipc.open_file(serialized) as file:
        text = file.schema.to_string(truncate_metadata=False)
    pattern = re.compile(r"^(field_ref|nested_field_ref): '(.*?)'$", re.MULTILINE | re.DOTALL)
    entries = iter(pattern.findall(text))
    names: set[str] = set()
    for kind, value in entries:
        if kind == "field_ref":
            names.add(value)
        else:
            levels = [next(entries)[1] for _ in range(int(value))]
            names.add(levels[0])
    return names


def _find_zones(serialized: bytes) -> list[str]:
    """Find the time zones of the times in a serialized expression."""
    with pa.ipc.open_file(serialized) as file:
        text = file.schema.to_string(show_schema_metadata=False)
    return re.findall(r"timestamp\[\w+, tz=(.+?)\]", text)
