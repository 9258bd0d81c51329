"""What libraries and our formats fetch of a resource in a store that is far away: what they need, together where they can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from far_store import FarStorageConnector

from data_stack.formats import hdf5, numpy_arrays
from data_stack.io.storage_connectors.connector import StorageConnector

ROW = 1024  # float32, so 4 KiB
VALUES = np.random.default_rng(4).integers(0, 1 << 30, (2000, ROW)).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path) -> FarStorageConnector:
    return FarStorageConnector(tmp_path / "store")


def stored(store: StorageConnector, write: Callable[[Any], object], identifier: str = "x") -> None:
    with store.create(identifier) as file:
        write(file)


def write_hdf5(file: Any, values: npt.NDArray[Any] = VALUES, **layout: Any) -> None:
    with h5py.File(file, "w") as root:
        root.create_dataset("train/samples", data=values, **layout)


def indices(n: int = 32, below: int = 2000) -> npt.NDArray[np.int64]:
    return np.random.default_rng(n).integers(0, below, n)


# ---------------------------------------------------------------------- a sample out of a large file


def test_a_batch_out_of_hdf5_is_one_request(store: FarStorageConnector) -> None:
    stored(store, write_hdf5)
    with store.get_resource("x") as resource:
        iterator = hdf5.HDF5DatasetIterator(resource, ["train/samples"])
        len(iterator)
        store.requests.clear()

        (values,) = iterator.read_batch(indices())
        n_requests = len(store.requests)

    np.testing.assert_array_equal(values, VALUES[indices()])
    assert n_requests == 1


# ---------------------------------------------------------------------- our formats


def test_a_batch_out_of_npy_is_one_request_and_repeats_are_separate(store: FarStorageConnector) -> None:
    stored(store, lambda file: np.save(file, VALUES))
    chosen = np.append(indices(64), [5, 5, 1999, 0])
    with store.get_resource("x") as resource:
        iterator = numpy_arrays.NumpyDatasetIterator([resource, resource])
        len(iterator)
        store.requests.clear()

        first, second = iterator.read_batch(chosen)
        n_requests = len(store.requests)
        samples = iterator.__getitems__(chosen)

    np.testing.assert_array_equal(first, VALUES[chosen])
    np.testing.assert_array_equal(second, first)
    assert n_requests == 1
    samples[-4][0][:] = 0
    np.testing.assert_array_equal(samples[-3][0], VALUES[5])
    np.testing.assert_array_equal(samples[-4][1], VALUES[5])
