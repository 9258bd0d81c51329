"""CachedStorageConnector: what it reads where, what it evicts, and that nothing on its disk makes
it wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import mmap
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_harness import exit_status, forked, run_python, until
from sizes import sized
from web_server import Answer, ScriptedServer, Seen

from data_stack.exception import (
    ChecksumMismatchError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageFullError,
    StorageUnavailableError,
)
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.resources import StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.io.storage_connectors.cached import CachedStorageConnector, shared_work
from data_stack.io.storage_connectors.cached.blocks import CachedBlocks
from data_stack.io.storage_connectors.cached.content import Content
from data_stack.io.storage_connectors.cached.folder import CacheFolder
from data_stack.io.storage_connectors.cached.remote import Remote as RemoteRequests
from data_stack.io.storage_connectors.cached.resource import CachedResource
from data_stack.io.storage_connectors.connector import BINARY, ResourceInfo
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.testing.comparing import assert_same_bytes
from data_stack.testing.storage_connector import content

SMALL = hashlib.shake_128(b"small").digest(10_001)
LARGE = hashlib.shake_128(b"large").digest(26 * BLOCK_BYTES + 77)


class Remote(FileStorageConnector):
    """A store far away: it counts what it is asked for, and can be away."""

    def __init__(self, root_path: str | os.PathLike[str]) -> None:
        super().__init__(root_path)
        self.is_away = False
        self.n_opened = self.n_asked = 0

    def _answer(self) -> None:
        self.n_asked += 1
        if self.is_away:
            raise StorageUnavailableError("the server did not answer within 0 s")

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        self._answer()
        self.n_opened += 1
        return super().get_resource(identifier, resource_type)

    def stat(self, identifier: str) -> ResourceInfo:
        self._answer()
        return super().stat(identifier)

    def list_resources(self, prefix: str = "") -> list[str]:
        self._answer()
        return super().list_resources(prefix)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "remote")
    remote.set_resource("small", SMALL)
    remote.set_resource("a/large", LARGE)
    return remote


@pytest.fixture
def cached(remote: Remote, tmp_path: Path) -> CachedStorageConnector:
    return CachedStorageConnector(remote, tmp_path / "cache")


def again(connector: CachedStorageConnector) -> CachedStorageConnector:
    """Another connector of the same remote and folder, which remembers nothing."""
    return CachedStorageConnector(connector.remote, connector.local)


def files_below(folder: Path | str) -> list[Path]:
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


def used_bytes(folder: Path | str) -> int:
    return sum(path.lstat().st_blocks * 512 for path in files_below(folder))


# ---------------------------------------------------------------------- hits and misses


@pytest.mark.parametrize(("identifier", "data"), [("small", SMALL), ("a/large", LARGE)])
def test_the_second_reading_moves_nothing(
    cached: CachedStorageConnector, remote: Remote, identifier: str, data: bytes
) -> None:
    assert_same_bytes(content(cached, identifier), data)

    assert_same_bytes(content(cached, identifier), data)
    assert_same_bytes(content(again(cached), identifier), data)

    assert remote.n_opened == 1


def test_every_length_is_held_whole_and_can_be_mapped(
    cached: CachedStorageConnector, remote: Remote
) -> None:
    sizes = [
        0,
        1,
        (1 << 20) - 1,
        1 << 20,
        (1 << 20) + 1,
        18 * BLOCK_BYTES - 1,
        18 * BLOCK_BYTES,
        18 * BLOCK_BYTES + 1,
    ]
    for size in sizes:
        remote.set_resource(f"{size}", LARGE[:size])

    cached.fetch()

    remote.is_away = True
    for size in sizes:
        assert_same_bytes(content(again(cached), f"{size}"), LARGE[:size])
    with (
        cached.get_resource("a/large") as resource,
        mmap.mmap(resource.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert_same_bytes(mapped[:], LARGE)


def test_what_is_fresh_is_not_asked_for_again(remote: Remote, tmp_path: Path) -> None:
    cached = CachedStorageConnector(remote, tmp_path / "cache", fresh_seconds=1000)
    content(cached, "small")
    assert not cached.has_resource("later")  # which is not trusted, as preparations wait for it
    remote.set_resource("later", b"")
    assert cached.has_resource("later")
    n_asked = remote.n_asked

    for _ in range(5):
        assert content(cached, "small") == SMALL

    assert remote.n_asked == n_asked
    cached.set_resource("small", b"new")
    assert content(cached, "small") == b"new"


def test_chunks_of_a_remote_are_moved_once(remote: Remote, tmp_path: Path) -> None:
    class Chunks(Blocks):
        size, block_bytes, sha256, moved = (
            len(LARGE),
            100_000,
            hashlib.sha256(LARGE).hexdigest(),
            list[int](),
        )

        def fetch_run(self, first: int, n_blocks: int) -> bytes:
            self.moved.extend(range(first, first + n_blocks))
            start, stop = self.range_of(first, n_blocks)
            return LARGE[start:stop]

    class Chunked(Remote):
        def get_resource(
            self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
        ) -> StreamedResource:
            return self._make_resource(identifier, BlockedSource(Chunks()), resource_type)

    for offset in range(0, len(LARGE), 65_536):
        cached = CachedStorageConnector(Chunked(tmp_path / "remote"), tmp_path / "cache")
        with cached.get_resource("a/large") as resource:
            assert resource.read_at(offset, 65_536) == LARGE[offset : offset + 65_536]
        with CachedStorageConnector(remote, tmp_path / "cache").get_resource(
            "a/large"
        ) as resource:  # of other blocks
            assert resource.read_at(offset, 9) == LARGE[offset : offset + 9]
    assert Chunks.moved == list(range(-(-len(LARGE) // 100_000)))


def test_a_process_ends_although_nobody_closed_what_it_read(tmp_path: Path) -> None:
    # All blocks of the file are fetched, so that closing it hashes the whole file.
    program = """
