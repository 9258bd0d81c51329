"""What every iterator promises on any stack, a client's own class included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    InMemoryDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError, DatasetOutOfBoundsError

N = 10


class ClientIterator(DatasetIterator):
    """As outlier_hub's plugins are written: no super().__init__(), common names on self, plain positions only."""

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


class ClientWrapper(DatasetIteratorIF):
    """As mlgym's PostProcessedDatasetIterator."""

    def __init__(self, dataset_iterator: DatasetIteratorIF) -> None:
        self._dataset_iterator = dataset_iterator

    def __len__(self) -> int:
        return len(self._dataset_iterator)

    def __getitem__(self, index: int) -> Any:
        return self._dataset_iterator[index]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        return [self._dataset_iterator]


def sequence() -> SequenceDatasetIterator:
    return SequenceDatasetIterator([[i * 10 for i in range(N)], [i % 2 for i in range(N)], [i % 2 for i in range(N)]])


STACKS: dict[str, Callable[[], DatasetIteratorIF]] = {
    "sequence of lists": sequence,
    "sequence of arrays": lambda: SequenceDatasetIterator([np.arange(N) * 10, np.arange(N) % 2, np.arange(N) % 2]),
    "sequence of tensors": lambda: SequenceDatasetIterator([torch.arange(N) * 10, torch.arange(N) % 2, torch.arange(N) % 2]),
    "view of a client's": lambda: DatasetIteratorView(ClientIterator(), range(N)),
    "view of views": lambda: DatasetIteratorView(DatasetIteratorView(sequence(), range(N)[::-1]), range(N)[::-1]),
    "informed client's": lambda: InformedDatasetIterator(ClientIterator(), DatasetMeta()),
    "informed client's wrapper": lambda: InformedDatasetIterator(ClientWrapper(sequence()), DatasetMeta()),
    "combined": lambda: CombinedDatasetIterator(
        [
            DatasetIteratorView(ClientIterator(), [0, 1]),
            sequence()[:0],
            sequence()[2:5],
            CombinedDatasetIterator([sequence()[5:]]),
        ]
    ),
    "combined folds of one source": lambda: (lambda s: CombinedDatasetIterator([s[:4], s[4:8], s[8:]]))(
        ClientIteratorSliceable()
    ),
    "in memory": lambda: InMemoryDatasetIterator(ClientIterator()),
    "view of a list": lambda: DatasetIteratorView([(i * 10, i % 2, i % 2) for i in range(N)], range(N)),  # type: ignore[arg-type]  # as the original allowed
}


class ClientIteratorSliceable(ClientIterator):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) if type(index) is int else DatasetIteratorView(self, index)


@pytest.fixture(params=list(STACKS))
def iterator(request: pytest.FixtureRequest) -> DatasetIteratorIF:
    return STACKS[request.param]()


EXPECTED = [(i * 10, i % 2, i % 2) for i in range(N)]


def plain(sample: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in sample)


def test_iterating_gives_every_sample_in_order(iterator: DatasetIteratorIF) -> None:
    assert [plain(sample) for sample in iterator] == EXPECTED


@pytest.mark.parametrize("index", [*range(-N, N), np.int64(3), np.int32(-1), np.uint8(9), np.array(4), torch.tensor(-2), True])
def test_positions_mean_what_they_mean_in_a_list(iterator: DatasetIteratorIF, index: Any) -> None:
    assert plain(iterator[index]) == EXPECTED[int(index)]


@pytest.mark.parametrize("index", [N, -N - 1, N + 100, 1 << 70, np.int64(N), np.uint64(2**64 - 1)])
def test_a_position_outside_is_an_index_error(iterator: DatasetIteratorIF, index: Any) -> None:
    with pytest.raises(DatasetOutOfBoundsError):
        iterator[index]


@pytest.mark.parametrize("index", [1.0, "1", None, np.float64(1), (0, 1), np.zeros((2, 2), dtype=int), {1, 2}, [0.5], ["a"]])
def test_what_is_no_position_is_a_type_error(iterator: DatasetIteratorIF, index: Any) -> None:
    with pytest.raises(TypeError):
        iterator[index]


