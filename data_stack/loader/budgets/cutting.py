"""Cuts the samples of a window into batches below a budget: arithmetic of their costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.hashing import draw_below
from data_stack.dataset.permutation import KeyedPermutation
from data_stack.loader.budgets.budget import Budget

Ends = npt.NDArray[np.int64]
"""Where each batch ends, as a number of samples of the window, ascending, shape ``(n_batches,)``.

A batch begins where the one before it ends.
"""


def sort_by_cost(costs: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the places of costs, the largest first; equal ones keep their order."""
    # Integers of 16 bits are sorted by radix, ten times as fast as wider ones.
    deficits = costs.max(initial=0) - costs
    return np.argsort(deficits, kind="stable")


def cut_window(costs: npt.NDArray[Any], budget: Budget, *, is_sorted: bool) -> Ends:
    """Return the ends of the batches of neighbours, each as long as the budget allows.

    A sample that alone exceeds the budget is a batch of its own.

    Args:
        costs: the costs of the samples of the window, in order.
        budget: what a batch may cost.
        is_sorted: whether the costs descend.
    """
    max_samples = len(costs)
    if budget.max_samples is not None:
        max_samples = min(budget.max_samples, len(costs))
    if not budget.padded:
        return _cut_by_sum(costs, budget.max_cost, max_samples)
    if is_sorted:
        return _cut_by_first(costs, budget.max_cost, max_samples)
    return _cut_by_largest(costs, budget.max_cost, max_samples)


def _cut_by_sum(costs: npt.NDArray[Any], max_cost: int, max_samples: int) -> Ends:
    """Return the ends of batches whose samples cost at most ``max_cost`` together."""
    # Find where a batch would end for each sample that it may begin with.
    sums = np.cumsum(costs, dtype=np.int64)
    sums_before = sums - costs.astype(np.int64)  # uint64 would make floats of both
    starts = np.arange(len(costs))
    n_samples = np.searchsorted(sums, sums_before + max_cost, side="right") - starts
    end_of = np.minimum(starts + np.clip(n_samples, 1, max_samples), len(costs)).tolist()

    # The first batch begins with sample 0, each other one where the one before it ends.
    ends = []
    end = 0
    while end < len(costs):
        end = end_of[end]
        ends.append(end)
    return np.array(ends, dtype=np.int64)


def _cut_by_first(costs: npt.NDArray[Any], max_cost: int, max_samples: int) -> Ends:
    """Return the ends of padded batches if costs descend: the first sample is the largest one."""
    ends = []
    end = 0
    while end < len(costs):
        largest = int(costs[end])
        n_samples = max_samples
        if largest > 0:
            n_samples = min(max_cost // largest, max_samples)
        end = min(end + max(n_samples, 1), len(costs))
        ends.append(end)
    return np.array(ends, dtype=np.int64)


def _cut_by_largest(costs: npt.NDArray[Any], max_cost: int, max_samples: int) -> Ends:
    """Return the ends of padded batches, whatever the order of costs."""
    ends = []
    start = 0
    largest = 0
    for place, cost in enumerate(costs.tolist()):
        n_samples = place + 1 - start
        largest_with_it = max(largest, cost)
        is_full = largest_with_it * n_samples > max_cost or n_samples > max_samples
        if is_full and n_samples > 1:
            ends.append(place)
            start = place
            largest_with_it = cost
        largest = largest_with_it
    if len(costs):
        ends.append(len(costs))
    return np.array(ends, dtype=np.int64)


def arrange_batches(
    n_batches: int, n_batches_before: int, group: int, key: int
) -> npt.NDArray[np.intp]:
    """Return the order of the batches of a sorted window.

    Batches are shuffled in groups of neighbours. Groups begin where ``group`` divides the number of
    a batch in the epoch, so that the steps of as many ranks have a group each. The batches before
    the first such place, and after the last one, are neighbours as well.

    Args:
        n_batches: the number of batches of the window.
        n_batches_before: the number of batches of the epoch before this window.
        group: the number of batches in a group.
        key: 64 random bits.
    """
    n_first = min(-n_batches_before % group, n_batches)
    n_groups, n_last = divmod(n_batches - n_first, group)

    # Cut out neighbours for both ends of the window, at a random place between groups.
    start = draw_below(n_groups + 1, key) * group
    at_ends = np.arange(start, start + n_first + n_last)
    in_groups = np.delete(np.arange(n_batches), at_ends)

    # Shuffle the groups.
    order_of_groups = KeyedPermutation(n_groups, key).take(np.arange(n_groups))
    shuffled = in_groups.reshape(n_groups, group)[order_of_groups].ravel()
    return np.concatenate((at_ends[:n_first], shuffled, at_ends[n_first:]))
