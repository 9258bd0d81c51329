"""What every storage connector promises."""

from __future__ import annotations

import contextlib
import hashlib
import io
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

import pytest

from data_stack.exception import (
    ChecksumMismatchError,
    DataStackError,
    MalformedIdentifierError,
    ResourceChangedError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.resources import StreamedResource, StreamedTextResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import StorageConnector

CONTENT: Final = hashlib.shake_128(b"content").digest(300_001)  # every place tells where it is

HOSTILE_IDENTIFIERS: Final = [
    "", ".", "..", "/", "../up", "a/../../up", "/etc/passwd", "//host/share", "a//b", "a/", "/a", "a/./b", "./a",
    "a\\b", "..\\up", "C:\\x", "C:x", "a\0", "\0", "a\0b", "a\nb", "\x7f", " a", "a ", "a/ /b", "a.", "a...", ".hidden",
    "~", "~root/x", "-rf", "*", "$HOME", "a:b", "a|b", "a?b", "%2e%2e/up", "\uff0e\uff0e/up", "ü", "\u212a", "a\u200b",
    "\ud800", "NUL", "con.txt", "a/COM1", "a" * 201, "a/" * 16 + "a", "/".join(["a" * 100] * 6), "file:///etc/passwd",
    None, 0, True, b"a", ["a"], {"$ne": None},
]  # fmt: skip


class _ForwardOnly(io.RawIOBase):
    """A source that cannot seek and gives less than it was asked for."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(min(size, 5000) if size >= 0 else 5000)


SOURCES: Final[dict[str, Callable[[], Any]]] = {
    "bytes": lambda: CONTENT,
    "bytearray": lambda: bytearray(CONTENT),
    "memoryview": lambda: memoryview(CONTENT),
    "file": lambda: io.BytesIO(CONTENT),
    "list": lambda: [CONTENT[:10], b"", CONTENT[10:]],
    "generator": lambda: (CONTENT[i : i + 70_000] for i in range(0, len(CONTENT), 70_000)),
    "resource": lambda: StreamedResource("another/name", io.BytesIO(CONTENT)),
    "forward-only stream": lambda: _ForwardOnly(CONTENT),
}


class StorageConnectorContract:
    """Inherit it in a test class, and give it a fixture ``connector``: an empty store, of its own for each test.

    Methods that a connector does not override are held to their defaults: deleting and listing say that they are not
    supported, all else works.

    Attributes:
        crosses_processes: whether the connector pickles, and another process sees what is stored. Set it to False for a
            store that lives in one process.
        frees_leases_of_killed_processes: whether processes keep each other off by leases, and one is free as soon as the process
            that holds it was killed. Set it to True to have that tested; some stores let it run out after a while instead.
    """

    crosses_processes: ClassVar[bool] = True
    frees_leases_of_killed_processes: ClassVar[bool] = False

    @pytest.fixture
    def connector(self) -> StorageConnector:
        """An empty store."""
        raise NotImplementedError(f"{type(self).__name__} has to define the fixture `connector`, which gives an empty store")

    # ------------------------------------------------------------------ storing

    @pytest.mark.parametrize("size", [0, 1, 65_536, 300_001, (3 << 20) + 1])
    def test_what_was_stored_comes_back(self, connector: StorageConnector, size: int) -> None:
        data = hashlib.shake_128(b"data").digest(size)

        connector.set_resource("a/b/data.bin", data)

        assert connector.has_resource("a/b/data.bin")
        with connector.get_resource("a/b/data.bin") as resource:
            assert resource.identifier == "a/b/data.bin"
            assert resource.read() == data

    @pytest.mark.parametrize("source", SOURCES)
    def test_whatever_gives_bytes_can_be_stored(self, connector: StorageConnector, source: str) -> None:
        connector.set_resource("a", SOURCES[source]())

        assert_same_bytes(content(connector, "a"), CONTENT)

    def test_a_file_is_stored_from_its_start_and_stays_open(self, connector: StorageConnector) -> None:
        file = io.BytesIO(CONTENT)
        file.seek(0, os.SEEK_END)

        connector.set_resource("a", file)

        assert_same_bytes(content(connector, "a"), CONTENT)
        assert not file.closed

    def test_storing_replaces(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)
        connector.set_resource("a", b"shorter")

        assert content(connector, "a") == b"shorter"

    def test_a_source_that_fails_leaves_what_was_there(self, connector: StorageConnector) -> None:
        def failing() -> Iterator[bytes]:
            yield CONTENT
            raise _SourceFailed

        connector.set_resource("old", b"old")
        for identifier in ("old", "new"):
            with pytest.raises(_SourceFailed):
                connector.set_resource(identifier, failing())

        assert content(connector, "old") == b"old"
        assert not connector.has_resource("new")

    def test_nothing_is_seen_of_a_resource_that_is_being_stored(self, connector: StorageConnector) -> None:
        seen = []

        def watching() -> Iterator[bytes]:
            yield CONTENT
            seen.append((connector.has_resource("new"), content(connector, "old")))
            yield b"end"

        connector.set_resource("old", b"old")
        connector.set_resource("new", watching())
        connector.set_resource("old", watching())

        assert seen == [(False, b"old"), (True, b"old")]
        assert_same_bytes(content(connector, "old"), CONTENT + b"end")

    @pytest.mark.parametrize("pieces", [["text"], [b"bytes", "text"], [1]])
    def test_what_is_no_bytes_is_refused(self, connector: StorageConnector, pieces: list[Any]) -> None:
        with pytest.raises((TypeError, DataStackError)):
            connector.set_resource("a", pieces)

        assert not connector.has_resource("a")

    def test_a_resource_stored_from_itself_keeps_its_bytes(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)

        with connector.get_resource("a") as resource:
            connector.set_resource("a", resource)

        assert_same_bytes(content(connector, "a"), CONTENT)

    def test_an_empty_resource_is_a_resource(self, connector: StorageConnector) -> None:
        connector.set_resource("empty", b"")

        assert connector.has_resource("empty")
        assert connector.stat("empty").size == 0
        assert connector.read_ranges("empty", [(0, 10), (5, 1)]) == [b"", b""]
        with connector.get_resource("empty") as resource:
            assert list(resource) == []

    # ------------------------------------------------------------------ identifiers

    def test_what_is_missing_is_an_error_of_ours(self, connector: StorageConnector) -> None:
        connector.set_resource("a", b"")

        assert not connector.has_resource("b")
        for ask in (connector.get_resource, connector.stat, connector.verify_resource):
            with pytest.raises(ResourceNotFoundError, match="b"):
                ask("b")

    def test_a_folder_is_no_resource(self, connector: StorageConnector) -> None:
        connector.set_resource("a/b/c", CONTENT)

        for folder in ("a", "a/b"):
            assert not connector.has_resource(folder)
            with pytest.raises(ResourceNotFoundError):
                connector.get_resource(folder)

    def test_an_identifier_outside_of_the_grammar_is_refused(self, connector: StorageConnector) -> None:
        connector.set_resource("a", b"")

        def create(identifier: Any) -> None:
            with connector.create(identifier):
                pass

        operations: dict[str, Callable[[Any], Any]] = {
            "set_resource": lambda identifier: connector.set_resource(identifier, b"hostile"),
            "get_resource": connector.get_resource,
            "has_resource": connector.has_resource,
            "stat": connector.stat,
            "create": create,
        }

        accepted = []
        for identifier in HOSTILE_IDENTIFIERS:
            for name, operation in operations.items():
                try:
                    operation(identifier)
                except MalformedIdentifierError:
                    continue
                accepted.append(f"{name}({identifier!a:.60})")

        assert accepted == []

    def test_no_two_identifiers_meet(self, connector: StorageConnector) -> None:
        identifiers = [
            "a/b", "a", "a/b/c", "A", "A/b", "a_b", "a-b", "a.b", "a+b", "a=b", "a@b", "a,b", "x.tmp", "x", "x.json",
            "manifest.json", "0", "_id", "fs.files", "a" * 200, "a" * 199 + "b", "/".join("abcdefghijklmnop"),
            "/".join(["d" * 101] * 5),
        ]  # fmt: skip
        for identifier in identifiers:
            connector.set_resource(identifier, identifier.encode())

        assert [content(connector, identifier).decode() for identifier in identifiers] == identifiers

    # ------------------------------------------------------------------ reading

    def test_a_resource_is_read_at_any_place(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)

        with connector.get_resource("a") as resource:
            assert resource.readable()
            assert resource.seekable()
            assert resource.size == len(CONTENT)
            assert resource.read(3) == CONTENT[:3]
            assert resource.tell() == 3
            assert resource.seek(-5, os.SEEK_END) == len(CONTENT) - 5
            assert resource.read(100) == CONTENT[-5:]
            assert resource.read(1) == b""
            assert resource.read_at(1000, 500) == CONTENT[1000:1500]
            assert resource.read_at(len(CONTENT) + 5, 1) == b""
            assert_same_bytes(b"".join(resource), CONTENT)  # iterating begins at the start
        assert resource.closed

    def test_resources_read_at_once_do_not_disturb_each_other(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)

        with connector.get_resource("a") as first, connector.get_resource("a") as second:
            pieces = [(first.read(997), second.read(997)) for _ in range(302)]

        assert_same_bytes(b"".join(a for a, _ in pieces), CONTENT)
        assert_same_bytes(b"".join(b for _, b in pieces), CONTENT)

    def test_threads_read_one_resource_by_position(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)
        offsets = [i * 7919 % len(CONTENT) for i in range(400)]

        with connector.get_resource("a") as resource, ThreadPoolExecutor(10) as threads:
            parts = list(threads.map(lambda offset: resource.read_at(offset, 1000), offsets))

        assert_same_bytes(b"".join(parts), b"".join(CONTENT[offset : offset + 1000] for offset in offsets))

    def test_ranges_are_read_in_the_order_asked_for_and_end_with_the_resource(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)
        end = len(CONTENT)
        ranges = [(200_000, 10), (0, 5), (0, 5), (7, 0), (end - 3, 100), (end, 1), (end + 1000, 1), (0, end + 1)]

        assert connector.read_ranges("a", ranges) == [CONTENT[offset : offset + size] for offset, size in ranges]
        assert connector.read_ranges("a", []) == []
        with pytest.raises(ResourceNotFoundError):
            connector.read_ranges("missing", [(0, 1)])

    @pytest.mark.parametrize("block_bytes", [255 << 10, 1 << 20])
    def test_sizes_and_places_about_a_block_are_like_any_other(self, connector: StorageConnector, block_bytes: int) -> None:
        data = _noise(2 * block_bytes + 1)
        for size in (block_bytes - 1, block_bytes, block_bytes + 1, 2 * block_bytes + 1):
            connector.set_resource("a", data[:size])

            with connector.get_resource("a") as resource:
                assert resource.size == size
                assert_same_bytes(resource.read(), data[:size])
                for offset in (block_bytes - 2, block_bytes - 1, block_bytes, size - 1, size):
                    assert resource.read_at(offset, 3) == data[offset : min(offset + 3, size)]
                assert resource.read_at(0, size + 1)[-1:] == data[size - 1 : size]
            assert connector.stat("a").size == size

    def test_ranges_are_read_without_moving_the_position(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)
        ranges = [(200_000, 10), (0, 5), (0, 5), (7, 0), (len(CONTENT) - 3, 100), (len(CONTENT) + 1, 1), (100, 250_000)]

        with connector.get_resource("a") as resource:
            resource.seek(11)
            parts = resource.read_ranges(ranges)
            position = resource.tell()
            none = resource.read_ranges([])
            with pytest.raises(ValueError, match="negative"):
                resource.read_ranges([(-1, 5)])

        assert parts == [CONTENT[offset : offset + size] for offset, size in ranges]
        assert (position, none) == (11, [])

    def test_any_sequence_of_reads_gives_slices(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)
        position, state = 0, 7

        with connector.get_resource("a") as resource:
            for _ in range(200):
                state = state * 1103515245 % (1 << 31) + 12345  # the same walk every time
                offset, size = (state >> 5) % (len(CONTENT) + 50), (state >> 9) % (5000 if state % 3 else 100_000)
                match state % 4:
                    case 0:
                        assert resource.read_at(offset, size) == CONTENT[offset : offset + size]
                    case 1:
                        position = resource.seek(offset)
                    case 2:
                        part = resource.read(size)
                        assert part == CONTENT[position : position + size]
                        position += len(part)
                    case _:
                        ranges = [(offset, size % 999), (size, 10), (offset // 2, 10)]
                        assert resource.read_ranges(ranges) == [CONTENT[start : start + length] for start, length in ranges]

    def test_text_is_read_as_lines_of_utf_8(self, connector: StorageConnector) -> None:
        connector.set_resource("a.txt", "eins\nzwölf\n\N{OK HAND SIGN}".encode())

        with connector.get_resource("a.txt", SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE) as resource:
            text: Any = resource
            assert isinstance(text, StreamedTextResource)
            assert list(text) == ["eins\n", "zwölf\n", "\N{OK HAND SIGN}"]

    # ------------------------------------------------------------------ at the same time

    def test_threads_store_different_resources_at_once(self, connector: StorageConnector) -> None:
        identifiers = [f"folder{i % 7}/sub{i % 3}/{i}" for i in sorted(range(100), key=lambda i: i * 37 % 101)]

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda identifier: connector.set_resource(identifier, identifier.encode() * 3000), identifiers))

        for identifier in identifiers:
            assert_same_bytes(content(connector, identifier), identifier.encode() * 3000)

    def test_of_several_writers_of_one_resource_one_wins_whole(self, connector: StorageConnector) -> None:
        versions = [bytes([65 + i]) * 200_000 for i in range(8)]

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda version: connector.set_resource("a", [version[:100_000], version[100_000:]]), versions))

        assert content(connector, "a") in versions

    def test_readers_see_the_old_resource_or_the_new_one(self, connector: StorageConnector) -> None:
        versions = [bytes([65 + i]) * (100_000 + i) for i in range(4)]
        connector.set_resource("a", versions[0])
        stop = threading.Event()

        def overwrite() -> None:
            i = 0
            while not stop.is_set():
                i += 1
                connector.set_resource("a", versions[i % 4])

        def read(_: int) -> bytes | None:
            with contextlib.suppress(ResourceChangedError):
                return content(connector, "a")
            return None

        with ThreadPoolExecutor(3) as threads:
            writer = threads.submit(overwrite)
            try:
                seen = list(threads.map(read, range(80)))
            finally:
                stop.set()
            writer.result()

        assert set(seen) - {None} <= set(versions)

    def test_whoever_reads_goes_on_reading_what_was_opened(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)
        with connector.get_resource("a") as resource:
            beginning = resource.read(100)

            connector.set_resource("a", b"new" * 200_000)

            # The error is the other honest answer, of a store that keeps no old versions.
            with contextlib.suppress(ResourceChangedError):
                assert_same_bytes(beginning + resource.read(), CONTENT)

    def test_whoever_reads_a_resource_that_is_replaced_and_deleted_is_never_given_other_bytes(
        self, connector: StorageConnector
    ) -> None:
        data = _noise(3 << 20)
        connector.set_resource("a", data)
        with connector.get_resource("a") as resource:
            beginning = resource.read(100)
            connector.set_resource("a", b"new" * 500_000)
            if overrides(connector, "delete_resource"):
                connector.delete_resource("a")

            # The errors are the other honest answer, of a store that keeps no old versions.
            with contextlib.suppress(ResourceChangedError, ResourceNotFoundError):
                assert resource.read_at(2 << 20, 1000) == data[2 << 20 : (2 << 20) + 1000]
            with contextlib.suppress(ResourceChangedError, ResourceNotFoundError):
                assert_same_bytes(beginning + resource.read(), data)

    # ------------------------------------------------------------------ optional operations

    def test_a_deleted_resource_is_gone(self, connector: StorageConnector) -> None:
        connector.set_resource("a/b", CONTENT)
        connector.set_resource("a/c", b"stays")
        if not overrides(connector, "delete_resource"):
            with pytest.raises(UnsupportedStorageOperationError):
                connector.delete_resource("a/b")
            return

        connector.delete_resource("a/b")

        assert not connector.has_resource("a/b")
        assert content(connector, "a/c") == b"stays"
        for identifier in ("a/b", "a", "never"):
            with pytest.raises(ResourceNotFoundError):
                connector.delete_resource(identifier)
        with pytest.raises(MalformedIdentifierError):
            connector.delete_resource("../a")
        connector.set_resource("a/b", b"again")
        assert content(connector, "a/b") == b"again"

    def test_resources_are_listed_by_prefix_in_order(self, connector: StorageConnector) -> None:
        if not overrides(connector, "list_resources"):
            with pytest.raises(UnsupportedStorageOperationError):
                connector.list_resources()
            return
        assert connector.list_resources() == []
        stored = ["b/1", "a/10", "a/2", "ab", "a-b/c", "a/2/deep"]
        for identifier in stored:
            connector.set_resource(identifier, b"")

        assert connector.list_resources() == sorted(stored)
        assert connector.list_resources("a/") == ["a/10", "a/2", "a/2/deep"]
        assert connector.list_resources("a") == ["a-b/c", "a/10", "a/2", "a/2/deep", "ab"]
        assert connector.list_resources("a/2") == ["a/2", "a/2/deep"]
        assert connector.list_resources("c") == []
        with pytest.raises(MalformedIdentifierError):
            connector.list_resources("a\0")

    def test_size_and_digest_are_known_without_reading(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)

        info = connector.stat("a")

        assert (info.identifier, info.size) == ("a", len(CONTENT))
        assert info.sha256 in ([] if connector.knows_digests else [None]) + [hashlib.sha256(CONTENT).hexdigest()]
        with connector.get_resource("a") as resource:
            assert resource.sha256 == info.sha256

    def test_verifying_reads_all_and_finds_a_wrong_digest(self, connector: StorageConnector) -> None:
        sha256 = hashlib.sha256(CONTENT).hexdigest()
        connector.set_resource("a", CONTENT)

        assert connector.verify_resource("a").sha256 == sha256
        assert connector.verify_resource("a", sha256).size == len(CONTENT)
        with pytest.raises(ChecksumMismatchError, match="expected 0000"):
            connector.verify_resource("a", "0" * 64)

    def test_a_store_behaves_like_a_dict(self, connector: StorageConnector) -> None:
        identifiers = ["a", "a/b", "a/b/c", "a/d", "b", "b/a"]
        can_delete, can_list = overrides(connector, "delete_resource"), overrides(connector, "list_resources")
        model: dict[str, bytes] = {}
        state = 1
        for step in range(300):
            state = state * 1103515245 % (1 << 31) + 12345  # the same walk every time
            identifier = identifiers[(state >> 8) % len(identifiers)]
            if (state >> 16) % 5 < 3 or not can_delete:
                model[identifier] = b"%d" % step
                connector.set_resource(identifier, model[identifier])
            elif identifier in model:
                del model[identifier]
                connector.delete_resource(identifier)

            assert connector.has_resource(identifier) == (identifier in model)
            if step % 10 == 9:  # each look at all of them is a dozen requests to a server
                assert {other for other in identifiers if connector.has_resource(other)} == set(model)
                assert all(content(connector, other) == data for other, data in model.items())
                assert not can_list or connector.list_resources() == sorted(model)

    # ------------------------------------------------------------------ create

    def test_a_created_resource_is_published_when_its_block_ends(self, connector: StorageConnector) -> None:
        with connector.create("a/b") as file:
            file.write(CONTENT[:100])
            file.write(memoryview(CONTENT)[100:])
            assert not connector.has_resource("a/b")

        assert_same_bytes(content(connector, "a/b"), CONTENT)
        assert file.digest.sha256 == hashlib.sha256(CONTENT).hexdigest()
        with pytest.raises(ValueError, match=r".+"):
            file.write(b"too late")

    def test_a_created_resource_is_written_in_any_order_and_read_back(self, connector: StorageConnector) -> None:
        with connector.create("a") as file:
            file.write(b"????56789")
            file.seek(0)
            file.write(b"0123")
            file.seek(2)
            assert file.read(4) == b"2356"
            file.truncate(8)

        assert content(connector, "a") == b"01235678"
        assert file.digest.sha256 == hashlib.sha256(b"01235678").hexdigest()

    def test_a_created_resource_is_gone_when_its_block_raises(self, connector: StorageConnector) -> None:
        connector.set_resource("old", b"old")
        for identifier in ("old", "new"):
            with pytest.raises(_SourceFailed), connector.create(identifier) as file:
                file.write(CONTENT)
                raise _SourceFailed

        assert content(connector, "old") == b"old"
        assert not connector.has_resource("new")

    # ------------------------------------------------------------------ leases and left-overs

    def test_a_lease_is_for_one_at_a_time(self, connector: StorageConnector) -> None:
        with connector.lease("a/lease") as first:
            assert first.acquire()
            assert first.acquire()  # it is held already
            with connector.lease("a/lease") as second, connector.lease("b") as other:
                assert other.acquire()
                if overrides(connector, "lease"):
                    assert not second.acquire()
        with connector.lease("a/lease") as third:
            assert third.acquire()

    def test_cleaning_up_leaves_resources_and_live_writers_alone(self, connector: StorageConnector) -> None:
        connector.set_resource("a", CONTENT)
        with connector.create("b") as file:
            file.write(CONTENT)
            connector.remove_abandoned()

        assert_same_bytes(content(connector, "a"), CONTENT)
        assert_same_bytes(content(connector, "b"), CONTENT)

    # ------------------------------------------------------------------ upkeep

    def test_nothing_of_a_healthy_store_is_garbage_or_a_finding(self, connector: StorageConnector) -> None:
        sizes = {"a/b": 10, "a/c": 0, "d": len(CONTENT), "e": (1 << 20) + 1}
        for identifier, size in sizes.items():
            connector.set_resource(identifier, b"replaced at once")
            connector.set_resource(identifier, _noise(size))

        with connector.get_resource("e") as resource, connector.create("f") as file:
            file.write(CONTENT)
            promised = connector.collect_garbage(dry_run=True)
            collected = connector.collect_garbage()
            faults = [finding for finding in connector.audit() if finding.is_fault]
            read = resource.read()

        # What was replaced is spared for the default grace of a day.
        assert (promised, collected, faults) == ([], [], [])
        assert_same_bytes(read, _noise(sizes["e"]))
        for identifier, size in sizes.items():
            assert_same_bytes(content(connector, identifier), _noise(size))
        assert_same_bytes(content(connector, "f"), CONTENT)

    def test_collecting_garbage_at_once_leaves_what_is_stored(self, connector: StorageConnector) -> None:
        for identifier in ("a", "b/c"):
            connector.set_resource(identifier, b"replaced")
            connector.set_resource(identifier, CONTENT)

        connector.collect_garbage(0.0)
        again = connector.collect_garbage(0.0)

        assert again == []
        assert connector.audit() == []
        for identifier in ("a", "b/c"):
            assert_same_bytes(content(connector, identifier), CONTENT)

    def test_a_store_says_how_much_it_holds(self, connector: StorageConnector) -> None:
        if not overrides(connector, "list_resources"):
            with pytest.raises(UnsupportedStorageOperationError):
                connector.usage()
            return
        nothing = connector.usage()
        connector.set_resource("a/b", CONTENT)
        connector.set_resource("c", b"12345")

        usage = connector.usage()

        assert (nothing.n_resources, nothing.resource_bytes) == (0, 0)
        assert (usage.n_resources, usage.resource_bytes) == (2, len(CONTENT) + 5)
        assert usage.stored_bytes is None or usage.stored_bytes > 0

    # ------------------------------------------------------------------ other processes

    def test_the_lease_of_a_killed_process_is_free_again(self, connector: StorageConnector) -> None:
        if not self.frees_leases_of_killed_processes:
            return
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        holder = spawn.Process(target=_hold_lease, args=(connector, there), daemon=True)
        holder.start()
        assert here.poll(60)
        assert here.recv() is True

        with connector.lease("a/lease") as lease:
            while_held = lease.acquire()
            holder.kill()
            holder.join()
            until = time.monotonic() + 10
            while not (afterwards := lease.acquire()) and time.monotonic() < until:
                time.sleep(0.05)

        assert (while_held, afterwards) == (False, True)

    def test_a_connector_and_its_resources_pickle(self, connector: StorageConnector) -> None:
        if not self.crosses_processes:
            return
        connector.set_resource("a", CONTENT)

        assert_same_bytes(content(pickle.loads(pickle.dumps(connector)), "a"), CONTENT)  # noqa: S301  # our own pickle
        with connector.get_resource("a") as resource:
            copy = pickle.loads(pickle.dumps(resource))  # noqa: S301  # our own pickle
            # To the connector it adds a name and a digest, nothing that is stored.
            assert len(pickle.dumps(resource)) < len(pickle.dumps(connector)) + 1000
        with copy:
            assert copy.identifier == "a"
            assert_same_bytes(copy.read(), CONTENT)

    def test_a_spawned_process_reads_what_is_stored(self, connector: StorageConnector) -> None:
        if not self.crosses_processes:
            return
        connector.set_resource("a", CONTENT)

        with multiprocessing.get_context("spawn").Pool(1) as pool, connector.get_resource("a") as resource:
            by_connector = pool.apply(content, (connector, "a"))
            by_resource = pool.apply(_read_all, (resource,))

        assert_same_bytes(by_connector, CONTENT)
        assert_same_bytes(by_resource, CONTENT)

    def test_after_a_fork_both_processes_read_for_themselves(self, connector: StorageConnector) -> None:
        if not hasattr(os, "fork"):
            return
        connector.set_resource("a", CONTENT)
        with connector.get_resource("a") as resource:
            beginning = resource.read(1000)

            child_read_right = _in_fork(lambda: resource.read(100_000) == CONTENT[1000:101_000] and resource.seek(5) == 5)

            assert child_read_right
            assert_same_bytes(beginning + resource.read(), CONTENT)


class _SourceFailed(Exception):
    """What a source of bytes says when it breaks off."""


def assert_same_bytes(actual: bytes, expected: bytes) -> None:
    """Fail with the first difference. (pytest would compare byte by byte, in CI whole: minutes for a few 100 kB.)"""
    if actual != expected:
        at = next((i for i, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), min(len(actual), len(expected)))
        pytest.fail(
            f"{len(actual):,} bytes differ from the {len(expected):,} expected ones from offset {at:,} on: "
            f"{actual[at : at + 20]!r} instead of {expected[at : at + 20]!r}"
        )


def content(connector: StorageConnector, identifier: str) -> bytes:
    """All bytes of a stored resource."""
    with connector.get_resource(identifier) as resource:
        return resource.read()


def overrides(connector: StorageConnector, method: str) -> bool:
    """Whether a connector brings a method of its own, instead of the default of StorageConnector."""
    return getattr(type(connector), method) is not getattr(StorageConnector, method)


def _noise(size: int) -> bytes:
    """Bytes of which every place tells where it is."""
    return hashlib.shake_128(b"noise").digest(size)


def _hold_lease(connector: StorageConnector, pipe: Any) -> None:
    """Take a lease, say so, and keep it until killed."""
    with connector.lease("a/lease") as lease:
        pipe.send(lease.acquire())
        time.sleep(600)


def _read_all(resource: StreamedResource) -> bytes:
    with resource:
        return resource.read()


def _in_fork(work: Callable[[], bool]) -> bool:
    """What ``work`` returns in a forked child."""
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            exit_code = 0 if work() else 1
        finally:
            os._exit(exit_code)  # no pytest, no cleaning up of what the parent still uses
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
