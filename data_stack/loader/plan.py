"""Divides the samples of an epoch into the batches of each rank: arithmetic of a few integers.

All ranks share one order of the samples of an epoch (:mod:`data_stack.loader.orders`). A *step*
takes the next ``world * batch_size`` of them; rank r has the ``batch_size`` positions from
``r * batch_size`` on. So the number of samples that all ranks together have received describes a
run, and another number of ranks can continue with the remaining part of the order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.util.moved_names import find_moved_names

Uneven = Literal["pad", "drop", "keep"]
"""How to treat samples of an epoch's last step that ``world`` does not divide."""

NEVER = sys.maxsize
"""The end epoch of an endless iteration."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How an epoch of ``n_samples`` is divided into batches.

    If ``world * batch_size`` does not divide the number of samples, the last step is shorter. With
    ``drop_last`` all ranks skip it. Otherwise the ranks share its samples evenly, and ``uneven``
    says what happens to the remaining ones if ``world`` does not divide their number:

    - ``"pad"``: all ranks have the same number; the missing samples are repeated from the start of
      the epoch's order.
    - ``"drop"``: all ranks have the same number; the remaining samples, fewer than ``world``, are
      skipped.
    - ``"keep"``: some ranks get one sample more; with fewer samples than ranks, some have one
      *step* more.

    Every other sample is in exactly one batch. With one rank, ``uneven`` has no effect.

    Attributes:
        n_samples: the number of samples of the epoch, at least 0.
        batch_size: the number of samples in a rank's batch, at least 1.
        rank: the rank, from 0 to ``world - 1``.
        world: the number of ranks, at least 1.
        drop_last: whether the last step is left out if it is shorter than the others.
        uneven: "pad", "drop" or "keep".
    """

    n_samples: int
    batch_size: int
    _: KW_ONLY
    rank: int = 0
    world: int = 1
    drop_last: bool = False
    uneven: Uneven = "pad"

    def __post_init__(self) -> None:
        check_integer("n_samples", self.n_samples, at_least=0)
        check_integer("batch_size", self.batch_size, at_least=1)
        check_integer("the world of a loader's shard", self.world, at_least=1)
        check_integer(
            f"the rank of a loader's shard in a world of {self.world}",
            self.rank,
            at_least=0,
            at_most=self.world - 1,
        )
        if self.uneven not in get_args(Uneven):
            raise ConfigError(f"uneven must be 'pad', 'drop' or 'keep', got {self.uneven!r}")

    @property
    def samples_per_step(self) -> int:
        """The number of samples of all ranks together, in every step but the last."""
        return self.batch_size * self.world

    def n_steps(self, position: int = 0, rank: int | None = None) -> int:
        """Return the number of batches of a rank (None: this one) from a position on."""
        n_full_steps, n_remaining = self._count_from(position)
        if n_remaining == 0 or self.drop_last:
            return n_full_steps
        if rank is None:
            rank = self.rank
        has_part_of_last_step = len(self._share_of(n_remaining, rank)) > 0
        return n_full_steps + 1 if has_part_of_last_step else n_full_steps

    def n_batch_samples(self, position: int = 0) -> int:
        """Return the number of samples in this rank's batches from a position on.

        Repeated samples count each time.
        """
        n_full_steps, n_remaining = self._count_from(position)
        n_samples = n_full_steps * self.batch_size
        if not self.drop_last:
            n_samples += len(self._share_of(n_remaining, self.rank))
        return n_samples

    def part(self, step: int, position: int = 0) -> range:
        """Return the positions of this rank's batch ``step``, counted from ``position`` on.

        With "pad" they may exceed ``n_samples``; :meth:`positions` wraps them.

        Args:
            step: in ``[0, n_steps(position))``.
            position: the number of the epoch's samples that all ranks together had received before
                step 0.
        """
        samples_per_step = self.samples_per_step
        step_start = position + step * samples_per_step
        n_samples_of_step = self.n_samples - step_start
        if n_samples_of_step >= samples_per_step:
            # A full step, as nearly all are.
            start = step_start + self.rank * self.batch_size
            return range(start, start + self.batch_size)
        share = self._share_of(n_samples_of_step, self.rank)
        return range(step_start + share.start, step_start + share.stop)

    def parts(self, steps: range, position: int = 0) -> list[range]:
        """Return :meth:`part` of each of some consecutive steps, at least one."""
        # All steps but the last one are full.
        first_start = position + steps.start * self.samples_per_step + self.rank * self.batch_size
        end = first_start + len(steps) * self.samples_per_step
        starts = range(first_start, end, self.samples_per_step)
        parts = [range(start, start + self.batch_size) for start in starts]
        parts[-1] = self.part(steps[-1], position)
        return parts

    def positions(self, parts: Sequence[range]) -> npt.NDArray[np.int64]:
        """Return the positions of several :meth:`part`, concatenated, each in ``[0, n_samples)``.

        Args:
            parts: parts of consecutive steps, of which only the last may be shorter.
        """
        # All parts but that of an epoch's last step have the same size.
        size = len(parts[0])
        last_part = parts[-1]
        starts = np.array([part.start for part in parts], dtype=np.int64)
        positions = (starts[:, np.newaxis] + np.arange(size, dtype=np.int64)).ravel()
        if len(last_part) != size:
            last_positions = np.arange(last_part.start, last_part.stop, dtype=np.int64)
            positions = np.concatenate([positions[:-size], last_positions])

        # Padding repeats samples from the start of the epoch.
        if last_part.stop > self.n_samples:
            positions %= self.n_samples
        return positions

    def position_after(self, step: int, position: int = 0) -> int:
        """Return the number of samples that all ranks together have received after ``step``.

        It is ``n_samples`` after the last step.
        """
        position_after = min(position + (step + 1) * self.samples_per_step, self.n_samples)
        # If any rank has a further step, the first one has: it has the most steps.
        has_more_steps = self.n_steps(position_after, rank=0) > 0
        return position_after if has_more_steps else self.n_samples

    def _count_from(self, position: int) -> tuple[int, int]:
        """Return the number of full steps from a position on, and of the samples after them."""
        n_samples = max(0, self.n_samples - position)
        return divmod(n_samples, self.samples_per_step)

    def _share_of(self, n_samples: int, rank: int) -> range:
        """Return a rank's part of the samples of one step, counted from the start of the step."""
        n_each, n_uneven = divmod(n_samples, self.world)
        if self.uneven == "keep":
            # The first ranks get one sample more.
            start = rank * n_each + min(rank, n_uneven)
            size = n_each + 1 if rank < n_uneven else n_each
            return range(start, start + size)
        if self.uneven == "pad" and n_uneven > 0:
            n_each += 1
        return range(rank * n_each, (rank + 1) * n_each)


