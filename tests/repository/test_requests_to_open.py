"""A ready dataset in a remote store opens by its manifest, and by one copy of what open() reads."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pytest
from mongodb_commands import SentCommands
from PIL import Image
from scripted_s3 import ScriptedS3, key_of
from web_server import Answer, Seen, WebServer

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.dataset.meta import IteratorMeta
from data_stack.formats import (
    CSVDatasetIterator,
    HDF5DatasetIterator,
    ImageFolderIterator,
    NumpyDatasetIterator,
    records,
)
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema
from data_stack.repository.repository import DatasetRepository

SPLITS: Final = ("train", "test", "val")
N_SAMPLES: Final = 32
N_SHARDS: Final = 16


# ---------------------------------------------------------------------- datasets of all formats

# All have random bytes: what a process has read of one test would answer the requests of another.


class Records(DatasetFactory):
    card = DatasetCard("requests-records", "1.0.0")
    splits = SPLITS
    iterator_meta = IteratorMeta("data", "y", "y")
    n_records_per_shard = N_SAMPLES

    def preprocess(self, raw: Any, prepared: Any) -> None:
        for split in self.splits:
            with records.ShardedRecordWriter(
                prepared,
                {"data": "bytes", "y": "i64"},
                prefix=split,
                shardlen=self.n_records_per_shard,
            ) as writer:
                for number in range(N_SAMPLES):
                    writer.append({"data": os.urandom(50), "y": number})

    def open(self, split: str, prepared: Any) -> Any:
        return records.open(prepared, prefix=split)


class RecordsInShards(Records):
    card = DatasetCard("requests-shards", "1.0.0")
    n_records_per_shard = N_SAMPLES // N_SHARDS


class ParquetFiles(DatasetFactory):
    card = DatasetCard("requests-parquet", "1.0.0")
    splits = SPLITS
    iterator_meta = IteratorMeta("x", "y", "y")

    def preprocess(self, raw: Any, prepared: Any) -> None:
        schema = Schema("numbers", [Field("x", np.float64, ()), Field("y", np.int64, ())])
        generator = np.random.default_rng()
        for split in self.splits:
            with ParquetWriter(prepared, schema, prefix=split, rows_per_file=4) as writer:
                for number in range(N_SAMPLES):
                    writer.append({"x": generator.random(), "y": number})

    def open(self, split: str, prepared: Any) -> Any:
        return ParquetDataset(prepared, prefix=split)


class Arrays(DatasetFactory):
    card = DatasetCard("requests-arrays", "1.0.0")
    splits = SPLITS
    iterator_meta = IteratorMeta(0, 1, 1)

    def preprocess(self, raw: Any, prepared: Any) -> None:
        generator = np.random.default_rng()
        for split in self.splits:
            for column in ("x", "y"):
                with prepared.create(f"{split}/{column}.npy") as file:
                    np.save(file, generator.random(N_SAMPLES))

    def open(self, split: str, prepared: Any) -> Any:
        return NumpyDatasetIterator([prepared[f"{split}/{column}.npy"] for column in ("x", "y")])


class Tables(DatasetFactory):
    card = DatasetCard("requests-tables", "1.0.0")
    splits = SPLITS
    iterator_meta = IteratorMeta(0, 1, 1)

    def preprocess(self, raw: Any, prepared: Any) -> None:
        for split in self.splits:
            with prepared.create(f"{split}.csv") as file:
                numbers = np.random.default_rng().integers(0, 1 << 30, (N_SAMPLES, 2))
                np.savetxt(file, numbers, "%d", ",", header="x,y", comments="")

    def open(self, split: str, prepared: Any) -> Any:
        return CSVDatasetIterator(prepared[f"{split}.csv"])


class HDF5Files(DatasetFactory):
    card = DatasetCard("requests-hdf5", "1.0.0")
    splits = SPLITS
    iterator_meta = IteratorMeta(0, 1, 1)

    def preprocess(self, raw: Any, prepared: Any) -> None:
        import h5py

        generator = np.random.default_rng()
        for split in self.splits:
            with prepared.create(f"{split}.h5") as target, h5py.File(target, "w") as file:
                file["x"] = generator.random(N_SAMPLES)
                file["y"] = np.arange(N_SAMPLES)

    def open(self, split: str, prepared: Any) -> Any:
        return HDF5DatasetIterator(prepared[f"{split}.h5"], ["x", "y"])


class Pictures(DatasetFactory):
    card = DatasetCard("requests-pictures", "1.0.0")
    splits = SPLITS

    def preprocess(self, raw: Any, prepared: Any) -> None:
        generator = np.random.default_rng()
        for split in self.splits:
            for number in range(8):
                pixels = generator.integers(0, 255, (4, 4, 3), np.uint8)
                content = io.BytesIO()
                Image.fromarray(pixels).save(content, "png")
                with prepared.create(f"{split}/class{number % 2}/{number}.png") as file:
                    file.write(content.getvalue())

    def open(self, split: str, prepared: Any) -> Any:
        return ImageFolderIterator(prepared, prefix=split)


#: By factory, whether its ``open()`` reads files before the first sample is read.
READS_TO_OPEN: Final[dict[type[DatasetFactory], bool]] = {
    Records: True,
    RecordsInShards: True,
    ParquetFiles: True,
    Arrays: False,
    Tables: False,
    HDF5Files: False,
    Pictures: False,
}


# ---------------------------------------------------------------------- stores that count


class Counted:
    """A remote store, and the requests that arrived there.

    Args:
        url: names the store.
        requests: returns all requests so far, in words.
    """

    def __init__(self, url: str, requests: Callable[[], list[str]]) -> None:
        self.url = url
        self._requests = requests
        self._n_seen = 0

    def behind_cache(self, folder: Path) -> str:
        """The URL of the same store behind a cache."""
        separator = "&" if "?" in self.url else "?"
        return f"{self.url}{separator}cache={folder}"

    def new_requests(self) -> list[str]:
        """The requests since the last call."""
        requests = self._requests()
        new = requests[self._n_seen :]
        self._n_seen = len(requests)
        return new


@pytest.fixture(params=["s3", "mongodb"])
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    if request.param == "s3":
        with ScriptedS3() as server:
            url = f"{server.place()}&anonymous=true"
            yield Counted(
                url,
                lambda: [
                    f"{request.method} {key_of(request) or request.query.get('prefix')}"
                    for request in server.requests
                ],
            )
        return
    with SentCommands() as sent:
        yield Counted(
            request.getfixturevalue("mongodb_uri"),
            lambda: [
                f"{name} {command.get('filter', {}).get('_id', '')}"
                for name, command in zip(sent.names, _without_ends(sent), strict=True)
            ],
        )


def _without_ends(sent: SentCommands) -> list[Any]:
    """The commands that ``SentCommands.names`` names."""
    return [command for command in sent.all if next(iter(command), "") not in ("", "endSessions")]


class PublishedFolder(WebServer):
    """Serves a folder, and lists the requests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        super().__init__()

    def answer(self, seen: Seen) -> Answer:
        path = unquote(seen.path).lstrip("/")
        self.requests.append(f"GET {path}")
        file = self.folder / path
        if not file.is_file():
            return Answer(b"", status=404)
        return Answer(file.read_bytes(), ranges=True, headers={"ETag": '"1"'})


