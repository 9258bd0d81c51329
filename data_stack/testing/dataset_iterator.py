"""The test suites of dataset iterators, their layers."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    DatasetIteratorView,
    SequenceDatasetIterator,
)
from data_stack.exception import ConfigError
from data_stack.loader import Loader
from data_stack.loader.workers.base import WorkerKind
from data_stack.testing.comparing import assert_same
from data_stack.testing.processes import call_in_process
from data_stack.values.stacking import stack_samples


class DatasetIteratorContract:
    """Inherit it in a test class, and define two fixtures: ``iterator``, and ``expected``, the list of its samples.

    Use at least three samples (an empty iterator may have a class of its own), different from one another.

    Attributes:
        pickles: whether the iterator can be sent to a spawned worker. Set it to False only if it cannot.
        has_views: whether ``iterator[2:5]``, ``iterator[[3, 1]]`` and ``iterator[-1]`` work. Set it to False for an iterator
            whose ``__getitem__`` accepts plain positions only; they are then tested on a view of all its samples, which is
            what splitters and loaders use.
    """

    pickles: ClassVar[bool] = True
    has_views: ClassVar[bool] = True

    @pytest.fixture
    def indexable(self, iterator: DatasetIteratorIF) -> DatasetIteratorIF:
        """An iterator that accepts slices, index arrays and negative positions."""
        return iterator if self.has_views else DatasetIteratorView(iterator, slice(None))

    def test_the_length_is_the_number_of_samples(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        assert len(iterator) == len(expected)

    def test_iterating_gives_all_samples_in_order_each_time(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        for first, second in zip(iterator, iterator, strict=True):  # two at once
            assert_same(first, second)
        assert_same(list(iterator), expected)
        assert_same(
            [iterator[position] for position in reversed(range(len(expected)))], expected[::-1]
        )

    def test_negative_positions_and_integers_of_numpy_are_positions(
        self, iterator: DatasetIteratorIF, indexable: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        for position in range(-len(expected), len(expected)):
            assert_same(indexable[position], expected[position])
        for integer in (np.int64, np.uint8, np.int32, np.intp):
            assert_same(iterator[integer(2)], expected[2])

    def test_a_position_outside_is_an_index_error(
        self, indexable: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        n_samples = len(expected)
        for position in (
            n_samples,
            n_samples + 1,
            10**12,
            10**30,
            -n_samples - 1,
            -(10**30),
            np.int64(n_samples),
        ):
            for wrong in (position, [0, position]):
                with pytest.raises(IndexError):
                    indexable[wrong]
            with pytest.raises(IndexError):
                indexable.read_batch([position])

    def test_slices_positions_and_one_bool_for_each_sample_give_views(
        self, indexable: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        last, mask = len(expected) - 1, np.arange(len(expected)) % 2 == 1
        slices = [
            slice(1, 3),
            slice(None),
            slice(None, None, -1),
            slice(-2, None),
            slice(0, 0),
            slice(1, 10**9, 2),
        ]
        positions: list[Any] = [
            [last, 0, 0],
            np.array([1, last]),
            np.array([-1], dtype=np.int8),
            range(last, 0, -1),
            [],
        ]
        parts: list[tuple[Any, list[Any]]] = [
            (mask, expected[1::2]),
            *((part, expected[part]) for part in slices),
        ]
        for part, samples in [
            *parts,
            *((part, [expected[position] for position in part]) for part in positions),
        ]:
            view = indexable[part]

            assert isinstance(view, DatasetIteratorIF)
            assert_same(list(view), samples)
        with pytest.raises(IndexError):
            indexable[mask[:-1]]

    def test_what_is_no_position_is_a_type_error(self, indexable: DatasetIteratorIF) -> None:
        for wrong in (1.0, "1", None, [[0, 1]], ["a"], np.array([0.5])):
            with pytest.raises(TypeError):
                indexable[wrong]

    def test_samples_batches_and_columns_are_read_in_the_order_asked_for(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        whole: Any = stack_samples(expected)
        for key in keys_of(expected[0]):
            assert_same(iterator.read_column(key), whole[key])
        for positions in orders(len(expected)):
            samples = [expected[position] for position in positions]
            assert_same(iterator.__getitems__(positions), samples)
            if samples:
                batch: Any = stack_samples(samples)
                assert_same(iterator.read_batch(positions), batch)
                for key in keys_of(expected[0]):
                    assert_same(iterator.read_column(key, positions), batch[key])

    def test_an_empty_batch_has_the_columns_of_a_full_one(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        empty, full = iterator.read_batch([]), stack_samples(expected[:1])

        assert type(empty) is type(full)
        for key in keys_of(expected[0]):
            column, full_column = (empty[key], full[key])  # type: ignore[index,unused-ignore]  # a tuple or a dict
            assert (column.dtype, column.shape) == (full_column.dtype, (0, *full_column.shape[1:]))

    def test_a_column_that_is_not_there_is_an_error_of_ours(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        for key in (99, "no such key") if keys_of(expected[0]) else ():
            with pytest.raises(ConfigError):
                iterator.read_column(key)

    def test_what_it_is_stacked_on_are_iterators(self, iterator: DatasetIteratorIF) -> None:
        underlying = iterator.underlying_iterators

        assert isinstance(underlying, Sequence)
        assert all(hasattr(part, "__getitem__") and hasattr(part, "__len__") for part in underlying)

    def test_it_pickles(self, iterator: DatasetIteratorIF, expected: list[Any]) -> None:
        if self.pickles:
            copy = pickle.loads(pickle.dumps(iterator))  # noqa: S301  # our own pickle

            assert_same(list(copy), expected)
            assert_same(list(iterator), expected)


def orders(n_samples: int) -> list[Any]:
    """Positions of batches."""
    last = n_samples - 1
    return [
        list(range(n_samples)), [last, 0, last, 0], np.array([last, 0]), np.array([0], dtype=np.uint8), np.array([-1, 0]),
        range(last, -1, -1), [],
    ]  # fmt: skip


def keys_of(sample: Any) -> list[Any]:
    """The columns of a sample; an empty list for a bare value."""
    if isinstance(sample, Mapping):
        return list(sample)
    return list(range(len(sample))) if isinstance(sample, (tuple, list)) else []


class LayerContract(DatasetIteratorContract):
    """Inherit it in a test class, and define :meth:`make_layer` and :meth:`expect`.

    The layer is tested on arrays, and on an iterator of a third party. Its samples are seven of
    ``(image, label, tag)``: float32 of shape ``(2, 2)``, an int, a str; override the fixture ``samples`` for others.
    """

    def make_layer(self, iterator: DatasetIteratorIF) -> DatasetIteratorIF:
        """The layer on ``iterator``."""
        raise NotImplementedError

    def expect(self, samples: list[Any]) -> list[Any]:
        """The samples of the layer on an iterator with these samples; at least three."""
        raise NotImplementedError

    @pytest.fixture
    def samples(self) -> list[Any]:
        """The samples below the layer: tuples."""
        return [(np.full((2, 2), i, dtype=np.float32), i % 3, "abcdefg"[i]) for i in range(7)]

    @pytest.fixture(params=["columns", "third party"])
    def source(self, request: pytest.FixtureRequest, samples: list[Any]) -> DatasetIteratorIF:
        """The iterator below the layer."""
        return (
            SequenceDatasetIterator([*zip(*samples, strict=True)])
            if request.param == "columns"
            else PlainIterator(samples)
        )

    @pytest.fixture
    def iterator(self, source: DatasetIteratorIF) -> DatasetIteratorIF:
        """The layer."""
        return self.make_layer(source)

    @pytest.fixture
    def expected(self, samples: list[Any]) -> list[Any]:
        """Its samples."""
        return self.expect(samples)

    def test_it_is_stacked_on_its_source_and_leaves_it_as_it_is(
        self, iterator: DatasetIteratorIF, source: DatasetIteratorIF, samples: list[Any]
    ) -> None:
        list(iterator)

        assert any(below is source for below in iterator.underlying_iterators)
        del iterator
        assert_same([source[i] for i in range(len(source))], samples)

    @pytest.mark.filterwarnings(
        "ignore:worker process:RuntimeWarning"
    )  # that it takes long to start, on a busy machine
    @pytest.mark.parametrize("kind", ["threads", "processes"])
    def test_workers_of_a_loader_read_the_same_samples(
        self, iterator: DatasetIteratorIF, kind: WorkerKind
    ) -> None:
        if kind == "processes" and not self.pickles:
            pytest.skip("pickles is False")

        with Loader(iterator, 2, workers=1, worker_kind=kind, timeout_seconds=60) as batches:
            assert_same(list(batches), list(Loader(iterator, 2, workers=0)))

    def test_its_recipe_is_json_and_its_fingerprint_the_same_in_every_process(
        self, iterator: DatasetIteratorIF
    ) -> None:
        assert json.loads(json.dumps(iterator.recipe())) == iterator.recipe()
        if self.pickles:
            assert call_in_process(_fingerprint, iterator) == iterator.fingerprint()


class PlainIterator(DatasetIteratorIF):
    """As third parties write them: the three methods of the original DataStack, and no call of ``super().__init__()``."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        return []


def _fingerprint(iterator: DatasetIteratorIF) -> str:
    return iterator.fingerprint()