@pytest.mark.parametrize(
    "index",
    [
        slice(2, 5),
        slice(None, None, -1),
        slice(8, 100, 2),
        slice(3, 3),
        [1, -1, 1],
        [],
        range(3),
        np.array([0, 9], dtype=np.uint8),
        np.arange(N) > 6,
        [i == 4 for i in range(N)],
        torch.tensor([3, 1]),
    ],
)
def test_slices_and_index_arrays_give_views(iterator: DatasetIteratorIF, index: Any) -> None:
    view = iterator[index]

    assert view.underlying_iterators == [iterator]
    expected = np.arange(N)[np.asarray(index, dtype=int) if isinstance(index, list) and not index else index]
    assert [plain(sample) for sample in view] == [EXPECTED[i] for i in expected]


def test_batches_have_the_samples_in_the_order_asked_for(iterator: DatasetIteratorIF) -> None:
    indices = [7, 0, -1, 7, 3]

    batch = iterator.read_batch(indices)

    assert isinstance(batch, tuple)
    assert {column.dtype for column in batch} == {np.dtype(np.int64)}
    assert [column.tolist() for column in batch] == [[EXPECTED[i][key] for i in indices] for key in range(3)]
    assert [plain(sample) for sample in iterator.__getitems__(indices)] == [EXPECTED[i] for i in indices]


def test_columns_are_read_whole_and_in_part(iterator: DatasetIteratorIF) -> None:
    assert iterator.read_column(0).tolist() == [i * 10 for i in range(N)]
    assert iterator.read_column(1, [3, -2]).tolist() == [1, 0]
    assert iterator.read_column(-1, np.arange(N) < 2).tolist() == [0, 1]


def test_reading_nothing_gives_empty_columns_of_the_right_kind(iterator: DatasetIteratorIF) -> None:
    batch = iterator.read_batch([])

    assert isinstance(batch, tuple)
    assert [column.shape for column in batch] == [(0,)] * 3
    assert {column.dtype for column in batch} == {np.dtype(np.int64)}
    assert iterator.read_column(0, []).shape == (0,)
    assert iterator.__getitems__([]) == []


@pytest.mark.parametrize("key", [3, -4, "target"])
def test_a_column_that_is_not_there_is_named_in_the_error(iterator: DatasetIteratorIF, key: Any) -> None:
    with pytest.raises(ConfigError, match=f"no column {key!r}.*0 to 2"):
        iterator.read_column(key)


def test_batches_with_a_position_outside_fail_as_a_whole(iterator: DatasetIteratorIF) -> None:
    for read in (iterator.__getitems__, iterator.read_batch, lambda indices: iterator.read_column(0, indices)):
        with pytest.raises(DatasetOutOfBoundsError, match="position 99"):
            read([0, 99])
    with pytest.raises(DatasetOutOfBoundsError, match="mask of 3"):
        iterator.read_batch([True, False, True])


def test_a_data_loader_reads_batches_and_fails_on_a_sampler_that_leaves_the_dataset(iterator: DatasetIteratorIF) -> None:
    loader: DataLoader[Any] = DataLoader(iterator, batch_size=4)  # type: ignore[arg-type]  # a map-style dataset by protocol
    assert torch.cat([samples for samples, _, _ in loader]).tolist() == [i * 10 for i in range(N)]

    wandering: DataLoader[Any] = DataLoader(iterator, sampler=[0, 1, 99, 2])  # type: ignore[arg-type]  # as above
    with pytest.raises(IndexError):
        list(wandering)


class Doubled(SequenceDatasetIterator):
    """A client that changes samples only."""

    def __getitem__(self, index: Any) -> Any:
        sample, target = super().__getitem__(index)
        return sample * 2, target


class DoublingMixin:
    def __getitem__(self, index: Any) -> Any:
        sample, target = super().__getitem__(index)  # type: ignore[misc]  # a mixin
        return sample * 2, target


class DoubledByMixin(DoublingMixin, SequenceDatasetIterator):
    pass


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
        DoubledByMixin([[1, 2, 3], [7, 8, 9]]),
        DoubledView(SequenceDatasetIterator([[1, 2, 3], [7, 8, 9]]), [0, 1, 2]),
    ],
)
def test_a_subclass_that_changes_samples_changes_batches_columns_and_views(doubled: DatasetIteratorIF) -> None:
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


def test_only_the_three_members_of_the_original_are_abstract() -> None:
    assert DatasetIteratorIF.__abstractmethods__ == {"__len__", "__getitem__", "underlying_iterators"}
