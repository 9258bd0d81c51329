"""The samples of an iterator several times, one pass after the other."""

from __future__ import annotations

import sys

import numpy as np

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.positions import Formula, IndexArrayOfInts, check_integer
from data_stack.exception import ConfigError


@layer("repeated")
class RepeatedDatasetIterator(DatasetIteratorView):
    """The samples of ``dataset_iterator`` ``times`` times, one pass after the other.

    All passes are in the same order. For another order in each pass, combine the iterators
    ``iterator.shuffle(seed, epoch=number_of_pass)``.

    Args:
        dataset_iterator: the samples; it is not closed. Nothing is read or kept.
        times: number of passes; 0 makes an empty iterator.

    Raises:
        ConfigError: ``times`` is not an integer or negative, or there would be more than
            ``sys.maxsize`` samples.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, times: int) -> None:
        n_passes = check_integer("the times of a repeated iterator", times, at_least=0)
        n_below = len(as_iterator(dataset_iterator))
        n_samples = n_below * n_passes
        if n_samples > sys.maxsize:
            raise ConfigError(
                f"{n_below} samples {n_passes} times are more than Python can count; "
                f"repeat them less often"
            )
        if n_samples <= n_below:
            # There is one pass, or none.
            super().__init__(dataset_iterator, range(n_samples))
        else:
            super().__init__(dataset_iterator, Formula(n_samples, _start_again, n_below))
        self._made_with = {"times": n_passes}


def _start_again(n_below: int, indices: IndexArrayOfInts) -> IndexArrayOfInts:
    """Return for positions in all passes the positions below."""
    return indices.astype(np.intp, copy=False) % n_below
