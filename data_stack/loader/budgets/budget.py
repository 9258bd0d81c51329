"""What a batch may cost at most, and what its samples cost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, get_args

import numpy.typing as npt

from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.connector import StorageConnector

TooLong = Literal["refuse", "alone", "drop"]
"""What becomes of samples that cost more than a batch may cost."""

Cost = ColumnKey | Callable[[Any], int] | npt.ArrayLike
"""What a sample costs: a column, a function of a sample, or the costs of all samples."""

#: Costs and budgets fit into int64, also when they are added or multiplied by a number of samples.
MAX_BUDGET = 2**40

#: The largest number of samples in a window, and so of batches in a group.
_MAX_WINDOW = 2**22


@dataclass(frozen=True, eq=False)
class Budget:
    """Batches as large as a budget allows, for samples of different lengths.

    ::

        Loader(texts, budget=8192, cost="n_tokens", shuffle=True, collate=Padded())
        Loader(texts, budget=Budget(8192, "n_tokens", max_samples=64), shuffle=True)

    A batch has as many samples as ``max_cost`` allows: many short ones, or a few long ones. With
    ``padded`` a batch costs the cost of its largest sample times its number of samples: what it
    takes as one padded array. Otherwise it costs the sum of its samples' costs: what it takes if
    they are laid end to end.

    **Order.** The order of ``shuffle=`` is cut into windows of ``window`` samples, and no batch
    crosses a window. If ``padded``, each window is sorted by cost, so that samples of a batch
    differ little (equal ones stay in the order of ``shuffle=``), is cut into the fewest batches
    that this order allows, and the batches are shuffled. With ``shuffle=False``, and without
    ``padded``, nothing is sorted: batches are neighbours in the order. The batches of an epoch are
    a pure function of the costs, this budget, ``shuffle=``, the seed and the epoch.

    **Ranks.** A step is one batch of each rank, so all ranks make the same number of steps. If
    their number does not divide that of the batches, ``uneven`` says what to do with the remaining
    *batches*, and ``drop_last`` leaves them out. The sequence of batches does not depend on the
    number of ranks, so a state continues on any number of them. All batches cost nearly the budget.
    With ``group=8``, each 8 batches in a row are also of similar samples, except where two windows
    meet: then steps of 2, 4 or 8 ranks have similar batches, for models that take more than linear
    time in the length of a sample.

    The costs are kept, in as few bytes a sample as the largest needs, and 8 bytes a window.

    Args:
        max_cost: what a batch may cost, at least 1.
        cost: what a sample costs, an integer of at least 0: the name or position of a column, whose
            numbers are the costs, or whose arrays and lists cost their lengths; a function of a
            sample, such as ``len``; or an array of the costs of all samples, shape
            ``(n_samples,)``. A column is read once, and a function called once for each sample,
            when the loader is made; again for each epoch if the stack has random layers.
        padded: whether samples are padded to the largest one of their batch.
        max_samples: the largest number of samples in a batch; None for no limit.
        window: the number of samples that are sorted together. A larger window leaves less padding.
        group: the number of batches of similar samples in a row, such as the number of ranks.
        too_long: what becomes of samples that cost more than ``max_cost``: ``"refuse"`` is an
            error, ``"alone"`` puts each into a batch of its own, ``"drop"`` leaves them out, with a
            warning.
        storage: keeps the costs of a column or function for the next time: a path, a URL or a
            connector. They lie in ``costs/``, named by the fingerprint of the samples.

    Raises:
        ConfigError: an argument is out of range. When the loader is made: a sample has no cost, or
            is too long; or ``storage`` is given, and the samples have no reliable fingerprint.
    """

    max_cost: int
    cost: Cost
    _: KW_ONLY
    padded: bool = True
    max_samples: int | None = None
    window: int = 10_000
    group: int = 1
    too_long: TooLong = "refuse"
    storage: StorageConnector | str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        # Integers of numpy become Python's, whose arithmetic does not wrap.
        max_cost = check_integer("a budget", self.max_cost, at_least=1, at_most=MAX_BUDGET)
        window = check_integer(
            "the window of a budget", self.window, at_least=1, at_most=_MAX_WINDOW
        )
        group = check_integer("the group of a budget", self.group, at_least=1, at_most=_MAX_WINDOW)
        object.__setattr__(self, "max_cost", max_cost)
        object.__setattr__(self, "window", window)
        object.__setattr__(self, "group", group)
        if self.max_samples is not None:
            max_samples = check_integer("max_samples", self.max_samples, at_least=1)
            object.__setattr__(self, "max_samples", max_samples)
        if not isinstance(self.padded, bool):
            raise ConfigError(f"padded must be True or False, got {self.padded!r:.80}")
        if self.too_long not in get_args(TooLong):
            choices = ", ".join(repr(choice) for choice in get_args(TooLong))
            raise ConfigError(f"too_long must be one of {choices}, got {self.too_long!r:.80}")

    def content(self) -> dict[str, Any]:
        """Return plain JSON data that identifies the budget, without the costs."""
        return {
            "max_cost": self.max_cost,
            "padded": self.padded,
            "max_samples": self.max_samples,
            "window": self.window,
            "group": self.group,
            "too_long": self.too_long,
        }


def parse_budget(batch_size: Any, budget: Any, cost: Any) -> Budget | None:
    """Return the budget of a loader; None for batches of one size.

    Args:
        batch_size: the argument of the loader, or None.
        budget: a budget, the cost of a batch, or None.
        cost: the argument of the loader, or None.

    Raises:
        ConfigError: both or none of ``batch_size`` and ``budget`` are given; or ``cost`` is
            missing, given without a budget, or given twice.
    """
    if budget is None:
        if cost is not None:
            raise ConfigError("cost= says what samples cost of a budget; pass budget= as well")
        if batch_size is None:
            raise ConfigError(
                "a loader needs the number of samples in a batch, Loader(iterator, 64), or what a "
                'batch may cost, Loader(iterator, budget=8192, cost="n_tokens")'
            )
        return None

    if batch_size is not None:
        raise ConfigError(
            f"batch_size={batch_size!r:.40} and budget={budget!r:.80} exclude each other; to limit "
            "the number of samples as well, pass budget=Budget(max_cost, cost, max_samples=…)"
        )
    if isinstance(budget, Budget):
        if cost is not None:
            raise ConfigError("a Budget has the cost already; leave out cost=")
        return budget
    if cost is None:
        raise ConfigError(
            "a budget needs to know what samples cost: pass cost= with the name of a column, a "
            "function of a sample, such as len, or an array of integers"
        )
    return Budget(budget, cost)
