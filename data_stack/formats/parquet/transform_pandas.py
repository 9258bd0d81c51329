"""Batches as DataFrames of pandas, for transforms, and back."""

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
    """Columns as a frame of its own memory: numbers and times as they are, anything else as objects (text, arrays, None)."""
    return pd.DataFrame({name: _series(column) for name, column in batch.items()})


def columns_of_frame(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """Columns of a frame, those of ``names`` that it has; the index is ignored.

    What pandas holds as missing beside objects, whole numbers and text is None; a NaN among floats is a NaN.

    Raises:
        ConfigError: it is no frame, or has a column twice.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(f"a transform on='pandas' gives a DataFrame, not a {type(frame).__name__}")
    if not frame.columns.is_unique:
        raise ConfigError(f"the transform gave a DataFrame that has a column twice: {list(frame.columns)!r:.200}")
    return {name: _column(frame[name]) for name in names if name in frame.columns}


def _series(column: npt.NDArray[Any]) -> Any:
    if column.ndim == 1 and column.dtype.kind in "biufcmM":
        return pd.Series(column.copy())
    # pandas would make its own kind of text of strings, whose missing values are NaN
    return pd.Series(objects([value.copy() if isinstance(value, np.ndarray) else value for value in column]), dtype=object)


def _column(series: Any) -> Any:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufcmM":
        return series.to_numpy()
    return series.to_numpy(dtype=object, na_value=None)
