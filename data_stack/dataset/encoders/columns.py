"""Converts values to the numpy columns that encoders take, whole or block by block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import as_array, stack_values

Column = npt.NDArray[Any]
"""The values of one position or key of many samples, shape ``(n_samples, ...)``."""

Blocks = Union[Column, Sequence[Any], Iterable[Any]]
"""One column, or its blocks one after the other."""

_NUMBERS = "biuf"


def as_column(values: Any) -> Column:
    """Values as an array of shape ``(n, ...)``: of numbers if they are numbers of one shape, otherwise of objects."""
    if hasattr(values, "__array__"):
        try:
            column: Column = as_array(values)
        except TypeError as error:  # masked, or a tensor of a dtype that numpy lacks, or sparse
            raise ConfigError(f"an encoder cannot convert this column to numpy: {error}") from error
    elif isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        column = np.empty(())
    else:
        column = stack_values(list(values))
    if column.ndim == 0:
        raise ConfigError(f"an encoder takes a column of shape (n, ...), not the single value {values!r:.80}")
    return column


def as_floats(column: Column, first: int = 0) -> npt.NDArray[np.float64]:
    """Numbers as float64, None as NaN; strings as the numbers that they spell.

    Args:
        column: shape ``(n, ...)``.
        first: position of its first value, for errors.

    Raises:
        EncodingError: a value is not a number.
        ConfigError: the dtype is not one of real numbers.
    """
    kind = column.dtype.kind
    if kind in _NUMBERS:
        return column.astype(np.float64, copy=False)
    if kind not in "OUS":
        raise ConfigError(f"a column of real numbers is required, got dtype {column.dtype}")
    with contextlib.suppress(ValueError, TypeError):
        return column.astype(np.float64)
    numbers: list[npt.NDArray[np.float64]] = []
    for position, value in enumerate(column, first):
        try:
            number = np.asarray(value, dtype=np.float64)
            numbers.append(np.stack([number, *numbers[:1]])[0])  # of one shape
        except (ValueError, TypeError):
            raise EncodingError(f"{value!r:.80} is not a number, or of another shape than those before", position) from None
    return np.stack(numbers)


def first_place(found: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Where the first one is."""
    return tuple(np.argwhere(found)[0].tolist())


def blocks_of(columns: Blocks) -> Iterator[Column]:
    """The blocks of a list or tuple of arrays, or of an iterator; any other value is one column.

    Raises:
        ConfigError: it is a dataset iterator.
    """
    if hasattr(columns, "read_column"):
        raise ConfigError(f"an encoder is fitted on a column, not on {columns!r:.80}: use iterator.read_column(0)")
    is_list = isinstance(columns, (list, tuple)) and len(columns) > 0
    is_blocks = is_list and all(isinstance(item, np.ndarray) and item.ndim > 0 for item in columns)
    yield from map(as_column, columns if is_blocks or isinstance(columns, Iterator) else [columns])
