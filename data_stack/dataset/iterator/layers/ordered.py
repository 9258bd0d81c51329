"""The samples of an iterator in the order of a column's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.exception import ConfigError
from data_stack.values.missing import missing_in
from data_stack.values.stacking import ColumnArray
from data_stack.values.times import comparable

#: Kinds of numpy dtypes whose values have no order: complex numbers, records.
_KINDS_WITHOUT_ORDER = "cV"


@layer("sorted", columns=["by"])
class SortedDatasetIterator(DatasetIteratorView):
    """The samples of ``dataset_iterator`` in the order of the values of one column.

    Samples with equal values stay in their old order. The column is read whole when this is made,
    and nothing else. Then 4 bytes are kept for each sample (8 in an iterator of more than 2**31). A
    pickle carries the order, so another process does not read again.

    Args:
        dataset_iterator: the iterator looked through; it is not closed.
        by: the column: numbers, bools, times, strings, bytes, or tuples, lists or arrays of these,
            which are compared by their first value, then by their second, and so on. Other values
            are compared with ``<``.
        descending: whether the order is from the largest value to the smallest. NaN and NaT come
            last in both directions, and so do tuples with one of them.

    Raises:
        ConfigError: a column does not exist, a value is None (the message names its position), or
            two values cannot be compared.
    """

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, by: ColumnKey, *, descending: bool = False
    ) -> None:
        source = access_to(as_iterator(dataset_iterator))
        column: ColumnArray = np.empty(0)
        if source.n_samples:
            [column] = source.columns([by])
        super().__init__(dataset_iterator, stable_order(column, by, descending=descending))
        self._made_with = {"by": by, "descending": descending}


def stable_order(
    column: ColumnArray, key: ColumnKey, *, descending: bool = False
) -> npt.NDArray[np.intp]:
    """Return the positions of a column's values from the smallest value to the largest.

    Equal values stay in their old order; missing ones come last.

    Args:
        column: shape ``(n,)`` or ``(n, k)``.
        key: the column, for messages.
        descending: whether the order is from the largest value to the smallest.

    Returns:
        Shape ``(n,)``.

    Raises:
        ConfigError: a value is None, or values have no order.
    """
    if column.ndim > 2:
        raise _has_no_order(f"of shape {column.shape[1:]}", key)
    if column.dtype.kind in _KINDS_WITHOUT_ORDER:
        raise _has_no_order(f"of dtype {column.dtype}", key)
    is_missing = missing_values(column, key)
    if not bool(is_missing.any()):
        return _order_present_values(column, key, descending=descending)
    present = np.flatnonzero(~is_missing)
    order = _order_present_values(column[present], key, descending=descending)
    return np.concatenate([present[order], np.flatnonzero(is_missing)])


def _has_no_order(what: str, key: ColumnKey) -> ConfigError:
    return ConfigError(f"values {what} have no order; samples cannot be sorted by column {key!r}")


# ---------------------------------------------------------------------- missing values


def missing_values(column: ColumnArray, key: ColumnKey) -> npt.NDArray[np.bool_]:
    """Return for each value of a column whether it is NaN or NaT, or holds one.

    Args:
        column: shape ``(n,)`` or ``(n, k)``.
        key: the column, for messages.

    Returns:
        Shape ``(n,)``.

    Raises:
        ConfigError: a value is None.
    """
    if column.dtype == object:
        _refuse_none(column, key)
        is_missing = np.array([_is_missing(value) for value in column], dtype=bool)
    else:
        is_missing = missing_in(column)
    if is_missing.ndim == 1:
        return is_missing
    return np.asarray(is_missing.reshape(len(column), -1).any(axis=1))


def _refuse_none(column: ColumnArray, key: ColumnKey) -> None:
    for position, value in enumerate(column):
        items = [value] if column.ndim == 1 else value.ravel()
        if any(item is None for item in items):
            raise ConfigError(
                f"column {key!r} has no value (None) at position {position}; "
                f"filter such samples out first"
            )


def _is_missing(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return False
    if isinstance(value, (tuple, list)):
        return any(_is_missing(item) for item in value)
    try:
        # Only NaN and NaT differ from themselves.
        return bool(np.any(value != value))
    except (ValueError, TypeError):
        # The class of the value refuses comparisons, which is an error when values are sorted.
        return False


# ---------------------------------------------------------------------- order


def _order_present_values(
    column: ColumnArray, key: ColumnKey, *, descending: bool
) -> npt.NDArray[np.intp]:
    """Return the order of values none of which is missing."""
    if column.dtype.kind == "O":
        return _order_objects(column, key, descending=descending)
    if not descending:
        return _order_ascending(column)
    # Only to reverse an ascending order would reverse the order of equal values, too. So the column
    # is reversed before it is sorted, and the positions are counted from its end.
    order_from_end = _order_ascending(column[::-1])
    return len(column) - 1 - order_from_end[::-1]


def _order_ascending(column: ColumnArray) -> npt.NDArray[np.intp]:
    """Return the order of rows of shape ``(n,)`` or ``(n, k)``, other than objects."""
    if column.ndim == 1:
        return np.argsort(column, kind="stable")
    if column.shape[1] == 0:
        # All rows are equal.
        return np.arange(len(column), dtype=np.intp)
    # lexsort() compares by the last of its keys first.
    return np.lexsort(column.T[::-1])


def _order_objects(
    column: ColumnArray, key: ColumnKey, *, descending: bool
) -> npt.NDArray[np.intp]:
    values: list[Any] = []
    for value in column.tolist():
        is_array = isinstance(value, np.ndarray) and value.ndim == 1
        values.append(list(value) if is_array else value)
    sort_keys = comparable(values)
    try:
        order = sorted(range(len(values)), key=sort_keys.__getitem__, reverse=descending)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"column {key!r} cannot be sorted, for two of its values cannot be compared: {error}"
        ) from error
    return np.array(order, dtype=np.intp)
