"""The values of a column as arrays of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.values.stacked_values import common_dtype, exact_array
from data_stack.values.stacking import ColumnArray

#: The kinds of dtypes that are numbers: bools, integers, floats and complex numbers.
_KINDS_OF_NUMBERS = "biufc"


def number_arrays(column: ColumnArray, name: str) -> list[ColumnArray] | None:
    """Return the values of a column as arrays of numbers with the same number of dimensions.

    Returns:
        The arrays; None if no value is one.

    Raises:
        ConfigError: only some are arrays of numbers, or their numbers of dimensions differ.
    """
    if column.dtype != object:
        has_arrays = column.ndim > 1 and column.dtype.kind in _KINDS_OF_NUMBERS
        return list(column) if has_arrays else None

    # A column of objects: either all values are arrays or lists of numbers, or none is.
    values = column.tolist()
    arrays = []
    wrong_places = []
    for place, value in enumerate(values):
        array = _number_array(value)
        if array is None:
            wrong_places.append(place)
        else:
            arrays.append(array)
    if not arrays and values:
        return None
    if wrong_places:
        place = wrong_places[0]
        raise ConfigError(
            f"{name} has arrays of numbers, but at place {place} of the batch {values[place]!r:.60}"
        )
    arrays = _give_empty_lists_dimensions(arrays)
    for place, array in enumerate(arrays):
        if array.ndim != arrays[0].ndim:
            raise ConfigError(
                f"{name} has arrays of different numbers of dimensions: at place 0 of the batch "
                f"shape {arrays[0].shape}, at place {place} {array.shape}"
            )
    return arrays


def _number_array(value: Any) -> ColumnArray | None:
    """Return an array or list of numbers as an array; None for another value."""
    if not isinstance(value, (list, tuple)) and not hasattr(value, "__array__"):
        return None
    array = exact_array(value)
    if array is None or array.ndim == 0 or array.dtype.kind not in _KINDS_OF_NUMBERS:
        return None
    return array


def _give_empty_lists_dimensions(arrays: list[ColumnArray]) -> list[ColumnArray]:
    """Return the same arrays, but empty lists with the number of dimensions of the others.

    Among lists of lists, ``[]`` is a list without rows: shape ``(0, 3)`` rather than ``(0,)``.
    """
    row_shape: tuple[int, ...] = ()
    for array in arrays:
        if array.shape != (0,):
            row_shape = array.shape[1:]
            break
    filled = []
    for array in arrays:
        is_empty_list = array.shape == (0,)
        filled.append(array.reshape(0, *row_shape) if is_empty_list else array)
    return filled


def dtype_of_all(arrays: Sequence[npt.NDArray[Any]], name: str) -> np.dtype[Any]:
    """Return the dtype that holds the numbers of all arrays exactly.

    Empty lists, which numpy makes float64, count only if all are empty.

    Raises:
        ConfigError: no dtype holds all of them.
    """
    counting = [array for array in arrays if array.size > 0 or array.dtype != np.float64]
    if not counting:
        counting = list(arrays)
    dtype = common_dtype(counting)
    if dtype is None:
        names = " and ".join(sorted({str(array.dtype) for array in counting}))
        raise ConfigError(
            f"{name} has values of {names}, which no dtype holds exactly; convert them by "
            "iterator.map(…)"
        )
    return dtype
