"""Samples of an iterator that are drawn with replacement."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from data_stack.dataset.hashing import hash_array, high_product_array
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.positions import Formula, IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import check_draw
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import as_array


@layer("resampled")
class ResampledDatasetIterator(DatasetIteratorView):
    """``n_samples`` samples of ``dataset_iterator`` drawn with replacement, each draw independent of the others.

    Which sample stands at a position is decided by seed, epoch and position alone: the first draws of a longer iterator are
    those of a shorter one. Without weights, every sample has the same probability, up to n / 2**64, and nothing is kept. With
    weights, its probability is its weight's part of their sum, in float64, and a sample of weight 0 is never drawn; 8 bytes a
    sample are kept besides the weights.

    Args:
        dataset_iterator: the samples; it stays the caller's to close. Nothing is read.
        n_samples: number of draws; it may be more than there are samples.
        seed: any integer.
        weights: one number for each sample, shape ``(len(dataset_iterator),)``, finite and not negative, of positive sum; they
            need not sum to 1. They are copied. None: all samples alike.
        epoch: number of the drawing, from 0; see ``at_epoch``.

    Raises:
        ConfigError: ``n_samples`` is negative, or positive where there is nothing to draw; weights are too many or too few, or
            one of them is not allowed; it is named with its position.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        n_samples: int,
        seed: int,
        *,
        weights: ArrayLike | None = None,
        epoch: int = 0,
    ) -> None:
        n_drawn = check_integer(
            "the n_samples of a resampled iterator", n_samples, at_least=0, at_most=sys.maxsize
        )
        draw = check_draw("resampled", seed, epoch)
        n_below = len(as_iterator(dataset_iterator))
        checked_weights = None if weights is None else _check_weights(weights, n_below)
        if n_drawn and n_below == 0:
            raise ConfigError(f"{n_drawn} samples cannot be drawn from an empty iterator")
        if n_drawn and checked_weights is not None and not checked_weights.any():
            raise ConfigError(
                f"all {n_below} weights are 0: at least one must be positive, or no sample can be drawn"
            )
        drawn = Formula(n_drawn, _draw, draw.key, n_below)
        if n_drawn and checked_weights is not None:
            # Scaled by a power of two, which changes no proportion: the sum neither overflows nor gets so small that it rounds.
            _, exponent = math.frexp(float(checked_weights.max()))
            drawn = Formula(
                n_drawn, _draw_by_weight, draw.key, np.cumsum(np.ldexp(checked_weights, -exponent))
            )
        super().__init__(dataset_iterator, drawn if n_drawn else range(0))
        self._draw = draw
        self._made_with = {
            "n_samples": n_drawn,
            "seed": draw.seed,
            "weights": checked_weights,
            "epoch": draw.epoch,
        }


def _check_weights(weights: ArrayLike, n_samples: int) -> NDArray[Any]:
    try:
        array = as_array(weights).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"weights must be numbers, one for each sample: {error}") from error
    if array.shape != (n_samples,):
        raise ConfigError(
            f"weights must be one number for each of {n_samples} samples, shape ({n_samples},), not {array.shape}"
        )
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise ConfigError(
            f"weights must be finite and not negative; that of sample {wrong[0]} is {array[wrong[0]]}"
        )
    array.setflags(write=False)
    return array


def _draw(key: int, n_below: int, indices: IndexArrayOfInts) -> IndexArrayOfInts:
    return high_product_array(hash_array(key, indices), np.uint64(n_below)).astype(np.intp)


def _draw_by_weight(
    key: int, sums: NDArray[np.float64], indices: IndexArrayOfInts
) -> IndexArrayOfInts:
    """Draws by the inverse of the cumulative sum of the weights.

    Of a number in [0, 1) with 53 bits, the product with the total is below the total, also when it is rounded. The first sum
    above it is that of a positive weight.
    """
    uniform = (hash_array(key, indices) >> np.uint64(11)).astype(np.float64)
    uniform *= 2.0**-53
    uniform *= float(sums[-1])
    return np.asarray(sums.searchsorted(uniform, side="right"), dtype=np.intp)
