"""What every storage connector promises."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from data_stack.exception import (
    DataStackError,
    MalformedIdentifierError,
    ResourceChangedError,
    ResourceNotFoundError,
)
from data_stack.io.resources import StreamedTextResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.testing.storage_samples import (
    CONTENT,
    HOSTILE_IDENTIFIERS,
    SOURCES,
    SourceFailed,
    assert_same_bytes,
    content,
    noise,
    overrides,
)
from data_stack.testing.storage_upkeep import StorageUpkeepContract

__all__ = ["HOSTILE_IDENTIFIERS", "StorageConnectorContract", "assert_same_bytes", "content"]


class StorageConnectorContract(StorageUpkeepContract):
    """Inherit it in a test class, and give it a fixture ``connector``: an empty store, of its own for each test.

    Methods that a connector does not override are held to their defaults: deleting and listing say that they are not
    supported, all else works.

    Attributes:
        crosses_processes: whether the connector pickles, and another process sees what is stored. Set it to False for a
            store that lives in one process.
        frees_leases_of_killed_processes: whether processes keep each other off by leases, and one is free as soon as the process
            that holds it was killed. Set it to True to have that tested; some stores let it run out after a while instead.
    """

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

    def test_a_source_that_fails_leaves_what_was_there(self, connector: StorageConnector) -> None:
        def failing() -> Iterator[bytes]:
            yield CONTENT
            raise SourceFailed

        connector.set_resource("old", b"old")
        for identifier in ("old", "new"):
            with pytest.raises(SourceFailed):
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
            "a/b", "a/c/d", "A/b", "a_b", "a-b", "a.b", "a+b", "a=b", "a@b", "a,b", "x.tmp", "x", "x.json",
            "manifest.json", "0", "_id", "fs.files", "a" * 200, "a" * 199 + "b", "/".join("bcdefghijklmnopq"),
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

        expected = [CONTENT[offset : offset + size] for offset, size in ranges]
        assert (connector.read_ranges("a", ranges), connector.read_ranges("a", [])) == (expected, [])
        with connector.get_resource("a") as resource:
            resource.seek(11)
            assert (resource.read_ranges(ranges), resource.read_ranges([]), resource.tell()) == (expected, [], 11)
            with pytest.raises(ValueError, match="negative"):
                resource.read_ranges([(-1, 5)])
        with pytest.raises(ResourceNotFoundError):
            connector.read_ranges("missing", [(0, 1)])

    @pytest.mark.parametrize("block_bytes", [255 << 10, 1 << 20])
    def test_sizes_and_places_about_a_block_are_like_any_other(self, connector: StorageConnector, block_bytes: int) -> None:
        data = noise(2 * block_bytes + 1)
        for size in (block_bytes - 1, block_bytes, block_bytes + 1, 2 * block_bytes + 1):
            connector.set_resource("a", data[:size])

            with connector.get_resource("a") as resource:
                assert resource.size == size
                assert_same_bytes(resource.read(), data[:size])
                for offset in (block_bytes - 2, block_bytes - 1, block_bytes, size - 1, size):
                    assert resource.read_at(offset, 3) == data[offset : min(offset + 3, size)]
                assert resource.read_at(0, size + 1)[-1:] == data[size - 1 : size]
            assert connector.stat("a").size == size

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

    def test_whoever_reads_a_resource_that_is_replaced_and_deleted_is_never_given_other_bytes(
        self, connector: StorageConnector
    ) -> None:
        data = noise(3 << 20)
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
