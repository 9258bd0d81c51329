"""Small datasets for a loader, and what is in the batches that it gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.loader import Loader


def numbers_to(n: int) -> DatasetIteratorIF:
    """Samples that are their own positions."""
    return SequenceDatasetIterator([np.arange(n)])


def rows_and_numbers(n: int = 100) -> SequenceDatasetIterator:
    """Samples of a row of three float32, each a number of its own, and the sample's position."""
    return SequenceDatasetIterator([np.arange(n * 3, dtype=np.float32).reshape(n, 3), np.arange(n)])


def numbers_given(loader: Loader, n_batches: int | None = None) -> list[list[int]]:
    """The numbers in the next batches of an iteration, which is broken off after so many."""
    found = []
    for (column,) in loader:
        found.append(column.tolist())
        if len(found) == n_batches:
            break
    return found


def beginning_at(offset: int, n: int = 1024) -> Any:
    """``n`` float32 that begin ``offset`` bytes behind a multiple of 64; they are not set."""
    memory = np.zeros(n * 4 + 128, dtype=np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + n * 4].view(np.float32)
