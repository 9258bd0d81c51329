"""Joins elements and offsets to Arrow's arrays of lists."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: The greatest number of elements of all lists of a column together: their offsets are int32.
MAX_ELEMENTS: Final = (1 << 31) - 1


def offsets_of(lists: list[Any]) -> npt.NDArray[np.int64]:
    """Return where each list begins in the elements of all, and the end: ``(n_lists + 1,)``."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def row_of_element(offsets: npt.NDArray[np.int64], element: int) -> int:
    """Return the number of the list that an element belongs to."""
    return int(np.searchsorted(offsets, element, "right")) - 1


def join_lists(
    elements: pa.Array,
    offsets: npt.NDArray[np.int64],
    is_null: npt.NDArray[np.bool_],
    type_: pa.DataType,
) -> pa.Array:
    """Make an array of lists.

    Args:
        elements: the elements of all lists.
        offsets: where each list begins in them, and the end, shape ``(n_lists + 1,)``.
        is_null: whether each list is null, shape ``(n_lists,)``.
        type_: any type of lists.
    """
    if pa.types.is_fixed_size_list(type_):
        return join_fixed_lists(elements, is_null, type_)
    if pa.types.is_large_list(type_):
        large_offsets = pa.array(offsets, mask=np.append(is_null, False))
        return pa.LargeListArray.from_arrays(large_offsets, elements, type=type_)
    return pa.ListArray.from_arrays(arrow_offsets(offsets, is_null), elements, type=type_)


def join_fixed_lists(
    elements: pa.Array, is_null: npt.NDArray[np.bool_], type_: pa.DataType
) -> pa.Array:
    """Make an array of lists of a fixed size.

    Args:
        elements: ``type_.list_size`` elements of each list, also of lists that are null.
        is_null: whether each list is null, shape ``(n_lists,)``.
        type_: a type of lists of a fixed size.
    """
    if type_.list_size == 0:
        # No elements: their number does not tell how many lists there are.
        lists: list[Any] = []
        for null in is_null.tolist():
            lists.append(None if null else [])
        return pa.array(lists, type_)
    return pa.FixedSizeListArray.from_arrays(elements, type=type_, mask=pa.array(is_null))


def arrow_offsets(offsets: npt.NDArray[np.int64], is_null: npt.NDArray[np.bool_]) -> pa.Array:
    """Return offsets of lists or maps for Arrow, in which the offset of a null is null.

    Args:
        offsets: where each list begins, and the end, shape ``(n_lists + 1,)``.
        is_null: whether each list is null, shape ``(n_lists,)``.
    """
    return pa.array(offsets.astype(np.int32), mask=np.append(is_null, False))
