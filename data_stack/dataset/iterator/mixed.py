"""Samples of several iterators in stated proportions."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.combined import CombinedDatasetIterator, shared_meta
from data_stack.dataset.iterator.contract import DatasetIteratorIF, adapted
from data_stack.dataset.iterator.indices import checked_integer
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.view import DatasetIteratorView
from data_stack.dataset.meta import DatasetMetaIF
from data_stack.dataset.positions import ComputedPositions, IndexArrayOfInts
from data_stack.dataset.randomness.keyed import Uint64Array, hashed, hashed_array, high_product_array, permuted_array
from data_stack.dataset.randomness.seeds import derived_seed
from data_stack.exception import ConfigError

__all__ = ["MixedDatasetIterator", "exact_parts"]

_LARGEST_BLOCK = 1 << 20

# So many positions are computed at once, which bounds the memory that this takes.
_POSITIONS_AT_ONCE = 1 << 14


@layer("mixed")
class MixedDatasetIterator(DatasetIteratorView):
    """Samples of several iterators in stated proportions, at every length.

    The samples come in blocks of ``block_size``, which is 1 divided by the smallest proportion, rounded up: 10 for 7 : 2 : 1.
    At the end of every block, each iterator has come as often as its proportion of all samples so far says, up to one sample
    (exactly, where that is a whole number), so errors do not add up. Inside a block the order is drawn; there it is off by less
    than the block.

    Each iterator's samples come in a drawn order, each of them once, then in another order, and so on. Seed, epoch and position
    alone decide which sample is where, and it is computed in a time that grows with the logarithm of the number of iterators;
    only in a block in which an iterator starts again, it takes longer, in proportion to the block. No array is kept.
    ``indices`` are positions in the iterators one after the other.

    Args:
        iterators: at least one; they stay the caller's to close. Nothing is read.
        proportions: a number for each iterator, finite and not negative, at least one of them positive; they need not sum to 1.
            An iterator with the proportion 0 does not come. Floats mean the decimal number that Python shows: 0.1 is a tenth.
        seed: any integer.
        n_samples: how many; None for all that come before one of the iterators would start again.
        epoch: which of the orders of that seed, from 0 on; see ``at_epoch``.

    Raises:
        ConfigError: there are no iterators, or not as many proportions; a proportion is not allowed, or less than a 2**20-th
            of their sum; an iterator with a positive proportion is empty; ``n_samples`` is negative.
    """

    def __init__(
        self,
        iterators: Sequence[DatasetIteratorIF],
        proportions: Sequence[float],
        seed: SupportsIndex,
        *,
        n_samples: SupportsIndex | None = None,
        epoch: SupportsIndex = 0,
    ) -> None:
        self._seed = checked_integer("the seed of a mixed iterator", seed)
        self._epoch = checked_integer("the epoch of a mixed iterator", epoch, at_least=0)
        self._n_wanted: int | None = None
        if n_samples is not None:
            name = "the n_samples of a mixed iterator"
            self._n_wanted = checked_integer(name, n_samples, at_least=0, at_most=sys.maxsize)
        combined = CombinedDatasetIterator(iterators)
        lengths = [len(adapted(iterator)) for iterator in combined.underlying_iterators]
        if not lengths:
            raise ConfigError("a mixed iterator needs at least one iterator; it was given none")
        self._proportions, parts = exact_parts(proportions, len(lengths))
        for place, (part, length) in enumerate(zip(parts, lengths, strict=True)):
            if part and not length:
                raise ConfigError(f"iterator {place} is empty, but its proportion is not 0; leave it out, or give it 0")
        self._block_size = math.ceil(1 / min(part for part in parts if part))
        key = derived_seed("mixed", self._seed, self._epoch)
        super().__init__(combined, _Mix(lengths, parts, self._block_size, self._n_wanted, key))

    @property
    def block_size(self) -> int:
        """After how many samples the proportions are exact, up to one sample of each iterator."""
        return self._block_size

    def _arguments(self) -> dict[str, Any]:
        return {
            "proportions": self._proportions,
            "seed": self._seed,
            "n_samples": self._n_wanted,
            "epoch": self._epoch,
        }

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        return cls(underlying, **arguments)

    def _followed(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        return shared_meta(meta, self.underlying_iterators)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators given."""
        return self._dataset_iterator.underlying_iterators


