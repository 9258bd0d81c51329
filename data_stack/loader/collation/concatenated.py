"""Concatenates values of different lengths, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.loader.collation.column_collation import ColumnCollation
from data_stack.loader.collation.number_arrays import dtype_of_all
from data_stack.loader.collation.ragged import Ragged
from data_stack.values.stacking import ColumnArray, keys_of


class Concatenated(ColumnCollation):
    """Concatenates values of different lengths, without padding.

    Each column becomes a :class:`~data_stack.loader.collation.Ragged`. As with :class:`Padded`, the
    form of a batch does not depend on its samples. Values may only differ in their first dimension.

    Args:
        columns: a key or several (of tuple samples: positions); None for all that have arrays or
            lists of numbers.

    Raises:
        ConfigError: when a batch is made: a column does not exist, has no arrays of numbers, or its
            arrays differ in more than their first dimension. The message names the column and the
            place in the batch.
    """

    def __init__(self, *, columns: ColumnKey | Sequence[ColumnKey] | None = None) -> None:
        self._keys = None if columns is None else keys_of(columns)

    def _combine(self, arrays: list[ColumnArray], key: Any, name: str) -> tuple[Ragged, None]:
        # All dimensions but the first must be the same.
        common_shape = arrays[0].shape[1:] if arrays else ()
        for place, array in enumerate(arrays):
            if array.shape[1:] != common_shape:
                raise ConfigError(
                    f"{name} has arrays that differ in more than their first dimension: at place 0 "
                    f"of the batch shape {arrays[0].shape}, at place {place} {array.shape}; "
                    "Padded(…) pads all dimensions"
                )

        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        n_values = int(offsets[-1])
        values = np.empty((n_values, *common_shape), dtype=dtype_of_all(arrays, name))
        np.concatenate(arrays, out=values, casting="unsafe")  # an empty list is float64
        return Ragged(values, offsets), None
