"""A layer and a source written outside of data_stack are treated like ours: by their access, which
the loader asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loader_batches import InBlocks

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    OneToOneAccess,
    SampleAccess,
    SequenceDatasetIterator,
    access_to,
)
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.exception import LoadingError
from data_stack.loader import BlockShuffled, Loader

# ---------------------------------------------------------------------- a layer of a client


class NegatedAccess(OneToOneAccess):
    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.releases_gil

    def sample(self, position: int) -> dict[str, Any]:
        return {"x": -self.below.sample(position)["x"]}


class Negated(AccessedDatasetIterator):
    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers

    def make_access(self) -> SampleAccess:
        return NegatedAccess(access_to(as_iterator(self._numbers)))

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        return [self._numbers]


# ---------------------------------------------------------------------- what they get


def test_a_block_wise_shuffle_finds_blocks_below_the_layer() -> None:
    negated = Negated(InBlocks(*[10] * 6))

    batches = [
        batch["x"].tolist()
        for batch in Loader(negated, 10, shuffle=BlockShuffled(window=1), seed=2)
    ]

    assert sorted(-number for batch in batches for number in batch) == list(range(60))
    assert all(len({-number // 10 for number in batch}) == 1 for batch in batches)
    assert access_to(negated[5:25]).blocks().tolist() == [5, 10, 5, 0, 0, 0]  # type: ignore[union-attr]  # it tells them


def test_an_unreadable_sample_is_named_with_its_place() -> None:
    source = InBlocks(*[10] * 6, torn=23)

    with pytest.raises(
        LoadingError,
        match=r"sample 23 \(line 3 of page 2\) could not be read: OSError: a page is torn",
    ):
        list(Loader(Negated(source), 5, worker_kind="inline"))
    with pytest.raises(LoadingError, match=r"sample 3 \(line 3 of page 2\)"):
        list(Loader(Negated(DatasetIteratorView(source, range(20, 30))), 5, worker_kind="inline"))


# ---------------------------------------------------------------------- subclasses, and clients


def test_a_redefined_method_reads_by_super() -> None:
    class Shifted(SequenceDatasetIterator):
        def read_batch(self, indices: Any) -> Any:
            return tuple(column + 1 for column in super().read_batch(indices))

    class ShiftedOfDoubled(SequenceDatasetIterator):
        def __getitem__(self, index: Any) -> Any:
            return tuple(2 * value for value in super().__getitem__(index))

    class Both(ShiftedOfDoubled):
        def read_batch(self, indices: Any) -> Any:
            return tuple(column + 1 for column in super().read_batch(indices))

    shifted: Any = access_to(Shifted([np.arange(4)])).batch(np.array([3]))
    both: Any = access_to(Both([np.arange(4)])).batch(np.array([3]))

    assert (shifted[0].tolist(), both[0].tolist()) == ([4], [7])
    assert DatasetIteratorView(Both([np.arange(4)]), [1, 3]).read_column(0).tolist() == [2, 6]
