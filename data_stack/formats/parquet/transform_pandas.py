"""Converts batches to DataFrames and back, for transforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.values.stacked_values import objects

try:
    import pandas as pd
except ImportError as error:
    raise MissingDependencyError("a transform on='pandas'", "pandas", "pandas") from error


def as_frame(batch: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Copy columns to a DataFrame: numbers and times keep their dtype, other values (text, arrays, None) are objects."""
    return pd.DataFrame({name: _series(column) for name, column in batch.items()})


def columns_of_frame(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """The columns ``names`` of a DataFrame, as far as they exist; the index is ignored.

    Missing objects, integers and texts become None; a NaN among floats stays NaN.

    Raises:
        ConfigError: it is not a DataFrame, or has duplicate columns.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(f"a transform with on='pandas' must return a DataFrame, got {type(frame).__name__}")
    if not frame.columns.is_unique:
        raise ConfigError(f"the transform returned a DataFrame with duplicate columns: {list(frame.columns)!r:.200}")
    return {name: _column(frame[name]) for name in names if name in frame.columns}


def _series(column: npt.NDArray[Any]) -> Any:
    if column.ndim == 1 and column.dtype.kind in "biufcmM":
        return pd.Series(column.copy())
    # pandas would convert strings to its own type, whose missing values are NaN
    return pd.Series(objects([value.copy() if isinstance(value, np.ndarray) else value for value in column]), dtype=object)


def _column(series: Any) -> Any:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufcmM":
        return series.to_numpy()
    return series.to_numpy(dtype=object, na_value=None)
