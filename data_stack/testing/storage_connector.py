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
import warnings
from collections.abc import Callable, Iterator
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
from data_stack.testing.comparing import assert_same_bytes
from data_stack.testing.processes import call_in_process
from data_stack.testing.waiting import PATIENCE_SECONDS, wait_until

#: Bytes that differ at every offset, so that a wrong offset is found.
CONTENT: Final = hashlib.shake_128(b"content").digest(300_001)

_TEXT = "eins\nzwölf\n\N{OK HAND SIGN}"

#: Sizes around the blocks of stores: of GridFS (255 KiB), and of 64 KiB, 1 MiB, 3 MiB.
_SIZES = (0, 1, 65_536, (255 << 10) + 1, (1 << 20) - 1, (3 << 20) + 1)

#: Values that are not identifiers; a store that accepts one may read or write outside of its root.
HOSTILE_IDENTIFIERS: Final = [
    # outside of the root, absolute, or not normalized
    "", ".", "..", "/", "../up", "a/../../up", "/etc/passwd", "//host/share", "a//b", "a/", "/a",
    "a/./b", "./a", "file:///etc/passwd", "%2e%2e/up", "\uff0e\uff0e/up",
    # special in Windows
    "a\\b", "..\\up", "C:\\x", "C:x", "NUL", "con.txt", "a/COM1", "a.", "a...", "a:b", "a|b", "a?b",
    # special in a shell, or hidden
    ".hidden", "~", "~root/x", "-rf", "*", "$HOME",
    # characters that are invisible, or look like others
    "a\0", "\0", "a\0b", "a\nb", "\x7f", " a", "a ", "a/ /b", "ü", "\u212a", "a\u200b", "\ud800",
    # too long, or too deep
    "a" * 201, "a/" * 16 + "a", "/".join(["a" * 100] * 6),
    # no text
    None, 0, True, b"a", ["a"], {"$ne": None},
]  # fmt: skip

#: Identifiers that a store might confuse with each other, or with names of its own.
_SIMILAR_IDENTIFIERS: Final = [
    # only the capital letter, or one character, differs
    "a/b", "a/c/d", "A/b", "a_b", "a-b", "a.b", "a+b", "a=b", "a@b", "a,b",
    # names that stores use
    "x.tmp", "x", "x.json", "manifest.json", "0", "_id", "fs.files",
    # as long, and as deep, as identifiers may be
    "a" * 200, "a" * 199 + "b", "/".join("bcdefghijklmnopq"), "/".join(["d" * 101] * 5),
]  # fmt: skip


class SourceFailed(Exception):
    """The error of a source of bytes that breaks off."""


