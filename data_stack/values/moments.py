"""Running statistics of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class RunningMoments:
    """Count, mean, variance and range of each position of a column over all its blocks, without NaN.

    Blocks are merged by the formula of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
    Sample Variances" (1979), which loses no digits where mean and spread are of different magnitude.

    Attributes:
        count: number of values other than NaN, shape ``(…)``.
        mean: shape ``(…)``, 0 without values.
        low: the least value, ``inf`` without values.
        high: the largest, ``-inf`` without values.
        squares: the sum of the squared deviations from the mean.
    """

    def __init__(self) -> None:
        self.count: Any = 0
        self.mean: Any = 0.0
        self.low: Any = np.inf
        self.high: Any = -np.inf
        self.squares: Any = 0.0

    def add(self, block: npt.NDArray[Any]) -> None:
        """Add finite numbers or NaN of shape ``(n, …)``, n > 0."""
        missing = np.isnan(block)
        with np.errstate(
            over="ignore", invalid="ignore", divide="ignore"
        ):  # callers check the results
            if missing.any():
                present = ~missing
                count = present.sum(axis=0)
                mean = np.where(present, block, 0).sum(axis=0, dtype=np.float64) / np.maximum(
                    count, 1
                )
                squares = np.where(present, block - mean, 0)
            else:
                count = np.full(block.shape[1:], len(block))
                mean = block.mean(axis=0, dtype=np.float64)
                squares = block - mean
            total = self.count + count
            difference, share = mean - self.mean, count / np.maximum(total, 1)
            self.squares = (
                self.squares + np.square(squares).sum(axis=0) + difference**2 * self.count * share
            )
            self.mean = self.mean + difference * share
            self.count = total
        self.low = np.fmin(self.low, np.fmin.reduce(block, axis=0))  # these ignore NaN
        self.high = np.fmax(self.high, np.fmax.reduce(block, axis=0))

    @property
    def deviation(self) -> Floats:
        """Standard deviation of the population, shape ``(…)``; exactly 0 where all values are equal."""
        with np.errstate(invalid="ignore"):
            deviation: Floats = np.sqrt(self.squares / np.maximum(self.count, 1))
        return np.where(self.low >= self.high, 0.0, deviation)
