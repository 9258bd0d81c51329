"""How the targets of an iterator are described in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data_stack.show.counted_targets import describe_targets


@pytest.mark.parametrize(
    ("column", "counts", "n_missing", "text"),
    [
        (np.array([1, 2, 2]), {1: 1, 2: 2}, 0, "2 classes"),
        (np.array([3, 3]), {3: 2}, 0, "one class"),
        (np.arange(17), dict.fromkeys(range(17), 1), 0, "0 … 16"),
        (np.array([0.5, np.nan, np.inf, 2]), {0.5: 1, np.inf: 1, 2.0: 1}, 1, "0.5 … 2, 1 missing"),
        (np.array([f"{n}" for n in range(17)]), {f"{n}": 1 for n in range(17)}, 0, "17 classes"),
    ],
)
def test_targets_are_described_by_range_or_number(
    column: Any, counts: dict[Any, int], n_missing: int, text: str
) -> None:
    assert describe_targets(column, counts, n_missing) == text
