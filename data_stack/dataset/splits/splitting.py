"""Which sample comes into which part: the arithmetic of splits and folds.

What is drawn here is drawn for ever: published splits depend on it. Orders are those of ``numpy.random.RandomState.shuffle``
(Fisher-Yates on MT19937), whose stream numpy has frozen (NEP 19), seeded with a ``derive_seed``; the rest is exact integer
arithmetic. Nothing depends on machine, process, Python or numpy version, and golden tests hold it.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.dataset.splits.class_numbers import (
    ClassNumbers,
    check_nothing_missing,
    class_numbers,
    group_positions,
)
from data_stack.dataset.splits.texts_of_times import check_texts_are_in_order
from data_stack.exception import ConfigError
from data_stack.util.program_lines import warn_program
from data_stack.values.stacked_values import comparable

_Integers = npt.NDArray[np.integer[Any]]


def check_ratios(ratios: Iterable[Any], names: Sequence[str] | None = None) -> list[float]:
    """Ratios as they were given: at least one, none negative, of sum 1 (to 1e-9).

    Raises:
        ConfigError: they are not such; the message names the first that is wrong by its position or name.
    """
    if isinstance(ratios, (str, bytes)) or not isinstance(ratios, Iterable):
        raise ConfigError(
            f"ratios are the sizes of all parts, such as [0.8, 0.2], got {ratios!r:.80}"
        )
    given: list[Any] = list(ratios)
    for position, ratio in enumerate(given):
        if not isinstance(ratio, numbers.Real) or not 0 <= float(ratio) < math.inf:  # NaN, too
            name = position if names is None else repr(names[position])
            raise ConfigError(
                f"ratios must not be negative and must sum to 1; ratio {name} of {given} is {ratio!r}"
            )
    if not given or not abs(math.fsum(given) - 1) <= 1e-9:
        raise ConfigError(
            f"ratios must not be negative and must sum to 1; {given} sum to {math.fsum(given)}"
        )
    return given


def check_sizes(sizes: Any, names: Sequence[str] | None = None) -> list[int] | list[float]:
    """Sizes of parts: counts, which are integers of sum 2 or more, or ratios, see :func:`check_ratios`."""
    given: list[Any] = (
        list(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, (str, bytes)) else []
    )
    if (
        all(
            isinstance(each, (int, np.integer)) and type(each) is not bool and each >= 0
            for each in given
        )
        and sum(given) > 1
    ):
        return list(map(int, given))
    return list(map(float, check_ratios(sizes, names)))


def warn_of_empty_parts(
    sizes: Mapping[Any, int], ratios: Mapping[Any, float], n_samples: int, advice: str
) -> None:
    """Warn of parts that shall have samples, and got none.

    Args:
        sizes: the number of samples of each part.
        ratios: what each part shall have; a part of 0 is empty as it was asked for.
        n_samples: of all parts; of no samples all parts are empty.
        advice: what to do.
    """
    empty = [part for part, size in sizes.items() if size == 0 and ratios[part] > 0]
    if empty and n_samples:
        first = empty[0]
        more = f" (so are {len(empty) - 1} others)" if len(empty) > 1 else ""
        warn_program(
            f"part {first!r} of a split is empty{more}: {ratios[first]} of {n_samples:,} samples gives none; {advice}"
        )


class Shares(NamedTuple):
    """How much each part gets, as whole numbers of ``total``."""

    weights: tuple[int, ...]
    total: int

    @classmethod
    def of_sizes(cls, sizes: Sequence[float], n_samples: int) -> Shares:
        """Of checked sizes. Ratios are what they say in decimals: 0.1 is a tenth, not the nearest binary fraction.

        Raises:
            ConfigError: they are counts, but not of ``n_samples``.
        """
        counts = [size for size in sizes if isinstance(size, int)]
        if len(counts) < len(sizes):
            fractions = [Fraction(repr(float(ratio))) for ratio in sizes]
            denominator = math.lcm(*(fraction.denominator for fraction in fractions))
            weights = [int(fraction * denominator) for fraction in fractions]
            divisor = math.gcd(*weights)
            return cls(tuple(weight // divisor for weight in weights), sum(weights) // divisor)
        if (left := n_samples - sum(counts)) != 0:
            what = f"add a part for the other {left:,}" if left > 0 else f"{-left:,} too many"
            together = f"{' + '.join(f'{count:,}' for count in counts)} = {sum(counts):,}"
            raise ConfigError(
                f"parts of {together} samples, but there are {n_samples:,}: {what}, or give ratios that sum to 1"
            )
        return cls(tuple(counts), n_samples)

    @property
    def n_wanted(self) -> int:
        """How many parts get anything."""
        return sum(weight > 0 for weight in self.weights)

    def sizes(self, n_samples: int) -> list[int]:
        """Whole numbers of sum ``n_samples``: each share cut off, and what remains given to the largest remainders.

        Each is less than 1 from its share. Of equal remainders the first gets one.
        """
        sizes = [n_samples * weight // self.total for weight in self.weights]
        remainders = [n_samples * weight % self.total for weight in self.weights]
        by_remainder = sorted(range(len(sizes)), key=lambda part: -remainders[part])
        for part in by_remainder[: n_samples - sum(sizes)]:
            sizes[part] += 1
        return sizes


def divide(
    n_samples: int, shares: Shares, seed: int | None, classes: ClassNumbers | None = None
) -> _Integers:
    """The part of each sample, drawn; without a seed, in the samples' order.

    Args:
        n_samples: how many.
        shares: the sizes wanted; each part's is less than 1 from its share.
        seed: a :func:`~data_stack.dataset.randomness.derive_seed`.
        classes: what shall be mixed equally: each part's number of members is less than 1 from its share of the class, too.
    """
    counts = [n_samples] if classes is None else classes.counts.tolist()
    n_parts = len(shares.weights)
    if len(counts) <= 1:
        sizes = [shares.sizes(count) for count in counts]
    elif len(set(shares.weights)) == 1:  # deal all samples to the parts in turn, class by class
        dealt = [
            [(end + n_parts - 1 - part) // n_parts for part in range(n_parts)]
            for end in itertools.accumulate([0, *counts])
        ]
        sizes = [
            [late - early for early, late in zip(*rows, strict=True)]
            for rows in itertools.pairwise(dealt)
        ]
    else:
        sizes = _round_controlled(counts, shares)
    table = np.array(sizes, dtype=np.intp).reshape(len(counts), len(shares.weights))
    order = group_positions(np.zeros(n_samples, np.uint8) if classes is None else classes.numbers)
    if seed is not None:
        random = _random_state(seed)
        for start, end in itertools.pairwise([0, *itertools.accumulate(counts)]):
            random.shuffle(order[start:end])
    part_of = np.empty(n_samples, dtype=np.min_scalar_type(len(shares.weights)))
    parts = np.tile(np.arange(len(shares.weights), dtype=part_of.dtype), len(counts))
    part_of[order] = np.repeat(parts, table.ravel())
    return part_of


def divide_by_group(
    groups: ClassNumbers, shares: Shares, seed: int | None, classes: ClassNumbers | None = None
) -> _Integers:
    """The part of each sample, such that groups stay whole and shares are met as nearly as a greedy search finds.

    Large groups are placed first and small ones fill up what they left: groups whose sizes have the same number of binary digits
    are placed in a drawn order (without a seed: strictly by size, then by appearance). Each comes into the part that is the
    furthest behind its share of what has been placed so far. A part exceeds its share by less than the largest group, and no
    part with a share is left empty; there must be as many groups.

    With classes a part is behind in each class by itself, in fractions of that class, and only the group's own classes count;
    the total decides between equals. (The idea of scikit-learn's StratifiedGroupKFold, for shares of any size.)

    Args:
        groups: what stays together.
        shares: the sizes wanted.
        seed: a :func:`~data_stack.dataset.randomness.derive_seed`.
        classes: what shall be mixed as equally as the groups allow.
    """
    sizes = groups.counts
    drawn = np.arange(len(sizes))
    if seed is not None:
        _random_state(seed).shuffle(drawn)
    rank = sizes if seed is None else np.frexp(sizes)[1]
    order = drawn[np.argsort(-rank[drawn], kind="stable")]
    members_of = _members(groups, classes)
    class_counts = [] if classes is None else classes.counts.tolist()
    # whole numbers, so that every machine decides alike
    importance = [len(groups.numbers) ** 2 // count**2 for count in class_counts]
    weights, total = shares.weights, shares.total
    placed, placed_of_class = 0, [0] * len(class_counts)
    has, has_of_class = [0] * len(weights), [[0] * len(class_counts) for _ in weights]
    wanted = [part for part, weight in enumerate(weights) if weight]
    n_empty = len(wanted)
    part_of_group = np.empty(len(sizes), dtype=np.min_scalar_type(len(weights)))
    for n_left, group in zip(range(len(order), 0, -1), order.tolist(), strict=True):
        members, size = members_of[group], int(sizes[group])
        placed += size
        for number, count in members:
            placed_of_class[number] += count
        candidates = [part for part in wanted if not has[part]] if n_left <= n_empty else wanted
        lags = []
        for part in candidates:
            of_class = 0
            for number, count in members:
                lag = weights[part] * placed_of_class[number] - total * has_of_class[part][number]
                of_class += importance[number] * count * lag
            lags.append((of_class, weights[part] * placed - total * has[part]))
        part = candidates[lags.index(max(lags))]
        n_empty -= not has[part]
        has[part] += size
        for number, count in members:
            has_of_class[part][number] += count
        part_of_group[group] = part
    return part_of_group[groups.numbers]


def divide_by_time(times: npt.NDArray[Any], shares: Shares, refusal: str) -> _Integers:
    """The part of each sample, the earliest ones in the first part, equal times in one.

    A cut that would fall among equal times is moved to their nearer end, to the earlier one if both are as near.

    Args:
        times: shape ``(n_samples,)``: numbers, datetimes (those with a time zone are compared by instant), or objects that
            compare; texts only where their order is that of the times, such as ``2023-01-31``.
        shares: the sizes wanted.
        refusal: how messages begin.

    Raises:
        ConfigError: a time is missing, or they do not compare, or texts have another order than the times that they mean.
    """
    n_samples = len(times)
    times = times.reshape(n_samples) if times.size == n_samples else times
    if times.ndim != 1 or times.dtype.kind in "cV":
        raise ConfigError(
            f"{refusal}: its values, {times.dtype} of shape {times.shape[1:]}, have no order"
        )
    if times.dtype.kind in "OUST":
        check_texts_are_in_order(times.tolist(), refusal)
    if times.dtype == object:
        classes = class_numbers(np.fromiter(comparable(times.tolist()), object, n_samples), refusal)
        values = classes.values.tolist()
        try:
            in_order = sorted(range(len(values)), key=values.__getitem__)
        except TypeError as error:
            raise ConfigError(f"{refusal}: its values have no common order ({error})") from error
        times = np.argsort(in_order)[classes.numbers]
    check_nothing_missing(times, refusal)
    part_of = np.zeros(n_samples, dtype=np.min_scalar_type(len(shares.weights)))
    ascending = np.sort(times)
    for cut in list(itertools.accumulate(shares.sizes(n_samples)))[:-1]:
        if 0 < cut < n_samples and ascending[cut - 1] == ascending[cut]:
            first, end = (
                int(np.searchsorted(ascending, ascending[cut], side=side))
                for side in ("left", "right")
            )
            cut = first if cut - first <= end - cut else end
        if cut < n_samples:
            part_of += times >= ascending[cut]
    return part_of


def positions_of_parts(part_of: _Integers, n_parts: int) -> list[range | _Integers]:
    """The positions of each part's samples, ascending; a range where they follow each other."""
    if n_parts <= 16:
        return [_run(np.flatnonzero(part_of == part)) for part in range(n_parts)]
    order = group_positions(part_of)
    ends = np.searchsorted(part_of[order], np.arange(n_parts), side="right").tolist()
    return [_run(order[start:end]) for start, end in itertools.pairwise([0, *ends])]


def _run(positions: _Integers) -> range | _Integers:
    first, last = (int(positions[0]), int(positions[-1])) if len(positions) else (0, -2)
    return range(first, last + 1) if last - first == len(positions) - 1 else positions


def _random_state(seed: int) -> np.random.RandomState:
    return np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32])


