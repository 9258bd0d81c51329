"""Sizes of parts: what is asked for, and what each part gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.splits.shares import Shares, check_sizes
from data_stack.exception import ConfigError


def test_ratios_are_what_they_say_in_decimals() -> None:
    assert Shares.of_sizes([0.7, 0.2, 0.1], 1000) == Shares((7, 2, 1), 10)


def test_counts_must_be_those_of_all_samples() -> None:
    assert Shares.of_sizes([3, 7], 10) == Shares((3, 7), 10)

    with pytest.raises(ConfigError, match=r"3 \+ 7 = 10 samples.*add a part for the other 2"):
        Shares.of_sizes([3, 7], 12)
    with pytest.raises(ConfigError, match="1 too many"):
        Shares.of_sizes([3, 7], 9)


def test_equal_remainders_go_to_the_first_parts() -> None:
    assert Shares((1, 1, 1), 3).sizes(5) == [2, 2, 1]


@given(weights=st.lists(st.integers(0, 100), min_size=1).filter(any), n_samples=st.integers(0, 999))
def test_sizes_add_up_near_their_shares(weights: list[int], n_samples: int) -> None:
    total = sum(weights)

    sizes = Shares(tuple(weights), total).sizes(n_samples)

    assert sum(sizes) == n_samples
    for size, weight in zip(sizes, weights, strict=True):
        assert abs(size * total - n_samples * weight) < total


@pytest.mark.parametrize(
    ("sizes", "checked"),
    [([8, 2], [8, 2]), ([1, 0], [1.0, 0.0]), ([0.5, 0.5], [0.5, 0.5]), ([True, False], [1.0, 0.0])],
)
def test_integers_of_sum_two_or_more_are_counts(sizes: Any, checked: Any) -> None:
    result = check_sizes(sizes)

    assert result == checked
    assert [type(size) for size in result] == [type(size) for size in checked]


@pytest.mark.parametrize("sizes", [[], "ab", 0.5, [0.5, 0.6], [-1, 2], [float("nan"), 1.0], ["a"]])
def test_sizes_that_divide_nothing_are_refused(sizes: Any) -> None:
    with pytest.raises(ConfigError, match="ratios"):
        check_sizes(sizes)
