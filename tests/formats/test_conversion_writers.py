"""Writers of HDF5, npz and torch files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.numpy_arrays import npz_keys, write_npz
from data_stack.formats.torch_tensors import TensorsDatasetIterator, save_tensors
from data_stack.io.resources import StreamedResource

X = np.arange(12, dtype=np.float32).reshape(4, 3)
LABELS = np.array([3, 1, 2, 0])


# ------------------------------------------------------------------ HDF5


# ------------------------------------------------------------------ npz


def test_npz_is_written_the_same_each_time() -> None:
    files = [io.BytesIO(), io.BytesIO()]

    for file in files:
        write_npz(file, {"x": X, "y/z": LABELS})

    assert files[0].getvalue() == files[1].getvalue()
    files[0].seek(0)
    with np.load(files[0]) as arrays:
        np.testing.assert_array_equal(arrays["x"], X)
        np.testing.assert_array_equal(arrays["y/z"], LABELS)
    assert npz_keys(StreamedResource("x.npz", files[1])) == ["x", "y/z"]
    with pytest.raises(DatasetFileCorruptError):
        npz_keys(StreamedResource("x.npz", io.BytesIO(b"PK nothing")))


# ------------------------------------------------------------------ torch


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
    with pytest.raises(DatasetFileCorruptError, match="has no tensor 's' with rows"):
        len(TensorsDatasetIterator(resource, ["s"]))
