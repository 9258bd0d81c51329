"""Blocks of a file of records are checked once, before their first use."""

from __future__ import annotations

import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.block_checks import BlockChecks, choose_threads
from data_stack.io.integrity import BLOCK_BYTES, Digest

N_BYTES = 2 * BLOCK_BYTES + 100
CONTENT = bytes(i % 251 for i in range(N_BYTES))


def checks_of(content: bytes) -> BlockChecks:
    digest = Digest()
    digest.update(content)
    return BlockChecks("x.bag", len(content), digest.blocks)


def test_each_block_is_checked_once() -> None:
    checks = checks_of(CONTENT)

    checks.check(memoryview(CONTENT), [0, BLOCK_BYTES], [10, N_BYTES])

    assert checks.is_done
    assert checks.widen(0, N_BYTES) is None


def test_a_damaged_block_is_named() -> None:
    damaged = bytearray(CONTENT)
    damaged[BLOCK_BYTES] ^= 1
    checks = checks_of(CONTENT)

    with pytest.raises(DatasetFileCorruptError, match="from byte 65,536 on"):
        checks.check(memoryview(damaged), [0], [N_BYTES])

    assert not checks.is_done


@pytest.mark.parametrize("damaged_block", [0, 17, 39])
def test_damage_among_many_blocks_is_named(damaged_block: int) -> None:
    content = CONTENT[:BLOCK_BYTES] * 40
    damaged = bytearray(content)
    damaged[damaged_block * BLOCK_BYTES] ^= 1

    with pytest.raises(DatasetFileCorruptError, match=f"from byte {damaged_block * 65_536:,} on"):
        checks_of(content).check(memoryview(damaged), [0], [len(content)])

    intact = checks_of(content)
    intact.check(memoryview(content), [0], [len(content)])
    assert intact.is_done


@pytest.mark.parametrize(
    ("n_blocks", "n_available", "n_threads"),
    [(1, 16, 1), (15, 16, 1), (16, 16, 2), (80, 16, 10), (80, 2, 2), (80, 1, 1)],
)
def test_few_blocks_are_checked_by_few_threads(
    n_blocks: int, n_available: int, n_threads: int
) -> None:
    assert choose_threads(n_blocks, n_available) == n_threads


def test_appended_bytes_are_not_checked() -> None:
    checks = checks_of(CONTENT)
    longer = CONTENT + b"appended"

    checks.check(memoryview(longer), [0], [len(longer)])
    checks.check(memoryview(longer), [N_BYTES], [len(longer)])

    assert checks.is_done


@pytest.mark.parametrize(
    ("offset", "size", "wide"),
    [
        (5, 10, (0, BLOCK_BYTES)),
        (BLOCK_BYTES - 1, 2, (0, 2 * BLOCK_BYTES)),
        (2 * BLOCK_BYTES + 1, 1, (2 * BLOCK_BYTES, 100)),
        # Bytes after the covered ones are read, too.
        (2 * BLOCK_BYTES + 1, 500, (2 * BLOCK_BYTES, 501)),
        (N_BYTES, 7, None),
        (5, 0, None),
    ],
)
def test_ranges_widen_to_whole_blocks(offset: int, size: int, wide: object) -> None:
    assert checks_of(CONTENT).widen(offset, size) == wide


def test_blocks_that_are_read_together_are_checked() -> None:
    checks = checks_of(CONTENT)

    checks.check_blocks(BLOCK_BYTES, memoryview(CONTENT)[BLOCK_BYTES:])

    assert checks.widen(BLOCK_BYTES, N_BYTES) is None
    assert checks.widen(0, 1) == (0, BLOCK_BYTES)


def test_without_digests_nothing_is_checked() -> None:
    assert BlockChecks("x.bag", N_BYTES, None).is_done
