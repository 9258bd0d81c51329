"""Row groups, or parts of them, as samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, sample_or_view


class RowGroups(DatasetIterator):
    """Sample ``i`` is the columns of block ``i``: ``read_batch`` of its rows.

    Args:
        rows: any dataset; it stays the caller's.
        lengths: number of rows of each block, shape ``(n_blocks,)``; the sum is the number of rows.
        make: transforms the columns of a block; None: no transform.
    """

    def __init__(
        self,
        rows: DatasetIteratorIF,
        lengths: npt.NDArray[np.int64],
        make: Callable[..., Any] | None = None,
    ) -> None:
        self._rows, self._ends, self._make = rows, np.concatenate([[0], np.cumsum(lengths)]), make

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        """The columns of a block for an int; a view for a slice or an index array."""
        if type(index) is not int or not 0 <= index < len(self):
            return sample_or_view(self, index)
        columns = self._rows.read_batch(np.arange(self._ends[index], self._ends[index + 1]))
        return columns if self._make is None else self._make(columns)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator of the rows."""
        return [self._rows]


def parts_of_row_groups(
    lengths: npt.NDArray[np.int64], n_parts: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split row groups into parts whose lengths differ by at most one row.

    Returns:
        The lengths of all parts that have rows, in order; and the number of parts of each row group.
    """
    n_of_each = np.minimum(np.maximum(lengths, 1), n_parts)
    each, n_over = np.divmod(np.repeat(lengths, n_of_each), np.repeat(n_of_each, n_of_each))
    place = np.arange(len(each)) - np.repeat(np.cumsum(n_of_each) - n_of_each, n_of_each)
    return each + (place < n_over), n_of_each


def the_one(batches: list[Any]) -> Any:
    """Return the columns of a batch of one row group."""
    return batches[0]


def permute_rows(batch: dict[Any, Any], rng: np.random.Generator) -> dict[Any, Any]:
    """Shuffle the rows of the columns of a row group; for n-grams, of the columns at each offset."""
    column = next(
        (
            each
            for part in batch.values()
            for each in (part.values() if isinstance(part, dict) else [part])
        ),
        (),
    )
    order = rng.permutation(len(column))
    return {
        key: {name: values[order] for name, values in part.items()}
        if isinstance(part, dict)
        else part[order]
        for key, part in batch.items()
    }