def _members(groups: ClassNumbers, classes: ClassNumbers | None) -> list[list[tuple[int, int]]]:
    """For each group the classes in it, each with its number of members; none where there are no classes."""
    if classes is None:
        return [[]] * len(groups)
    pairs, counts = np.unique(
        groups.numbers.astype(np.int64) * len(classes) + classes.numbers, return_counts=True
    )
    members: list[list[tuple[int, int]]] = [[] for _ in range(len(groups))]
    for group, number, count in zip(
        *(each.tolist() for each in np.divmod(pairs, len(classes))), counts.tolist(), strict=True
    ):
        members[group].append((number, count))
    return members


def _round_controlled(counts: Sequence[int], shares: Shares) -> list[list[int]]:
    """Every class's share of every part, rounded up or down such that classes add up, and parts to a share rounded up or down.

    Such a rounding always exists (Cox, A constructive procedure for unbiased controlled rounding, JASA 82, 1987). What is not
    whole yet is shifted around closed ways through the table, from part to part within a class and from class to class within a
    part, which changes no sum, until something on the way is whole. There is such a way wherever all sums are whole; so are the
    classes', and a last row, thrown away, makes the parts'.
    """
    n_parts, total = len(shares.weights), shares.total
    table = [[count * weight // total for weight in shares.weights] for count in counts]
    open_rows: list[_Row] = []
    sums = [0] * n_parts
    for count, sizes in zip(counts, table, strict=True):
        row = _Row(
            {
                part: count * weight % total
                for part, weight in enumerate(shares.weights)
                if count * weight % total
            },
            sizes,
        )
        for part, fraction in row.fractions.items():
            sums[part] += fraction
        _close(row, open_rows, total)
    complement = _Row(
        {part: -fraction % total for part, fraction in enumerate(sums) if fraction % total},
        [0] * n_parts,
    )
    _close(complement, open_rows, total)
    return table


@dataclass(frozen=True, eq=False)
class _Row:
    """One class: for each part what is missing to a whole member (of ``total``), and the members so far."""

    fractions: dict[int, int]
    sizes: list[int]


def _close(row: _Row, open_rows: list[_Row], total: int) -> None:
    """Add a row, and shift until no closed way is left; ``open_rows`` had none. So there are never more of them than parts."""
    while (way := _find_cycle(row, open_rows)) is not None:
        plus, minus = way[::2], way[1::2]
        up = min(
            *(total - each.fractions[part] for each, part in plus),
            *(each.fractions[part] for each, part in minus),
        )
        down = min(
            *(each.fractions[part] for each, part in plus),
            *(total - each.fractions[part] for each, part in minus),
        )
        if down < up:
            plus, minus, up = minus, plus, down
        for each, part, shift in [
            *((*cell, up) for cell in plus),
            *((*cell, -up) for cell in minus),
        ]:
            fraction = each.fractions[part] + shift
            if 0 < fraction < total:
                each.fractions[part] = fraction
            else:
                each.sizes[part] += fraction // total
                del each.fractions[part]
        open_rows[:] = [each for each in open_rows if each.fractions]
    if row.fractions:
        open_rows.append(row)


def _find_cycle(row: _Row, others: Sequence[_Row]) -> list[tuple[_Row, int]] | None:
    """Cells from ``row`` back to it, alternately along a row and along a part; None if there is no such way."""
    for start in row.fractions:
        came: dict[int, tuple[_Row, int] | None] = {start: None}  # from which part, by which row
        queue = [start]
        for part in queue:
            for other in others:
                if part in other.fractions:
                    for reached in other.fractions:
                        if reached not in came:
                            came[reached] = (other, part)
                            queue.append(reached)
        for end in row.fractions:
            if end != start and end in came:
                way, step = [(row, end)], came[end]
                while step is not None:
                    other, before = step
                    way += [(other, end), (other, before)]
                    end, step = before, came[before]
                return [*way, (row, start)]
    return None
