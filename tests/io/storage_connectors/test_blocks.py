"""Blocks of a slow store: runs of neighbours, and damage ahead of a reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import DamagedBlockError
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks, Run, runs_of


@given(st.sets(st.integers(0, 60)), st.integers(0, 9))
def test_runs_hold_all_numbers_once(numbers: set[int], group_size: int) -> None:
    runs = list(runs_of(sorted(numbers), group_size))

    in_runs = [run.first + index for run in runs for index in range(run.n_blocks)]
    assert in_runs == sorted(numbers)


@given(st.sets(st.integers(0, 60)))
def test_runs_are_as_long_as_possible(numbers: set[int]) -> None:
    for run in runs_of(sorted(numbers)):
        assert run.first - 1 not in numbers
        assert run.first + run.n_blocks not in numbers


@given(st.sets(st.integers(0, 60)), st.integers(1, 9))
def test_runs_stay_in_groups(numbers: set[int], group_size: int) -> None:
    for run in runs_of(sorted(numbers), group_size):
        last = run.first + run.n_blocks - 1
        assert run.first // group_size == last // group_size


@pytest.mark.parametrize(
    ("numbers", "group_size", "runs"),
    [
        ([], 0, []),
        ([3], 0, [Run(3, 1)]),
        ([0, 1, 2, 5, 6], 0, [Run(0, 3), Run(5, 2)]),
        ([2, 3, 4, 5], 4, [Run(2, 2), Run(4, 2)]),
    ],
)
def test_examples_of_runs(numbers: list[int], group_size: int, runs: list[Run]) -> None:
    assert list(runs_of(numbers, group_size)) == runs


class DamagedBlocks(Blocks):
    """Bytes of 16 blocks, of which one is damaged.

    Args:
        damaged: the number of the damaged block.
    """

    block_bytes = 100
    size = 1600
    sha256 = None

    def __init__(self, damaged: int) -> None:
        self.damaged = damaged

    def fetch_run(self, first: int, n_blocks: int) -> bytes:
        if first <= self.damaged < first + n_blocks:
            raise DamagedBlockError("a", "a store", self.damaged, 100, "aa", "bb")
        return b"".join(bytes([number]) * 100 for number in range(first, first + n_blocks))


@pytest.mark.parametrize("damaged", range(16))
def test_damage_ahead_is_not_the_readers_concern(damaged: int) -> None:
    source = BlockedSource(DamagedBlocks(damaged))

    # Sequential reading reads ahead, more and more.
    read_blocks = []
    damaged_blocks = []
    for start in range(0, 1600, 50):
        data = bytearray(50)
        try:
            source.readinto_at(start, memoryview(data))
        except DamagedBlockError:
            damaged_blocks.append(start // 100)
        else:
            assert bytes(data) == bytes([start // 100]) * 50
            read_blocks.append(start // 100)

    assert set(damaged_blocks) == {damaged}
    assert set(read_blocks) == set(range(16)) - {damaged}
