"""Statistics of columns, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["RunningMoments"]

Floats = npt.NDArray[np.float64]


class RunningMoments:
    """Count, mean, variance and range of each position of a column, over all its blocks; NaN are passed over.

    Blocks are merged by the formula of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
    Sample Variances" (1979), which loses no digits where mean and spread are of different magnitude.

    Attributes:
        count: how many values that are not NaN, shape ``(…)``.
        mean: shape ``(…)``, 0 where there is none.
        low: the least value, ``inf`` where there is none.
        high: the largest, ``-inf`` where there is none.
    """

    def __init__(self) -> None:
        self.count: Any = 0
        self.mean: Any = 0.0
        self.low: Any = np.inf
        self.high: Any = -np.inf
        self._squares: Any = 0.0

    def add(self, block: Floats) -> None:
        """Take in values of shape ``(n, …)``, n > 0."""
        missing = np.isnan(block)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what overflows is told by who uses it
            if missing.any():
                present = ~missing
                count = present.sum(axis=0)
                mean = np.where(present, block, 0).sum(axis=0) / np.maximum(count, 1)
                squares = np.where(present, block - mean, 0)
                low = np.where(present, block, np.inf).min(axis=0)
                high = np.where(present, block, -np.inf).max(axis=0)
            else:
                count = np.full(block.shape[1:], len(block))
                mean = block.mean(axis=0)
                squares = block - mean
                low, high = block.min(axis=0), block.max(axis=0)
            squares = np.square(squares).sum(axis=0)
            total = self.count + count
            difference = mean - self.mean
            share = count / np.maximum(total, 1)
            self._squares = self._squares + squares + difference**2 * self.count * share
            self.mean = self.mean + difference * share
        self.count = total
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)

    @property
    def deviation(self) -> Floats:
        """Standard deviation of the population, shape ``(…)``; exactly 0 where all values are equal."""
        with np.errstate(invalid="ignore"):
            deviation: Floats = np.sqrt(self._squares / np.maximum(self.count, 1))
        return np.where(self.low >= self.high, 0.0, deviation)
