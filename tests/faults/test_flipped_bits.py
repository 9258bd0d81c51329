"""A flipped bit in a stored block, in each store: an error that names resource and block, never wrong data."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fault_dataset import opened, read
from fault_stores import CachedStores, StoreKind
from process_harness import flip_file
from sizes import SEED, sized

from data_stack.exception import ChecksumMismatchError, DamagedBlockError, DataStackError

CONTENT = random.Random(2).randbytes(2_700_000)  # three blocks of a file, 42 chunks of MongoDB


def flips(stores: StoreKind, figures: Counter[str], n: int = 10) -> Iterator[tuple[Mapping[str, Any], int]]:
    """A store with ``a/large``, of which one bit after the other is wrong: the first, the last, and random others."""
    store, chance, size = stores.new(), random.Random(SEED), len(CONTENT)
    with opened(store) as connector:
        connector.set_resource("a/large", CONTENT)
    for position in [0, 8 * size - 1, *(chance.randrange(8 * size) for _ in range(sized(n, 100, cost=stores.cost) - 2))]:
        stores.flip_bit(store, "a/large", position)
        yield store, position
        figures["flips found"] += 1
        stores.flip_bit(store, "a/large", position)
    assert read(store, "a/large") == CONTENT
    stores.discard(store)


@pytest.mark.parametrize("stores", ["file", "cached"], indirect=True)
def test_a_flipped_bit_of_a_file_is_not_trusted_and_found_by_verifying(stores: StoreKind, figures: Counter[str]) -> None:
    for store, _ in flips(stores, figures):
        with opened(store) as connector:
            assert connector.stat("a/large").sha256 is None
            with pytest.raises(ChecksumMismatchError):
                connector.verify_resource("a/large")


@pytest.mark.parametrize("stores", ["mongodb", "s3"], indirect=True)
def test_a_flipped_bit_is_an_error_that_names_resource_and_block(stores: StoreKind, figures: Counter[str]) -> None:
    for store, position in flips(stores, figures):
        start = max(0, position // 8 - 10)
        with opened(store) as connector, connector.get_resource("a/large") as resource:
            with pytest.raises(DamagedBlockError) as caught:
                resource.read()
            with pytest.raises(DamagedBlockError):
                resource.read_at(start, 100)
            with pytest.raises(DamagedBlockError):
                resource.read_ranges([(0, 10), (start, 100)])
            with pytest.raises(DataStackError):
                connector.verify_resource("a/large")

        assert caught.value.identifier == "a/large"
        assert caught.value.block == position // 8 // caught.value.block_bytes


def test_what_a_cache_holds_is_never_served_damaged(tmp_path: Path) -> None:
    stores, chance = CachedStores(tmp_path), random.Random(SEED)
    store = stores.new()
    with opened(store) as connector:
        connector.set_resource("x", CONTENT)
    for _ in range(sized(4, 100)):
        assert read(store, "x") == CONTENT
        local = [path for path in Path(store["folder"], "local").rglob("*") if path.is_file()]
        files = [path for path in local if path.stat().st_size >= len(CONTENT)]
        assert files, "the cache holds it"
        for file in files:
            flip_file(file, chance.randrange(8 * len(CONTENT)))

        assert read(store, "x") == CONTENT
