"""Batches as samples: full ones, the last one, and batches of batches."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples

from data_stack.dataset.iterator import DatasetIterator, SequenceDatasetIterator
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.layers.batched import BatchedDatasetIterator
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.values.stacking import stack_samples, stack_values, value_of


class Counting(SequenceDatasetIterator):
    """Remembers what it is asked for."""

    def __init__(self, *columns: Any) -> None:
        super().__init__(columns)
        self.requests: list[tuple[Any, list[int]]] = []

    def read_batch(self, indices: Any) -> Any:
        self.requests.append(("batch", np.asarray(indices).tolist()))
        return super().read_batch(indices)

    def read_column(self, key: Any, indices: Any = None) -> Any:
        self.requests.append((key, np.asarray(indices).tolist()))
        return super().read_column(key, indices)


class Huge(DatasetIterator):
    """More samples than 32 bits can count."""

    def __len__(self) -> int:
        return 2**40 + 1

    def __getitem__(self, index: Any) -> Any:
        return index, str(index)


def same(one: Any, other: Any) -> bool:
    """Whether both are of the same types, dtypes, shapes and values."""
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        if not isinstance(other, np.ndarray) or one.dtype != other.dtype or one.shape != other.shape:
            return False
        return all(map(same, one.ravel(), other.ravel())) if one.dtype == object else bool((one == other).all())
    return bool(one == other)


def test_batches_are_consecutive_samples_and_the_last_one_may_be_shorter() -> None:
    source = SequenceDatasetIterator([np.arange(10), np.arange(30).reshape(10, 3), [str(i) for i in range(10)]])

    batches, full = BatchedDatasetIterator(source, 4), BatchedDatasetIterator(source, 4, drop_last=True)

    assert [batch[0].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch[2].tolist() for batch in full] == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]
    assert batches[-1][1].tolist() == [[24, 25, 26], [27, 28, 29]]


@given(
    n_samples=st.integers(0, 13),
    batch_size=st.integers(1, 6),
    drop_last=st.booleans(),
    kind=st.sampled_from(["tuple", "dict", "bare", "text", "ragged", "mixed", "list"]),
    picks=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=6),
)
def test_batches_obey_the_law(n_samples: int, batch_size: int, drop_last: bool, kind: str, picks: list[float]) -> None:
    samples: list[Any] = [
        {
            "tuple": (i, float(i), np.full(2, i), str(i)),
            "dict": {"a": i, "b": str(i)},
            "bare": i,
            "text": str(i),
            "ragged": (np.arange(i // 4), i),
            "mixed": (i if i < 6 else str(i), None),
            "list": [i, [i, i]],
        }[kind]
        for i in range(n_samples)
    ]
    expected = [stack_samples(samples[start : start + batch_size]) for start in range(0, n_samples, batch_size)]
    expected = expected[: n_samples // batch_size] if drop_last else expected

    batches = BatchedDatasetIterator(Samples(samples), batch_size, drop_last=drop_last)

    assert same([batches[i] for i in range(len(batches))], expected)
    assert same(list(batches), expected)
    assert same(list(pickle.loads(pickle.dumps(batches))), expected)
    for indices in ([int(pick * 2 * len(expected)) - len(expected) for pick in picks], range(len(expected))):
        if not expected:
            break
        chosen = [expected[index] for index in indices]
        assert same(batches.__getitems__(indices), chosen)
        assert same(list(batches[list(indices)]), chosen)
        assert same(batches.read_batch(indices), stack_samples(chosen))
        keys = list(expected[0]) if kind == "dict" else [0] if kind in ("bare", "text") else list(range(len(expected[0])))
        for key in keys:
            assert same(batches.read_column(key, indices), stack_values([value_of(batch, key) for batch in chosen]))
        positions = np.array(indices) % len(expected)
        assert same(access_to(batches).columns(keys, positions), [batches.read_column(key, indices) for key in keys])
    for index in (len(expected), -len(expected) - 1):
        with pytest.raises(DatasetOutOfBoundsError):
            batches[index]
        with pytest.raises(DatasetOutOfBoundsError):
            batches.read_column(0, [index])


def test_making_batches_reads_nothing_and_keeps_nothing_of_any_number_of_samples() -> None:
    batches = BatchedDatasetIterator(Huge(), 3)

    assert len(batches) == (2**40 + 1 + 2) // 3
    assert batches[-1][0].tolist() == [2**40 - 1, 2**40]
    assert batches[np.array([2**31], dtype=np.uint32)][0][0].tolist() == [3 * 2**31, 3 * 2**31 + 1, 3 * 2**31 + 2]
    assert batches.read_column(0, np.array([2**31 - 1], dtype=np.int32)).tolist() == [
        [3 * 2**31 - 3, 3 * 2**31 - 2, 3 * 2**31 - 1]
    ]
    assert len(pickle.dumps(batches)) < 1000


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, None, "2"])
def test_a_batch_size_that_is_no_positive_integer_is_refused(batch_size: Any) -> None:
    with pytest.raises(ConfigError, match="batch_size must be"):
        BatchedDatasetIterator(SequenceDatasetIterator([[1]]), batch_size)
