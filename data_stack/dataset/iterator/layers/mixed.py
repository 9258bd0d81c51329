"""Samples of several iterators in stated proportions."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
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
from data_stack.dataset.permutation import permute_array
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import check_draw, check_n_drawn
from data_stack.exception import ConfigError

_MAX_BLOCK = 1 << 20

# So many positions are computed at once, which bounds the memory that this takes.
_POSITIONS_AT_ONCE = 1 << 20


@layer("mixed")
class MixedDatasetIterator(ViewOfSeveral):
    """Samples of several iterators in stated proportions, at every length.

    The samples come in blocks of ``block_size``, which is 1 divided by the smallest proportion, rounded up: 10 for 7 : 2 : 1.
    At the end of every block, each iterator has come as often as its proportion of all samples so far says, up to one sample
    (exactly, where that is a whole number), so errors do not add up. Inside a block the order is drawn; there it is off by less
    than the block.

    Each iterator's samples come in a drawn order, each of them once, then in another order, and so on. Seed, epoch and position
    alone decide which sample is where. 4 bytes a sample are kept (8 for more than 2**31 samples). ``indices`` are
    positions in the iterators one after the other.

    Args:
        iterators: at least one; they stay the caller's to close. Nothing is read.
        proportions: a number for each iterator, finite and not negative, at least one of them positive; they need not sum to 1.
            An iterator with the proportion 0 does not come. Floats mean the decimal number that Python shows: 0.1 is a tenth.
        seed: any integer.
        n_samples: how many; None for all that come before one of the iterators would start again.
        epoch: number of the order, from 0; see ``at_epoch``.

    Raises:
        ConfigError: there are not iterators, or not as many proportions; a proportion is not allowed, or less than a 2**20-th
            of their sum; an iterator with a positive proportion is empty; ``n_samples`` is negative.
    """

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
        numbers, parts = _exact_parts(proportions, len(lengths))
        for place, (part, length) in enumerate(zip(parts, lengths, strict=True)):
            if part and not length:
                raise ConfigError(
                    f"iterator {place} is empty; leave it out, or set its proportion to 0"
                )
        self._block_size = math.ceil(1 / min(part for part in parts if part))
        super().__init__(combined, _mix(lengths, parts, self._block_size, n_wanted, draw.key))
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


def _exact_parts(given: Any, n_wanted: int) -> tuple[list[int | float], list[Fraction]]:
    """Proportions as plain numbers, and as exact parts of their sum; a float means the decimal number that Python shows."""
    try:
        numbers = [_number(each) for each in given]
    except (TypeError, ValueError):
        raise ConfigError(
            f"proportions are a list of numbers, one for each iterator, got {given!r:.80}"
        ) from None
    if (
        len(numbers) != n_wanted
        or not all(0 <= number < math.inf for number in numbers)
        or not any(numbers)
    ):
        raise ConfigError(
            f"proportions must be {n_wanted} finite numbers, none negative and one of them positive, got {numbers}"
        )
    exact = [Fraction(repr(number)) for number in numbers]
    total = sum(exact)
    parts = [number / total for number in exact]
    if min(part for part in parts if part) < Fraction(1, _MAX_BLOCK):
        raise ConfigError(
            f"the smallest proportion is less than a {_MAX_BLOCK:,}th of the sum of all, {numbers}; increase it"
        )
    return numbers, parts


def _number(value: Any) -> int | float:
    try:
        return operator.index(value)
    except TypeError:  # tensors and arrays of floats have an __index__, but it refuses
        return float(
            str(value) if isinstance(value, np.floating) else value
        )  # the decimal number that numpy shows


def _mix(
    lengths: list[int], parts: list[Fraction], block: int, n_wanted: int | None, key: int
) -> IndexArrayOfInts:
    """Positions in runs of ``lengths``, one run after the other, each run's in its part of all.

    Args:
        lengths: of each run; positive where its part is.
        parts: of each run, of sum 1.
        block: at least 1 / the smallest positive part.
        n_wanted: number of positions; None for those before a run would come again.
        key: what decides the order.
    """
    ends = np.cumsum([0, *lengths])
    run_keys = hash_array(key, 1 + np.arange(len(lengths)))
    n_most = n_wanted
    if n_most is None:  # a block or two more than there can be
        n_most = (
            min(
                math.ceil(length / part)
                for length, part in zip(lengths, parts, strict=True)
                if part
            )
            + 2 * block
        )
    n_blocks = -(-n_most // block)
    order = np.empty(n_blocks * block, dtype=np.int32 if ends[-1] <= 2**31 else np.int64)
    blocks_at_once = max(1, _POSITIONS_AT_ONCE // block)
    for first in range(0, n_blocks, blocks_at_once):
        runs, numbers = draw_turns(parts, block, key, first, min(blocks_at_once, n_blocks - first))
        for run in np.unique(runs).tolist():
            own = np.flatnonzero(runs == run)
            passes, nths = np.divmod(numbers[own], lengths[run])
            places = permute_array(lengths[run], hash_array(int(run_keys[run]), passes), nths)
            order[first * block + own] = ends[run] + places.astype(np.intp)
            if n_wanted is None and passes[-1] > 0:
                n_most = min(n_most, first * block + int(own[np.argmax(passes > 0)]))
    return order[:n_most]


def draw_turns(
    parts: Sequence[Fraction], block: int, key: int, first: int, n_blocks: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """For each step of some blocks which run has its turn, and how many turns that run had before.

    Of the first t steps, t a multiple of the block, the first k runs together have their part of t, rounded. So in the block
    from t to t' a run has the difference of four roundings, which is never negative: of at least 1 = part * block they take less
    than 2, and where part * block is 1, its two bounds move by the same number.

    Args:
        parts: of each run, of sum 1.
        block: at least 1 / the smallest positive part.
        key: what decides the order in each block.
        first: number of the first block.
        n_blocks: how many.
    """
    # in units of 2**-64, rounded; those of a sum of 1 are not held by 64 bits
    sums = [
        math.floor(share * 2**64 + Fraction(1, 2))
        for share in accumulate(parts, initial=Fraction(0))
    ]
    shares, is_whole = (
        np.array([each % 2**64 for each in sums], dtype=np.uint64),
        np.array([each == 2**64 for each in sums]),
    )
    times = (np.arange(first, first + n_blocks + 1) * block).astype(np.uint64)[:, np.newaxis]
    bounds = np.where(
        is_whole, times, high_product_array(times, shares) + ((times * shares) >> np.uint64(63))
    ).astype(np.int64)
    ends = bounds[:, 1:] - bounds[:, :-1]  # how many turns each run had before each block
    counts = ends[1:] - ends[:-1]
    in_order = np.repeat(np.tile(np.arange(len(parts)), n_blocks), counts.reshape(-1)).reshape(
        n_blocks, block
    )
    keys = hash_array(hash_of(key, 0), np.repeat(np.arange(first, first + n_blocks), block))
    drawn = permute_array(block, keys, np.tile(np.arange(block), n_blocks)).astype(np.intp)
    runs = np.take_along_axis(in_order, drawn.reshape(n_blocks, block), axis=1)
    # sorted by run, the turns of each are in the order of the steps
    by_run = np.argsort(runs, axis=1, kind="stable")
    starts = np.cumsum(counts, axis=1) - counts - ends[:-1]
    numbers = np.empty((n_blocks, block), dtype=np.int64)
    np.put_along_axis(
        numbers, by_run, np.arange(block) - np.take_along_axis(starts, in_order, axis=1), axis=1
    )
    return runs.reshape(-1), numbers.reshape(-1)
