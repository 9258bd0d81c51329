"""Batches of a loader as torch tensors: the same ones, on the same memory, and a state that
look-ahead does not disturb.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from layer_laws import Samples
from loader_batches import rows_and_numbers
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, default_collate

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.loader import Concatenated, Loader
from data_stack.loader.torch import TorchDataset, collate

DEVICES = [None, "meta"]


def indices_of(batches: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in batches]


# ------------------------------------------------------------------ tensors


@pytest.mark.parametrize("kind", ["inline", "threads"])
def test_arrays_become_tensors_on_their_own_memory(kind: Any) -> None:
    seen: list[Any] = []

    def remembered(batch: Any) -> Any:
        seen.append([column.ctypes.data for column in batch])
        return batch

    with Loader(
        rows_and_numbers(),
        16,
        worker_kind=kind,
        workers=int(kind == "threads"),
        transform=remembered,
    ) as loader:
        batches = list(loader.torch())

    assert [[tensor.data_ptr() for tensor in batch] for batch in batches] == seen
    assert {(tensor.dtype, tensor.shape) for tensor in batches[0]} == {
        (torch.float32, (16, 3)),
        (torch.int64, (16,)),
    }


@pytest.mark.parametrize(
    "array",
    [
        np.arange(8)[::-1],
        np.broadcast_to(np.float32(1.5), (8, 2)),
        np.arange(8, dtype=">i4"),
        np.zeros(8, dtype=[("a", "i1"), ("b", "i4")])["b"],
        np.asfortranarray(np.arange(16).reshape(8, 2)),
        np.arange(32).reshape(8, 4)[:, ::2],
        np.array(7),
        np.empty((0, 3), np.int16),
    ],
    ids=["backwards", "read-only", "big-endian", "field", "fortran", "strided", "0-d", "empty"],
)
def test_arrays_of_any_layout_become_tensors(array: Any) -> None:
    values = np.array(array).astype(array.dtype.newbyteorder("="))
    loader = Loader(rows_and_numbers(8), 8, worker_kind="inline", transform=lambda _: array)

    (tensor,) = loader.torch()

    assert isinstance(tensor, torch.Tensor)
    assert (tensor.shape, tensor.tolist()) == (values.shape, values.tolist())
    tensor += 1  # its memory may be written to, and every element is an own one
    assert tensor.tolist() == (values + 1).tolist()


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Sentences:
    tokens: Any
    names: list[str]


class Settings(dict[str, Any]):
    pass


def test_containers_tensors_and_plain_values_stay_as_they_are() -> None:
    made = torch.ones(2, requires_grad=True)
    packed = pack_sequence([torch.ones(2), torch.ones(1)])
    batch = {
        "pair": Pair(np.ones(2), [np.zeros(1), ["a", b"b", None, 1.5]]),
        "sentences": Sentences(np.arange(2), ["x", "y"]),
        "settings": Settings(a=np.bool_(True)),
        "ordered": collections.OrderedDict(b=(np.float64(2.5),)),
        "made": made,
        "packed": packed,
        "dates": np.array(["2020-01-01"], dtype="M8[D]"),
        "strings": np.array(["a", "bc"]),
        "something": test_containers_tensors_and_plain_values_stay_as_they_are,
    }
    loader = Loader(rows_and_numbers(2), 2, worker_kind="inline", transform=lambda _: batch)

    (converted,) = loader.torch()

    assert list(converted) == list(batch)
    assert isinstance(converted["pair"], Pair)
    assert converted["pair"].left.tolist() == [1.0, 1.0]
    assert converted["pair"].right[0].dtype == torch.float64
    assert converted["pair"].right[1] == ["a", b"b", None, 1.5]
    assert isinstance(converted["sentences"], Sentences)
    assert isinstance(converted["sentences"].tokens, torch.Tensor)
    assert converted["sentences"].names == ["x", "y"]
    assert isinstance(batch["sentences"].tokens, np.ndarray)  # type: ignore[attr-defined]  # not changed in place
    assert (type(converted["settings"]), converted["settings"]) == (
        Settings,
        {"a": torch.tensor(True)},
    )
    assert type(converted["ordered"]) is collections.OrderedDict
    assert converted["ordered"]["b"][0].dtype == torch.float64
    assert converted["made"] is made
    assert converted["packed"] is packed
    assert converted["dates"] == [np.datetime64("2020-01-01")]
    assert converted["strings"] == ["a", "bc"]
    assert converted["something"] is batch["something"]


def test_ragged_columns_have_tensors_that_torchs_nested_tensor_takes() -> None:
    rows = [np.arange(length, dtype=np.float32) for length in (3, 0, 2, 1)]
    loader = Loader(
        SequenceDatasetIterator([rows, np.arange(4)]),
        4,
        worker_kind="inline",
        collate=Concatenated(columns=0),
    )

    ((ragged, _),) = loader.torch()

    nested = torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)
    assert [row.tolist() for row in nested.unbind()] == [row.tolist() for row in rows]
    assert [row.tolist() for row in ragged] == [row.tolist() for row in rows]


# ------------------------------------------------------------------ devices


@pytest.mark.parametrize("device", DEVICES)
def test_all_tensors_of_a_batch_are_on_the_device(device: str | None) -> None:
    packed = pack_sequence([torch.ones(2), torch.ones(1)])

    def made(batch: Any) -> Any:
        return {
            "x": batch[0],
            "more": [Pair(torch.ones(1), "name"), packed],
            "y": Sentences(batch[1], ["a"]),
        }

    batches = list(
        Loader(rows_and_numbers(10), 4, worker_kind="inline", transform=made).torch(device=device)
    )

    for batch in batches:
        tensors = [batch["x"], batch["more"][0].left, batch["more"][1].data, batch["y"].tokens]
        assert {tensor.device.type for tensor in tensors} == {device or "cpu"}
        assert isinstance(batch["more"][1], PackedSequence)
        assert (batch["more"][0].right, batch["y"].names) == ("name", ["a"])
    assert [batch["x"].shape for batch in batches] == [(4, 3), (4, 3), (2, 3)]


@pytest.mark.parametrize("device", ["gpu", 1.5, "cuda:99"])
def test_what_is_no_device_is_refused(device: Any) -> None:
    if device == "cuda:99" and torch.cuda.is_available():
        pytest.skip("torch checks the number of a device when it is used")
    with pytest.raises(ConfigError):
        Loader(rows_and_numbers(4), 4).torch(device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
@pytest.mark.parametrize("pin_memory", [False, True])
def test_batches_on_a_gpu_are_whole_while_it_is_busy(pin_memory: bool) -> None:
    iterator = SequenceDatasetIterator(
        [np.random.default_rng(0).random((4096, 4096), np.float32), np.arange(4096)]
    )
    expected = [batch[0].sum(dtype=np.float64) for batch in Loader(iterator, 256, shuffle=True)]
    weights = torch.rand(4096, 4096, device="cuda")
    sums = []

    for images, _ in Loader(iterator, 256, shuffle=True).torch(
        device="cuda", pin_memory=pin_memory
    ):
        for _ in range(20):
            weights = (weights @ weights).tanh()  # a queue of work, in which the sum below waits
        sums.append(images.sum(dtype=torch.float64))
        del images  # its memory must not be used for the next batch before the sum is done

    assert [float(each) for each in sums] == pytest.approx(expected)


# ------------------------------------------------------------------ state


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_taken", [1, 7])
def test_the_state_counts_returned_batches_not_those_read_ahead(
    device: str | None, n_taken: int
) -> None:
    expected = indices_of(
        Loader(rows_and_numbers(), 16, shuffle=True, seed=3, epochs=2, worker_kind="inline")
    )
    loader = Loader(
        rows_and_numbers(), 16, shuffle=True, seed=3, epochs=2, worker_kind="inline"
    ).torch(device=device)
    taking = iter(loader)
    for _ in range(n_taken):
        next(taking)

    state = json.loads(json.dumps(loader.state_dict()))

    plain = Loader(rows_and_numbers(), 16, shuffle=True, epochs=2, worker_kind="inline")
    for again in (plain, plain.torch(device="cpu")):
        again.load_state_dict(state)
        assert indices_of(again) == expected[n_taken:]


@pytest.mark.parametrize(
    "missing",
    [
        [1.5, None],
        [np.float32(1), None],
        [np.ones(2), None],
        [None, True],
        [np.zeros((2, 2)), None],
    ],
)
def test_missing_numbers_are_an_error_with_a_remedy(missing: list[Any]) -> None:
    samples = [{"label": "a", "value": value} for value in missing]
    nested = [{"both": sample} for sample in samples]

    for batches in (
        Loader(samples, 2, worker_kind="inline").torch(),
        DataLoader(TorchDataset(samples), 2, collate_fn=collate),
    ):
        with pytest.raises(
            ConfigError, match=r"column 'value' has samples without a value .*nulls='nan'"
        ):
            next(iter(batches))
    with pytest.raises(ConfigError, match="a column has samples without a value"):
        next(iter(Loader(nested, 2, worker_kind="inline").torch()))


@pytest.mark.parametrize("values", [["a", None], [None, None], [np.datetime64("2020-01-01"), None]])
def test_other_columns_without_a_value_stay_lists(values: list[Any]) -> None:
    (batch,) = Loader(values, 2, worker_kind="inline").torch()

    assert batch == values


# ------------------------------------------------------------------ torch's own loader


@pytest.mark.parametrize("error", [StopIteration, IndexError])
def test_a_function_that_fails_ends_no_loop_of_torchs(error: type[Exception]) -> None:
    def fails_at_three(value: int) -> int:
        if value == 3:
            raise error
        return value

    samples = SequenceDatasetIterator([list(range(10))]).map(fails_at_three, column=0)
    readers: list[Any] = [
        DataLoader(cast(Any, samples), 2, collate_fn=list),
        DataLoader(TorchDataset(samples), 2, collate_fn=collate),
        TorchDataset(samples),
        reversed(TorchDataset(samples)),
        Loader(samples, 10, worker_kind="inline").torch(),
    ]

    for reader in readers:
        with pytest.raises((RuntimeError, IndexError)):
            list(reader)


def described(value: Any) -> Any:
    """What must be equal of two collated batches: structure, values, shapes and dtypes; tuples for
    lists.
    """
    if isinstance(value, torch.Tensor):
        return (
            value.dtype,
            value.shape,
            value.float().tolist() if value.dtype == torch.bfloat16 else value.tolist(),
        )
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
    *[
        np.arange(6).astype(dtype) for dtype in DTYPES if dtype != "u8"
    ],  # torch makes no tensor of a list of these
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
NAMES = [
    f"{number}: {getattr(column, 'dtype', type(column[0]).__name__)}"
    for number, column in enumerate(COLUMNS)
]


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
@pytest.mark.parametrize("column", COLUMNS, ids=NAMES)
@pytest.mark.parametrize("form", ["tuple", "dict", "bare"])
def test_tensors_are_those_of_torchs_own_collate(column: Any, form: str) -> None:
    values = [column[i] for i in range(6)]
    samples: list[Any] = (
        values
        if form == "bare"
        else [(value, 1) if form == "tuple" else {"v": value} for value in values]
    )
    iterator = SequenceDatasetIterator([column, [1] * 6]) if form == "tuple" else Samples(samples)
    indices = [4, 0, 4, 1]

    batch = collated(iterator, indices)

    wanted = [samples[index] for index in indices]
    expected = default_collate(wanted)
    assert described(batch) == described(expected) == described(collate(wanted))


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
    for samples in (
        [(1, 2), (1,)],
        [{"a": 1}, {"b": 1}],
        [(1, 2), {"a": 1}],
        [{"a": 1}, (1,)],
        [(1,), 5],
    ):
        with pytest.raises(ConfigError, match="differ"):
            collate(samples)
        with pytest.raises(ConfigError, match="differ"):
            collated(Samples(samples), [0, 1])


def test_no_positions_give_empty_tensors_and_wrong_ones_an_error() -> None:
    dataset = TorchDataset(
        SequenceDatasetIterator([np.ones((3, 2), dtype=np.uint8), ["a", "b", "c"]])
    )

    numbers, strings = collate(dataset.__getitems__([]))

    assert (numbers.dtype, numbers.shape, strings) == (torch.uint8, (0, 2), [])
    with pytest.raises(DatasetOutOfBoundsError, match="position 3"):
        dataset.__getitems__([0, 3])
