"""Reads the tables of all splits of a place with one type for each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import JSON_TEXT
from data_stack.formats.text_tables.column_errors import UnknownTypedColumnError
from data_stack.formats.text_tables.json_types import JSON, CellType, join_types

Read = Callable[[int, Mapping[str, Any]], DatasetIteratorIF]
"""Reads a table by its number, with dtypes of columns."""

#: Units of times, from the coarsest to the finest.
_UNITS: Final = ("s", "ms", "us", "ns")
#: float64 holds all integers up to here.
_MAX_EXACT_INTEGER: Final = 1 << 53


def read_alike(
    read: Read, names: Sequence[str], dtypes: Mapping[str, Any] | None, *, of_text: bool
) -> list[DatasetIteratorIF]:
    """Read several tables so that a column has one type in all of them, as if they were one file.

    A table whose inferred type differs is read again with the common one: ``007`` is text in all tables, if ``x7`` is in one.

    Args:
        read: reads a table.
        names: the names of the tables, for messages.
        dtypes: what the user says of columns. A table may lack some of these columns, but not all tables may.
        of_text: whether the values are written as text, so that any column can be read as text.

    Raises:
        ConfigError: no table has a column of ``dtypes``; or a column has types that no type holds, and is not text.
        DatasetFileCorruptError: a table is damaged.
    """
    given = dict(dtypes or {})
    tables = [_read_known(read, number, given) for number in range(len(names))]
    _check_all_known(read, tables, given)
    types = [_types_of(table) for table in tables]
    common: dict[str, Any] = {}
    for column in dict.fromkeys(name for of_table in types for name in of_table):
        known = {number: of[column] for number, of in enumerate(types) if column in of}
        if column not in given and len(set(known.values())) > 1:
            integers = [
                tables[number].read_column(column)
                for number, type_ in known.items()
                if isinstance(type_, pa.DataType) and pa.types.is_integer(type_)
            ]
            dtype = _common_dtype(set(known.values()), integers, of_text=of_text)
            if dtype is None:
                held = ", ".join(f"{type_} in {names[number]}" for number, type_ in known.items())
                raise ConfigError(
                    f"column {column!r:.80} is {held}, which no common type holds; change a file, or pass dtypes="
                )
            common[column] = dtype
    for number, of_table in enumerate(types):
        differing = {column: dtype for column, dtype in common.items() if column in of_table}
        if differing:
            own = {column: dtype for column, dtype in given.items() if column in of_table}
            tables[number] = read(number, {**own, **differing})
    return tables


def _read_known(read: Read, number: int, given: Mapping[str, Any]) -> DatasetIteratorIF:
    """Read a table with the dtypes of those columns that it has."""
    known = dict(given)
    while True:
        try:
            return read(number, known)
        except UnknownTypedColumnError as error:
            del known[error.column]


def _check_all_known(
    read: Read, tables: Sequence[DatasetIteratorIF], given: Mapping[str, Any]
) -> None:
    for column, dtype in given.items():
        if not any(column in _types_of(table) for table in tables):
            read(0, {column: dtype})  # raises, and says which columns there are


def _types_of(table: DatasetIteratorIF) -> dict[str, CellType]:
    """The type of each column: that of Arrow, or JSON."""
    declared = access_to(table).declare_columns() or {}
    return {
        name: JSON if column.origin.kind == JSON_TEXT else column.origin.field.type
        for name, column in declared.items()
    }


def _common_dtype(kinds: set[CellType], integers: Sequence[Any], *, of_text: bool) -> Any:
    """A dtype that holds the values of all types exactly; None if there is none.

    Args:
        kinds: the types of a column, at least two.
        integers: the columns of integers, as values.
        of_text: whether text holds all values.
    """
    types = {type_ for type_ in kinds if isinstance(type_, pa.DataType)}
    values = {type_ for type_ in types if not pa.types.is_null(type_)}
    if len(types) < len(kinds) or (len(values) > 1 and any(map(pa.types.is_nested, values))):
        return _common_nested(kinds)
    if len(values) == 1:
        only = values.pop()
        return _dtype_of(only) or ("str" if of_text else None)
    if all(pa.types.is_integer(type_) or pa.types.is_floating(type_) for type_ in values):
        number = _common_number(values, integers)
        if number is not None:
            return number
    if of_text and all(pa.types.is_date(type_) or _is_plain_time(type_) for type_ in values):
        units = [type_.unit for type_ in values if _is_plain_time(type_)]
        return np.dtype(f"datetime64[{max(units, key=_UNITS.index)}]")
    return "str" if of_text else None


def _common_nested(kinds: set[CellType]) -> Any:
    """The type of lists and objects; None if there are others beside them."""
    common: CellType | None = pa.null()
    for kind in kinds:
        common = None if common is None else join_types(common, kind)
    return "json" if common == JSON else common


def _common_number(types: set[pa.DataType], integers: Sequence[Any]) -> Any:
    """float64 or uint64 if it holds all integers, None otherwise."""
    known = [value for column in integers for value in column.tolist() if value is not None]
    if any(pa.types.is_floating(type_) for type_ in types):
        is_exact = all(abs(value) <= _MAX_EXACT_INTEGER for value in known)
        return np.dtype(np.float64) if is_exact else None
    return np.dtype(np.uint64) if all(value >= 0 for value in known) else None


def _is_plain_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_)) and type_.tz is None


def _dtype_of(type_: pa.DataType) -> Any:
    """The dtype by which a reader reads a column of a type; None if it has none."""
    if pa.types.is_string(type_):
        return "str"
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return np.dtype(type_.to_pandas_dtype())
    if pa.types.is_date(type_):
        return np.dtype("datetime64[D]")
    if _is_plain_time(type_):
        return np.dtype(f"datetime64[{type_.unit}]")
    return None
