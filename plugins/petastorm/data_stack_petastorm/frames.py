"""DataFrames of rows, for transforms and predicates of ``make_batch_reader``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.selecting import as_times
from data_stack.values.stacked_values import objects
from data_stack_petastorm.plain_times import plain_time

try:
    import pandas as pd
except ImportError as error:
    raise MissingDependencyError("a transform on='pandas'", "pandas", "pandas") from error


def as_frame(
    batch: Mapping[str, npt.NDArray[Any]], zones: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Copy columns to a DataFrame with the values of Arrow's ``to_pandas``.

    Petastorm's functions get such DataFrames. Numbers and times keep their dtype; a missing time is
    NaT. A column of days has dtype object and values of type ``datetime.date``. A column of other
    values (text, arrays, None) has dtype object.

    Args:
        batch: the columns by name, shape ``(n, ...)``.
        zones: the time zones of columns of instants, by name; their Series have this zone.

    Returns:
        A ``pandas.DataFrame`` of ``n`` rows.
    """
    series_by_name = {}
    for name, column in batch.items():
        series_by_name[name] = _as_series(column, zones.get(name))
    return pd.DataFrame(series_by_name)


def _as_series(column: npt.NDArray[Any], zone: str | None) -> Any:
    """Copy a column to a Series; instants get their time zone, if there is one."""
    if column.ndim != 1:
        return _as_series_of_objects(column)
    times = as_times(column)
    if times.dtype.kind == "M":
        return _as_series_of_times(times, zone)
    if column.dtype.kind in "biufcm":
        return pd.Series(column.copy())
    return _as_series_of_objects(column)


def _as_series_of_times(times: npt.NDArray[Any], zone: str | None) -> Any:
    unit, _ = np.datetime_data(times.dtype)
    if unit == "D":
        return pd.Series(objects([_as_date(day) for day in times]), dtype=object)
    series = pd.Series(times.copy())
    if zone is None:
        return series
    return series.dt.tz_localize("UTC").dt.tz_convert(zone)


def _as_series_of_objects(column: npt.NDArray[Any]) -> Any:
    values = []
    for value in column:
        if isinstance(value, np.ndarray):
            values.append(value.copy())
        else:
            values.append(value)
    # Without dtype=object, pandas would convert text to its own type, whose missing values are NaN.
    return pd.Series(objects(values), dtype=object)


def _as_date(day: np.datetime64) -> Any:
    """Return a day as a ``datetime.date``; None for NaT.

    A day beyond the years of ``datetime.date``, 1 to 9999, is returned unchanged.
    """
    if np.isnat(day):
        return None
    return plain_time(day)


def columns_of_frame(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return those columns of a DataFrame that are in ``names``, as arrays of shape ``(n,)``.

    The index is ignored. Missing objects, integers and texts become None; a NaN among floats stays
    NaN, and a NaT among times stays NaT. Times with a zone become UTC.

    Raises:
        ConfigError: ``frame`` is not a DataFrame, or has duplicate columns.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(
            f"a transform with on='pandas' must return a DataFrame, got {type(frame).__name__}"
        )
    if not frame.columns.is_unique:
        raise ConfigError(
            "the transform returned a DataFrame with duplicate columns: "
            f"{list(frame.columns)!r:.200}"
        )
    return {name: _as_column(frame[name]) for name in names if name in frame.columns}


def _as_column(series: Any) -> Any:
    """Return the values of a Series, shape ``(n,)``."""
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufcmM":
        return series.to_numpy()
    return series.to_numpy(dtype=object, na_value=None)
