"""What all iterators over columns have in common: samples, batches, columns, processes, threads."""

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
from far_store import FarStorageConnector
from idx_files import write_idx
from process_harness import in_fork
from torch_or_stand_in import torch
from writing import append_all

from data_stack import formats
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MissingFileError,
    StorageError,
    UnpicklableResourceError,
)
from data_stack.formats import (
    CSVDatasetIterator,
    HDF5DatasetIterator,
    NpzDatasetIterator,
    NumpyDatasetIterator,
    TensorsDatasetIterator,
    WebDatasetIterator,
    WebDatasetWriter,
)
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.testing import DatasetIteratorContract
from data_stack.values.digests import sample_digest

N_SAMPLES = 11
FEATURES = np.arange(N_SAMPLES * 3, dtype=np.float32).reshape(N_SAMPLES, 3)
TARGETS = np.arange(N_SAMPLES) % 4 + 0.5
FORMATS = ["npy", "npz", "torch", "hdf5", "csv"]


def make(kind: str, store: StorageConnector) -> DatasetIteratorIF:
    """The same eleven samples ``(features, target, target)`` in any of the formats."""
    if kind == "hdf5":
        with store.create("data.h5") as file, h5py.File(file, "w") as h5:
            h5["features"], h5["targets"] = FEATURES, TARGETS
        return HDF5DatasetIterator(
            store.get_resource("data.h5"), ["features", "targets", "targets"]
        )
    if kind == "npz":
        with store.create("data.npz") as file:
            np.savez_compressed(file, features=FEATURES, targets=TARGETS)
        return NpzDatasetIterator(
            store.get_resource("data.npz"), ["features", "targets", "targets"]
        )
    if kind == "csv":
        lines = (
            ",".join(map(str, [*row.tolist(), target]))
            for row, target in zip(FEATURES, TARGETS, strict=True)
        )
        store.set_resource("data.csv", ["\n".join(lines).encode()])
        return CSVDatasetIterator(
            store.get_resource("data.csv"), header=False, dtype=np.float32, target_dtype=np.float64
        )
    if kind == "torch":
        with store.create("data.pt") as file:
            formats.save_tensors(
                file, {"features": torch.from_numpy(FEATURES), "targets": torch.from_numpy(TARGETS)}
            )
        return TensorsDatasetIterator(
            store.get_resource("data.pt"), ["features", "targets", "targets"]
        )
    for name, array in (("features", FEATURES), ("targets", TARGETS)):
        with store.create(name) as file:
            formats.write_npy(file, array)
    features, targets = store.get_resource("features"), store.get_resource("targets")
    return NumpyDatasetIterator([features, targets, targets])


@pytest.fixture(params=FORMATS)
def iterator(request: pytest.FixtureRequest, store: FileStorageConnector) -> DatasetIteratorIF:
    return make(request.param, store)


@pytest.fixture
def expected(iterator: DatasetIteratorIF) -> list[Any]:
    make_features: Any = torch.tensor if isinstance(iterator, TensorsDatasetIterator) else np.array
    return [
        (make_features(row), float(target), float(target))
        for row, target in zip(FEATURES, TARGETS, strict=True)
    ]


class TestColumns(DatasetIteratorContract):
    """Each format."""


@pytest.mark.parametrize("opened", [True, False])
def test_a_fork_reads_the_same_samples(
    iterator: DatasetIteratorIF, expected: list[Any], opened: bool
) -> None:
    assert not opened or iterator[0]

    assert in_fork(lambda: sample_digest(list(iterator)) == sample_digest(expected)) == 0


def test_columns_of_different_lengths_are_refused(store: FileStorageConnector) -> None:
    for name, length in (("a", 3), ("b", 4)):
        with store.create(name) as file:
            formats.write_npy(file, np.zeros(length))

    with pytest.raises(DatasetFileCorruptError, match="0: 3, 1: 4"):
        len(NumpyDatasetIterator([store.get_resource("a"), store.get_resource("b")]))
    with pytest.raises(ConfigError):
        NumpyDatasetIterator([])


def test_a_resource_closed_too_early_is_not_reported_as_damaged(
    store: FileStorageConnector,
) -> None:
    make("npy", store)

    with store.get_resource("targets") as resource:
        iterator = NumpyDatasetIterator([resource])

    with pytest.raises(StorageError, match="was closed"):
        len(iterator)


