"""Values as numpy columns for encoders to learn from: whole, or a block at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError
from data_stack.util.exact import as_array, common_dtype

__all__ = ["Blocks", "Column", "as_column", "as_floats", "blocks_of", "objects", "stacked"]

Column = npt.NDArray[Any]
"""The values of one position or key of many samples, shape ``(n_samples, ...)``."""

Blocks = Union[Column, Sequence[Any], Iterable[Any]]
"""One column, or blocks of it one after the other."""

_NUMBERS = "biuf"
_MOST_EXACT = 2**53  # up to here, all integers are floats


def as_column(values: Any) -> Column:
    """Values as an array of shape ``(n, ...)``: of numbers where they are numbers of one shape, otherwise of objects."""
    if np.ma.is_masked(values):
        raise ConfigError("an encoder takes no masked values: fill them first, with NaN or None, say")
    if isinstance(values, np.ndarray):
        column: Column = np.asarray(values)
    elif hasattr(values, "detach"):  # a tensor: outside of the graph, in the host's memory
        try:
            column = np.asarray(values.detach().cpu())
        except TypeError as error:  # of a dtype that numpy lacks, such as bfloat16, or sparse
            raise ConfigError(f"an encoder takes tensors that numpy can hold; convert this one first: {error}") from error
    elif hasattr(values, "to_records"):  # a data frame
        column = values.to_records(index=False)
    elif hasattr(values, "__array__"):
        column = np.asarray(values)
    elif isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        column = np.empty(())
    else:
        column = stacked(list(values))
    if column.ndim == 0:
        raise ConfigError(f"an encoder takes a column of values, shape (n, ...), not the single value {values!r:.80}")
    return column


def stacked(values: list[Any]) -> Column:
    """A list as an array, with nothing lost: numbers and arrays of one type are stacked, all else stay objects."""
    types = set(map(type, values))
    if len(types) == 1:
        (only,) = types
        if only in (bool, int, float) or issubclass(only, (np.number, np.bool_)):
            array = _as_numbers(values)
            if array is not None:
                return array
        elif issubclass(only, np.ndarray) or hasattr(only, "detach") or only in (list, tuple):
            arrays = [_as_numbers(value.detach().cpu() if hasattr(value, "detach") else value) for value in values]
            present = [array for array in arrays if array is not None]
            if len(present) == len(arrays) and len({array.shape for array in present}) == 1:
                dtype = common_dtype(present)
                if dtype is not None:
                    return np.stack(present, dtype=dtype)
    return objects(values) if values else np.empty(0)


def objects(values: Sequence[Any]) -> Column:
    """A column of Python objects; values that are sequences stay such."""
    return np.fromiter(values, dtype=object, count=len(values))


def as_floats(column: Column, first: int = 0) -> npt.NDArray[np.float64]:
    """Numbers as float64, NaN and None as NaN; strings count as the numbers that they spell.

    Args:
        column: shape ``(n, ...)``.
        first: position of its first value, for errors.

    Raises:
        EncodingError: a value is no number.
        ConfigError: the dtype holds no real numbers.
    """
    kind = column.dtype.kind
    if kind in _NUMBERS:
        return column.astype(np.float64, copy=False)
    if kind not in "OUS":
        raise ConfigError(f"real numbers are needed, got a column of dtype {column.dtype}")
    try:
        return column.astype(np.float64)
    except (ValueError, TypeError):
        pass
    numbers: list[npt.NDArray[np.float64]] = []
    for position, value in enumerate(column, first):
        try:
            numbers.append(np.asarray(value, dtype=np.float64))
        except (ValueError, TypeError):
            raise EncodingError(f"{value!r:.80} is no number", position) from None
        if numbers[-1].shape != numbers[0].shape:
            raise EncodingError(f"a value has the shape {numbers[-1].shape}, those before have {numbers[0].shape}", position)
    return np.stack(numbers)


def blocks_of(columns: Blocks) -> Iterator[Column]:
    """One column, or the blocks given: a list or tuple of arrays, or an iterator.

    Raises:
        ConfigError: it is neither.
    """
    if hasattr(columns, "read_column"):
        raise ConfigError(
            f"an encoder is fitted on a column, not on {columns!r:.80}: give iterator.read_column(0), "
            f"or call iterator.encode({{0: encoder}}, fit_on=iterator)"
        )
    is_blocks = isinstance(columns, Iterator) or (
        isinstance(columns, (list, tuple))
        and len(columns) > 0
        and all(isinstance(item, np.ndarray) and item.ndim > 0 for item in columns)
    )
    for block in columns if is_blocks else [columns]:
        yield as_column(block)


def _as_numbers(values: Any) -> Column | None:
    try:
        array = as_array(values)
    except (ValueError, TypeError, OverflowError):  # ragged, larger than any integer of numpy, or with masked entries
        return None
    if array.dtype.kind == "f" and isinstance(values, list):
        integers = [value for value in values if type(value) is int]
        if integers and (len(integers) == len(values) or max(map(abs, integers)) > _MOST_EXACT):
            return None  # numpy meets integers of the two halves of 64 bits in floats
    return array if array.dtype.kind in "biufc" or isinstance(values, np.ndarray) else None
