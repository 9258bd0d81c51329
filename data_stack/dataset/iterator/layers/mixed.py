"""Samples of several iterators in stated proportions."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.hashing import hash_array, hash_of, high_product_array
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator
from data_stack.dataset.iterator.layers.interleaved import ViewOfSeveral
from data_stack.dataset.iterator.layers.selection import Concatenation, Selection
from data_stack.dataset.permutation import permute_array
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import check_draw, check_n_drawn
from data_stack.exception import ConfigError

#: The smallest share of a part is 1 divided by this number, so that blocks stay small.
_MAX_BLOCK_SIZE = 1 << 20

#: Positions that are computed at once, which bounds the memory that this takes.
_POSITIONS_AT_ONCE = 1 << 20


@layer("mixed")
class MixedDatasetIterator(ViewOfSeveral):
    """Samples of several iterators in stated proportions, at every length.

    The samples come in blocks of ``block_size`` samples, which is 1 divided by the smallest
    proportion, rounded up: 10 for 7 : 2 : 1. At the end of every block, the number of samples of
    each iterator so far is its proportion of all samples so far, up to one sample (exactly, where
    that is a whole number). So errors do not add up. The order inside of a block is drawn.

    The samples of each iterator come in a drawn order, each of them once, then in another drawn
    order, and so on. Seed, epoch and position alone decide which sample is where. 4 bytes a sample
    are kept (8 for more than 2**31 samples). ``indices`` are positions in the iterators one after
    the other.

    Args:
        iterators: at least one; they are not closed. Nothing is read.
        proportions: a number for each iterator, finite and not negative, at least one of them
            positive. They need not sum to 1. No sample is taken of an iterator with the proportion
            0. Floats mean the decimal number that Python shows: 0.1 is a tenth.
        seed: any integer.
        n_samples: how many; None for as many as there are before an iterator would start again.
        epoch: number of the order, from 0; see ``at_epoch``.

    Raises:
        ConfigError: there are no iterators, or not one proportion for each; a proportion is not
            allowed, or is less than a 2**20-th of their sum; an iterator with a positive proportion
            is empty; ``n_samples`` is negative.
    """

    #: See ``block_size``.
    _block_size: int

    def __init__(
        self,
        iterators: Sequence[DatasetIteratorIF],
        proportions: Sequence[float],
        seed: int,
        *,
        n_samples: int | None = None,
        epoch: int = 0,
    ) -> None:
        draw = check_draw("mixed", seed, epoch)
        n_wanted = check_n_drawn("mixed", n_samples)
        combined = CombinedDatasetIterator(iterators)
        lengths = [len(as_iterator(iterator)) for iterator in combined.underlying_iterators]
        numbers = _check_proportions(proportions, len(lengths))
        shares = _find_shares(numbers)
        for number, (share, length) in enumerate(zip(shares, lengths, strict=True)):
            if share and not length:
                raise ConfigError(
                    f"iterator {number} is empty; leave it out, or set its proportion to 0"
                )
        mix = Mix.of(shares, draw.key)
        self._block_size = mix.block_size
        super().__init__(combined, _find_positions(mix, lengths, n_wanted))
        self._draw = draw
        self._made_with = {
            "proportions": numbers,
            "seed": draw.seed,
            "n_samples": n_wanted,
            "epoch": draw.epoch,
        }

    @property
    def block_size(self) -> int:
        """After how many samples the proportions are exact, up to one sample of each iterator."""
        return self._block_size


# ---------------------------------------------------------------------- proportions


def _check_proportions(given: Any, n_parts: int) -> list[int | float]:
    """Return proportions as plain numbers.

    Raises:
        ConfigError: they are not a number for each part, or one is not allowed.
    """
    try:
        numbers = [_as_number(proportion) for proportion in given]
    except (TypeError, ValueError):
        raise ConfigError(
            f"proportions are a list of numbers, one for each iterator, got {given!r:.80}"
        ) from None
    are_allowed = all(0 <= number < math.inf for number in numbers) and any(numbers)
    if len(numbers) != n_parts or not are_allowed:
        raise ConfigError(
            f"proportions must be {n_parts} finite numbers, none negative and one of them "
            f"positive, got {numbers}"
        )
    return numbers


def _as_number(value: Any) -> int | float:
    try:
        return operator.index(value)
    except TypeError:
        # It is no integer. Tensors and arrays of floats have an __index__ that refuses.
        pass
    if isinstance(value, np.floating):
        return float(str(value))  # the decimal number that numpy shows
    return float(value)


def _find_shares(proportions: Sequence[int | float]) -> list[Fraction]:
    """Return proportions as exact shares of their sum; a float means the decimal number shown.

    Raises:
        ConfigError: one is too small a share.
    """
    exact = [Fraction(repr(proportion)) for proportion in proportions]
    total = sum(exact)
    shares = [proportion / total for proportion in exact]
    smallest = min(share for share in shares if share)
    if smallest < Fraction(1, _MAX_BLOCK_SIZE):
        raise ConfigError(
            f"the smallest proportion is less than a {_MAX_BLOCK_SIZE:,}th of the sum of all, "
            f"{list(proportions)}; increase it"
        )
    return shares


# ---------------------------------------------------------------------- which sample is where


@dataclass(frozen=True)
class Mix:
    """Which part has its turn at each step, where a step is a position of the mix.

    Attributes:
        shares: the share of each part in all turns; their sum is 1.
        block_size: the number of steps in a block. After each block, each part has had its share of
            all turns. At least 1 divided by the smallest positive share.
        key: 64 bits that decide the order in each block.
    """

    shares: Sequence[Fraction]
    block_size: int
    key: int

    @classmethod
    def of(cls, shares: Sequence[Fraction], key: int) -> Mix:
        """Make a mix of the smallest blocks in which each part has a turn."""
        smallest = min(share for share in shares if share)
        return cls(shares, math.ceil(1 / smallest), key)

    def draw_turns(self, first_block: int, n_blocks: int) -> Selection:
        """Draw which part has its turn at each step of some blocks.

        Returns:
            The part of each step, and as its position how many turns this part had before.
        """
        # One block more, for the turns within the last block are a difference, too.
        n_turns = self._count_turns(first_block, n_blocks + 1)
        n_turns_before_block = n_turns[:-1]
        n_turns_in_block = n_turns[1:] - n_turns_before_block

        # Each row is a block. It has each part as often as the part has a turn: first part by part,
        # then in the drawn order.
        shape = (n_blocks, self.block_size)
        parts_of_blocks = np.tile(np.arange(len(self.shares)), n_blocks)
        sorted_parts = np.repeat(parts_of_blocks, n_turns_in_block.reshape(-1)).reshape(shape)
        parts = np.take_along_axis(sorted_parts, self._draw_orders(first_block, n_blocks), axis=1)

        # Count the turns of each part. The steps of a part, sorted by part, stand side by side and
        # in their order. The place of a step there, less that of the first step of the part, is the
        # number of turns that the part had before in this block.
        steps_by_part = np.argsort(parts, axis=1, kind="stable")
        first_of_part = np.cumsum(n_turns_in_block, axis=1) - n_turns_in_block
        offset_of_part = n_turns_before_block - first_of_part
        offsets = np.take_along_axis(offset_of_part, sorted_parts, axis=1)
        n_turns_before = np.empty(shape, dtype=np.int64)
        np.put_along_axis(
            n_turns_before, steps_by_part, np.arange(self.block_size) + offsets, axis=1
        )
        return Selection(parts.reshape(-1), n_turns_before.reshape(-1))

    def _draw_orders(self, first_block: int, n_blocks: int) -> npt.NDArray[np.intp]:
        """Return a permutation of the steps of each block, shape ``(n_blocks, block_size)``."""
        blocks = np.arange(first_block, first_block + n_blocks)
        keys = hash_array(hash_of(self.key, 0), np.repeat(blocks, self.block_size))
        steps = np.tile(np.arange(self.block_size), n_blocks)
        orders = permute_array(self.block_size, keys, steps).astype(np.intp)
        return orders.reshape(n_blocks, self.block_size)

    def _count_turns(self, first_block: int, n_blocks: int) -> npt.NDArray[np.int64]:
        """Return how many turns each part had before each block, shape ``(n_blocks, n_parts)``.

        Let S(k) be the sum of the shares of the first k parts. Before step t, which begins a block,
        these parts together have had t * S(k) turns, rounded. So the turns of part k before step t
        are the difference of two bounds: t * S(k + 1) and t * S(k), both rounded.

        In a block a part never has less than 0 turns. Without rounding it has share * block size
        turns, which is at least 1. Four roundings change that by less than 2. Where share * block
        size is 1, the bounds differ by a whole number before they are rounded, and the part has one
        turn in each block. A part with the share 0 has equal bounds.
        """
        # Sums are in units of 2**-64, rounded. A sum of 1 has 2**64 units, which 64 bits do not
        # hold: its bound is the number of steps.
        sums: list[int] = []
        for sum_of_shares in accumulate(self.shares, initial=Fraction(0)):
            sums.append(math.floor(sum_of_shares * 2**64 + Fraction(1, 2)))
        is_one = np.array([units == 2**64 for units in sums])
        units_of_sums = np.array([units % 2**64 for units in sums], dtype=np.uint64)
        blocks = np.arange(first_block, first_block + n_blocks)
        steps = (blocks * self.block_size).astype(np.uint64)[:, np.newaxis]
        is_rounded_up = (steps * units_of_sums) >> np.uint64(63)
        rounded = high_product_array(steps, units_of_sums) + is_rounded_up
        bounds = np.where(is_one, steps, rounded).astype(np.int64)
        return np.asarray(bounds[:, 1:] - bounds[:, :-1])


def _find_positions(mix: Mix, lengths: Sequence[int], n_wanted: int | None) -> IndexArrayOfInts:
    """Return the positions of mixed samples in the parts one after the other.

    Args:
        mix: which part has its turn.
        lengths: how many samples each part has; positive where its share is.
        n_wanted: the number of positions; None for those before a part would start again.
    """
    concatenation = Concatenation(lengths)
    n_positions = _estimate_length(mix, lengths) if n_wanted is None else n_wanted
    n_blocks = math.ceil(Fraction(n_positions, mix.block_size))
    dtype = np.int32 if concatenation.n_samples <= 2**31 else np.int64
    positions = np.empty(n_blocks * mix.block_size, dtype=dtype)
    n_blocks_at_once = max(1, _POSITIONS_AT_ONCE // mix.block_size)
    for first_block in range(0, n_blocks, n_blocks_at_once):
        turns = mix.draw_turns(first_block, min(n_blocks_at_once, n_blocks - first_block))
        start = first_block * mix.block_size
        if n_wanted is None:
            n_positions = min(n_positions, start + _find_restart(turns, lengths))
        selection = _draw_samples(turns, lengths, mix.key)
        positions[start : start + len(turns.parts)] = concatenation.positions_of(selection)
    return positions[:n_positions]


def _estimate_length(mix: Mix, lengths: Sequence[int]) -> int:
    """Return a number of steps, up to two blocks too many, before which a part starts again."""
    n_steps_of_parts = [
        math.ceil(length / share)
        for length, share in zip(lengths, mix.shares, strict=True)
        if share
    ]
    return min(n_steps_of_parts) + 2 * mix.block_size


def _find_restart(turns: Selection, lengths: Sequence[int]) -> int:
    """Return the first turn at which a part starts again; the number of turns if none does."""
    starts_again = turns.positions >= np.asarray(lengths)[turns.parts]
    if not starts_again.any():
        return len(turns.parts)
    return int(starts_again.argmax())


def _draw_samples(turns: Selection, lengths: Sequence[int], key: int) -> Selection:
    """Return which sample each turn is: in each pass through a part, another drawn order.

    Args:
        turns: the part of each step, and how many turns the part had before.
        lengths: how many samples each part has.
        key: 64 bits that decide the orders.

    Returns:
        The part of each step, and the position of the sample in the part.
    """
    part_keys = hash_array(key, 1 + np.arange(len(lengths)))
    positions = np.empty(len(turns.parts), dtype=np.intp)
    for part in np.unique(turns.parts).tolist():
        steps = np.flatnonzero(turns.parts == part)
        passes, numbers = np.divmod(turns.positions[steps], lengths[part])
        pass_keys = hash_array(int(part_keys[part]), passes)
        positions[steps] = permute_array(lengths[part], pass_keys, numbers).astype(np.intp)
    return Selection(turns.parts, positions)
