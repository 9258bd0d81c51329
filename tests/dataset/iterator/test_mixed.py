"""Mixed iterators: stated proportions at every length, every iterator's samples in turn."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.iterator.mixed import MixedDatasetIterator
from data_stack.exception import ConfigError


class Huge(DatasetIterator):
    """Sample ``i`` is ``i``."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index


def parts(lengths: Sequence[int]) -> list[DatasetIteratorIF]:
    """Samples are ``(number of the iterator, position)``."""
    return [SequenceDatasetIterator([np.full(n, number), np.arange(n)]) for number, n in enumerate(lengths)]


def mixed(lengths: Sequence[int], proportions: Sequence[float], seed: int = 1, **options: Any) -> MixedDatasetIterator:
    return MixedDatasetIterator(parts(lengths), proportions, seed, **options)


def samples_of(iterator: MixedDatasetIterator) -> list[tuple[int, int]]:
    numbers, positions = iterator.read_column(0), iterator.read_column(1)
    return list(zip(numbers.tolist(), positions.tolist(), strict=True))


MIXES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9) | st.floats(0.05, 1)), min_size=1, max_size=6)


@given(mix=MIXES, seed=st.integers(0, 99), n_samples=st.integers(0, 200))
def test_the_proportions_hold_at_every_length(mix: list[tuple[int, float]], seed: int, n_samples: int) -> None:
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
def test_the_samples_of_each_iterator_all_come_before_one_comes_again(mix: list[tuple[int, float]], seed: int) -> None:
    lengths, proportions = zip(*mix, strict=True)

    samples = samples_of(mixed(lengths, proportions, seed, n_samples=200))

    for number, length in enumerate(lengths):
        came = [position for each, position in samples if each == number]
        passes = [came[start : start + length] for start in range(0, len(came), length)]
        assert all(sorted(each) == list(range(length)) for each in passes if len(each) == length)
        assert all(len(set(each)) == len(each) for each in passes)


@given(mix=MIXES, seed=st.integers(0, 99))
def test_without_a_number_it_ends_before_an_iterator_starts_again(mix: list[tuple[int, float]], seed: int) -> None:
    lengths, proportions = zip(*mix, strict=True)

    iterator = mixed(lengths, proportions, seed)
    one_more = samples_of(mixed(lengths, proportions, seed, n_samples=len(iterator) + 1))

    counts = Counter(number for number, _ in one_more)
    assert samples_of(iterator) == one_more[:-1]
    assert len(set(one_more[:-1])) == len(iterator)
    last = one_more[-1][0]
    assert counts[last] == lengths[last] + 1
    assert all(counts[number] <= length for number, length in enumerate(lengths) if number != last)


@given(data=st.data(), mix=MIXES, seed=st.integers(0, 99))
def test_one_sample_and_many_agree(data: st.DataObject, mix: list[tuple[int, float]], seed: int) -> None:
    lengths, proportions = zip(*mix, strict=True)
    iterator = mixed(lengths, proportions, seed, n_samples=sys.maxsize)
    indices = data.draw(st.lists(st.integers(0, sys.maxsize - 1) | st.integers(0, 100), max_size=10))

    samples = [iterator[index] for index in indices]

    expected = [(int(number), int(position)) for number, position in samples]
    assert [(int(number), int(position)) for number, position in iterator.__getitems__(indices)] == expected


def test_whole_numbers_are_met_exactly_at_the_end_of_each_block() -> None:
    iterator = mixed([10_000, 10_000, 10_000], [0.7, 0.2, 0.1], n_samples=10_000)

    numbers = iterator.read_column(0).reshape(-1, 10)

    assert iterator.block_size == 10
    assert all(np.bincount(block).tolist() == [7, 2, 1] for block in numbers)
    assert len({tuple(block) for block in numbers.tolist()}) > 250  # of 360 orders


def test_errors_do_not_add_up() -> None:
    n_samples = 10**15
    iterator = MixedDatasetIterator([Huge(10**18), Huge(10**18)], [1, 2], 1, n_samples=n_samples)

    last = range(n_samples - 3, n_samples)
    of_first = [index for index in last if iterator._given[index] < 10**18]

    assert iterator.block_size == 3
    assert len(of_first) == 1


@pytest.mark.parametrize("proportions", [[3, 6], [1 / 3, 2 / 3], [1e-300, 2e-300], [1e300, 2e300], np.array([0.5, 1]), (1, 2.0)])
def test_proportions_need_not_sum_to_one(proportions: Any) -> None:
    assert samples_of(mixed([9, 9], proportions, n_samples=60)) == samples_of(mixed([9, 9], [1, 2], n_samples=60))


def test_proportions_may_be_numbers_of_numpy_and_torch() -> None:
    expected = samples_of(mixed([9, 9], [1, 2], n_samples=60))

    for proportions in (torch.tensor([1.0, 2.0]), np.array([1, 2], dtype=np.uint8), [Fraction(1), np.float32(2)]):
        iterator = mixed([9, 9], proportions, n_samples=60)  # type: ignore[arg-type]  # numbers nevertheless
        assert samples_of(iterator) == expected
        assert {type(number) for number in iterator._arguments()["proportions"]} <= {int, float}


def test_an_iterator_of_proportion_zero_does_not_come() -> None:
    for proportions in ([0, 1, 0, 2, 0], [0, 1, 0, 2], [1, 0, 0, 2, 0]):
        lengths = [0 if proportion == 0 else 5 for proportion in proportions]
        iterator = mixed(lengths, proportions, n_samples=30)

        counts = Counter(number for number, _ in samples_of(iterator))

        assert {number: counts[number] for number in range(len(lengths))} == {
            number: 10 * proportion for number, proportion in enumerate(proportions)
        }
        assert [tuple(map(int, sample)) for sample in iterator] == samples_of(iterator)
    assert len(set(samples_of(mixed([5, 0], [1, 0])))) == 5


