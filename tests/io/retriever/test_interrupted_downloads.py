"""Downloads that one command began and another one ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from process_harness import n_bytes_read, start_python, until

from data_stack.exception import RetrievalError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, retrieve
from data_stack.io.storage_connectors.connector import DAY_SECONDS, StorageConnector
from data_stack.stores.upkeep import collect_garbage

if TYPE_CHECKING:
    from web_server import ScriptedServer

BODY = random.Random(7).randbytes(1_000_000)
SHA256 = hashlib.sha256(BODY).hexdigest()
CUT = 600_000
GOOD: dict[str, Any] = {"body": BODY, "headers": {"ETag": '"one"'}, "ranges": True}
ONCE = Limits(n_retries=0, backoff_seconds=0.001)


def fetch(store: StorageConnector, url: str, *, sha256: str | None = SHA256) -> None:
    retrieve([ResourceDefinition("raw/data", url, sha256=sha256)], store, limits=ONCE, timeout_seconds=20)


def interrupt(store: StorageConnector, url: str, *, sha256: str | None = SHA256) -> None:
    """A download that fails in the middle."""
    with pytest.raises(RetrievalError):
        fetch(store, url, sha256=sha256)
    with contextlib.suppress(FileNotFoundError):
        assert store.list_resources() == []


def stored(store: StorageConnector) -> bytes:
    with store.get_resource("raw/data") as resource:
        return resource.read()


def partials(tmp_path: Path) -> list[Path]:
    """What waits to be gone on with."""
    return [path for path in tmp_path.rglob(".~*") if path.is_file()]


def offset_of(server: ScriptedServer, number: int) -> int:
    """From which byte on a request asks."""
    return int(server.requests[number].headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))


def interrupted_for_ever(server: ScriptedServer, *then: dict[str, Any]) -> str:
    """A URL whose first answer is cut, and the second one too, before it brings anything."""
    return server.script("/data", GOOD | {"cut_at": CUT}, GOOD | {"cut_at": 0, "reset": True}, *then)


CHANGED = {"body": BODY, "headers": {"ETag": '"two"'}, "ranges": True}


@pytest.mark.parametrize("then", [GOOD, CHANGED, {"body": BODY}], ids=["good", "changed", "without ranges"])
def test_the_next_command_asks_only_for_the_rest_or_begins_at_the_start_where_it_must(
    store: StorageConnector, server: ScriptedServer, tmp_path: Path, then: dict[str, Any]
) -> None:
    url = interrupted_for_ever(server, then)

    interrupt(store, url)
    n_read = n_bytes_read()
    fetch(store, url)

    assert then is not GOOD or n_bytes_read() - n_read < len(BODY)  # what is taken up, once
    assert stored(store) == BODY
    assert server.requests[-1].headers["if-range"] == '"one"'
    assert CUT - 1024 < offset_of(server, -1) <= CUT
    assert partials(tmp_path) == []


def test_so_it_does_after_the_first_one_was_killed(store: StorageConnector, server: ScriptedServer, tmp_path: Path) -> None:
    url = server.script("/data", GOOD | {"hang_at": CUT}, GOOD)
    place = str(tmp_path / "store")
    program = (
        "import sys; from data_stack import storage_connector_from_url as store;"
        "from data_stack.io.retriever import retrieve; from data_stack.io.resource_definition import ResourceDefinition;"
        "retrieve([ResourceDefinition('raw/data', sys.argv[1], sha256=sys.argv[2])], store(sys.argv[3]))"
    )
    with start_python("-c", program, url, SHA256, place) as process:
        until(lambda: any(path.stat().st_size > CUT / 2 for path in partials(tmp_path)))
        process.kill()

    store.remove_abandoned()  # as the next preparation does
    fetch(store, url)

    assert stored(store) == BODY
    assert offset_of(server, -1) > CUT / 2
    assert partials(tmp_path) == []


@pytest.mark.parametrize(
    ("harm", "resumed"),
    [
        (lambda partial: partial.write_bytes(bytes(1000) + partial.read_bytes()[1000:]), [True, False]),
        (lambda partial: partial.rename(f"{partial}".rpartition("-")[0] + "-").write_bytes(bytes(2 * len(BODY))), [False]),
        (lambda partial: os.link(partial, partial.with_name("second")), [False]),
    ],
    ids=["overwritten", "without version", "second name"],
)
def test_what_was_harmed_meanwhile_is_found_and_fetched_anew_once(
    store: StorageConnector, server: ScriptedServer, tmp_path: Path, harm: Callable[[Path], object], resumed: list[bool]
) -> None:
    url = interrupted_for_ever(server, GOOD)
    interrupt(store, url)
    (partial,) = partials(tmp_path)
    harm(partial)
    before = len(server.requests)

    fetch(store, url)

    assert stored(store) == BODY
    assert [offset_of(server, number) > 0 for number in range(before, len(server.requests))] == resumed
    assert partials(tmp_path) == []


@pytest.mark.parametrize(
    ("headers", "sha256"),
    [({"ETag": '"one"'}, None), ({"ETag": 'W/"one"'}, SHA256), ({"ETag": f'"{"1" * 300}"'}, SHA256), ({}, SHA256)],
    ids=["digest", "weak", "long", "none"],
)
def test_nothing_is_kept_that_could_not_be_verified(
    store: StorageConnector, server: ScriptedServer, tmp_path: Path, headers: dict[str, str], sha256: str | None
) -> None:
    answer = GOOD | {"headers": headers}

    interrupt(store, server.script("/data", answer | {"cut_at": CUT}, answer | {"cut_at": 0, "reset": True}), sha256=sha256)

    assert partials(tmp_path) == []


def test_it_is_swept_when_it_is_a_day_old(store: StorageConnector, server: ScriptedServer, tmp_path: Path) -> None:
    interrupt(store, interrupted_for_ever(server))
    (partial,) = partials(tmp_path)

    assert collect_garbage(store, DAY_SECONDS, dry_run=False) == []
    assert [garbage.size for garbage in collect_garbage(store, 0.0, dry_run=True)] == [partial.stat().st_size]
    os.utime(partial, (time.time() - DAY_SECONDS - 1,) * 2)
    n_open = len(os.listdir("/dev/fd"))
    (garbage,) = collect_garbage(store, DAY_SECONDS, dry_run=False)
    assert len(os.listdir("/dev/fd")) == n_open

    assert garbage.reason == "an interrupted download"
    assert not partial.exists()


def test_one_that_is_under_way_is_neither_swept_nor_shared(
    store: StorageConnector, server: ScriptedServer, tmp_path: Path
) -> None:
    url = server.script("/data", GOOD | {"hang_at": CUT}, GOOD)
    first = threading.Thread(target=fetch, args=(store, url))
    first.start()
    until(lambda: any(path.stat().st_size for path in partials(tmp_path)))

    swept = collect_garbage(store, 0.0, dry_run=False)
    fetch(store, url)
    server.stopped.set()  # the first one is cut, goes on by itself and is published too
    first.join()

    assert swept == []
    assert [offset_of(server, number) > 0 for number in range(3)] == [False, False, True]
    assert stored(store) == BODY
    assert partials(tmp_path) == []
