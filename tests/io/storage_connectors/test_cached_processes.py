"""CachedStorageConnector among processes that fill, evict, fork, stop and die at any moment."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from sizes import sized

from data_stack.exception import StorageUnavailableError
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.resources import StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.connector import BINARY, ResourceInfo
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.testing.storage import assert_same_bytes, content

SIZES = {"small": 10_001, "b/empty": 0, "b/one": 900_000, "c": 24 * BLOCK_BYTES, "d/e/f": 36 * BLOCK_BYTES + 5}
DATA = {identifier: hashlib.shake_128(identifier.encode()).digest(size) for identifier, size in SIZES.items()}


class AwayConnector(FileStorageConnector):
    """A store that does not answer."""

    def stat(self, identifier: str) -> ResourceInfo:
        raise StorageUnavailableError(f"no answer about {identifier}")

    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        raise StorageUnavailableError(f"no answer about {identifier}")

    def __repr__(self) -> str:
        return f"FileStorageConnector({self.root_path!r})"  # the notes are of that one


@pytest.fixture
def remote(tmp_path: Path) -> FileStorageConnector:
    remote = FileStorageConnector(tmp_path / "remote")
    for identifier, data in DATA.items():
        remote.set_resource(identifier, data)
    return remote


def forked(work: Callable[[], object], failures: Path) -> int:
    """Run ``work`` in a child, which leaves a file in ``failures`` should it raise; return its process number."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            (failures / str(os.getpid())).write_text(traceback.format_exc())
        finally:
            os._exit(0)  # no pytest, no cleaning up of what the parent still uses
    return child


def read_at_random(cached: CachedStorageConnector, seed: int, n_reads: int) -> None:
    """Read parts and wholes, and hold each against what it should be."""
    chance = random.Random(seed)
    for _ in range(n_reads):
        identifier = chance.choice(list(DATA))
        data = DATA[identifier]
        with cached.get_resource(identifier) as resource:
            if chance.random() < 0.3:
                assert_same_bytes(resource.read(), data)
            for _ in range(3):
                offset, size = chance.randrange(len(data) + 1), chance.choice([10, 4096, 300_000])
                assert_same_bytes(resource.read_at(offset, size), data[offset : offset + size])


@pytest.mark.parametrize("max_bytes", [None, 4_000_000])
def test_nothing_is_wrong_or_left_after_processes_were_killed_while_they_filled(
    remote: FileStorageConnector, tmp_path: Path, max_bytes: int | None
) -> None:
    chance = random.Random(max_bytes)
    failures = tmp_path / "failures"
    failures.mkdir()
    for round_number in range(sized(2, full=9)):
        cached = CachedStorageConnector(remote, tmp_path / f"cache{round_number // 3}", max_bytes)
        children = [
            forked(lambda seed=round_number * 4 + i: read_at_random(cached, seed, 1000), failures)  # type: ignore[misc]  # noqa: B023
            for i in range(4)
        ]
        time.sleep(chance.random() * 0.1)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    assert [file.read_text() for file in failures.iterdir()] == []
    for number in range(sized(1, full=3)):
        cache = tmp_path / f"cache{number}"
        offline = CachedStorageConnector(AwayConnector(remote.root_path), cache, max_bytes)
        for identifier, data in DATA.items():
            with contextlib.suppress(StorageUnavailableError):
                assert_same_bytes(content(offline, identifier), data)
        online = CachedStorageConnector(remote, cache, max_bytes)
        for identifier, data in DATA.items():
            assert_same_bytes(content(online, identifier), data)
        if max_bytes is not None:
            assert sum(512 * path.stat().st_blocks for path in cache.rglob("*") if path.is_file()) <= max_bytes
