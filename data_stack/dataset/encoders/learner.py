"""Learners, which read a column block by block for an encoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from data_stack.dataset.encoders.columns import ColumnArray
from data_stack.dataset.encoders.errors import EncodingError


class Learner(ABC):
    """Reads a column block by block and returns what an encoder remembers of it."""

    @abstractmethod
    def add(self, block: ColumnArray, first: int) -> None:
        """Read the next block.

        Args:
            block: the values, shape ``(n, ...)`` with n > 0.
            first: the position of the first value in the column.

        Raises:
            EncodingError: a value cannot be learned from.
        """

    @abstractmethod
    def finish(self) -> dict[str, Any]:
        """Return what was learned.

        The values can be written as plain data: numbers, strings, arrays, lists, dicts.
        """


class WholeColumn(Learner):
    """A learner that needs the whole column: keeps all blocks and passes them to a function.

    Args:
        learn: takes the column and returns what the encoder remembers.
    """

    _learn: Callable[[ColumnArray], dict[str, Any]]
    #: The blocks that were added so far.
    _blocks: list[ColumnArray]

    def __init__(self, learn: Callable[[ColumnArray], dict[str, Any]]) -> None:
        self._learn = learn
        self._blocks = []

    def add(self, block: ColumnArray, first: int) -> None:
        """Keep the block."""
        if self._blocks:
            shape_before = self._blocks[0].shape[1:]
            if block.shape[1:] != shape_before:
                raise EncodingError(
                    f"values have the shape {block.shape[1:]}, those before {shape_before}", first
                )
        self._blocks.append(block)

    def finish(self) -> dict[str, Any]:
        """Return what the function returns for the whole column."""
        return self._learn(np.concatenate(self._blocks))
