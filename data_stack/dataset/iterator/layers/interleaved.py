"""One sample of each of several iterators in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator, share_meta
from data_stack.dataset.iterator.layers.selection import Concatenation, Selection
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError


class ViewOfSeveral(DatasetIteratorView):
    """A base class of layers that rearrange the samples of several iterators.

    It is a view of a combination of the iterators.
    """

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        # The constructor of a subclass takes a list of iterators, that of a view one iterator.
        make_layer: Any = cls
        made: DatasetIteratorIF = make_layer(underlying, **arguments)
        return made

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        return share_meta(meta, self.underlying_iterators)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterators given."""
        return self._dataset_iterator.underlying_iterators


@layer("interleaved")
class InterleavedDatasetIterator(ViewOfSeveral):
    """One sample of each iterator in turn, each iterator's in its own order.

    A round takes the next sample of every iterator, in the order given. With ``stop="longest"``,
    iterators that are exhausted are skipped, until all are: every sample comes once. With
    ``stop="shortest"``, the rounds end when one iterator is exhausted: k iterators have
    ``k * min(lengths)`` samples, and none if one is empty.

    4 bytes a sample are kept (8 for more than 2**31 samples). ``indices`` are positions in the
    iterators one after the other.

    Args:
        iterators: any number of iterators, also none; they are not closed. Nothing is read.
        stop: "longest" or "shortest".

    Raises:
        ConfigError: ``stop`` is neither, or all together have more than ``sys.maxsize`` samples.
    """

    def __init__(
        self,
        iterators: Sequence[DatasetIteratorIF],
        *,
        stop: Literal["longest", "shortest"] = "longest",
    ) -> None:
        if stop not in ("longest", "shortest"):
            raise ConfigError(f"stop must be 'longest' or 'shortest', got {stop!r}")
        combined = CombinedDatasetIterator(iterators)
        lengths = [len(as_iterator(iterator)) for iterator in combined.underlying_iterators]
        n_taken = lengths
        if stop == "shortest" and lengths:
            n_taken = [min(lengths)] * len(lengths)
        selection = take_in_turn(n_taken)
        super().__init__(combined, Concatenation(lengths).positions_of(selection))
        self._made_with = {"stop": stop}


def take_in_turn(lengths: Sequence[int]) -> Selection:
    """Select the samples of parts in rounds, each with the next sample of every part that has one.

    Args:
        lengths: how many samples of each part are taken.
    """
    # List them part by part, then sort them by round. A stable sort keeps the order of the parts.
    parts = np.repeat(np.arange(len(lengths), dtype=np.intp), lengths)
    rounds = _count_each(lengths)
    in_rounds = np.argsort(rounds, kind="stable")
    return Selection(parts[in_rounds], rounds[in_rounds])


def _count_each(lengths: Sequence[int]) -> npt.NDArray[np.intp]:
    """Return the numbers from 0 to ``length - 1`` for each length, one after the other."""
    if not lengths:
        return np.empty(0, dtype=np.intp)
    return np.concatenate([np.arange(length, dtype=np.intp) for length in lengths])
