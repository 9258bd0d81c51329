"""Fields of Parquet as columns of other formats."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from data_stack.codecs.codec import Codec, Column, media_types
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.exception import ConfigError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import (
    column_of_dtype,
    infer_column,
    plain_type,
    positions_to_infer_from,
)
from data_stack.formats.parquet import (
    Field,
    ListCodec,
    NdarrayCodec,
    NestedCodec,
    ParquetDataset,
    ScalarCodec,
    Schema,
)
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.types import is_list, name_of_arrow
from data_stack.io.location import Location

#: Types of columns whose values may be None.
_MAY_BE_NONE: Final = frozenset({"json", "msgpack", "tree"})
#: How many values are looked at together for a None.
_ROWS_AT_ONCE: Final = 1 << 16


def open_parquet(
    source: Location | Sequence[Location],
    schema: Any = None,
    nulls: Nulls = "none",
    filters: Any = None,
) -> ParquetDataset:
    """The rows of a file, folder or list of files, with lists of text or bytes as Python lists unless a schema says otherwise."""
    files: Any = source if isinstance(source, Location) else list(source)
    rows = ParquetDataset(files, schema=schema, filters=filters)
    if schema is None and (plain := _with_plain_lists(rows.schema)) != rows.schema:
        schema = plain
    elif nulls == "none":
        return rows
    return ParquetDataset(files, schema=schema, nulls=nulls, filters=filters)


def columns_of_parquet(dataset: ParquetDataset) -> dict[str, Column]:
    """Describe each field as a column of records. Fields with nulls become JSON, or trees if JSON has no such values.

    Raises:
        ConfigError: no other format can store a field.
    """
    return {
        field.name: _column(field, dataset, positions_to_infer_from(len(dataset)))
        for field in dataset.schema
    }


def _column(field: Field, dataset: ParquetDataset, positions: Any) -> Column:
    codec = field.codec
    if "decimal" in str(field.arrow_type()) or not isinstance(field.dtype, np.dtype):
        return Column("decimal")  # which the other formats refuse
    has_nulls = dataset.with_nulls[field.name] and _has_none(dataset, field.name)
    if isinstance(codec, NestedCodec):
        some = [
            value
            for value in dataset.read_column(field.name, positions).tolist()
            if value is not None
        ]
        column = infer_column(some, field.name) if some else Column("json")
        return Column("tree") if has_nulls and column.type not in _MAY_BE_NONE else column
    if has_nulls:
        return Column(
            "json" if not field.shape and field.dtype.kind in "biuU" else "tree"
        )  # floats may be NaN
    if isinstance(codec, Codec) and (field.dtype == object or codec.is_media):
        return Column(codec.type_name)
    return column_of_dtype(field.dtype, field.shape)


def _has_none(dataset: ParquetDataset, name: str) -> bool:
    """Whether a column has a None, read in blocks of rows up to the first one."""
    for start in range(0, len(dataset), _ROWS_AT_ONCE):
        rows = range(start, min(start + _ROWS_AT_ONCE, len(dataset)))
        values = dataset.read_column(name, rows)
        if values.dtype == object and any(value is None for value in values):
            return True
    return False


def _with_plain_lists(schema: Schema) -> Schema:
    """The same fields, with lists of text or bytes as Python lists: other formats have no arrays of objects."""
    fields = []
    for field in schema:
        if (
            isinstance(field.codec, ListCodec)
            and isinstance(field.dtype, np.dtype)
            and field.dtype.kind in "US"
        ):
            codec = NestedCodec({"list": "string" if field.dtype.kind == "U" else "binary"})
            field = Field(field.name, object, (), codec, field.nullable)
        fields.append(field)
    return Schema(schema.name, fields)


def find_stored_schema(schema: Schema, columns: Mapping[str, Column]) -> Schema:
    """The same fields, with the bytes of files instead of decoded values."""
    fields = []
    for field in schema:
        is_file = (
            isinstance(field.codec, Codec)
            and field.codec.is_media
            and columns[field.name].type in media_types()
        )
        fields.append(
            Field(field.name, np.bytes_, (), ScalarCodec("binary"), field.nullable)
            if is_file
            else field
        )
    return Schema(schema.name, fields)


def parquet_schema(name: str, source: ColumnSource) -> Schema:
    """The schema of Parquet files that hold the columns of a source.

    Raises:
        ConfigError: Parquet cannot store a column.
    """
    return Schema(name, [_field(each, column, source) for each, column in source.schema.items()])


def _field(name: str, column: Column, source: ColumnSource) -> Field:
    kind = plain_type(column.type)
    declared = source.declared[name]
    is_value = kind in _MAY_BE_NONE or (
        declared.dtype != "object" and kind not in media_types()
    )  # not the bytes of a file
    if is_value and (own := _own_field(name, declared)):
        return own
    if kind in ("i64", "u64", "int"):
        return Field(name, column.dtype or (np.uint64 if kind == "u64" else np.int64))
    if kind in ("utf8", "bytes"):
        return Field(name, np.str_ if kind == "utf8" else np.bytes_)
    dtype, shape = column.dtype, column.shape
    if kind in ("array", "npy") and (dtype is None or shape is None) and len(source):
        arrays = [
            np.asarray(value)
            for value in source.read(positions_to_infer_from(len(source)), [name])[name]
        ]
        dtypes, n_dims = {array.dtype for array in arrays}, {array.ndim for array in arrays}
        if len(dtypes) == len(n_dims) == 1:
            dtype, shape = dtypes.pop(), (None,) * n_dims.pop()
        elif kind == "array":
            raise ConfigError(
                f"column {name!r} holds arrays of several dtypes or dimensions; map them, or leave it out"
            )
    if dtype is not None and shape is not None:
        if kind == "array":
            return Field(name, dtype, shape, NdarrayCodec() if dtype.kind == "c" else None)
        if (
            kind == "npy"
            and dtype.kind in "mM"
            and (own := _own_field(name, DeclaredColumn(str(dtype), shape)))
        ):
            return own
    return Field(name, object, (), kind, nullable=kind in _MAY_BE_NONE)


def _own_field(name: str, declared: DeclaredColumn) -> Field | None:
    """A field of Parquet's own types, with null for NaT; None without dtype or shape, or if Parquet has no such type."""
    dtype, shape, is_nullable, origin = declared
    if dtype is None or shape is None:
        return None
    # The type tells times of day from durations. A table has fields, Parquet types.
    type_ = getattr(getattr(origin, "field", None), "type", origin)
    known = None if type_ is None else name_of_arrow(type_.value_type if is_list(type_) else type_)
    has_nat = not is_nullable and dtype.startswith(("datetime64", "timedelta64"))
    with contextlib.suppress(ConfigError):
        if dtype == "object":
            return Field(name, dtype, shape, NestedCodec(type_), nullable=True)
        codec = (ListCodec if shape else ScalarCodec)(known, nulls="nan" if has_nat else "none")
        return Field(name, dtype, shape, codec, nullable=is_nullable or has_nat)
    return None
