"""Stretches of positions: which one a position lies in."""

from __future__ import annotations

import numpy as np
import pytest

from data_stack.util.stretches import Stretches


@pytest.mark.parametrize(
    "lengths", [[5], [3, 3, 3], [3, 3, 1], [3, 3, 0], [1, 3, 3], [3, 3, 4], [0, 2, 0, 0, 5], [0, 0], [0, 3], []]
)
def test_each_position_lies_in_the_stretch_that_holds_it(lengths: list[int]) -> None:
    stretches = Stretches(np.array(lengths, np.int64))

    found = stretches.of(np.arange(sum(lengths)))

    assert found.tolist() == np.repeat(np.arange(len(lengths)), lengths).tolist()
    assert (stretches.ends - stretches.starts).tolist() == lengths
