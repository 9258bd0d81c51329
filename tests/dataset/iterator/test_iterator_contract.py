"""What every iterator promises on any stack, a client's own class included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layer_laws import ClientWrapper
from torch_or_stand_in import torch

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.testing import DatasetIteratorContract
from data_stack.testing.comparing import assert_same

N = 10


class ClientIterator(DatasetIterator):
    """As outlier_hub's plugins are written: no super().__init__(), common names on self, plain
    positions only.
    """

    def __init__(self) -> None:
        self.samples = [i * 10 for i in range(N)]
        self.targets = [i % 2 for i in range(N)]
        self._dataset_iterator = "mine"
        self.X = self.y = None

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        assert type(index) is int, f"a client was asked for {index!r}"
        assert 0 <= index < N, f"a client was asked for {index!r}"
        return self.samples[index], self.targets[index], self.targets[index]


def sequence() -> SequenceDatasetIterator:
    return SequenceDatasetIterator(
        [[i * 10 for i in range(N)], [i % 2 for i in range(N)], [i % 2 for i in range(N)]]
    )


STACKS: dict[str, Callable[[], DatasetIteratorIF]] = {
    "sequence of lists": sequence,
    "view of views": lambda: DatasetIteratorView(
        DatasetIteratorView(sequence(), range(N)[::-1]), range(N)[::-1]
    ),
    "informed client's wrapper": lambda: InformedDatasetIterator(
        ClientWrapper(sequence()), DatasetMeta()
    ),
    "combined": lambda: CombinedDatasetIterator(
        [
            DatasetIteratorView(ClientIterator(), [0, 1]),
            sequence()[:0],
            sequence()[2:5],
            CombinedDatasetIterator([sequence()[5:]]),
        ]
    ),
    "combined folds of one source": lambda: (
        lambda s: CombinedDatasetIterator([s[:4], s[4:8], s[8:]])
    )(ClientIteratorSliceable()),
    "view of a list": lambda: DatasetIteratorView(
        [(i * 10, i % 2, i % 2) for i in range(N)],  # type: ignore[arg-type]  # as originally
        range(N),
    ),
}


class ClientIteratorSliceable(ClientIterator):
    def __getitem__(self, index: Any) -> Any:
        return (
            super().__getitem__(index) if type(index) is int else DatasetIteratorView(self, index)
        )


class TestStacks(DatasetIteratorContract):
    @pytest.fixture(params=list(STACKS))
    def iterator(self, request: pytest.FixtureRequest) -> DatasetIteratorIF:
        return STACKS[request.param]()

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [(i * 10, i % 2, i % 2) for i in range(N)]

    def test_a_missing_column_is_named_in_the_error(self, iterator: DatasetIteratorIF) -> None:
        for key in (3, -4, "target"):
            with pytest.raises(ConfigError, match=f"no column {key!r}.*0 to 2"):
                iterator.read_column(key)

    def test_tensors_and_bools_are_positions_too(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        for index in (np.array(4), torch.tensor(-2), True):
            assert_same(iterator[index], expected[int(index)])
        assert_same(list(iterator[torch.tensor([3, 1])]), [expected[3], expected[1]])
        for outside in (1 << 70, np.uint64(2**64 - 1)):
            with pytest.raises(DatasetOutOfBoundsError):
                iterator[outside]

    def test_a_data_loader_of_torch_reads_it(self, iterator: DatasetIteratorIF) -> None:
        loader: Any = torch.utils.data.DataLoader(iterator, batch_size=4)  # type: ignore[arg-type]  # a map-style dataset by protocol
        assert torch.cat([samples for samples, _, _ in loader]).tolist() == [
            i * 10 for i in range(N)
        ]

        wandering: Any = torch.utils.data.DataLoader(iterator, sampler=[0, 1, 99, 2])  # type: ignore[arg-type]  # as above
        with pytest.raises(IndexError):
            list(wandering)


class Doubled(SequenceDatasetIterator):
    """A client that changes samples only."""

    def __getitem__(self, index: Any) -> Any:
        sample, target = super().__getitem__(index)
        return sample * 2, target


class DoubledView(DatasetIteratorView):
    def __getitem__(self, index: Any) -> Any:
        sample, target = super().__getitem__(index)
        return sample * 2, target


class Shortened(SequenceDatasetIterator):
    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    "doubled",
    [
        Doubled([[1, 2, 3], [7, 8, 9]]),
        DoubledView(SequenceDatasetIterator([[1, 2, 3], [7, 8, 9]]), [0, 1, 2]),
    ],
)
def test_a_subclass_that_changes_samples_changes_batches_columns_and_views(
    doubled: DatasetIteratorIF,
) -> None:
    assert list(doubled) == [(2, 7), (4, 8), (6, 9)]
    assert doubled.__getitems__([2]) == [(6, 9)]
    assert doubled.read_column(0).tolist() == [2, 4, 6]
    batch = CombinedDatasetIterator([DatasetIteratorView(doubled, [2, 0])]).read_batch([0, 1])
    assert isinstance(batch, tuple)
    assert [column.tolist() for column in batch] == [[6, 2], [9, 7]]


def test_a_subclass_that_changes_the_length_has_no_samples_beyond() -> None:
    shortened = Shortened([[1, 2, 3]])

    assert list(shortened) == [(1,), (2,)]
    assert shortened.read_column(0).tolist() == [1, 2]
    with pytest.raises(DatasetOutOfBoundsError):
        shortened.read_batch([2])


def test_a_representation_names_the_dataset_once() -> None:
    class WithDetails(ClientIterator):
        _repr_details = " -> 3 columns"

    informed = InformedDatasetIterator(WithDetails(), DatasetMeta(identifier="mine"))

    text = repr(informed)

    assert text == "<InformedDatasetIterator: 10 samples -> 3 columns of 'mine'>"


def test_only_the_three_members_of_the_original_are_abstract() -> None:
    assert DatasetIteratorIF.__abstractmethods__ == {
        "__len__",
        "__getitem__",
        "underlying_iterators",
    }


@pytest.mark.parametrize("indices", [range(11), range(-11, 0), range(5, 20, 5), range(20, 5, -5)])
def test_a_range_that_leaves_the_iterator_names_the_position(indices: range) -> None:
    with pytest.raises(
        DatasetOutOfBoundsError,
        match=r"position (-11|10|15|20) is outside of an iterator of 10 samples",
    ):
        sequence()[indices]
