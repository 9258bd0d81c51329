"""What an iterator in memory keeps comes back as it was read, from columns."""

from __future__ import annotations

import multiprocessing
import pickle
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import DatasetIterator, InMemoryDatasetIterator, SequenceDatasetIterator
from data_stack.exception import ConfigError


class Point(NamedTuple):
    x: Any
    y: Any


class Listed(DatasetIterator):
    """The samples of a list, with the defaults of the contract."""

    def __init__(self, samples: list[Any]) -> None:
        self._listed = samples

    def __len__(self) -> int:
        return len(self._listed)

    def __getitem__(self, index: int) -> Any:
        return self._listed[index]


def exact(value: Any) -> Any:
    """What compares equal only for values of the same types all through."""
    if isinstance(value, dict):
        return type(value), [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), [exact(item) for item in value]
    if isinstance(value, torch.Tensor):
        return type(value), value.dtype, tuple(value.shape), repr(value.tolist())
    if isinstance(value, (np.ndarray, np.generic)):
        items = [exact(item) for item in value.ravel().tolist()] if value.dtype == object else repr(value.tolist())
        return type(value), value.dtype, value.shape, items
    return type(value), repr(value)


VALUES: dict[str, Callable[[int], Any]] = {
    "bool": lambda i: i % 2 == 0,
    "int": lambda i: i - 3,
    "large int": lambda i: 2**63 - 1 - i,
    "huge int": lambda i: 2**63 + i,
    "float": lambda i: [0.5, float("nan"), float("inf"), -0.0][i % 4],
    "complex": lambda i: complex(i, -1),
    "none": lambda i: None,
    "str": lambda i: ["", "é", "\ud800", "a\0"][i % 4] * (i % 3),
    "bytes": lambda i: b"\0x" * (i % 3),
    "numpy float32": lambda i: np.float32(i),
    "numpy bool": lambda i: np.bool_(i % 2),
    "numpy float64": lambda i: np.float64(i),
    "datetime": lambda i: np.datetime64("2020-01-01") + i,
    "numpy str": lambda i: np.str_("a" * i),
    "array": lambda i: np.full((2, 3), i, dtype=np.uint8),
    "big-endian array": lambda i: np.arange(3, dtype=">i4") + np.array(i, dtype=">i4"),
    "array of no dimension": lambda i: np.array(i),
    "empty array": lambda i: np.empty((0, 3), dtype=np.float32),
    "array of names": lambda i: np.array(["a", "bc"]),
    "record": lambda i: np.array([(i, 0.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "objects": lambda i: np.array([i, "a", None], dtype=object),
    "ragged": lambda i: np.arange(i % 3),
    "tensor": lambda i: torch.full((2,), float(i)),
    "tensor of no dimension": lambda i: torch.tensor(i),
    "empty tensor": lambda i: torch.empty(0, 2),
    "bfloat16": lambda i: torch.full((2,), i, dtype=torch.bfloat16),
    "bool tensor": lambda i: torch.tensor([i % 2 == 0]),
    "ragged tensor": lambda i: torch.ones(i % 3),
    "list": lambda i: [i, i + 1],
    "nested": lambda i: {"a": (i, [None])},
    "int or none": lambda i: i if i % 3 else None,
    "int or bool": lambda i: i if i < 4 else i % 2 == 0,
    "float, later int": lambda i: float(i) if i < 5 else i,
    "int, later huge": lambda i: i if i < 5 else 2**70,
    "array, later longer": lambda i: np.zeros(2 if i < 5 else 3),
    "tensor, later another dtype": lambda i: torch.zeros(2, dtype=torch.float32 if i < 5 else torch.float64),
    "str, later none": lambda i: "a" if i < 5 else None,
    "none, later str": lambda i: None if i < 5 else "a",
}

STRUCTURES: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "list": list,
    "named tuple": lambda values: Point(values[0], values[-1]),
    "dict": lambda values: {f"column {number}": value for number, value in enumerate(values)},
    "dict with other keys": lambda values: {1: values[0]},
    "ordered dict": lambda values: OrderedDict(a=values[0]),
    "bare": lambda values: values[0],
}


def samples_of(structure: str, kinds: list[str], n_samples: int) -> list[Any]:
    return [STRUCTURES[structure]([VALUES[kind](i) for kind in kinds]) for i in range(n_samples)]


def outcome(read: Callable[..., Any], *arguments: Any) -> Any:
    """What is read, or that samples differ, and how."""
    try:
        return exact(read(*arguments))
    except ConfigError as error:
        return ConfigError, str(error)


def check_equal_to_list(iterator: DatasetIterator, samples: list[Any], indices: list[int]) -> None:
    """The law of every layer."""
    listed = Listed(samples)
    assert len(iterator) == len(samples)
    assert exact([iterator[i] for i in range(len(samples))]) == exact(samples)
    assert exact(list(iterator)) == exact(samples)
    assert exact(iterator.__getitems__(indices)) == exact([samples[i] for i in indices])
    expected = outcome(listed.read_batch, indices)
    assert outcome(iterator.read_batch, indices) == expected
    if expected[0] is ConfigError:
        return
    assert exact(iterator.read_batch([])) == exact(listed.read_batch([]))
    if not samples or not isinstance(samples[0], (tuple, list, dict)):
        return
    for key in samples[0] if isinstance(samples[0], dict) else range(-len(samples[0]), len(samples[0])):
        for some in (None, indices, [], np.arange(len(samples)) % 2 == 0, slice(None, None, -2)):
            assert outcome(iterator.read_column, key, some) == outcome(listed.read_column, key, some)


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
