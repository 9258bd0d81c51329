"""A function of each sample, alone or in batches, random or not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples, as_plain, check_all_ways_agree, sources

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.mapped import MappedDatasetIterator
from data_stack.exception import ConfigError


class Recording(Samples):
    """Tells what it was asked for."""

    def __init__(self, samples: list[Any]) -> None:
        super().__init__(samples)
        self.requests: list[list[int]] = []

    def __getitems__(self, indices: Any) -> list[Any]:
        self.requests.append(list(indices))
        return [self.samples[index] for index in indices]


def tagged(sample: Any) -> Any:
    """A sample of the same kind with something more in it."""
    if isinstance(sample, dict):
        return {**sample, "more": True}
    return (*sample, 7.5) if isinstance(sample, tuple) else {"bare": sample}


def tagged_batch(batch: Any) -> Any:
    """The same of a batch."""
    if isinstance(batch, dict):
        return {**batch, "more": np.ones(len(next(iter(batch.values()))), dtype=bool)}
    return (*batch, [7.5] * len(batch[0])) if isinstance(batch, tuple) else {"bare": batch}


def jittered(sample: Any, generator: np.random.Generator) -> Any:
    return sample, generator.integers(1 << 40)


def jittered_batch(batch: Any, generators: list[np.random.Generator]) -> Any:
    return batch[0], [generator.integers(1 << 40) for generator in generators]


def failing(sample: Any) -> Any:
    raise ZeroDivisionError(f"cannot map {sample!r}")


class PostProcessor:
    """As mlgym's."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def postprocess(self, sample: Any) -> Any:
        return sample[0] * self.factor, *sample[1:]


@given(source=sources(), data=st.data(), batched=st.booleans())
def test_every_way_to_a_mapped_sample_gives_the_function_of_the_sample(
    source: tuple[DatasetIteratorIF, list[Any]], data: st.DataObject, batched: bool
) -> None:
    iterator, samples = source

    mapped = iterator.map(tagged_batch if batched else tagged, batched=batched)

    check_all_ways_agree(mapped, [tagged(sample) for sample in samples], data)
    check_all_ways_agree(pickle.loads(pickle.dumps(mapped)), [tagged(sample) for sample in samples], data)


@given(data=st.data(), batched=st.booleans(), n=st.integers(0, 9), seed=st.integers(-5, 2**70), epoch=st.integers(0, 3))
def test_samples_of_a_random_map_do_not_depend_on_order_and_batches(
    data: st.DataObject, batched: bool, n: int, seed: int, epoch: int
) -> None:
    source = SequenceDatasetIterator([list(range(n))])
    mapped = MappedDatasetIterator(source, jittered_batch if batched else jittered, batched=batched, seed=seed, epoch=epoch)

    expected = [mapped[i] for i in range(n)]

    check_all_ways_agree(mapped, expected, data)
    check_all_ways_agree(pickle.loads(pickle.dumps(mapped)), expected, data)


def test_a_random_map_draws_anew_for_each_position_epoch_and_seed_and_alike_per_sample_and_per_batch() -> None:
    source = SequenceDatasetIterator([np.zeros(50, dtype=int)])

    drawn = [
        source.map(jittered, seed=seed, epoch=epoch).read_column(1).tolist() for seed, epoch in [(1, 0), (1, 1), (2, 0), (0, 1)]
    ]
    by_batch = source.map(jittered_batch, batched=True, seed=np.int64(1)).read_column(1).tolist()

    assert len({value for values in drawn for value in values}) == 200
    assert by_batch == drawn[0]


def test_a_bound_method_of_a_client_maps_samples() -> None:
    mapped = SequenceDatasetIterator([[1, 2, 3], "abc"]).map(PostProcessor(10).postprocess)

    assert list(pickle.loads(pickle.dumps(mapped))) == [(10, "a"), (20, "b"), (30, "c")]


