"""How many bytes of row groups a cache keeps."""

from __future__ import annotations

import pytest

from data_stack.formats.parquet.cache_limit import CacheLimit

FIRST_BYTES = 24 << 20
GROUP_BYTES = 10 << 20


def evict_and_read(limit: CacheLimit, groups: list[int]) -> None:
    for group in groups:
        limit.note_eviction(group, GROUP_BYTES, n_cached=2)
    for group in groups:
        limit.note_read(group, GROUP_BYTES)


@pytest.mark.parametrize(("max_bytes", "expected"), [(1, 1), (1 << 30, FIRST_BYTES)])
def test_the_limit_begins_low(max_bytes: int, expected: int) -> None:
    assert CacheLimit(max_bytes).n_bytes == expected


def test_new_row_groups_do_not_raise_the_limit() -> None:
    limit = CacheLimit(1 << 30)

    for group in range(100):
        limit.note_read(group, GROUP_BYTES)

    assert limit.n_bytes == FIRST_BYTES


def test_a_few_returning_row_groups_do_not_raise_the_limit() -> None:
    limit = CacheLimit(1 << 30)

    evict_and_read(limit, [0, 1, 2])

    assert limit.n_bytes == FIRST_BYTES


def test_more_row_groups_that_return_raise_the_limit() -> None:
    limit = CacheLimit(1 << 30)

    evict_and_read(limit, [0, 1, 2, 3, 4])

    assert limit.n_bytes == FIRST_BYTES + 2 * GROUP_BYTES


def test_the_limit_never_exceeds_its_maximum() -> None:
    limit = CacheLimit(FIRST_BYTES + 1)

    evict_and_read(limit, [0, 1, 2, 3, 4])

    assert limit.n_bytes == FIRST_BYTES + 1


def test_row_groups_that_were_evicted_long_ago_count_as_new() -> None:
    limit = CacheLimit(1 << 30)

    evict_and_read(limit, list(range(16)))  # the last 8 are remembered, and return
    raised = limit.n_bytes
    limit.note_read(0, GROUP_BYTES)

    assert raised == FIRST_BYTES + 5 * GROUP_BYTES
    assert limit.n_bytes == raised


def test_one_request_decides_how_many_evicted_groups_are_remembered() -> None:
    limit = CacheLimit(1 << 30)
    limit.note_request(16)

    evict_and_read(limit, list(range(16)))

    assert limit.n_bytes == FIRST_BYTES + 13 * GROUP_BYTES
