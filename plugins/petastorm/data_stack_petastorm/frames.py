"""DataFrames of rows, for transforms and predicates of :func:`make_batch_reader`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.selecting import Columns, Predicate, RowPredicate, column_of
from data_stack.values.stacked_values import objects

try:
    import pandas as pd
except ImportError as error:
    raise MissingDependencyError("a transform on='pandas'", "pandas", "pandas") from error


def as_frame(batch: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Copy columns to a DataFrame: numbers and times keep their dtype, other values (text, arrays, None) are objects."""
    return pd.DataFrame({name: _series(column) for name, column in batch.items()})


def _series(column: npt.NDArray[Any]) -> Any:
    if column.ndim == 1 and column.dtype.kind in "biufcmM":
        return pd.Series(column.copy())
    # pandas would convert strings to its own type, whose missing values are NaN
    return pd.Series(
        objects([value.copy() if isinstance(value, np.ndarray) else value for value in column]),
        dtype=object,
    )


def columns_of_frame(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """The columns ``names`` of a DataFrame, as far as they exist; the index is ignored.

    Missing objects, integers and texts become None; a NaN among floats stays NaN.

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
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufcmM":
        return series.to_numpy()
    return series.to_numpy(dtype=object, na_value=None)


class FramePredicate(RowPredicate):
    """Calls the function of a predicate with a DataFrame of all rows, as Petastorm's ``make_batch_reader`` does.

    If the function raises, or does not return a bool per row, it is called row by row.
    """

    def mask(self, columns: Columns) -> npt.NDArray[np.bool_]:
        given = {name: column_of(columns, name) for name in self.fields}
        try:
            answers = np.asarray(self.function.do_include(ListFrame(as_frame(given))))
        except Exception:  # noqa: BLE001  # a function of rows may raise anything for columns; for rows, the error is reported
            return super().mask(columns)
        is_bools = answers.dtype == bool or all(
            isinstance(answer, (bool, np.bool_)) for answer in answers.reshape(-1)
        )
        if not is_bools or answers.shape != (len(next(iter(given.values()))),):
            return super().mask(columns)
        return answers.astype(bool)

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
