"""Shuffled iterators: every sample once, in an order that never changes."""

from __future__ import annotations

import numpy as np
import pytest

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layer import ShuffledDatasetIterator


def numbers(n: int) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(n)])


# Never change these numbers: someone's experiment rests on them.
@pytest.mark.parametrize(
    ("n", "seed", "epoch", "expected"),
    [
        (5, 0, 0, [3, 1, 0, 4, 2]),
        (10, 0, 0, [4, 6, 2, 9, 8, 3, 0, 7]),
        (10, 0, 1, [4, 2, 7, 3, 1, 0, 8, 9]),
        (10, 1, 0, [5, 1, 2, 9, 7, 8, 0, 6]),
        (10, -1, 0, [7, 5, 2, 4, 1, 8, 6, 0]),
        (1000, 42, 0, [590, 949, 932, 445, 59, 923, 448, 435]),
        (60000, 42, 3, [8124, 33974, 14262, 22194, 40270, 54396, 44320, 47720]),
        (1000000, 1180591620717411303424, 0, [145524, 428030, 381915, 263118, 624188, 440168, 908288, 905858]),
    ],
)
def test_orders_never_change(n: int, seed: int, epoch: int, expected: list[int]) -> None:
    shuffled = ShuffledDatasetIterator(numbers(n), seed, epoch=epoch)

    assert shuffled.read_column(0, range(min(n, 8))).tolist() == expected
