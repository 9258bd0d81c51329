"""A view: some samples of another iterator, in an order of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import RearrangedAccess, SampleAccess
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF, IndexArray
from data_stack.dataset.iterator.indices import check_positions
from data_stack.dataset.iterator.layer import LayerDatasetIterator
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.positions import ComputedPositions, Positions, as_index_array


@layer("view")
class DatasetIteratorView(LayerDatasetIterator):
    """The samples of ``dataset_iterator`` at ``indices``, in that order; nothing is copied.

    A view of a view reads from the bottom directly, so depth costs nothing; ``underlying_iterators`` still names the
    iterator it was made from. A slice or range keeps no array, however long; other indices take 4 bytes each, or 8 in an
    iterator of more than 2**31 samples.

    Args:
        dataset_iterator: the iterator looked through; it stays the caller's to close.
        indices: integers, each in ``[-n, n)`` for an iterator of n samples, repeats allowed; or n bools; or a slice.
            They are copied: changing them afterwards does not change the view.
        view_tags: notes of the caller about this view.

    Raises:
        DatasetOutOfBoundsError: a position lies outside of ``dataset_iterator``.
        TypeError: ``indices`` are not one-dimensional, or neither integers nor bools.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        indices: IndexArray | npt.ArrayLike | ComputedPositions,
        view_tags: Mapping[str, Any] | None = None,
    ) -> None:
        # Checked here, not in __getitem__: a wrong split then fails where it was made, not hours later in a worker.
        super().__init__(dataset_iterator)
        length = len(as_iterator(dataset_iterator))
        self._given: Positions = indices if isinstance(indices, ComputedPositions) else check_positions(indices, length)
        self._gives_list = not hasattr(indices, "__array__")
        self._view_tags = None if view_tags is None else dict(view_tags)
        self._made_with = {"indices": self._given, "view_tags": self._view_tags}

    def make_access(self) -> SampleAccess:
        return RearrangedAccess(self._below(), self._given)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._given, np.ndarray):
            self._given.setflags(write=False)

    @property
    def indices(self) -> Any:
        """The positions in ``underlying_iterators[0]``: an array if the view was made with one, otherwise a list of ints.

        Negative positions and masks are resolved. Each call makes a new object: in a loop, keep it in a variable.
        """
        positions = as_index_array(self._given)
        return positions.tolist() if self._gives_list else positions.astype(np.intp)

    @property
    def view_tags(self) -> dict[str, Any] | None:
        """What the view was tagged with; None if nothing."""
        return self._view_tags
