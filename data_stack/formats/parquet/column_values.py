"""Converts columns of other libraries to arrays or lists of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data_stack.values.stacked_values import as_array


def column_values(values: Any) -> Any:
    """Convert a column to values that the codecs of Parquet encode.

    Args:
        values: an array, a tensor, a Series of pandas or polars, an array of pyarrow, or another
            collection of values, such as a list of images.

    Returns:
        An array, shape ``(n, ...)``, of any dtype but object, if ``values`` has such a dtype. Else
        a list of n values, with None for each null: see :func:`plain_value`. An object that is no
        collection is returned unchanged, so that the caller can name its field in a message.
    """
    if _is_polars_series(values) and values.null_count():
        # numpy's arrays have no nulls: an integer would become a float, and null NaN.
        values = values.to_arrow()
    if _is_arrow_array(values):
        return values.to_pylist()
    if _is_pandas_series(values):
        values = _values_of_series(values)

    values = plain_value(values)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    is_text_or_dict = isinstance(values, (str, bytes, Mapping))
    if is_text_or_dict or not hasattr(values, "__len__"):
        return values
    return [plain_value(value) for value in values]


def _is_polars_series(values: Any) -> bool:
    """Return whether a column is a Series of polars."""
    return hasattr(values, "to_arrow") and callable(getattr(values, "null_count", None))


def _is_arrow_array(values: Any) -> bool:
    """Return whether a column is an array of pyarrow, in chunks or not."""
    return hasattr(values, "to_pylist")


def _is_pandas_series(values: Any) -> bool:
    """Return whether a column is a Series of pandas, which has one dtype; a DataFrame has none."""
    return hasattr(values, "isna") and hasattr(values, "to_numpy") and hasattr(values, "dtype")


def _values_of_series(series: Any) -> Any:
    """Convert a Series of pandas to an array.

    A Series with a dtype of numpy keeps its values, NaN included. Other nulls, of which pandas has
    several kinds, become None; ``to_numpy()`` alone would convert some such Series to floats.
    """
    is_numpy_column = isinstance(series.dtype, np.dtype) and series.dtype != object
    if not is_numpy_column and series.isna().any():
        series = series.astype(object).where(series.notna(), None)
    return series.to_numpy()


def plain_value(value: Any) -> Any:
    """Convert a tensor or image to an array, and an array of shape ``()`` to a scalar.

    Other values are returned unchanged, also a tensor of a dtype that numpy lacks: the caller
    refuses it, and can name its field.
    """
    if isinstance(value, np.generic):  # It has __array__, too, but is a scalar already.
        return value
    if not hasattr(value, "__array__") and not hasattr(value, "__array_interface__"):
        return value
    if isinstance(value, np.ndarray):
        array = value
    else:
        try:
            array = as_array(value)
        except (TypeError, RuntimeError):
            return value
    if array.ndim == 0:
        return array[()]
    return array
