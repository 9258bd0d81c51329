"""MongoDBStorageConnector against servers that hang, die, lose their answers, or do not let us in."""

from __future__ import annotations

import hashlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from mongodb_commands import meanwhile
from mongodb_server import MongoDBServer, folder_in_memory
from process_harness import until

from data_stack.exception import DataStackError, StorageError, StorageUnavailableError
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.testing.storage import content

CHUNK_BYTES = 65_536
CONTENT = hashlib.shake_128(b"content").digest(40 * CHUNK_BYTES + 1234)


@pytest.fixture(scope="module")
def server() -> Iterator[MongoDBServer]:
    """One of this module's own, to be killed and frozen."""
    with MongoDBServer(folder=folder_in_memory()) as server:
        yield server


@pytest.fixture
def database(server: MongoDBServer, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "test_" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    yield name
    with server.client() as client:
        client.drop_database(name)


# ---------------------------------------------------------------------- a server that hangs


def test_every_operation_ends_in_time_when_the_server_hangs(server: MongoDBServer, database: str) -> None:
    with MongoDBStorageConnector(server.uri(database), timeout_seconds=1.0, chunk_bytes=CHUNK_BYTES) as connector:
        connector.set_resource("large", CONTENT)
        resource = connector.get_resource("large")
        lease = connector.lease("lease").__enter__()
        operations: list[Callable[[], object]] = [
            lambda: connector.get_resource("large"),
            connector.list_resources,
            lambda: connector.set_resource("small", b"other"),
            lambda: connector.set_resource("large", CONTENT[1:]),
            lambda: connector.delete_resource("large"),
            lambda: resource.read_ranges([(0, 10), (10 * CHUNK_BYTES, 10)]),
            lambda: connector.collect_garbage(0),
        ]

        def attempt(operation: Callable[[], object]) -> float:
            start = time.monotonic()
            with pytest.raises(StorageUnavailableError):
                operation()
            return time.monotonic() - start

        with server.frozen(), ThreadPoolExecutor(len(operations)) as threads:
            seconds = list(threads.map(attempt, operations))
            assert lease.acquire()  # who cannot write a lease works without

        assert max(seconds) < 26
        assert resource.read() == CONTENT  # it is there again
        resource.close()


# ---------------------------------------------------------------------- a server whose answers are lost


LOST: list[dict[str, Any]] = [
    {"closeConnection": True},
    {"errorCode": 91},
    {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out", "errInfo": {"wtimeout": True}}},
    {"writeConcernError": {"code": 91, "errmsg": "shutting down"}},
]


@pytest.mark.parametrize("fault", LOST, ids=["connection closed", "shutting down", "not replicated", "shut down after it"])
def test_a_publication_whose_answer_is_lost_is_told_truly(server: MongoDBServer, database: str, fault: dict[str, Any]) -> None:
    # the driver asks again how a server is that said it is shutting down; a real one would be away meanwhile
    with MongoDBStorageConnector(
        server.uri(database, heartbeatFrequencyMS=500), timeout_seconds=5, chunk_bytes=CHUNK_BYTES
    ) as connector:
        for data in (b"small", CONTENT):
            connector.set_resource("a", b"old")
            server.fail(["findAndModify"], **fault)

            try:
                connector.set_resource("a", data)
                is_told = True
            except StorageError:
                is_told = False

            found = content(connector, "a")
            assert found == data if is_told else found in (b"old", data)
            server.fail(["findAndModify"], times=0)
        connector.set_resource("a", b"old")
        connector.collect_garbage(0)
        assert content(connector, "a") == b"old"


def test_a_publication_of_a_writer_that_is_dead_meanwhile_is_whole(server: MongoDBServer, database: str) -> None:
    with MongoDBStorageConnector(server.uri(database), chunk_bytes=CHUNK_BYTES) as connector:
        connector.set_resource("a", CONTENT)
        server.fail(["findAndModify"], blockConnection=True, blockTimeMS=3000, appName="data_stack")

        # The server has been asked to publish, and has not begun; the writer dies, and others sweep.
        writer = os.fork()
        if writer == 0:
            connector.set_resource("a", iter([CONTENT[1:]]))
            os._exit(0)
        with server.client() as client:
            assert until(lambda: client[database]["data_stack.files"].count_documents({}) == 2)
            operations: list[dict[str, Any]] = [{"$currentOp": {}}, {"$match": {"command.findAndModify": {"$exists": True}}}]
            assert until(lambda: any(client.admin.aggregate(operations)))
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
            connector.collect_garbage()
            before = content(connector, "a")
            assert until(lambda: connector.stat("a").size == len(CONTENT) - 1)

        assert before == CONTENT
        assert content(connector, "a") == CONTENT[1:]


def test_who_cannot_look_after_what_was_published_does_not_say_that_it_was_not(server: MongoDBServer, database: str) -> None:
    with MongoDBStorageConnector(server.uri(database), chunk_bytes=CHUNK_BYTES) as connector:
        connector.set_resource("a", CONTENT)
        fail = partial(server.fail, ["find"], times=100, errorCode=1, appName="data_stack")
        with meanwhile.at("answered", "findAndModify .resources", fail):
            with pytest.raises(StorageUnavailableError, match="published whole"):
                connector.set_resource("a", iter([CONTENT[1:]]))
        server.fail(["find"], times=0)

        assert content(connector, "a") == CONTENT[1:]
        connector.collect_garbage(0)
        assert content(connector, "a") == CONTENT[1:]


# ---------------------------------------------------------------------- a server that does not let us in


def refused(uri: str) -> BaseException:
    """The error of a connector that asks for a resource there."""
    with MongoDBStorageConnector(uri, timeout_seconds=1) as connector:
        with pytest.raises(DataStackError) as raised:
            connector.get_resource("a")
    return raised.value


@pytest.mark.parametrize("login", ["owner:wr0ngpass@", ""], ids=["wrong password", "no password"])
def test_without_the_right_password_there_is_no_entrance(mongodb_with_auth: MongoDBServer, login: str) -> None:
    error = refused(f"mongodb://{login}127.0.0.1:{mongodb_with_auth.port}/x?authSource=admin")

    assert isinstance(error, StorageError)
    assert not isinstance(error, StorageUnavailableError)  # trying again does not help
    assert "wr0ngpass" not in "".join(traceback.format_exception(error))
    assert "user" in str(error)


def test_a_server_of_an_unknown_authority_or_another_name_is_refused(mongodb_with_tls: MongoDBServer) -> None:
    for options in ({"tlsCAFile": mongodb_with_tls.other_ca_file}, {"tlsCAFile": None}, {"host": "localhost"}):
        error = refused(mongodb_with_tls.uri("x", **options))

        assert isinstance(error, StorageError)
        assert "certificate" in str(error).lower()
