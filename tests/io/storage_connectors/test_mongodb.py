"""How MongoDBStorageConnector talks to the server: which commands, how many, for whom, and what is left when it is done."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import hashlib
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mongodb_commands import SentCommands, meanwhile
from mongodb_server import MongoDBServer
from process_harness import until
from pymongo.database import Database

from data_stack.exception import ConfigError, ReadOnlyStorageError, ResourceNotFoundError
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.testing.storage import content

CHUNK_BYTES = 65_536
N_CHUNKS = 60
CONTENT = hashlib.shake_128(b"content").digest((N_CHUNKS - 1) * CHUNK_BYTES + 1234)


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


def test_a_small_resource_is_one_command_each_way(stored: MongoDBStorageConnector, mongodb: Database[Any]) -> None:
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
        from_url = MongoDBStorageConnector.from_url(uri + "&bucket=b&readOnly=true&timeoutSeconds=2")

    assert sent.names == []
    assert repr(copy) == repr(connector)
    assert "bucket=b" in repr(from_url)
    for shown in (repr(connector), repr(from_url), str(connector)):
        assert "secret" not in shown
        assert "user" not in shown


def test_a_batch_of_ranges_is_one_query(stored: MongoDBStorageConnector, mongodb: Database[Any]) -> None:
    ranges = [(number * 17 % N_CHUNKS * CHUNK_BYTES + 9, 4096) for number in range(32)]

    with stored.get_resource("large") as resource, SentCommands(mongodb.name) as sent:
        parts = resource.read_ranges(ranges)

    assert parts == [CONTENT[offset : offset + size] for offset, size in ranges]
    (command,) = sent.of("find", ".chunks")
    assert len(command["filter"]["n"]["$in"]) == 32
    assert sent.of("getMore") == []


# ---------------------------------------------------------------------- how they are asked for


def test_what_is_published_is_acknowledged_by_the_majority_and_the_journal(
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
    assert names.index("insert data_stack.chunks") < names.index("findAndModify data_stack.resources", 1)


def test_read_concern_and_preference_of_the_connection_string_reach_the_server(
    mongodb_with_auth: MongoDBServer, mongodb_auth_uri: str
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
        assert {command.get("$readPreference", {"mode": "primary"})["mode"] for command in finds} == {mode}
        assert {command["readConcern"]["level"] for command in finds} == {level}


def on_replica_set(uri: str) -> str:
    """A connection to all of it: one to a single server asks that, whatever is preferred."""
    return uri.replace("directConnection=true", "replicaSet=rs0")


def test_what_a_secondary_does_not_have_is_asked_of_the_primary(mongodb_with_auth: MongoDBServer, mongodb_auth_uri: str) -> None:
    with MongoDBStorageConnector(on_replica_set(mongodb_auth_uri) + "&readPreference=secondaryPreferred") as connector:
        asking: list[Callable[[str], object]] = [connector.has_resource, connector.get_resource, connector.stat]
        for ask in asking:
            with SentCommands() as sent, contextlib.suppress(ResourceNotFoundError):
                ask("a")

            modes = [command.get("$readPreference", {"mode": "primary"})["mode"] for command in sent.of("find")]
            assert modes == ["secondaryPreferred", "primary"]


def test_what_is_deleted_depends_on_nothing_that_a_failover_takes_back(
    mongodb_with_auth: MongoDBServer, mongodb_auth_uri: str
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
    assert {command.get("$readPreference", {"mode": "primary"})["mode"] for command in looks} == {"primary"}


@pytest.mark.parametrize(
    "arguments",
    [
        *({"uri": f"mongodb://user:{rest}"} for rest in ("se/cret@host/", "12/cret@localhost", "secret")),
        *({"bucket": bucket} for bucket in ("a$b", "system.x")),
        {"uri": "http://host/"},
        {"database": "a/b"},
        {"timeout_seconds": 0},
        *({name: 1 << 30} for name in ("chunk_bytes", "inline_bytes")),
    ],
    ids=repr,
)
def test_an_argument_that_is_not_allowed_is_refused_without_contacting_anybody(arguments: dict[str, Any]) -> None:
    arguments = {"uri": "mongodb://user:secret@127.0.0.1:1/database", **arguments}
    with pytest.raises(ConfigError) as raised:
        MongoDBStorageConnector(**arguments)
    if list(arguments) == ["uri"]:
        with pytest.raises(ConfigError):
            MongoDBStorageConnector.from_url(arguments["uri"])

    assert "cret" not in str(raised.value)


@pytest.mark.parametrize("option", ["tlsAllowInvalidCertificates=true", "tlsInsecure=true", "TLSALLOWINVALIDHOSTNAMES=true"])
def test_an_unverified_server_has_to_be_asked_for(option: str) -> None:
    with pytest.raises(ConfigError, match="certificate"):
        MongoDBStorageConnector(f"mongodb://127.0.0.1:1/database?tls=true&{option}")
    for make in (MongoDBStorageConnector, MongoDBStorageConnector.from_url):
        with pytest.raises(ConfigError, match="'&'"):
            make(f"mongodb://127.0.0.1:1/database?tls=true;{option}")


@pytest.mark.parametrize("option", ["tls=yes", "tls=1", "tlsCAFiel=/etc/ca.pem", "w=majority&maxPoolSize=many"])
def test_an_option_that_the_driver_does_not_understand_is_refused_and_not_left_out(option: str) -> None:
    with MongoDBStorageConnector(f"mongodb://127.0.0.1:1/database?{option}") as connector, SentCommands() as sent:
        with pytest.raises(ConfigError, match="options"):
            connector.has_resource("a")

    assert sent.names == []


# ---------------------------------------------------------------------- reading only


def test_a_connector_for_reading_sends_nothing_that_writes(
    stored: MongoDBStorageConnector, mongodb_uri: str, mongodb: Database[Any]
) -> None:
    collections = set(mongodb.list_collection_names())
    with MongoDBStorageConnector(mongodb_uri, read_only=True) as reading, SentCommands(mongodb.name) as sent:
        assert content(reading, "large") == CONTENT
        assert reading.read_ranges("large", [(5, 5)]) == [CONTENT[5:10]]
        assert reading.list_resources() == ["large", "small"]
        assert reading.stat("large").size == len(CONTENT)
        reading.verify_resource("large")
        reading.collect_garbage(0, dry_run=True)
        with reading.lease("large") as lease:
            lease.acquire()
        writing: list[Callable[[], object]] = [
            lambda: reading.set_resource("new", b"x"),
            lambda: reading.set_resource("new", CONTENT),
            lambda: reading.create("new").__enter__(),
            lambda: reading.delete_resource("small"),
            lambda: reading.collect_garbage(0),
        ]
        for write in writing:
            with pytest.raises(ReadOnlyStorageError):
                write()

    assert sent.writing == []
    assert stored.list_resources() == ["large", "small"]
    assert set(mongodb.list_collection_names()) == collections


# ---------------------------------------------------------------------- leases


def test_a_forked_process_does_not_hold_its_parents_lease(connector: MongoDBStorageConnector) -> None:
    def child_acquires() -> int:
        child = os.fork()
        if child == 0:
            try:
                os._exit(10 + lease.acquire())
            finally:
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with connector.lease("a") as lease:
        assert lease.acquire()

        exit_code = child_acquires()

        assert exit_code == 10
        with connector.lease("a") as other:
            assert not other.acquire()


# ---------------------------------------------------------------------- processes, and what is left


def sockets() -> int:
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(link))
    return sum(link.startswith("socket:") for link in links)


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

        assert until(lambda: threading.active_count() <= n_threads and sockets() <= n_sockets), threading.enumerate()
        assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0


def test_who_collects_a_forgotten_connector_as_garbage_is_not_touched(mongodb_uri: str) -> None:
    """Before Python 3.12, what changes context variables while another change is interrupted ends in a segmentation fault."""
    variable = contextvars.ContextVar("variable", default="of nobody")
    seen: list[str] = []

    variable.set("of who collects")
    with meanwhile.at("before", "endSessions", lambda: seen.append(variable.get())):
        MongoDBStorageConnector(mongodb_uri, timeout_seconds=17).has_resource("a")
        gc.collect()

    assert seen == ["of nobody"]
