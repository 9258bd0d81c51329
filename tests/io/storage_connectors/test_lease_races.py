"""Leases and small files that processes replace at the same moment, in object stores and MongoDB."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import azure_server
import pytest
from azure_server import AzureServer
from gcs_server import GCSServer
from object_server import Answer, ObjectServer, Request
from scripted_s3 import ScriptedS3, refusal

from data_stack.exception import StorageConflictError
from data_stack.io.storage_connectors import FsspecStorageConnector, StorageConnector, heartbeat
from data_stack.testing.storage_connector import content
from data_stack.testing.waiting import wait_until

N_PROCESSES = 2
N_LEASES = 12
SERVERS: dict[str, type[ObjectServer]] = {"s3": ScriptedS3, "gs": GCSServer, "az": AzureServer}
STORES = [
    pytest.param(scheme, client, id=f"{scheme} by {client}")
    for scheme in SERVERS
    for client in ("obstore", "fsspec")
]


@pytest.fixture
def server(scheme: str) -> Iterator[ObjectServer]:
    """An empty server."""
    with SERVERS[scheme]() as server:
        yield server


@pytest.fixture
def store(server: ObjectServer, client: str) -> FsspecStorageConnector:
    return server.store(client=client)


# ---------------------------------------------------------------------- processes


def _die_with_leases(store: StorageConnector) -> None:
    """Take all leases, and end without releasing them, as a killed process does."""
    leases = ExitStack()
    is_held = [
        leases.enter_context(store.lease(f"a/{number}")).acquire() for number in range(N_LEASES)
    ]
    os._exit(0 if all(is_held) else 1)


def _take_over(store: StorageConnector, barrier: Any, results: Any) -> None:
    """Try to take each lease once, at the same moment as other processes, and keep what is taken."""
    taken = []
    with ExitStack() as leases:
        for number in range(N_LEASES):
            lease = leases.enter_context(store.lease(f"a/{number}"))
            barrier.wait(120)
            if lease.acquire():
                taken.append(number)
        barrier.wait(120)
    results.put(taken)


def take_over_in_processes(store: StorageConnector) -> list[int]:
    """Let processes take over the leases of a dead one at once; return all that they have taken."""
    context = multiprocessing.get_context("spawn")
    holder = context.Process(target=_die_with_leases, args=(store,))
    holder.start()
    holder.join(120)
    assert holder.exitcode == 0
    barrier = context.Barrier(N_PROCESSES)
    results = context.Queue()
    processes = [
        context.Process(target=_take_over, args=(store, barrier, results), daemon=True)
        for _ in range(N_PROCESSES)
    ]

    for process in processes:
        process.start()
    taken = [number for _ in processes for number in results.get(timeout=250)]
    for process in processes:
        process.join(120)
    return sorted(taken)


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_of_processes_that_take_over_a_lease_one_gets_it(store: FsspecStorageConnector) -> None:
    assert take_over_in_processes(store) == list(range(N_LEASES))


def test_one_of_several_processes_takes_over_a_mongodb_lease(mongodb_uri: str) -> None:
    from data_stack.io.storage_connectors import MongoDBStorageConnector

    with MongoDBStorageConnector(mongodb_uri) as store:
        assert take_over_in_processes(store) == list(range(N_LEASES))


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_a_late_holder_leaves_the_lease_of_the_next(
    store: FsspecStorageConnector, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.05)
    with store.lease("a") as lease:
        assert lease.acquire()
        (key,) = server.objects
        path = key.removeprefix("f/")
        store._files.put(path, b"value of the next holder")

        assert wait_until(lambda: not lease.acquire())

    assert store._files.read(path, 100) == b"value of the next holder"


# ---------------------------------------------------------------------- replacing


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_a_file_is_replaced_unless_it_has_changed(store: FsspecStorageConnector) -> None:
    files = store._files
    files.put("a", b"1")

    assert files.replace("a", b"1", b"2")
    assert not files.replace("a", b"1", b"3")
    assert not files.replace("missing", b"1", b"2")

    assert files.read("a", 10) == b"2"
    assert files.read("missing", 10) is None


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_an_empty_file_is_replaced(store: FsspecStorageConnector) -> None:
    store._files.put("a", b"")

    assert store._files.replace("a", b"", b"1")

    assert store._files.read("a", 10) == b"1"


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_a_file_that_changes_before_it_is_replaced_is_kept(
    store: FsspecStorageConnector, server: ObjectServer
) -> None:
    """Another client writes between the request that reads and the one that replaces."""
    store._files.put("a", b"1")

    def write_before(request: Request) -> None:
        if request.method in ("PUT", "POST"):
            server.rule = lambda request: None
            server.put("f/a", b"of another client")

    server.rule = write_before

    assert not store._files.replace("a", b"1", b"2")

    assert store._files.read("a", 100) == b"of another client"


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_a_lost_answer_to_a_replacement_is_looked_up(
    store: FsspecStorageConnector, server: ObjectServer
) -> None:
    store._files.put("a", b"1")

    def lose_answer(request: Request) -> Answer | None:
        if request.method not in ("PUT", "POST"):
            return None
        server.rule = lambda request: None
        server.put("f/a", b"2")
        return azure_server.refusal(503, "ServerBusy")

    server.rule = lose_answer

    assert store._files.replace("a", b"1", b"2")


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_a_file_is_deleted_unless_it_has_changed(
    store: FsspecStorageConnector, server: ObjectServer
) -> None:
    files = store._files
    files.put("a", b"1")
    files.put("b", b"1")

    assert not files.delete_unchanged("a", b"2")
    assert files.delete_unchanged("b", b"1")
    assert files.delete_unchanged("missing", b"1")

    def write_before(request: Request) -> None:
        if request.method == "DELETE":
            server.rule = lambda request: None
            server.put("f/a", b"of another client")

    server.rule = write_before
    assert not files.delete_unchanged("a", b"1")
    assert set(server.objects) == {"f/a"}


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_a_resource_replaced_while_it_is_moved_is_not_lost(
    store: FsspecStorageConnector, server: ObjectServer
) -> None:
    store.set_resource("a", b"old")

    def write_before(request: Request) -> None:
        if request.method == "DELETE":
            server.rule = lambda request: None
            store.set_resource("a", b"new")

    server.rule = write_before
    with pytest.raises(StorageConflictError, match="replaced while it was moved"):
        store.move_resource("a", "b")

    assert content(store, "a") == b"new"
    assert content(store, "b") == b"old"


@pytest.mark.parametrize(("scheme", "client"), [STORES[0], STORES[1]])
def test_a_store_without_conditions_is_written_after_reading(
    store: FsspecStorageConnector, server: ObjectServer
) -> None:
    store._files.put("a", b"1")

    def refuse_conditions(request: Request) -> Answer | None:
        if request.method == "PUT" and "if-match" in request.headers:
            return refusal(501, "NotImplemented", "A header is not implemented.")
        return None

    server.rule = refuse_conditions

    assert store._files.replace("a", b"1", b"2")
    assert not store._files.replace("a", b"1", b"3")
    assert store._files.replace("a", b"2", b"3")

    n_conditions = sum("if-match" in request.headers for request in server.requests)
    assert n_conditions == 1


@pytest.mark.parametrize(("scheme", "client"), STORES)
def test_the_lease_of_a_silent_holder_is_garbage(
    store: FsspecStorageConnector, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 600.0)
    with store.lease("a") as silent:
        assert silent.acquire()
        (key,) = server.objects
        server.put(key, server.objects[key].data, age_seconds=3600.0)

        garbage = store.collect_garbage()

        assert [f"f/{item.name}" for item in garbage] == [key]
        assert server.objects == {}
