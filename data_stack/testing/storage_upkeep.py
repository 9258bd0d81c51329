"""What every storage connector promises of deleting, listing, creating, leases, upkeep and other processes."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from data_stack.exception import (
    ChecksumMismatchError,
    MalformedIdentifierError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.testing.storage_samples import CONTENT, SourceFailed, assert_same_bytes, content, noise, overrides, read_all

__all__ = ["StorageUpkeepContract"]


class StorageUpkeepContract:
    """The second half of StorageConnectorContract, which says how to use it."""

    crosses_processes: ClassVar[bool] = True
    frees_leases_of_killed_processes: ClassVar[bool] = False

    @pytest.fixture
    def connector(self) -> StorageConnector:
        """An empty store."""
        raise NotImplementedError(f"{type(self).__name__} has to define the fixture `connector`, which gives an empty store")

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
        stored = ["b/1", "a/10", "a/2", "ab", "a-b/c", "a/20/deep"]
        for identifier in stored:
            connector.set_resource(identifier, b"")

        assert connector.list_resources() == sorted(stored)
        assert connector.list_resources("a/") == ["a/10", "a/2", "a/20/deep"]
        assert connector.list_resources("a") == ["a-b/c", "a/10", "a/2", "a/20/deep", "ab"]
        assert connector.list_resources("a/2") == ["a/2", "a/20/deep"]
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
        identifiers = ["a", "ab", "b/c", "b/d", "b/e/f", "c/a"]
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
            with pytest.raises(SourceFailed), connector.create(identifier) as file:
                file.write(CONTENT)
                raise SourceFailed

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
            deadline = time.monotonic() + 60  # a store that did not answer in time has the lease until it lapses
            while not third.acquire():
                assert time.monotonic() < deadline
                time.sleep(0.05)

    # ------------------------------------------------------------------ upkeep

    def test_nothing_of_a_healthy_store_is_garbage(self, connector: StorageConnector) -> None:
        sizes = {"a/b": 10, "a/c": 0, "d": len(CONTENT), "e": (1 << 20) + 1}
        for identifier, size in sizes.items():
            connector.set_resource(identifier, b"replaced at once")
            connector.set_resource(identifier, noise(size))

        with connector.get_resource("e") as resource, connector.create("f") as file:
            file.write(CONTENT)
            promised = connector.collect_garbage(dry_run=True)
            collected = connector.collect_garbage()
            read = resource.read()

        # What was replaced is spared for the default grace of a day.
        assert (promised, collected) == ([], [])
        assert_same_bytes(read, noise(sizes["e"]))
        for identifier, size in sizes.items():
            assert_same_bytes(content(connector, identifier), noise(size))
        assert_same_bytes(content(connector, "f"), CONTENT)

        connector.collect_garbage(0.0)

        assert connector.collect_garbage(0.0) == []
        for identifier, size in sizes.items():
            assert_same_bytes(content(connector, identifier), noise(size))

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

    def test_a_spawned_process_reads_what_is_stored(self, connector: StorageConnector) -> None:
        if not self.crosses_processes:
            return
        connector.set_resource("a", CONTENT)

        with multiprocessing.get_context("spawn").Pool(1) as pool, connector.get_resource("a") as resource:
            by_connector = pool.apply(content, (connector, "a"))
            by_resource = pool.apply(read_all, (resource,))
            # To the connector it adds a name and a digest, nothing that is stored.
            assert len(pickle.dumps(resource)) < len(pickle.dumps(connector)) + 1000

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


def _hold_lease(connector: StorageConnector, pipe: Any) -> None:
    """Take a lease, say so, and keep it until killed."""
    with connector.lease("a/lease") as lease:
        pipe.send(lease.acquire())
        time.sleep(600)


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
