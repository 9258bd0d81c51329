"""Blocks of samples: how many are read at once, and what they take in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator.blocks import blocks_of_rows, estimate_bytes, in_blocks


def lengths_of_blocks(n_samples: int, sample_bytes: int) -> list[int]:
    """Return how many samples each block has, where a sample has ``sample_bytes``."""
    lengths: list[int] = []

    def read(positions: Any) -> Any:
        lengths.append(len(positions))
        return np.zeros(len(positions) * sample_bytes, dtype=np.uint8)

    starts = [start for start, _ in in_blocks(n_samples, read)]
    assert starts == [sum(lengths[:number]) for number in range(len(lengths))]
    return lengths


def test_blocks_grow_to_some_thousand_small_samples() -> None:
    assert lengths_of_blocks(40_000, 1) == [1, 8, 64, 512, 4096, 16_384, 16_384, 2551]


def test_blocks_of_large_samples_have_some_megabytes() -> None:
    assert lengths_of_blocks(10, 1 << 20) == [1, 3, 3, 3]
    assert lengths_of_blocks(3, 8 << 20) == [1, 1, 1]


def test_no_samples_have_no_blocks() -> None:
    assert lengths_of_blocks(0, 1) == []


@given(st.integers(0, 10_000), st.floats(1, 10_000_000))
def test_blocks_of_rows_have_all_samples(n_samples: int, n_bytes: float) -> None:
    lengths = blocks_of_rows(n_samples, n_bytes)

    assert lengths.dtype == np.int64
    assert lengths.sum() == n_samples
    assert (lengths > 0).all()
    assert (np.diff(lengths[:-1]) == 0).all()


@pytest.mark.parametrize(
    ("value", "n_bytes"),
    [(np.zeros(1000), 8112), ([b"a" * 1000] * 10, 10_330), ({"a": np.zeros(100)}, 912)],
)
def test_an_estimate_is_near_the_bytes_of_the_values(value: Any, n_bytes: int) -> None:
    assert estimate_bytes(value) == pytest.approx(n_bytes, rel=0.4)


def test_an_estimate_of_many_objects_measures_some() -> None:
    texts = np.array(["a" * 100] * 10_000, dtype=object)

    assert estimate_bytes(texts, max_objects=10) == pytest.approx(estimate_bytes(texts), rel=0.1)
