"""Samples of an iterator, every class equally often."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess, access_to
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF, as_iterator
from data_stack.dataset.iterator.layer import DatasetIteratorView, layer
from data_stack.dataset.positions import ComputedPositions, IndexArrayOfInts, Positions, check_integer
from data_stack.dataset.randomness import check_draw, hash_array, hash_of, permute_array
from data_stack.dataset.splits.class_numbers import class_numbers, group_positions
from data_stack.exception import ConfigError


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
        seed: SupportsIndex,
        *,
        n_samples: SupportsIndex | None = None,
        epoch: SupportsIndex = 0,
    ) -> None:
        key: ColumnKey = str(by) if isinstance(by, str) else check_integer("the column to balance by", by)
        checked_seed, checked_epoch, n_wanted, draw = check_draw("balanced", seed, epoch, n_samples)
        source = access_to(as_iterator(dataset_iterator))
        super().__init__(dataset_iterator, _balance(source, key, source.n_samples if n_wanted is None else n_wanted, draw))
        self._made_with = {"by": key, "seed": checked_seed, "n_samples": n_wanted, "epoch": checked_epoch}


def _balance(source: SampleAccess, by: ColumnKey, n_samples: int, seed: int) -> Positions:
    if n_samples == 0:
        return range(0)
    if source.n_samples == 0:
        raise ConfigError(f"{n_samples} samples cannot be drawn from an empty iterator")
    classes = class_numbers(source.columns([by])[0], f"samples cannot be balanced by column {by!r}")
    return _InTurn(group_positions(classes.numbers), classes.counts.tolist(), n_samples, seed)


class _InTurn(ComputedPositions):
    """Rounds in which each class has one turn.

    Args:
        members: the positions of all classes, class by class.
        counts: how many each class has; positive.
        length: number of positions.
        key: what decides the order.
    """

    def __init__(self, members: npt.NDArray[np.integer[Any]], counts: list[int], length: int, key: int) -> None:
        self._members, self._length = members, length
        self._members.setflags(write=False)
        self._counts = np.array(counts, dtype=np.uint64)
        self._starts = np.cumsum([0, *counts[:-1]], dtype=np.intp)
        self._round_key = hash_of(key, 0)
        self._class_keys = hash_array(key, 1 + np.arange(len(counts)))

    def __len__(self) -> int:
        return self._length

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        counts, starts, keys = self._counts, self._starts, self._class_keys
        rounds, turns = np.divmod(indices.astype(np.uint64), np.uint64(len(counts)))
        numbers = permute_array(len(counts), hash_array(self._round_key, rounds), turns).astype(np.intp)
        passes, nths = np.divmod(rounds, counts[numbers])
        members = permute_array(counts[numbers], hash_array(keys[numbers], passes), nths).astype(np.intp)
        return self._members.take(starts[numbers] + members)
