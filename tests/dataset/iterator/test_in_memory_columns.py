"""What an iterator in memory keeps comes back as it was read, from columns."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import STRUCTURES, VALUES, Listed, check_equal_to_list, exact

from data_stack.dataset.iterator import InMemoryDatasetIterator, SequenceDatasetIterator


def samples_of(structure: str, kinds: list[str], n_samples: int) -> list[Any]:
    return [STRUCTURES[structure]([VALUES[kind](i) for kind in kinds]) for i in range(n_samples)]


@given(data=st.data(), n_samples=st.integers(0, 12), structure=st.sampled_from(list(STRUCTURES)))
def test_samples_in_memory_equal_those_of_a_list(data: st.DataObject, n_samples: int, structure: str) -> None:
    samples = samples_of(structure, data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4)), n_samples)
    indices = data.draw(st.lists(st.integers(-n_samples, n_samples - 1), max_size=6)) if samples else []

    in_memory = InMemoryDatasetIterator(Listed(samples))

    check_equal_to_list(in_memory, samples, indices)
    check_equal_to_list(pickle.loads(pickle.dumps(in_memory)), samples, indices)


def test_many_small_samples_of_arrays_take_little_more_memory_than_their_bytes() -> None:
    n_samples = 50_000
    source = SequenceDatasetIterator([np.arange(n_samples), np.random.rand(n_samples, 2)])
    n_bytes = n_samples * (8 + 16)

    tracemalloc.start()
    in_memory = InMemoryDatasetIterator(source, keep_source=False)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert exact(in_memory[7]) == exact(source[7])
    assert exact(in_memory.read_batch([7, -1])) == exact(source.read_batch([7, -1]))
    assert kept < 1.1 * n_bytes
