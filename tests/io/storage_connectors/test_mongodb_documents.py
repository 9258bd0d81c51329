"""The documents that MongoDBStorageConnector writes, what GridFS's own tools make of them, and what becomes of damaged ones."""

from __future__ import annotations

import datetime
import hashlib
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import gridfs
import pytest
from bson import Binary, Int64, ObjectId
from pymongo.database import Database

from data_stack.exception import DamagedBlockError, DataStackError
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.testing.storage import content

CHUNK_BYTES = 65_536
CONTENT = hashlib.shake_128(b"content").digest(5 * CHUNK_BYTES + 1234)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def connector(mongodb_uri: str) -> Iterator[MongoDBStorageConnector]:
    with MongoDBStorageConnector(mongodb_uri, chunk_bytes=CHUNK_BYTES) as connector:
        yield connector


def documents(mongodb: Database[Any], name: str) -> list[dict[str, Any]]:
    return list(mongodb[f"data_stack.{name}"].find().sort("_id"))


# ---------------------------------------------------------------------- what is written


def test_a_large_resource_is_a_pointer_to_a_file_in_chunks(connector: MongoDBStorageConnector, mongodb: Database[Any]) -> None:
    connector.set_resource("a/b.bin", CONTENT)

    (pointer,) = documents(mongodb, "resources")
    (file,) = documents(mongodb, "files")
    chunks = documents(mongodb, "chunks")
    assert (pointer["length"], pointer["chunkSize"], pointer["sha256"]) == (len(CONTENT), CHUNK_BYTES, SHA256)
    assert pointer["file_id"] == file["_id"]
    assert "data" not in pointer
    assert (file["filename"], file["length"], file["chunkSize"]) == ("a/b.bin", len(CONTENT), CHUNK_BYTES)
    assert isinstance(file["length"], Int64)
    assert isinstance(file["uploadDate"], datetime.datetime)
    assert [(chunk["files_id"], chunk["n"]) for chunk in chunks] == [(file["_id"], n) for n in range(6)]
    assert [len(chunk["data"]) for chunk in chunks] == [CHUNK_BYTES] * 5 + [1234]
    assert [len(chunk["digest"]) for chunk in chunks] == [8] * 6


# ---------------------------------------------------------------------- indexes


def test_the_indexes_are_made_in_a_bucket_that_another_tool_filled(mongodb_uri: str, mongodb: Database[Any]) -> None:
    file_id = ObjectId()
    mongodb["theirs.chunks"].insert_one({"files_id": file_id, "n": 0, "data": Binary(b"abc")})
    mongodb["theirs.files"].insert_one({"_id": file_id, "length": 3, "chunkSize": 1024, "filename": "x"})

    with MongoDBStorageConnector(mongodb_uri, bucket="theirs") as connector:
        connector.set_resource("a", CONTENT)

    chunk_indexes = mongodb["theirs.chunks"].index_information().values()
    assert [index for index in chunk_indexes if index["key"] == [("files_id", 1), ("n", 1)] and index.get("unique")]
    file_keys = [index["key"] for index in mongodb["theirs.files"].index_information().values()]
    assert [("filename", 1), ("uploadDate", 1)] in file_keys
    assert mongodb["theirs.chunks"].find_one({"files_id": file_id}) is not None


# ---------------------------------------------------------------------- GridFS reads ours


def test_gridfs_reads_what_we_wrote(mongodb_uri: str, mongodb: Database[Any]) -> None:
    size = len(CONTENT)
    with MongoDBStorageConnector(mongodb_uri, chunk_bytes=CHUNK_BYTES, inline_bytes=1000) as connector:
        connector.set_resource("a/b.bin", CONTENT)

    bucket = gridfs.GridFSBucket(mongodb, "data_stack")
    with bucket.open_download_stream_by_name("a/b.bin") as file:
        assert file.read() == CONTENT
        file.seek(CHUNK_BYTES - 5)
        assert file.read(10) == CONTENT[CHUNK_BYTES - 5 : CHUNK_BYTES + 5]
    assert [(listed.filename, listed.length) for listed in bucket.find()] == [("a/b.bin", size)]


# ---------------------------------------------------------------------- damage to ours

BLOCK = CONTENT[2 * CHUNK_BYTES : 3 * CHUNK_BYTES]

