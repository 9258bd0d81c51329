"""Which sample goes into which part: the arithmetic of splits and folds.

What is drawn here is drawn for ever: published splits depend on it. Orders are those of
``numpy.random.RandomState.shuffle`` (Fisher-Yates on MT19937), see
:mod:`data_stack.dataset.splits.frozen_random`; the remaining arithmetic is exact, on integers.
Nothing depends on machine, process, Python or numpy version, and golden tests hold it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.splits.class_numbers import (
    ClassNumbers,
    check_nothing_missing,
    class_numbers,
    group_positions,
)
from data_stack.dataset.splits.controlled_rounding import round_controlled
from data_stack.dataset.splits.frozen_random import random_state
from data_stack.dataset.splits.shares import Shares
from data_stack.dataset.splits.texts_of_times import check_texts_are_in_order
from data_stack.exception import ConfigError
from data_stack.values.times import comparable

_Integers = npt.NDArray[np.integer[Any]]

#: Up to this number of parts, comparing all samples with each part is faster than sorting them.
_MAX_COMPARED_PARTS = 16


def divide(
    n_samples: int, shares: Shares, seed: int | None, classes: ClassNumbers | None = None
) -> _Integers:
    """Return the part of each sample, drawn; without a seed, in the samples' order.

    Args:
        n_samples: the number of samples.
        shares: the sizes wanted; the size of each part differs by less than 1 from its share.
        seed: a :func:`~data_stack.dataset.randomness.derive_seed`.
        classes: what is mixed equally: the number of members of a class in a part, too, differs
            by less than 1 from the part's share.
    """
    n_parts = len(shares.weights)
    if classes is None:
        counts = [n_samples]
        order = group_positions(np.zeros(n_samples, np.uint8))
    else:
        counts = classes.counts.tolist()
        order = group_positions(classes.numbers)

    # Without a seed, the members of a class keep their order.
    if seed is not None:
        random = random_state(seed)
        for start, end in _intervals(counts):
            random.shuffle(order[start:end])

    # The members of each class go to the parts one after the other.
    part_of = np.empty(n_samples, dtype=np.min_scalar_type(n_parts))
    sizes = np.array(_sizes_by_class(counts, shares), dtype=np.intp).reshape(len(counts), n_parts)
    parts = np.tile(np.arange(n_parts, dtype=part_of.dtype), len(counts))
    part_of[order] = np.repeat(parts, sizes.ravel())
    return part_of


def _sizes_by_class(counts: Sequence[int], shares: Shares) -> list[list[int]]:
    """Return for each class the number of its members in each part."""
    if len(counts) <= 1:
        return [shares.sizes(count) for count in counts]
    are_equal = len(set(shares.weights)) == 1
    if are_equal:
        return _deal(counts, len(shares.weights))
    return round_controlled(counts, shares)


def _deal(counts: Sequence[int], n_parts: int) -> list[list[int]]:
    """Deal all samples to the parts in turn, as cards, class by class.

    So the sizes of two parts differ by 1 at most, of the whole and of each class.

    Returns:
        For each class the number of its members in each part.
    """
    sizes_by_class = []
    for start, end in _intervals(counts):
        dealt_before = [_n_dealt(start, part, n_parts) for part in range(n_parts)]
        dealt_after = [_n_dealt(end, part, n_parts) for part in range(n_parts)]
        sizes = [after - before for before, after in zip(dealt_before, dealt_after, strict=True)]
        sizes_by_class.append(sizes)
    return sizes_by_class


def _n_dealt(n_samples: int, part: int, n_parts: int) -> int:
    """Return how many of the first ``n_samples`` samples a part gets if they are dealt in turn."""
    return (n_samples + n_parts - 1 - part) // n_parts


def _intervals(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return start and end of intervals that follow each other, from 0 on."""
    bounds = itertools.accumulate(lengths, initial=0)
    return list(itertools.pairwise(bounds))


