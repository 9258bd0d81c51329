"""What MongoDBStorageConnector leaves behind when it is killed, and how it is swept while others read and write."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gridfs
import pytest
from bson import Binary, Int64, ObjectId, Regex
from mongodb_commands import kill_at_command, meanwhile
from process_harness import until
from pymongo.database import Database
from sizes import FULL

from data_stack.exception import DataStackError, ResourceChangedError, ResourceNotFoundError, StorageConflictError
from data_stack.io.storage_connectors.connector import Garbage
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.testing.storage import content

CHUNK_BYTES = 65_536
OWNER = "from data_stack.io.storage_connectors.owners import this_process; print(this_process())"
NOISE = hashlib.shake_128(b"noise").digest(20 * CHUNK_BYTES)


def version(number: int) -> bytes:
    """A content of its own for each number, of three to four chunks."""
    return b"%08d" % number + NOISE[: 3 * CHUNK_BYTES + number % 1000]


@pytest.fixture
def connector(mongodb_uri: str) -> Iterator[MongoDBStorageConnector]:
    with MongoDBStorageConnector(mongodb_uri, chunk_bytes=CHUNK_BYTES, inline_bytes=1000) as connector:
        yield connector


def assert_no_orphans(mongodb: Database[Any]) -> None:
    """All files and chunks belong to a resource, and no record of an upload is left."""
    needed = set(mongodb["data_stack.resources"].distinct("file_id"))
    assert set(mongodb["data_stack.files"].distinct("_id")) == needed
    assert set(mongodb["data_stack.chunks"].distinct("files_id")) == needed
    assert mongodb["data_stack.uploads"].count_documents({}) == 0


# ---------------------------------------------------------------------- grace


def test_what_was_replaced_or_deleted_is_swept_once_its_grace_is_over(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    for number in range(3):
        connector.set_resource("replaced", version(number))
    connector.set_resource("deleted", version(3))
    connector.delete_resource("deleted")

    within_grace = connector.collect_garbage()
    freed = connector.collect_garbage(0)

    assert within_grace == []
    assert sorted(garbage.size or 0 for garbage in freed) == [len(version(number)) for number in (0, 1, 3)]
    assert all(garbage.reason for garbage in freed)
    assert content(connector, "replaced") == version(2)
    assert_no_orphans(mongodb)
    assert connector.collect_garbage(0) == []


def test_a_reader_of_what_was_swept_is_told_so(connector: MongoDBStorageConnector) -> None:
    connector.set_resource("a", version(0))
    with connector.get_resource("a") as resource:
        resource.read_at(0, 1)
        connector.set_resource("a", version(1))

        connector.collect_garbage(0)

        with pytest.raises(ResourceChangedError, match="'a'"):
            resource.read_at(3 * CHUNK_BYTES, 5)
    assert content(connector, "a") == version(1)


# ---------------------------------------------------------------------- leases


def test_the_lease_of_a_dead_process_is_garbage_and_that_of_a_live_one_is_not(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    dead = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, text=True, check=True).stdout.strip()

    with connector.lease("live") as lease:
        assert lease.acquire()
        for name, value in (("dead", f"0123 7 {dead}".encode()), ("elsewhere", b"0123 7 0123456789ab-1-1"), ("malformed", 3)):
            mongodb["data_stack.leases"].insert_one({"_id": name, "value": value})
        promised = connector.collect_garbage(dry_run=True)
        collected = connector.collect_garbage()

        assert promised == collected == [Garbage("lease of dead", None, "its holder is gone")]
        assert sorted(each["_id"] for each in mongodb["data_stack.leases"].find()) == ["elsewhere", "live", "malformed"]
        assert lease.acquire()
    assert connector.collect_garbage(0) == []


# ---------------------------------------------------------------------- moving


def test_what_is_replaced_while_it_is_moved_is_not_moved(
    connector: MongoDBStorageConnector, mongodb_uri: str, mongodb: Database[Any]
) -> None:
    connector.set_resource("a", version(0))
    connector.set_resource("b", version(1))

    with MongoDBStorageConnector(mongodb_uri, inline_bytes=1000) as other:
        with meanwhile.at("before", "findAndModify .resources", lambda: other.set_resource("a", version(2))):
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
def test_killed_at_any_command_nothing_is_half_there_and_nothing_stays(
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
        number += 1 if FULL else 2
    assert number >= (1 if "small" in work else 2)


def test_an_upload_of_another_machine_is_left_alone_while_its_heart_beats(
    connector: MongoDBStorageConnector, mongodb: Database[Any]
) -> None:
    connector.set_resource("kept", version(0))
    was_killed = kill_at_command(2, "answered", lambda: connector.set_resource("new", (version(1) for _ in range(60))))
    uploads = mongodb["data_stack.uploads"]
    uploads.update_many({}, {"$set": {"owner": "anothermachine-1-1"}, "$currentDate": {"beat": True}})
    n_uploads = uploads.count_documents({})

    while_it_beats = connector.collect_garbage(0)
    uploads.update_many({}, {"$set": {"beat": datetime.datetime(2020, 1, 1)}})
    later = connector.collect_garbage(0)

    assert was_killed
    assert n_uploads > 0
    assert while_it_beats == []
    assert len(later) >= 1
    assert_no_orphans(mongodb)


def test_an_upload_that_was_taken_for_dead_is_not_published_without_its_chunks(
    connector: MongoDBStorageConnector, mongodb_uri: str, mongodb: Database[Any]
) -> None:
    """Nothing was heard of it for long, and it ends just as its chunks are being deleted."""
    connector.set_resource("a", version(0))
    batch = NOISE[:CHUNK_BYTES] * 64  # is sent as soon as it is full
    go_on = threading.Event()

    def source() -> Iterator[bytes]:
        yield batch
        go_on.wait(30)

    threads = ThreadPoolExecutor(1)
    writer = threads.submit(connector.set_resource, "a", source())

    def end_upload() -> None:
        go_on.set()
        threads.shutdown()

    assert until(lambda: mongodb["data_stack.chunks"].count_documents({}) >= 64 + 4)
    silent = {"owner": "elsewhere-1-1", "beat": datetime.datetime(2020, 1, 1)}
    mongodb["data_stack.uploads"].update_many({}, {"$set": silent})
    with MongoDBStorageConnector(mongodb_uri, timeout_seconds=29) as sweeping:
        with meanwhile.at("before", "delete .chunks", end_upload):
            sweeping.collect_garbage(0)

    assert isinstance(writer.exception(), DataStackError)
    assert content(connector, "a") == version(0)
    connector.collect_garbage(0)
    assert_no_orphans(mongodb)


# ---------------------------------------------------------------------- at the same time


# ---------------------------------------------------------------------- what others keep in the bucket


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
        mongodb["data_stack.files"].insert_one({"_id": file_id, "length": "1", "chunkSize": {}, "metadata": ["x"]})
        mongodb["data_stack.chunks"].insert_one({"files_id": file_id, "n": 0, "data": b"x"})
    for file_id in (["list"], Regex("a"), {"lonely": 1}, "lonely"):
        mongodb["data_stack.chunks"].insert_one({"files_id": file_id, "n": 0, "data": b"x"})
    n_files = mongodb["data_stack.files"].count_documents({})
    now = datetime.datetime.now(datetime.timezone.utc)
    young, old = ObjectId(), ObjectId.from_datetime(now - datetime.timedelta(days=2))
    mongodb["data_stack.chunks"].insert_many([{"files_id": each, "n": 0, "data": b"x"} for each in (young, old)])

    freed = connector.collect_garbage(0)

    assert len(freed) == 2  # the replaced version, and the old chunks without a file
    assert [mongodb["data_stack.chunks"].count_documents({"files_id": each}) for each in (young, old)] == [1, 0]
    assert mongodb["data_stack.files"].count_documents({}) == n_files - 1
    assert bucket.open_download_stream_by_name("theirs").read() == version(2)
    assert content(connector, "a") == version(1)
