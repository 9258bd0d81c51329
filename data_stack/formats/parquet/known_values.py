"""What is known of rows without reading them: the values of partitions, and what footers tell of columns."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.columns import objects
from data_stack.formats.parquet.files import ParquetFiles, partition_names
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.selecting import ColumnStatistics, Predicate
from data_stack.formats.parquet.selecting.values import as_numpy_time

__all__ = ["column_statistics", "files_that_could_match", "partition_array", "partition_statistics", "partition_value"]


def files_that_could_match(files: ParquetFiles, schema: Schema, predicate: Predicate) -> ParquetFiles:
    """The files that may hold rows that a predicate takes, by the names of their folders; one file is always left.

    Raises:
        DatasetFileCorruptError: a folder's name is none of its field's values.
    """
    names = [name for name in partition_names(files.partitions) if name in predicate.fields and name in schema]
    if not names:
        return files
    kept = []
    for number, texts in enumerate(files.partitions):
        values = {name: partition_value(schema[name], texts.get(name), files, number) for name in names}
        if len(names) == len(predicate.fields):  # of folders alone: that is asked itself
            is_kept = bool(predicate.mask({name: partition_array(schema[name], value, 1) for name, value in values.items()})[0])
        else:
            known = {name: partition_statistics(schema[name].dtype, value, 1) for name, value in values.items()}
            is_kept = predicate.could_be(True, known)
        if is_kept:
            kept.append(number)
    kept = kept or [0]
    if len(kept) == len(files.paths):
        return files
    return replace(
        files, paths=tuple(files.paths[number] for number in kept), partitions=tuple(files.partitions[number] for number in kept)
    )


def partition_value(field: Field, text: str | None, files: ParquetFiles, file: int) -> Any:
    """The value that the name of a folder tells."""
    if text is None:
        if not field.nullable:
            raise DatasetFileCorruptError(
                f"{files.name(file)} lies in no folder {field.name}=…, or in that for null, but the schema says that the "
                f"field {field.name!r} is not nullable"
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
            raise ValueError("no time")
        if dtype.kind in "iu" and int(text) != value:  # older versions of numpy take what is left of a number that is too large
            raise ValueError("out of range")
        return value
    except (ValueError, ArithmeticError, KeyError) as error:
        raise DatasetFileCorruptError(
            f"{files.name(file)} lies in a folder {field.name}={text!r:.60}, which is no {dtype}"
        ) from error


def partition_array(field: Field, value: Any, n_rows: int, *, has_nulls: bool = False) -> npt.NDArray[Any]:
    """The column of a partition, shape ``(n_rows,)``; of objects if other files have nulls there."""
    if has_nulls or value is None or not isinstance(field.dtype, np.dtype) or field.dtype.kind in "USO":
        return objects([value] * n_rows)
    return np.full(n_rows, value, field.dtype)


def column_statistics(dtype: Any, column: pq.ColumnChunkMetaData, n_rows: int, n_nulls: int | None) -> ColumnStatistics:
    """What a footer tells of a column of this dtype."""
    statistics = column.statistics
    try:
        if statistics is None or not statistics.has_min_max:
            return ColumnStatistics(n_rows, n_nulls)
        is_exact = bool(getattr(statistics, "is_max_value_exact", None))
        return ColumnStatistics(n_rows, n_nulls, _bounds(dtype, statistics.min, statistics.max), is_exact)
    except (ValueError, OverflowError, pa.ArrowException):  # dates beyond what Python has
        return ColumnStatistics(n_rows, n_nulls)


def _bounds(dtype: Any, least: Any, greatest: Any) -> npt.NDArray[Any] | None:
    """The least and greatest value as the column has them; None if they are none, or contradict each other."""
    try:
        is_plain = isinstance(dtype, np.dtype) and dtype.kind not in "USO"
        bounds = np.array([as_numpy_time(least), as_numpy_time(greatest)], dtype if is_plain else object)
        return bounds if bounds[0] <= bounds[1] else None  # NaN is not
    except (TypeError, ValueError, ArithmeticError):
        return None


def partition_statistics(dtype: Any, value: Any, n_rows: int) -> ColumnStatistics:
    """What the value of a partition, None for null, tells of its column."""
    if value is None:
        return ColumnStatistics(n_rows, n_rows)
    return ColumnStatistics(n_rows, 0, _bounds(dtype, value, value), True)
