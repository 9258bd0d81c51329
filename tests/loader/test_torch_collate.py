"""Batches as columns for torch's DataLoader: the same tensors as torch's own collate gives, by one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples
from torch.utils.data import DataLoader, default_collate

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    SequenceDatasetIterator,
)
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.loader.torch import TorchDataset, collate


def described(value: Any) -> Any:
    """What must be equal of two collated batches: structure, values, shapes and dtypes; tuples for lists."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.float().tolist() if value.dtype == torch.bfloat16 else value.tolist()
    if isinstance(value, Mapping):
        return {key: described(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(described(item) for item in value)
    return value


def collated(iterator: DatasetIteratorIF, indices: list[int]) -> Any:
    return collate(TorchDataset(iterator).__getitems__(indices))


DTYPES = ["bool", "u1", "u8", "i8", "f2", "f4", "c16"]
COLUMNS: list[Any] = [
    *[np.arange(12).reshape(6, 2).astype(dtype) for dtype in DTYPES],
    *[np.arange(6).astype(dtype) for dtype in DTYPES if dtype != "u8"],  # torch makes no tensor of a list of these
    [1, 2, 3, 4, 5, 2**40],
    [0.5, 1.5, float("inf"), 1e300, 4.0, 5.0],
    [True, False] * 3,
    torch.arange(12, dtype=torch.float32).reshape(6, 2),
    [torch.ones(3, dtype=torch.bfloat16)] * 6,
    ["a", "b", "c", "d", "e", "f"],
    [b"a", b"b", b"c", b"d", b"e", b"f"],
    np.ones((6, 0, 2)),
    [{"x": np.float32(i), "name": str(i)} for i in range(6)],
    [(i, str(i)) for i in range(6)],
]
NAMES = [f"{number}: {getattr(column, 'dtype', type(column[0]).__name__)}" for number, column in enumerate(COLUMNS)]


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
@pytest.mark.parametrize("column", COLUMNS, ids=NAMES)
@pytest.mark.parametrize("form", ["tuple", "dict", "bare"])
def test_tensors_are_those_of_torchs_own_collate(column: Any, form: str) -> None:
    values = [column[i] for i in range(6)]
    samples: list[Any] = values if form == "bare" else [(value, 1) if form == "tuple" else {"v": value} for value in values]
    iterator = SequenceDatasetIterator([column, [1] * 6]) if form == "tuple" else Samples(samples)
    indices = [4, 0, 4, 1]

    batch = collated(iterator, indices)

    wanted = [samples[index] for index in indices]
    expected = default_collate(wanted)
    assert described(batch) == described(expected) == described(collate(wanted))


@given(data=st.data(), n=st.integers(1, 8))
def test_a_loader_gives_the_same_batches_over_any_stack_as_torchs_own_collate_over_its_samples(
    data: st.DataObject, n: int
) -> None:
    source = SequenceDatasetIterator(
        [np.arange(n * 3, dtype=np.float32).reshape(n, 3), list(range(n)), [f"s{i}" for i in range(n)]]
    )
    order = data.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=12))
    stack = CombinedDatasetIterator([DatasetIteratorView(source, order), source[:1], source[:0]])
    if data.draw(st.booleans()):
        stack = stack.as_dict("x", "y", "z").select(*data.draw(st.permutations(["x", "y", "z"])))  # type: ignore[assignment]
    batch_size = data.draw(st.integers(1, 5))

    ours = DataLoader(TorchDataset(stack), batch_size=batch_size, collate_fn=collate)
    torchs: DataLoader[Any] = DataLoader(list(stack), batch_size=batch_size)  # type: ignore[arg-type]  # a dataset by protocol

    assert [described(batch) for batch in ours] == [described(batch) for batch in torchs]


def test_changing_a_batch_in_place_does_not_change_the_dataset() -> None:
    array = np.zeros((4, 2))
    iterator = SequenceDatasetIterator([array, torch.zeros(4)])

    for indices in ([0, 1, 2, 3], [2], [1, 2]):
        for tensor in collated(iterator, indices):
            tensor += 1

    assert array.sum() == 0
    assert iterator.read_column(1).sum() == 0


def test_no_samples_and_samples_that_differ_are_refused() -> None:
    with pytest.raises(ConfigError, match="empty"):
        collate([])
    for samples in ([(1, 2), (1,)], [{"a": 1}, {"b": 1}], [(1, 2), {"a": 1}], [{"a": 1}, (1,)], [(1,), 5]):
        with pytest.raises(ConfigError, match="differ"):
            collate(samples)
        with pytest.raises(ConfigError, match="differ"):
            collated(Samples(samples), [0, 1])


def test_no_positions_give_empty_tensors_and_a_position_outside_is_refused() -> None:
    dataset = TorchDataset(SequenceDatasetIterator([np.ones((3, 2), dtype=np.uint8), ["a", "b", "c"]]))

    numbers, strings = collate(dataset.__getitems__([]))

    assert (numbers.dtype, numbers.shape, strings) == (torch.uint8, (0, 2), [])
    with pytest.raises(DatasetOutOfBoundsError, match="position 3"):
        dataset.__getitems__([0, 3])
