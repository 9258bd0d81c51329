"""Balanced iterators: every class equally often, every member of a class in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.resampled import BalancedDatasetIterator
from data_stack.exception import ConfigError


def balanced(labels: Any, seed: int = 1, **options: Any) -> BalancedDatasetIterator:
    """Samples are ``(position, label)``."""
    return BalancedDatasetIterator(SequenceDatasetIterator([list(range(len(labels))), labels]), 1, seed, **options)


def drawn(labels: Any, seed: int = 1, **options: Any) -> list[int]:
    positions: list[int] = balanced(labels, seed, **options).read_column(0).tolist()
    return positions


LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=40)


@given(labels=LABELS, seed=st.integers(0, 99), n_samples=st.integers(0, 200))
def test_every_round_has_each_class_once(labels: list[int], seed: int, n_samples: int) -> None:
    classes = sorted(set(labels))

    samples = drawn(labels, seed, n_samples=n_samples)

    assert len(samples) == n_samples
    rounds = [
        [labels[position] for position in samples[start : start + len(classes)]] for start in range(0, n_samples, len(classes))
    ]
    assert all(sorted(each) == classes for each in rounds if len(each) == len(classes))
    assert all(len(set(each)) == len(each) for each in rounds)
    assert [int(sample[0]) for sample in balanced(labels, seed, n_samples=n_samples)] == samples


# Never change these numbers: someone's experiment rests on them.
@pytest.mark.parametrize(
    ("labels", "seed", "epoch", "expected"),
    [
        ([0, 0, 0, 1, 0, 2, 0, 0], 0, 0, [5, 3, 6, 5, 3, 1, 3, 5, 2, 3, 0, 5]),
        ([0, 0, 0, 1, 0, 2, 0, 0], 0, 1, [2, 5, 3, 5, 6, 3, 5, 1, 3, 7, 5, 3]),
        (["a", "b", "a", "b", "a", "b", "a", "b", "a", "b"], 7, 0, [6, 5, 9, 4, 2, 3, 1, 0, 7, 8, 9, 4]),
    ],
)
def test_orders_never_change(labels: list[Any], seed: int, epoch: int, expected: list[int]) -> None:
    assert drawn(labels, seed, epoch=epoch, n_samples=12) == expected


@pytest.mark.parametrize(
    ("labels", "position"),
    [
        ([0.0, 1.0, float("nan"), 1.0], 2),
        (["a", None, "b", "b"], 1),
        (["a", "b", "b", float("nan")], 3),
        ([np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2)], 0),
        (["a", [1, 2], "b", "b"], 1),
    ],
)
def test_labels_that_name_no_class_are_refused_with_their_position(labels: Any, position: int) -> None:
    with pytest.raises(ConfigError, match=f"balanced by column 1.* position {position} "):
        balanced(labels)
