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

from data_stack.exception import DamagedBlockError, DatasetFileCorruptError, DataStackError
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

CHUNK_BYTES = 65_536
CONTENT = hashlib.shake_128(b"content").digest(5 * CHUNK_BYTES + 1234)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def connector(mongodb_uri: str) -> Iterator[MongoDBStorageConnector]:
    with MongoDBStorageConnector(mongodb_uri, chunk_bytes=CHUNK_BYTES) as connector:
        yield connector


def content(connector: MongoDBStorageConnector, identifier: str) -> bytes:
    with connector.get_resource(identifier) as resource:
        return resource.read()


def documents(mongodb: Database[Any], name: str) -> list[dict[str, Any]]:
    return list(mongodb[f"data_stack.{name}"].find().sort("_id"))


# ---------------------------------------------------------------------- what is written


def test_a_small_resource_is_one_document(connector: MongoDBStorageConnector, mongodb: Database[Any]) -> None:
    before = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)

    connector.set_resource("a/b.txt", b"small")

    (pointer,) = documents(mongodb, "resources")
    assert (pointer["_id"], pointer["length"], pointer["data"]) == ("a/b.txt", 5, b"small")
    assert pointer["sha256"] == hashlib.sha256(b"small").hexdigest()
    assert abs(pointer["modified"] - before) < datetime.timedelta(minutes=1)
    assert "file_id" not in pointer
    assert documents(mongodb, "files") == documents(mongodb, "chunks") == []


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


def assert_indexes(mongodb: Database[Any], bucket: str = "data_stack") -> None:
    chunk_keys = mongodb[f"{bucket}.chunks"].index_information().values()
    file_keys = [index["key"] for index in mongodb[f"{bucket}.files"].index_information().values()]
    assert [index for index in chunk_keys if index["key"] == [("files_id", 1), ("n", 1)] and index.get("unique")]
    assert [("filename", 1), ("uploadDate", 1)] in file_keys


def test_the_indexes_are_made_in_a_bucket_that_another_tool_filled(mongodb_uri: str, mongodb: Database[Any]) -> None:
    file_id = ObjectId()
    mongodb["theirs.chunks"].insert_one({"files_id": file_id, "n": 0, "data": Binary(b"abc")})
    mongodb["theirs.files"].insert_one({"_id": file_id, "length": 3, "chunkSize": 1024, "filename": "x"})

    with MongoDBStorageConnector(mongodb_uri, bucket="theirs") as connector:
        connector.set_resource("a", CONTENT)

    assert_indexes(mongodb, "theirs")
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

Damage = Callable[["Damager"], object]


class Damager:
    """Changes what a hostile or broken writer could change of the resource ``victim``."""

    def __init__(self, mongodb: Database[Any]) -> None:
        self.resources: Any
        self.files: Any
        self.chunks: Any
        self.resources, self.files, self.chunks = (mongodb[f"data_stack.{name}"] for name in ("resources", "files", "chunks"))
        self.file_id = self.resources.find_one({"_id": "victim"})["file_id"]

    def chunk(self, n: int) -> dict[str, Any]:
        return dict(self.chunks.find_one({"files_id": self.file_id, "n": n}))

    def set_chunk(self, number: int, /, **fields: Any) -> None:
        self.chunks.update_one({"files_id": self.file_id, "n": number}, {"$set": fields})

    def drop_chunk(self, n: int) -> None:
        self.chunks.delete_one({"files_id": self.file_id, "n": n})

    def set_pointer(self, **fields: Any) -> None:
        self.resources.update_one({"_id": "victim"}, {"$set": fields})

    def unset_pointer(self, *names: str) -> None:
        self.resources.update_one({"_id": "victim"}, {"$unset": dict.fromkeys(names, "")})

    def flip(self, n: int) -> None:
        data = bytearray(self.chunk(n)["data"])
        data[1000] ^= 1
        self.set_chunk(n, data=Binary(bytes(data)))

    def swap(self, n: int, other: int, *fields: str) -> None:
        one, two = self.chunk(n), self.chunk(other)
        self.set_chunk(n, **{name: two[name] for name in fields})
        self.set_chunk(other, **{name: one[name] for name in fields})


