"""Columns of values, as encoders take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.values.stacked_values import as_array, stack_values
from data_stack.values.stacking import ColumnArray as ColumnArray


def as_column(values: Any) -> ColumnArray:
    """Return values as an array of shape ``(n, ...)``.

    The array has dtype object unless the values are numbers of one shape.

    Args:
        values: an array, a tensor, or any iterable of values.

    Raises:
        ConfigError: numpy cannot hold the values, or there is a single value.
    """
    try:
        column = _convert(values)
    except TypeError as error:  # masked entries, or a tensor that is sparse or of another dtype
        raise ConfigError(f"an encoder cannot convert this column to numpy: {error}") from error
    if column.ndim == 0:
        raise ConfigError(
            f"an encoder takes a column of shape (n, ...), not the single value {values!r:.80}"
        )
    return column


def _convert(values: Any) -> ColumnArray:
    if hasattr(values, "__array__"):
        return as_array(values)
    is_single_value = isinstance(values, (str, bytes, Mapping))
    if isinstance(values, Iterable) and not is_single_value:
        return stack_values(list(values))
    return np.empty(())


def first_place(mask: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the indices of the first True in a mask."""
    indices = np.argwhere(mask)[0]
    return tuple(indices.tolist())