def place_after(
    n_batches: int,
    origin: tuple[int, int],
    rank: int,
    plan_of: Callable[[int], Plan],
    end_epoch: int,
) -> tuple[int, int]:
    """Return where a rank is after it has received a number of batches.

    With ``uneven="keep"`` some ranks have a step more in an epoch than others, so that in an
    iteration of several epochs ranks are in different places after the same number of batches.

    Args:
        n_batches: the number of batches that the rank has received since the origin.
        origin: the epoch and position in which all ranks were.
        rank: a rank of the plan's world.
        plan_of: returns the plan of an epoch.
        end_epoch: the epoch after the last one of the iteration.

    Returns:
        The epoch and position of the rank's next batch; ``(end_epoch, 0)`` at its end.
    """
    epoch, position = origin
    n_left = n_batches
    while n_left > 0 and epoch < end_epoch:
        plan = plan_of(epoch)
        n_steps = plan.n_steps(position, rank)

        # The last batch is of this epoch. The epoch has ended unless a rank has a further step.
        if n_left <= n_steps:
            position_after = plan.position_after(n_left - 1, position)
            if n_left == n_steps and position_after == plan.n_samples:
                return epoch + 1, 0
            return epoch, position + n_left * plan.samples_per_step

        # A rank without samples stays where it is: an endless iteration has no end to go to.
        has_no_samples = n_steps == 0 and position == 0
        if has_no_samples and end_epoch == NEVER:
            return epoch, 0

        # The last batch is of a later epoch.
        n_left -= n_steps
        epoch += 1
        position = 0
    return epoch, position


__getattr__ = find_moved_names(
    __name__,
    {
        "launcher_shard": "data_stack.loader.ranks.launcher_shard",
        "warn_without_shard": "data_stack.loader.ranks.warn_without_shard",
    },
    since="0.2",
    removed_in="1.0",
)