def exact_parts(
    given: Any, n_wanted: int, name: str = "proportion", of: str = "iterator"
) -> tuple[list[int | float], list[Fraction]]:
    """Proportions as plain numbers, and as exact parts of their sum; a float means the decimal number that Python shows.

    Args:
        given: numbers, finite and not negative.
        n_wanted: how many there must be.
        name: what each is called in a message, e.g. ``"weight"``.
        of: what each belongs to, e.g. ``"source"``.

    Raises:
        ConfigError: they are not such numbers, or not as many; none is positive; or a positive one is less than a 2**20-th of
            their sum.
    """
    try:
        numbers = [_number(each) for each in given]
    except (TypeError, ValueError):
        raise ConfigError(f"{name}s are a list of numbers, one for each {of}, got {given!r:.80}") from None
    if len(numbers) != n_wanted:
        raise ConfigError(f"{n_wanted} {of}s cannot be mixed by {len(numbers)} {name}s: give one for each")
    for place, number in enumerate(numbers):
        if not 0 <= number < math.inf:
            raise ConfigError(f"{name}s must be finite and not negative; that of {of} {place} is {number}")
    exact = [Fraction(repr(number)) for number in numbers]
    total = sum(exact)
    if total == 0:
        raise ConfigError(f"at least one of the {name}s must be positive, got {numbers}")
    parts = [number / total for number in exact]
    for place, part in enumerate(parts):
        if 0 < part < Fraction(1, _LARGEST_BLOCK):
            raise ConfigError(
                f"the {name} of {of} {place}, {numbers[place]}, is less than a {_LARGEST_BLOCK:,}th of the sum of all; "
                f"give it more, or mix it with a small one first"
            )
    return numbers, parts


def _number(value: Any) -> int | float:
    try:
        return operator.index(value)
    except TypeError:  # tensors and arrays of floats have an __index__, but it refuses
        return float(str(value) if isinstance(value, np.floating) else value)  # the decimal number that numpy shows


