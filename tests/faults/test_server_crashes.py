"""mongod killed -9 and restarted during writes and reads: what was acknowledged is there, what failed is absent whole."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest
from fault_dataset import check_version, close, connector_for, version_of
from fault_size import Figures
from fault_stores import Description, MongoDBStores
from mongodb_server import MongoDBServer
from sizes import sized

from data_stack.exception import DataStackError, ResourceNotFoundError
from data_stack.stores.verification import verify_storage

N_NAMES = 5
PATIENCE_SECONDS = 60.0


class Client(threading.Thread):
    """Works on a store until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()


class Writer(Client):
    """Publishes one version after the other, and remembers which were acknowledged."""

    def __init__(self, store: Description, name: str, first: int) -> None:
        super().__init__()
        self._store, self._name, self._first = store, name, first
        self.acknowledged = self.tried = first - 1
        self.n_acknowledged = self.n_failed = 0
        self.foreign: list[BaseException] = []

    def run(self) -> None:
        connector = connector_for(self._store)
        while not self.stop.is_set():
            self.tried += 1
            try:
                # Every third is small, and lies in its pointer.
                connector.set_resource(self._name, version_of(self.tried) if self.tried % 3 else b"%07d\n" % self.tried)
                self.acknowledged = self.tried
                self.n_acknowledged += 1
            except DataStackError:
                self.n_failed += 1
            except Exception as error:
                self.foreign.append(error)
        close(connector)


class Reader(Client):
    """Reads a resource that does not change, over and over."""

    def __init__(self, store: Description, name: str, expected: bytes) -> None:
        super().__init__()
        self._store, self._name, self._expected = store, name, expected
        self.n_right = self.n_errors = 0
        self.wrong: list[object] = []

    def run(self) -> None:
        connector = connector_for(self._store)
        while not self.stop.is_set():
            try:
                with connector.get_resource(self._name) as resource:
                    if b"".join(iter(lambda: resource.read(30_000), b"")) == self._expected:
                        self.n_right += 1
                    else:
                        self.wrong.append("other bytes")
            except DataStackError:
                self.n_errors += 1
            except Exception as error:
                self.wrong.append(error)
        close(connector)


@pytest.fixture(params=["replica set", pytest.param("standalone", marks=pytest.mark.full)])
def server(request: pytest.FixtureRequest) -> Iterator[MongoDBServer]:
    with MongoDBServer(replica_set=request.param == "replica set") as server:
        yield server


def version_at(store: Description, name: str) -> int:
    """The version that is stored, which is whole; 0 if there is none."""
    connector = connector_for(store)
    try:
        with connector.get_resource(name) as resource:
            data = resource.read()
    except ResourceNotFoundError:
        return 0
    finally:
        close(connector)
    return int(data) if len(data) == 8 else check_version(data)


def test_what_was_acknowledged_survives_kill_9_of_the_server(server: MongoDBServer, figures: Figures) -> None:
    chance = random.Random(3)
    stores = MongoDBStores(server.uri())
    store = stores.new()
    setup = connector_for(store)
    setup.set_resource("fixed", version_of(7))
    close(setup)
    at_first = dict.fromkeys([f"name{i}" for i in range(N_NAMES)], 0)
    for _ in range(sized(1, 30)):
        writers = [Writer(store, name, version + 1) for name, version in at_first.items()]
        readers = [Reader(store, "fixed", version_of(7)) for _ in range(2)]
        clients: list[Client] = [*writers, *readers]
        for thread in clients:
            thread.start()
        time.sleep(chance.uniform(0.1, 0.8))
        server.kill9()
        figures.counts["kills"] += 1
        time.sleep(chance.uniform(0, 0.3))
        n_right = [reader.n_right for reader in readers]
        server.restart()
        until = time.monotonic() + PATIENCE_SECONDS
        while any(reader.n_right <= n for reader, n in zip(readers, n_right, strict=True)) and time.monotonic() < until:
            time.sleep(0.02)
        for thread in clients:
            thread.stop.set()
        for thread in clients:
            thread.join(60)
            assert not thread.is_alive()

        for reader, n in zip(readers, n_right, strict=True):
            assert reader.wrong == []
            assert reader.n_right > n, "reading did not resume"
            figures.counts["right reads"] += reader.n_right
            figures.counts["reads that said so"] += reader.n_errors
        for writer, name in zip(writers, at_first, strict=True):
            assert writer.foreign == []
            stored = version_at(store, name)
            assert writer.acknowledged <= stored <= writer.tried, (
                f"{name}: {stored} is stored, {writer.acknowledged} was acknowledged"
            )
            figures.counts["acknowledged and there"] += writer.n_acknowledged
            figures.counts["failed and absent or whole"] += writer.n_failed
            at_first[name] = writer.tried
    stores.disown_uploads(store)
    sweeper = connector_for(store)
    sweeper.collect_garbage(0)
    assert verify_storage(sweeper).faults == ()
    assert stores.left_over(store) == []
    close(sweeper)
    stores.discard(store)