import sys
from data_stack.io.storage_connectors import CachedStorageConnector, FileStorageConnector

class Reader:
    def __init__(self, connector):
        self.me = self  # only the end of Python frees it
        self.resource = connector.get_resource("a")

remote = FileStorageConnector(sys.argv[1])
reader = Reader(CachedStorageConnector(remote, sys.argv[2]))
print(sum(len(reader.resource.read_at(start, 1 << 20)) for start in range(0, 4 << 20, 1 << 20)))
"""
    data = os.urandom(4 << 20)
    remote = FileStorageConnector(str(tmp_path / "remote"))
    remote.set_resource("a", StreamedResource("a", io.BytesIO(data)))

    output, errors = run_python("-c", program, tmp_path / "remote", tmp_path / "cache")

    assert (output, errors) == (f"{4 << 20}\n", "")
    with CachedStorageConnector(remote, str(tmp_path / "cache")).get_resource("a") as resource:
        assert resource.read() == data
    assert not files_below(tmp_path / "cache" / "blocks")


def test_a_late_write_to_a_whole_file_fetches_nothing(
    cached: CachedStorageConnector, remote: Remote, tmp_path: Path
) -> None:
    cached.fetch(["a/large"])
    remote.is_away = True
    [file] = files_below(tmp_path / "cache" / "bytes")

    for _ in range(2):  # it is whole when it is opened; and it was written to just before
        whole = Content(hashlib.sha256(LARGE).hexdigest(), len(LARGE))
        folder = CacheFolder(cached.local, repr(remote), None)
        resource = CachedResource(RemoteRequests(remote), folder, "a/large", whole, None)
        blocks = CachedBlocks(resource.remote, folder, "a/large", whole, None, resource.open_remote)
        for number in range(3):
            start = number * BLOCK_BYTES
            (piece,) = blocks.fetch([number])
            assert piece.data == LARGE[start : start + BLOCK_BYTES]
            file.write_bytes(LARGE)
        blocks.close()
        assert not files_below(tmp_path / "cache" / "blocks")


# ---------------------------------------------------------------------- the remote changes


def test_what_was_deleted_in_the_remote_is_gone_offline_too(
    cached: CachedStorageConnector, remote: Remote
) -> None:
    content(cached, "small")
    remote.delete_resource("small")
    with pytest.raises(ResourceNotFoundError):
        cached.get_resource("small")

    remote.is_away = True

    with pytest.raises(ResourceNotFoundError):
        cached.get_resource("small")
    assert not cached.has_resource("small")


def test_an_unfinished_note_names_no_content(
    cached: CachedStorageConnector, remote: Remote
) -> None:
    cached.fetch()
    note = next(Path(cached.local).rglob("large~"))
    note.rename(note.with_name(".~large-0123"))

    assert len(cached.collect_garbage(0.0)) == 2
    assert cached.collect_garbage(0.0) == []


def test_replaced_content_is_garbage_once_nobody_names_it(
    cached: CachedStorageConnector, remote: Remote
) -> None:
    cached.fetch()
    remote.set_resource("a/large", b"now short")
    content(cached, "a/large")

    assert cached.collect_garbage(3600.0) == []
    would_be = cached.collect_garbage(0.0, dry_run=True)
    removed = cached.collect_garbage(0.0)

    assert would_be == removed
    assert [os.path.basename(garbage.name) for garbage in removed] == [
        f"{hashlib.sha256(LARGE).hexdigest()}-{len(LARGE)}"
    ]
    assert len(files_below(Path(cached.local) / "bytes")) == 2
    assert content(cached, "small") == SMALL


def test_what_the_remote_has_no_digest_of_passes_through(
    cached: CachedStorageConnector, remote: Remote, tmp_path: Path
) -> None:
    (tmp_path / "remote" / "edited").write_bytes(SMALL)

    assert content(cached, "edited") == SMALL

    assert not files_below(Path(cached.local) / "bytes")
    with pytest.raises(StorageFullError, match="verify_resource"):
        cached.fetch(["edited"])


def test_a_digest_that_is_none_becomes_no_file_name(remote: Remote, tmp_path: Path) -> None:
    class Hostile(Remote):
        def stat(self, identifier: str) -> ResourceInfo:
            return ResourceInfo(identifier, len(SMALL), "../../../../escaped")

    cached = CachedStorageConnector(Hostile(tmp_path / "remote"), tmp_path / "cache")

    assert content(cached, "small") == SMALL
    assert not list(tmp_path.rglob("escaped*"))


@pytest.mark.parametrize(("identifier", "data"), [("small", SMALL), ("a/large", LARGE)])
def test_wrong_bytes_of_the_remote_are_refused(
    tmp_path: Path, identifier: str, data: bytes
) -> None:
    class Lying(Remote):
        def get_resource(
            self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
        ) -> StreamedResource:
            resource = super().get_resource(identifier, resource_type)
            resource.read_at = lambda offset, size: bytes(min(size, resource.size - offset))  # type: ignore[method-assign]
            return resource

    FileStorageConnector(tmp_path / "remote").set_resource(identifier, data)
    cached = CachedStorageConnector(Lying(tmp_path / "remote"), tmp_path / "cache")

    with pytest.raises(ChecksumMismatchError, match=identifier):
        content(cached, identifier)
    assert not files_below(tmp_path / "cache" / "bytes")
    assert not files_below(tmp_path / "cache" / "blocks")


def test_verifying_reads_the_remote_and_drops_a_damaged_copy(
    cached: CachedStorageConnector, tmp_path: Path
) -> None:
    content(cached, "small")
    copy = next(iter(files_below(tmp_path / "cache" / "bytes")))
    copy.write_bytes(SMALL[::-1])

    assert cached.verify_resource("small").sha256 == hashlib.sha256(SMALL).hexdigest()

    assert not copy.exists()
    with pytest.raises(ChecksumMismatchError):
        cached.verify_resource("small", "0" * 64)


# ---------------------------------------------------------------------- a disk that flips bits


def flip_bit(cached: CachedStorageConnector, kind: str, place: int) -> None:
    """Change a byte of the largest file of a kind as a failing disk does: size and times stay."""
    path = max((Path(cached.local) / kind).iterdir(), key=lambda each: each.stat().st_size)
    status = path.stat()
    with open(path, "r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 4]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


FLIPPED = [1, 10_001, 1 << 16, (1 << 16) + 1, 150_000, 1 << 20, (1 << 20) + 1, len(LARGE)]


@pytest.mark.parametrize("size", FLIPPED)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_flipped_bit_is_found_and_fetched_again(
    remote: Remote, tmp_path: Path, size: int, share: float
) -> None:
    remote.set_resource("data", LARGE[:size])
    cached = CachedStorageConnector(remote, tmp_path / "other")
    cached.fetch(["data"])
    flip_bit(cached, "bytes", int(share * (size - 1)))

    assert_same_bytes(content(again(cached), "data"), LARGE[:size])
    assert_same_bytes(content(again(cached), "data"), LARGE[:size])


def test_an_open_reader_finds_a_flipped_bit(
    cached: CachedStorageConnector, caplog: pytest.LogCaptureFixture
) -> None:
    cached.fetch()
    with cached.get_resource("a/large") as resource:
        assert resource.read_at(100_000, 10) == LARGE[100_000:100_010]
        flip_bit(cached, "bytes", 100_005)

        with caplog.at_level(logging.WARNING):
            assert resource.read_at(100_000, 10) == LARGE[100_000:100_010]

        assert "is damaged; it is removed and read from the remote again" in caplog.text
        assert resource.read_ranges([(0, 5), (99_999, 9)]) == [LARGE[:5], LARGE[99_999:100_008]]
        assert resource.read_at(len(LARGE) - 3, 9) == LARGE[-3:]


def test_a_flipped_bit_is_an_error_offline(cached: CachedStorageConnector, remote: Remote) -> None:
    cached.fetch()
    flip_bit(cached, "bytes", 5)
    remote.is_away = True

    with again(cached).get_resource("a/large") as resource:
        with pytest.raises(StorageUnavailableError):
            resource.read_at(0, 10)


def test_a_damaged_file_of_a_replaced_resource_is_an_error(
    cached: CachedStorageConnector, remote: Remote
) -> None:
    cached.fetch()
    with cached.get_resource("a/large") as resource:
        assert resource.read_at(0, 3) == LARGE[:3]
        flip_bit(cached, "bytes", 5)
        remote.set_resource("a/large", LARGE[::-1])

        with pytest.raises(ResourceChangedError):
            resource.read_at(0, 10)


def test_blocks_that_another_process_completed_are_verified(
    cached: CachedStorageConnector,
) -> None:
    with cached.get_resource("a/large") as slow:
        assert slow.read_at(0, 3) == LARGE[:3]
        again(cached).fetch(["a/large"])
        flip_bit(cached, "bytes", 20 * BLOCK_BYTES + 9)

        assert slow.read_at(20 * BLOCK_BYTES, 20) == LARGE[20 * BLOCK_BYTES :][:20]


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damaged_digests_of_pages_cost_no_right_byte(
    cached: CachedStorageConnector, damage: str
) -> None:
    cached.fetch()
    (pages,) = (Path(cached.local) / "pages").iterdir()
    if damage == "flip":
        flip_bit(cached, "pages", 9)
    elif damage == "cut":
        pages.write_bytes(pages.read_bytes()[:-1])
    else:  # as of a cache that an earlier version has written
        pages.unlink()

    assert_same_bytes(content(again(cached), "a/large"), LARGE)
    assert_same_bytes(content(again(cached), "a/large"), LARGE)
    assert pages.stat().st_size == -(-len(LARGE) // 4096) * 8


class Watched(FsspecStorageConnector):
    """Remembers all resources that it opened."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.opened = list[StreamedResource]()

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        resource = super().get_resource(identifier, resource_type)
        self.opened.append(resource)
        return resource


