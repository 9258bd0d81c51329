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
import pytest
import torch

from data_stack.exception import MissingFileError
from data_stack.formats import (
    CSVDatasetIterator,
    HDF5DatasetIterator,
    NumpyDatasetIterator,
    TorchDatasetIterator,
    WebDatasetIterator,
    WebDatasetWriter,
    read_csv,
    read_idx,
    read_npz,
    write_idx,
)
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.storage_connectors import FileStorageConnector

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
