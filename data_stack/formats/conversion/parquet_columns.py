"""Translates between fields of Parquet and columns of other formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, ColumnType
from data_stack.codecs.registry import media_types
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import Origin
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
    TensorCodec,
)
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.types import is_list, is_tensor, name_of_arrow
from data_stack.io.location import Location

#: The types of columns whose values may be None.
_NULLABLE_TYPES: Final = frozenset({"json", "msgpack", "tree"})

#: How many values are searched for a None at once.
_ROWS_AT_ONCE: Final = 1 << 16


# ---------------------------------------------------------------------- from Parquet


def open_parquet(
    source: Location | Sequence[Location],
    schema: Schema | None = None,
    nulls: Nulls = "none",
    filters: Any = None,
) -> ParquetDataset:
    """Open a file, folder or list of files.

    Lists of text or bytes are Python lists, unless a schema says otherwise: other formats have no
    arrays of objects.

    Args:
        source: the file or folder; or the files, whose rows follow one another.
        schema: the fields to read; None for those of the files.
        nulls: as for :class:`~data_stack.formats.parquet.ParquetDataset`.
        filters: as for :class:`~data_stack.formats.parquet.ParquetDataset`.
    """
    files: Any = source if isinstance(source, Location) else list(source)
    if schema is None:
        # The files are opened once for their schema, and again if they are read in another way.
        rows = ParquetDataset(files, filters=filters)
        schema_with_lists = _with_python_lists(rows.schema)
        has_python_lists = schema_with_lists != rows.schema
        if nulls == "none" and not has_python_lists:
            return rows
        if has_python_lists:
            schema = schema_with_lists
    return ParquetDataset(files, schema=schema, nulls=nulls, filters=filters)


def _with_python_lists(schema: Schema) -> Schema:
    """Return the same fields, with lists of text or bytes as Python lists."""
    fields = []
    for field in schema:
        kind = field.dtype.kind if isinstance(field.dtype, np.dtype) else ""
        if isinstance(field.codec, ListCodec) and kind in ("U", "S"):
            codec = NestedCodec({"list": "string" if kind == "U" else "binary"})
            fields.append(Field(field.name, object, (), codec, field.nullable))
        else:
            fields.append(field)
    return Schema(schema.name, fields)


def columns_of_parquet(dataset: ParquetDataset) -> dict[str, ColumnType]:
    """Describe each field as a column of records.

    Fields with nulls become JSON, or trees if JSON has no such values.

    Raises:
        ConfigError: no other format can store a field.
    """
    positions = positions_to_infer_from(len(dataset))
    return {field.name: _column_of_field(field, dataset, positions) for field in dataset.schema}


def _column_of_field(
    field: Field, dataset: ParquetDataset, positions: npt.NDArray[np.intp]
) -> ColumnType:
    """Describe a field; what its schema does not say is inferred from the values at positions."""
    if "decimal" in str(field.arrow_type()) or not isinstance(field.dtype, np.dtype):
        # The other formats refuse this type.
        return ColumnType("decimal")

    has_nulls = dataset.with_nulls[field.name] and _has_none(dataset, field.name)
    if isinstance(field.codec, NestedCodec):
        values = dataset.read_column(field.name, positions).tolist()
        values = [value for value in values if value is not None]
        column = infer_column(values, field.name)
        if has_nulls and column.type not in _NULLABLE_TYPES:
            return ColumnType("tree")
        return column
    if has_nulls:
        # JSON has no NaN, so floats are trees.
        is_json = not field.shape and field.dtype.kind in "biuU"
        return ColumnType("json" if is_json else "tree")
    if isinstance(field.codec, Codec) and (field.dtype == object or field.codec.is_media):
        return ColumnType(field.codec.type_name)
    return column_of_dtype(field.dtype, field.shape)


def _has_none(dataset: ParquetDataset, name: str) -> bool:
    """Return whether a column has a None; reads blocks of rows up to the first one."""
    for start in range(0, len(dataset), _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, len(dataset))
        values = dataset.read_column(name, range(start, stop))
        if values.dtype == object and any(value is None for value in values):
            return True
    return False


def find_stored_schema(schema: Schema, columns: Mapping[str, ColumnType]) -> Schema:
    """Return the same fields, with the bytes of files instead of decoded values.

    Args:
        schema: the fields.
        columns: the column of each field, as of :func:`columns_of_parquet`.
    """
    fields = []
    for field in schema:
        is_of_files = (
            isinstance(field.codec, Codec)
            and field.codec.is_media
            and columns[field.name].type in media_types()
        )
        if is_of_files:
            as_bytes = ScalarCodec("binary")
            fields.append(Field(field.name, np.bytes_, (), as_bytes, field.nullable))
        else:
            fields.append(field)
    return Schema(schema.name, fields)


# ---------------------------------------------------------------------- to Parquet


def parquet_schema(name: str, source: ColumnSource) -> Schema:
    """Return the schema of Parquet files that hold the columns of a source.

    Args:
        name: the name of the schema.
        source: the dataset.

    Raises:
        ConfigError: Parquet cannot store a column.
    """
    fields = []
    for column_name in source.schema:
        field = _field_of_column(column_name, source)
        if column_name in source.class_names and str(field.arrow_type()) == "int64":
            # datasets finds the names of a nullable column only.
            field = Field(column_name, np.int64, nullable=True)
        fields.append(field)
    return Schema(name, fields)


def labels_of_schema(schema: Schema, source: ColumnSource) -> dict[str, Sequence[str]]:
    """Return the names of the classes of fields of integers.

    ``datasets`` reads those of int64, and we read all.

    Args:
        schema: the fields, as of :func:`parquet_schema`.
        source: the dataset.
    """
    labels = {}
    for field in schema:
        is_integer = str(field.arrow_type()).startswith(("int", "uint"))
        if field.name in source.class_names and is_integer:
            labels[field.name] = source.class_names[field.name]
    return labels


def _field_of_column(name: str, source: ColumnSource) -> Field:
    """Return the field of a column: of Parquet's own types where it has one."""
    column = source.schema[name]
    type_name = plain_type(column.type)

    # What the schema of the source declares comes first. It does not count for the bytes of files,
    # nor, unless values may be None, for objects, whose type says more.
    declared = source.declared[name]
    is_of_objects_or_files = declared.dtype == "object" or type_name in media_types()
    if type_name in _NULLABLE_TYPES or not is_of_objects_or_files:
        declared_field = _field_as_declared(name, declared)
        if declared_field is not None:
            return declared_field

    if type_name in ("i64", "int"):
        return Field(name, column.dtype or np.int64)
    if type_name == "u64":
        return Field(name, column.dtype or np.uint64)
    if type_name == "utf8":
        return Field(name, np.str_)
    if type_name == "bytes":
        return Field(name, np.bytes_)
    if type_name in ("array", "npy"):
        array_field = _field_of_arrays(name, type_name, source)
        if array_field is not None:
            return array_field
    return Field(name, object, (), type_name, nullable=type_name in _NULLABLE_TYPES)


