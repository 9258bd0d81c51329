"""Lookup of the stretch that contains a position."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_stack.util.stretches import Stretches

LENGTHS = st.lists(st.integers(0, 40) | st.sampled_from([1000, 5000]), max_size=40)


@given(
    lengths=LENGTHS
    | st.tuples(st.integers(1, 50), st.integers(1, 20)).map(lambda pair: [pair[0]] * pair[1])
)
def test_each_position_is_in_the_stretch_that_a_search_finds(lengths: list[int]) -> None:
    expected = np.repeat(np.arange(len(lengths)), lengths)

    stretches = Stretches(np.array(lengths, np.int64))

    assert stretches.of(np.arange(len(expected))).tolist() == expected.tolist()
    assert stretches.of(np.arange(len(expected))[::-1]).tolist() == expected[::-1].tolist()
