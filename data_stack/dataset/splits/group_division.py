"""Divides samples such that groups stay whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.splits.class_numbers import ClassNumbers
from data_stack.dataset.splits.frozen_random import random_state
from data_stack.dataset.splits.shares import Shares

_Integers = npt.NDArray[np.integer[Any]]


def divide_by_group(
    groups: ClassNumbers, shares: Shares, seed: int | None, classes: ClassNumbers | None = None
) -> _Integers:
    """Return the part of each sample, such that groups stay whole.

    A greedy search meets the shares as nearly as it can. Large groups are placed first, and small
    ones fill up what is left. Groups whose sizes have the same number of binary digits are placed
    in a drawn order; without a seed, all groups are placed by size, equal ones in the order in
    which they appear. Each group goes into the part that is the furthest behind its share of the
    samples placed so far. So a part exceeds its share by less than the largest group. No part with
    a share is left empty: there must be at least as many groups as such parts.

    With classes, how far a part is behind is the sum over the classes of the group, in fractions of
    each class. Between equal parts, the number of samples decides. (The idea is that of
    scikit-learn's StratifiedGroupKFold, for shares of any size.)

    Args:
        groups: what stays together.
        shares: the sizes wanted.
        seed: a :func:`~data_stack.dataset.randomness.derive_seed`.
        classes: what is mixed as equally as the groups allow.
    """
    placement = _Placement(groups, shares, classes)
    order = _order_of_placing(groups.counts, seed).tolist()
    part_of_group = np.empty(len(groups), dtype=np.min_scalar_type(len(shares.weights)))
    for n_placed, group in enumerate(order):
        part_of_group[group] = placement.place(group, n_left=len(order) - n_placed)
    return part_of_group[groups.numbers]


def _order_of_placing(sizes: npt.NDArray[np.intp], seed: int | None) -> npt.NDArray[np.intp]:
    """Return the groups in the order in which they are placed, large ones first."""
    drawn = np.arange(len(sizes))
    if seed is None:
        rank = sizes
    else:
        random_state(seed).shuffle(drawn)
        _, n_binary_digits = np.frexp(sizes)
        rank = n_binary_digits
    return drawn[np.argsort(-rank[drawn], kind="stable")]


#: The members of a class in a group: the number of the class, and how many there are.
_Members = tuple[int, int]


class _Placement:
    """Places groups into parts, one after the other.

    All sums are whole numbers, so that every machine decides alike.
    """

    _shares: Shares
    _group_sizes: list[int]
    #: The classes in each group; none without classes.
    _members_of: list[list[_Members]]
    #: The weight of a class in the sum over classes: the inverse of the square of its size.
    _importance: list[int]
    #: The parts with a share above 0.
    _wanted_parts: list[int]
    #: How many of the wanted parts have no sample yet.
    _n_empty: int
    #: How many samples have been placed, of all and of each class.
    _n_placed: int
    _n_placed_of_class: list[int]
    #: How many samples each part has, of all and of each class.
    _sizes: list[int]
    _sizes_of_class: list[list[int]]

    def __init__(self, groups: ClassNumbers, shares: Shares, classes: ClassNumbers | None) -> None:
        n_parts = len(shares.weights)
        n_samples = len(groups.numbers)
        class_counts = [] if classes is None else classes.counts.tolist()
        self._shares = shares
        self._group_sizes = groups.counts.tolist()
        self._members_of = _members_of_groups(groups, classes)
        self._importance = [n_samples**2 // count**2 for count in class_counts]
        self._wanted_parts = [part for part, weight in enumerate(shares.weights) if weight]
        self._n_empty = len(self._wanted_parts)
        self._n_placed = 0
        self._n_placed_of_class = [0] * len(class_counts)
        self._sizes = [0] * n_parts
        self._sizes_of_class = [[0] * len(class_counts) for _ in range(n_parts)]

    def place(self, group: int, n_left: int) -> int:
        """Place a group into a part.

        Args:
            group: the group.
            n_left: how many groups are not placed yet, with this one.

        Returns:
            The part.
        """
        size = self._group_sizes[group]
        members_of_group = self._members_of[group]
        self._n_placed += size
        for class_number, count in members_of_group:
            self._n_placed_of_class[class_number] += count

        candidates = self._wanted_parts
        if n_left <= self._n_empty:
            # Each group that is left is needed for an empty part.
            candidates = [part for part in self._wanted_parts if not self._sizes[part]]
        lags = self._lags(candidates, members_of_group)
        part = candidates[lags.index(max(lags))]

        if not self._sizes[part]:
            self._n_empty -= 1
        self._sizes[part] += size
        for class_number, count in members_of_group:
            self._sizes_of_class[part][class_number] += count
        return part

    def _lags(self, parts: list[int], members_of_group: list[_Members]) -> list[tuple[int, int]]:
        """Return how far each part is behind its share, in the classes of a group and in total.

        This is the inner loop of a division: it is one function, with local variables.
        """
        weights = self._shares.weights
        total = self._shares.total
        n_placed_of_class = self._n_placed_of_class
        lags = []
        for part in parts:
            weight = weights[part]
            sizes_of_class = self._sizes_of_class[part]
            class_lag = 0
            for class_number, count in members_of_group:
                lag = weight * n_placed_of_class[class_number]
                lag -= total * sizes_of_class[class_number]
                class_lag += self._importance[class_number] * count * lag
            lags.append((class_lag, weight * self._n_placed - total * self._sizes[part]))
        return lags


def _members_of_groups(groups: ClassNumbers, classes: ClassNumbers | None) -> list[list[_Members]]:
    """Return for each group the classes in it; none where there are no classes."""
    members_of: list[list[_Members]] = [[] for _ in range(len(groups))]
    if classes is None:
        return members_of
    n_classes = len(classes)
    pairs = groups.numbers.astype(np.int64) * n_classes + classes.numbers
    distinct_pairs, counts = np.unique(pairs, return_counts=True)
    group_numbers, numbers_of_classes = np.divmod(distinct_pairs, n_classes)
    for group, class_number, count in zip(
        group_numbers.tolist(), numbers_of_classes.tolist(), counts.tolist(), strict=True
    ):
        members_of[group].append((class_number, count))
    return members_of
