"""Every reader of a format takes a path, an ``os.PathLike``, a resource or an open binary file alike."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch
from far_store import FarStorageConnector

from data_stack.exception import MissingFileError
from data_stack.formats import (
    CSVDatasetIterator,
    HDF5DatasetIterator,
    NumpyDatasetIterator,
    TorchDatasetIterator,
    WebDatasetIterator,
    WebDatasetWriter,
    hdf5,
    numpy_arrays,
    read_csv,
    read_idx,
    read_npz,
    write_idx,
)
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.storage_connectors.connector import StorageConnector

Y = np.arange(6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    (root / "y.csv").write_text("x,y\n" + "".join(f"{i},{i}\n" for i in Y))
    np.save(root / "y.npy", Y)
    np.savez(root / "y.npz", y=Y)
    torch.save(torch.from_numpy(Y), root / "y.pt")
    with h5py.File(root / "y.h5", "w") as file:
        file["y"] = Y
    with (root / "y.idx").open("wb") as stream:
        write_idx(stream, Y.astype("int32"))
    with ParquetWriter(root / "parquet") as writer:
        writer.append_columns({"y": Y})
    os.rename(root / "parquet" / "part-000000.parquet", root / "y.parquet")
    with WebDatasetWriter(root / "shards", shardlen=10) as shards:
        for y in Y:
            shards.append({"y.cls": int(y)})
    os.rename(next((root / "shards").glob("*.tar")), root / "y.tar")
    return root


def values_of(iterator: Any, key: Any) -> list[int]:
    return [int(value) for value in iterator.read_column(key)]


READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "CSVDatasetIterator": ("y.csv", lambda file: values_of(CSVDatasetIterator(file), 1)),
    "read_csv": ("y.csv", lambda file: read_csv(file, {"y": "int64"})["y"].tolist()),
    "NumpyDatasetIterator": ("y.npy", lambda file: values_of(NumpyDatasetIterator([file, file]), 1)),
    "read_npz": ("y.npz", lambda file: read_npz(file)["y"].tolist()),
    "TorchDatasetIterator": ("y.pt", lambda file: values_of(TorchDatasetIterator([file]), 0)),
    "HDF5DatasetIterator": ("y.h5", lambda file: values_of(HDF5DatasetIterator(file, {"y": "y"}), "y")),
    "read_idx": ("y.idx", lambda file: read_idx(file).tolist()),
    "WebDatasetIterator": ("y.tar", lambda file: values_of(WebDatasetIterator(file), "y.cls")),
    "ParquetDataset": ("y.parquet", lambda file: values_of(ParquetDataset(file), "y")),
}
KINDS: dict[str, Callable[[Path, ExitStack], Any]] = {
    "Path": lambda path, stack: path,
    "URL": lambda path, stack: path.as_uri(),
    "resource": lambda path, stack: stack.enter_context(FileStorageConnector(path.parent).get_resource(path.name)),
    "open file": lambda path, stack: stack.enter_context(path.open("rb")),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_all_of_them_give_the_same(folder: Path, stack: ExitStack, reader: str, kind: str) -> None:
    name, read = READERS[reader]

    assert read(KINDS[kind](folder / name, stack)) == Y.tolist()


@pytest.mark.parametrize("reader", READERS)
def test_a_missing_file_is_an_error_that_names_it_and_a_file_not_found_error(folder: Path, reader: str) -> None:
    for path in (folder / "missing.bin", folder / "y.csv" / "below.bin"):
        with pytest.raises(FileNotFoundError, match=path.name) as caught:
            READERS[reader][1](path)
        assert isinstance(caught.value, MissingFileError)
        assert pickle.loads(pickle.dumps(caught.value)).path == caught.value.path


# ---------------------------------------------------------------------- far stores


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
