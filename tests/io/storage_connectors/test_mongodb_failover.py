"""What this process was told to be stored, read from a server that another one has replaced as primary."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from mongodb_server import MongoDBServer, replica_set_of_three

from data_stack.exception import StorageUnavailableError
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

OLD, NEW = b"old", b"new" * 100_000


@pytest.fixture
def members() -> Iterator[list[MongoDBServer]]:
    with replica_set_of_three() as members:
        yield members


def elected(members: list[MongoDBServer]) -> MongoDBServer:
    """The one of these that is primary, once there is one."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for member in members:
            with member.client() as client:
                if client.admin.command("hello")["isWritablePrimary"]:
                    return member
        time.sleep(0.05)
    raise AssertionError("no other one was elected")


def in_a_fork(ask: Callable[[], object]) -> bool:
    """Whether a fork that asks gets an answer."""
    pid = os.fork()
    if pid == 0:
        try:
            ask()
        except StorageUnavailableError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_no_connector_of_a_process_reads_less_than_one_of_them_was_told_to_be_stored(members: list[MongoDBServer]) -> None:
    deposed, others = members[0], members[1:]
    before = MongoDBStorageConnector(deposed.uri("database"), timeout_seconds=0.5)
    for identifier in ("replaced", "deleted"):
        before.set_resource(identifier, OLD)
    asking: list[Callable[[], object]] = [
        lambda: before.get_resource("replaced"),
        lambda: before.stat("replaced"),
        lambda: before.has_resource("new"),
        lambda: before.has_resource("deleted"),
        before.list_resources,
    ]
    with deposed.client() as behind:
        # What the others have it does not learn, neither as a primary that does not know that it was deposed nor afterwards.
        behind.admin.command("configureFailPoint", "stopReplProducer", mode="alwaysOn")
        with deposed.frozen():
            now = elected(others)
            with MongoDBStorageConnector(now.uri("database"), "database", read_concern="local") as after:
                after.set_resource("replaced", NEW)
                after.set_resource("new", NEW)
                after.delete_resource("deleted")

        for ask in asking:
            with pytest.raises(StorageUnavailableError):
                ask()
        assert not in_a_fork(asking[0])

        behind.admin.command("configureFailPoint", "stopReplProducer", mode="off")
    patient = MongoDBStorageConnector(deposed.uri("database"))
    with patient.get_resource("replaced") as resource:
        assert resource.read() == NEW
    assert patient.list_resources() == ["new", "replaced"]
