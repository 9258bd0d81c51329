"""Whose turn it is where several sources come in stated proportions, and how often each has come before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.mixed import exact_parts
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness.keyed import Uint64Array, hashed, hashed_array, permuted_array
from data_stack.exception import ConfigError

__all__ = ["Turns", "checked_parts"]

_STEPS_AT_ONCE = 1 << 12  # so many are computed together, in whole blocks
_MOST_TABLES = 4

_Table = tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]


class Turns:
    """An endless sequence of sources, each as often as its part says, in blocks that are shuffled.

    A block has as many steps as 1 divided by the smallest part, rounded up. After each block every source has come as often as
    its part of all steps so far says, up to one; inside of a block the order is drawn. The key and the step alone decide whose
    turn a step is *and* how many turns that source had before, which is what a source is asked for: it then repeats no step and
    leaves none out.

    :class:`~data_stack.dataset.iterator.mixed.MixedDatasetIterator` divides its blocks by the same arithmetic, which its
    ``_bound`` proves. There the samples of a run come in a drawn order anyway; here they are counted in the order of the steps.

    Args:
        parts: of each source, of sum 1, none negative.
        key: 64 bits.
    """

    def __init__(self, parts: Sequence[Fraction], key: int) -> None:
        self._parts, self._key = list(parts), key
        self.block = math.ceil(1 / min(part for part in parts if part))
        # how much of all the first k sources have together, in units of 2**-64, rounded
        self._shares = [math.floor(share * 2**64 + Fraction(1, 2)) for share in accumulate(parts, initial=Fraction(0))]
        self._steps_at_once = -(-_STEPS_AT_ONCE // self.block) * self.block
        self._tables: tuple[tuple[int, _Table], ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._parts, self._key)

    def at(self, steps: IndexArrayOfInts) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """For each step whose turn it is, and how many turns that source had before; both of shape ``(n,)``.

        Args:
            steps: each in ``[0, 2**62)``.
        """
        tables, places = np.divmod(steps.astype(np.int64, copy=False), self._steps_at_once)
        sources, numbers = np.empty(len(steps), dtype=np.intp), np.empty(len(steps), dtype=np.int64)
        for table in np.unique(tables).tolist():
            which = tables == table
            its_sources, its_numbers = self._table(table)
            sources[which], numbers[which] = its_sources[places[which]], its_numbers[places[which]]
        return sources, numbers

    def _table(self, table: int) -> _Table:
        for number, known in self._tables:
            if number == table:
                return known
        made = self._made_table(table)
        # in one step: threads need no lock, which a fork could leave locked
        self._tables = ((table, made), *self._tables[: _MOST_TABLES - 1])
        return made

    def _made_table(self, table: int) -> _Table:
        """Sources and numbers of the steps from ``table * self._steps_at_once`` on."""
        n_blocks, n_sources = self._steps_at_once // self.block, len(self._parts)
        first = table * n_blocks
        # how often the first k sources come in the first `first + b` blocks: [b, k]
        bounds = np.array(
            [[self._bound(k, first + b) for k in range(n_sources + 1)] for b in range(n_blocks + 1)], dtype=np.int64
        )
        before = np.diff(bounds[:-1], axis=1)  # how often each source came before each block, shape (n_blocks, n_sources)
        counts = np.diff(bounds[1:], axis=1) - before
        unshuffled = np.repeat(np.tile(np.arange(n_sources), n_blocks), counts.reshape(-1)).reshape(n_blocks, self.block)
        sources = np.take_along_axis(unshuffled, self._shuffled(first, n_blocks), axis=1)
        # sorted by source, the turns of each stand together in the order of the steps, in runs as long as its counts
        by_source = np.argsort(sources, axis=1, kind="stable")
        starts = np.cumsum(counts, axis=1) - counts - before
        numbers = np.empty((n_blocks, self.block), dtype=np.int64)
        np.put_along_axis(numbers, by_source, np.arange(self.block) - np.take_along_axis(starts, unshuffled, axis=1), axis=1)
        return sources.reshape(-1), numbers.reshape(-1)

    def _bound(self, n_sources: int, n_blocks: int) -> int:
        """How many of the steps in the first blocks are of the first sources."""
        return (n_blocks * self.block * self._shares[n_sources] + 2**63) >> 64

    def _shuffled(self, first: int, n_blocks: int) -> npt.NDArray[np.intp]:
        """An order of each of some blocks, shape ``(n_blocks, block)``."""
        blocks = np.repeat(np.arange(first, first + n_blocks, dtype=np.uint64), self.block)
        keys: Uint64Array = hashed_array(hashed(self._key, 0), blocks)
        turns = np.tile(np.arange(self.block, dtype=np.uint64), n_blocks)
        return permuted_array(self.block, keys, turns).astype(np.intp).reshape(n_blocks, self.block)


def checked_parts(weights: Sequence[float] | npt.ArrayLike | None, n_sources: int) -> tuple[list[int | float], list[Fraction]]:
    """Weights as plain numbers, and as exact parts of 1; None gives all sources the same.

    Floats mean the decimal number that Python shows: 0.1 is a tenth.

    Raises:
        ConfigError: there are no sources, or not as many weights; a weight is negative, not finite or no number; none is
            positive; a positive one is less than a 2**20-th of their sum.
    """
    try:
        numbers: list[int | float] = [1] * n_sources if weights is None else [_number(weight) for weight in weights]  # type: ignore[union-attr]  # or TypeError
    except TypeError:
        raise ConfigError(f"weights are a list of numbers, one for each source, got {weights!r:.80}") from None
    if len(numbers) != n_sources:
        raise ConfigError(f"{n_sources} sources cannot be mixed by {len(numbers)} weights: give one for each")
    for place, number in enumerate(numbers):
        if not 0 <= number < math.inf:
            raise ConfigError(f"weights must be finite and not negative; that of source {place} is {number}")
    return numbers, exact_parts(numbers, "weight", "source")


def _number(weight: Any) -> int | float:
    """A weight as one of Python's numbers that shows the same digits.

    Raises:
        TypeError: it is no number.
    """
    if isinstance(weight, (int, np.integer)):
        return int(weight)
    if isinstance(weight, (float, np.floating)):
        return float(str(weight))
    raise TypeError(weight)
