"""Batches as samples: full ones, the last one, and batches of batches."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples, check_all_ways_agree

from data_stack.dataset.iterator import DatasetIterator
from data_stack.dataset.iterator.layers.batched import BatchedDatasetIterator
from data_stack.values.stacking import stack_samples


class Huge(DatasetIterator):
    """More samples than 32 bits can count."""

    def __len__(self) -> int:
        return 2**40 + 1

    def __getitem__(self, index: Any) -> Any:
        return index, str(index)


@given(
    n_samples=st.integers(0, 13),
    batch_size=st.integers(1, 6),
    drop_last=st.booleans(),
    kind=st.sampled_from(["tuple", "dict", "ragged", "mixed", "list"]),
    data=st.data(),
)
def test_batches_obey_the_law(n_samples: int, batch_size: int, drop_last: bool, kind: str, data: st.DataObject) -> None:
    samples: list[Any] = [
        {
            "tuple": (i, float(i), np.full(2, i), str(i)),
            "dict": {"a": i, "b": str(i)},
            "ragged": (np.arange(i // 4), i),
            "mixed": (i if i < 6 else str(i), None),
            "list": [i, [i, i]],
        }[kind]
        for i in range(n_samples)
    ]
    expected = [stack_samples(samples[start : start + batch_size]) for start in range(0, n_samples, batch_size)]
    expected = expected[: n_samples // batch_size] if drop_last else expected

    batches = BatchedDatasetIterator(Samples(samples), batch_size, drop_last=drop_last)

    check_all_ways_agree(batches, expected, data)
    check_all_ways_agree(pickle.loads(pickle.dumps(batches)), expected, data)


def test_batches_of_bare_values_are_arrays() -> None:
    batches = BatchedDatasetIterator(Samples([1.5, 2.5, 3.5, 4.5]), 2)

    assert [batch.tolist() for batch in batches] == batches.read_batch([0, 1]).tolist() == [[1.5, 2.5], [3.5, 4.5]]  # type: ignore[union-attr]
    assert batches.read_column(0).tolist() == [1.5, 3.5]


def test_making_batches_reads_nothing_and_keeps_nothing_of_any_number_of_samples() -> None:
    batches = BatchedDatasetIterator(Huge(), 3)

    assert len(batches) == (2**40 + 1 + 2) // 3
    assert batches[-1][0].tolist() == [2**40 - 1, 2**40]
    assert batches[np.array([2**31], dtype=np.uint32)][0][0].tolist() == [3 * 2**31, 3 * 2**31 + 1, 3 * 2**31 + 2]
    assert batches.read_column(0, np.array([2**31 - 1], dtype=np.int32)).tolist() == [
        [3 * 2**31 - 3, 3 * 2**31 - 2, 3 * 2**31 - 1]
    ]
    assert len(pickle.dumps(batches)) < 1000
