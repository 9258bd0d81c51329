"""The batches of one epoch by budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import derive_seed
from data_stack.loader.budgets.budget import Budget
from data_stack.loader.budgets.costs import Costs
from data_stack.loader.budgets.cutting import arrange_batches, cut_window, sort_by_cost
from data_stack.loader.orders.in_order import InOrder
from data_stack.loader.orders.order import Order, indices_of


@dataclass(frozen=True, slots=True)
class _StoredWindow:
    """The batches of a window.

    Attributes:
        number: the number of the window.
        batches: the samples of each batch, in the order of the batches.
    """

    number: int
    batches: list[IndexArrayOfInts]


class EpochBatches:
    """Which samples each batch of an epoch has: a pure function of its arguments.

    When it is made, all windows are cut, to count their batches. What is kept are 8 bytes a window,
    and the last window that was asked for.

    Args:
        budget: what a batch may cost.
        costs: the cost of each sample.
        order: the order of the samples.
        seed: the seed of the order.
        epoch: the number of the epoch.

    Raises:
        ConfigError: the order does not return an integer for each position.
    """

    #: What a batch may cost.
    _budget: Budget
    #: The cost of each sample.
    _costs: Costs
    #: The order of the samples.
    _order: Order
    #: The seed of the order.
    _seed: int
    #: The number of the epoch.
    _epoch: int
    #: Whether windows are sorted.
    _sorts: bool
    #: The number of batches until the end of each window, shape ``(n_windows,)``.
    _ends: npt.NDArray[np.int64]
    #: The window that was asked for last. It is replaced as a whole, so threads need no lock.
    _stored_window: _StoredWindow | None

    def __init__(
        self, budget: Budget, costs: Costs, order: Order, *, seed: int, epoch: int
    ) -> None:
        self._budget = budget
        self._costs = costs
        self._order = order
        self._seed = seed
        self._epoch = epoch
        self._sorts = budget.padded and not isinstance(order, InOrder)
        self._stored_window = None

        n_windows = -(-len(costs) // budget.window)
        n_batches = [self._count_batches(window) for window in range(n_windows)]
        self._ends = np.cumsum(n_batches, dtype=np.int64)

    @property
    def n_batches(self) -> int:
        """The number of batches of the epoch."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def samples_of(self, batch: int) -> IndexArrayOfInts:
        """Return the samples of a batch, by its number, shape ``(n,)``."""
        window = self._window_of(batch)
        stored_window = self._stored_window
        if stored_window is None or stored_window.number != window:
            stored_window = _StoredWindow(window, self._cut_into_batches(window))
            self._stored_window = stored_window
        return stored_window.batches[batch - self._n_batches_before(window)]

    def upcoming(self, batch: int) -> tuple[IndexArrayOfInts | None, int]:
        """Return samples whose blocks a source may prefetch at a batch.

        A sorted window is read in any order, so its blocks are needed until its end. What the order
        names for its last position is needed next.

        Returns:
            One sample of each block that is needed next, shape ``(n,)``, or None without blocks;
            and the number of the batch from which on other blocks are needed.
        """
        window = self._window_of(batch)
        last_position = self._positions_of(window)[-1]
        samples, _ = self._order.upcoming(last_position, len(self._costs), self._seed, self._epoch)
        return samples, int(self._ends[window])

    # ------------------------------------------------------------------ windows

    def _window_of(self, batch: int) -> int:
        return int(self._ends.searchsorted(batch, side="right"))

    def _n_batches_before(self, window: int) -> int:
        return int(self._ends[window - 1]) if window > 0 else 0

    def _positions_of(self, window: int) -> range:
        """Return the positions of a window in the order of the epoch."""
        start = window * self._budget.window
        return range(start, min(start + self._budget.window, len(self._costs)))

    def _samples_of_window(self, window: int) -> IndexArrayOfInts:
        """Return the samples of a window, in the order in which they are cut into batches."""
        interval = self._positions_of(window)
        positions = np.arange(interval.start, interval.stop, dtype=np.int64)
        samples = indices_of(self._order, positions, len(self._costs), self._seed, self._epoch)
        if self._budget.too_long == "drop":
            samples = samples[self._costs[samples] <= self._budget.max_cost]
        if self._sorts:
            samples = samples[sort_by_cost(self._costs[samples])]
        return samples

    def _count_batches(self, window: int) -> int:
        samples = self._samples_of_window(window)
        return len(cut_window(self._costs[samples], self._budget, is_sorted=self._sorts))

    def _cut_into_batches(self, window: int) -> list[IndexArrayOfInts]:
        """Return the samples of each batch of a window, in the order of the batches."""
        samples = self._samples_of_window(window)
        ends = cut_window(self._costs[samples], self._budget, is_sorted=self._sorts)
        batches = []
        start = 0
        for end in ends.tolist():
            batches.append(samples[start:end])
            start = end
        if not self._sorts:
            return batches
        key = derive_seed("budget", self._seed, self._epoch, window)
        n_batches_before = self._n_batches_before(window)
        places = arrange_batches(len(batches), n_batches_before, self._budget.group, key)
        return [batches[place] for place in places.tolist()]