def test_samples_of_a_batch_are_fetched_in_one_request() -> None:
    source = Recording([(i,) for i in range(10)])
    mapped = MappedDatasetIterator(source, tagged)

    mapped.read_batch([3, 1])
    mapped.__getitems__([-1, 0])
    mapped.read_column(0, [7, 7])
    mapped[2:].read_column(1, [0])

    assert source.requests == [[3, 1], [9, 0], [7, 7], [2]]


def test_several_columns_map_each_sample_once_and_columns_of_many_samples_hold_few() -> None:
    calls: list[int] = []
    source = Recording([(i,) for i in range(3000)])

    def counted(sample: Any) -> Any:
        calls.append(sample[0])
        return (*sample, 1)

    columns = access_to(MappedDatasetIterator(source, counted)).columns([1, 0])

    assert calls == list(range(3000))
    assert [column.tolist() for column in columns] == [[1] * 3000, list(range(3000))]
    assert max(map(len, source.requests)) <= 1024


def test_an_exception_of_the_function_comes_through_unchanged() -> None:
    for batched in (False, True):
        mapped = SequenceDatasetIterator([[1, 2]]).map(failing, batched=batched)
        reads: list[Callable[[DatasetIteratorIF], Any]] = [
            lambda iterator: iterator[0],
            list,
            lambda iterator: iterator.__getitems__([0]),
            lambda iterator: iterator.read_batch([0]),
            lambda iterator: iterator.read_column(0),
        ]
        for read in reads:
            with pytest.raises(ZeroDivisionError, match="cannot map"):
                read(mapped)


def test_iterating_over_a_batched_map_reads_ahead_in_growing_batches() -> None:
    sizes: list[int] = []

    def counted(batch: Any) -> Any:
        sizes.append(len(batch[0]))
        return batch

    samples = iter(SequenceDatasetIterator([np.arange(1000)]).map(counted, batched=True))

    assert next(samples) == (0,)
    assert sizes == [1]
    assert [int(sample[0]) for sample in samples] == list(range(1, 1000))
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 233]


@pytest.mark.parametrize(
    ("result", "expected", "dtype"),
    [
        ([1, 2, 3], [1, 2, 3], np.int64),
        (torch.tensor([1.5, 2, 3]), [1.5, 2, 3], np.float32),
        (np.array(["a", "bb", "c"]), ["a", "bb", "c"], object),
        (np.array([1, 2, 3], dtype=object), [1, 2, 3], np.int64),
        ([[1], [1, 2], []], [[1], [1, 2], []], object),
        (range(3), [0, 1, 2], np.int64),
    ],
)
def test_columns_of_a_batched_function_become_what_their_values_stack_to(result: Any, expected: Any, dtype: Any) -> None:
    source = SequenceDatasetIterator([np.arange(3)])

    bare = source.map(lambda batch: result if len(batch[0]) == 3 else result[: len(batch[0])], batched=True)
    named = source.map(lambda batch: {"c": result}, batched=True).read_batch([0, 1, 2])

    column = bare.read_batch([0, 1, 2])
    assert isinstance(column, np.ndarray)
    assert isinstance(named, dict)
    assert (as_plain(column), column.dtype) == (expected, dtype)
    assert (as_plain(named["c"]), named["c"].dtype) == (expected, dtype)
    assert as_plain(bare.__getitems__([0, 1, 2])) == expected


@pytest.mark.parametrize(
    "result", [[1, 2], (np.ones(3), np.ones(4)), {"x": np.ones(3), "y": [1]}, 5, "abc", (np.ones(3), {"nested": 1}), None, ()]
)
def test_a_batched_function_that_gives_no_batch_of_the_same_length_is_named(result: Any) -> None:
    mapped = SequenceDatasetIterator([np.arange(3)]).map(lambda batch: result, batched=True)

    with pytest.raises(ConfigError, match="lambda"):
        mapped.read_batch([0, 1, 2])