@pytest.mark.parametrize("has_digest", [True, False], ids=["digest", "no digest"])
def test_nothing_stays_open_in_the_remote(tmp_path: Path, has_digest: bool) -> None:
    watched = Watched(f"file://{tmp_path}/remote")
    if has_digest:
        watched.set_resource("a", SMALL)
    else:
        watched._files.put("a", SMALL)  # as another tool does
    cached = CachedStorageConnector(watched, tmp_path / "cache")

    for _ in range(3):
        assert content(cached, "a") == SMALL
    cached.get_resource("a").close()
    with contextlib.suppress(StorageFullError):
        cached.fetch()
    cached.get_resource("a", SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE).close()
    assert cached.has_resource("a")

    assert watched.opened
    assert [resource for resource in watched.opened if not resource.closed] == []


# ---------------------------------------------------------------------- the remote is away


def test_what_is_held_is_read_while_the_remote_is_away(
    cached: CachedStorageConnector, remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    assert cached.fetch() == ["a/large", "small"]
    online = cached.stat("a/large")

    remote.is_away = True

    for connector in (cached, again(cached)):
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert content(connector, "small") == SMALL
            assert_same_bytes(content(connector, "a/large"), LARGE)
            assert connector.has_resource("small")
            assert connector.stat("a/large") == online
            assert len(caplog.records) == 1
    remote.is_away = False
    remote.set_resource("small", b"new")
    # A machine that stood still made the remote look slow, which is not asked for ten times as
    # long.
    assert until(lambda: content(cached, "small") == b"new", seconds=60)


def test_an_unmounted_share_is_away_and_not_empty(
    cached: CachedStorageConnector, tmp_path: Path
) -> None:
    cached.fetch(["small"])
    (tmp_path / "remote").rename(tmp_path / "unmounted")

    assert content(again(cached), "small") == SMALL
    assert again(cached).has_resource("small")
    with pytest.raises(ResourceNotFoundError):
        cached.get_resource("a/large")

    (tmp_path / "unmounted").rename(tmp_path / "remote")
    assert_same_bytes(content(cached, "a/large"), LARGE)


def test_a_resource_that_is_not_cached_says_so_offline(
    cached: CachedStorageConnector, remote: Remote
) -> None:
    with cached.get_resource("a/large") as resource:
        resource.read_at(3 * BLOCK_BYTES, 10)
    remote.is_away = True

    for ask in (cached.get_resource, cached.has_resource, cached.stat):
        with pytest.raises(
            StorageUnavailableError, match=r"did not answer.*'small'.* not in the cache"
        ):
            ask("small")
    with pytest.raises(StorageUnavailableError):
        cached.list_resources()
    with cached.get_resource("a/large") as resource:
        assert resource.read_at(3 * BLOCK_BYTES + 5, 10) == LARGE[3 * BLOCK_BYTES + 5 :][:10]
        with pytest.raises(StorageUnavailableError, match="not in the cache"):
            resource.read_at(0, 10)


def test_what_was_written_through_the_cache_is_never_old_offline(
    cached: CachedStorageConnector, remote: Remote
) -> None:
    content(cached, "small")
    cached.set_resource("small", b"new")
    remote.is_away = True

    with pytest.raises(StorageUnavailableError):
        cached.get_resource("small")


# ---------------------------------------------------------------------- damage


def test_a_folder_that_is_gone_is_made_again(
    cached: CachedStorageConnector, remote: Remote
) -> None:
    for folder in ("", "bytes", "blocks", "notes"):
        cached.fetch()
        shutil.rmtree(Path(cached.local) / folder, ignore_errors=True)

        assert_same_bytes(
            content(again(cached), "a/large") + content(cached, "small"), LARGE + SMALL
        )

    again(cached).fetch()
    remote.is_away = True
    assert_same_bytes(content(again(cached), "a/large"), LARGE)


# ---------------------------------------------------------------------- no room


def test_the_oldest_files_are_evicted_first(remote: Remote, tmp_path: Path) -> None:
    limit = 3_000_000
    cached = CachedStorageConnector(remote, tmp_path / "cache", limit)
    for i in range(40):
        remote.set_resource(f"r{i}", LARGE[i : i + 150_000 + i * 1000])

    for i in range(40):
        content(cached, f"r{i}")
        assert used_bytes(cached.local) <= limit

    infos = [remote.stat(f"r{i}") for i in range(40)]
    kept = [
        i
        for i, info in enumerate(infos)
        if (tmp_path / "cache" / "bytes" / f"{info.sha256}-{info.size}").exists()
    ]
    assert kept == list(range(kept[0], 40))
    assert len(kept) >= 12


# ---------------------------------------------------------------- processes that fill it are killed


SIZES = {
    "small": 10_001,
    "b/empty": 0,
    "b/one": 900_000,
    "c": 24 * BLOCK_BYTES,
    "d/e/f": 36 * BLOCK_BYTES + 5,
}
DATA = {
    identifier: hashlib.shake_128(identifier.encode()).digest(size)
    for identifier, size in SIZES.items()
}


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
def test_processes_killed_while_they_fill_leave_nothing_wrong(
    remote: Remote, tmp_path: Path, max_bytes: int | None
) -> None:
    for identifier, data in DATA.items():
        remote.set_resource(identifier, data)
    chance = random.Random(max_bytes)
    for round_number in range(sized(2, full=9)):
        cached = CachedStorageConnector(remote, tmp_path / f"cache{round_number // 3}", max_bytes)
        children = [
            forked(lambda seed=round_number * 4 + i: read_at_random(cached, seed, 1000))  # type: ignore[misc]  # noqa: B023
            for i in range(4)
        ]
        time.sleep(chance.random() * 0.1)
        for child in children:
            os.kill(child, signal.SIGKILL)
            assert exit_status(child) in (0, -signal.SIGKILL)

    for number in range(sized(1, full=3)):
        cache = tmp_path / f"cache{number}"
        remote.is_away = True
        offline = CachedStorageConnector(remote, cache, max_bytes)
        for identifier, data in DATA.items():
            with contextlib.suppress(StorageUnavailableError):
                assert_same_bytes(content(offline, identifier), data)
        remote.is_away = False
        online = CachedStorageConnector(remote, cache, max_bytes)
        for identifier, data in DATA.items():
            assert_same_bytes(content(online, identifier), data)
        assert max_bytes is None or used_bytes(cache) <= max_bytes


# ---------------------------------------------------------------------- processes of one machine


class CountingServer(ScriptedServer):
    """Serves a bucket 10 ms away; the first request of a path in ``stuck`` is never answered."""

    def __init__(self) -> None:
        self.stuck, self.is_stuck = "", threading.Event()
        super().__init__()

    def answer(self, seen: Seen) -> Answer:
        answer = super().answer(seen)
        if self.stuck and self.stuck in seen.path and not self.is_stuck.is_set():
            self.is_stuck.set()
            self.stopped.wait(60)
        self.stopped.wait(0.01)
        return answer

    def n_bytes(self, path: str) -> int:
        """How many bytes of the objects below a path were asked for."""
        ranges = [
            seen.headers["range"].removeprefix("bytes=").split("-")
            for seen in self.requests
            if path in seen.path
        ]
        return sum(int(stop) - int(start) + 1 for start, stop in ranges)


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[CountingServer]:
    """With ``large`` in parts, and ``small`` in its pointer."""
    store, server = FsspecStorageConnector(f"file://{tmp_path}/bucket"), CountingServer()
    store.set_resource("large", LARGE * 6)
    store.set_resource("small", SMALL)
    for file in files_below(tmp_path / "bucket"):
        facts = {"ETag": '"1"', "Last-Modified": "Thu, 26 Nov 2026 12:00:00 GMT"}
        server.serve(
            f"/{file.relative_to(tmp_path)}",
            file.read_bytes(),
            ranges=True,
            headers=facts,
            is_last=False,
        )
    remote_of(server)  # imports s3fs, which forks need not do again
    yield server
    server.close()


def remote_of(server: CountingServer) -> FsspecStorageConnector:
    return FsspecStorageConnector.from_url(
        f"s3://bucket?endpointUrl={server.origin}&anonymous=true"
    )


def read_in_order(
    server: CountingServer, cache: Path, max_bytes: int | None = None, fresh_seconds: float = 0.0
) -> None:
    cached = CachedStorageConnector(
        remote_of(server), cache, max_bytes, fresh_seconds=fresh_seconds
    )
    assert content(cached, "small") == SMALL
    with cached.get_resource("large") as resource:
        assert_same_bytes(b"".join(resource), LARGE * 6)


def test_processes_fetch_each_block_once(
    bucket: CountingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, one may stand still for longer than others wait for it.
    monkeypatch.setattr(shared_work, "_PATIENCE_SECONDS", 120.0)
    work = lambda: read_in_order(bucket, tmp_path / "cache", fresh_seconds=1000)  # noqa: E731
    n_processes = sized(4, 8)

    ends = [exit_status(child) for child in [forked(work) for _ in range(n_processes)]]

    assert ends == [0] * n_processes
    assert bucket.n_bytes("/objects/") == len(LARGE) * 6
    # To describe it and to open it, each once; and to read the content of the small one.
    assert sum("resources/large" in path for path in bucket.paths()) <= 2 + n_processes
    assert sum("resources/small" in path for path in bucket.paths()) <= 3
    assert not (tmp_path / "cache" / "blocks").exists() or not files_below(
        tmp_path / "cache" / "blocks"
    )


def test_another_process_takes_over_from_a_killed_one(
    bucket: CountingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, one may stand still for longer than others wait for it.
    monkeypatch.setattr(shared_work, "_PATIENCE_SECONDS", 120.0)
    bucket.stuck = "/objects/"
    work = lambda: read_in_order(bucket, tmp_path / "cache", max_bytes=6_000_000 + len(LARGE) * 6)  # noqa: E731
    first = forked(work)
    assert bucket.is_stuck.wait(60)
    n_before = bucket.n_bytes("/objects/")
    others = [forked(work) for _ in range(2)]
    time.sleep(0.2)

    os.kill(first, signal.SIGKILL)

    assert [exit_status(child) for child in (first, *others)] == [-signal.SIGKILL, 0, 0]
    assert bucket.n_bytes("/objects/") == n_before + len(LARGE) * 6


def test_processes_that_share_less_room_than_they_read_read_on(
    bucket: CountingServer, tmp_path: Path
) -> None:
    limit, cache = 12_000_000, tmp_path / "cache"
    works = [
        lambda: read_in_order(bucket, cache, limit),
        lambda: read_in_order(bucket, cache, 2_000_000),
    ]

    children = [forked(works[i % 2]) for i in range(sized(2, 4))]
    while until(lambda: (cache / "bytes").exists(), 0.1) and len(bucket.requests) < 40:
        shutil.rmtree(cache, ignore_errors=True)  # as its user may at any time
        time.sleep(0.02)

    assert [exit_status(child) for child in children] == [0] * len(children)
    assert used_bytes(cache) <= limit
