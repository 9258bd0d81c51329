"""Converts between pandas data frames and samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.exchange.tables.cells import cells_of
from data_stack.exchange.tables.table import NamedColumns
from data_stack.formats.arrow_tables import (
    JSON_TEXT,
    ArrowColumn,
    IndexLevel,
    Origin,
    PlainColumn,
    TableIterator,
    check_names,
)
from data_stack.formats.parquet.codecs import CellError
from data_stack.formats.parquet.codecs.exact_cells import exact_cells
from data_stack.formats.targets import with_target
from data_stack.util.program_lines import warn_program
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import ColumnArray

try:
    import pandas as pd
except ImportError as error:
    raise MissingDependencyError("from_pandas() and to_pandas()", "pandas", "pandas") from error

_OBJECT = np.dtype(object)

#: The dtypes of pandas that hold numbers beside missing values, by the dtype of the numbers.
_NULLABLE_DTYPES = {
    "bool": pd.BooleanDtype(),
    "int8": pd.Int8Dtype(),
    "int16": pd.Int16Dtype(),
    "int32": pd.Int32Dtype(),
    "int64": pd.Int64Dtype(),
    "uint8": pd.UInt8Dtype(),
    "uint16": pd.UInt16Dtype(),
    "uint32": pd.UInt32Dtype(),
    "uint64": pd.UInt64Dtype(),
    "float16": pd.Float32Dtype(),  # pandas has no Float16.
    "float32": pd.Float32Dtype(),
    "float64": pd.Float64Dtype(),
}


def from_pandas(frame: pd.DataFrame, *, target: str | None = None) -> DatasetIteratorIF:
    """Return the rows of a pandas data frame as dict samples.

    Columns of numpy dtypes are not copied, and stay unchanged: NaN and NaT stay NaN and NaT. In
    other columns a missing value (``NA``, ``NaN``, ``None``) is None, and the column an array of
    objects; for their values see :func:`data_stack.from_arrow`. A categorical column returns its
    categories; as the target, it returns their indices, and the categories are the meta's
    ``class_names``. A Period is its text, such as ``2024-01``. Objects must be of one type: text,
    bytes, numbers, dates, lists, dicts or arrays.

    An index of integers without a name counts as row numbers, and is left out. Any other index is
    data: each of its levels becomes a column, after the others. The column has the name of the
    level; without a name, ``index``, or ``level_0`` … in an index of several levels.
    :func:`data_stack.to_pandas` makes these columns the index again.

    Args:
        frame: a ``pandas.DataFrame``.
        target: the column of the target.

    Raises:
        ConfigError: ``frame`` is not a data frame, or a column or level of the index does not
            exist, has the name of another, or holds several types.

    Warns:
        UserWarning: the index has integers without a name that are not consecutive, such as
            identifiers; they are left out.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(f"from_pandas() expects a pandas.DataFrame, got {type(frame).__name__}")
    levels = _find_levels(frame)
    check_names([*frame.columns, *levels])

    columns: dict[str, ArrowColumn | PlainColumn] = {}
    for name, series in frame.items():
        columns[str(name)] = _make_column(str(name), series, name == target)
    for number, (name, series) in enumerate(levels.items()):
        level = IndexLevel(number, frame.index.names[number])
        columns[name] = _make_column(name, series, name == target, level)

    class_names = None
    if target in columns:
        class_names = getattr(columns[target], "class_names", None)
    return with_target(TableIterator(columns), "pandas", list(columns), target, class_names)


def _find_levels(frame: pd.DataFrame) -> dict[Any, Any]:
    """Return the levels of the index that are data, as series by the names of their columns."""
    index = frame.index
    if index.nlevels == 1 and index.name is None and pd.api.types.is_integer_dtype(index.dtype):
        _warn_of_gaps(index)
        return {}

    levels: dict[Any, Any] = {}
    for number, level_name in enumerate(index.names):
        column_name = level_name
        if level_name is None:
            column_name = "index" if index.nlevels == 1 else f"level_{number}"
        if column_name in levels or column_name in frame.columns:
            raise ConfigError(
                f"a level of the index has the name of another column, {column_name!r:.80}: "
                f"rename it by frame.rename_axis(…), or drop it by frame.reset_index(drop=True)"
            )
        levels[column_name] = pd.Series(index.get_level_values(number))
    return levels


def _warn_of_gaps(index: pd.Index) -> None:
    """Warn if the integers of an index are not consecutive, and so may be more than row numbers."""
    are_consecutive = bool((np.diff(index.to_numpy()) == 1).all())
    if not are_consecutive:
        warn_program(
            f"from_pandas() leaves out the index of the frame, integers without a name "
            f"({index[0]}, …): frame.rename_axis('id') keeps them as a column, "
            f"frame.reset_index(drop=True) drops them"
        )


def _make_column(
    name: str, series: Any, is_target: bool, level: IndexLevel | None = None
) -> ArrowColumn | PlainColumn:
    """Make a column of a series.

    Args:
        name: the name of the column.
        series: the values.
        is_target: whether a categorical column returns indices.
        level: the level of the index that the series was; None for a column of the frame.

    Raises:
        ConfigError: the values are of several types.
    """
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype != _OBJECT:
        return PlainColumn(series.to_numpy(), level)
    if dtype == _OBJECT and _has_matrices(series):
        return PlainColumn(stack_values(series.tolist()), level)
    try:
        cells = _cells_of_series(series)
    except (pa.ArrowException, CellError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"column {name!r:.80} of dtype {dtype} holds values of several types: {error!s:.200}"
        ) from error
    field = pa.field(name, cells.type)
    return ArrowColumn(cells, field, as_codes=is_target, kind=dtype, level=level)


