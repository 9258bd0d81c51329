"""The types of columns of JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa


@dataclass(frozen=True)
class JsonType:
    """The type of a column whose cells are JSON text, and whose values are what the text says.

    Its name in ``dtypes=`` is ``"json"``.
    """

    def __str__(self) -> str:
        return "json"


#: The only value of :class:`JsonType`.
JSON: Final = JsonType()

#: The type of a column: one of Arrow, or JSON.
CellType: TypeAlias = pa.DataType | JsonType


def is_null(type_: CellType) -> bool:
    """Return whether all values of a type are None."""
    return isinstance(type_, pa.DataType) and bool(pa.types.is_null(type_))


def is_nested(type_: CellType) -> bool:
    """Return whether values of a type are lists or objects."""
    return isinstance(type_, JsonType) or bool(pa.types.is_nested(type_))


def stored_type(type_: CellType) -> pa.DataType:
    """Return the type of the cells of a column: that of JSON is text."""
    return pa.string() if isinstance(type_, JsonType) else type_


def arrow_schema(types: Mapping[str, CellType]) -> pa.Schema:
    """Return the types of the cells of columns."""
    return pa.schema([(key, stored_type(type_)) for key, type_ in types.items()])


def join_types(first: CellType, second: CellType) -> CellType | None:
    """Return the type of a column whose blocks are of two types; None if there is none."""
    if is_null(first):
        return second
    if is_null(second):
        return first
    if isinstance(first, pa.DataType) and isinstance(second, pa.DataType):
        joined_type = _join_arrow_types(first, second)
        if joined_type is not None:
            return joined_type
    # JSON text holds lists and objects of any types.
    if is_nested(first) and is_nested(second):
        return JSON
    return None


def _join_arrow_types(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type of Arrow that holds values of two types; None if there is none."""
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(first) and pa.types.is_list(second):
        inner = _join_arrow_types(first.value_type, second.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return _join_structs(first, second)
    return None


def _join_structs(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type of structs with the same names; None if a name or type differs."""
    names = [field.name for field in first]
    if set(names) != {field.name for field in second}:
        return None
    fields = []
    for name in names:
        joined_type = _join_arrow_types(first.field(name).type, second.field(name).type)
        if joined_type is None:
            return None
        fields.append((name, joined_type))
    return pa.struct(fields)
