"""mongod killed -9 and restarted during writes and reads: what was acknowledged is there, what
failed is absent whole.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from fault_dataset import check_version, opened, read, version_of
from fault_stores import MongoDBStores
from mongodb_server import MongoDBServer
from process_harness import until
from sizes import SEED, sized

from data_stack.exception import DataStackError, ResourceNotFoundError
from data_stack.stores.verification import verify_storage


class Client(threading.Thread):
    """Works on a resource until it is stopped.

    Attributes:
        done: how often it succeeded; for a writer the number of the last version that was
            acknowledged.
        tried: how often it tried; for a writer the number of the last version that it sent.
        wrong: errors of others, and other bytes than expected.
    """

    def __init__(self, store: Mapping[str, Any], name: str, first: int = 0) -> None:
        super().__init__(daemon=True)
        self.store, self.name_of_resource = store, name
        self.done = self.tried = first
        self.wrong: list[object] = []
        self.stop = threading.Event()

    def run(self) -> None:
        with opened(self.store) as connector:
            while not self.stop.is_set():
                self.tried += 1
                try:
                    self.work(connector)
                    self.done = self.tried
                except DataStackError:
                    pass
                except Exception as error:
                    self.wrong.append(error)

    def work(self, connector: Any) -> None:
        """Publish a version. Every third is small, and lies in its pointer."""
        data = version_of(self.tried) if self.tried % 3 else b"%07d\n" % self.tried
        connector.set_resource(self.name_of_resource, data)


class Reader(Client):
    """Reads version 7."""

    def work(self, connector: Any) -> None:
        with connector.get_resource(self.name_of_resource) as resource:
            if b"".join(iter(lambda: resource.read(30_000), b"")) != version_of(7):
                self.wrong.append("other bytes")


@pytest.fixture(params=["replica set", pytest.param("standalone", marks=pytest.mark.full)])
def server(request: pytest.FixtureRequest) -> Iterator[MongoDBServer]:
    with MongoDBServer(replica_set=request.param == "replica set") as server:
        yield server


def version_at(store: Mapping[str, Any], name: str) -> int:
    """The version that is stored, which is whole; 0 if there is none."""
    try:
        data = read(store, name)
    except ResourceNotFoundError:
        return 0
    return int(data) if len(data) == 8 else check_version(data)


def test_what_was_acknowledged_survives_kill_9_of_the_server(
    server: MongoDBServer, figures: Counter[str]
) -> None:
    chance = random.Random(SEED)
    stores = MongoDBStores(server.uri())
    store = stores.new()
    with opened(store) as connector:
        connector.set_resource("fixed", version_of(7))
    last = dict.fromkeys([f"name{i}" for i in range(5)], 0)
    for _ in range(sized(1, 20)):
        writers = [Client(store, name, version) for name, version in last.items()]
        readers = [Reader(store, "fixed") for _ in range(2)]
        for client in (*writers, *readers):
            client.start()
        time.sleep(chance.uniform(0.1, 0.8))
        server.kill9()
        figures["kills"] += 1
        time.sleep(chance.uniform(0, 0.3))
        n_tried = [reader.tried for reader in readers]
        server.restart()
        has_resumed = until(
            lambda: all(
                reader.done > n
                for reader, n in zip(readers, n_tried, strict=True)  # noqa: B023
            )
        )
        for client in (*writers, *readers):
            client.stop.set()
        for client in (*writers, *readers):
            client.join(120)
            assert not client.is_alive()
            assert client.wrong == []

        assert has_resumed, "reading did not resume"
        for writer in writers:
            stored = version_at(store, writer.name_of_resource)
            assert writer.done <= stored <= writer.tried, (
                f"{stored} is stored, {writer.done} was acknowledged"
            )
            last[writer.name_of_resource] = writer.tried
    stores.disown_uploads(store)
    with opened(store) as connector:
        connector.collect_garbage(0)
        assert verify_storage(connector).faults == ()
    assert stores.left_over(store) == []
    stores.discard(store)
