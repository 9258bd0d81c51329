"""Uses partitions and footers to exclude files and row groups before rows are read."""

from __future__ import annotations

import functools
import operator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.files import ParquetFiles, partition_names
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.selecting import InstantColumns, Predicate, could_match, is_instant, types_seen
from data_stack.values.stacked_values import objects

#: Raised for bounds that a type cannot hold, such as dates out of range for Python.
_NO_BOUND = (ValueError, TypeError, OverflowError, pa.ArrowException)


def files_that_could_match(files: ParquetFiles, schema: Schema, predicate: Predicate) -> ParquetFiles:
    """The files that may have rows that a predicate selects, by the names of their folders; at least one file.

    Raises:
        DatasetFileCorruptError: the name of a folder is not a value of its field.
    """
    fields = [schema[name] for name in partition_names(files.partitions) if name in predicate.fields and name in schema]
    if not fields:
        return files
    values = [
        [partition_value(field, texts.get(field.name), files, number) for field in fields]
        for number, texts in enumerate(files.partitions)
    ]
    if len(fields) == len(predicate.fields):  # it needs partition columns only
        columns = {}
        for field, of_files in zip(fields, zip(*values, strict=True), strict=True):
            columns[field.name] = np.concatenate([partition_array(field, value, 1) for value in of_files])
        mask = predicate.mask(InstantColumns(columns, instants_of(schema, predicate)))
    elif predicate.bound is not None:
        types = types_of(schema, predicate)
        guarantees = [
            functools.reduce(operator.and_, [partition_guarantee(*each, types) for each in zip(fields, of_file, strict=True)])
            for of_file in values
        ]
        mask = could_match(predicate.bound, types, guarantees)
    else:
        return files
    kept = np.flatnonzero(mask).tolist() or [0]
    if len(kept) == len(files.paths):
        return files
    return replace(
        files, paths=tuple(files.paths[number] for number in kept), partitions=tuple(files.partitions[number] for number in kept)
    )


def types_of(schema: Schema, predicate: Predicate) -> pa.Schema:
    """The types by which the bound of a predicate sees its columns."""
    types = pa.schema([(name, schema[name].arrow_type()) for name in predicate.fields])
    return types if predicate.bound is None else types_seen(predicate.bound, types)


def instants_of(schema: Schema, predicate: Predicate) -> frozenset[str]:
    """The columns of a predicate that are times with a zone."""
    return frozenset(name for name in predicate.fields if is_instant(schema[name].arrow_type()))


def partition_value(field: Field, text: str | None, files: ParquetFiles, file: int) -> Any:
    """The value in the name of a folder."""
    if text is None:
        if not field.nullable:
            raise DatasetFileCorruptError(
                f"{files.name(file)} has no folder {field.name}=…, or the folder for null, but the field {field.name!r} is not "
                f"nullable"
            )
        return None
    dtype = field.dtype
    try:
        if not isinstance(dtype, np.dtype):
            return Decimal(text)
        if dtype.kind == "U":
            return text
        if dtype.kind == "S":
            return text.encode()
        if dtype.kind == "b":
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        value = np.array(text).astype(dtype)[()]
        if dtype.kind in "mM" and np.isnat(value):
            raise ValueError("not a time")
        if dtype.kind in "iu" and int(text) != value:  # older versions of numpy wrap numbers that are too large
            raise ValueError("out of range")
        return value
    except (ValueError, ArithmeticError, KeyError) as error:
        raise DatasetFileCorruptError(
            f"{files.name(file)} is in the folder {field.name}={text!r:.60}, which is not a value of dtype {dtype}"
        ) from error


def partition_array(field: Field, value: Any, n_rows: int, *, has_nulls: bool = False) -> npt.NDArray[Any]:
    """The column of a partition, shape ``(n_rows,)``; of objects if other files have nulls."""
    if has_nulls or value is None or not isinstance(field.dtype, np.dtype) or field.dtype.kind in "USO":
        return objects([value] * n_rows)
    return np.full(n_rows, value, field.dtype)


def partition_guarantee(field: Field, value: Any, types: pa.Schema) -> pc.Expression:
    """An expression that is true of all rows of a partition; its value None stands for null."""
    if value is None:
        return pc.field(field.name).is_null()
    try:
        plain = value.item() if isinstance(value, np.generic) else value
        return pc.field(field.name) == pa.scalar(plain, types.field(field.name).type)
    except _NO_BOUND:
        return pc.scalar(True)


def column_guarantee(field: pa.Field, column: pq.ColumnChunkMetaData, n_rows: int, n_nulls: int | None) -> pc.Expression:
    """An expression that is true of all rows of a column, from its statistics; ``field`` has the type in expressions."""
    name, statistics = pc.field(field.name), column.statistics
    if n_nulls == n_rows:
        return name.is_null()
    try:
        if statistics is None or not statistics.has_min_max or not statistics.min <= statistics.max:  # NaN is not
            return pc.scalar(True)
        bounds = name >= pa.scalar(statistics.min, field.type), name <= pa.scalar(statistics.max, field.type)
    except _NO_BOUND:
        return pc.scalar(True)
    if n_nulls != 0:
        bounds = bounds[0] | name.is_null(), bounds[1] | name.is_null()
    return bounds[0] & bounds[1]
