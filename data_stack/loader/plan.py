"""Divides an epoch into the batches of each rank: pure functions of a few integers.

All ranks share one order of the samples of an epoch (:mod:`data_stack.loader.orders`). A *step* takes the next
``world * batch_size`` of them; rank r has the ``batch_size`` positions from ``r * batch_size`` on. So the number of samples that
all ranks together have received describes a run, and another number of ranks can continue with the rest of the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError

Uneven = Literal["pad", "drop", "keep"]
"""How to treat samples of an epoch's last step that ``world`` does not divide."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How an epoch of ``n_samples`` is divided into batches.

    If ``world * batch_size`` does not divide the number of samples, the last step is shorter. With ``drop_last`` all ranks skip
    it. Otherwise the ranks share its samples evenly, and ``uneven`` says what happens to the rest if ``world`` does not divide
    their number:

    - ``"pad"``: all ranks have the same number; the missing samples are repeated from the start of the epoch's order.
    - ``"drop"``: all ranks have the same number; the remaining samples, fewer than ``world``, are skipped.
    - ``"keep"``: some ranks get one sample more; with fewer samples than ranks, some have one *step* more.

    Every other sample is in exactly one batch. With one rank, ``uneven`` has no effect.

    Attributes:
        n_samples: of the epoch, at least 0.
        batch_size: number of samples in a rank's batch, at least 1.
        rank: from 0 to ``world - 1``.
        world: number of ranks, at least 1.
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

    @property
    def samples_per_step(self) -> int:
        """The number of samples of all ranks together, in every step but the last."""
        return self.batch_size * self.world

    def n_steps(self, position: int = 0, rank: int | None = None) -> int:
        """The number of batches of a rank (None: this one) from a position of the epoch on."""
        n_full, n_rest = divmod(max(0, self.n_samples - position), self.samples_per_step)
        if n_rest == 0 or self.drop_last:
            return n_full
        return n_full + (len(self._dealt(n_rest, self.rank if rank is None else rank)) > 0)

    def n_batch_samples(self, position: int = 0) -> int:
        """The number of samples in this rank's batches from a position of the epoch on, repeated ones included."""
        n_full, n_rest = divmod(max(0, self.n_samples - position), self.samples_per_step)
        return n_full * self.batch_size + (0 if self.drop_last else len(self._dealt(n_rest, self.rank)))

    def part(self, step: int, position: int = 0) -> range:
        """The positions of this rank's batch ``step``, counted from ``position`` on.

        With "pad" they may exceed ``n_samples``; :meth:`positions` wraps them.

        Args:
            step: in ``[0, n_steps(position))``.
            position: the number of the epoch's samples that all ranks together had received before step 0.
        """
        start = position + step * self.samples_per_step
        n_left = self.n_samples - start
        if n_left >= self.samples_per_step:
            first = start + self.rank * self.batch_size
            return range(first, first + self.batch_size)
        dealt = self._dealt(n_left, self.rank)
        return range(start + dealt.start, start + dealt.stop)

    def positions(self, parts: Sequence[range]) -> npt.NDArray[np.int64]:
        """The positions of several :meth:`part`, concatenated, each in ``[0, n_samples)``."""
        starts, size = np.array([part.start for part in parts], dtype=np.int64), len(parts[0])
        positions = (starts[:, np.newaxis] + np.arange(size, dtype=np.int64)).reshape(-1)
        if len(parts[-1]) != size:  # that of an epoch's last step
            positions = np.concatenate([positions[:-size], np.arange(parts[-1].start, parts[-1].stop, dtype=np.int64)])
        if parts[-1].stop > self.n_samples:
            positions %= self.n_samples
        return positions

    def position_after(self, step: int, position: int = 0) -> int:
        """The number of samples that all ranks together have received after ``step``; ``n_samples`` after the last step."""
        after = min(position + (step + 1) * self.samples_per_step, self.n_samples)
        return after if self.n_steps(after, rank=0) else self.n_samples

    def _dealt(self, n_rest: int, rank: int) -> range:
        """A rank's part of the last step's ``n_rest`` samples, which are fewer than ``samples_per_step``."""
        each, n_over = divmod(n_rest, self.world)
        if self.uneven == "keep":
            start = rank * each + min(rank, n_over)
            return range(start, start + each + (rank < n_over))
        if self.uneven == "pad":
            each += n_over > 0
        return range(rank * each, (rank + 1) * each)

    def __post_init__(self) -> None:
        check_integer("n_samples", self.n_samples, at_least=0)
        check_integer("batch_size", self.batch_size, at_least=1)
        check_integer("the world of a loader's shard", self.world, at_least=1)
        check_integer(f"the rank of a loader's shard in a world of {self.world}", self.rank, at_least=0, at_most=self.world - 1)
        if self.uneven not in ("pad", "drop", "keep"):
            raise ConfigError(f"uneven must be 'pad', 'drop' or 'keep', got {self.uneven!r}")
