"""What MongoDBStorageConnector leaves behind when it is killed, and what it does where a server
hangs, dies or refuses.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import gridfs
import pytest
from bson import Binary, Int64, ObjectId, Regex
from mongodb_commands import kill_at_command, meanwhile
from mongodb_server import MongoDBServer
from process_harness import eventually, exit_status, forked, frozen, run_python, until
from pymongo.database import Database
from sizes import FULL

from data_stack.exception import (
    DataStackError,
    ResourceNotFoundError,
    StorageConflictError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.storage_connectors.connector import Garbage
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.io.storage_connectors.mongodb.garbage import reason_to_delete
from data_stack.testing.storage_connector import content

CHUNK_BYTES = 65_536
OWNER = "from data_stack.io.storage_connectors.owners import this_process; print(this_process())"
NOISE = hashlib.shake_128(b"noise").digest(20 * CHUNK_BYTES)


def version(number: int) -> bytes:
    """A content of its own for each number, of three to four chunks."""
    return b"%08d" % number + NOISE[: 3 * CHUNK_BYTES + number % 1000]


@pytest.fixture
def connector(mongodb_uri: str) -> Iterator[MongoDBStorageConnector]:
    with MongoDBStorageConnector(
        mongodb_uri, chunk_bytes=CHUNK_BYTES, inline_bytes=1000
    ) as connector:
        yield connector


def assert_no_orphans(mongodb: Database[Any]) -> None:
    """All files and chunks belong to a resource, and no record of an upload is left."""
    needed = set(mongodb["data_stack.resources"].distinct("file_id"))
    assert set(mongodb["data_stack.files"].distinct("_id")) == needed
    assert set(mongodb["data_stack.chunks"].distinct("files_id")) == needed
    assert mongodb["data_stack.uploads"].count_documents({}) == 0


# ---------------------------------------------------------------------- leases


def test_only_the_lease_of_a_dead_process_is_garbage(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    dead = run_python("-c", OWNER)[0].strip()

    with connector.lease("live") as lease:
        assert lease.acquire()
        for name, value in (
            ("dead", f"0123 7 {dead}".encode()),
            ("elsewhere", b"0123 7 0123456789ab-1-1"),
            ("malformed", 3),
        ):
            mongodb["data_stack.leases"].insert_one({"_id": name, "value": value})
        promised = connector.collect_garbage(dry_run=True)
        collected = connector.collect_garbage()

        assert promised == collected == [Garbage("lease of dead", None, "its holder is gone")]
        assert sorted(each["_id"] for each in mongodb["data_stack.leases"].find()) == [
            "elsewhere",
            "live",
            "malformed",
        ]
        assert lease.acquire()
    assert connector.collect_garbage(0) == []


# ---------------------------------------------------------------------- moving


def test_what_is_replaced_while_it_is_moved_is_not_moved(
    connector: MongoDBStorageConnector, mongodb_uri: str, mongodb: Database[Any]
) -> None:
    connector.set_resource("a", version(0))
    connector.set_resource("b", version(1))

    with MongoDBStorageConnector(mongodb_uri, inline_bytes=1000) as other:
        with meanwhile(
            "before", "findAndModify .resources", lambda: other.set_resource("a", version(2))
        ):
            with pytest.raises(StorageConflictError, match="replaced while it was moved"):
                connector.move_resource("a", "b")

    assert [content(connector, identifier) for identifier in ("a", "b")] == [version(2), version(1)]
    connector.collect_garbage(0)
    assert [content(connector, identifier) for identifier in ("a", "b")] == [version(2), version(1)]
    assert_no_orphans(mongodb)


# ---------------------------------------------------------------------- killed writers and sweepers


WORKS: dict[str, Callable[[MongoDBStorageConnector], object]] = {
    "storing something new": lambda connector: connector.set_resource("new", iter([version(1)[:90_000], version(1)[90_000:]])),
    "replacing": lambda connector: connector.set_resource("old", version(1)),
    "moving": lambda connector: connector.move_resource("old", "new"),
    "deleting": lambda connector: connector.delete_resource("old"),
    "sweeping": lambda connector: connector.collect_garbage(0),
    "storing something small": lambda connector: connector.set_resource("old", b"small"),
}  # fmt: skip


@pytest.mark.parametrize("moment", ["before", "answered"] if FULL else ["answered"])
@pytest.mark.parametrize("work", WORKS)
def test_a_kill_at_any_command_leaves_nothing_half_done(
    connector: MongoDBStorageConnector, mongodb: Database[Any], work: str, moment: str
) -> None:
    connector.set_resource("kept", version(0))
    number = 0
    while True:
        connector.set_resource("old", version(2))
        connector.set_resource("old", version(3))
        connector.set_resource("old", version(0))

        was_killed = kill_at_command(number, moment, lambda: WORKS[work](connector))

        for identifier in connector.list_resources():
            assert content(connector, identifier) in (version(0), version(1), b"small")
        assert content(connector, "kept") == version(0)
        connector.collect_garbage(0)
        assert content(connector, "kept") == version(0)
        assert_no_orphans(mongodb)
        with contextlib.suppress(ResourceNotFoundError):  # what is deleted already
            WORKS[work](connector)  # the next run heals
        for identifier in connector.list_resources():
            content(connector, identifier)
        if not was_killed:
            break
        with contextlib.suppress(DataStackError):
            connector.delete_resource("new")
        number += 1 if FULL else 3
    assert number >= (1 if "small" in work else 2)


def test_a_beating_upload_of_another_machine_stays(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    connector.set_resource("kept", version(0))
    was_killed = kill_at_command(
        2, "answered", lambda: connector.set_resource("new", (version(1) for _ in range(60)))
    )
    uploads = mongodb["data_stack.uploads"]
    uploads.update_many(
        {}, {"$set": {"owner": "anothermachine-1-1"}, "$currentDate": {"beat": True}}
    )
    n_uploads = uploads.count_documents({})

    while_it_beats = connector.collect_garbage(0)
    uploads.update_many({}, {"$set": {"beat": datetime.datetime(2020, 1, 1)}})
    later = connector.collect_garbage(0)

    assert was_killed
    assert n_uploads > 0
    assert while_it_beats == []
    assert len(later) >= 1
    assert_no_orphans(mongodb)


def test_an_upload_taken_for_dead_is_not_published(
    connector: MongoDBStorageConnector, mongodb_uri: str, mongodb: Database[Any]
) -> None:
    """Nothing was heard of it for long, and it ends just as its chunks are being deleted."""
    connector.set_resource("a", version(0))
    batch = NOISE[:CHUNK_BYTES] * 64  # is sent as soon as it is full
    go_on = threading.Event()

    def source() -> Iterator[bytes]:
        yield batch
        go_on.wait(120)

    threads = ThreadPoolExecutor(1)
    writer = threads.submit(connector.set_resource, "a", source())

    def end_upload() -> None:
        go_on.set()
        threads.shutdown()

    assert until(lambda: mongodb["data_stack.chunks"].count_documents({}) >= 64 + 4)
    silent = {"owner": "elsewhere-1-1", "beat": datetime.datetime(2020, 1, 1)}
    mongodb["data_stack.uploads"].update_many({}, {"$set": silent})
    with MongoDBStorageConnector(mongodb_uri, timeout_seconds=29) as sweeping:
        with meanwhile("before", "delete .chunks", end_upload):
            sweeping.collect_garbage(0)

    assert isinstance(writer.exception(), DataStackError)
    assert content(connector, "a") == version(0)
    connector.collect_garbage(0)
    assert_no_orphans(mongodb)


# ------------------------------------------------------------------- what others keep in the bucket


STRANGE_IDS: list[Any] = [
    ObjectId(), "text", 7, Int64(8), 1.5, {"a": 1}, {}, Binary(b"x"), datetime.datetime(2020, 1, 1), True, None,
]  # fmt: skip


def test_files_of_other_tools_are_left_alone_whatever_their_ids(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    connector.set_resource("a", version(0))
    connector.set_resource("a", version(1))
    bucket = gridfs.GridFSBucket(mongodb, "data_stack")
    bucket.upload_from_stream("theirs", version(2))
    for file_id in STRANGE_IDS:
        mongodb["data_stack.files"].insert_one(
            {"_id": file_id, "length": "1", "chunkSize": {}, "metadata": ["x"]}
        )
        mongodb["data_stack.chunks"].insert_one({"files_id": file_id, "n": 0, "data": b"x"})
    for file_id in (["list"], Regex("a"), {"lonely": 1}, "lonely"):
        mongodb["data_stack.chunks"].insert_one({"files_id": file_id, "n": 0, "data": b"x"})
    n_files = mongodb["data_stack.files"].count_documents({})
    now = datetime.datetime.now(datetime.timezone.utc)
    young, old = ObjectId(), ObjectId.from_datetime(now - datetime.timedelta(days=2))
    mongodb["data_stack.chunks"].insert_many(
        [{"files_id": each, "n": 0, "data": b"x"} for each in (young, old)]
    )

    freed = connector.collect_garbage(0)

    assert len(freed) == 2  # the replaced version, and the old chunks without a file
    assert [
        mongodb["data_stack.chunks"].count_documents({"files_id": each}) for each in (young, old)
    ] == [1, 0]
    assert mongodb["data_stack.files"].count_documents({}) == n_files - 1
    assert bucket.open_download_stream_by_name("theirs").read() == version(2)
    assert content(connector, "a") == version(1)


# -------------------------------------------- servers that hang, die, lose their answers, or refuse


LONG = hashlib.shake_128(b"content").digest(40 * CHUNK_BYTES + 1234)


# ---------------------------------------------------------------------- a server that hangs


def test_every_operation_ends_in_time_when_the_server_hangs(
    mongodb_server: MongoDBServer, mongodb: Database[Any]
) -> None:
    uri = mongodb_server.uri(mongodb.name)
    with MongoDBStorageConnector(uri, chunk_bytes=CHUNK_BYTES) as patient:
        patient.set_resource("large", LONG)
    with MongoDBStorageConnector(uri, timeout_seconds=1.0, chunk_bytes=CHUNK_BYTES) as connector:
        resource = eventually(lambda: connector.get_resource("large"), StorageUnavailableError)
        lease = connector.lease("lease").__enter__()
        operations: list[Callable[[], object]] = [
            lambda: connector.get_resource("large"),
            connector.list_resources,
            lambda: connector.set_resource("small", b"other"),
            lambda: connector.set_resource("large", LONG[1:]),
            lambda: connector.delete_resource("large"),
            lambda: resource.read_ranges([(0, 10), (10 * CHUNK_BYTES, 10)]),
            lambda: connector.collect_garbage(0),
        ]

        def attempt(operation: Callable[[], object]) -> None:
            with pytest.raises(StorageUnavailableError):
                operation()

        with frozen(mongodb_server.pid), ThreadPoolExecutor(len(operations) + 1) as threads:
            leased = threads.submit(lease.acquire)
            list(threads.map(attempt, operations))
            assert leased.result()  # who cannot write a lease works without

        # It is there again.
        assert eventually(lambda: resource.read_at(0, len(LONG)), StorageUnavailableError) == LONG
        resource.close()


# ------------------------------------------------------------------ a server whose answers are lost


LOST: list[dict[str, Any]] = [
    {"closeConnection": True},
    {"errorCode": 91},
    {
        "writeConcernError": {
            "code": 64,
            "errmsg": "waiting for replication timed out",
            "errInfo": {"wtimeout": True},
        }
    },
    {"writeConcernError": {"code": 91, "errmsg": "shutting down"}},
]


@pytest.mark.parametrize(
    "fault",
    LOST,
    ids=["connection closed", "shutting down", "not replicated", "shut down after it"],
)
def test_a_publication_whose_answer_is_lost_is_told_truly(
    mongodb_server: MongoDBServer, mongodb: Database[Any], fault: dict[str, Any]
) -> None:
    # the driver asks again how a server is that said it is shutting down; a real one would be away
    # meanwhile
    with MongoDBStorageConnector(
        mongodb_server.uri(mongodb.name, heartbeatFrequencyMS=500),
        timeout_seconds=5,
        chunk_bytes=CHUNK_BYTES,
    ) as connector:
        for data in (b"small", LONG):
            connector.set_resource("a", b"old")
            mongodb_server.fail(["findAndModify"], **fault)

            try:
                connector.set_resource("a", data)
                is_told = True
            except StorageError:
                is_told = False

            found = content(connector, "a")
            assert found == data if is_told else found in (b"old", data)
            mongodb_server.fail(["findAndModify"], times=0)
        connector.set_resource("a", b"old")
        connector.collect_garbage(0)
        assert content(connector, "a") == b"old"


def test_what_a_dead_writer_published_is_whole(
    mongodb_server: MongoDBServer, mongodb: Database[Any]
) -> None:
    with MongoDBStorageConnector(
        mongodb_server.uri(mongodb.name), chunk_bytes=CHUNK_BYTES
    ) as connector:
        connector.set_resource("a", LONG)
        mongodb_server.fail(
            ["findAndModify"], blockConnection=True, blockTimeMS=3000, appName="data_stack"
        )

        # The server has been asked to publish, and has not begun; the writer dies, and others
        # sweep.
        writer = forked(lambda: connector.set_resource("a", iter([LONG[1:]])))
        with mongodb_server.client() as client:
            operations: list[dict[str, Any]] = [
                {"$currentOp": {}},
                {"$match": {"command.findAndModify": {"$exists": True}}},
            ]

            def is_asked_to_publish() -> bool:
                return any(client.admin.aggregate(operations))

            def is_published() -> bool:
                return connector.stat("a").size == len(LONG) - 1

            assert until(lambda: is_asked_to_publish() or is_published())
            os.kill(writer, signal.SIGKILL)
            exit_status(writer)
            connector.collect_garbage()
            before = content(connector, "a")
            # On a busy machine, the server may have gone on meanwhile.
            was_before_publication = is_asked_to_publish()
            assert until(is_published)

        assert before == LONG or not was_before_publication
        assert content(connector, "a") == LONG[1:]


def test_an_unknown_outcome_is_not_called_a_failure(
    mongodb_server: MongoDBServer, mongodb: Database[Any]
) -> None:
    with MongoDBStorageConnector(
        mongodb_server.uri(mongodb.name), chunk_bytes=CHUNK_BYTES
    ) as connector:
        connector.set_resource("a", LONG)
        fail = partial(mongodb_server.fail, ["find"], times=100, errorCode=1, appName="data_stack")
        with meanwhile("answered", "findAndModify .resources", fail):
            with pytest.raises(StorageUnavailableError, match="published whole"):
                connector.set_resource("a", iter([LONG[1:]]))
        mongodb_server.fail(["find"], times=0)

        assert content(connector, "a") == LONG[1:]
        connector.collect_garbage(0)
        assert content(connector, "a") == LONG[1:]


# ----------------------------------------------------------------- a server that does not let us in


def refused(uri: str, timeout_seconds: float = 60.0) -> BaseException:
    """The error of a connector that asks for a resource there."""
    with MongoDBStorageConnector(uri, timeout_seconds=timeout_seconds) as connector:
        with pytest.raises(DataStackError) as raised:
            connector.get_resource("a")
    return raised.value


@pytest.mark.parametrize("login", ["owner:wr0ngpass@", ""], ids=["wrong password", "no password"])
def test_without_the_right_password_there_is_no_entrance(
    mongodb_with_auth: MongoDBServer, login: str
) -> None:
    error = refused(f"mongodb://{login}127.0.0.1:{mongodb_with_auth.port}/x?authSource=admin")

    assert isinstance(error, StorageError)
    assert not isinstance(error, StorageUnavailableError)  # trying again does not help
    assert "wr0ngpass" not in "".join(traceback.format_exception(error))
    assert "user" in str(error)


def test_a_server_without_a_valid_certificate_is_refused(
    mongodb_with_tls: MongoDBServer,
) -> None:
    for options in (
        {"tlsCAFile": mongodb_with_tls.other_ca_file},
        {"tlsCAFile": None},
        {"host": "localhost"},
    ):
        # The driver tries again until its time is over.
        error = refused(mongodb_with_tls.uri("x", **options), timeout_seconds=2.0)

        assert isinstance(error, StorageError)
        assert "certificate" in str(error).lower()


# ---------------------------------------------------------------------- the decision

NOW = datetime.datetime(2026, 11, 28, 12)
HOUR = datetime.timedelta(hours=1)


def id_of(begun_at: datetime.datetime) -> ObjectId:
    return ObjectId.from_datetime(begun_at)


@pytest.mark.parametrize(
    ("age", "grace_seconds", "is_deleted"),
    [
        (23 * HOUR, 0.0, False),  # chunks of another tool may be an upload
        (25 * HOUR, 0.0, True),
        (25 * HOUR, 86_400.0 * 2, False),
    ],
)
def test_chunks_without_a_file_stay_for_a_day(
    age: datetime.timedelta, grace_seconds: float, is_deleted: bool
) -> None:
    reason = reason_to_delete(
        id_of(NOW - age), None, is_left=False, now=NOW, grace_seconds=grace_seconds
    )

    assert (reason is not None) == is_deleted


def test_chunks_of_a_dead_writer_go_at_once() -> None:
    reason = reason_to_delete(id_of(NOW), None, is_left=True, now=NOW, grace_seconds=3600.0)

    assert reason == "left by a writer that died"


@pytest.mark.parametrize(
    ("metadata", "grace_seconds", "is_deleted"),
    [
        ({}, 3600.0, False),  # its grace period has not begun
        ({}, 0.0, True),
        ({"replaced": NOW - HOUR / 2}, 3600.0, False),
        ({"replaced": NOW - 2 * HOUR}, 3600.0, True),
        ({"replaced": "a text of another tool"}, 3600.0, False),
    ],
)
def test_replaced_files_stay_for_the_grace_period(
    metadata: dict[str, object], grace_seconds: float, is_deleted: bool
) -> None:
    reason = reason_to_delete(
        id_of(NOW), {"metadata": metadata}, is_left=False, now=NOW, grace_seconds=grace_seconds
    )

    assert (reason is not None) == is_deleted