def test_each_pass_has_an_order_of_its_own_also_of_equally_long_iterators() -> None:
    samples = samples_of(mixed([10, 10], [1, 1], n_samples=400))

    passes = [
        tuple([position for number, position in samples if number == each][start : start + 10])
        for each in (0, 1)
        for start in range(0, 200, 10)
    ]
    assert len(set(passes)) == 40


def test_a_small_iterator_may_start_again_many_times_in_a_block() -> None:
    iterator = mixed([3, 1000], [999, 1], n_samples=2500)

    numbers, positions = (column.tolist() for column in iterator.read_batch(range(2500)))  # type: ignore[union-attr]

    assert [(numbers[index], positions[index]) for index in range(0, 2500, 70)] == [
        (int(iterator[index][0]), int(iterator[index][1])) for index in range(0, 2500, 70)
    ]
    came = [position for number, position in zip(numbers, positions, strict=True) if number == 0]
    assert all(sorted(came[start : start + 3]) == [0, 1, 2] for start in range(0, len(came) - 2, 3))


def test_a_thousand_iterators_are_no_matter() -> None:
    samples = samples_of(mixed([3] * 1000, [1] * 1000, n_samples=3000))

    assert len(set(samples)) == 3000


def test_iterators_as_long_as_can_be_are_not_exhausted() -> None:
    iterator = MixedDatasetIterator([Huge(2**62), Huge(2**62 - 1)], [1, 10**-6 * 2], 3)

    assert 2**62 <= len(iterator) < 2**62 * 1.0001
    indices = [0, 10**9, len(iterator) - 1]
    assert iterator.read_batch(indices).tolist() == [iterator[index] for index in indices]  # type: ignore[union-attr]


@pytest.mark.parametrize("proportions", [[1, 1], [1, 9], [2, 3], [0.37, 0.63], [1e-5, 1], [1, math.pi]])
@pytest.mark.parametrize("start", [0, 2**40, 2**61, 2**63 - 3 * 10**5])
def test_no_position_of_a_block_is_lost_however_far_on(proportions: list[float], start: int) -> None:
    iterator = MixedDatasetIterator([Huge(2**61), Huge(2**61)], proportions, 3, n_samples=sys.maxsize)
    start -= start % iterator.block_size

    positions = iterator._given.taken(np.arange(start, start + 2 * iterator.block_size))  # type: ignore[union-attr]

    assert len(set(positions.tolist())) == 2 * iterator.block_size
    share = 2 * iterator.block_size * proportions[0] / sum(proportions)
    assert abs(np.count_nonzero(positions < 2**61) - share) <= 2


# Never change these numbers: someone's experiment rests on them.
@pytest.mark.parametrize(
    ("lengths", "proportions", "seed", "epoch", "expected"),
    [
        (
            [100, 50],
            [0.7, 0.3],
            0,
            0,
            [(0, 16), (0, 95), (0, 74), (1, 40), (0, 29), (0, 23), (0, 96), (1, 11), (1, 5), (0, 70), (1, 43), (0, 27)],
        ),
        (
            [100, 50],
            [0.7, 0.3],
            0,
            1,
            [(0, 66), (0, 89), (0, 19), (1, 32), (0, 41), (0, 12), (0, 96), (1, 43), (1, 29), (1, 27), (0, 40), (0, 37)],
        ),
        (
            [3, 2, 1],
            [1, 1, 2],
            5,
            0,
            [(0, 2), (2, 0), (2, 0), (1, 1), (2, 0), (2, 0), (0, 1), (1, 0), (2, 0), (0, 0), (2, 0), (1, 0)],
        ),
    ],
)
def test_orders_never_change(
    lengths: list[int], proportions: list[float], seed: int, epoch: int, expected: list[tuple[int, int]]
) -> None:
    assert samples_of(mixed(lengths, proportions, seed, epoch=epoch, n_samples=12)) == expected


@pytest.mark.parametrize(
    ("lengths", "proportions", "message"),
    [
        ([], [], "at least one iterator"),
        ([5, 5], [1], "2 iterators cannot be mixed by 1 proportions"),
        ([5, 5], [1, -1], "iterator 1 is -1"),
        ([5, 5], [float("nan"), 1], "iterator 0 is nan"),
        ([5, 5], [1, float("inf")], "iterator 1 is inf"),
        ([5, 5], [1, "x"], "list of numbers"),
        ([5, 5], [1, None], "list of numbers"),
        ([5, 5], [0, 0], r"positive, got \[0, 0\]"),
        ([5, 0], [1, 2], "iterator 1 is empty"),
        ([5, 5], [1, 1e-9], "iterator 1, 1e-09, is less than"),
        ([5, 5], [10**400, 1], "iterator 1, 1, is less than"),
    ],
)
def test_what_cannot_be_mixed_is_named(lengths: list[int], proportions: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mixed(lengths, proportions, n_samples=5)


@pytest.mark.parametrize("n_samples", [-1, 2**63, 1.5])
def test_the_number_of_samples_must_be_a_count(n_samples: Any) -> None:
    with pytest.raises(ConfigError, match="n_samples"):
        mixed([5], [1], n_samples=n_samples)


def test_the_iterators_given_are_named() -> None:
    given_iterators = parts([1, 2])

    assert MixedDatasetIterator(given_iterators, [1, 1], 1).underlying_iterators == given_iterators