DAMAGED_BLOCKS: list[tuple[int, Damage]] = [
    (2, lambda d: d.drop_chunk(2)),
    (5, lambda d: d.drop_chunk(5)),
    (2, lambda d: d.set_chunk(2, data=d.chunk(2)["data"][:-1])),
    (2, lambda d: d.set_chunk(2, data=bytes(15 << 20))),
    (5, lambda d: d.set_chunk(5, data=d.chunk(5)["data"] + b"x")),
    (2, lambda d: d.flip(2)),
    (1, lambda d: d.swap(1, 3, "data", "digest")),
    (2, lambda d: d.set_chunk(2, data="x" * CHUNK_BYTES)),
    (2, lambda d: d.chunks.update_one({"_id": d.chunk(2)["_id"]}, {"$unset": {"digest": ""}})),
    (2, lambda d: d.set_chunk(2, n="2")),
    (0, lambda d: d.chunks.delete_many({"files_id": d.file_id})),
    (
        2,
        lambda d: d.set_chunk(
            2, **{k: d.chunks.find_one({"n": 2, "files_id": {"$ne": d.file_id}})[k] for k in ("data", "digest")}
        ),
    ),
]

DAMAGED_POINTERS: list[Damage] = [
    lambda d: d.set_pointer(length=1000),
    lambda d: d.set_pointer(length=(1 << 62)),
    lambda d: d.set_pointer(length="1000"),
    lambda d: d.set_pointer(length=True),
    lambda d: d.unset_pointer("length"),
    lambda d: d.set_pointer(chunkSize=0),
    lambda d: d.set_pointer(chunkSize=1 << 40),
    lambda d: d.set_pointer(sha256="0" * 64),
    lambda d: d.set_pointer(sha256=b"0" * 32),
    lambda d: d.set_pointer(file_id={"$ne": None}),
    lambda d: d.set_pointer(file_id=d.resources.find_one({"_id": "other"})["file_id"]),
    lambda d: d.set_pointer(**{k: v for k, v in d.resources.find_one({"_id": "other"}).items() if k != "_id"}),
    lambda d: d.set_pointer(data=b"evil", digest=b"0" * 32),
    lambda d: d.resources.replace_one({"_id": "victim"}, {}),
    lambda d: d.set_pointer(modified="now"),
]


@pytest.fixture
def damager(connector: MongoDBStorageConnector, mongodb: Database[Any]) -> Damager:
    connector.set_resource("victim", CONTENT)
    connector.set_resource("other", CONTENT[::-1])
    return Damager(mongodb)


def test_a_damaged_block_is_named_and_never_read(
    connector: MongoDBStorageConnector, damager: Damager, mongodb: Database[Any]
) -> None:
    tracemalloc.start()
    for block, damage in DAMAGED_BLOCKS:
        damage(Damager(mongodb))

        with connector.get_resource("victim") as resource, pytest.raises(DamagedBlockError) as raised:
            resource.read()
        with pytest.raises(DamagedBlockError) as raised_by_ranges:
            connector.read_ranges("victim", [(block * CHUNK_BYTES + 5, 3)])

        for error in (raised.value, raised_by_ranges.value):
            assert (error.identifier, error.block) == ("victim", block)
        connector.set_resource("victim", CONTENT)
        assert content(connector, "victim") == CONTENT
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 50 << 20
    assert content(connector, "other") == CONTENT[::-1]


def test_a_damaged_pointer_is_an_error_of_ours(
    connector: MongoDBStorageConnector, damager: Damager, mongodb: Database[Any]
) -> None:
    tracemalloc.start()
    for damage in DAMAGED_POINTERS:
        damage(Damager(mongodb))

        for ask in (content, MongoDBStorageConnector.verify_resource):
            with pytest.raises(DataStackError, match="'victim'"):
                ask(connector, "victim")
        connector.set_resource("victim", CONTENT)
        assert content(connector, "victim") == CONTENT
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 50 << 20
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


def test_a_pointer_of_an_earlier_format_is_refused_and_gives_way_to_what_is_stored_again(
    connector: MongoDBStorageConnector, damager: Damager
) -> None:
    damager.set_pointer(format=1, blake3=b"0" * 32)
    damager.unset_pointer("check")

    with pytest.raises(DatasetFileCorruptError, match=r"'format' is 1; this data_stack reads format 2.*Store the resource again"):
        connector.get_resource("victim")
    connector.set_resource("victim", b"again")

    assert content(connector, "victim") == b"again"


def test_what_tools_add_to_documents_is_left_alone(connector: MongoDBStorageConnector, damager: Damager) -> None:
    damager.set_pointer(comment="kept since 2019", tags=["a", {"b": 1}], data=b"evil")
    damager.set_chunk(2, comment="x")
    damager.chunks.insert_one({"files_id": damager.file_id, "n": 6, "data": b"more"})
    damager.files.update_one({"_id": damager.file_id}, {"$set": {"contentType": "x", "aliases": ["y"]}})

    assert content(connector, "victim") == CONTENT
