"""A network that cuts, stalls, delays, corrupts: an error of ours or the right bytes, never wrong
ones, in the time stated.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from fault_dataset import opened, read, version_of
from fault_stores import MongoDBStores, S3Stores, StoreKind
from faulty_tcp_proxy import FaultyTCPProxy
from sizes import FULL, SEED, sized

from data_stack.exception import DataStackError, StorageUnavailableError
from data_stack.testing.storage_connector import content

TIMEOUT_SECONDS = 2.0 if FULL else 1.0
#: What may be added to a timeout: the driver's bookkeeping, on a machine that stands still for
#: seconds now and then.
GRACE_SECONDS = 30.0
OLD, NEW = version_of(1), version_of(2)


class Behind:
    """Stores of one server, seen directly and through a proxy that fails."""

    def __init__(self, stores: StoreKind, port: int, proxy: FaultyTCPProxy) -> None:
        self.stores, self.proxy, self._port = stores, proxy, port

    def through_proxy(self, store: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same store by way of the proxy, with a short timeout."""
        url = (
            store["url"]
            .replace("&timeoutSeconds=10", "")
            .replace(str(self._port), str(self.proxy.port), 1)
        )
        return {**store, "url": f"{url}&timeoutSeconds={TIMEOUT_SECONDS}"}

    def make_well(self) -> None:
        """No fault any more, and new connections."""
        self.proxy.clear()
        self.proxy.cut_all()


@pytest.fixture(params=["mongodb", pytest.param("s3", marks=pytest.mark.full)])
def behind(request: pytest.FixtureRequest, s3_login: None) -> Iterator[Behind]:
    server = request.getfixturevalue(
        "mongodb_server" if request.param == "mongodb" else "s3_server"
    )
    stores: StoreKind = (
        MongoDBStores(server.uri()) if request.param == "mongodb" else S3Stores(server)
    )
    with FaultyTCPProxy("127.0.0.1", server.port) as proxy:
        yield Behind(stores, server.port, proxy)


def in_time(
    work: Callable[..., Any], *arguments: Any, n_operations: int = 2
) -> tuple[Any, DataStackError | None]:
    """What ``work`` returns or raises of ours, and that it came in time."""
    started = time.monotonic()
    try:
        result, error = work(*arguments), None
    except DataStackError as caught:
        result, error = None, caught
    seconds = time.monotonic() - started
    assert seconds < n_operations * TIMEOUT_SECONDS + GRACE_SECONDS, f"{seconds:.1f} s"
    return result, error


def once_well(connector: Any, identifier: str) -> bytes:
    """The content once the network is well, at the latest in the fifth attempt: a machine may stand
    still for longer than the timeout, too.
    """
    for _ in range(4):
        with contextlib.suppress(StorageUnavailableError):
            return content(connector, identifier)
    return content(connector, identifier)


def faults(n: int) -> list[dict[str, float]]:
    """``n`` faults of each kind that counts bytes, at any place of what passes; and those that do
    not.
    """
    chance = random.Random(SEED)
    found: list[dict[str, float]] = []
    for kind in ("cut_up", "cut_down", "flip_up", "flip_down", "swallow_up", "swallow_down"):
        for i in range(n if not kind.startswith("swallow") else max(1, n // 4)):
            # Half of them in the first messages, half in the bytes of the resource.
            fault: dict[str, float] = {kind: chance.randrange(2_000 if i % 2 else len(OLD))}
            found.append(fault | ({"reset": 1} if chance.random() < 0.5 else {}))
    return [*found, {"latency": 0.05}, {"slice": 1_000}, {"rate": 4_000_000}]


def test_a_faulty_network_gives_right_bytes_or_our_error(
    behind: Behind, figures: Counter[str]
) -> None:
    store = behind.stores.new()
    with opened(store) as direct:
        direct.set_resource("x", OLD)
    for fault in faults(50 if FULL else 1):
        with opened(behind.through_proxy(store)) as connector:
            behind.proxy.set(**fault)

            data, error = in_time(content, connector, "x")

            assert data == OLD or error is not None, fault
            figures["right" if error is None else "own errors"] += 1
            behind.make_well()
            assert once_well(connector, "x") == OLD
    figures["faults hit"] += behind.proxy.n_faults
    behind.stores.discard(store)


@pytest.mark.full
def test_writing_through_a_faulty_network_publishes_all_or_nothing(
    behind: Behind, figures: Counter[str]
) -> None:
    store = behind.stores.new()
    for fault in faults(50):
        with opened(store) as direct, opened(behind.through_proxy(store)) as connector:
            direct.set_resource("x", OLD)
            behind.proxy.set(**fault)

            _, error = in_time(connector.set_resource, "x", NEW, n_operations=4)

            behind.make_well()
            is_flip = any(name.startswith("flip") for name in fault)
            found, damage = in_time(content, direct, "x")
            # A bit that was turned round on its way into the store may be found only when it is
            # read: found it must be.
            assert found in (OLD, NEW) or (is_flip and damage is not None), fault
            if error is None and not is_flip:
                assert found == NEW, fault
            figures[
                "own errors"
                if error
                else "damage found when read"
                if damage
                else "acknowledged and there"
            ] += 1
    with opened(store) as direct:
        direct.set_resource("x", OLD)
        direct.collect_garbage(0)
    assert read(store, "x") == OLD
    assert behind.stores.left_open() == []
    behind.stores.discard(store)


@pytest.mark.parametrize("fault", ["cut_down", "swallow_down"] if FULL else ["cut_down"])
@pytest.mark.parametrize("behind", ["mongodb"], indirect=True)
def test_a_lost_answer_to_a_publication_is_looked_up(behind: Behind, fault: str) -> None:
    store, small = behind.stores.new(), b"small"
    with opened(store) as direct, opened(behind.through_proxy(store)) as connector:
        direct.set_resource("x", small)
        for number in range(sized(1, 12)):
            data = b"%d" % number
            behind.proxy.set(
                **{fault: 0}
            )  # the very next answer, that to the one command which publishes

            _, error = in_time(connector.set_resource, "x", data)

            behind.make_well()
            found = content(direct, "x")
            assert found == data or (error is not None and found == small)
            small = found
    behind.stores.discard(store)