#: Fields of the third chunk; None of a field removes it, and None alone the chunk.
DAMAGED_CHUNKS: list[dict[str, Any] | None] = [
    None,
    {"data": BLOCK[:-1]},
    {"data": BLOCK + b"x"},
    {"data": bytes(15 << 20)},
    {"data": bytes([BLOCK[0] ^ 1]) + BLOCK[1:]},
    {"data": "x" * CHUNK_BYTES},
    {"digest": None},
    {"n": "2"},
]

DAMAGED_POINTERS: list[dict[str, Any]] = [
    *({"length": length} for length in (1000, 1 << 62, "1000", True, None)),
    *({"chunkSize": length} for length in (0, 1 << 40)),
    *({"sha256": sha256} for sha256 in ("0" * 64, b"0" * 32)),
    {"file_id": {"$ne": None}},
    {"data": b"evil", "digest": b"0" * 32},
    {"modified": "now"},
]


@pytest.fixture
def victim(connector: MongoDBStorageConnector, mongodb: Database[Any]) -> Callable[[], dict[str, Any]]:
    """Stores the resources ``victim`` and ``other``; returns the pointer of the first."""
    connector.set_resource("victim", CONTENT)
    connector.set_resource("other", CONTENT[::-1])
    return lambda: dict(mongodb["data_stack.resources"].find_one({"_id": "victim"}) or {})


def update(collection: Any, query: dict[str, Any], fields: dict[str, Any] | None) -> None:
    if fields is None:
        collection.delete_one(query)
        return
    absent = [name for name, value in fields.items() if value is None]
    given = {name: value for name, value in fields.items() if value is not None}
    collection.update_one(
        query, {**({"$set": given} if given else {}), **({"$unset": dict.fromkeys(absent, "")} if absent else {})}
    )


def test_a_damaged_block_is_named_and_never_read(
    connector: MongoDBStorageConnector, victim: Callable[[], dict[str, Any]], mongodb: Database[Any]
) -> None:
    chunks = mongodb["data_stack.chunks"]
    elsewhere = [
        chunks.find_one({"files_id": victim()["file_id"], "n": 1}),
        chunks.find_one({"files_id": {"$ne": victim()["file_id"]}, "n": 2}),
    ]
    misplaced = [{name: chunk[name] for name in ("data", "digest")} for chunk in elsewhere if chunk is not None]
    tracemalloc.start()
    for damage in [*DAMAGED_CHUNKS, *misplaced]:
        update(chunks, {"files_id": victim()["file_id"], "n": 2}, damage)

        with connector.get_resource("victim") as resource, pytest.raises(DamagedBlockError) as raised:
            resource.read()
        with pytest.raises(DamagedBlockError) as raised_by_ranges:
            connector.read_ranges("victim", [(2 * CHUNK_BYTES + 5, 3)])

        assert {(each.value.identifier, each.value.block) for each in (raised, raised_by_ranges)} == {("victim", 2)}
        connector.set_resource("victim", CONTENT)
        assert content(connector, "victim") == CONTENT
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(misplaced) == 2
    assert peak < 50 << 20


def test_a_damaged_pointer_is_an_error_of_ours(
    connector: MongoDBStorageConnector, victim: Callable[[], dict[str, Any]], mongodb: Database[Any]
) -> None:
    resources = mongodb["data_stack.resources"]
    other = {name: value for name, value in (resources.find_one({"_id": "other"}) or {}).items() if name != "_id"}
    for damage in [*DAMAGED_POINTERS, other, {"file_id": other["file_id"]}]:
        update(resources, {"_id": "victim"}, damage)

        for ask in (content, MongoDBStorageConnector.verify_resource):
            with pytest.raises(DataStackError, match="'victim'"):
                ask(connector, "victim")
        connector.set_resource("victim", CONTENT)
        assert content(connector, "victim") == CONTENT
    assert content(connector, "other") == CONTENT[::-1]


def test_a_damaged_small_resource_is_an_error_of_ours(connector: MongoDBStorageConnector, mongodb: Database[Any]) -> None:
    damaged: list[dict[str, Any]] = [
        {"data": b"evil!"},
        {"data": "small"},
        {"data": None},
        {"length": 1 << 50},
        {"data": b"evil!", "sha256": hashlib.sha256(b"evil!").hexdigest()},
        *({"data": bytes([*b"small"[:i], b"small"[i] ^ 1 << i, *b"small"[i + 1 :]])} for i in range(5)),
    ]
    for fields in damaged:
        connector.set_resource("victim", b"small")
        mongodb["data_stack.resources"].update_one({"_id": "victim"}, {"$set": fields})

        with pytest.raises(DataStackError, match="'victim'"):
            content(connector, "victim")
