"""Lookup of the interval that contains a position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.util.intervals import Intervals
from data_stack.util.stretches import Stretches

LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([1000, 5000]), max_size=40)
EQUAL_LENGTHS = st.tuples(st.integers(1, 50), st.integers(1, 20)).map(
    lambda length_and_number: [length_and_number[0]] * length_and_number[1]
)


@given(lengths=LENGTHS | EQUAL_LENGTHS)
def test_each_position_is_found_in_its_interval(lengths: list[int]) -> None:
    expected = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(len(expected))

    intervals = Intervals(np.array(lengths, np.int64))

    assert intervals.find(positions).tolist() == expected.tolist()
    assert intervals.find(positions[::-1]).tolist() == expected[::-1].tolist()


def test_the_former_name_warns_and_works() -> None:
    with pytest.warns(DeprecationWarning, match=r"use data_stack\.util\.intervals\.Intervals"):
        stretches = Stretches(np.array([2, 3]))

    assert stretches.of(np.array([0, 2, 4])).tolist() == [0, 1, 1]