def _field_of_arrays(name: str, type_name: str, source: ColumnSource) -> Field | None:
    """Return the field of a column of arrays.

    Returns:
        None if the cells are records, which say dtype and shape each.

    Raises:
        ConfigError: the arrays of an ``array`` column differ in dtype or number of dimensions.
    """
    dtype = source.schema[name].dtype
    shape = source.schema[name].shape
    if (dtype is None or shape is None) and len(source):
        values = source.read(positions_to_infer_from(len(source)), [name])[name]
        arrays = [np.asarray(value) for value in values]
        dtypes = {array.dtype for array in arrays}
        dimensions = {array.ndim for array in arrays}
        if len(dtypes) == 1 and len(dimensions) == 1:
            dtype = dtypes.pop()
            shape = (None,) * dimensions.pop()
        elif type_name == "array":
            raise ConfigError(
                f"column {name!r} holds arrays of several dtypes or dimensions; map them, "
                "or leave it out"
            )
    if dtype is None or shape is None:
        return None
    if type_name == "array" and dtype.kind == "c":
        # Parquet has no complex numbers.
        return Field(name, dtype, shape, NdarrayCodec())
    if type_name == "array":
        return Field(name, dtype, shape)
    is_of_times = dtype.kind in "mM"
    if is_of_times:
        return _field_as_declared(name, DeclaredColumn(str(dtype), shape))
    return None


def _field_as_declared(name: str, declared: DeclaredColumn) -> Field | None:
    """Return a field of Parquet's own types, with null for NaT.

    Returns:
        None without dtype or shape, or if Parquet has no such type.
    """
    if declared.dtype is None or declared.shape is None:
        return None
    arrow_type = _arrow_type_of(declared)
    type_name = None
    if arrow_type is not None:
        # The Arrow type tells times of day from durations, which have one dtype.
        value_type = arrow_type
        if is_list(arrow_type) or is_tensor(arrow_type):
            value_type = arrow_type.value_type
        type_name = name_of_arrow(value_type)
    is_of_times = declared.dtype.startswith(("datetime64", "timedelta64"))
    has_nat = is_of_times and not declared.is_nullable

    codec: Any
    try:
        if declared.dtype == "object":
            codec = NestedCodec(arrow_type)
            return Field(name, declared.dtype, declared.shape, codec, nullable=True)
        codec_class: Any = ListCodec if declared.shape else ScalarCodec
        options = {}
        if is_tensor(arrow_type) and arrow_type.storage_type.list_size:
            # Parquet has no tensors without elements.
            codec_class = TensorCodec
            options["permutation"] = arrow_type.permutation
        codec = codec_class(type_name, nulls="nan" if has_nat else "none", **options)
        is_nullable = declared.is_nullable or has_nat
        return Field(name, declared.dtype, declared.shape, codec, nullable=is_nullable)
    except ConfigError:
        return None


def _arrow_type_of(declared: DeclaredColumn) -> Any:
    """Return the type of Arrow that a column had; None if it does not come from Arrow.

    A column of an Arrow table keeps the field of the table; a column of Parquet keeps the type.
    """
    origin = declared.origin
    if not isinstance(origin, Origin):
        return origin
    if origin.field is None:
        return None
    return origin.field.type
