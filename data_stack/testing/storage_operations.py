"""The tests of a storage connector's methods that have defaults."""

from __future__ import annotations

import hashlib
from typing import Final

import pytest

from data_stack.exception import (
    ChecksumMismatchError,
    MalformedIdentifierError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.storage_connectors.cached import uncached
from data_stack.io.storage_connectors.connector import StorageConnector

CONTENT: Final = hashlib.shake_128(b"content").digest(300_001)  # every offset has other bytes


class SourceFailed(Exception):
    """The error of a source of bytes that breaks off."""


class StorageOperations:
    """The part of :class:`StorageConnectorContract` on methods that a connector need not override."""

    def test_what_was_deleted_is_gone_and_nothing_else(self, connector: StorageConnector) -> None:
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

        assert [connector.has_resource(identifier) for identifier in ("a", "ab", "b/c", "b/d")] == [False, True, False, True]
        connector.set_resource("a", b"again")
        assert content(connector, "a") == b"again"

    def test_a_moved_resource_has_the_new_name_only_and_replaces_what_had_it(self, connector: StorageConnector) -> None:
        can_delete = overrides(connector, "delete_resource")
        for identifier, new_identifier in (("a", "b/c"), ("b/c", "d"), ("d", "large/a")):
            data = CONTENT * 12 if new_identifier.startswith("large") else identifier.encode()
            connector.set_resource(identifier, data)
            connector.set_resource(new_identifier, b"replaced")

            if not can_delete:  # it was copied
                with pytest.raises(UnsupportedStorageOperationError):
                    connector.move_resource(identifier, new_identifier)
            else:
                connector.move_resource(identifier, new_identifier)
                with pytest.raises(ResourceNotFoundError):
                    connector.stat(identifier)

            assert connector.has_resource(identifier) is not can_delete
            assert_same_bytes(content(connector, new_identifier), data)
            assert connector.stat(new_identifier).size == len(data)
            assert connector.verify_resource(new_identifier).sha256 == hashlib.sha256(data).hexdigest()

    def test_moving_to_its_own_name_keeps_a_resource(self, connector: StorageConnector) -> None:
        for data in (b"", CONTENT, CONTENT * 12):
            connector.set_resource("a/b", data)

            connector.move_resource("a/b", "a/b")

            assert_same_bytes(content(connector, "a/b"), data)

    def test_what_is_missing_cannot_be_moved_nor_to_a_name_outside_of_the_grammar(self, connector: StorageConnector) -> None:
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
            assert connector.list_resources(prefix) == sorted(each for each in stored if each.startswith(prefix))
        with pytest.raises(MalformedIdentifierError):
            connector.list_resources("a\0")

    def test_a_digest_is_known_without_reading_and_verifying_finds_a_wrong_one(self, connector: StorageConnector) -> None:
        sha256 = hashlib.sha256(CONTENT).hexdigest()
        connector.set_resource("a", CONTENT)

        info = connector.stat("a")

        assert (info.identifier, info.size) == ("a", len(CONTENT))
        assert info.modified is None or info.modified > 0
        assert info.sha256 in ([] if connector.knows_digests else [None]) + [sha256]
        with connector.get_resource("a") as resource:
            assert resource.sha256 == info.sha256
        assert connector.verify_resource("a").sha256 == sha256
        with pytest.raises(ChecksumMismatchError):
            connector.verify_resource("a", "0" * 64)

    def test_a_created_resource_is_published_when_its_block_ends_cleanly(self, connector: StorageConnector) -> None:
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
    """Whether a connector, or the one behind its cache, overrides a method."""
    return getattr(type(uncached(connector)), method) is not getattr(StorageConnector, method)
