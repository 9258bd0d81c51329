"""The test suite of storage connectors."""

from __future__ import annotations

import contextlib
import hashlib
import io
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

import pytest

from data_stack.exception import (
    ChecksumMismatchError,
    MalformedIdentifierError,
    ResourceChangedError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.resources import StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.lease import Lease
from data_stack.testing.comparing import assert_same_bytes
from data_stack.testing.processes import call_in_process

CONTENT: Final = hashlib.shake_128(b"content").digest(300_001)  # every offset has other bytes


class SourceFailed(Exception):
    """The error of a source of bytes that breaks off."""


HOSTILE_IDENTIFIERS: Final = [
    "", ".", "..", "/", "../up", "a/../../up", "/etc/passwd", "//host/share", "a//b", "a/", "/a", "a/./b", "./a",
    "a\\b", "..\\up", "C:\\x", "C:x", "a\0", "\0", "a\0b", "a\nb", "\x7f", " a", "a ", "a/ /b", "a.", "a...", ".hidden",
    "~", "~root/x", "-rf", "*", "$HOME", "a:b", "a|b", "a?b", "%2e%2e/up", "\uff0e\uff0e/up", "ü", "\u212a", "a\u200b",
    "\ud800", "NUL", "con.txt", "a/COM1", "a" * 201, "a/" * 16 + "a", "/".join(["a" * 100] * 6), "file:///etc/passwd",
    None, 0, True, b"a", ["a"], {"$ne": None},
]  # fmt: skip


class StorageConnectorContract:
    """Inherit it in a test class, and define a fixture ``connector``: an empty store, a new one for each test.

    Methods that a connector does not override must behave like their defaults: deleting and listing raise
    ``UnsupportedStorageOperationError``, everything else works.

    Attributes:
        crosses_processes: whether the connector pickles, and another process sees what is stored; False for one process's memory.
        frees_leases_of_killed_processes: whether the lease of a killed process is free at once; in some stores leases expire.
    """

    crosses_processes: ClassVar[bool] = True
    frees_leases_of_killed_processes: ClassVar[bool] = False

    @pytest.fixture
    def connector(self) -> StorageConnector:
        """An empty store."""
        raise NotImplementedError(
            f"{type(self).__name__} must define the fixture `connector`, which returns an empty store"
        )

    def test_what_was_stored_comes_back(self, connector: StorageConnector) -> None:
        for size in (0, 1, 65_536, (255 << 10) + 1, (1 << 20) - 1, (3 << 20) + 1):
            data = hashlib.shake_128(b"data").digest(size)
            connector.set_resource("a/b/data.bin", data)

            assert connector.has_resource("a/b/data.bin")
            assert connector.stat("a/b/data.bin").size == size
            with connector.get_resource("a/b/data.bin") as resource:
                assert resource.identifier == "a/b/data.bin"
                assert_same_bytes(resource.read(), data)
                assert_same_bytes(b"".join(resource), data)
                for offset in (max(0, size - 1), size // 2, (1 << 20) - 2, size):
                    assert resource.read_at(offset, 3) == data[offset:][:3]

    def test_files_and_iterables_of_bytes_can_be_stored_and_stay_open(
        self, connector: StorageConnector
    ) -> None:
        file = io.BytesIO(CONTENT)
        file.seek(0, os.SEEK_END)
        parts = (CONTENT[i : i + 70_000] for i in range(0, len(CONTENT), 70_000))
        sources: list[Any] = [
            CONTENT,
            memoryview(bytearray(CONTENT)),
            [CONTENT[:10], b"", CONTENT[10:]],
            parts,
            file,
        ]
        for number, source in enumerate(
            [*sources, StreamedResource("another/name", io.BytesIO(CONTENT))]
        ):
            connector.set_resource(f"a/{number}", source)

            assert_same_bytes(content(connector, f"a/{number}"), CONTENT)
        assert not file.closed
        with connector.get_resource("a/0") as resource:
            connector.set_resource("a/0", resource)
        assert_same_bytes(content(connector, "a/0"), CONTENT)

    def test_nothing_is_seen_of_what_is_being_stored_or_was_broken_off(
        self, connector: StorageConnector
    ) -> None:
        def watching(*, fails: bool) -> Iterator[bytes]:
            yield CONTENT
            seen.append((connector.has_resource("new"), content(connector, "old")))
            if fails:
                raise SourceFailed

        seen: list[Any] = []
        connector.set_resource("old", b"old")
        for identifier in ("old", "new"):
            with pytest.raises(SourceFailed):
                connector.set_resource(identifier, watching(fails=True))
        after = connector.has_resource("new"), content(connector, "old")
        connector.set_resource("old", watching(fails=False))

        assert [*seen, after] == [(False, b"old")] * 4
        assert_same_bytes(content(connector, "old"), CONTENT)

    def test_what_is_missing_and_a_folder_are_no_resources(
        self, connector: StorageConnector
    ) -> None:
        connector.set_resource("a/b/c", b"")

        for identifier in ("a", "a/b", "b"):
            assert not connector.has_resource(identifier)
            for ask in (connector.get_resource, connector.stat, connector.verify_resource):
                with pytest.raises(ResourceNotFoundError):
                    ask(identifier)

    def test_an_identifier_outside_of_the_grammar_is_refused(
        self, connector: StorageConnector
    ) -> None:
        connector.set_resource("a", b"")
        accepted = []

        for identifier in HOSTILE_IDENTIFIERS:
            hostile: Any = identifier
            for name in ("set_resource", "get_resource", "has_resource", "stat", "create"):
                with contextlib.suppress(MalformedIdentifierError):
                    done = getattr(connector, name)(
                        hostile, *[b"hostile"] * (name == "set_resource")
                    )
                    with done if name == "create" else contextlib.nullcontext():
                        pass
                    accepted.append(f"{name}({hostile!a:.60})")

        assert accepted == []

    def test_identifiers_are_keys(self, connector: StorageConnector) -> None:
        connector.set_resource("a/b", CONTENT)

        assert connector.has_key("a/b")
        assert not connector.has_key("a/c")
        with connector.open_key("a/b") as resource:
            assert_same_bytes(resource.read(), CONTENT)
        if overrides(connector, "list_resources"):
            assert connector.list_keys() == ["a/b"]
        for key in ("../up", "a/../../up", "a\0b", ""):
            with pytest.raises(MalformedIdentifierError):
                connector.open_key(key).close()
        if overrides(connector, "delete_resource"):
            connector.delete_key("a/b")
            assert not connector.has_resource("a/b")

    def test_no_two_identifiers_meet(self, connector: StorageConnector) -> None:
        identifiers = [
            "a/b", "a/c/d", "A/b", "a_b", "a-b", "a.b", "a+b", "a=b", "a@b", "a,b", "x.tmp", "x", "x.json",
            "manifest.json", "0", "_id", "fs.files", "a" * 200, "a" * 199 + "b", "/".join("bcdefghijklmnopq"),
            "/".join(["d" * 101] * 5),
        ]  # fmt: skip
        for identifier in identifiers:
            connector.set_resource(identifier, identifier.encode())

        assert [
            content(connector, identifier).decode() for identifier in identifiers
        ] == identifiers

    def test_a_resource_reads_like_a_file_and_threads_by_position(
        self, connector: StorageConnector
    ) -> None:
        connector.set_resource("a", CONTENT)
        offsets = [i * 7919 % len(CONTENT) for i in range(100)]

        with connector.get_resource("a") as resource, ThreadPoolExecutor(10) as threads:
            for offset, size in [
                (100_000, 70_000),
                (7, 1),
                (299_999, 10),
                (65_530, 12),
                (0, 300_001),
            ]:
                assert resource.seek(offset) == offset
                assert resource.read_at(size, 100) == CONTENT[size : size + 100]
                assert_same_bytes(resource.read(size), CONTENT[offset : offset + size])
                assert resource.tell() == min(offset + size, len(CONTENT))
            parts = list(threads.map(lambda offset: resource.read_at(offset, 1000), offsets))
            assert (resource.seek(-5, os.SEEK_END), resource.read(100)) == (
                len(CONTENT) - 5,
                CONTENT[-5:],
            )
            with pytest.raises(ValueError, match="negative"):
                resource.read_ranges([(-1, 5)])
        assert_same_bytes(
            b"".join(parts), b"".join(CONTENT[offset : offset + 1000] for offset in offsets)
        )
        assert resource.closed

    def test_ranges_are_read_in_the_order_asked_for_and_end_with_the_resource(
        self, connector: StorageConnector
    ) -> None:
        connector.set_resource("a", CONTENT)
        connector.set_resource("empty", b"")
        end = len(CONTENT)
        ranges = [
            (200_000, 10),
            (0, 5),
            (0, 5),
            (7, 0),
            (end - 3, 100),
            (end, 1),
            (end + 1000, 1),
            (0, end + 1),
        ]
        ranges += [(2**40, 2**63), (2**63, 2**64), (2**70, 0), (7, 2**70)]  # which no file has

        assert connector.read_ranges("a", ranges) == [
            CONTENT[offset : offset + size] for offset, size in ranges
        ]
        assert connector.read_ranges("a", []) == []
        assert connector.read_ranges("empty", [(0, 10), (5, 1)]) == [b"", b""]
        with pytest.raises(ResourceNotFoundError):
            connector.read_ranges("missing", [(0, 1)])

    def test_text_is_read_as_lines_of_utf_8(self, connector: StorageConnector) -> None:
        connector.set_resource("a.txt", "eins\nzwölf\n\N{OK HAND SIGN}".encode())

        with connector.get_resource(
            "a.txt", SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE
        ) as resource:
            assert list[Any](resource) == ["eins\n", "zwölf\n", "\N{OK HAND SIGN}"]

    def test_what_was_deleted_is_gone_and_nothing_else(self, connector: StorageConnector) -> None:
        if not overrides(connector, "delete_resource"):
            with pytest.raises(UnsupportedStorageOperationError):
                connector.delete_resource("never")
            return
        stored = ("a", "ab", "b/c", "b/d")
        for identifier in stored:
            connector.set_resource(identifier, identifier.encode())

        for identifier in stored[::2]:
            connector.delete_resource(identifier)
            with pytest.raises(ResourceNotFoundError):
                connector.delete_resource(identifier)

        assert [connector.has_resource(identifier) for identifier in stored] == [False, True] * 2

    def test_a_moved_resource_has_the_new_name_only_and_replaces_what_had_it(
        self, connector: StorageConnector
    ) -> None:
        can_delete = overrides(connector, "delete_resource")
        for identifier, new_identifier in (("a", "b/c"), ("b/c", "d"), ("d", "large/a")):
            data = CONTENT * 12 if new_identifier.startswith("large") else identifier.encode()
            connector.set_resource(identifier, data)
            connector.set_resource(new_identifier, b"replaced")

            with (
                contextlib.nullcontext()
                if can_delete
                else pytest.raises(UnsupportedStorageOperationError)
            ):
                connector.move_resource(identifier, new_identifier)  # or copy it

            assert connector.has_resource(identifier) is not can_delete
            connector.move_resource(new_identifier, new_identifier)  # to its own name
            assert_same_bytes(content(connector, new_identifier), data)
            assert (
                connector.verify_resource(new_identifier).sha256 == hashlib.sha256(data).hexdigest()
            )

    def test_a_resource_moved_to_a_malformed_name_or_a_missing_one_stays(
        self, connector: StorageConnector
    ) -> None:
        connector.set_resource("a", b"kept")
        for new_identifier in ("a", "missing", "other"):
            with pytest.raises(ResourceNotFoundError):
                connector.move_resource("missing", new_identifier)
        for names in (("a", "../up"), ("../up", "a"), ("../up", "../up")):
            with pytest.raises(MalformedIdentifierError):
                connector.move_resource(*names)

        assert content(connector, "a") == b"kept"
        assert not connector.has_resource("other")

    def test_resources_are_listed_by_prefix_in_order(self, connector: StorageConnector) -> None:
        if not overrides(connector, "list_resources"):
            with pytest.raises(UnsupportedStorageOperationError):
                connector.list_resources()
            return
        assert connector.list_resources() == []
        stored = ["b/1", "a/10", "a/2", "ab", "a-b/c", "a/20/deep"]
        for identifier in stored:
            connector.set_resource(identifier, b"")

        for prefix in ("", "a/", "a", "a/2", "c"):
            assert connector.list_resources(prefix) == sorted(
                each for each in stored if each.startswith(prefix)
            )
        with pytest.raises(MalformedIdentifierError):
            connector.list_resources("a\0")

    def test_a_digest_is_known_without_reading_and_verifying_finds_a_wrong_one(
        self, connector: StorageConnector
    ) -> None:
        sha256 = hashlib.sha256(CONTENT).hexdigest()
        connector.set_resource("a", CONTENT)

        info = connector.stat("a")

        assert (info.identifier, info.size) == ("a", len(CONTENT))
        assert info.sha256 in ([] if connector.knows_digests else [None]) + [sha256]
        with connector.get_resource("a") as resource:
            assert resource.sha256 == info.sha256
        assert connector.verify_resource("a").sha256 == sha256
        with pytest.raises(ChecksumMismatchError):
            connector.verify_resource("a", "0" * 64)

    def test_a_created_resource_is_published_when_its_block_ends_cleanly(
        self, connector: StorageConnector
    ) -> None:
        connector.set_resource("a/b", CONTENT)
        with connector.create("a/b") as file:
            assert (file.read(), file.tell()) == (b"", 0)  # nothing of the old content
            file.write(b"????56789")
            file.write(memoryview(CONTENT))
            file.seek(0)
            file.write(b"0123")
            file.seek(2)
            assert file.read(4) == b"2356"
            file.truncate(1000)
            assert_same_bytes(content(connector, "a/b"), CONTENT)

        for identifier in ("a/b", "new"):
            with pytest.raises(SourceFailed), connector.create(identifier) as broken_off:
                broken_off.write(CONTENT)
                raise SourceFailed
        expected = (b"012356789" + CONTENT)[:1000]
        assert content(connector, "a/b") == expected
        assert file.digest.sha256 == hashlib.sha256(expected).hexdigest()
        assert not connector.has_resource("new")

    def test_threads_store_at_once_and_of_those_that_store_one_resource_one_wins_whole(
        self, connector: StorageConnector
    ) -> None:
        identifiers = [f"folder{i % 7}/sub{i % 3}/{i}" for i in range(24)]
        versions = [bytes([65 + i]) * 200_000 for i in range(8)]

        with ThreadPoolExecutor(8) as threads:
            list(
                threads.map(
                    lambda identifier: connector.set_resource(
                        identifier, identifier.encode() * 3000
                    ),
                    identifiers,
                )
            )
            list(
                threads.map(
                    lambda version: connector.set_resource(
                        "a", [version[:100_000], version[100_000:]]
                    ),
                    versions,
                )
            )

        for identifier in identifiers:
            assert_same_bytes(content(connector, identifier), identifier.encode() * 3000)
        assert content(connector, "a") in versions

    def test_readers_see_the_old_resource_or_the_new_one(self, connector: StorageConnector) -> None:
        versions = [bytes([65 + i]) * (100_000 + i) for i in range(4)]
        connector.set_resource("a", versions[0])
        stop = threading.Event()

        def overwrite() -> None:
            while not stop.is_set():
                for version in versions:
                    connector.set_resource("a", version)

        def read(_: int) -> bytes | None:
            with contextlib.suppress(ResourceChangedError):
                return content(connector, "a")
            return None

        with ThreadPoolExecutor(3) as threads, contextlib.ExitStack() as stack:
            stack.callback(stop.set)
            writer = threads.submit(overwrite)
            seen = list(threads.map(read, range(40)))
        writer.result()
        assert set(seen) - {None} <= set(versions)

    def test_a_reader_of_a_resource_that_is_replaced_and_deleted_never_gets_other_bytes(
        self, connector: StorageConnector
    ) -> None:
        data = hashlib.shake_128(b"old").digest(3 << 20)
        connector.set_resource("a", data)
        with connector.get_resource("a") as resource:
            beginning = resource.read(100)
            connector.set_resource("a", b"new" * 500_000)
            if overrides(connector, "delete_resource"):
                connector.delete_resource("a")

            # The errors are the other honest answer, of a store that keeps no old versions.
            with contextlib.suppress(ResourceChangedError, ResourceNotFoundError):
                assert_same_bytes(beginning + resource.read(), data)

    def test_a_lease_is_for_one_at_a_time(self, connector: StorageConnector) -> None:
        with connector.lease("a/lease") as first:
            assert first.acquire()
            assert first.acquire()  # it is held already
            with connector.lease("a/lease") as second, connector.lease("b") as other:
                assert other.acquire()
                if overrides(connector, "lease"):
                    assert not second.acquire()
        with connector.lease("a/lease") as third:
            _acquire(third)

    def test_nothing_of_a_healthy_store_is_garbage(self, connector: StorageConnector) -> None:
        data = {"a/b": b"0123456789", "a/c": b"", "d": CONTENT, "e": CONTENT * 4}
        for identifier, each in data.items():
            connector.set_resource(identifier, b"replaced at once")
            connector.set_resource(identifier, each)

        with connector.get_resource("e") as resource, connector.create("f") as file:
            file.write(CONTENT)
            # What was replaced is spared for the default grace of a day.
            assert (connector.collect_garbage(dry_run=True), connector.collect_garbage()) == (
                [],
                [],
            )
            assert_same_bytes(resource.read(), data["e"])

        connector.collect_garbage(0.0)

        assert connector.collect_garbage(0.0) == []
        for identifier, each in {**data, "f": CONTENT}.items():
            assert_same_bytes(content(connector, identifier), each)

    def test_the_lease_of_a_killed_process_is_free_again(self, connector: StorageConnector) -> None:
        if not self.frees_leases_of_killed_processes:
            return
        here, there = multiprocessing.Pipe()
        holder = multiprocessing.get_context("spawn").Process(
            target=_hold_lease, args=(connector, there), daemon=True
        )
        holder.start()
        assert here.poll(60)
        assert here.recv() is True

        with connector.lease("a/lease") as lease:
            assert not lease.acquire()
            holder.kill()
            holder.join()
            _acquire(lease)

    def test_another_process_reads_what_is_stored(self, connector: StorageConnector) -> None:
        if not self.crosses_processes:
            return
        connector.set_resource("a", CONTENT)

        with connector.get_resource("a") as resource:
            by_connector = call_in_process(content, connector, "a")
            by_resource = call_in_process(StreamedResource.read, resource)
            # To the connector it adds a name and a digest, nothing that is stored.
            assert len(pickle.dumps(resource)) < len(pickle.dumps(connector)) + 1000

        assert_same_bytes(by_connector, CONTENT)
        assert_same_bytes(by_resource, CONTENT)

    def test_after_a_fork_both_processes_read_for_themselves(
        self, connector: StorageConnector
    ) -> None:
        if not hasattr(os, "fork"):
            return
        connector.set_resource("a", CONTENT)
        with connector.get_resource("a") as resource:
            beginning = resource.read(1000)

            if (child := os.fork()) == 0:
                try:
                    os._exit(
                        0
                        if resource.read(100_000) == CONTENT[1000:101_000] and resource.seek(5) == 5
                        else 1
                    )
                finally:
                    os._exit(2)  # no pytest, no cleaning up of what the parent still uses

            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert_same_bytes(beginning + resource.read(), CONTENT)


def _acquire(lease: Lease) -> None:
    """Take a lease within a minute: a store that did not answer in time has it until it lapses."""
    deadline = time.monotonic() + 60
    while not lease.acquire():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _hold_lease(connector: StorageConnector, pipe: Any) -> None:
    """Take a lease, say so, and keep it until killed."""
    with connector.lease("a/lease") as lease:
        pipe.send(lease.acquire())
        time.sleep(600)


def content(connector: StorageConnector, identifier: str) -> bytes:
    """All bytes of a stored resource."""
    with connector.get_resource(identifier) as resource:
        return resource.read()


def overrides(connector: StorageConnector, method: str) -> bool:
    """Whether a connector, or the one behind its cache, overrides a method."""
    return getattr(type(uncached(connector)), method) is not getattr(StorageConnector, method)
