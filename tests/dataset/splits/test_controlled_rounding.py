"""Tables of shares are rounded such that rows and columns add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.splits.controlled_rounding import round_controlled
from data_stack.dataset.splits.shares import Shares

COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=12)
WEIGHTS = st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(any)


@given(counts=COUNTS, weights=WEIGHTS)
def test_each_class_is_divided_whole(counts: list[int], weights: list[int]) -> None:
    table = round_controlled(counts, Shares(tuple(weights), sum(weights)))

    assert [sum(sizes) for sizes in table] == counts


@given(counts=COUNTS, weights=WEIGHTS)
def test_each_size_is_less_than_one_from_its_share(counts: list[int], weights: list[int]) -> None:
    total = sum(weights)

    table = round_controlled(counts, Shares(tuple(weights), total))

    for count, sizes in zip(counts, table, strict=True):
        for size, weight in zip(sizes, weights, strict=True):
            assert abs(size * total - count * weight) < total


@given(counts=COUNTS, weights=WEIGHTS)
def test_each_part_is_less_than_one_from_its_share(counts: list[int], weights: list[int]) -> None:
    total = sum(weights)

    table = round_controlled(counts, Shares(tuple(weights), total))

    for part, weight in enumerate(weights):
        size = sum(sizes[part] for sizes in table)
        assert abs(size * total - sum(counts) * weight) < total
