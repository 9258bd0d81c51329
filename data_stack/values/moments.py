"""Running statistics of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class RunningMoments:
    """Count, mean, variance and range of each position of a column over all its blocks.

    NaN does not count. Blocks are merged by the formula of Chan, Golub and LeVeque, "Updating
    Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979), which loses no digits
    where mean and spread are of different magnitude.

    Attributes:
        count: the number of values other than NaN, shape ``(…)``.
        mean: the mean, shape ``(…)``; 0 if there are no values.
        low: the smallest value, shape ``(…)``; ``inf`` if there are no values.
        high: the largest value, shape ``(…)``; ``-inf`` if there are no values.
        squares: the sum of the squared deviations from the mean, shape ``(…)``.
    """

    count: Any
    mean: Any
    low: Any
    high: Any
    squares: Any

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.low = np.inf
        self.high = -np.inf
        self.squares = 0.0

    def add(self, block: npt.NDArray[Any]) -> None:
        """Add finite numbers or NaN of shape ``(n, …)``, n > 0."""
        # Sums may overflow; callers check the results.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # The moments of the block alone.
            is_missing = np.isnan(block)
            if is_missing.any():
                is_present = ~is_missing
                count = is_present.sum(axis=0)
                total = np.where(is_present, block, 0).sum(axis=0, dtype=np.float64)
                mean = total / np.maximum(count, 1)
                deviations = np.where(is_present, block - mean, 0)
            else:
                count = np.full(block.shape[1:], len(block))
                mean = block.mean(axis=0, dtype=np.float64)
                deviations = block - mean
            squares = np.square(deviations).sum(axis=0)

            # Merge them with those of the blocks before.
            count_of_both = self.count + count
            difference = mean - self.mean
            share = count / np.maximum(count_of_both, 1)
            self.squares = self.squares + squares + difference**2 * self.count * share
            self.mean = self.mean + difference * share
            self.count = count_of_both
        # These ignore NaN.
        self.low = np.fmin(self.low, np.fmin.reduce(block, axis=0))
        self.high = np.fmax(self.high, np.fmax.reduce(block, axis=0))

    @property
    def deviation(self) -> Floats:
        """Standard deviation of the population, shape ``(…)``.

        It is exactly 0 where all values are equal.
        """
        with np.errstate(invalid="ignore"):
            deviation: Floats = np.sqrt(self.squares / np.maximum(self.count, 1))
        is_constant = self.low >= self.high
        return np.where(is_constant, 0.0, deviation)
