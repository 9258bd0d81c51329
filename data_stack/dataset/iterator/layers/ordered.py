"""The samples of an iterator in the order of a column's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.exception import ConfigError
from data_stack.values.missing import missing_in
from data_stack.values.stacking import Column
from data_stack.values.times import comparable


@layer("sorted", columns=["by"])
class SortedDatasetIterator(DatasetIteratorView):
    """The samples of ``dataset_iterator`` in the order of the values of one column; equal ones stay in their old order.

    The column is read whole when this is made, and nothing else. Then 4 bytes are kept for each sample (8 in an iterator of
    more than 2**31). A pickle carries the order, so another process does not read again.

    Args:
        dataset_iterator: the iterator looked through; it stays the caller's to close.
        by: the column: numbers, bools, times, strings, bytes, or tuples, lists or arrays of these, which are compared by their
            first value, then by their second, and so on. Other values are compared with ``<``.
        descending: from the largest to the smallest; equal ones stay in their old order here too. NaN and NaT come last in both
            directions, and so do tuples that hold one.

    Raises:
        ConfigError: a column does not exist, a value is None (the message names its position), or two values cannot be compared.
    """

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, by: ColumnKey, *, descending: bool = False
    ) -> None:
        source = access_to(as_iterator(dataset_iterator))
        column = source.columns([by])[0] if source.n_samples else np.empty(0)
        super().__init__(dataset_iterator, stable_order(column, by, descending=descending))
        self._made_with = {"by": by, "descending": descending}


def stable_order(
    column: Column, key: ColumnKey, *, descending: bool = False
) -> npt.NDArray[np.intp]:
    """The positions of a column's values from the smallest to the largest, equal ones in their old order, missing ones last.

    Args:
        column: shape ``(n,)`` or ``(n, k)``.
        key: names the column in messages.
        descending: from the largest to the smallest.

    Raises:
        ConfigError: a value is None, or values have no order.
    """
    if column.dtype.kind in "cV" or column.ndim > 2:
        kind = f"of shape {column.shape[1:]}" if column.ndim > 2 else f"of dtype {column.dtype}"
        raise ConfigError(
            f"values {kind} have no order; samples cannot be sorted by column {key!r}"
        )
    missing = missing_values(column, key)
    if not bool(missing.any()):
        return _order(column, key, descending)
    present = np.flatnonzero(~missing)
    return np.concatenate(
        [present[_order(column[present], key, descending)], np.flatnonzero(missing)]
    )


def missing_values(column: Column, key: ColumnKey) -> npt.NDArray[np.bool_]:
    """For each value of a column whether it is NaN or NaT, or holds one; shape ``(n,)``.

    Raises:
        ConfigError: a value is None.
    """
    if column.dtype != object:
        missing = missing_in(column)
    else:
        for position, value in enumerate(column):
            if value is None or (column.ndim > 1 and any(item is None for item in value.ravel())):
                raise ConfigError(
                    f"column {key!r} has no value (None) at position {position}; filter such samples out first"
                )
        missing = np.array([_is_missing(value) for value in column], dtype=bool)
    return np.asarray(missing.reshape(len(column), -1).any(axis=1)) if missing.ndim > 1 else missing


def _is_missing(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return False
    if isinstance(value, (tuple, list)):
        return any(map(_is_missing, value))
    try:
        return bool(np.any(value != value))
    except (ValueError, TypeError):  # it says so when it is compared
        return False


def _order(column: Column, key: ColumnKey, descending: bool) -> npt.NDArray[np.intp]:
    """As :func:`stable_order` for values none of which is missing."""
    if column.dtype.kind == "O":
        values = [
            list(value) if isinstance(value, np.ndarray) and value.ndim == 1 else value
            for value in column.tolist()
        ]
        exact = comparable(values)
        try:
            return np.array(
                sorted(range(len(values)), key=exact.__getitem__, reverse=descending), dtype=np.intp
            )
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"column {key!r} cannot be sorted, for two of its values cannot be compared: {error}"
            ) from error
    # From behind, so that the reversal of all puts equal ones back into their old order
    ascending = column[::-1] if descending else column
    if column.ndim == 2 and column.shape[1] == 0:
        order = np.arange(len(column), dtype=np.intp)
    elif column.ndim == 2:
        order = np.lexsort(ascending.T[::-1])
    else:
        order = np.argsort(ascending, kind="stable")
    return len(column) - 1 - order[::-1] if descending else order
