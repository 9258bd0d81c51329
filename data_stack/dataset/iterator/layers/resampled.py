"""Samples of an iterator that may come several times: drawn by weight, drawn by class, or all again."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from data_stack.dataset.iterator.access import SampleAccess, access_to
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, as_iterator
from data_stack.dataset.iterator.layer import DatasetIteratorView, layer
from data_stack.dataset.positions import Formula, IndexArrayOfInts, Positions, check_integer
from data_stack.dataset.randomness import (
    Uint64Array,
    check_draw,
    check_n_drawn,
    hash_array,
    hash_of,
    high_product_array,
    permute_array,
)
from data_stack.dataset.splits.class_numbers import class_numbers, group_positions
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


@layer("balanced", columns=["by"])
class BalancedDatasetIterator(DatasetIteratorView):
    """Samples of ``dataset_iterator`` such that every class comes equally often.

    With k classes, every run of k samples from a multiple of k on has one sample of each class, in an order drawn for it. So
    the counts of any two classes never differ by more than one. The members of a class come
    in a drawn order, each of them once, then in another order, and so on: those of a rare class again and again, equally often;
    those of a frequent class perhaps not all. Seed, epoch and position alone decide which sample is where, and it is computed
    in constant time.

    The column ``by`` is read once, here; a copy in another process does not read it again. 4 bytes a sample are kept (8 for
    more than 2**31 samples).

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        by: the column of classes: ints, strings, bools, floats, or arrays of one shape such as one-hot vectors. Classes are
            compared by equality.
        seed: any integer.
        n_samples: how many; None for as many as ``dataset_iterator`` has.
        epoch: number of the order, from 0; see ``at_epoch``.

    Raises:
        ConfigError: there is no column ``by``, one of its values is missing (NaN, None) or cannot be compared; ``n_samples`` is
            negative, or positive where there are no samples.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        by: ColumnKey,
        seed: int,
        *,
        n_samples: int | None = None,
        epoch: int = 0,
    ) -> None:
        key: ColumnKey = (
            str(by) if isinstance(by, str) else check_integer("the column to balance by", by)
        )
        draw = check_draw("balanced", seed, epoch)
        n_wanted = check_n_drawn("balanced", n_samples)
        source = access_to(as_iterator(dataset_iterator))
        length = source.n_samples if n_wanted is None else n_wanted
        if length and not source.n_samples:
            raise ConfigError(f"{length} samples cannot be drawn from an empty iterator")
        super().__init__(
            dataset_iterator, _balance(source, key, length, draw.key) if length else range(0)
        )
        self._made_with = {
            "by": key,
            "seed": draw.seed,
            "n_samples": n_wanted,
            "epoch": draw.epoch,
        }


def _balance(source: SampleAccess, by: ColumnKey, n_samples: int, seed: int) -> Positions:
    classes = class_numbers(source.columns([by])[0], f"samples cannot be balanced by column {by!r}")
    members, counts = group_positions(classes.numbers), classes.counts.astype(np.uint64)
    members.setflags(write=False)
    starts, keys = (
        np.cumsum(classes.counts) - classes.counts,
        hash_array(seed, 1 + np.arange(len(counts))),
    )
    return Formula(n_samples, _take_turns, hash_of(seed, 0), keys, counts, starts, members)


def _take_turns(
    round_key: int,
    keys: Uint64Array,
    counts: Uint64Array,
    starts: NDArray[np.intp],
    members: IndexArrayOfInts,
    indices: IndexArrayOfInts,
) -> IndexArrayOfInts:
    """Rounds in which each class has one turn.

    Args:
        round_key: what decides the order in each round.
        keys: of each class, what decides the order of its members.
        counts: how many members each class has; positive.
        starts: where they start.
        members: the positions of all classes, class by class.
        indices: at which positions are asked for.
    """
    rounds, turns = np.divmod(indices.astype(np.uint64), np.uint64(len(counts)))
    numbers = permute_array(len(counts), hash_array(round_key, rounds), turns).astype(np.intp)
    passes, nths = np.divmod(rounds, counts[numbers])
    nths_drawn = permute_array(counts[numbers], hash_array(keys[numbers], passes), nths).astype(
        np.intp
    )
    return members.take(starts[numbers] + nths_drawn)


@layer("repeated")
class RepeatedDatasetIterator(DatasetIteratorView):
    """The samples of ``dataset_iterator`` ``times`` times, one pass after the other, all in the same order.

    For another order in each pass, combine ``iterator.shuffle(seed, epoch=pass)``.

    Args:
        dataset_iterator: the samples; it stays the caller's to close. Nothing is read or kept.
        times: number of passes; 0 makes an empty iterator.

    Raises:
        ConfigError: ``times`` is not an integer or negative, or there would be more than ``sys.maxsize`` samples.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, times: int) -> None:
        n_passes = check_integer("the times of a repeated iterator", times, at_least=0)
        n_samples = len(as_iterator(dataset_iterator))
        if n_samples * n_passes > sys.maxsize:
            raise ConfigError(
                f"{n_samples} samples {n_passes} times are more than Python can count; repeat them less often"
            )
        length = n_samples * n_passes
        super().__init__(
            dataset_iterator,
            range(length) if length <= n_samples else Formula(length, _start_again, n_samples),
        )
        self._made_with = {"times": n_passes}


def _start_again(n_samples: int, indices: IndexArrayOfInts) -> IndexArrayOfInts:
    return indices.astype(np.intp, copy=False) % n_samples