class StorageConnectorContract:
    """What every storage connector promises.

    Inherit it in a test class, and define a fixture ``connector``: an empty store, a new one for
    each test.

    Methods that a connector does not override must behave like their defaults: deleting and listing
    raise ``UnsupportedStorageOperationError``, everything else works.

    Attributes:
        crosses_processes: whether the connector pickles, and another process sees what is stored;
            False for one process's memory.
        frees_leases_of_killed_processes: whether the lease of a killed process is free at once.
            False for a store whose leases expire after some time.
    """

    crosses_processes: ClassVar[bool] = True
    frees_leases_of_killed_processes: ClassVar[bool] = False

    @pytest.fixture
    def connector(self) -> StorageConnector:
        """Return an empty store."""
        raise NotImplementedError(
            f"{type(self).__name__} must define the fixture `connector`, which returns an empty "
            "store"
        )

    # ------------------------------------------------------------------ storing

    def test_what_was_stored_comes_back(self, connector: StorageConnector) -> None:
        """Resources of any size are read whole, block by block, and at any offset."""
        for size in _SIZES:
            data = hashlib.shake_128(b"data").digest(size)
            connector.set_resource("a/b/data.bin", data)

            assert connector.has_resource("a/b/data.bin")
            assert connector.stat("a/b/data.bin").size == size
            with connector.get_resource("a/b/data.bin") as resource:
                assert resource.identifier == "a/b/data.bin"
                assert_same_bytes(resource.read(), data)
                assert_same_bytes(b"".join(resource), data)
                for offset in (max(0, size - 1), size // 2, (1 << 20) - 2, size):
                    assert resource.read_at(offset, 3) == data[offset : offset + 3]

    def test_files_and_iterables_of_bytes_can_be_stored(self, connector: StorageConnector) -> None:
        """What is stored may be bytes, a buffer, parts, a file or a resource; files stay open.

        A file is stored from its beginning, wherever its position is.
        """
        file = io.BytesIO(CONTENT)
        file.seek(0, os.SEEK_END)
        parts = (CONTENT[offset : offset + 70_000] for offset in range(0, len(CONTENT), 70_000))
        sources: list[Any] = [
            CONTENT,
            memoryview(bytearray(CONTENT)),
            [CONTENT[:10], b"", CONTENT[10:]],
            parts,
            file,
            StreamedResource("another/name", io.BytesIO(CONTENT)),
        ]
        for number, source in enumerate(sources):
            connector.set_resource(f"a/{number}", source)

            assert_same_bytes(content(connector, f"a/{number}"), CONTENT)
        assert not file.closed

    def test_a_resource_can_be_stored_over_itself(self, connector: StorageConnector) -> None:
        """A store may read the resource that it replaces."""
        connector.set_resource("a", CONTENT)

        with connector.get_resource("a") as resource:
            connector.set_resource("a", resource)

        assert_same_bytes(content(connector, "a"), CONTENT)

    @pytest.mark.parametrize("identifier", ["old", "new"])
    def test_nothing_is_seen_of_what_is_being_stored(
        self, connector: StorageConnector, identifier: str
    ) -> None:
        """Readers see no part of a new resource, and the old content of one that is replaced."""
        connector.set_resource("old", b"old")
        seen = []

        def watch_readers() -> Iterator[bytes]:
            yield CONTENT
            seen.append((connector.has_resource("new"), content(connector, "old")))

        connector.set_resource(identifier, watch_readers())

        assert seen == [(False, b"old")]
        assert_same_bytes(content(connector, identifier), CONTENT)

    @pytest.mark.parametrize("identifier", ["old", "new"])
    def test_what_breaks_off_while_being_stored_changes_nothing(
        self, connector: StorageConnector, identifier: str
    ) -> None:
        """If the source of bytes raises, the old content stays, and nothing new is seen."""
        connector.set_resource("old", b"old")

        def break_off() -> Iterator[bytes]:
            yield CONTENT
            raise SourceFailed

        with pytest.raises(SourceFailed):
            connector.set_resource(identifier, break_off())

        assert content(connector, "old") == b"old"
        assert not connector.has_resource("new")

    # ------------------------------------------------------------------ identifiers

    def test_what_is_missing_and_a_folder_are_no_resources(
        self, connector: StorageConnector
    ) -> None:
        """If only "a/b" was stored, neither "a" nor "b" is a resource."""
        connector.set_resource("a/b/c", b"")

        for identifier in ("a", "a/b", "b"):
            assert not connector.has_resource(identifier)
            for method in (connector.get_resource, connector.stat, connector.verify_resource):
                with pytest.raises(ResourceNotFoundError):
                    method(identifier)

    def test_an_identifier_outside_of_the_grammar_is_refused(
        self, connector: StorageConnector
    ) -> None:
        """Every method raises MalformedIdentifierError before it looks into the store."""
        connector.set_resource("a", b"")

        def create(identifier: Any) -> None:
            with connector.create(identifier):
                pass

        methods: dict[str, Callable[[Any], object]] = {
            "set_resource": lambda identifier: connector.set_resource(identifier, b"hostile"),
            "get_resource": connector.get_resource,
            "has_resource": connector.has_resource,
            "stat": connector.stat,
            "create": create,
        }
        accepted = []
        for identifier in HOSTILE_IDENTIFIERS:
            for name, method in methods.items():
                with contextlib.suppress(MalformedIdentifierError):
                    method(identifier)
                    accepted.append(f"{name}({identifier!a:.60})")

        assert accepted == []

    def test_identifiers_are_keys(self, connector: StorageConnector) -> None:
        """The methods with "key" in their names do the same as those with "resource"."""
        connector.set_resource("a/b", CONTENT)

        assert connector.has_key("a/b")
        assert not connector.has_key("a/c")
        with connector.open_key("a/b") as resource:
            assert_same_bytes(resource.read(), CONTENT)
        if overrides(connector, "list_resources"):
            assert connector.list_keys() == ["a/b"]
        if overrides(connector, "delete_resource"):
            connector.delete_key("a/b")
            assert not connector.has_resource("a/b")

    def test_a_malformed_key_is_refused(self, connector: StorageConnector) -> None:
        """A key obeys the grammar of identifiers."""
        for key in ("../up", "a/../../up", "a\0b", ""):
            with pytest.raises(MalformedIdentifierError):
                connector.open_key(key).close()

    def test_no_two_identifiers_meet(self, connector: StorageConnector) -> None:
        """Each identifier has bytes of its own, whatever the store names its files."""
        for identifier in _SIMILAR_IDENTIFIERS:
            connector.set_resource(identifier, identifier.encode())

        for identifier in _SIMILAR_IDENTIFIERS:
            assert content(connector, identifier) == identifier.encode()

    # ------------------------------------------------------------------ reading

    def test_a_resource_reads_like_a_file(self, connector: StorageConnector) -> None:
        """seek, read, tell and close behave as in Python's io, and read_at moves nothing."""
        connector.set_resource("a", CONTENT)

        with connector.get_resource("a") as resource:
            for offset, size in [
                (100_000, 70_000),
                (7, 1),
                (299_999, 10),
                (65_530, 12),
                (0, 300_001),
            ]:
                other_offset = size
                assert resource.seek(offset) == offset
                at_other_offset = resource.read_at(other_offset, 100)
                assert at_other_offset == CONTENT[other_offset : other_offset + 100]
                assert_same_bytes(resource.read(size), CONTENT[offset : offset + size])
                assert resource.tell() == min(offset + size, len(CONTENT))
            assert resource.seek(-5, os.SEEK_END) == len(CONTENT) - 5
            assert resource.read(100) == CONTENT[-5:]
        assert resource.closed

    def test_threads_read_one_resource_by_position(self, connector: StorageConnector) -> None:
        """Threads may call read_at of one resource at once."""
        connector.set_resource("a", CONTENT)
        offsets = [number * 7919 % len(CONTENT) for number in range(100)]

        with connector.get_resource("a") as resource, ThreadPoolExecutor(10) as threads:
            parts = list(threads.map(lambda offset: resource.read_at(offset, 1000), offsets))

        for offset, part in zip(offsets, parts, strict=True):
            assert_same_bytes(part, CONTENT[offset : offset + 1000])

    def test_ranges_are_read_in_the_order_asked_for(self, connector: StorageConnector) -> None:
        """Ranges may repeat, overlap, be empty, and end behind the resource, or begin there."""
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
        ranges_beyond_any_file = [(2**40, 2**63), (2**63, 2**64), (2**70, 0), (7, 2**70)]
        ranges.extend(ranges_beyond_any_file)

        parts = connector.read_ranges("a", ranges)

        assert parts == [CONTENT[offset : offset + size] for offset, size in ranges]
        with connector.get_resource("a") as resource:
            assert resource.read_views(ranges) == parts
        assert connector.read_ranges("a", []) == []
        assert connector.read_ranges("empty", [(0, 10), (5, 1)]) == [b"", b""]

    def test_ranges_of_no_resource_are_an_error(self, connector: StorageConnector) -> None:
        """A missing resource raises ResourceNotFoundError, a negative offset ValueError."""
        connector.set_resource("a", CONTENT)

        with pytest.raises(ResourceNotFoundError):
            connector.read_ranges("missing", [(0, 1)])
        with (
            connector.get_resource("a") as resource,
            pytest.raises(ValueError, match="negative"),
        ):
            resource.read_ranges([(-1, 5)])

    def test_text_is_read_as_lines_of_utf_8(self, connector: StorageConnector) -> None:
        """A resource that is opened as text yields its lines as str."""
        connector.set_resource("a.txt", _TEXT.encode())

        with connector.get_resource(
            "a.txt", SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE
        ) as resource:
            lines: list[Any] = list(resource)

        assert lines == _TEXT.splitlines(keepends=True)

    # ------------------------------------------------------------------ deleting, moving, listing

    def test_what_was_deleted_is_gone_and_nothing_else(self, connector: StorageConnector) -> None:
        """Deleting a resource twice raises ResourceNotFoundError; similar names stay."""
        if not overrides(connector, "delete_resource"):
            with pytest.raises(UnsupportedStorageOperationError):
                connector.delete_resource("never")
            return
        for identifier in ("a", "ab", "b/c", "b/d"):
            connector.set_resource(identifier, identifier.encode())

        for identifier in ("a", "b/c"):
            connector.delete_resource(identifier)
            with pytest.raises(ResourceNotFoundError):
                connector.delete_resource(identifier)

        assert not connector.has_resource("a")
        assert connector.has_resource("ab")
        assert not connector.has_resource("b/c")
        assert connector.has_resource("b/d")

    @pytest.mark.parametrize("size", [1, 12 * len(CONTENT)])
    def test_a_moved_resource_has_the_new_name_only(
        self, connector: StorageConnector, size: int
    ) -> None:
        """It replaces what had the name. A store that cannot delete copies it, and says so."""
        data = (CONTENT * 12)[:size]
        connector.set_resource("a", data)
        connector.set_resource("b/c", b"replaced")

        if overrides(connector, "delete_resource"):
            connector.move_resource("a", "b/c")
            assert not connector.has_resource("a")
        else:
            with pytest.raises(UnsupportedStorageOperationError):
                connector.move_resource("a", "b/c")
            assert connector.has_resource("a")

        assert_same_bytes(content(connector, "b/c"), data)
        assert connector.verify_resource("b/c").sha256 == hashlib.sha256(data).hexdigest()

    def test_a_resource_can_be_moved_to_its_own_name(self, connector: StorageConnector) -> None:
        """Nothing happens, and no store loses the resource."""
        connector.set_resource("a", CONTENT)

        connector.move_resource("a", "a")

        assert_same_bytes(content(connector, "a"), CONTENT)

    def test_a_move_that_is_an_error_changes_nothing(self, connector: StorageConnector) -> None:
        """A missing resource and a malformed name raise, and both resources stay."""
        connector.set_resource("a", b"kept")

        for new_identifier in ("a", "missing", "other"):
            with pytest.raises(ResourceNotFoundError):
                connector.move_resource("missing", new_identifier)
        for identifier, new_identifier in (("a", "../up"), ("../up", "a"), ("../up", "../up")):
            with pytest.raises(MalformedIdentifierError):
                connector.move_resource(identifier, new_identifier)

        assert content(connector, "a") == b"kept"
        assert not connector.has_resource("other")

    def test_resources_are_listed_by_prefix_in_order(self, connector: StorageConnector) -> None:
        """A prefix may end within a name, or name one resource; it obeys the grammar."""
        if not overrides(connector, "list_resources"):
            with pytest.raises(UnsupportedStorageOperationError):
                connector.list_resources()
            return
        assert connector.list_resources() == []
        identifiers = ["b/1", "a/10", "a/2", "ab", "a-b/c", "a/20/deep"]
        for identifier in identifiers:
            connector.set_resource(identifier, b"")

        for prefix in ("", "a/", "a", "a/2", "c"):
            with_prefix = [name for name in identifiers if name.startswith(prefix)]
            assert connector.list_resources(prefix) == sorted(with_prefix)
        with pytest.raises(MalformedIdentifierError):
            connector.list_resources("a\0")

    # ------------------------------------------------------------------ digests

    def test_a_digest_is_known_without_reading(self, connector: StorageConnector) -> None:
        """``stat`` has the size, and the SHA-256 if the connector knows digests, or None."""
        connector.set_resource("a", CONTENT)
        sha256 = hashlib.sha256(CONTENT).hexdigest()

        info = connector.stat("a")

        assert info.identifier == "a"
        assert info.size == len(CONTENT)
        if connector.knows_digests:
            assert info.sha256 == sha256
        else:
            assert info.sha256 in (None, sha256)
        with connector.get_resource("a") as resource:
            assert resource.sha256 == info.sha256

    def test_verifying_finds_a_wrong_digest(self, connector: StorageConnector) -> None:
        """``verify_resource`` reads all bytes, and compares them with a digest that it gets."""
        connector.set_resource("a", CONTENT)

        assert connector.verify_resource("a").sha256 == hashlib.sha256(CONTENT).hexdigest()
        with pytest.raises(ChecksumMismatchError):
            connector.verify_resource("a", "0" * 64)

    # ------------------------------------------------------------------ creating

    def test_a_created_resource_is_published_when_its_block_ends_cleanly(
        self, connector: StorageConnector
    ) -> None:
        """``create`` gives an empty file to write, seek, read and truncate; the digest is known."""
        connector.set_resource("a/b", CONTENT)

        with connector.create("a/b") as file:
            assert file.read() == b"", "nothing of the old content"
            assert file.tell() == 0
            file.write(b"????56789")
            file.write(memoryview(CONTENT))
            file.seek(0)
            file.write(b"0123")
            file.seek(2)
            assert file.read(4) == b"2356"
            file.truncate(1000)
            assert_same_bytes(content(connector, "a/b"), CONTENT)

        expected = (b"012356789" + CONTENT)[:1000]
        assert content(connector, "a/b") == expected
        assert file.digest.sha256 == hashlib.sha256(expected).hexdigest()

    def test_a_block_that_raises_publishes_nothing(self, connector: StorageConnector) -> None:
        """If the block of ``create`` raises, the old content stays, and nothing new is seen."""
        connector.set_resource("old", b"old")

        for identifier in ("old", "new"):
            with pytest.raises(SourceFailed), connector.create(identifier) as file:
                file.write(CONTENT)
                raise SourceFailed

        assert content(connector, "old") == b"old"
        assert not connector.has_resource("new")

    # ------------------------------------------------------------------ at the same time

    def test_threads_store_resources_at_once(self, connector: StorageConnector) -> None:
        """Threads share a connector, and its folders."""
        contents = {}
        for number in range(24):
            identifier = f"folder{number % 7}/sub{number % 3}/{number}"
            contents[identifier] = identifier.encode() * 3000

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(connector.set_resource, contents, contents.values()))

        for identifier, data in contents.items():
            assert_same_bytes(content(connector, identifier), data)

    def test_of_threads_that_store_one_resource_one_wins_whole(
        self, connector: StorageConnector
    ) -> None:
        """The resource has the bytes of one writer, and no mixture."""
        versions = [bytes([letter]) * 200_000 for letter in b"ABCDEFGH"]

        def store_in_two_parts(version: bytes) -> None:
            connector.set_resource("a", [version[:100_000], version[100_000:]])

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(store_in_two_parts, versions))

        assert content(connector, "a") in versions

    def test_readers_see_the_old_resource_or_the_new_one(self, connector: StorageConnector) -> None:
        """While a resource is replaced again and again, each reader gets one version whole.

        A reader may also get ResourceChangedError, from a store that keeps no old versions.
        """
        versions = [bytes([65 + number]) * (100_000 + number) for number in range(4)]
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

        with ThreadPoolExecutor(3) as threads:
            writer = threads.submit(overwrite)
            try:
                seen = set(threads.map(read, range(40)))
            finally:
                stop.set()
        writer.result()

        assert seen - {None} <= set(versions)

    def test_an_open_resource_never_gives_other_bytes(self, connector: StorageConnector) -> None:
        """A reader whose resource is replaced and deleted gets the old bytes, or an error.

        The error is the other honest answer, of a store that keeps no old versions.
        """
        data = hashlib.shake_128(b"old").digest(3 << 20)
        connector.set_resource("a", data)

        with connector.get_resource("a") as resource:
            beginning = resource.read(100)
            connector.set_resource("a", b"new" * 500_000)
            if overrides(connector, "delete_resource"):
                connector.delete_resource("a")

            with contextlib.suppress(ResourceChangedError, ResourceNotFoundError):
                assert_same_bytes(beginning + resource.read(), data)

    # ------------------------------------------------------------------ leases

    def test_a_lease_is_for_one_at_a_time(self, connector: StorageConnector) -> None:
        """Who holds a lease may acquire it again; others may when its block has ended."""
        with connector.lease("a/lease") as first:
            assert first.acquire()
            assert first.acquire()
            with connector.lease("a/lease") as second, connector.lease("b") as other:
                assert other.acquire()
                if overrides(connector, "lease"):
                    assert not second.acquire()
        with connector.lease("a/lease") as third:
            # If a store did not answer the release in time, the lease is held until it lapses.
            assert wait_until(third.acquire)

    def test_the_lease_of_a_killed_process_is_free_again(self, connector: StorageConnector) -> None:
        """The system, or the store, sees that the holder is dead."""
        if not self.frees_leases_of_killed_processes:
            pytest.skip("frees_leases_of_killed_processes is False")
        here, there = multiprocessing.Pipe()
        holder = multiprocessing.get_context("spawn").Process(
            target=_hold_lease, args=(connector, there), daemon=True
        )
        holder.start()
        assert here.poll(PATIENCE_SECONDS)
        has_acquired_there = here.recv()
        assert has_acquired_there

        with connector.lease("a/lease") as lease:
            assert not lease.acquire()
            holder.kill()
            holder.join()
            assert wait_until(lease.acquire)

    # ------------------------------------------------------------------ garbage

    def test_nothing_of_a_healthy_store_is_garbage(self, connector: StorageConnector) -> None:
        """Neither resources, nor what is being read or written, nor what was just replaced.

        What was replaced is spared for the default grace of a day, and goes with a grace of 0.
        """
        contents = {"a/b": b"0123456789", "a/c": b"", "d": CONTENT, "e": CONTENT * 4}
        for identifier, data in contents.items():
            connector.set_resource(identifier, b"replaced at once")
            connector.set_resource(identifier, data)

        with connector.get_resource("e") as resource, connector.create("f") as file:
            file.write(CONTENT)
            assert connector.collect_garbage(dry_run=True) == []
            assert connector.collect_garbage() == []
            assert_same_bytes(resource.read(), contents["e"])
        connector.collect_garbage(0.0)

        assert connector.collect_garbage(0.0) == []
        for identifier, data in contents.items():
            assert_same_bytes(content(connector, identifier), data)
        assert_same_bytes(content(connector, "f"), CONTENT)

    # ------------------------------------------------------------------ other processes

    def test_another_process_reads_what_is_stored(self, connector: StorageConnector) -> None:
        """A pickled connector, and a pickled resource, read the same bytes in another process."""
        if not self.crosses_processes:
            pytest.skip("crosses_processes is False")
        connector.set_resource("a", CONTENT)

        with connector.get_resource("a") as resource:
            read_by_connector = call_in_process(content, connector, "a")
            read_by_resource = call_in_process(StreamedResource.read, resource)

        assert_same_bytes(read_by_connector, CONTENT)
        assert_same_bytes(read_by_resource, CONTENT)

    def test_a_pickled_resource_holds_no_bytes(self, connector: StorageConnector) -> None:
        """A pickled resource is its connector, a name and a digest, and no stored bytes."""
        if not self.crosses_processes:
            pytest.skip("crosses_processes is False")
        connector.set_resource("a", CONTENT)

        with connector.get_resource("a") as resource:
            n_bytes_of_resource = len(pickle.dumps(resource))

        assert n_bytes_of_resource < len(pickle.dumps(connector)) + 1000

    def test_after_a_fork_both_processes_read_for_themselves(
        self, connector: StorageConnector
    ) -> None:
        """The position of a resource in a forked child is not that in its parent."""
        if not hasattr(os, "fork"):
            pytest.skip("this system has no fork")
        connector.set_resource("a", CONTENT)
        with connector.get_resource("a") as resource:
            beginning = resource.read(1000)

            with warnings.catch_warnings():
                # Python warns of forks beside threads. The child does nothing but read.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                _exit_after_reading(resource)
            _, status = os.waitpid(child, 0)

            assert os.waitstatus_to_exitcode(status) == 0
            assert_same_bytes(beginning + resource.read(), CONTENT)


def _exit_after_reading(resource: StreamedResource) -> None:
    """Read in a forked child, and end the child: 0 if the bytes are right, 1 if not, 2 at an error.

    The child ends without pytest, and does not clean up what its parent still uses.
    """
    try:
        is_right = resource.read(100_000) == CONTENT[1000:101_000] and resource.seek(5) == 5
        os._exit(0 if is_right else 1)
    finally:
        os._exit(2)


def _hold_lease(connector: StorageConnector, pipe: Any) -> None:
    """Acquire a lease, send whether that succeeded, and keep the lease until killed."""
    with connector.lease("a/lease") as lease:
        pipe.send(lease.acquire())
        time.sleep(600)


def content(connector: StorageConnector, identifier: str) -> bytes:
    """Return all bytes of a stored resource."""
    with connector.get_resource(identifier) as resource:
        return resource.read()


def overrides(connector: StorageConnector, method: str) -> bool:
    """Return whether a connector, or the one behind its cache, overrides a method."""
    return getattr(type(uncached(connector)), method) is not getattr(StorageConnector, method)
