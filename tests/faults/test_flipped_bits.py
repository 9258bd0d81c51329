"""A flipped bit in a stored block, in each store: an error that names resource and block, never wrong data."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fault_dataset import close, connector_for
from fault_size import Figures
from fault_stores import CachedStores, StoreKind, flip_bit_of_file
from sizes import sized

from data_stack.exception import ChecksumMismatchError, DamagedBlockError, DataStackError
from data_stack.io.storage_connectors import StorageConnector

CHECKED_WHEN_LOADED = pytest.mark.parametrize("stores", ["file", "cached"], indirect=True)
CHECKED_WHEN_READ = pytest.mark.parametrize("stores", ["mongodb", pytest.param("s3", marks=pytest.mark.full)], indirect=True)
CONTENT = random.Random(2).randbytes(2_700_000)  # three blocks of a file, 42 chunks of MongoDB


@contextlib.contextmanager
def opened(description: Mapping[str, Any]) -> Iterator[StorageConnector]:
    """A new connector."""
    connector = connector_for(description)
    try:
        yield connector
    finally:
        close(connector)


def read(description: Mapping[str, Any], identifier: str) -> bytes:
    with opened(description) as connector, connector.get_resource(identifier) as resource:
        return resource.read()


def positions(size: int, n: int) -> list[int]:
    """Bits to flip: the first, the last, and random others."""
    chance = random.Random(size)
    return [0, 8 * size - 1, *(chance.randrange(8 * size) for _ in range(n - 2))]


@CHECKED_WHEN_LOADED
def test_a_flipped_bit_of_a_file_is_not_trusted_and_found_by_verifying(stores: StoreKind, figures: Figures) -> None:
    store = stores.new()
    with opened(store) as connector:
        connector.set_resource("a/large", CONTENT)
    for position in positions(len(CONTENT), sized(10, 100, cost=stores.cost)):
        stores.flip_bit(store, "a/large", position)

        with opened(store) as connector:
            assert connector.stat("a/large").sha256 is None
            with pytest.raises(ChecksumMismatchError):
                connector.verify_resource("a/large")
        figures.counts["flips found"] += 1
        stores.flip_bit(store, "a/large", position)
    assert read(store, "a/large") == CONTENT
    stores.discard(store)


@CHECKED_WHEN_READ
def test_a_flipped_bit_is_an_error_that_names_resource_and_block(stores: StoreKind, figures: Figures) -> None:
    store = stores.new()
    with opened(store) as connector:
        connector.set_resource("a/large", CONTENT)
    for position in positions(len(CONTENT), sized(10, 100, cost=stores.cost)):
        stores.flip_bit(store, "a/large", position)

        with (
            pytest.raises(DamagedBlockError) as caught,
            opened(store) as connector,
            connector.get_resource("a/large") as resource,
        ):
            resource.read()

        assert caught.value.identifier == "a/large"
        assert caught.value.block == position // 8 // caught.value.block_bytes
        start = max(0, position // 8 - 10)
        with opened(store) as connector, connector.get_resource("a/large") as resource:
            with pytest.raises(DamagedBlockError):
                resource.read_at(start, 100)
            with pytest.raises(DamagedBlockError):
                resource.read_ranges([(0, 10), (start, 100)])
            with pytest.raises(DataStackError):
                connector.verify_resource("a/large")
        figures.counts["flips found and named"] += 1
        stores.flip_bit(store, "a/large", position)
    assert read(store, "a/large") == CONTENT
    stores.discard(store)


def test_what_a_cache_holds_is_never_served_damaged(tmp_path: Path, figures: Figures) -> None:
    stores = CachedStores(tmp_path)
    store = stores.new()
    with opened(store) as connector:
        connector.set_resource("x", CONTENT)
    for position in positions(len(CONTENT), sized(6, 100)):
        assert read(store, "x") == CONTENT
        files = [
            path for path in Path(store["folder"], "local").rglob("*") if path.is_file() and path.stat().st_size >= len(CONTENT)
        ]
        assert files, "the cache holds it"
        for file in files:
            flip_bit_of_file(file, position)

        assert hashlib.sha256(read(store, "x")).digest() == hashlib.sha256(CONTENT).digest()
        figures.counts["flips not served"] += 1
    stores.discard(store)
