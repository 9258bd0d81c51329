"""DataFrames of rows, for transforms and predicates of :func:`make_batch_reader`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.selecting import (
    Columns,
    Predicate,
    RowPredicate,
    TypedColumns,
    as_times,
    column_of,
)
from data_stack.values.stacked_values import objects
from data_stack_petastorm.plain_times import plain_time

try:
    import pandas as pd
except ImportError as error:
    raise MissingDependencyError("a transform on='pandas'", "pandas", "pandas") from error


def as_frame(
    batch: Mapping[str, npt.NDArray[Any]], zones: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Copy columns to a DataFrame with the values of Arrow's ``to_pandas``, as Petastorm's functions get them.

    Numbers and times keep their dtype; a missing time is NaT. Days are objects of type ``datetime.date``. Other values (text,
    arrays, None) are objects, too.

    Args:
        batch: the columns, shape ``(n, ...)``.
        zones: the time zones of columns of instants, by name; their Series have this zone.
    """
    return pd.DataFrame({name: _series(column, zones.get(name)) for name, column in batch.items()})


def _series(column: npt.NDArray[Any], zone: str | None) -> Any:
    times = as_times(column) if column.ndim == 1 else column
    if times.ndim == 1 and times.dtype.kind == "M":
        if np.datetime_data(times.dtype)[0] == "D":
            return pd.Series(objects([_as_date(day) for day in times]), dtype=object)
        series = pd.Series(times.copy())
        return series if zone is None else series.dt.tz_localize("UTC").dt.tz_convert(zone)
    if column.ndim == 1 and column.dtype.kind in "biufcm":
        return pd.Series(column.copy())
    # pandas would convert strings to its own type, whose missing values are NaN
    return pd.Series(
        objects([value.copy() if isinstance(value, np.ndarray) else value for value in column]),
        dtype=object,
    )


def _as_date(day: np.datetime64) -> Any:
    """A day as a ``datetime.date``; None for NaT, and unchanged if it is beyond the years of dates, 1 to 9999."""
    return None if np.isnat(day) else plain_time(day)


def columns_of_frame(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """The columns ``names`` of a DataFrame, as far as they exist; the index is ignored.

    Missing objects, integers and texts become None; a NaN among floats stays NaN, and a NaT among times NaT. Times with a zone
    become UTC.

    Raises:
        ConfigError: it is not a DataFrame, or has duplicate columns.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(
            f"a transform with on='pandas' must return a DataFrame, got {type(frame).__name__}"
        )
    if not frame.columns.is_unique:
        raise ConfigError(
            f"the transform returned a DataFrame with duplicate columns: {list(frame.columns)!r:.200}"
        )
    return {name: _column(frame[name]) for name in names if name in frame.columns}


def _column(series: Any) -> Any:
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufcmM":
        return series.to_numpy()
    return series.to_numpy(dtype=object, na_value=None)


class FramePredicate(RowPredicate):
    """Calls the function of a predicate with a DataFrame of all rows, as Petastorm's ``make_batch_reader`` does.

    If the function raises, or does not return a bool per row, it is called row by row.
    """

    def mask(self, columns: Columns) -> npt.NDArray[np.bool_]:
        given = {name: column_of(columns, name) for name in self.fields}
        zones = columns.zones if isinstance(columns, TypedColumns) else {}
        frame = as_frame(given, zones)
        try:
            answers = np.asarray(self.function.do_include(ListFrame(frame)))
        except Exception:  # noqa: BLE001  # a function of rows may raise anything for columns; for rows, the error is reported
            return self._mask_of_rows(given, frame, zones)
        is_bools = answers.dtype == bool or all(
            isinstance(answer, (bool, np.bool_)) for answer in answers.reshape(-1)
        )
        if not is_bools or answers.shape != (len(next(iter(given.values()))),):
            return self._mask_of_rows(given, frame, zones)
        return answers.astype(bool)

    def _mask_of_rows(
        self, columns: Columns, frame: Any, zones: Mapping[str, str]
    ) -> npt.NDArray[np.bool_]:
        """Call the function for each row, with the dates and zoned times of the DataFrame."""
        rows: dict[str, npt.NDArray[Any]] = {}
        for name, column in columns.items():
            if name in zones:
                series = frame[name].astype(object)
                rows[name] = objects([None if time is pd.NaT else time for time in series])
            elif column.ndim == 1 and as_times(column).dtype == np.dtype("M8[D]"):
                rows[name] = objects(list(frame[name]))
            else:
                rows[name] = column
        return super().mask(rows)

    def content(self) -> Any:
        return {"on_frames": super().content()}


def on_frames(predicate: Predicate) -> Predicate:
    """Let a predicate of rows take DataFrames; another is returned unchanged."""
    return FramePredicate(predicate.function) if isinstance(predicate, RowPredicate) else predicate


class ListSeries(pd.Series):
    """A Series that combines with lists by ``&``, ``|`` and ``^``, which pandas 3 refuses."""

    @property
    def _constructor(self) -> Any:
        return ListSeries

    def __and__(self, other: Any) -> Any:
        return super().__and__(_as_array(other))

    def __or__(self, other: Any) -> Any:
        return super().__or__(_as_array(other))

    def __xor__(self, other: Any) -> Any:
        return super().__xor__(_as_array(other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__


class ListFrame(pd.DataFrame):
    """A DataFrame of such Series."""

    @property
    def _constructor_sliced(self) -> Any:
        return ListSeries


def _as_array(other: Any) -> Any:
    return np.asarray(other) if isinstance(other, (list, tuple)) else other
