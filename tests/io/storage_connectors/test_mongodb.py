"""How MongoDBStorageConnector talks to the server: which commands, how many, for whom; the
documents that it writes.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import gc
import hashlib
import pickle
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import gridfs
import pytest
from bson import Binary, Int64, ObjectId
from mongodb_commands import SentCommands, meanwhile
from process_harness import in_fork, open_handles, until
from pymongo.database import Database

from data_stack.exception import (
    ConfigError,
    DamagedBlockError,
    DataStackError,
    ResourceNotFoundError,
)
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.testing.storage_connector import content

CHUNK_BYTES = 65_536
N_CHUNKS = 60
CONTENT = hashlib.shake_128(b"content").digest((N_CHUNKS - 1) * CHUNK_BYTES + 1234)
FEW = CONTENT[: 5 * CHUNK_BYTES + 1234]


@pytest.fixture
def connector(mongodb_uri: str) -> Iterator[MongoDBStorageConnector]:
    with MongoDBStorageConnector(mongodb_uri, chunk_bytes=CHUNK_BYTES) as connector:
        yield connector


@pytest.fixture
def stored(connector: MongoDBStorageConnector) -> MongoDBStorageConnector:
    """A store with the resources ``large`` and ``small``."""
    connector.set_resource("large", CONTENT)
    connector.set_resource("small", b"small")
    return connector


# ---------------------------------------------------------------------- how many commands


def test_a_small_resource_is_one_command_each_way(
    stored: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    with SentCommands(mongodb.name) as sent:
        stored.set_resource("another", b"small")
        stored.set_resource("another", b"replaced")
        assert content(stored, "another") == b"replaced"
        assert stored.has_resource("another")
        assert stored.stat("another").size == 8

    assert sent.names == ["findAndModify", "findAndModify", "find", "find", "find"]


def test_making_a_connector_contacts_nobody() -> None:
    uri = "mongodb://user:secret@127.0.0.1:1/database?tls=true"

    with SentCommands() as sent:
        connector = MongoDBStorageConnector(uri)
        copy = pickle.loads(pickle.dumps(connector))
        from_url = MongoDBStorageConnector.from_url(
            uri + "&bucket=b&readOnly=true&timeoutSeconds=2"
        )

    assert sent.names == []
    assert repr(copy) == repr(connector)
    assert "bucket=b" in repr(from_url)
    for shown in (repr(connector), repr(from_url), str(connector)):
        assert "secret" not in shown
        assert "user" not in shown


def test_a_batch_of_ranges_is_one_query(
    stored: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    ranges = [(number * 17 % N_CHUNKS * CHUNK_BYTES + 9, 4096) for number in range(32)]

    with stored.get_resource("large") as resource, SentCommands(mongodb.name) as sent:
        parts = resource.read_ranges(ranges)

    assert parts == [CONTENT[offset : offset + size] for offset, size in ranges]
    (command,) = sent.of("find", ".chunks")
    assert len(command["filter"]["n"]["$in"]) == 32
    assert sent.of("getMore") == []


# ---------------------------------------------------------------------- how they are asked for


def test_publishing_is_acknowledged_by_the_majority_and_the_journal(
    stored: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    with SentCommands(mongodb.name) as sent:
        stored.set_resource("small", b"other")
        stored.set_resource("large", CONTENT[1:])
        stored.delete_resource("small")

    publishing = sent.of("findAndModify", ".resources")
    assert len(publishing) == 3
    assert all(command["writeConcern"] == {"w": "majority", "j": True} for command in publishing)
    names = [next(iter(command)) + " " + str(next(iter(command.values()))) for command in sent.all]
    assert names.index("insert data_stack.chunks") < names.index(
        "findAndModify data_stack.resources", 1
    )


def test_read_concern_and_preference_reach_the_server(
    mongodb_auth_uri: str,
) -> None:
    uri = on_replica_set(mongodb_auth_uri)
    for options, mode, level in (
        ("", "primary", "majority"),
        ("&readPreference=nearest&readConcernLevel=local", "nearest", "local"),
    ):
        with MongoDBStorageConnector.from_url(uri + options) as connector:
            connector.set_resource("a", CONTENT)
            with SentCommands() as sent:
                assert content(connector, "a") == CONTENT

        finds = sent.of("find")
        assert len(finds) > 1
        assert {
            command.get("$readPreference", {"mode": "primary"})["mode"] for command in finds
        } == {mode}
        assert {command["readConcern"]["level"] for command in finds} == {level}


def on_replica_set(uri: str) -> str:
    """A connection to all of it: one to a single server asks that, whatever is preferred."""
    return uri.replace("directConnection=true", "replicaSet=rs0")


def test_the_primary_is_asked_for_what_a_secondary_lacks(mongodb_auth_uri: str) -> None:
    with MongoDBStorageConnector(
        on_replica_set(mongodb_auth_uri) + "&readPreference=secondaryPreferred"
    ) as connector:
        asking: list[Callable[[str], object]] = [
            connector.has_resource,
            connector.get_resource,
            connector.stat,
        ]
        for ask in asking:
            with SentCommands() as sent, contextlib.suppress(ResourceNotFoundError):
                ask("a")

            modes = [
                command.get("$readPreference", {"mode": "primary"})["mode"]
                for command in sent.of("find")
            ]
            assert modes == ["secondaryPreferred", "primary"]


def test_deletions_depend_on_acknowledged_reads_alone(
    mongodb_auth_uri: str,
) -> None:
    with MongoDBStorageConnector(
        on_replica_set(mongodb_auth_uri) + "&readPreference=nearest&readConcernLevel=local"
    ) as connector:
        connector.set_resource("a", CONTENT)

        with SentCommands() as sent:
            connector.set_resource("a", CONTENT[1:])
            connector.set_resource("b", CONTENT[1:])
            connector.collect_garbage(0)

    looks = [command for command in sent.all if next(iter(command)) in ("find", "aggregate")]
    assert len(looks) > 5
    assert {command["readConcern"]["level"] for command in looks} == {"majority"}
    assert {command.get("$readPreference", {"mode": "primary"})["mode"] for command in looks} == {
        "primary"
    }


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            {"uri": f"mongodb://user:{rest}"}
            for rest in ("se/cret@host/", "12/cret@localhost", "secret")
        ),
        *({"bucket": bucket} for bucket in ("a$b", "system.x")),
        {"uri": "http://host/"},
        {"database": "a/b"},
        {"timeout_seconds": 0},
        *({name: 1 << 30} for name in ("chunk_bytes", "inline_bytes")),
    ],
    ids=repr,
)
def test_an_invalid_argument_is_refused_without_a_request(
    arguments: dict[str, Any],
) -> None:
    arguments = {"uri": "mongodb://user:secret@127.0.0.1:1/database", **arguments}
    with pytest.raises(ConfigError) as raised:
        MongoDBStorageConnector(**arguments)
    if list(arguments) == ["uri"]:
        with pytest.raises(ConfigError):
            MongoDBStorageConnector.from_url(arguments["uri"])

    assert "cret" not in str(raised.value)


@pytest.mark.parametrize(
    "option",
    ["tlsAllowInvalidCertificates=true", "tlsInsecure=true", "TLSALLOWINVALIDHOSTNAMES=true"],
)
def test_an_unverified_server_has_to_be_asked_for(option: str) -> None:
    with pytest.raises(ConfigError, match="certificate"):
        MongoDBStorageConnector(f"mongodb://127.0.0.1:1/database?tls=true&{option}")
    for make in (MongoDBStorageConnector, MongoDBStorageConnector.from_url):
        with pytest.raises(ConfigError, match="'&'"):
            make(f"mongodb://127.0.0.1:1/database?tls=true;{option}")


@pytest.mark.parametrize(
    "option", ["tls=yes", "tls=1", "tlsCAFiel=/etc/ca.pem", "w=majority&maxPoolSize=many"]
)
def test_an_option_unknown_to_the_driver_is_refused(
    option: str,
) -> None:
    with (
        MongoDBStorageConnector(f"mongodb://127.0.0.1:1/database?{option}") as connector,
        SentCommands() as sent,
    ):
        with pytest.raises(ConfigError, match="options"):
            connector.has_resource("a")

    assert sent.names == []


# ---------------------------------------------------------------------- leases


def test_a_closed_lease_of_a_replica_set_is_free(mongodb_auth_uri: str) -> None:
    with MongoDBStorageConnector(mongodb_auth_uri) as connector:
        for _ in range(3):
            with connector.lease("a") as lease:
                assert lease.acquire()


def test_a_forked_process_does_not_hold_its_parents_lease(
    connector: MongoDBStorageConnector,
) -> None:
    with connector.lease("a") as lease:
        assert lease.acquire()

        exit_code = in_fork(lambda: 10 + lease.acquire())

        assert exit_code == 10
        with connector.lease("a") as other:
            assert not other.acquire()


# ---------------------------------------------------------------------- processes, and what is left


def sockets() -> int:
    return sum(what.startswith("socket:") for what in open_handles().values())


def test_nothing_is_left_after_close(mongodb_uri: str, mongodb_server: Any) -> None:
    with mongodb_server.client() as client:
        client.admin.command("ping")
        gc.collect()
        n_threads, n_sockets = threading.active_count(), sockets()

        with MongoDBStorageConnector(mongodb_uri, chunk_bytes=CHUNK_BYTES) as connector:
            connector.set_resource("a", CONTENT)
            connector.set_resource("b", iter([CONTENT]))
            resource = connector.get_resource("a")
            resource.read(1_000_000)  # in the middle of reading ahead
            resource.close()
            for _ in range(20):
                with connector.get_resource("b") as partly_read:
                    partly_read.read(3 * CHUNK_BYTES)
            with connector.lease("a") as lease:
                lease.acquire()
            connector.collect_garbage(0)
        del resource, partly_read, lease, connector
        gc.collect()

        assert until(lambda: threading.active_count() <= n_threads and sockets() <= n_sockets), (
            threading.enumerate()
        )
        assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0


def test_who_collects_a_forgotten_connector_as_garbage_is_not_touched(mongodb_uri: str) -> None:
    """Before Python 3.12, what changes context variables while another change is interrupted ends
    in a segmentation fault.
    """
    variable = contextvars.ContextVar("variable", default="of nobody")
    seen: list[str] = []

    variable.set("of who collects")
    with meanwhile("before", "endSessions", lambda: seen.append(variable.get())):
        MongoDBStorageConnector(mongodb_uri, timeout_seconds=17).has_resource("a")
        gc.collect()

    assert seen == ["of nobody"]


# ------------------------------------------------------ documents, and what becomes of damaged ones


def documents(mongodb: Database[Any], name: str) -> list[dict[str, Any]]:
    return list(mongodb[f"data_stack.{name}"].find().sort("_id"))


# ---------------------------------------------------------------------- what is written


def test_gridfs_reads_the_file_of_a_large_resource(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    connector.set_resource("a/b.bin", FEW)

    (pointer,) = documents(mongodb, "resources")
    (file,) = documents(mongodb, "files")
    chunks = documents(mongodb, "chunks")
    assert (pointer["length"], pointer["chunkSize"], pointer["sha256"]) == (
        len(FEW),
        CHUNK_BYTES,
        hashlib.sha256(FEW).hexdigest(),
    )
    assert pointer["file_id"] == file["_id"]
    assert "data" not in pointer
    assert (file["filename"], file["length"], file["chunkSize"]) == (
        "a/b.bin",
        len(FEW),
        CHUNK_BYTES,
    )
    assert isinstance(file["length"], Int64)
    assert isinstance(file["uploadDate"], datetime.datetime)
    assert [(chunk["files_id"], chunk["n"]) for chunk in chunks] == [
        (file["_id"], n) for n in range(6)
    ]
    assert [len(chunk["data"]) for chunk in chunks] == [CHUNK_BYTES] * 5 + [1234]
    assert [len(chunk["digest"]) for chunk in chunks] == [8] * 6
    bucket = gridfs.GridFSBucket(mongodb, "data_stack")
    with bucket.open_download_stream_by_name("a/b.bin") as stream:
        assert stream.read() == FEW
        stream.seek(CHUNK_BYTES - 5)
        assert stream.read(10) == FEW[CHUNK_BYTES - 5 : CHUNK_BYTES + 5]
    assert [(listed.filename, listed.length) for listed in bucket.find()] == [("a/b.bin", len(FEW))]


# ---------------------------------------------------------------------- indexes


def test_indexes_are_made_in_the_bucket_of_another_tool(
    mongodb_uri: str, mongodb: Database[Any]
) -> None:
    file_id = ObjectId()
    mongodb["theirs.chunks"].insert_one({"files_id": file_id, "n": 0, "data": Binary(b"abc")})
    mongodb["theirs.files"].insert_one(
        {"_id": file_id, "length": 3, "chunkSize": 1024, "filename": "x"}
    )

    with MongoDBStorageConnector(mongodb_uri, bucket="theirs") as connector:
        connector.set_resource("a", FEW)

    chunk_indexes = mongodb["theirs.chunks"].index_information().values()
    assert [
        index
        for index in chunk_indexes
        if index["key"] == [("files_id", 1), ("n", 1)] and index.get("unique")
    ]
    file_keys = [index["key"] for index in mongodb["theirs.files"].index_information().values()]
    assert [("filename", 1), ("uploadDate", 1)] in file_keys
    assert mongodb["theirs.chunks"].find_one({"files_id": file_id}) is not None


# ---------------------------------------------------------------------- damage to ours

BLOCK = FEW[2 * CHUNK_BYTES : 3 * CHUNK_BYTES]

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
def victim(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> Callable[[], dict[str, Any]]:
    """Stores the resources ``victim`` and ``other``; returns the pointer of the first."""
    connector.set_resource("victim", FEW)
    connector.set_resource("other", FEW[::-1])
    return lambda: dict(mongodb["data_stack.resources"].find_one({"_id": "victim"}) or {})


def update(collection: Any, query: dict[str, Any], fields: dict[str, Any] | None) -> None:
    if fields is None:
        collection.delete_one(query)
        return
    absent = [name for name, value in fields.items() if value is None]
    given = {name: value for name, value in fields.items() if value is not None}
    collection.update_one(
        query,
        {
            **({"$set": given} if given else {}),
            **({"$unset": dict.fromkeys(absent, "")} if absent else {}),
        },
    )


def test_a_damaged_block_is_named_and_never_read(
    connector: MongoDBStorageConnector, victim: Callable[[], dict[str, Any]], mongodb: Database[Any]
) -> None:
    chunks = mongodb["data_stack.chunks"]
    elsewhere = [
        chunks.find_one({"files_id": victim()["file_id"], "n": 1}),
        chunks.find_one({"files_id": {"$ne": victim()["file_id"]}, "n": 2}),
    ]
    misplaced = [
        {name: chunk[name] for name in ("data", "digest")}
        for chunk in elsewhere
        if chunk is not None
    ]
    tracemalloc.start()
    for damage in [*DAMAGED_CHUNKS, *misplaced]:
        update(chunks, {"files_id": victim()["file_id"], "n": 2}, damage)

        with (
            connector.get_resource("victim") as resource,
            pytest.raises(DamagedBlockError) as raised,
        ):
            resource.read()
        with pytest.raises(DamagedBlockError) as raised_by_ranges:
            connector.read_ranges("victim", [(2 * CHUNK_BYTES + 5, 3)])

        assert {
            (each.value.identifier, each.value.block) for each in (raised, raised_by_ranges)
        } == {("victim", 2)}
        connector.set_resource("victim", FEW)
        assert content(connector, "victim") == FEW
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(misplaced) == 2
    assert peak < 50 << 20


def test_a_damaged_pointer_is_an_error_of_ours(
    connector: MongoDBStorageConnector, victim: Callable[[], dict[str, Any]], mongodb: Database[Any]
) -> None:
    resources = mongodb["data_stack.resources"]
    other = {
        name: value
        for name, value in (resources.find_one({"_id": "other"}) or {}).items()
        if name != "_id"
    }
    for damage in [*DAMAGED_POINTERS, other, {"file_id": other["file_id"]}]:
        update(resources, {"_id": "victim"}, damage)

        for ask in (content, MongoDBStorageConnector.verify_resource):
            with pytest.raises(DataStackError, match="'victim'"):
                ask(connector, "victim")
        connector.set_resource("victim", FEW)
        assert content(connector, "victim") == FEW
    assert content(connector, "other") == FEW[::-1]


def test_a_damaged_small_resource_is_an_error_of_ours(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    damaged: list[dict[str, Any]] = [
        {"data": b"evil!"},
        {"data": "small"},
        {"data": None},
        {"length": 1 << 50},
        {"data": b"evil!", "sha256": hashlib.sha256(b"evil!").hexdigest()},
        *(
            {"data": bytes([*b"small"[:i], b"small"[i] ^ 1 << i, *b"small"[i + 1 :]])}
            for i in range(5)
        ),
    ]
    for fields in damaged:
        connector.set_resource("victim", b"small")
        mongodb["data_stack.resources"].update_one({"_id": "victim"}, {"$set": fields})

        with pytest.raises(DataStackError, match="'victim'"):
            content(connector, "victim")
