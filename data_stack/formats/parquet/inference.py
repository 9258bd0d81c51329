"""Finds out the schema of a Parquet dataset from its metadata or its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.arrow_errors import reading_parquet
from data_stack.formats.parquet.codecs import ListCodec, NestedCodec, ScalarCodec
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
)

#: Integers in the names of folders, all of which int64 holds; others such as "007" stay text.
_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,17})")


def infer_schema(arrow_schema: pa.Schema, name: str = "parquet") -> Schema:
    """Infer a schema from Arrow types.

    Scalars have numpy's dtype; lists of scalars are arrays of one dimension, with the size of
    fixed-size lists; structs, maps, nested lists and all others have dtype object. Dictionaries,
    views, large types and extension types count as the values that they hold: an Arrow tensor is a
    flat list.

    Args:
        arrow_schema: of the files.
        name: name of the new schema.

    Raises:
        ConfigError: two columns have the same name, or it is no schema.
    """
    if not isinstance(arrow_schema, pa.Schema):
        raise ConfigError(
            f"not an Arrow schema: {arrow_schema!r:.80}; "
            "pyarrow.parquet.read_schema(path) reads that of a file"
        )
    return Schema(name, [_infer_field(field) for field in arrow_schema])


def _infer_field(field: pa.Field) -> Field:
    type_ = plain_type(field.type)
    if is_list(type_):
        element_name = name_of_arrow(type_.value_type)
        if element_name not in (None, "void"):
            size = type_.list_size if pa.types.is_fixed_size_list(type_) else None
            dtype = dtype_of_arrow(type_.value_type)
            return Field(field.name, dtype, (size,), ListCodec(element_name), field.nullable)
    name = name_of_arrow(type_)
    if name in (None, "void"):
        has_only_nulls = name == "void"
        codec = NestedCodec(describe_type(type_))
        return Field(field.name, object, (), codec, field.nullable or has_only_nulls)
    dtype = dtype_of_arrow(type_)
    if dtype == np.dtype("datetime64[s]"):
        dtype = np.dtype("datetime64[ms]")  # Parquet stores milliseconds
    return Field(field.name, dtype, (), ScalarCodec(name), field.nullable)


def read_schema(footers: Footers, timestamp_unit: str | None = None) -> Schema:
    """Read the schema of a dataset.

    It is ours, or Petastorm's (by its plugin), else it is inferred from the columns. Partition
    columns that it lacks are added.

    Args:
        footers: of the files.
        timestamp_unit: the unit in which timestamps are wanted. It decides the unit of times of
            INT96, which have none: see :func:`_units_of_int96`.

    Raises:
        DatasetFileCorruptError: the schema is damaged, or hostile.
        ConfigError: a codec is unknown.
    """
    metadata = footers.metadata
    try:
        schema = Schema.from_metadata(metadata)
        if schema is None:
            schema = read_foreign_schema(metadata)
        if schema is None:
            # a hostile time zone raises on access
            with reading_parquet("the schema of the columns"):
                schema = infer_schema(_schema_with_units(footers, timestamp_unit))
    except (ConfigError, DatasetFileCorruptError) as error:
        raise type(error)(f"the schema of {footers.files.folder.name}: {error}") from error
    fields = list(schema)
    for name in partition_names(footers.files.partitions):
        if name not in schema:
            texts = [values.get(name) for values in footers.files.partitions]
            fields.append(_field_of_partition(name, texts))
    return Schema(schema.name, fields)


def _field_of_partition(name: str, texts: Sequence[str | None]) -> Field:
    """Infer a partition column from the texts in the names of folders, None for null."""
    present = [text for text in texts if text is not None]
    are_integers = any(present) and all(_INTEGER.fullmatch(text) for text in present)
    dtype = np.int64 if are_integers else str
    return Field(name, dtype, nullable=None in texts)


def _schema_with_units(footers: Footers, timestamp_unit: str | None) -> pa.Schema:
    """Return the columns of the first file, INT96 in the unit in which it is read."""
    columns = footers.arrow_schema
    if not footers.files.paths:
        return columns
    facts = footers.facts(0)
    names = []
    for name, leaves in facts.columns.items():
        if facts.is_int96[leaves].any():
            names.append(name)
    if not names:
        return columns
    units = _units_of_int96(footers, names, timestamp_unit)
    return schema_with_unit(columns, facts.is_int96.tolist(), units)


def _units_of_int96(
    footers: Footers, names: Sequence[str], timestamp_unit: str | None
) -> dict[str, str]:
    """Choose the unit in which to read columns of INT96, "us" or "ns", by name.

    INT96 holds nanoseconds and years far beyond those of ``datetime64[ns]``, so the unit depends on
    the times: the wanted one; else the one that the writer used (Spark: microseconds; pyarrow notes
    it); else nanoseconds, unless the first row group with rows has times that these do not hold.
    """
    if timestamp_unit is not None:
        unit = "ns" if timestamp_unit == "ns" else "us"
        return dict.fromkeys(names, unit)
    units = stated_units(footers.of(0), names)
    unknown = [name for name in names if name not in units]
    if unknown:
        units.update(dict.fromkeys(footers.names_of_far_times(0, unknown), "us"))
    return units
