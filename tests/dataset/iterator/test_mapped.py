"""A function of each sample, alone or in batches, random or not."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Columns, Samples, as_plain, check_all_ways_agree

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.layers.mapped import MappedDatasetIterator
from data_stack.dataset.meta import DatasetMeta
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


def jittered(sample: Any, generator: np.random.Generator) -> Any:
    return sample, generator.integers(1 << 40)


def jittered_batch(batch: Any, generators: list[np.random.Generator]) -> Any:
    return batch[0], [generator.integers(1 << 40) for generator in generators]


def failing(sample: Any) -> Any:
    raise ZeroDivisionError(f"cannot map {sample!r}")


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


def test_samples_of_a_batch_are_fetched_in_one_request() -> None:
    source = Recording([(i,) for i in range(10)])
    mapped = MappedDatasetIterator(source, tagged)

    mapped.read_batch([3, 1])
    mapped.__getitems__([-1, 0])
    mapped.read_column(0, [7, 7])
    mapped[2:].read_column(1, [0])

    assert source.requests == [[3, 1], [9, 0], [7, 7], [2]]


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


def plus(value: Any) -> Any:
    return value + 1


def drawn(value: Any, generator: np.random.Generator) -> Any:
    return [value, generator.integers(1 << 40)]


def drawn_batch(column: Any, generators: list[np.random.Generator]) -> Any:
    return [[value, generator.integers(1 << 40)] for value, generator in zip(column.tolist(), generators, strict=True)]


@given(
    numbers=st.lists(st.integers(-99, 99), max_size=9),
    data=st.data(),
    batched=st.booleans(),
    seed=st.none() | st.integers(0, 9),
    kind=st.sampled_from(["tuple", "arrays", "dict"]),
)
def test_every_way_to_a_mapped_column_gives_the_function_of_its_value(
    numbers: list[int], data: st.DataObject, batched: bool, seed: int | None, kind: str
) -> None:
    columns: list[Any] = [numbers, [str(number) for number in numbers], [np.full((2, 2), number) for number in numbers]]
    source: DatasetIteratorIF = SequenceDatasetIterator([np.array(numbers, int), *columns[1:]] if kind == "arrays" else columns)
    key: Any = data.draw(st.sampled_from([0, -3]))
    source, key = (source.as_dict("a", "b", "c"), "a") if kind == "dict" else (source, key)
    by_value, by_column = (plus, plus) if seed is None else (drawn, drawn_batch)

    mapped = source.map(by_column if batched else by_value, column=key, batched=batched, seed=seed)

    expected = [mapped[i] for i in range(len(numbers))]
    values = [sample["a"] if isinstance(sample, dict) else sample[0] for sample in expected]
    assert as_plain(values if seed is None else [value[0] for value in values]) == [n + (seed is None) for n in numbers]
    assert as_plain([list(sample.values() if kind == "dict" else sample)[1:] for sample in expected]) == [
        [str(n), [[n, n], [n, n]]] for n in numbers
    ]
    check_all_ways_agree(mapped, expected, data)
    check_all_ways_agree(pickle.loads(pickle.dumps(mapped)), expected, data)


def test_other_columns_are_read_without_the_function_and_the_mapped_one_without_the_others() -> None:
    source = Columns(np.arange(5), np.arange(5) * 10)

    mapped = source.map(failing, column=0)

    assert mapped.read_column(1).tolist() == [0, 10, 20, 30, 40]
    assert source.map(plus, column=0).read_column(0, [4, 1]).tolist() == [5, 2]
    assert source.requests == [(1, 5), (0, 2)]
    with pytest.raises(ZeroDivisionError, match="cannot map 3"):
        mapped.read_column(0, [3])


@pytest.mark.parametrize("batched", [True, False])
def test_a_mapped_column_keeps_the_form_of_samples(batched: bool) -> None:
    class Point(NamedTuple):
        x: int
        y: int

    for sample in (Point(1, 2), [1, 2], {"x": 1, "y": 2}, (1, 2)):
        mapped = Samples([sample]).map(np.negative, column="y" if isinstance(sample, dict) else 1, batched=batched)

        assert type(mapped[0]) is type(sample)
        assert as_plain(mapped[0]) == ({"x": 1, "y": -2} if isinstance(sample, dict) else [1, -2])
    with pytest.raises(ConfigError, match="no column 2"):
        Samples([(1, 2)]).map(np.negative, column=2)[0]


def test_the_meta_forgets_what_a_mapped_column_no_longer_is() -> None:
    meta = DatasetMeta(class_names=("a", "b"), target_kind="label", feature_names=("w", "h"), column_names=("x", "y", "z"))
    source = InformedDatasetIterator(SequenceDatasetIterator([np.ones((2, 2)), [0, 1], [0, 1]]), meta)

    def known(iterator: Any) -> Any:
        found = iterator.dataset_meta
        return found.column_names, found.feature_names, found.class_names, found.target_kind

    assert known(source.map(plus, column="z")) == (("x", "y", "z"), ("w", "h"), ("a", "b"), "label")
    assert known(source.map(plus, column="x")) == (("x", "y", "z"), None, ("a", "b"), "label")
    assert known(source.map(plus, column=-2)) == (("x", "y", "z"), ("w", "h"), None, None)
    assert known(source.map(tagged)) == ((), None, ("a", "b"), "label")


@pytest.mark.parametrize(
    ("map_it", "message"),
    [
        (
            lambda it: it.map(lambda image, label, tag: (image, label)),
            r"\(image, label, tag\) receives 1 argument, a sample: .* image, label = sample. Or map one column",
        ),
        (lambda it: it.map(lambda image, random: image, column=0), "receives 1 argument, a value: .* needs a seed"),
        (lambda it: it.map(lambda sample: sample, seed=1), r"\(sample\) receives 2 arguments, a sample and a random generator"),
        (lambda it: it.map(lambda: 1, batched=True), "receives 1 argument, a batch"),
        (lambda it: it.map(lambda a, b: (a, b), column=[0, 1]), r"column= names one column, got \[0, 1\]"),
        (lambda it: it.filter(lambda image, label: label), r"receives 1 argument, a sample: .* filter\(predicate, column="),
        (lambda it: it.filter(lambda label: label, column=[0, 1]), "receives 2 arguments, column 0 and column 1"),
    ],
)
def test_a_function_of_other_arguments_than_it_receives_is_refused_at_once(map_it: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        map_it(SequenceDatasetIterator([[1], [2], [3]]))
