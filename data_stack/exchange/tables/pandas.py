"""Converts between pandas data frames and samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.exchange.arrays import with_target
from data_stack.exchange.tables.table import (
    JSON_TEXT,
    ArrowColumn,
    NamedColumns,
    Origin,
    PlainColumn,
    TableIterator,
    cells_of,
    check_names,
)
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import Column

try:
    import pandas as pd
except ImportError as error:
    raise MissingDependencyError("from_pandas() and to_pandas()", "pandas", "pandas") from error

_OBJECT = np.dtype(object)
_DTYPES = (np.dtype, pd.api.extensions.ExtensionDtype)


def from_pandas(frame: pd.DataFrame, *, target: str | None = None) -> DatasetIteratorIF:
    """The rows of a data frame of pandas as dict samples; columns of numpy's dtypes are not copied, and the index is left out.

    Columns of numpy dtypes stay unchanged: NaN and NaT stay NaN and NaT. In other columns a missing value (``NA``, ``NaN``,
    ``None``) is None, and the column an array of objects; for their values see :func:`data_stack.from_arrow`. A categorical
    column returns its categories; as the target, it returns their indices, and the categories are the meta's ``class_names``.
    Objects must be of one type: text, bytes, numbers, dates, lists, dicts or arrays.

    Args:
        frame: a ``pandas.DataFrame``; ``frame.reset_index()`` makes a column of the index.
        target: the column of the target.

    Raises:
        ConfigError: ``frame`` is not a data frame, or a column does not exist, has the name of another, or holds several types.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(f"from_pandas() expects a pandas.DataFrame, got {type(frame).__name__}")
    check_names(list(frame.columns))
    columns = {
        str(name): _column(str(name), series, name == target) for name, series in frame.items()
    }
    class_names = getattr(columns.get(target or ""), "class_names", None)
    return with_target(TableIterator(columns), "pandas", list(columns), target, class_names)


def _column(name: str, series: Any, is_target: bool) -> ArrowColumn | PlainColumn:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype != _OBJECT:
        return PlainColumn(series.to_numpy())
    if dtype == _OBJECT and any(
        np.ndim(value) > 1 for value in series if isinstance(value, np.ndarray)
    ):
        return PlainColumn(stack_values(series.tolist()))
    given = (
        series.where(series.notna(), None) if dtype == _OBJECT else series
    )  # pyarrow would replace NaN in arrays, too
    try:
        cells: Any = pa.array(given, from_pandas=dtype != _OBJECT)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"column {name!r:.80} of dtype {dtype} holds values of several types: {error!s:.200}"
        ) from error
    chunked = cells if isinstance(cells, pa.ChunkedArray) else pa.chunked_array([cells])
    return ArrowColumn(chunked, pa.field(name, chunked.type), as_codes=is_target, kind=dtype)


def to_pandas(iterator: Any) -> pd.DataFrame:
    """All samples as a ``pandas.DataFrame``.

    Columns keep the dtypes of their pandas, polars, Arrow or Parquet source if only rows and columns were selected since;
    otherwise they have numpy dtypes, or nullable pandas dtypes (``Int64``, ``Float64``, ``boolean``) if a value is None, which
    never becomes NaN. Arrays, lists and dicts, and values of JSON, are objects in a column of dtype object.
    """
    columns = NamedColumns(iterator)
    series = {
        name: _series(name, values, columns.origins.get(name))
        for name, values in columns.read().items()
    }
    frame: pd.DataFrame = pd.DataFrame(series, columns=columns.names)
    return frame


def _series(name: str, values: Column, origin: Origin | None) -> Any:
    dtype = origin.kind if origin is not None and isinstance(origin.kind, _DTYPES) else None
    if (values.ndim > 1 and not hasattr(dtype, "__from_arrow__")) or values.dtype.names:
        return pd.Series(list(values), dtype=object)
    if origin is not None and origin.kind == JSON_TEXT:
        return pd.Series(values, dtype=object)
    if origin is None and values.dtype != _OBJECT:
        return pd.Series(values)
    try:
        cells = cells_of(values, name, origin)
    except ConfigError:  # a column of pandas holds any objects
        return pd.Series(values, dtype=object)
    if dtype is None and (
        pa.types.is_nested(cells.type)
        or pa.types.is_decimal(cells.type)
        or pa.types.is_null(cells.type)
    ):
        return pd.Series(values, dtype=object)
    numbers = (
        pa.types.is_boolean(cells.type)
        or pa.types.is_integer(cells.type)
        or pa.types.is_floating(cells.type)
    )
    if dtype is None and cells.null_count and numbers:
        known = np.dtype(cells.type.to_pandas_dtype()).name
        dtype = pd.api.types.pandas_dtype(
            {"bool": "boolean", "float16": "Float32"}.get(known, known.title().replace("Ui", "UI"))
        )
    if isinstance(dtype, (pd.Float32Dtype, pd.Float64Dtype)):  # where pandas 3 makes NaN missing
        return pd.Series(
            pd.arrays.FloatingArray(
                np.asarray(cells).astype(dtype.type), np.asarray(cells.is_null())
            )
        )
    if dtype is not None and hasattr(dtype, "__from_arrow__"):
        return pd.Series(dtype.__from_arrow__(cells))
    if (
        pa.types.is_dictionary(cells.type) and cells.type.index_type == pa.uint32()
    ):  # of polars; pyarrow 18 does not convert it
        cells = cells.cast(pa.dictionary(pa.int64(), cells.type.value_type))
    made = cells.to_pandas(date_as_object=dtype == _OBJECT)
    return made if dtype is None else made.astype(dtype)
