"""Finds the schema of a Parquet dataset in its metadata, or infers it from its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceChangedError
from data_stack.formats.parquet.arrow_errors import reading_parquet
from data_stack.formats.parquet.codecs import ListCodec, NestedCodec, ScalarCodec, TensorCodec
from data_stack.formats.parquet.files import partition_names
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.foreign_metadata import read_foreign_schema
from data_stack.formats.parquet.int96 import schema_with_unit, stated_units
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.types import (
    describe_type,
    dtype_of_arrow,
    is_list,
    name_of_arrow,
    plain_type,
    tensor_shape,
)

#: Matches the texts of a partition column that become integers, at most 18 digits, which int64
#: holds. A text such as "007" is not matched: as an integer it would lose its zeros.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
#: What ``name_of_arrow`` returns for a column in which all values are null.
_TYPE_OF_NULLS: Final = "void"


def infer_schema(arrow_schema: pa.Schema, name: str = "parquet") -> Schema:
    """Infer a schema from the types of columns.

    - Numbers, text, bytes, times: shape ``()``, in numpy's dtype.
    - Lists of these: shape ``(size,)`` if all lists have a fixed size, else ``(None,)``.
    - Arrow's tensors (``arrow.fixed_shape_tensor``): their shape.
    - Decimals: shape ``()``, dtype ``decimal.Decimal``.
    - Structs, maps, nested lists and all other types: shape ``()``, dtype object.

    Dictionaries, views, large types and other extension types count as the type of their values.
    So tensors inside of structs or lists are flat lists.

    Args:
        arrow_schema: the columns of the files.
        name: the name of the new schema.

    Raises:
        ConfigError: two columns have the same name, or ``arrow_schema`` is not a schema of pyarrow.
    """
    if not isinstance(arrow_schema, pa.Schema):
        raise ConfigError(
            f"not an Arrow schema: {arrow_schema!r:.80}; "
            "pyarrow.parquet.read_schema(path) reads that of a file"
        )
    return Schema(name, [_infer_field(field) for field in arrow_schema])


def _infer_field(field: pa.Field) -> Field:
    """Infer a field from a column, as :func:`infer_schema` describes."""
    type_ = plain_type(field.type)
    if is_list(type_):
        element_type_name = name_of_arrow(type_.value_type)
        if _has_values(element_type_name):
            if isinstance(field.type, pa.FixedShapeTensorType):
                return _field_of_tensors(field, element_type_name)
            size = None
            if pa.types.is_fixed_size_list(type_):
                size = type_.list_size
            dtype = dtype_of_arrow(type_.value_type)
            codec = ListCodec(element_type_name)
            return Field(field.name, dtype, (size,), codec, field.nullable)

    type_name = name_of_arrow(type_)
    if not _has_values(type_name):
        has_only_nulls = type_name == _TYPE_OF_NULLS
        try:
            nested_codec = NestedCodec(describe_type(type_))
        except ConfigError as error:
            raise ConfigError(f"column {field.name!r:.80}: {error}") from error
        return Field(field.name, object, (), nested_codec, field.nullable or has_only_nulls)
    dtype = dtype_of_arrow(type_)
    if dtype == np.dtype("datetime64[s]"):
        dtype = np.dtype("datetime64[ms]")  # Parquet stores milliseconds
    return Field(field.name, dtype, (), ScalarCodec(type_name), field.nullable)


def _field_of_tensors(field: pa.Field, element_type_name: str | None) -> Field:
    type_ = field.type
    dtype = dtype_of_arrow(type_.value_type)
    codec = TensorCodec(element_type_name, permutation=type_.permutation)
    return Field(field.name, dtype, tensor_shape(type_), codec, field.nullable)


def _has_values(type_name: str | None) -> bool:
    """Return whether scalars of a type have a dtype of their own.

    Args:
        type_name: what ``name_of_arrow`` returned: None for a type that is not one of scalars.
    """
    return type_name is not None and type_name != _TYPE_OF_NULLS


def read_schema(footers: Footers, timestamp_unit: str | None = None) -> Schema:
    """Read the schema of a dataset.

    The schema of data_stack in the metadata takes precedence over that of Petastorm. Without
    either, the schema is inferred from the columns of the first file. Partition columns that the
    schema lacks are added.

    Args:
        footers: the footers of the files.
        timestamp_unit: the unit of timestamps in samples, "s", "ms", "us" or "ns"; None for no
            wish. It decides the unit of INT96, which has none: see :func:`_units_of_int96`.

    Raises:
        DatasetFileCorruptError: the schema is damaged, or would run code.
        ConfigError: a codec is unknown, or its plugin is not installed.
    """
    metadata = footers.metadata
    files = footers.files
    if footers.beside is None and files.paths:
        place = f"the schema of {files.name(0)}"
    elif files.is_local:
        place = f"the schema of {files.folder.name}"
    else:
        place = f"the schema of {files.folder.describe('')}"
    try:
        schema = Schema.from_metadata(metadata)
        if schema is None:
            schema = read_foreign_schema(metadata)
        if schema is None:
            # pyarrow parses the time zone of a type only now, and raises for a crafted one.
            with reading_parquet("the schema of the columns"):
                schema = infer_schema(_schema_with_units(footers, timestamp_unit))
    except ResourceChangedError:
        raise  # It concerns a file, which it names.
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    except DatasetFileCorruptError as error:
        raise DatasetFileCorruptError(f"{place}: {error}") from error

    fields = list(schema)
    for name in partition_names(footers.files.partitions):
        if name not in schema:
            texts = [partition.get(name) for partition in footers.files.partitions]
            fields.append(_field_of_partition(name, texts))
    return Schema(schema.name, fields)


def _field_of_partition(name: str, texts: Sequence[str | None]) -> Field:
    """Infer a partition column.

    Args:
        name: the name of the column.
        texts: its value for each file, as in the name of the folder; None for null.

    Returns:
        A field of int64 if all values are integers, else of text.
    """
    values = [text for text in texts if text is not None]
    dtype: type = str
    if values and all(_INTEGER.fullmatch(text) for text in values):
        dtype = np.int64
    return Field(name, dtype, nullable=None in texts)


def _schema_with_units(footers: Footers, timestamp_unit: str | None) -> pa.Schema:
    """Return the columns of the first file, with the unit in which INT96 is read."""
    columns = footers.arrow_schema
    if not footers.files.paths:
        return columns
    facts = footers.facts(0)
    names = []
    for name, leaves in facts.columns.items():
        has_int96 = facts.is_int96[leaves].any()
        if has_int96:
            names.append(name)
    if not names:
        return columns
    units = _units_of_int96(footers, names, timestamp_unit)
    return schema_with_unit(columns, facts.is_int96.tolist(), units)


def _units_of_int96(
    footers: Footers, names: Sequence[str], timestamp_unit: str | None
) -> dict[str, str]:
    """Choose the unit in which to read columns of INT96.

    INT96 holds nanoseconds, and also years far beyond those of ``datetime64[ns]``. So the unit
    depends on the times. These are asked in turn:

    1. ``timestamp_unit``: the reader has chosen the unit.
    2. The writer of the first file: Spark has microseconds; pyarrow notes the unit of its table.
    3. The times of the first row group that has rows: nanoseconds if these hold all of them.

    Args:
        footers: the footers of the files.
        names: the names of the columns.
        timestamp_unit: the unit that the reader has chosen; None without a choice.

    Returns:
        "us" or "ns", by the name of the column. Columns that are not named have "ns".
    """
    if timestamp_unit is not None:
        unit = "ns" if timestamp_unit == "ns" else "us"
        return dict.fromkeys(names, unit)
    units = stated_units(footers.of(0), names)
    unknown_names = [name for name in names if name not in units]
    if unknown_names:
        for name in footers.names_of_far_times(0, unknown_names):
            units[name] = "us"
    return units