def repository_of(factory: type[DatasetFactory], storage: Any = None) -> DatasetRepository:
    repository = DatasetRepository(storage=storage)
    repository.register(factory.card.name, factory)
    return repository


def expected_files(factory: type[DatasetFactory]) -> list[str]:
    """What is requested of a dataset that is opened for the first time."""
    files = ["manifest.json"]
    if READS_TO_OPEN[factory]:
        files.append("opening@files")
    return files


def names_of_files(requests: list[str]) -> list[str]:
    """The names of the files that requests ask for."""
    return [re.split("[ /]", request)[-1].rstrip("~") for request in requests]


# ---------------------------------------------------------------------- how many requests


@pytest.mark.parametrize("has_cache", [False, True], ids=["direct", "cached"])
@pytest.mark.parametrize("factory", list(READS_TO_OPEN), ids=lambda each: each.card.name)
def test_all_splits_open_by_the_manifest_and_one_more_request(
    factory: type[DatasetFactory], counted: Counted, tmp_path: Path, has_cache: bool
) -> None:
    factory(data_stack.storage_connector_from_url(counted.url)).prepare()
    url = counted.behind_cache(tmp_path / "cache") if has_cache else counted.url
    repository = repository_of(factory, url)
    counted.new_requests()

    splits = repository.load(factory.card.name)

    requests = counted.new_requests()
    assert names_of_files(requests) == expected_files(factory), requests
    repository.load(factory.card.name, "test")
    requests = counted.new_requests()
    assert names_of_files(requests) == ["manifest.json"], requests
    assert all(len(splits[split][0]) >= 2 for split in SPLITS)


def test_lists_and_expressions_of_splits_read_one_manifest(counted: Counted) -> None:
    Records(data_stack.storage_connector_from_url(counted.url)).prepare()
    repository = repository_of(Records, counted.url)
    counted.new_requests()

    fit, check = repository.load("requests-records", ["train[:80%]+test", "train[80%:]"])

    requests = counted.new_requests()
    assert names_of_files(requests) == ["manifest.json", "opening@files"], requests
    assert (len(fit), len(check)) == (26 + N_SAMPLES, 6)


@pytest.mark.parametrize("factory", list(READS_TO_OPEN), ids=lambda each: each.card.name)
def test_a_published_dataset_opens_by_two_requests(
    factory: type[DatasetFactory], tmp_path: Path
) -> None:
    default = data_stack.default_repository()
    default.register(factory.card.name, factory, replace=True)
    data_stack.publish(factory.card.name, tmp_path / "published", storage=tmp_path / "store")
    with PublishedFolder(tmp_path / "published") as server:
        splits = data_stack.load(server.origin)

        expected = ["data_stack.json", *expected_files(factory)[1:]]
        assert names_of_files(server.requests) == expected, server.requests
        assert all(len(splits[split][0]) >= 2 for split in SPLITS)