def _has_matrices(series: Any) -> bool:
    """Return whether a series of objects holds an array of two or more axes."""
    return any(isinstance(value, np.ndarray) and value.ndim > 1 for value in series)


def _cells_of_series(series: Any) -> pa.ChunkedArray:
    """Convert a series that is not of a plain dtype of numpy to cells that equal its values.

    Raises:
        CellError, pyarrow.ArrowException, TypeError, ValueError, OverflowError: the values are of
            several types.
    """
    if series.dtype == _OBJECT:
        # pyarrow itself would replace NaN within arrays, too.
        values = series.where(series.notna(), None).tolist()
        cells: Any = exact_cells(values, pa.infer_type(values))
    elif isinstance(series.dtype, pd.PeriodDtype):
        texts = [None if period is pd.NaT else str(period) for period in series]
        cells = pa.array(texts, pa.string())
    else:
        cells = pa.array(series, from_pandas=True)
    if isinstance(cells, pa.ChunkedArray):
        return cells
    return pa.chunked_array([cells])


def to_pandas(iterator: Any) -> pd.DataFrame:
    """Return all samples as a ``pandas.DataFrame``.

    If only rows and columns were selected from a pandas, polars, Arrow or Parquet source, columns
    keep the dtypes that they have there, and the levels of a frame's index are the index again.
    Otherwise columns have numpy dtypes. A column with None has a nullable dtype of pandas
    (``Int64``, ``Float64``, ``boolean``), so that None does not become NaN. Arrays, lists, dicts
    and values of JSON are objects in a column of dtype object.
    """
    columns = NamedColumns(iterator)
    series: dict[str, Any] = {}
    for name, values in columns.read().items():
        series[name] = _make_series(name, values, columns.origins.get(name))
    frame: pd.DataFrame = pd.DataFrame(series, columns=columns.names)
    return _restore_index(frame, columns.origins)


def _restore_index(frame: pd.DataFrame, origins: Mapping[Any, Origin | None]) -> pd.DataFrame:
    """Make the columns that were levels of an index the index again."""
    levels: list[tuple[IndexLevel, str]] = []
    for name in frame.columns:
        origin = origins.get(name)
        if origin is not None and origin.level is not None:
            levels.append((origin.level, name))
    if not levels:
        return frame
    levels.sort(key=lambda pair: pair[0].number)
    indexed_frame: pd.DataFrame = frame.set_index([name for _, name in levels])
    # A level without a name became a column with one.
    restored_frame: pd.DataFrame = indexed_frame.rename_axis(
        index=[level.name for level, _ in levels]
    )
    return restored_frame


def _make_series(name: str, values: ColumnArray, origin: Origin | None) -> Any:
    """Convert a column to a series of the dtype that it had in its source, or else the closest."""
    dtype = _find_dtype(origin)
    is_made_by_dtype = hasattr(dtype, "__from_arrow__")
    if values.dtype.names or (values.ndim > 1 and not is_made_by_dtype):
        return pd.Series(list(values), dtype=object)
    if origin is not None and origin.kind == JSON_TEXT:
        return pd.Series(values, dtype=object)
    has_arrow_type = origin is not None and origin.field is not None
    if not has_arrow_type and values.dtype != _OBJECT:
        return pd.Series(values)

    try:
        cells = cells_of(values, name, origin)
    except ConfigError:
        # A column of pandas holds any objects.
        return pd.Series(values, dtype=object)
    if dtype is not None:
        return _series_of_dtype(cells, dtype)
    if _is_object_in_pandas(cells.type):
        return pd.Series(values, dtype=object)
    if cells.null_count and _is_number(cells.type):
        numpy_dtype = np.dtype(cells.type.to_pandas_dtype())
        return _series_of_dtype(cells, _NULLABLE_DTYPES[numpy_dtype.name])
    return _with_usual_indices(cells).to_pandas(date_as_object=False)


def _find_dtype(origin: Origin | None) -> Any:
    """Return the dtype that a column had in pandas; None if it comes from elsewhere."""
    if origin is None:
        return None
    is_dtype = isinstance(origin.kind, (np.dtype, pd.api.extensions.ExtensionDtype))
    return origin.kind if is_dtype else None


def _series_of_dtype(cells: pa.Array, dtype: Any) -> Any:
    """Convert cells to a series of a dtype of pandas or numpy."""
    # Made of numbers and mask: from an array with NaN, pandas 3 would make missing values.
    if isinstance(dtype, (pd.Float32Dtype, pd.Float64Dtype)):
        numbers: Any = np.asarray(cells).astype(dtype.type)
        return pd.Series(pd.arrays.FloatingArray(numbers, np.asarray(cells.is_null())))
    if isinstance(dtype, pd.PeriodDtype):
        return pd.Series(pd.PeriodIndex(cells.to_pylist(), dtype=dtype))
    if hasattr(dtype, "__from_arrow__"):
        return pd.Series(dtype.__from_arrow__(cells))
    series = _with_usual_indices(cells).to_pandas(date_as_object=dtype == _OBJECT)
    return series.astype(dtype)


def _is_object_in_pandas(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_) or pa.types.is_decimal(type_) or pa.types.is_null(type_))


def _is_number(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_)
    )


def _with_usual_indices(cells: pa.Array) -> pa.Array:
    """Return categorical cells of polars with int64 indices: pyarrow 18 cannot convert uint32."""
    if pa.types.is_dictionary(cells.type) and cells.type.index_type == pa.uint32():
        return cells.cast(pa.dictionary(pa.int64(), cells.type.value_type))
    return cells
