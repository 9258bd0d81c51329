"""Resampled iterators: independent draws, in proportion to weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.resampled import ResampledDatasetIterator
from data_stack.exception import ConfigError


def numbers(n: int) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(n)])


def drawn(n: int, n_samples: int, seed: int, weights: npt.ArrayLike | None = None) -> npt.NDArray[np.intp]:
    return ResampledDatasetIterator(numbers(n), n_samples, seed, weights=weights).read_column(0)


WEIGHTS = st.floats(0, 1e308) | st.sampled_from([0.0, 5e-324, 1e-310, 1.0, 1e308]) | st.integers(0, 2**62)


@given(
    weights=st.lists(WEIGHTS, min_size=1, max_size=10).filter(any),
    seed=st.integers(0, 5),
    indices=st.lists(st.integers(0, 99), max_size=10),
)
def test_one_draw_and_many_agree_and_no_sample_without_weight_is_drawn(
    weights: list[float], seed: int, indices: list[int]
) -> None:
    for given_weights in (weights, None):
        resampled = ResampledDatasetIterator(numbers(len(weights)), 100, seed, weights=given_weights)

        samples = resampled.read_column(0, indices).tolist()

        assert samples == [int(resampled[index][0]) for index in indices]
        assert given_weights is None or all(weights[sample] > 0 for sample in samples)


# Never change these numbers: someone's experiment rests on them.
@pytest.mark.parametrize(
    ("n", "seed", "weights", "expected"),
    [
        (10, 0, None, [7, 3, 5, 0, 7, 8, 6, 9, 2, 5]),
        (10, 1, None, [0, 4, 6, 9, 6, 9, 2, 5, 1, 4]),
        (1000000, 1, None, [90996, 477828, 601417, 986682, 669156, 985760, 222278, 533432, 136576, 472819]),
        (4, 0, [1, 2, 3, 4], [3, 2, 2, 0, 3, 3, 3, 3, 1, 2]),
        (4, 1, [0.1, 0, 0.7, 0.2], [0, 2, 2, 3, 2, 3, 2, 2, 2, 2]),
    ],
)
def test_draws_never_change(n: int, seed: int, weights: list[float] | None, expected: list[int]) -> None:
    assert drawn(n, 10, seed, weights).tolist() == expected


@pytest.mark.parametrize(
    "weights", [[1, 2], [[1, 2, 3]], [1, -2, 3], [1, 2, float("nan")], [0, 0, 0], ["1", "2", "3"], [None, 1, 2], [1j, 2, 3], 5]
)
def test_weights_that_are_not_allowed_are_refused(weights: Any) -> None:
    with pytest.raises(ConfigError):
        ResampledDatasetIterator(numbers(3), 5, 1, weights=weights)