def test_a_forked_child_refuses_an_open_file_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        formats.write_npy(file, TARGETS)

    with path.open("rb") as opened:
        iterator = NumpyDatasetIterator([opened])
        assert iterator[3] == (3.5,)

        def read() -> bool:
            with pytest.raises(UnpicklableResourceError):
                iterator[3]
            return True

        assert in_fork(read) == 0
        with pytest.raises(UnpicklableResourceError):
            pickle.dumps(iterator)


# ---------------------------------------------------------------------- paths


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
    append_all(WebDatasetWriter(root / "shards", shardlen=10), ({"y.cls": int(y)} for y in Y))
    os.rename(next((root / "shards").glob("*.tar")), root / "y.tar")
    return root


def values_of(iterator: Any, key: Any) -> list[int]:
    return [int(value) for value in iterator.read_column(key)]


READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "CSVDatasetIterator": ("y.csv", lambda file: values_of(CSVDatasetIterator(file), 1)),
    "read_csv": ("y.csv", lambda file: formats.read_csv(file, {"y": "int64"})["y"].tolist()),
    "NumpyDatasetIterator": (
        "y.npy",
        lambda file: values_of(NumpyDatasetIterator([file, file]), 1),
    ),
    "read_npz": ("y.npz", lambda file: formats.read_npz(file)["y"].tolist()),
    "TensorsDatasetIterator": (
        "y.pt",
        lambda file: values_of(TensorsDatasetIterator(file, [0]), 0),
    ),
    "HDF5DatasetIterator": (
        "y.h5",
        lambda file: values_of(HDF5DatasetIterator(file, {"y": "y"}), "y"),
    ),
    "read_idx": ("y.idx", lambda file: formats.read_idx(file).tolist()),
    "WebDatasetIterator": ("y.tar", lambda file: values_of(WebDatasetIterator(file), "y.cls")),
    "ParquetDataset": ("y.parquet", lambda file: values_of(ParquetDataset(file), "y")),
}
KINDS: dict[str, Callable[[Path, ExitStack], Any]] = {
    "Path": lambda path, stack: path,
    "URL": lambda path, stack: path.as_uri(),
    "resource": lambda path, stack: stack.enter_context(
        FileStorageConnector(path.parent).get_resource(path.name)
    ),
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
def test_a_missing_file_is_a_named_file_not_found_error(folder: Path, reader: str) -> None:
    for path in (folder / "missing.bin", folder / "y.csv" / "below.bin"):
        with pytest.raises(FileNotFoundError, match=path.name) as caught:
            READERS[reader][1](path)
        assert isinstance(caught.value, MissingFileError)
        assert pickle.loads(pickle.dumps(caught.value)).path == caught.value.path


# ---------------------------------------------------------------------- far stores


ROW = 1024  # float32, so 4 KiB
VALUES = np.random.default_rng(4).integers(0, 1 << 30, (2000, ROW)).astype(np.float32)


@pytest.fixture
def far_store(tmp_path: Path) -> FarStorageConnector:
    return FarStorageConnector(tmp_path / "store")


def write_hdf5(file: Any) -> None:
    with h5py.File(file, "w") as root:
        root["samples"] = VALUES


@pytest.mark.parametrize(
    ("write", "opened"),
    [
        (write_hdf5, lambda file: HDF5DatasetIterator(file, ["samples", "samples"])),
        (lambda file: np.save(file, VALUES), lambda file: NumpyDatasetIterator([file, file])),
    ],
)
def test_a_batch_of_a_large_file_is_one_request(
    far_store: FarStorageConnector,
    write: Callable[[Any], object],
    opened: Callable[[Any], DatasetIteratorIF],
) -> None:
    chosen = np.append(np.random.default_rng(64).integers(0, 2000, 64), [5, 5, 1999, 0])
    with far_store.create("x") as file:
        write(file)
    with far_store.get_resource("x") as resource:
        iterator = opened(resource)
        len(iterator)
        far_store.requests.clear()

        first = iterator.read_column(0, chosen)
        n_requests = len(far_store.requests)
        samples = iterator.__getitems__(chosen)

    np.testing.assert_array_equal(first, VALUES[chosen])
    assert n_requests == 1
    samples[-4][0][:] = 0
    np.testing.assert_array_equal(samples[-3][0], VALUES[5])
    np.testing.assert_array_equal(samples[-4][1], VALUES[5])
