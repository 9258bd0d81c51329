"""The samples of an iterator without duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import Column, ColumnKey, DatasetIteratorIF, as_iterator
from data_stack.dataset.iterator.layer import DatasetIteratorView, layer
from data_stack.dataset.splits.class_numbers import class_numbers
from data_stack.exception import ConfigError
from data_stack.values.digests import DIGEST_BYTES, row_digests
from data_stack.values.stacking import keys_of


@layer("deduplicated", columns=["by"])
class DeduplicatedDatasetIterator(DatasetIteratorView):
    """The samples of ``dataset_iterator``, in order, without those that equal an earlier one.

    Equal are samples of equal content, see :func:`data_stack.values.digests.sample_digest`: numbers by value, not by
    dtype, arrays by shape and values, NaN and NaN. Everything, or the columns ``by``, is read once when this is made, in blocks
    of a few MiB. Meanwhile 16 bytes are held for each sample, and as many again to find the equal ones; then 4 bytes are kept for
    each one that stays. A pickle carries the positions, so another process does not read again.

    Args:
        dataset_iterator: the iterator looked through; it stays the caller's to close.
        by: the column, or a list of the columns, that count; None for whole samples.

    Raises:
        ConfigError: a column does not exist, or a sample holds an object of unknown content.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, by: ColumnKey | Sequence[ColumnKey] | None = None) -> None:
        first, _ = equal_groups(iterator_digests(dataset_iterator, by))
        super().__init__(dataset_iterator, first)
        self._made_with = {"by": by}


def unique(iterator: DatasetIteratorIF, column: ColumnKey | None = None) -> Column:
    """``iterator.unique``."""
    stacked = as_iterator(iterator)
    key = stacked._class_column(column)
    return stacked._stack_layer(DeduplicatedDatasetIterator, by=key).read_column(key)


def iterator_digests(
    dataset_iterator: DatasetIteratorIF, columns: ColumnKey | Sequence[ColumnKey] | None = None
) -> npt.NDArray[np.uint8]:
    """The digest of every sample, or of the tuple of some of its columns; shape ``(n, 16)``; read in blocks of a few MiB.

    Raises:
        ConfigError: a column does not exist, or a sample holds an object of unknown content.
    """
    source = access_to(as_iterator(dataset_iterator))
    keys = None if columns is None else keys_of(columns)
    if keys == []:
        raise ConfigError("samples are compared by at least one column; for whole samples leave the columns out")

    def read(positions: npt.NDArray[np.intp]) -> Any:
        return source.batch(positions) if keys is None else tuple(source.columns(keys, positions))

    digests = np.empty((source.n_samples, DIGEST_BYTES), dtype=np.uint8)
    for start, batch in in_blocks(source.n_samples, read):
        block = row_digests(batch)
        digests[start : start + len(block)] = block
    return digests


def equal_groups(digests: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Which digests are equal: the position of the first of each, ascending, and for each its number among these.

    Args:
        digests: shape ``(n, 16)``.

    Returns:
        Arrays of shape ``(n_distinct,)`` and ``(n,)``, such that ``digests[first][number] == digests``.
    """
    classes = class_numbers(digests.view(f"V{DIGEST_BYTES}").reshape(len(digests)), "")
    return classes.first, classes.numbers.astype(np.intp)
