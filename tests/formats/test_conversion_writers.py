"""Writers of HDF5, npz and torch files that never hold a column."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.hdf5 import HDF5DatasetIterator, HDF5Writer
from data_stack.formats.numpy_arrays import npz_keys, write_npz
from data_stack.formats.torch_tensors import TensorsDatasetIterator, save_tensors, write_tensors
from data_stack.io.resources import StreamedResource

X = np.arange(12, dtype=np.float32).reshape(4, 3)
LABELS = np.array([3, 1, 2, 0])


def blocks(array: Any) -> Iterator[Any]:
    yield from np.array_split(array, 3)


# ------------------------------------------------------------------ HDF5


def test_hdf5_is_written_batch_by_batch_and_read_by_position() -> None:
    file = io.BytesIO()

    with HDF5Writer(file, {"a/x": ("float32", (3,)), "text": (str, ()), "flag": (bool, ())}, 4) as writer:
        writer.extend({"a/x": X[:1], "text": ["ü" * 300], "flag": LABELS[:1] > 1})
        writer.extend({"a/x": X[1:], "text": ["", "b", "c"], "flag": LABELS[1:] > 1})

    with h5py.File(file) as root:
        assert root["a/x"].chunks is None
        np.testing.assert_array_equal(root["a/x"][()], X)
    resource = StreamedResource("x.h5", file)
    iterator = HDF5DatasetIterator(resource, {"x": "a/x", "t": "text", "f": "flag"})
    assert iterator[0]["t"] == "ü" * 300
    assert [each["f"] for each in iterator] == [True, False, True, False]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": ("O", ())}, "no counterpart in HDF5"),
        ({"x": ("M8[s]", ())}, "no counterpart in HDF5"),
        ({"a//b": ("i4", ())}, "cannot be the path"),
        ({"a": ("i4", ()), "a/b": ("i4", ())}, "cannot have a dataset 'a/b'"),
    ],
)
def test_columns_that_hdf5_cannot_have_are_refused(columns: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HDF5Writer(io.BytesIO(), columns, 3)


def test_too_many_too_few_and_other_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="5 samples of x, where 4 of x belong"):
        with HDF5Writer(io.BytesIO(), {"x": ("float32", (3,))}, 4) as writer:
            writer.extend({"x": np.zeros((5, 3))})
    with pytest.raises(ValueError, match="have the shape"):
        with HDF5Writer(io.BytesIO(), {"x": ("float32", (3,))}, 4) as writer:
            writer.extend({"x": np.zeros((2, 4))})
    with pytest.raises(ValueError, match="0 samples were written, 4 were announced"):
        with HDF5Writer(io.BytesIO(), {"x": ("float32", (3,))}, 4):
            pass


class FullDisk(io.BytesIO):
    """Has room for some kilobytes."""

    def write(self, data: Any) -> int:
        if self.tell() > 4096:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_full_disk_is_told_as_itself() -> None:
    with pytest.raises(OSError, match="No space left"):
        with HDF5Writer(FullDisk(), {"x": ("float32", (1000,))}, 50) as writer:
            for _ in range(50):
                writer.extend({"x": np.ones((1, 1000), np.float32)})


# ------------------------------------------------------------------ npz


def test_npz_is_written_in_blocks_the_same_each_time() -> None:
    files = [io.BytesIO(), io.BytesIO()]

    for file in files:
        write_npz(file, {"x": blocks(X), "y/z": blocks(LABELS)}, shapes={"x": (4, 3), "y/z": (4,)})

    assert files[0].getvalue() == files[1].getvalue()
    files[0].seek(0)
    with np.load(files[0]) as arrays:
        np.testing.assert_array_equal(arrays["x"], X)
        np.testing.assert_array_equal(arrays["y/z"], LABELS)
    assert npz_keys(StreamedResource("x.npz", files[1])) == ["x", "y/z"]
    with pytest.raises(DatasetFileCorruptError):
        npz_keys(StreamedResource("x.npz", io.BytesIO(b"PK nothing")))


def test_blocks_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="blocks hold 12 elements"):
        write_npz(io.BytesIO(), {"x": blocks(X)}, shapes={"x": (5, 3)})
    with pytest.raises(ValueError, match="blocks hold 4 elements"):
        write_tensors(io.BytesIO(), {"y": blocks(LABELS)}, shapes={"y": (5,)}, dtypes={"y": "int64"})


# ------------------------------------------------------------------ torch


def test_a_dict_of_tensors_is_written_in_blocks_and_read_by_torch() -> None:
    file = io.BytesIO()

    write_tensors(
        file, {"x": blocks(X), "y": blocks(LABELS)}, shapes={"x": (4, 3), "y": (4,)}, dtypes={"x": "float16", "y": "int64"}
    )

    file.seek(0)
    loaded = torch.load(file)
    assert list(loaded) == ["x", "y"]
    assert loaded["x"].dtype == torch.float16
    assert torch.equal(loaded["x"].float(), torch.from_numpy(X))
    assert torch.equal(loaded["y"], torch.from_numpy(LABELS))
    with pytest.raises(ValueError, match="cannot be written"):
        write_tensors(io.BytesIO(), {"x": []}, shapes={"x": (0,)}, dtypes={"x": "complex64"})


@pytest.mark.parametrize(
    "stored", [{"a": torch.from_numpy(X), "n": 3, "s": torch.tensor(1)}, (torch.from_numpy(X),), torch.from_numpy(X)]
)
def test_tensors_of_one_file_are_columns(stored: Any) -> None:
    file = io.BytesIO()
    save_tensors(file, stored)
    resource = StreamedResource("x.pt", file)
    key: Any = "a" if isinstance(stored, dict) else 0

    iterator = TensorsDatasetIterator(resource, {"x": key})

    assert torch.equal(iterator[2]["x"], torch.from_numpy(X)[2])
    with pytest.raises(DatasetFileCorruptError, match="has no tensor 's' with one row a sample"):
        len(TensorsDatasetIterator(resource, ["s"]))


def test_a_file_without_tensors_is_an_error() -> None:
    file = io.BytesIO()
    save_tensors(file, {"a": 3})

    with pytest.raises(DatasetFileCorruptError, match="without tensors"):
        len(TensorsDatasetIterator(StreamedResource("x.pt", file), ["a"]))
