"""What is kept of a source serves no other one: stored caches, saved splits and loader states of replaced files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack import formats
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.formats.parquet import ParquetDataset, col
from data_stack.formats.records import Column, RecordReader, RecordWriter
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import FileStorageConnector

Array = npt.NDArray[Any]
N_SAMPLES = 200


def opened(path: Path) -> StreamedResource:
    return FileStorageConnector(path.parent).get_resource(path.name)


def records(folder: Path, values: Array) -> RecordReader:
    with RecordWriter(folder, {"x": Column("array", values.dtype, values.shape[1:])}) as writer:
        writer.extend({"x": values})
    return RecordReader(folder)


def npy(folder: Path, values: Array) -> DatasetIteratorIF:
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", values)
    return formats.NumpyDatasetIterator([opened(folder / "x.npy")])


def hdf5(folder: Path, values: Array) -> DatasetIteratorIF:
    folder.mkdir(parents=True)
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = values
    return formats.HDF5DatasetIterator(opened(folder / "x.h5"), ["x"])


def csv(folder: Path, values: Array) -> DatasetIteratorIF:
    folder.mkdir(parents=True)
    lines = [",".join(map(str, row.astype(int).tolist())) for row in values]
    (folder / "x.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
    return formats.CSVDatasetIterator(opened(folder / "x.csv"), target=None, dtype=values.dtype)


def image_folder(folder: Path, values: Array) -> DatasetIteratorIF:
    images = [np.tile(value.astype(np.uint8), (4, 2)) for value in values]
    formats.write_image_folder(folder, [{"image": image, "class": f"c{number % 3}"} for number, image in enumerate(images)])
    return formats.ImageFolderIterator(folder, decode=values.dtype == np.uint8)


def webdataset(folder: Path, values: Array) -> DatasetIteratorIF:
    with formats.WebDatasetWriter(folder, name="x", shardlen=64) as writer:
        for value in values:
            writer.append({"x.npy": value})
    return formats.WebDatasetIterator(sorted(folder.glob("*.tar")))


def parquet(folder: Path, values: Array) -> DatasetIteratorIF:
    folder.mkdir(parents=True)
    table = pa.table({"a": values[:, 0], "b": values[:, 1]})
    pq.write_table(table, folder / "x.parquet", compression="none", use_dictionary=False, write_statistics=False)
    return ParquetDataset(folder)


SOURCES: list[Callable[[Path, Array], Any]] = [records, npy, hdf5, csv, image_folder, webdataset, parquet]


def numbers() -> Array:
    return np.random.default_rng(0).integers(0, 200, (N_SAMPLES, 2)).astype(np.uint8)


def other_in_the_middle(values: Array) -> Array:
    """Other values at one place, which no look at some samples finds."""
    changed: Array = values.copy()
    changed[N_SAMPLES // 2 + 3] ^= 1
    return changed


@pytest.fixture(params=SOURCES, ids=lambda source: source.__name__)
def source(request: pytest.FixtureRequest) -> Callable[[Path, Array], Any]:
    return request.param  # type: ignore[no-any-return]


def test_the_fingerprint_of_a_source_is_that_of_its_content(source: Callable[[Path, Array], Any], tmp_path: Path) -> None:
    one, same = source(tmp_path / "here" / "data", numbers()), source(tmp_path / "there" / "data", numbers())
    other = source(tmp_path / "other" / "data", other_in_the_middle(numbers()))

    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
    assert one.recipe()["nodes"] == same.recipe()["nodes"]


# ---------------------------------------------------------------------- what decides the samples besides the files


@pytest.fixture
def table(tmp_path: Path) -> Path:
    parquet(tmp_path / "table", numbers())
    return tmp_path / "table"


def test_arguments_of_a_source_belong_to_its_fingerprint(tmp_path: Path, table: Path) -> None:
    csv(tmp_path / "csv", numbers())
    webdataset(tmp_path / "web", numbers())
    image_folder(tmp_path / "images", numbers()[:6])
    shards = sorted((tmp_path / "web").glob("*.tar"))
    text = tmp_path / "csv" / "x.csv"
    iterators = [
        ParquetDataset(table),
        ParquetDataset(table, columns=["a"]),
        ParquetDataset(table, columns=["b"]),
        ParquetDataset(table, filters=col("a") >= 0),
        formats.CSVDatasetIterator(opened(text)),
        formats.CSVDatasetIterator(opened(text), dtype=np.float32),
        formats.CSVDatasetIterator(opened(text), target=0),
        formats.CSVDatasetIterator(opened(text), header=False, skip_lines=1),
        formats.WebDatasetIterator(shards),
        formats.WebDatasetIterator(shards, types={"npy": None}),
        formats.WebDatasetIterator(shards[:-1]),
        formats.ImageFolderIterator(tmp_path / "images"),
        formats.ImageFolderIterator(tmp_path / "images", decode=False),
    ]

    assert len({iterator.fingerprint() for iterator in iterators}) == len(iterators)
