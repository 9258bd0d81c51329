"""What all layers promise whose positions are drawn or computed: one request, the same draws, any number of samples."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.iterator.layer import ShuffledDatasetIterator
from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator
from data_stack.dataset.iterator.layers.resampled import (
    BalancedDatasetIterator,
    RepeatedDatasetIterator,
    ResampledDatasetIterator,
)
from data_stack.dataset.iterator.layers.sharded import ShardedDatasetIterator
from data_stack.exception import ConfigError


class HugeIterator(DatasetIterator):
    """More positions than 32 bits count."""

    def __init__(self, n_samples: int) -> None:
        self.n_samples = n_samples

    def __len__(self) -> int:
        return self.n_samples

    def __getitem__(self, index: int) -> int:
        assert 0 <= index < self.n_samples
        return index


@pytest.mark.parametrize(
    "make",
    [
        lambda it, seed, epoch: ShuffledDatasetIterator(it, seed, epoch=epoch),
        lambda it, seed, epoch: MixedDatasetIterator([it, it], [1, 1], seed, epoch=epoch),
        lambda it, seed, epoch: ResampledDatasetIterator(it, 10, seed, epoch=epoch),
        lambda it, seed, epoch: BalancedDatasetIterator(it, 0, seed, n_samples=10, epoch=epoch),
    ],
)
def test_seed_and_epoch_decide_what_is_drawn(make: Callable[[Any, Any, Any], DatasetIteratorIF]) -> None:
    it = SequenceDatasetIterator([list(range(20))])

    assert list(make(it, 1, 0)) == list(make(it, 1, 0))
    drawn = [list(make(it, seed, epoch)) for seed in (0, 1, -1, 2**100) for epoch in (0, 1, 2)]
    assert len({str(samples) for samples in drawn}) == len(drawn)
    for seed, epoch in ((1.5, 0), ("1", 0), (None, 0), (1, -1), (1, 0.0)):
        with pytest.raises(ConfigError, match=r"seed|epoch"):
            make(it, seed, epoch)


@pytest.mark.parametrize("n_samples", [2**31 + 7, 2**40 + 1])
def test_more_positions_than_32_bits_count_are_no_matter(n_samples: int) -> None:
    huge = HugeIterator(n_samples)
    iterators: list[Any] = [
        ShuffledDatasetIterator(huge, 1),
        RepeatedDatasetIterator(huge, 1000),
        ResampledDatasetIterator(huge, n_samples, 1),
        *[
            ShardedDatasetIterator(huge, 1, 3, contiguous=contiguous, uneven=uneven)
            for contiguous in (False, True)
            for uneven in ("keep", "drop")
        ],
    ]

    for iterator in iterators:
        indices = [0, 1, len(iterator) // 2, len(iterator) - 1]
        samples = [iterator[index] for index in indices]
        assert iterator.read_batch(indices).tolist() == samples == iterator.__getitems__(indices)
        assert list(iterator[::-1][:1]) == samples[-1:]
        assert len(pickle.dumps(iterator)) < 5000
