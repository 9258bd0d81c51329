"""Positions as ranges, arrays and formulas; and what views and combinations make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.positions import ComputedPositions, Positions, as_index_array, check_positions, compose, narrow, take
from data_stack.exception import DatasetOutOfBoundsError


class Doubled(ComputedPositions):
    """0, 2, 4, …"""

    def __init__(self, n_positions: int) -> None:
        self._n_positions = n_positions

    def __len__(self) -> int:
        return self._n_positions

    def at(self, index: int) -> int:
        return 2 * index

    def take(self, indices: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
        return 2 * indices


@st.composite
def positions_in(draw: st.DrawFn, n_samples: int) -> Positions:
    """Positions of any form in ``range(n_samples)``."""
    kind = draw(st.sampled_from(["range", "array", "formula"]))
    if kind == "range":
        bounds = st.none() | st.integers(-n_samples - 2, n_samples + 2)
        return range(n_samples)[slice(draw(bounds), draw(bounds), draw(st.sampled_from([None, 1, 3, -1, -2])))]
    if kind == "formula":
        return Doubled((n_samples + 1) // 2)
    values = draw(st.lists(st.integers(0, n_samples - 1), max_size=12)) if n_samples else []
    return narrow(np.asarray(values, dtype=np.intp), n_samples)


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Positions], int]:
    """Positions in positions in … in a range."""
    n_samples = n_lowest = draw(st.integers(0, 20))
    chain: list[Positions] = []
    for _ in range(draw(st.integers(1, 5))):
        chain.append(draw(positions_in(n_samples)))
        n_samples = len(chain[-1])
    return chain, n_lowest


@given(drawn=chains())
def test_composed_positions_are_positions_of_positions(drawn: tuple[list[Positions], int]) -> None:
    chain, n_lowest = drawn
    expected = list(range(n_lowest))
    result: Positions | None = None

    for positions in chain:
        result = compose(positions, result)
        expected = [expected[position] for position in as_index_array(positions).tolist()]

    assert result is not None
    assert as_index_array(result).tolist() == expected
    assert [int(result[index]) for index in range(len(result))] == expected
    backwards = np.arange(len(expected))[::-1]
    assert take(result, backwards).tolist() == expected[::-1]


@pytest.mark.parametrize("indices", [range(11), range(-11, 0), range(5, 20, 5), range(20, 5, -5)])
def test_a_range_that_leaves_the_iterator_names_the_position(indices: range) -> None:
    with pytest.raises(DatasetOutOfBoundsError, match=r"position (-11|10|15|20) is outside of an iterator of 10 samples"):
        check_positions(indices, 10)
