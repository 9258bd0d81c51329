"""Reads several text tables with one type for each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import JSON_TEXT
from data_stack.formats.text_tables.column_errors import UnknownTypedColumnError
from data_stack.formats.text_tables.json_types import JSON, CellType, join_types

#: Reads the table of a number, with given dtypes of some of its columns.
ReadTable = Callable[[int, Mapping[str, Any]], DatasetIteratorIF]

#: Units of times, from the coarsest to the finest.
_UNITS: Final = ("s", "ms", "us", "ns")

#: float64 holds all integers up to this one.
_MAX_EXACT_INTEGER: Final = 1 << 53


def read_alike(
    read: ReadTable, names: Sequence[str], dtypes: Mapping[str, Any] | None, *, of_text: bool
) -> list[DatasetIteratorIF]:
    """Read several tables so that a column has one type in all of them, as if they were one file.

    A table whose inferred type differs is read again with the common one: ``007`` is text in all
    tables, if ``x7`` is in one.

    Args:
        read: reads a table.
        names: the names of the tables, for messages.
        dtypes: the dtypes that the user gives. A column need not be in all tables, but in one.
        of_text: whether the values are written as text, so that any column can be read as text.

    Returns:
        The tables, in the order of ``names``.

    Raises:
        ConfigError: no table has a column of ``dtypes``; or no type holds the values that a column
            has in all tables.
        DatasetFileCorruptError: a table is damaged.
    """
    given_dtypes = dict(dtypes or {})
    tables = [_read_known_columns(read, number, given_dtypes) for number in range(len(names))]
    _check_all_known(read, tables, given_dtypes)
    types_of_tables = [_types_of(table) for table in tables]

    # Choose a dtype for each column whose types differ.
    common_dtypes: dict[str, Any] = {}
    for column in _columns_of(types_of_tables):
        if column in given_dtypes:
            continue
        types: dict[int, CellType] = {}
        for number, types_of_table in enumerate(types_of_tables):
            if column in types_of_table:
                types[number] = types_of_table[column]
        if len(set(types.values())) > 1:
            common_dtypes[column] = _agree(column, types, tables, names, of_text=of_text)

    # Read those tables again that have such a column.
    for number, types_of_table in enumerate(types_of_tables):
        changed_dtypes = _only_columns(common_dtypes, types_of_table)
        if changed_dtypes:
            own_dtypes = _only_columns(given_dtypes, types_of_table)
            tables[number] = read(number, {**own_dtypes, **changed_dtypes})
    return tables


# ---------------------------------------------------------------------- tables


def _read_known_columns(
    read: ReadTable, number: int, dtypes: Mapping[str, Any]
) -> DatasetIteratorIF:
    """Read a table with the dtypes of those columns that it has."""
    known_dtypes = dict(dtypes)
    while True:
        try:
            return read(number, known_dtypes)
        except UnknownTypedColumnError as error:
            del known_dtypes[error.column]


def _check_all_known(
    read: ReadTable, tables: Sequence[DatasetIteratorIF], dtypes: Mapping[str, Any]
) -> None:
    """Check that some table has each column of ``dtypes``.

    Raises:
        UnknownTypedColumnError: no table has it.
    """
    for column, dtype in dtypes.items():
        if not any(column in _types_of(table) for table in tables):
            # The reader raises the error, as it knows which columns there are.
            read(0, {column: dtype})


def _types_of(table: DatasetIteratorIF) -> dict[str, CellType]:
    """Return the type of each column: that of Arrow, or JSON."""
    types: dict[str, CellType] = {}
    for name, declared in (access_to(table).declare_columns() or {}).items():
        is_json = declared.origin.kind == JSON_TEXT
        types[name] = JSON if is_json else declared.origin.field.type
    return types


def _columns_of(types_of_tables: Sequence[Mapping[str, CellType]]) -> list[str]:
    """Return the columns of all tables, each once."""
    columns: dict[str, None] = {}
    for types in types_of_tables:
        columns.update(dict.fromkeys(types))
    return list(columns)


def _only_columns(dtypes: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return those dtypes whose columns are among ``columns``."""
    return {column: dtype for column, dtype in dtypes.items() if column in columns}


# ---------------------------------------------------------------------- types


