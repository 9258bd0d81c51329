"""Blocks of a file of records are checked once, before their first use."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.block_checks import BlockChecks
from data_stack.io.integrity import BLOCK_BYTES, Digest

N_BYTES = 2 * BLOCK_BYTES + 100
CONTENT = bytes(i % 251 for i in range(N_BYTES))


def offsets(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, np.int64)


def checks_of(content: bytes) -> BlockChecks:
    digest = Digest()
    digest.update(content)
    return BlockChecks("x.bag", len(content), digest.blocks)


def test_each_block_is_checked_once() -> None:
    checks = checks_of(CONTENT)

    checks.check(memoryview(CONTENT), offsets(0, BLOCK_BYTES), offsets(10, N_BYTES))

    assert checks.is_done
    assert checks.widen(0, N_BYTES) is None


def test_a_damaged_block_is_named() -> None:
    damaged = bytearray(CONTENT)
    damaged[BLOCK_BYTES] ^= 1
    checks = checks_of(CONTENT)

    with pytest.raises(DatasetFileCorruptError, match="from byte 65,536 on"):
        checks.check(memoryview(damaged), offsets(0), offsets(N_BYTES))

    assert not checks.is_done


@pytest.mark.parametrize("damaged_block", [0, 17, 39])
def test_damage_among_many_blocks_is_named(damaged_block: int) -> None:
    content = CONTENT[:BLOCK_BYTES] * 40
    damaged = bytearray(content)
    damaged[damaged_block * BLOCK_BYTES] ^= 1

    with pytest.raises(DatasetFileCorruptError, match=f"from byte {damaged_block * 65_536:,} on"):
        checks_of(content).check(memoryview(damaged), offsets(0), offsets(len(content)))

    intact = checks_of(content)
    intact.check(memoryview(content), offsets(0), offsets(len(content)))
    assert intact.is_done


@given(st.lists(st.tuples(st.integers(0, N_BYTES + 50), st.integers(0, N_BYTES)), max_size=8))
def test_the_blocks_of_many_ranges_are_checked(ranges: list[tuple[int, int]]) -> None:
    checks = checks_of(CONTENT)
    starts = [start for start, _ in ranges]
    ends = [start + size for start, size in ranges]

    checks.check(memoryview(CONTENT), offsets(*starts), offsets(*ends))

    for block in range(3):
        first_byte = block * BLOCK_BYTES
        end = min(first_byte + BLOCK_BYTES, N_BYTES)
        is_needed = any(
            start < stop and start < end and stop > first_byte
            for start, stop in zip(starts, ends, strict=True)
        )
        assert (checks.widen(first_byte, 1) is None) == is_needed


@pytest.mark.parametrize(("start", "end"), [(BLOCK_BYTES - 1, BLOCK_BYTES + 1), (5, N_BYTES)])
def test_damage_in_one_range_is_named(start: int, end: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[BLOCK_BYTES] ^= 1
    checks = checks_of(CONTENT)

    checks.check_range(memoryview(damaged), 0, BLOCK_BYTES)
    with pytest.raises(DatasetFileCorruptError, match="from byte 65,536 on"):
        checks.check_range(memoryview(damaged), start, end)

    assert not checks.is_done


def test_an_empty_range_needs_no_block() -> None:
    checks = checks_of(CONTENT)

    checks.check_range(memoryview(CONTENT), 7, 7)
    checks.check_range(memoryview(CONTENT), N_BYTES, N_BYTES + 9)
    checks.check(memoryview(CONTENT), offsets(), offsets())

    assert checks.widen(0, 1) is not None


def test_appended_bytes_are_not_checked() -> None:
    checks = checks_of(CONTENT)
    longer = CONTENT + b"appended"

    checks.check(memoryview(longer), offsets(0), offsets(len(longer)))
    checks.check(memoryview(longer), offsets(N_BYTES), offsets(len(longer)))

    assert checks.is_done


def test_appended_bytes_of_one_range_are_not_checked() -> None:
    checks = checks_of(CONTENT)
    longer = CONTENT + b"appended"

    checks.check_range(memoryview(longer), 0, len(longer))

    assert checks.is_done


def test_appended_bytes_that_are_read_too_are_not_checked() -> None:
    checks = checks_of(CONTENT)
    longer = CONTENT + b"appended"

    checks.check_blocks(0, memoryview(longer))

    assert checks.is_done


def test_one_range_checks_the_blocks_around_a_checked_one() -> None:
    checks = checks_of(CONTENT)
    checks.check_range(memoryview(CONTENT), BLOCK_BYTES, BLOCK_BYTES + 1)

    checks.check_range(memoryview(CONTENT), 0, N_BYTES)

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
