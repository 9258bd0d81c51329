"""Mixed iterators: stated proportions at every length, every iterator's samples in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator
from data_stack.exception import ConfigError


def mixed(
    lengths: Sequence[int], proportions: Sequence[float], seed: int = 1, **options: Any
) -> MixedDatasetIterator:
    """Samples are ``(number of the iterator, position)``."""
    parts = [
        SequenceDatasetIterator([np.full(n, number), np.arange(n)])
        for number, n in enumerate(lengths)
    ]
    return MixedDatasetIterator(parts, proportions, seed, **options)


def samples_of(iterator: MixedDatasetIterator) -> list[tuple[int, int]]:
    numbers, positions = iterator.read_column(0), iterator.read_column(1)
    return list(zip(numbers.tolist(), positions.tolist(), strict=True))


MIXES = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 9) | st.floats(0.05, 1)), min_size=1, max_size=6
)


@given(mix=MIXES, seed=st.integers(0, 99), n_samples=st.integers(0, 200))
def test_the_proportions_hold_at_every_length(
    mix: list[tuple[int, float]], seed: int, n_samples: int
) -> None:
    lengths, proportions = zip(*mix, strict=True)
    iterator = mixed(lengths, proportions, seed, n_samples=n_samples)
    exact = [Fraction(repr(proportion)) for proportion in proportions]
    wanted = [proportion / sum(exact) for proportion in exact]

    samples = samples_of(iterator)

    assert len(iterator) == len(samples) == n_samples
    counts = [0] * len(lengths)
    for n_so_far, (number, _) in enumerate(samples, 1):
        counts[number] += 1
        most = 1 if n_so_far % iterator.block_size == 0 else iterator.block_size
        for count, proportion in zip(counts, wanted, strict=True):
            assert abs(count - n_so_far * proportion) <= most


@given(mix=MIXES, seed=st.integers(0, 99))
def test_without_a_number_it_ends_before_an_iterator_starts_again(
    mix: list[tuple[int, float]], seed: int
) -> None:
    lengths, proportions = zip(*mix, strict=True)

    iterator = mixed(lengths, proportions, seed)
    one_more = samples_of(mixed(lengths, proportions, seed, n_samples=len(iterator) + 1))

    counts = Counter(number for number, _ in one_more)
    assert samples_of(iterator) == one_more[:-1]
    assert len(set(one_more[:-1])) == len(iterator)
    last = one_more[-1][0]
    assert counts[last] == lengths[last] + 1
    assert all(counts[number] <= length for number, length in enumerate(lengths) if number != last)


def test_more_samples_than_memory_holds_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"a mix keeps 4 bytes a sample.* smaller n_samples="):
        mixed([3, 2], [1, 1], n_samples=2**60)
