"""The batches of a loader's epochs by budget."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from data_stack.dataset.recipes.array_values import array_digest
from data_stack.exception import ConfigError
from data_stack.loader.budgets.budget import Budget
from data_stack.loader.budgets.costs import Costs, is_column
from data_stack.loader.budgets.epoch_batches import EpochBatches
from data_stack.loader.budgets.stored_costs import costs_of
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.orders.lanes import Lanes
from data_stack.loader.orders.order import Order

#: At the end of an epoch, batches of two epochs are made at the same time.
_MAX_KEPT_EPOCHS = 2


class BudgetBatches:
    """The batches of each epoch, and how many there are.

    Args:
        budget: what a batch may cost.
        order: the order of the samples.
        stacks: the samples.

    Raises:
        ConfigError: a sample has no cost, or is too long; the costs are an array, and each epoch
            has other samples; or the order is made for batches of one size.
    """

    #: What a batch may cost.
    budget: Budget
    #: The order of the samples.
    _order: Order
    #: The samples.
    _stacks: EpochStacks
    #: The costs of the samples in epoch 0; in all epochs, if they do not differ.
    _costs: Costs
    #: The batches of the epochs that were asked for last, by seed and epoch, the most recent one at
    #: the end.
    _epochs: dict[tuple[int, int], EpochBatches]
    #: The number of batches of each epoch that was ever asked for, by seed and epoch.
    _n_batches: dict[tuple[int, int], int]

    def __init__(self, budget: Budget, order: Order, stacks: EpochStacks) -> None:
        if isinstance(order, Lanes):
            raise ConfigError(
                "Lanes deals out batches of one size, and a budget makes batches of any size: pass "
                "the order inside of Lanes, such as shuffle=BlockShuffled(), or batch_size="
            )
        if stacks.differ and not (is_column(budget.cost) or callable(budget.cost)):
            raise ConfigError(
                "cost= has the costs of the samples by their positions, but the stack has random "
                "layers, by which each epoch may have other samples there: pass the name of a "
                "column or a function, shuffle in the loader only, or pass redraw=False"
            )
        self.budget = budget
        self._order = order
        self._stacks = stacks
        self._costs = _check_costs(costs_of(stacks.iterator, budget), budget)
        self._epochs = {}
        self._n_batches = {}
        if not stacks.differ:
            # The costs are known now. A function among the arguments may not pickle.
            self.budget = replace(budget, cost=self._costs, storage=None)

    def at(self, epoch: int, seed: int) -> EpochBatches:
        """Return the batches of an epoch.

        Raises:
            ConfigError: the samples of this epoch have no cost, or are too long.
        """
        batches = self._epochs.pop((seed, epoch), None)
        if batches is None:
            batches = EpochBatches(
                self.budget, self._costs_at(epoch), self._order, seed=seed, epoch=epoch
            )
            self._n_batches[seed, epoch] = batches.n_batches
        # Put it at the end, so that the first one is the one to drop.
        self._epochs[seed, epoch] = batches
        if len(self._epochs) > _MAX_KEPT_EPOCHS:
            del self._epochs[next(iter(self._epochs))]
        return batches

    def n_batches(self, epoch: int, seed: int) -> int:
        """Return the number of batches of an epoch.

        Raises:
            ConfigError: as :meth:`at`.
        """
        if (seed, epoch) not in self._n_batches:
            self.at(epoch, seed)
        return self._n_batches[seed, epoch]

    def known_numbers(self, seed: int) -> set[int]:
        """Return the numbers of batches of the epochs of a seed that were asked for until now."""
        return {n for (seed_of_epoch, _), n in self._n_batches.items() if seed_of_epoch == seed}

    def content(self) -> dict[str, Any]:
        """Return plain JSON data that identifies the batches in the state of a loader."""
        return {
            "order": "budget",
            "of": self._order.content(),
            **self.budget.content(),
            "costs": array_digest(self._costs.astype(np.int64)),
        }

    def _costs_at(self, epoch: int) -> Costs:
        """Return the costs of the samples of an epoch."""
        stack = self._stacks.at(epoch, None)
        if stack is self._stacks.iterator:
            return self._costs
        return _check_costs(costs_of(stack, self.budget), self.budget)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epochs": {}}


def _check_costs(costs: Costs, budget: Budget) -> Costs:
    """Return the costs, after a check for samples that are too long.

    Raises:
        ConfigError: there is one, and ``too_long`` is "refuse".

    Warns:
        UserWarning: samples are left out.
    """
    if budget.too_long == "alone":
        return costs
    too_long = np.flatnonzero(costs > budget.max_cost)
    if len(too_long) == 0:
        return costs
    first = int(too_long[0])
    problem = (
        f"{len(too_long):,} of {len(costs):,} samples cost more than the budget of "
        f"{budget.max_cost:,}; the first one is sample {first}, which costs {int(costs[first]):,}"
    )
    if budget.too_long == "refuse":
        raise ConfigError(
            f"{problem}. Pass a larger budget, or Budget(max_cost, cost, too_long=…) with 'alone' "
            "for a batch of its own for each, or 'drop' to leave them out"
        )
    warnings.warn(f"{problem}. They are left out (too_long='drop')", stacklevel=5)
    return costs
