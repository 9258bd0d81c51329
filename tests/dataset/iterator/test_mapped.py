"""A function of each sample, alone or in batches, random or not."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import as_plain, check_all_ways_agree

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError


def tagged(sample: Any) -> Any:
    """A sample of the same kind with something more in it."""
    if isinstance(sample, dict):
        return {**sample, "more": True}
    return (*sample, 7.5) if isinstance(sample, tuple) else {"bare": sample}


def jittered(sample: Any, generator: np.random.Generator) -> Any:
    return {"drawn": generator.integers(1 << 40)}


def jittered_batch(batch: Any, generators: list[np.random.Generator]) -> Any:
    return {"drawn": [generator.integers(1 << 40) for generator in generators]}


def test_a_random_map_draws_by_position_epoch_and_seed() -> None:
    source = SequenceDatasetIterator([np.zeros(50, dtype=int)])

    drawn = [
        source.map(jittered, seed=seed, epoch=epoch).read_column("drawn").tolist()
        for seed, epoch in [(1, 0), (1, 1), (2, 0), (0, 1)]
    ]
    by_batch = (
        source.map(jittered_batch, batched=True, seed=np.int64(1)).read_column("drawn").tolist()
    )

    assert len({value for values in drawn for value in values}) == 200
    assert by_batch == drawn[0]


@pytest.mark.parametrize(
    "result",
    [
        [1, 2],
        (np.ones(3), np.ones(4)),
        {"x": np.ones(3), "y": [1]},
        5,
        "abc",
        (np.ones(3), {"nested": 1}),
        None,
        (),
    ],
)
def test_a_batched_function_of_wrong_length_is_named(result: Any) -> None:
    mapped = SequenceDatasetIterator([np.arange(3)]).map(lambda batch: result, batched=True)

    with pytest.raises(ConfigError, match="lambda"):
        mapped.read_batch([0, 1, 2])


def plus(value: Any) -> Any:
    return value + 1


def drawn(value: Any, generator: np.random.Generator) -> Any:
    return [value, generator.integers(1 << 40)]


def drawn_batch(column: Any, generators: list[np.random.Generator]) -> Any:
    return [
        [value, generator.integers(1 << 40)]
        for value, generator in zip(column.tolist(), generators, strict=True)
    ]


@given(
    numbers=st.lists(st.integers(-99, 99), max_size=9),
    data=st.data(),
    batched=st.booleans(),
    seed=st.none() | st.integers(-5, 2**70),
    epoch=st.integers(0, 3),
    kind=st.sampled_from(["tuple", "arrays", "dict"]),
)
def test_each_way_to_a_mapped_column_gives_equal_values(
    numbers: list[int], data: st.DataObject, batched: bool, seed: int | None, epoch: int, kind: str
) -> None:
    columns: list[Any] = [
        numbers,
        [str(number) for number in numbers],
        [np.full((2, 2), number) for number in numbers],
    ]
    source: DatasetIteratorIF = SequenceDatasetIterator(
        [np.array(numbers, int), *columns[1:]] if kind == "arrays" else columns
    )
    key: Any = data.draw(st.sampled_from([0, -3]))
    source, key = (source.as_dict("a", "b", "c"), "a") if kind == "dict" else (source, key)
    by_value, by_column = (plus, plus) if seed is None else (drawn, drawn_batch)

    mapped = source.map(
        by_column if batched else by_value, column=key, batched=batched, seed=seed, epoch=epoch
    )
    of_samples = source.map(
        jittered_batch if batched else jittered, batched=batched, seed=seed or 0, epoch=epoch
    )

    expected = [mapped[i] for i in range(len(numbers))]
    values = [sample["a"] if isinstance(sample, dict) else sample[0] for sample in expected]
    assert as_plain(values if seed is None else [value[0] for value in values]) == [
        n + (seed is None) for n in numbers
    ]
    assert as_plain(
        [list(sample.values() if kind == "dict" else sample)[1:] for sample in expected]
    ) == [[str(n), [[n, n], [n, n]]] for n in numbers]
    for each in (mapped, of_samples):
        expected = [each[i] for i in range(len(numbers))]
        check_all_ways_agree(each, expected, data)
        check_all_ways_agree(pickle.loads(pickle.dumps(each)), expected, data)


def test_the_meta_forgets_what_a_mapped_column_no_longer_is() -> None:
    meta = DatasetMeta(
        class_names=("a", "b"),
        target_kind="label",
        feature_names=("w", "h"),
        column_names=("x", "y", "z"),
    )
    source = InformedDatasetIterator(
        SequenceDatasetIterator([np.ones((2, 2)), [0, 1], [0, 1]]), meta
    )

    def known(iterator: Any) -> Any:
        found = iterator.dataset_meta
        return found.column_names, found.feature_names, found.class_names, found.target_kind

    assert known(source.map(plus, column="z")) == (("x", "y", "z"), ("w", "h"), ("a", "b"), "label")
    assert known(source.map(plus, column="x")) == (("x", "y", "z"), None, ("a", "b"), "label")
    assert known(source.map(plus, column=-2)) == (("x", "y", "z"), ("w", "h"), None, None)
    assert known(source.map(tagged)) == ((), None, ("a", "b"), "label")
