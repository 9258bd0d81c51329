"""The samples of an iterator in a drawn order."""

from __future__ import annotations

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.permutation import KeyedPermutation
from data_stack.dataset.randomness import check_draw


@layer("shuffled")
class ShuffledDatasetIterator(DatasetIteratorView):
    """Every sample of ``dataset_iterator`` once, in an order that the seed and the epoch decide.

    The order depends on ``seed``, ``epoch`` and the number of samples alone. It is a
    :class:`~data_stack.dataset.permutation.KeyedPermutation`: any position in constant time, and no
    array of positions for more than 65,536 samples (4 bytes each for fewer). It is the same on
    every machine and in every version.

    Args:
        dataset_iterator: the samples; it is not closed. Nothing is read.
        seed: any integer.
        epoch: number of the order, from 0; see ``at_epoch``.

    Raises:
        ConfigError: ``seed`` or ``epoch`` is not an integer, or ``epoch`` negative.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, seed: int, *, epoch: int = 0) -> None:
        draw = check_draw("shuffled", seed, epoch)
        n_samples = len(as_iterator(dataset_iterator))
        super().__init__(dataset_iterator, KeyedPermutation(n_samples, draw.key))
        self._draw = draw
        self._made_with = {"seed": draw.seed, "epoch": draw.epoch}
        self._repr_details = f" shuffled with seed {draw.seed}"
