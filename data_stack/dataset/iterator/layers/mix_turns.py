"""Draws which source of a mix has its turn at each sample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from data_stack.dataset.hashing import hash_array, hash_of, high_product_array
from data_stack.dataset.iterator.layers.mix_sources import Sources
from data_stack.dataset.iterator.layers.mix_stages import Stage, find_block_size
from data_stack.dataset.iterator.layers.selection import Selection
from data_stack.dataset.permutation import permute_array
from data_stack.exception import ConfigError

#: The largest number of turns that are drawn at once, which bounds the memory that this takes.
_MAX_TURNS_AT_ONCE = 1 << 20

#: The number of turns that are drawn first. It is doubled each time: a mix that ends with its
#: sources may be small, and a million turns take half a second.
_FIRST_TURNS_AT_ONCE = 1 << 12

#: The orders of blocks have the keys 0, and this plus the number of the stage. Those of the
#: sources, which have the keys from 1, come before it.
_FIRST_KEY_OF_STAGES = 1 << 32


def draw_turns(
    sources: Sources,
    stages: Sequence[Stage],
    max_epochs: Sequence[int | None],
    consumed: Sequence[int],
    n_wanted: int | None,
    key: int,
) -> Iterator[Selection]:
    """Draw the source of each sample of a mix.

    Args:
        sources: the sources.
        stages: the proportions, the first ones from sample 0 on.
        max_epochs: the largest number of passes through each source; None for no limit.
        consumed: how many turns each source had in the mixes before.
        n_wanted: the number of samples. None: as many as there are before a source would start
            again or, with ``max_epochs``, until all sources have had theirs.
        key: 64 bits that decide the order in each block.

    Yields:
        The source of each sample, and how many turns this source had before, those in the mixes
        before included.

    Raises:
        ConfigError: the mix ends before a stage begins, or before ``n_wanted``; or it has no
            sample, as the mixes before had all.
    """
    # A source that never has a turn neither ends the mix nor keeps it from ending.
    drawn_max_epochs = [
        number for part, number in enumerate(max_epochs) if _has_turns(part, stages)
    ]
    _check_end(drawn_max_epochs, n_wanted)
    limits = _limit_turns(sources.lengths, max_epochs, consumed, n_wanted)
    ends_at_first_limit = n_wanted is None and set(drawn_max_epochs) == {None}
    n_turns = np.array(consumed, dtype=np.int64)
    n_drawn = 0
    n_mixes = 0
    has_ended = False
    while not has_ended and (n_wanted is None or n_drawn < n_wanted):
        stage, stop = _find_stage(stages, n_drawn, n_wanted)
        have_turns_left = n_turns < limits
        if ends_at_first_limit and _lacks_a_source(stage.shares, have_turns_left):
            break
        shares = _share_among(stage.shares, have_turns_left)
        if not any(shares):
            break
        # A mix without stages has the number 0, whose order must hold for ever.
        number = 0 if n_mixes == 0 else _FIRST_KEY_OF_STAGES + n_mixes
        mix = Mix(shares, find_block_size(shares), hash_of(key, number))
        n_mixes += 1
        n_turns_before = n_turns.copy()
        for turns in _draw_steps(mix, None if stop is None else stop - n_drawn):
            positions = n_turns_before[turns.parts] + turns.positions
            n_allowed = _find_first(positions >= limits[turns.parts])
            parts = turns.parts[:n_allowed]
            yield Selection(parts, positions[:n_allowed])
            n_drawn += n_allowed
            n_turns += np.bincount(parts, minlength=len(n_turns))
            if n_allowed < len(turns.parts):
                # A source would exceed its limit. The mix ends, or goes on without the source.
                has_ended = ends_at_first_limit
                break
    if n_drawn == 0 and n_wanted is None and any(consumed):
        raise _error_of_exhausted_sources(sources, stages[0], n_turns >= limits)
    _check_all_stages_began(stages, n_drawn, n_wanted)


def _has_turns(part: int, stages: Sequence[Stage]) -> bool:
    """Return whether a source has a proportion above 0 in any stage."""
    return any(stage.shares[part] > 0 for stage in stages)


def _check_end(max_epochs: Sequence[int | None], n_wanted: int | None) -> None:
    """Check that a mix ends.

    Args:
        max_epochs: the largest number of passes through each source that has turns.
        n_wanted: the number of samples; None: until the sources end.

    Raises:
        ConfigError: it does not.
    """
    are_unlimited = [number is None for number in max_epochs]
    if n_wanted is None and any(are_unlimited) and not all(are_unlimited):
        raise ConfigError(
            "a mix without n_samples= ends when all sources have had max_epochs=, which some have "
            "not; pass n_samples=, or max_epochs= for all sources"
        )


def _limit_turns(
    lengths: Sequence[int],
    max_epochs: Sequence[int | None],
    consumed: Sequence[int],
    n_wanted: int | None,
) -> npt.NDArray[np.int64]:
    """Return how many turns each source has at most, those in the mixes before included."""
    largest = int(np.iinfo(np.int64).max)
    limits: list[int] = []
    for length, number, n_consumed in zip(lengths, max_epochs, consumed, strict=True):
        if number is not None:
            limits.append(min(length * number, largest))
        elif n_wanted is None:
            limits.append(_end_of_pass(length, n_consumed))
        else:
            limits.append(largest)
    return np.array(limits, dtype=np.int64)


def _end_of_pass(length: int, n_turns: int) -> int:
    """Return how many turns a source has had at the end of the pass in which it is."""
    if length == 0:
        return 0
    n_passes = math.ceil(Fraction(n_turns, length))
    return length * max(1, n_passes)


def _find_stage(
    stages: Sequence[Stage], n_drawn: int, n_wanted: int | None
) -> tuple[Stage, int | None]:
    """Return the stage of the next sample, and the sample before which it ends; None if unknown."""
    numbers = [number for number, stage in enumerate(stages) if stage.start <= n_drawn]
    current = numbers[-1]
    stops = [stage.start for stage in stages[current + 1 :]]
    if n_wanted is not None:
        stops.append(n_wanted)
    return stages[current], min(stops, default=None)


def _lacks_a_source(shares: Sequence[Fraction], have_turns_left: npt.NDArray[np.bool_]) -> bool:
    """Return whether a source with a share has no turns left."""
    for share, has_turns_left in zip(shares, have_turns_left.tolist(), strict=True):
        if share > 0 and not has_turns_left:
            return True
    return False


def _share_among(
    shares: Sequence[Fraction], have_turns_left: npt.NDArray[np.bool_]
) -> list[Fraction]:
    """Return the shares, divided among the sources that have turns left; all 0 if none has."""
    kept_shares: list[Fraction] = []
    for share, has_turns_left in zip(shares, have_turns_left.tolist(), strict=True):
        kept_shares.append(share if has_turns_left else Fraction(0))
    total = sum(kept_shares)
    if total == 0:
        return kept_shares
    return [share / total for share in kept_shares]


def _draw_steps(mix: Mix, n_steps: int | None) -> Iterator[Selection]:
    """Draw the turns of a number of steps, in several parts; without a number there is no end."""
    n_turns_at_once = _FIRST_TURNS_AT_ONCE
    first_block = 0
    n_drawn = 0
    while n_steps is None or n_drawn < n_steps:
        n_blocks = max(1, n_turns_at_once // mix.block_size)
        if n_steps is not None:
            n_blocks = min(n_blocks, math.ceil(Fraction(n_steps - n_drawn, mix.block_size)))
        turns = mix.draw_turns(first_block, n_blocks)
        if n_steps is not None:
            n_left = n_steps - n_drawn
            turns = Selection(turns.parts[:n_left], turns.positions[:n_left])
        yield turns
        first_block += n_blocks
        n_drawn += len(turns.parts)
        n_turns_at_once = min(2 * n_turns_at_once, _MAX_TURNS_AT_ONCE)


def _find_first(is_wanted: npt.NDArray[np.bool_]) -> int:
    """Return the number of the first True; the length if there is none."""
    if not is_wanted.any():
        return len(is_wanted)
    return int(is_wanted.argmax())


def _check_all_stages_began(stages: Sequence[Stage], n_drawn: int, n_wanted: int | None) -> None:
    """Check that a mix has the samples and stages that were asked for.

    Raises:
        ConfigError: it ended before.
    """
    if n_wanted is not None and n_drawn < n_wanted:
        raise ConfigError(
            f"the sources of the mix had max_epochs= after {n_drawn:,} samples, before "
            f"n_samples={n_wanted:,}; pass more epochs or fewer samples"
        )
    for stage in stages[1:]:
        if stage.start >= n_drawn:
            raise ConfigError(
                f"the mix ends after {n_drawn:,} samples, before the stage at sample "
                f"{stage.start:,} begins; pass n_samples= or max_epochs=, or let the stage begin "
                f"earlier"
            )


def _error_of_exhausted_sources(
    sources: Sources, stage: Stage, are_exhausted: npt.NDArray[np.bool_]
) -> ConfigError:
    """Return the error of a mix that continues others, but ends with their last sample."""
    exhausted = [
        repr(name)
        for name, share, is_exhausted in zip(
            sources.names, stage.shares, are_exhausted.tolist(), strict=True
        )
        if share and is_exhausted
    ]
    return ConfigError(
        f"this mix has no sample: the mixes before it had all of {', '.join(exhausted)}; pass "
        f"n_samples=, or a larger max_epochs="
    )


@dataclass(frozen=True)
class Mix:
    """Which part has its turn at each step, where a step is a position of the mix.

    Attributes:
        shares: the share of each part in all turns; their sum is 1.
        block_size: the number of steps in a block. After each block, each part has had its share of
            all turns. At least 1 divided by the smallest positive share.
        order_key: 64 bits that decide the order in each block.
    """

    shares: Sequence[Fraction]
    block_size: int
    order_key: int

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
        keys = hash_array(self.order_key, np.repeat(blocks, self.block_size))
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