def _agree(
    column: str,
    types: Mapping[int, CellType],
    tables: Sequence[DatasetIteratorIF],
    names: Sequence[str],
    *,
    of_text: bool,
) -> Any:
    """Return the dtype of a column for all tables.

    Args:
        column: the column.
        types: its type in each table that has it, by the number of the table.
        tables: all tables.
        names: their names, for messages.
        of_text: whether text holds all values.

    Raises:
        ConfigError: no dtype holds the values.
    """
    columns_of_integers = []
    for number, type_ in types.items():
        if isinstance(type_, pa.DataType) and pa.types.is_integer(type_):
            columns_of_integers.append(tables[number].read_column(column))
    dtype = _common_dtype(set(types.values()), columns_of_integers, of_text=of_text)
    if dtype is None:
        shown_types = ", ".join(f"{type_} in {names[number]}" for number, type_ in types.items())
        raise ConfigError(
            f"column {column!r:.80} is {shown_types}, which no common type holds; "
            f"change a file, or pass dtypes="
        )
    return dtype


def _common_dtype(
    types: set[CellType], columns_of_integers: Sequence[Any], *, of_text: bool
) -> Any:
    """Return a dtype that holds the values of all types exactly; None if there is none.

    Args:
        types: the types of a column, at least two.
        columns_of_integers: the values of the columns of integers.
        of_text: whether text holds all values.
    """
    text_or_none = "str" if of_text else None

    # JSON beside other types, or lists and objects of several types.
    arrow_types = {type_ for type_ in types if isinstance(type_, pa.DataType)}
    value_types = {type_ for type_ in arrow_types if not pa.types.is_null(type_)}
    has_json = len(arrow_types) < len(types)
    has_nested = any(pa.types.is_nested(type_) for type_ in value_types)
    if has_json or (has_nested and len(value_types) > 1):
        return _common_nested_type(types)

    if len(value_types) == 1:
        # The other type is that of a table in which all values are missing.
        dtype = _dtype_of(value_types.pop())
        return text_or_none if dtype is None else dtype

    if all(_is_number(type_) for type_ in value_types):
        dtype = _common_number(value_types, columns_of_integers)
        return text_or_none if dtype is None else dtype

    are_points_in_time = all(
        pa.types.is_date(type_) or _is_plain_time(type_) for type_ in value_types
    )
    if of_text and are_points_in_time:
        # A date is read as a time at midnight.
        units = [type_.unit for type_ in value_types if _is_plain_time(type_)]
        finest_unit = max(units, key=_UNITS.index)
        return np.dtype(f"datetime64[{finest_unit}]")
    return text_or_none


def _common_nested_type(types: set[CellType]) -> Any:
    """Return a type that holds the lists and objects of several types.

    None if one of the types has other values than lists and objects.
    """
    common: CellType = pa.null()
    for type_ in types:
        joined_type = join_types(common, type_)
        if joined_type is None:
            return None
        common = joined_type
    return "json" if common == JSON else common


def _common_number(types: set[pa.DataType], columns_of_integers: Sequence[Any]) -> Any:
    """Return float64 or uint64 if it holds all integers, None otherwise."""
    integers = []
    for column in columns_of_integers:
        integers += [value for value in column.tolist() if value is not None]
    if any(pa.types.is_floating(type_) for type_ in types):
        are_exact = all(abs(integer) <= _MAX_EXACT_INTEGER for integer in integers)
        return np.dtype(np.float64) if are_exact else None
    are_unsigned = all(integer >= 0 for integer in integers)
    return np.dtype(np.uint64) if are_unsigned else None


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _is_plain_time(type_: pa.DataType) -> bool:
    """Return whether a type is that of times without a zone."""
    return bool(pa.types.is_timestamp(type_)) and type_.tz is None


def _dtype_of(type_: pa.DataType) -> Any:
    """Return the dtype by which a reader reads a column of a type; None if there is none."""
    if pa.types.is_string(type_):
        return "str"
    if pa.types.is_boolean(type_) or _is_number(type_):
        return np.dtype(type_.to_pandas_dtype())
    if pa.types.is_date(type_):
        return np.dtype("datetime64[D]")
    if _is_plain_time(type_):
        return np.dtype(f"datetime64[{type_.unit}]")
    return None
