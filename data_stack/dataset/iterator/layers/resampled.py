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

#: Bits of a hash that do not fit into the 53 bits of a float64.
_BITS_BELOW_A_FLOAT = 64 - 53


@layer("resampled")
class ResampledDatasetIterator(DatasetIteratorView):
    """``n_samples`` samples of ``dataset_iterator``, drawn independently and with replacement.

    Seed, epoch and position alone decide which sample stands at a position: the first draws of a
    longer iterator are those of a shorter one. Without weights, every sample has the same
    probability, up to n / 2**64 for n samples, and no memory is taken. With weights, the
    probability of a sample is its weight divided by the sum of all, in float64; a sample of weight
    0 is never drawn. Then 8 bytes a sample are kept besides the weights.

    Args:
        dataset_iterator: the samples; it is not closed. Nothing is read.
        n_samples: number of draws; it may be more than there are samples.
        seed: any integer.
        weights: one number for each sample, shape ``(len(dataset_iterator),)``, finite and not
            negative, at least one positive. They need not sum to 1. They are copied. None: all
            samples have the same weight.
        epoch: number of the drawing, from 0; see ``at_epoch``.

    Raises:
        ConfigError: ``n_samples`` is negative, or positive where there is nothing to draw; there is
            not one weight for each sample, or a weight is not allowed (the message names its
            position).
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
        checked_weights = None
        if weights is not None:
            checked_weights = _check_weights(weights, n_below)
        if n_drawn and n_below == 0:
            raise ConfigError(f"{n_drawn} samples cannot be drawn from an empty iterator")
        if n_drawn and checked_weights is not None and not checked_weights.any():
            raise ConfigError(
                f"all {n_below} weights are 0: at least one must be positive, "
                f"or no sample can be drawn"
            )
        if n_drawn == 0:
            super().__init__(dataset_iterator, range(0))
        elif checked_weights is None:
            super().__init__(dataset_iterator, Formula(n_drawn, _draw, draw.key, n_below))
        else:
            sums = _sum_up(checked_weights)
            super().__init__(dataset_iterator, Formula(n_drawn, _draw_by_weight, draw.key, sums))
        self._draw = draw
        self._made_with = {
            "n_samples": n_drawn,
            "seed": draw.seed,
            "weights": checked_weights,
            "epoch": draw.epoch,
        }


def _check_weights(weights: ArrayLike, n_samples: int) -> NDArray[Any]:
    """Return a copy of weights, as float64, which is read-only."""
    try:
        array = as_array(weights).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"weights must be numbers, one for each sample: {error}") from error
    if array.shape != (n_samples,):
        raise ConfigError(
            f"weights must be one number for each of {n_samples} samples, shape ({n_samples},), "
            f"not {array.shape}"
        )
    is_allowed = np.isfinite(array) & (array >= 0)
    refused_positions = np.flatnonzero(~is_allowed)
    if len(refused_positions):
        position = refused_positions[0]
        raise ConfigError(
            f"weights must be finite and not negative; that of sample {position} is "
            f"{array[position]}"
        )
    array.setflags(write=False)
    return array


def _sum_up(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cumulative sums of weights, up to a common factor.

    The factor is a power of two, which changes no proportion. Without it, a sum could overflow, or
    be so small that it rounds.
    """
    _, exponent = math.frexp(float(weights.max()))
    sums: NDArray[np.float64] = np.cumsum(np.ldexp(weights, -exponent))
    return sums


def _draw(key: int, n_below: int, indices: IndexArrayOfInts) -> IndexArrayOfInts:
    """Return the positions of draws in which each sample has the same probability.

    Args:
        key: 64 bits that decide the draws.
        n_below: how many samples there are.
        indices: the numbers of the draws, shape ``(n,)``.
    """
    return high_product_array(hash_array(key, indices), np.uint64(n_below)).astype(np.intp)


def _draw_by_weight(
    key: int, sums: NDArray[np.float64], indices: IndexArrayOfInts
) -> IndexArrayOfInts:
    """Return the positions of draws in which a sample has the probability of its weight.

    A uniform number below the sum of all weights is drawn. The drawn sample is the one whose
    cumulative sum is the first above the number, so that its weight is positive. The number is a
    fraction in [0, 1) of 53 bits, times the sum of all weights; it is below that sum even when the
    product is rounded.

    Args:
        key: 64 bits that decide the draws.
        sums: the cumulative sums of the weights, shape ``(n_below,)``.
        indices: the numbers of the draws, shape ``(n,)``.
    """
    uniform = (hash_array(key, indices) >> np.uint64(_BITS_BELOW_A_FLOAT)).astype(np.float64)
    uniform *= 2.0**-53
    uniform *= float(sums[-1])
    return np.asarray(sums.searchsorted(uniform, side="right"), dtype=np.intp)
