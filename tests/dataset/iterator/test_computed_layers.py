"""What all layers promise whose positions are drawn or computed, and what each of them does."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.iterator.epochs import at_epoch
from data_stack.dataset.iterator.layer import LAYERS, layer
from data_stack.dataset.iterator.layers.balanced import BalancedDatasetIterator
from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator
from data_stack.dataset.iterator.layers.repeated import RepeatedDatasetIterator
from data_stack.dataset.iterator.layers.resampled import ResampledDatasetIterator
from data_stack.dataset.iterator.layers.sharded import ShardedDatasetIterator
from data_stack.dataset.iterator.layers.shuffled import ShuffledDatasetIterator
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.exception import ConfigError


def numbers(n: int) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(n)])


@pytest.mark.parametrize(
    "make",
    [
        lambda it, seed, epoch: ShuffledDatasetIterator(it, seed, epoch=epoch),
        lambda it, seed, epoch: MixedDatasetIterator([it, it], [1, 1], seed, epoch=epoch),
        lambda it, seed, epoch: ResampledDatasetIterator(it, 10, seed, epoch=epoch),
        lambda it, seed, epoch: BalancedDatasetIterator(it, 0, seed, n_samples=10, epoch=epoch),
    ],
)
def test_seed_and_epoch_decide_what_is_drawn(
    make: Callable[[Any, Any, Any], DatasetIteratorIF],
) -> None:
    it = SequenceDatasetIterator([list(range(20))])

    assert list(make(it, 1, 0)) == list(make(it, 1, 0))
    drawn = [list(make(it, seed, epoch)) for seed in (0, 1, -1, 2**100) for epoch in (0, 1, 2)]
    assert len({str(samples) for samples in drawn}) == len(drawn)
    for seed, epoch in ((1.5, 0), ("1", 0), (None, 0), (1, -1), (1, 0.0)):
        with pytest.raises(ConfigError, match=r"seed|epoch"):
            make(it, seed, epoch)


@pytest.mark.parametrize("n_samples", [2**31 + 7, 2**40 + 1])
def test_more_positions_than_32_bits_count_are_no_matter(n_samples: int) -> None:
    huge = Samples(range(n_samples))
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


def balanced(labels: Any, seed: int = 1, **options: Any) -> BalancedDatasetIterator:
    """Samples are ``(position, label)``."""
    return BalancedDatasetIterator(
        SequenceDatasetIterator([list(range(len(labels))), labels]), 1, seed, **options
    )


def mixed(lengths: list[int], proportions: list[float], seed: int) -> MixedDatasetIterator:
    """Twelve samples of runs of numbers, each of which goes on from the one before it."""
    starts = np.cumsum([0, *lengths])
    parts = [
        SequenceDatasetIterator([np.arange(start, end)])
        for start, end in itertools.pairwise(starts)
    ]
    return MixedDatasetIterator(parts, proportions, seed, n_samples=12)


# Never change these numbers: someone's experiment rests on them.
@pytest.mark.parametrize(
    ("iterator", "expected"),
    [
        (ShuffledDatasetIterator(numbers(5), 0), [3, 1, 0, 4, 2]),
        (ShuffledDatasetIterator(numbers(10), 0), [4, 6, 2, 9, 8, 3, 0, 7]),
        (ShuffledDatasetIterator(numbers(10), 0, epoch=1), [4, 2, 7, 3, 1, 0, 8, 9]),
        (ShuffledDatasetIterator(numbers(10), 1), [5, 1, 2, 9, 7, 8, 0, 6]),
        (ShuffledDatasetIterator(numbers(10), -1), [7, 5, 2, 4, 1, 8, 6, 0]),
        (ShuffledDatasetIterator(numbers(1000), 42), [590, 949, 932, 445, 59, 923, 448, 435]),
        (
            ShuffledDatasetIterator(numbers(60000), 42, epoch=3),
            [8124, 33974, 14262, 22194, 40270, 54396, 44320, 47720],
        ),
        (
            ShuffledDatasetIterator(numbers(10**6), 2**70),
            [145524, 428030, 381915, 263118, 624188, 440168, 908288, 905858],
        ),
        (ResampledDatasetIterator(numbers(10), 10, 0), [7, 3, 5, 0, 7, 8, 6, 9, 2, 5]),
        (ResampledDatasetIterator(numbers(10), 10, 1), [0, 4, 6, 9, 6, 9, 2, 5, 1, 4]),
        (
            ResampledDatasetIterator(numbers(10**6), 10, 1),
            [90996, 477828, 601417, 986682, 669156, 985760, 222278, 533432],
        ),
        (
            ResampledDatasetIterator(numbers(4), 10, 0, weights=[1, 2, 3, 4]),
            [3, 2, 2, 0, 3, 3, 3, 3, 1, 2],
        ),
        (
            ResampledDatasetIterator(numbers(4), 10, 1, weights=[0.1, 0, 0.7, 0.2]),
            [0, 2, 2, 3, 2, 3, 2, 2, 2, 2],
        ),
        (balanced([0, 0, 0, 1, 0, 2, 0, 0], 0, n_samples=12), [5, 3, 6, 5, 3, 1, 3, 5, 2, 3, 0, 5]),
        (
            balanced([0, 0, 0, 1, 0, 2, 0, 0], 0, epoch=1, n_samples=12),
            [2, 5, 3, 5, 6, 3, 5, 1, 3, 7, 5, 3],
        ),
        (balanced(["a", "b"] * 5, 7, n_samples=12), [6, 5, 9, 4, 2, 3, 1, 0, 7, 8, 9, 4]),
        (mixed([100, 50], [0.7, 0.3], 0), [16, 95, 74, 140, 29, 23, 96, 111, 143, 27, 105, 70]),
        (mixed([3, 2, 1], [1, 1, 2], 5), [2, 5, 5, 4, 5, 5, 1, 3, 5, 0, 5, 3]),
    ],
)
def test_orders_never_change(iterator: DatasetIteratorIF, expected: list[int]) -> None:
    assert iterator.read_column(0, range(len(expected))).tolist() == expected


# --- balanced: every class equally often

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=40)


@given(labels=LABELS, seed=st.integers(0, 99), n_samples=st.integers(0, 200))
def test_every_round_has_each_class_once(labels: list[int], seed: int, n_samples: int) -> None:
    classes = sorted(set(labels))

    samples = balanced(labels, seed, n_samples=n_samples).read_column(0).tolist()

    assert len(samples) == n_samples
    rounds = [
        [labels[position] for position in samples[start : start + len(classes)]]
        for start in range(0, n_samples, len(classes))
    ]
    assert all(sorted(each) == classes for each in rounds if len(each) == len(classes))
    assert all(len(set(each)) == len(each) for each in rounds)
    assert [int(sample[0]) for sample in balanced(labels, seed, n_samples=n_samples)] == samples


# --- resampled

WEIGHTS = (
    st.floats(0, 1e308) | st.sampled_from([0.0, 5e-324, 1e-310, 1.0, 1e308]) | st.integers(0, 2**62)
)


@given(
    weights=st.lists(WEIGHTS, min_size=1, max_size=10).filter(any),
    seed=st.integers(0, 5),
    indices=st.lists(st.integers(0, 99), max_size=10),
)
def test_single_draws_agree_with_batches_of_draws(
    weights: list[float], seed: int, indices: list[int]
) -> None:
    for given_weights in (weights, None):
        resampled = ResampledDatasetIterator(
            numbers(len(weights)), 100, seed, weights=given_weights
        )

        samples = resampled.read_column(0, indices).tolist()

        assert samples == [int(resampled[index][0]) for index in indices]
        assert given_weights is None or all(weights[sample] > 0 for sample in samples)


# --- sharded

Uneven = Literal["keep", "pad", "drop"]


@given(n=st.integers(0, 40), world=st.integers(1, 12))
def test_parts_are_strides_or_runs_of_samples(n: int, world: int) -> None:
    def shards(contiguous: bool, uneven: Uneven) -> list[list[int]]:
        ranks = [
            ShardedDatasetIterator(numbers(n), rank, world, contiguous=contiguous, uneven=uneven)
            for rank in range(world)
        ]
        samples = [rank.read_column(0).tolist() for rank in ranks]
        assert [[sample for (sample,) in rank] for rank in ranks] == samples
        return samples

    everything = list(range(n))

    assert shards(False, "keep") == [everything[rank::world] for rank in range(world)]
    assert shards(True, "keep") == [part.tolist() for part in np.array_split(np.arange(n), world)]
    equal: list[tuple[Uneven, int]] = [("drop", n // world), ("pad", -(-n // world))]
    for uneven, size in equal:
        taken = (everything * world)[: size * world]  # padded parts go on from the start
        assert shards(False, uneven) == [taken[rank::world] for rank in range(world)]
        assert shards(True, uneven) == [
            taken[rank * size : (rank + 1) * size] for rank in range(world)
        ]


def test_a_layer_with_an_epoch_and_no_draw_is_refused() -> None:
    @layer("forgetful")
    class Forgetful(DatasetIteratorView):
        def __init__(self, dataset_iterator: Any, *, epoch: int = 0) -> None:
            super().__init__(dataset_iterator, range(len(dataset_iterator)))
            self._made_with = {"epoch": epoch}

    try:
        with pytest.raises(ConfigError, match=r"'forgetful' has an argument 'epoch', but no draw"):
            at_epoch(Forgetful(SequenceDatasetIterator([[1, 2, 3]])), 1)
    finally:
        del LAYERS["forgetful"]
