"""Converts columns of tensors, images, pandas or pyarrow to arrays and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data_stack.values.stacked_values import as_array


def column_values(values: Any) -> Any:
    """Convert a column to an array, or a list of plain values. Other objects stay as they are."""
    if _is_pandas_series(values):
        values = _values_of_series(values)
    elif hasattr(values, "to_pylist"):  # an array of pyarrow
        return values.to_pylist()
    values = plain_value(values)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    is_collection = hasattr(values, "__len__") and not isinstance(values, (str, bytes, Mapping))
    if not is_collection:
        return values
    return [plain_value(value) for value in values]


def _is_pandas_series(values: Any) -> bool:
    return hasattr(values, "isna") and hasattr(values, "to_numpy")


def _values_of_series(series: Any) -> Any:
    """Convert a Series to an array, with None for each null.

    pandas has several kinds of nulls, and for some of its dtypes to_numpy() returns floats instead.
    """
    is_numpy_column = isinstance(series.dtype, np.dtype) and series.dtype != object
    if not is_numpy_column and series.isna().any():
        series = series.astype(object).where(series.notna(), None)
    return series.to_numpy()


def plain_value(value: Any) -> Any:
    """Convert tensors and images to arrays, arrays without dimensions to scalars.

    Other values stay as they are.
    """
    if isinstance(value, np.generic):
        return value
    if not hasattr(value, "__array__") and not hasattr(value, "__array_interface__"):
        return value
    if isinstance(value, np.ndarray):
        array = value
    else:
        try:
            array = as_array(value)
        except (TypeError, RuntimeError):
            # a tensor without a numpy dtype, which is refused where its field is known
            return value
    if array.ndim == 0:
        return array[()]
    return array
