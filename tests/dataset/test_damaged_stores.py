"""A dataset that is found damaged when it is loaded is prepared again, in every store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bson import Binary
from pymongo.database import Database

from data_stack import DatasetCard, DatasetFactory
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import DamagedBlockError, ReadOnlyStorageError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import (
    CachedStorageConnector,
    FileStorageConnector,
    StorageConnector,
)
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector

N = 40_000
SOURCE, PREPARED, MANIFEST = "numbers/1/raw/n.bin", "numbers/1/n.bin", "numbers/1/manifest.json"

Damager = Callable[[str, str], None]
Make = Callable[[Path, Database[Any]], tuple[StorageConnector, Damager]]


def numbers_class(folder: Path) -> type[DatasetFactory]:
    """Numbers of a source in the folder."""
    source = folder / "source.bin"
    source.write_bytes(np.arange(N).tobytes())

    class Numbers(DatasetFactory):
        card = DatasetCard("numbers", "1", license="CC0-1.0")
        sources = (ResourceDefinition("raw/n.bin", source.as_uri()),)
        splits = ("all",)

        def preprocess(self, raw: Any, prepared: Any) -> None:
            with raw["raw/n.bin"] as file, prepared.create("n.bin") as target:
                target.write(file.read())

        def open(self, split: str, prepared: Any) -> Any:
            with prepared["n.bin"] as file:
                return SequenceDatasetIterator([np.frombuffer(file.read(), np.int64)])

    return Numbers


def overwrite(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def in_folder(folder: Path, _: Database[Any]) -> tuple[StorageConnector, Damager]:
    def damage(what: str, identifier: str) -> None:
        path = folder / "store" / identifier
        path.unlink() if what == "lost" else overwrite(path)

    return FileStorageConnector(folder / "store"), damage


def in_objects(folder: Path, _: Database[Any]) -> tuple[StorageConnector, Damager]:
    root = folder / "store" / ".data_stack"

    def damage(what: str, identifier: str) -> None:
        pointer = root / "resources" / f"{identifier}~"
        parts = (
            [path for path in (root / "objects").rglob("*") if path.is_file()]
            if identifier != MANIFEST
            else []
        )
        for path in [pointer] if what == "pointer" or not parts else parts:
            path.unlink() if what == "lost" else overwrite(path)

    return FsspecStorageConnector(f"file://{folder / 'store'}"), damage


def uri_of(mongodb: Database[Any]) -> str:
    mongodb.command("ping")  # for its address
    host, port = mongodb.client.address or ("", 0)
    return f"mongodb://{host}:{port}/{mongodb.name}"


def in_mongodb(_: Path, mongodb: Database[Any]) -> tuple[StorageConnector, Damager]:
    resources, chunks = mongodb["data_stack.resources"], mongodb["data_stack.chunks"]

    def damage(what: str, identifier: str) -> None:
        pointer: Any = resources.find_one({"_id": identifier})
        chunk = {"files_id": pointer.get("file_id"), "n": 1}
        if what == "pointer":
            resources.update_one({"_id": identifier}, {"$set": {"sha256": 5}})
        elif "data" in pointer:
            change: Any = (
                {"$set": {"data": Binary(b"damaged")}}
                if what == "content"
                else {"$unset": {"data": 1}}
            )
            resources.update_one({"_id": identifier}, change)
        elif what == "content":
            chunks.update_one(chunk, {"$set": {"data": Binary(bytes(65_536))}})
        else:
            chunks.delete_one(chunk)

    return MongoDBStorageConnector(uri_of(mongodb), chunk_bytes=65_536, inline_bytes=16_384), damage


def cached(make: Make) -> Make:
    def make_cached(folder: Path, mongodb: Database[Any]) -> tuple[StorageConnector, Damager]:
        remote, damage = make(folder, mongodb)
        return CachedStorageConnector(remote, folder / "cache", fresh_seconds=0), damage

    return make_cached


STORES: dict[str, Make] = {
    "folder": in_folder,
    "objects": in_objects,
    "mongodb": in_mongodb,
    "cached folder": cached(in_folder),
}


@pytest.fixture(params=STORES)
def made(
    request: pytest.FixtureRequest, tmp_path: Path, mongodb: Database[Any]
) -> tuple[StorageConnector, Damager]:
    return STORES[request.param](tmp_path, mongodb)


def without_cache(store: StorageConnector, folder: Path) -> StorageConnector:
    """The store as another machine sees it, with an empty cache."""
    return (
        CachedStorageConnector(store.remote, folder)
        if isinstance(store, CachedStorageConnector)
        else store
    )


@pytest.mark.parametrize("what", ["content", "lost", "pointer"])
@pytest.mark.parametrize(
    "damaged",
    [[PREPARED], [MANIFEST], [PREPARED, SOURCE]],
    ids=["prepared", "manifest", "with source"],
)
def test_it_is_prepared_again_when_it_is_loaded(
    made: tuple[StorageConnector, Damager],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damaged: list[str],
    what: str,
) -> None:
    store, damage = made
    factory = numbers_class(tmp_path)
    factory(store).prepare()

    for identifier in damaged:
        damage(what, identifier)
    with caplog.at_level(logging.WARNING, "data_stack"):
        iterator, _ = factory(without_cache(store, tmp_path / "other cache")).get_dataset_iterator()

    assert [len(iterator), iterator[N - 1][0]] == [N, N - 1]
    if (damaged, what) != ([MANIFEST], "lost"):  # then nothing tells that it was ready
        assert "dataset 'numbers' is prepared again: " in caplog.text
    assert ".;" not in caplog.text
    assert (
        damaged == [MANIFEST]
        or "data-stack copy --deep INTACT_STORE THIS_STORE numbers" in caplog.text
    )
    assert factory(store).verify() == []
    iterator, _ = factory(store).get_dataset_iterator()
    assert iterator[7][0] == 7


def test_damage_in_a_read_only_store_says_what_to_do(
    tmp_path: Path, mongodb: Database[Any], caplog: pytest.LogCaptureFixture
) -> None:
    store, damage = in_mongodb(tmp_path, mongodb)
    factory = numbers_class(tmp_path)
    factory(store).prepare()
    damage("content", PREPARED)

    with pytest.raises(ReadOnlyStorageError) as caught:
        factory(MongoDBStorageConnector(uri_of(mongodb), read_only=True)).get_dataset_iterator()
    with pytest.raises(
        DamagedBlockError, match=r"data-stack prepare NAME --again.*data-stack copy --deep"
    ):
        store.verify_resource(PREPARED)

    assert isinstance(caught.value.__cause__, DamagedBlockError)
    assert "is damaged" in caplog.text
    assert "copy --deep" in caplog.text