class _Mix(ComputedPositions):
    """Positions in runs of ``lengths``, one run after the other, each run's in its part of all.

    Block m has the positions from ``m * block`` on. Its turns are permuted; a permuted turn is called a ticket. Of the first t
    positions, the first k runs together have ``bound(k, t)``, their part of t, rounded. So in a block from t to t', the tickets
    below ``bound(k, t') - bound(k, t)`` are those of the first k runs. This says whose a ticket is, and its number among all
    positions of that run; the number says which pass through the run it is of, and where in that pass.

    Args:
        lengths: of each run; positive where its part is.
        parts: of each run, of sum 1.
        block: at least 1 / the smallest positive part, so that no run's share of a block is negative (see ``_bound``).
        length: number of positions; None for those before a run would come again.
        key: what decides the order.
    """

    def __init__(self, lengths: list[int], parts: list[Fraction], block: int, length: int | None, key: int) -> None:
        self._lengths, self._block = lengths, block
        # in units of 2**-64, rounded
        self._shares = [math.floor(share * 2**64 + Fraction(1, 2)) for share in accumulate(parts, initial=Fraction(0))]
        self._block_key = hashed(key, 0)
        self._arrays = (
            np.array(lengths, dtype=np.uint64),
            np.cumsum([0, *lengths[:-1]], dtype=np.intp),
            hashed_array(key, 1 + np.arange(len(lengths))),
            np.array([share % 2**64 for share in self._shares], dtype=np.uint64),
        )
        self._n_runs_for_all = self._shares.index(2**64)  # with this share and more, which 64 bits do not hold
        self._length = self._before_coming_again() if length is None else length

    def __len__(self) -> int:
        return self._length

    def _bound(self, n_runs: int, n_positions: int) -> int:
        """How many of the first ``n_positions`` are of the first ``n_runs`` runs; ``n_positions`` is a multiple of the block.

        A run's share of a block from t to t' is never negative. It is what four roundings leave of its part p of the block. If
        p * block is at least 1, they take less than 2, so more than -1 is left. Where p * block is 1, the rounding of shares to
        2**-64 may make it 1 - d, but for all t' <= 2**63, d * t' / block is less than 1. Then the run's two bounds differ by at
        most t / block at t, and by at least t' / block - 1, which is the same number, at t'.
        """
        return (n_positions * self._shares[n_runs] + 2**63) >> 64

    def _turns_of(self, block_key: int, first_ticket: int, n_tickets: int) -> IndexArrayOfInts:
        """The turns in which a run comes in a block, ascending."""
        tickets = permuted_array(self._block, block_key, np.arange(self._block, dtype=np.uint64)).astype(np.intp)
        return np.flatnonzero((tickets >= first_ticket) & (tickets < first_ticket + n_tickets))

    def _before_coming_again(self) -> int:
        """The first position at which a run would have more than all its samples."""
        most_blocks = sys.maxsize // self._block
        shortest = sys.maxsize
        for run, length in enumerate(self._lengths):
            if self._shares[run] == self._shares[run + 1]:
                continue
            first, last = 0, most_blocks  # the block with the sample number `length` of this run is in [first, last)
            while last - first > 1:
                middle = (first + last) // 2
                if self._n_before(run, middle) <= length:
                    first = middle
                else:
                    last = middle
            n_before, n_after = self._n_before(run, first), self._n_before(run, first + 1)
            if n_after > length:
                first_ticket = self._bound(run, (first + 1) * self._block) - self._bound(run, first * self._block)
                turns = self._turns_of(hashed(self._block_key, first), first_ticket, n_after - n_before)
                shortest = min(shortest, first * self._block + int(turns[length - n_before]))
        return shortest

    def _n_before(self, run: int, block: int) -> int:
        return self._bound(run + 1, block * self._block) - self._bound(run, block * self._block)

    # ---------------------------------------------------------------- the same of arrays

    def taken(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        positions = np.empty(len(indices), dtype=np.intp)
        for start in range(0, len(indices), _POSITIONS_AT_ONCE):
            chunk = slice(start, start + _POSITIONS_AT_ONCE)
            positions[chunk] = self._taken(indices[chunk].astype(np.uint64))
        return positions

    def _taken(self, indices: Uint64Array) -> IndexArrayOfInts:
        blocks, turns = np.divmod(indices, np.uint64(self._block))
        block_keys = hashed_array(self._block_key, blocks)
        tickets = permuted_array(self._block, block_keys, turns)
        starts = indices - turns
        ends = starts + np.uint64(self._block)
        runs = np.zeros(len(indices), dtype=np.intp)
        last = np.full(len(indices), len(self._lengths) - 1)
        for _ in range((len(self._lengths) - 1).bit_length()):
            middle = (runs + last) // 2
            is_below = tickets < self._bounds(middle + 1, ends) - self._bounds(middle + 1, starts)
            is_open = runs < last
            last = np.where(is_open & is_below, middle, last)
            runs = np.where(is_open & ~is_below, middle + 1, runs)
        bounds, next_bounds = self._bounds(runs, starts), self._bounds(runs + 1, starts)
        n_before = next_bounds - bounds
        first_tickets = self._bounds(runs, ends) - bounds
        n_tickets = self._bounds(runs + 1, ends) - next_bounds - first_tickets
        all_lengths, all_starts, all_keys, _ = self._arrays
        lengths = all_lengths[runs]
        nths = tickets - first_tickets
        again = np.flatnonzero(n_before // lengths != (n_before + n_tickets - np.uint64(1)) // lengths)
        if len(again):
            nths[again] = self._ranks(starts[again], block_keys[again], turns[again], first_tickets[again], n_tickets[again])
        passes, nths = np.divmod(n_before + nths, lengths)
        places = permuted_array(lengths, hashed_array(all_keys[runs], passes), nths)
        return np.asarray(all_starts[runs] + places.astype(np.intp))

    def _bounds(self, n_runs: npt.NDArray[np.intp], n_positions: Uint64Array) -> Uint64Array:
        """:meth:`_bound`, whose product has 128 bits: the half that is rounded away is in the lower 64."""
        shares = self._arrays[-1][n_runs]
        bounds = high_product_array(n_positions, shares) + ((n_positions * shares) >> np.uint64(63))
        return np.where(n_runs >= self._n_runs_for_all, n_positions, bounds)

    def _ranks(
        self,
        starts: Uint64Array,
        block_keys: Uint64Array,
        turns: Uint64Array,
        first_tickets: Uint64Array,
        n_tickets: Uint64Array,
    ) -> Uint64Array:
        """Which of the turns that its run has in its block each turn is.

        A run that starts again inside a block must come to its end there first: its tickets are taken in the order of their
        turns, not in their own.
        """
        _, firsts, groups = np.unique(starts + first_tickets, return_index=True, return_inverse=True)
        ranks = np.empty_like(turns)
        for group, first in enumerate(firsts.tolist()):
            own = self._turns_of(*(int(each[first]) for each in (block_keys, first_tickets, n_tickets)))
            ranks[groups == group] = np.searchsorted(own, turns[groups == group].astype(np.intp))
        return ranks
