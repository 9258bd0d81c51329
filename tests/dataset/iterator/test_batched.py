"""Batches as samples: full ones, the last one, and batches of batches."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples, check_all_ways_agree

from data_stack.dataset.iterator.layers.batched import BatchedDatasetIterator
from data_stack.values.stacking import stack_samples


@given(
    n_samples=st.integers(0, 13),
    batch_size=st.integers(1, 6),
    drop_last=st.booleans(),
    kind=st.sampled_from(["tuple", "dict", "ragged", "mixed", "list"]),
    data=st.data(),
)
def test_batches_obey_the_law(
    n_samples: int, batch_size: int, drop_last: bool, kind: str, data: st.DataObject
) -> None:
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
    expected = [
        stack_samples(samples[start : start + batch_size])
        for start in range(0, n_samples, batch_size)
    ]
    expected = expected[: n_samples // batch_size] if drop_last else expected

    batches = BatchedDatasetIterator(Samples(samples), batch_size, drop_last=drop_last)

    check_all_ways_agree(batches, expected, data)
    check_all_ways_agree(pickle.loads(pickle.dumps(batches)), expected, data)
