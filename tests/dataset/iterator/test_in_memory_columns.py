"""What an iterator in memory keeps comes back as it was read, from columns."""

from __future__ import annotations

import multiprocessing
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import STRUCTURES, VALUES, Listed, Point, check_equal_to_list, exact

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


def test_parameters_and_tensors_with_gradient_are_kept_as_they_are() -> None:
    samples = [(torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(1)), torch.eye(2).to_sparse())] * 2

    in_memory = InMemoryDatasetIterator(samples)

    assert all(kept is given_ for kept, given_ in zip(in_memory[1], samples[1], strict=True))


def test_rows_of_a_mapped_file_are_read_into_memory(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "rows", dtype=np.int32, mode="w+", shape=(4, 2))
    mapped[:] = np.arange(8).reshape(4, 2)

    in_memory = InMemoryDatasetIterator(SequenceDatasetIterator([mapped]))

    assert type(in_memory[3][0]) is np.ndarray
    assert in_memory[3][0].tolist() == [6, 7]


def test_many_small_samples_take_little_more_memory_than_their_bytes() -> None:
    n_samples = 50_000
    source = SequenceDatasetIterator([range(n_samples), np.random.rand(n_samples, 2)])
    n_bytes = n_samples * (8 + 16)

    tracemalloc.start()
    in_memory = InMemoryDatasetIterator(source, keep_source=False)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(in_memory) == n_samples
    assert kept < 1.1 * n_bytes
    assert peak < 1.6 * n_bytes  # a block of samples is there as objects


@pytest.mark.full
def test_tensors_in_memory_cross_into_a_process_that_has_not_imported_torch() -> None:
    in_memory = InMemoryDatasetIterator([(torch.full((2,), float(i)), i) for i in range(3)])

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        batch = pool.apply(InMemoryDatasetIterator.read_batch, (in_memory, [2, 0]))

    assert exact(batch) == exact((np.array([[2, 2], [0, 0]], dtype=np.float32), np.array([2, 0])))


@pytest.mark.parametrize(
    "samples",
    [
        [(1, 2), (1, 2, 3)],
        [(1, 2), Point(1, 2), (1, 2)],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [{"a": 1}, {np.str_("a"): 1}],
        [1, (1,), [1]],
        [(), ()],
    ],
)
def test_samples_that_differ_in_their_structure_are_kept_as_they_are(samples: list[Any]) -> None:
    check_equal_to_list(InMemoryDatasetIterator(iter(samples)), samples, [1, 0])