def divide_by_time(times: npt.NDArray[Any], shares: Shares, refusal: str) -> _Integers:
    """Return the part of each sample, the earliest ones in the first part, equal times in one.

    A cut that would separate equal times is moved to the beginning or the end of these times,
    whichever is nearer; if both are as near, to the beginning.

    Args:
        times: shape ``(n_samples,)``: numbers, datetimes (those with a time zone are compared by
            instant), or objects that compare; texts only where their order is that of the times,
            such as ``2023-01-31``.
        shares: the sizes wanted.
        refusal: how messages begin.

    Raises:
        ConfigError: a time is missing, or they do not compare, or texts have another order than the
            times that they mean.
    """
    times = _sortable_times(times, refusal)
    n_samples = len(times)
    ascending = np.sort(times)
    part_of = np.zeros(n_samples, dtype=np.min_scalar_type(len(shares.weights)))
    ends = list(itertools.accumulate(shares.sizes(n_samples)))
    for end in ends[:-1]:
        cut = _move_out_of_equal_times(ascending, end)
        if cut < n_samples:
            part_of += times >= ascending[cut]
    return part_of


def _sortable_times(times: npt.NDArray[Any], refusal: str) -> npt.NDArray[Any]:
    """Return times as an array of shape ``(n_samples,)`` that numpy sorts in the order of time.

    Raises:
        ConfigError: as of :func:`divide_by_time`.
    """
    n_samples = len(times)
    if times.size == n_samples:
        times = times.reshape(n_samples)
    if times.ndim != 1 or times.dtype.kind in "cV":
        raise ConfigError(
            f"{refusal}: its values, {times.dtype} of shape {times.shape[1:]}, have no order"
        )
    if times.dtype.kind in "OUST":
        check_texts_are_in_order(times.tolist(), refusal)
    if times.dtype == object:
        times = _ranks_of_objects(times, refusal)
    check_nothing_missing(times, refusal)
    return times


def _ranks_of_objects(times: npt.NDArray[Any], refusal: str) -> npt.NDArray[np.intp]:
    """Return for each time the number of distinct times before it."""
    objects = np.fromiter(comparable(times.tolist()), object, len(times))
    distinct = class_numbers(objects, refusal)
    values = distinct.values.tolist()
    try:
        in_order = sorted(range(len(values)), key=values.__getitem__)
    except TypeError as error:
        raise ConfigError(f"{refusal}: its values have no common order ({error})") from error
    return np.argsort(in_order)[distinct.numbers]


def _move_out_of_equal_times(ascending: npt.NDArray[Any], cut: int) -> int:
    """Return a cut that separates no equal times, as near as can be."""
    is_inside = 0 < cut < len(ascending)
    if not is_inside or ascending[cut - 1] != ascending[cut]:
        return cut
    first = int(np.searchsorted(ascending, ascending[cut], side="left"))
    end = int(np.searchsorted(ascending, ascending[cut], side="right"))
    is_first_nearer = cut - first <= end - cut
    return first if is_first_nearer else end


def positions_of_parts(part_of: _Integers, n_parts: int) -> list[range | _Integers]:
    """Return the positions of each part's samples, ascending; consecutive ones as a range."""
    if n_parts <= _MAX_COMPARED_PARTS:
        return [_as_range(np.flatnonzero(part_of == part)) for part in range(n_parts)]
    order = group_positions(part_of)
    ends = np.searchsorted(part_of[order], np.arange(n_parts), side="right").tolist()
    bounds = itertools.pairwise([0, *ends])
    return [_as_range(order[start:end]) for start, end in bounds]


def _as_range(positions: _Integers) -> range | _Integers:
    """Return ascending positions as a range, if they are consecutive."""
    if not len(positions):
        return positions
    first = int(positions[0])
    end = int(positions[-1]) + 1
    is_consecutive = end - first == len(positions)
    return range(first, end) if is_consecutive else positions
