"""What all iterators over columns have in common: samples, batches, columns, processes, threads."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from sizes import FULL

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetFileCorruptError, StorageError, UnpicklableResourceError
from data_stack.formats.csv import CSVDatasetIterator
from data_stack.formats.hdf5 import HDF5DatasetIterator
from data_stack.formats.numpy_arrays import NpzDatasetIterator, NumpyDatasetIterator, write_npy
from data_stack.formats.torch_tensors import TorchDatasetIterator, write_tensor
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.testing import DatasetIteratorContract

N_SAMPLES = 11
FEATURES = np.arange(N_SAMPLES * 3, dtype=np.float32).reshape(N_SAMPLES, 3)
TARGETS = np.arange(N_SAMPLES) % 4 + 0.5
FORMATS = ["npy", "npz", "torch", "hdf5", "csv"]


def make(kind: str, store: StorageConnector) -> DatasetIteratorIF:
    """The same eleven samples ``(features, target, target)`` in any of the formats."""
    if kind == "hdf5":
        with store.create("data.h5") as file, h5py.File(file, "w") as h5:
            h5["features"], h5["targets"] = FEATURES, TARGETS
        return HDF5DatasetIterator(store.get_resource("data.h5"), ["features", "targets", "targets"])
    if kind == "npz":
        with store.create("data.npz") as file:
            np.savez_compressed(file, features=FEATURES, targets=TARGETS)
        return NpzDatasetIterator(store.get_resource("data.npz"), ["features", "targets", "targets"])
    if kind == "csv":
        lines = (",".join(map(str, [*row.tolist(), target])) for row, target in zip(FEATURES, TARGETS, strict=True))
        store.set_resource("data.csv", ["\n".join(lines).encode()])
        return CSVDatasetIterator(store.get_resource("data.csv"), header=False, dtype=np.float32, target_dtype=np.float64)
    classes: dict[str, Any] = {"npy": NumpyDatasetIterator, "torch": TorchDatasetIterator}
    for name, array in (("features", FEATURES), ("targets", TARGETS)):
        with store.create(name) as file:
            if kind == "torch":
                write_tensor(file, [array], shape=array.shape, dtype=array.dtype)
            else:
                write_npy(file, array)
    features, targets = store.get_resource("features"), store.get_resource("targets")
    iterator: DatasetIteratorIF = classes[kind]([features, targets, targets])
    return iterator


@pytest.fixture
def store(tmp_path: Path) -> FileStorageConnector:
    return FileStorageConnector(tmp_path / "store")


@pytest.fixture(params=FORMATS)
def iterator(request: pytest.FixtureRequest, store: FileStorageConnector) -> DatasetIteratorIF:
    return make(request.param, store)


def as_values(sample: Any) -> tuple[list[float], float, float]:
    features, target, tag = sample
    return features.tolist(), target, tag


EXPECTED = [(FEATURES[i].tolist(), float(TARGETS[i]), float(TARGETS[i])) for i in range(N_SAMPLES)]


class TestColumns(DatasetIteratorContract):
    @pytest.fixture
    def expected(self, iterator: DatasetIteratorIF) -> list[Any]:
        make_features: Any = torch.tensor if isinstance(iterator, TorchDatasetIterator) else np.array
        return [(make_features(row), float(target), float(target)) for row, target in zip(FEATURES, TARGETS, strict=True)]


@pytest.mark.parametrize("key", [-4, "targets"])
def test_an_unknown_column_is_named_in_the_error(iterator: DatasetIteratorIF, key: int | str) -> None:
    with pytest.raises(ConfigError, match="no column"):
        iterator.read_column(key)


@pytest.mark.parametrize(("method", "opened"), [("fork", True), *([("fork", False), ("spawn", True)] if FULL else [])])
def test_another_process_reads_the_same_samples(iterator: DatasetIteratorIF, method: str, opened: bool) -> None:
    if opened:
        iterator[0]

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        samples = pool.submit(list, iterator).result(timeout=50)

    assert [as_values(sample) for sample in samples] == EXPECTED
    sent = pickle.dumps(iterator)
    assert FEATURES[4].tobytes() not in sent
    assert [as_values(sample) for sample in pickle.loads(sent)] == EXPECTED


def test_columns_of_different_lengths_are_refused(store: FileStorageConnector) -> None:
    for name, length in (("a", 3), ("b", 4)):
        with store.create(name) as file:
            write_npy(file, np.zeros(length))

    with pytest.raises(DatasetFileCorruptError, match="0: 3, 1: 4"):
        len(NumpyDatasetIterator([store.get_resource("a"), store.get_resource("b")]))
    with pytest.raises(ConfigError):
        NumpyDatasetIterator([])


def test_a_resource_closed_too_early_is_not_taken_for_a_damaged_one(store: FileStorageConnector) -> None:
    make("npy", store)

    with store.get_resource("targets") as resource:
        iterator = NumpyDatasetIterator([resource])

    with pytest.raises(StorageError, match="was closed"):
        len(iterator)


def test_an_open_file_of_the_parent_is_refused_in_a_forked_child(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        write_npy(file, TARGETS)

    with path.open("rb") as file:
        iterator = NumpyDatasetIterator([file])
        assert iterator[3] == (3.5,)
        child = os.fork()
        if child == 0:
            try:
                iterator[3]
            except UnpicklableResourceError:
                os._exit(0)
            finally:
                os._exit(1)
        with pytest.raises(UnpicklableResourceError):
            pickle.dumps(iterator)

    assert os.waitpid(child, 0)[1] == 0
