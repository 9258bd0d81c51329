"""A block-wise shuffle that asks the stack for its blocks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    CombinedDatasetIterator,
    DatasetIteratorView,
    SampleAccess,
    SourceAccess,
)
from data_stack.exception import ConfigError
from data_stack.loader import BlockShuffled, InOrder, Loader, Order
from data_stack.loader.orders import block_lengths


class _BlocksAccess(SourceAccess):
    def __init__(self, lengths: tuple[int, ...]) -> None:
        super().__init__()
        self._lengths, self.n_samples = lengths, sum(lengths)

    def sample(self, position: int) -> Any:
        return {"x": position}

    def blocks(self) -> npt.NDArray[np.int64]:
        return np.array(self._lengths)


class InBlocks(AccessedDatasetIterator):
    """Numbers in blocks of given lengths."""

    def __init__(self, *lengths: int) -> None:
        self._lengths = lengths

    def make_access(self) -> SampleAccess:
        return _BlocksAccess(self._lengths)


def test_a_source_tells_its_blocks_to_the_shuffle() -> None:
    loader = Loader(InBlocks(3, 5, 2), 10, shuffle=BlockShuffled(window=1), seed=4, worker_kind="inline")
    given = Loader(InBlocks(3, 5, 2), 10, shuffle=BlockShuffled(block_lengths=[3, 5, 2], window=1), seed=4, worker_kind="inline")

    (batch,), (expected,) = list(loader), list(given)

    assert batch["x"].tolist() == expected["x"].tolist() != list(range(10))
    assert loader.state_dict() == given.state_dict()


def test_layers_that_keep_the_order_keep_the_blocks() -> None:
    source = InBlocks(3, 5, 2)
    some = DatasetIteratorView(source, [0, 1, 9], {})
    stacks = {
        source.map(lambda sample: sample): [3, 5, 2],
        source.filter(lambda sample: sample["x"] % 2 == 0): [2, 2, 1],
        some: [2, 1],
        CombinedDatasetIterator([source, InBlocks(4)]): [3, 5, 2, 4],
    }

    for stack, expected in stacks.items():
        lengths = block_lengths(stack)
        assert lengths is not None
        assert lengths.tolist() == expected


def test_a_stack_that_tells_no_blocks_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"BlockShuffled\(block_lengths=1000\)"):
        Loader(InBlocks(3, 5).shuffle(seed=1), 4, shuffle=BlockShuffled())
    with pytest.raises(ConfigError):
        BlockShuffled().indices(np.arange(3), 3, 0, 0)


def test_samples_in_order_tell_the_next_block_if_the_stack_knows_blocks() -> None:
    order = InOrder().for_iterator(InBlocks(3, 4, 2))

    ahead = [order.upcoming(position, 9, 0, 0) for position in range(10)]

    told = [(None if samples is None else samples.tolist(), until) for samples, until in ahead]
    assert told == [*[([3], 3)] * 3, *[([7], 7)] * 4, *[([], 9)] * 2, (None, sys.maxsize)]
    assert InOrder().upcoming(0, 9, 0, 0) == (None, sys.maxsize)
    assert order.content() == InOrder().content()


class Masking(Order):
    """Answers positions by a mask."""

    def indices(self, positions: Any, n_samples: int, seed: int, epoch: int) -> Any:
        return positions % 2 == 0

    def content(self) -> dict[str, Any]:
        return {"order": "mask"}


def test_an_order_that_returns_no_integers_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"indices of shape \(4,\) and dtype bool"):
        list(Loader(InBlocks(3, 5), 4, shuffle=Masking(), worker_kind="inline"))
