"""What all layers promise whose positions are drawn or computed: one request, the same draws, any number of samples."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import (
    DatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.layers.balanced import BalancedDatasetIterator
from data_stack.dataset.iterator.layers.interleaved import InterleavedDatasetIterator
from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator
from data_stack.dataset.iterator.layers.repeated import RepeatedDatasetIterator
from data_stack.dataset.iterator.layers.resampled import ResampledDatasetIterator
from data_stack.dataset.iterator.layers.sharded import ShardedDatasetIterator
from data_stack.dataset.iterator.layers.shuffled import ShuffledDatasetIterator
from data_stack.exception import ConfigError

N = 11


class HugeIterator(DatasetIterator):
    """More positions than 32 bits count."""

    def __init__(self, n_samples: int) -> None:
        self.n_samples = n_samples

    def __len__(self) -> int:
        return self.n_samples

    def __getitem__(self, index: int) -> int:
        assert 0 <= index < self.n_samples
        return index


class CountingIterator(SequenceDatasetIterator):
    """Counts requests for batches."""

    n_requests = 0

    def read_batch(self, indices: Any) -> Any:
        self.n_requests += 1
        return super().read_batch(indices)


LABELS = [0, 1, 1, 0, 2, 1, 1, 1, 0, 1, 1]

LAYERS: dict[str, Callable[[DatasetIteratorIF], DatasetIteratorIF]] = {
    "shuffled": lambda it: ShuffledDatasetIterator(it, 1, epoch=2),
    "repeated": lambda it: RepeatedDatasetIterator(it, 3),
    "interleaved": lambda it: InterleavedDatasetIterator([DatasetIteratorView(it, range(4)), it, it]),
    "interleaved to the shortest": lambda it: InterleavedDatasetIterator(
        [it, DatasetIteratorView(it, [5, 1, 1])], stop="shortest"
    ),
    "mixed": lambda it: MixedDatasetIterator([it, DatasetIteratorView(it, range(3))], [0.7, 0.3], 5, n_samples=40),
    "mixed without repeats": lambda it: MixedDatasetIterator([DatasetIteratorView(it, [3, 4, 5]), it], [1, 4], 5),
    "resampled": lambda it: ResampledDatasetIterator(it, 30, 5),
    "resampled by weights": lambda it: ResampledDatasetIterator(it, 30, 5, weights=[i % 4 for i in range(N)]),
    "balanced": lambda it: BalancedDatasetIterator(it, 1, 3, n_samples=25),
    "sharded": lambda it: ShardedDatasetIterator(it, 1, 3, uneven="pad"),
    "sharded beyond the end": lambda it: ShardedDatasetIterator(it, 2, 3, contiguous=True, uneven="pad"),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_reading_through_several_layers_is_one_request(layer: str) -> None:
    source = CountingIterator([np.arange(N), np.array(LABELS)])

    iterator = LAYERS[layer](ShuffledDatasetIterator(RepeatedDatasetIterator(DatasetIteratorView(source, range(N)[::-1]), 1), 3))
    source.n_requests = 0
    iterator[::-1].read_batch([0, 2, 1])

    assert source.n_requests == 1


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
