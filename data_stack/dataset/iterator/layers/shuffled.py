"""All samples of an iterator in an order that a seed decides."""

from __future__ import annotations

from typing import SupportsIndex

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.indices import check_draw
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.randomness import permutation


@layer("shuffled")
class ShuffledDatasetIterator(DatasetIteratorView):
    """Every sample of ``dataset_iterator`` once, in an order that ``seed``, ``epoch`` and their number alone decide.

    The order is a :class:`~data_stack.dataset.randomness.permutation.KeyedPermutation`: any position in
    constant time, and no array of
    positions for more than 65,536 samples (4 bytes each for fewer). It is the same on every machine and in every version.

    Args:
        dataset_iterator: the samples; it stays the caller's to close. Nothing is read.
        seed: any integer.
        epoch: number of the order, from 0; see ``at_epoch``.

    Raises:
        ConfigError: ``seed`` or ``epoch`` is not an integer, or ``epoch`` negative.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, seed: SupportsIndex, *, epoch: SupportsIndex = 0) -> None:
        checked_seed, checked_epoch, _, key = check_draw("shuffled", seed, epoch)
        super().__init__(dataset_iterator, permutation.KeyedPermutation(len(as_iterator(dataset_iterator)), key))
        self._made_with = {"seed": checked_seed, "epoch": checked_epoch}

    @property
    def _noted(self) -> str:  # type: ignore[override]  # read-only here
        return f" shuffled with seed {self._made_with['seed']}"
