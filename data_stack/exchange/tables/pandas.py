"""Converts between pandas data frames and samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.exchange.tables.table import NamedColumns, cells_of
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
_DTYPES = (np.dtype, pd.api.extensions.ExtensionDtype)


def from_pandas(frame: pd.DataFrame, *, target: str | None = None) -> DatasetIteratorIF:
    """The rows of a data frame of pandas as dict samples; columns of numpy's dtypes are not copied.

    An index with a name, or of other values than integers, is data: each of its levels is a column, behind the others, of the
    name of the level, else ``index`` or ``level_0`` …; :func:`data_stack.to_pandas` makes it the index again. Integers without
    a name count as row numbers and are left out.

    Columns of numpy dtypes stay unchanged: NaN and NaT stay NaN and NaT. In other columns a missing value (``NA``, ``NaN``,
    ``None``) is None, and the column an array of objects; for their values see :func:`data_stack.from_arrow`. A categorical
    column returns its categories; as the target, it returns their indices, and the categories are the meta's ``class_names``.
    A Period is its text, such as ``2024-01``. Objects must be of one type: text, bytes, numbers, dates, lists, dicts or arrays.

    Args:
        frame: a ``pandas.DataFrame``.
        target: the column of the target.

    Raises:
        ConfigError: ``frame`` is not a data frame, or a column or level of the index does not exist, has the name of another, or
            holds several types.

    Warns:
        UserWarning: the index has integers without a name that are not consecutive, such as identifiers; they are left out.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(f"from_pandas() expects a pandas.DataFrame, got {type(frame).__name__}")
    levels = _levels_of(frame)
    check_names([*frame.columns, *levels])
    columns = {
        str(name): _column(str(name), series, name == target) for name, series in frame.items()
    }
    for number, (name, series) in enumerate(levels.items()):
        level = IndexLevel(number, frame.index.names[number])
        columns[name] = _column(name, series, name == target, level)
    class_names = getattr(columns.get(target or ""), "class_names", None)
    return with_target(TableIterator(columns), "pandas", list(columns), target, class_names)


def _levels_of(frame: pd.DataFrame) -> dict[Any, Any]:
    """The levels of the index that are data, as series by the names of their columns."""
    index = frame.index
    if index.nlevels == 1 and index.name is None and pd.api.types.is_integer_dtype(index.dtype):
        is_numbering = bool((np.diff(index.to_numpy()) == 1).all())
        if not is_numbering:
            warn_program(
                f"from_pandas() leaves out the index of the frame, integers without a name ({index[0]}, …): "
                f"frame.rename_axis('id') keeps them as a column, frame.reset_index(drop=True) drops them"
            )
        return {}
    levels: dict[Any, Any] = {}
    for number, name in enumerate(index.names):
        unnamed = "index" if index.nlevels == 1 else f"level_{number}"
        key = unnamed if name is None else name
        if key in levels or key in frame.columns:
            raise ConfigError(
                f"a level of the index has the name of another column, {key!r:.80}: rename it by "
                f"frame.rename_axis(…), or drop it by frame.reset_index(drop=True)"
            )
        levels[key] = pd.Series(index.get_level_values(number))
    return levels


def _column(
    name: str, series: Any, is_target: bool, level: IndexLevel | None = None
) -> ArrowColumn | PlainColumn:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype != _OBJECT:
        return PlainColumn(series.to_numpy(), level)
    if dtype == _OBJECT and any(
        np.ndim(value) > 1 for value in series if isinstance(value, np.ndarray)
    ):
        return PlainColumn(stack_values(series.tolist()), level)
    try:
        cells = _cells_of_series(series)
    except (pa.ArrowException, CellError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"column {name!r:.80} of dtype {dtype} holds values of several types: {error!s:.200}"
        ) from error
    field = pa.field(name, cells.type)
    return ArrowColumn(cells, field, as_codes=is_target, kind=dtype, level=level)


def _cells_of_series(series: Any) -> pa.ChunkedArray:
    """The values of a series that is not of a plain dtype of numpy, which Arrow types hold exactly.

    Raises:
        CellError, pyarrow.ArrowException, TypeError, ValueError, OverflowError: the values are of several types.
    """
    if series.dtype == _OBJECT:
        # pyarrow would replace NaN in arrays, too
        values = series.where(series.notna(), None).tolist()
        cells: Any = exact_cells(values, pa.infer_type(values))
    elif isinstance(series.dtype, pd.PeriodDtype):
        texts = [None if period is pd.NaT else str(period) for period in series]
        cells = pa.array(texts, pa.string())
    else:
        cells = pa.array(series, from_pandas=True)
    return cells if isinstance(cells, pa.ChunkedArray) else pa.chunked_array([cells])


def to_pandas(iterator: Any) -> pd.DataFrame:
    """All samples as a ``pandas.DataFrame``.

    Columns keep the dtypes of their pandas, polars, Arrow or Parquet source if only rows and columns were selected since, and
    those of a frame's index are the index;
    otherwise they have numpy dtypes, or nullable pandas dtypes (``Int64``, ``Float64``, ``boolean``) if a value is None, which
    never becomes NaN. Arrays, lists and dicts, and values of JSON, are objects in a column of dtype object.
    """
    columns = NamedColumns(iterator)
    series = {
        name: _series(name, values, columns.origins.get(name))
        for name, values in columns.read().items()
    }
    frame: pd.DataFrame = pd.DataFrame(series, columns=columns.names)
    return _with_index(frame, columns.origins)


def _with_index(frame: pd.DataFrame, origins: Mapping[Any, Origin | None]) -> pd.DataFrame:
    """A frame whose columns that were levels of an index are its index again."""
    levels: list[tuple[IndexLevel, str]] = []
    for name in frame.columns:
        origin = origins.get(name)
        if origin is not None and origin.level is not None:
            levels.append((origin.level, name))
    if not levels:
        return frame
    levels.sort(key=lambda pair: pair[0].number)
    indexed: pd.DataFrame = frame.set_index([name for _, name in levels])
    named: pd.DataFrame = indexed.rename_axis(index=[level.name for level, _ in levels])
    return named


def _series(name: str, values: ColumnArray, origin: Origin | None) -> Any:
    dtype = origin.kind if origin is not None and isinstance(origin.kind, _DTYPES) else None
    if (values.ndim > 1 and not hasattr(dtype, "__from_arrow__")) or values.dtype.names:
        return pd.Series(list(values), dtype=object)
    if origin is not None and origin.kind == JSON_TEXT:
        return pd.Series(values, dtype=object)
    is_plain = origin is None or origin.field is None
    if is_plain and values.dtype != _OBJECT:
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
    if isinstance(dtype, pd.PeriodDtype):
        return pd.Series(pd.PeriodIndex(cells.to_pylist(), dtype=dtype))
    if dtype is not None and hasattr(dtype, "__from_arrow__"):
        return pd.Series(dtype.__from_arrow__(cells))
    if (
        pa.types.is_dictionary(cells.type) and cells.type.index_type == pa.uint32()
    ):  # of polars; pyarrow 18 does not convert it
        cells = cells.cast(pa.dictionary(pa.int64(), cells.type.value_type))
    made = cells.to_pandas(date_as_object=dtype == _OBJECT)
    return made if dtype is None else made.astype(dtype)
