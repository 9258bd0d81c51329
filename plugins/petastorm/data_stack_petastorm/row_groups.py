"""Row groups, or parts of them, as samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, sample_or_view
from data_stack_petastorm.batches import count_rows, map_columns


class RowGroups(DatasetIterator):
    """Consecutive blocks of rows, each as one sample: a dict of columns, as ``read_batch`` returns.

    A block is a row group or a part of one.

    Args:
        rows: any dataset; it is not closed.
        lengths: number of rows of each block, shape ``(n_blocks,)``; their sum is ``len(rows)``.
        transform: transforms the columns of a block; None: no transform.
    """

    _rows: DatasetIteratorIF
    #: The first row of each block, and the number of rows, shape ``(n_blocks + 1,)``.
    _borders: npt.NDArray[np.int64]
    _transform: Callable[..., Any] | None

    def __init__(
        self,
        rows: DatasetIteratorIF,
        lengths: npt.NDArray[np.int64],
        transform: Callable[..., Any] | None = None,
    ) -> None:
        self._rows = rows
        self._borders = np.concatenate([[0], np.cumsum(lengths)])
        self._transform = transform

    def __len__(self) -> int:
        return len(self._borders) - 1

    def __getitem__(self, index: Any) -> Any:
        """Return the columns of a block for an int; a view for a slice or an index array."""
        is_block = type(index) is int and 0 <= index < len(self)
        if not is_block:
            return sample_or_view(self, index)
        row_numbers = np.arange(self._borders[index], self._borders[index + 1])
        columns = self._rows.read_batch(row_numbers)
        if self._transform is None:
            return columns
        return self._transform(columns)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator of the rows."""
        return [self._rows]


def parts_of_row_groups(
    lengths: npt.NDArray[np.int64], n_parts: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split row groups into parts whose lengths differ by at most one row.

    A row group of fewer than ``n_parts`` rows has a part for each row; an empty one has one part.

    Args:
        lengths: number of rows of each row group, shape ``(n_row_groups,)``.
        n_parts: maximum number of parts of a row group, at least 1.

    Returns:
        The lengths of all parts, in order, shape ``(n_all_parts,)``; and the number of parts of
        each row group, shape ``(n_row_groups,)``.
    """
    n_parts_of_groups = np.minimum(np.maximum(lengths, 1), n_parts)

    # All arrays from here on have an element for each part, shape ``(n_all_parts,)``.
    group_lengths = np.repeat(lengths, n_parts_of_groups)
    n_parts_of_same_group = np.repeat(n_parts_of_groups, n_parts_of_groups)
    min_lengths, n_remaining = np.divmod(group_lengths, n_parts_of_same_group)

    # The first parts of a row group take the remaining rows, one each.
    first_parts = np.cumsum(n_parts_of_groups) - n_parts_of_groups
    numbers_in_group = np.arange(len(min_lengths)) - np.repeat(first_parts, n_parts_of_groups)
    takes_remaining_row = numbers_in_group < n_remaining
    return min_lengths + takes_remaining_row, n_parts_of_groups


def take_only_batch(batches: list[Any]) -> Any:
    """Return the only sample of a batch; it collates batches of one sample of RowGroups."""
    return batches[0]


def permute_rows(batch: dict[Any, Any], rng: np.random.Generator) -> dict[Any, Any]:
    """Return the batch with its rows in a random order.

    All columns have the same order; for n-grams, also those of different offsets.
    """
    order = rng.permutation(count_rows(batch))

    def permute(name: str, column: Any) -> Any:
        return column[order]

    return map_columns(batch, permute)
