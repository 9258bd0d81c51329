"""The test suite of dataset iterators."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, DatasetIteratorView
from data_stack.exception import ConfigError
from data_stack.testing.comparing import assert_same
from data_stack.values.stacking import stack_samples


class DatasetIteratorContract:
    """What every dataset iterator promises.

    Inherit it in a test class, and define two fixtures: ``iterator``, and ``expected``, the list of
    its samples. Use at least three samples, different from one another. (An empty iterator may have
    a class of its own.)

    Attributes:
        pickles: whether the iterator can be sent to a spawned worker. Set it to False only if it
            cannot.
        has_views: whether ``iterator[2:5]``, ``iterator[[3, 1]]`` and ``iterator[-1]`` work. Set it
            to False for an iterator whose ``__getitem__`` accepts plain positions only. They are
            then tested on a view of all its samples, which is what splitters and loaders use.
    """

    pickles: ClassVar[bool] = True
    has_views: ClassVar[bool] = True

    @pytest.fixture
    def indexable(self, iterator: DatasetIteratorIF) -> DatasetIteratorIF:
        """Return an iterator that accepts slices, index arrays and negative positions."""
        if self.has_views:
            return iterator
        return DatasetIteratorView(iterator, slice(None))

    # ------------------------------------------------------------------ samples

    def test_the_length_is_the_number_of_samples(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """``len(iterator)`` is the number of samples."""
        assert len(iterator) == len(expected)

    def test_iterating_gives_all_samples_in_order_each_time(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """Two loops over one iterator do not disturb each other, nor do reads in another order."""
        for sample_of_first_loop, sample_of_second_loop in zip(iterator, iterator, strict=True):
            assert_same(sample_of_first_loop, sample_of_second_loop)

        assert_same(list(iterator), expected)
        backwards = [iterator[position] for position in reversed(range(len(expected)))]
        assert_same(backwards, expected[::-1])

    # ------------------------------------------------------------------ positions

    def test_negative_positions_and_integers_of_numpy_are_positions(
        self, iterator: DatasetIteratorIF, indexable: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """As in a list, -1 is the last sample; an integer of any type of numpy is a position."""
        for position in range(-len(expected), len(expected)):
            assert_same(indexable[position], expected[position])
        for integer_type in (np.int64, np.uint8, np.int32, np.intp):
            assert_same(iterator[integer_type(2)], expected[2])

    def test_a_position_outside_is_an_index_error(
        self, indexable: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """A position that no sample has raises IndexError, alone, in a list or in a batch."""
        n_samples = len(expected)
        positions_outside = [
            n_samples,
            n_samples + 1,
            10**12,
            10**30,
            -n_samples - 1,
            -(10**30),
            np.int64(n_samples),
        ]
        for position in positions_outside:
            with pytest.raises(IndexError):
                indexable[position]
            with pytest.raises(IndexError):
                indexable[[0, position]]
            with pytest.raises(IndexError):
                indexable.read_batch([position])

    def test_slices_give_views(self, indexable: DatasetIteratorIF, expected: list[Any]) -> None:
        """A slice is an iterator over the samples that the slice of a list would have."""
        slices = [
            slice(1, 3),
            slice(None),
            slice(None, None, -1),
            slice(-2, None),
            slice(0, 0),
            slice(1, 10**9, 2),
        ]
        for part in slices:
            view = indexable[part]

            assert isinstance(view, DatasetIteratorIF)
            assert_same(list(view), expected[part])

    def test_lists_of_positions_give_views(
        self, indexable: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """Positions in any order, repeated or negative, are an iterator over these samples."""
        last = len(expected) - 1
        lists_of_positions: list[Any] = [
            [last, 0, 0],
            np.array([1, last]),
            np.array([-1], dtype=np.int8),
            range(last, 0, -1),
            [],
        ]
        for positions in lists_of_positions:
            view = indexable[positions]

            assert isinstance(view, DatasetIteratorIF)
            assert_same(list(view), [expected[position] for position in positions])

    def test_one_bool_for_each_sample_gives_a_view(
        self, indexable: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """A mask selects samples; a mask of another length raises IndexError."""
        mask = np.arange(len(expected)) % 2 == 1

        view = indexable[mask]

        assert isinstance(view, DatasetIteratorIF)
        assert_same(list(view), expected[1::2])
        with pytest.raises(IndexError):
            indexable[mask[:-1]]

    def test_what_is_no_position_is_a_type_error(self, indexable: DatasetIteratorIF) -> None:
        """Floats, texts, None and nested lists are no positions."""
        for no_position in (1.0, "1", None, [[0, 1]], ["a"], np.array([0.5])):
            with pytest.raises(TypeError):
                indexable[no_position]

    # ------------------------------------------------------------------ batches and columns

    def test_batches_are_read_in_the_order_asked_for(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """``__getitems__`` returns samples, ``read_batch`` the same samples stacked."""
        for positions in orders(len(expected)):
            samples = [expected[position] for position in positions]
            assert_same(iterator.__getitems__(positions), samples)
            if samples:
                assert_same(iterator.read_batch(positions), stack_samples(samples))

    def test_columns_are_read_in_the_order_asked_for(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """``read_column`` returns a column of all samples, or of the positions that it gets."""
        for key in keys_of(expected[0]):
            columns: Any = stack_samples(expected)
            assert_same(iterator.read_column(key), columns[key])
            for positions in orders(len(expected)):
                samples = [expected[position] for position in positions]
                if samples:
                    columns = stack_samples(samples)
                    assert_same(iterator.read_column(key, positions), columns[key])

    def test_an_empty_batch_has_the_columns_of_a_full_one(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """The columns of no samples have the dtypes, and the shapes of samples, of others."""
        empty_batch: Any = iterator.read_batch([])
        full_batch: Any = stack_samples(expected[:1])

        assert type(empty_batch) is type(full_batch)
        for key in keys_of(expected[0]):
            shape_of_sample = full_batch[key].shape[1:]
            assert empty_batch[key].dtype == full_batch[key].dtype
            assert empty_batch[key].shape == (0, *shape_of_sample)

    def test_a_missing_column_is_a_config_error(
        self, iterator: DatasetIteratorIF, expected: list[Any]
    ) -> None:
        """A key that no column has raises ConfigError."""
        if not keys_of(expected[0]):
            pytest.skip("its samples are bare values, without columns")
        for key in (99, "no such key"):
            with pytest.raises(ConfigError):
                iterator.read_column(key)

    # ------------------------------------------------------------------ the iterator itself

    def test_what_it_is_stacked_on_are_iterators(self, iterator: DatasetIteratorIF) -> None:
        """``underlying_iterators`` is a sequence of iterators; empty for one that reads files."""
        underlying_iterators = iterator.underlying_iterators

        assert isinstance(underlying_iterators, Sequence)
        for underlying in underlying_iterators:
            assert hasattr(underlying, "__getitem__")
            assert hasattr(underlying, "__len__")

    def test_it_pickles(self, iterator: DatasetIteratorIF, expected: list[Any]) -> None:
        """A copy made by pickle has the same samples, and the original goes on working."""
        if not self.pickles:
            pytest.skip("pickles is False")

        copy = pickle.loads(pickle.dumps(iterator))  # noqa: S301  # our own pickle

        assert_same(list(copy), expected)
        assert_same(list(iterator), expected)


def orders(n_samples: int) -> list[Any]:
    """Return positions of batches: all, backwards, repeated, negative, as arrays, and none."""
    last = n_samples - 1
    return [
        list(range(n_samples)),
        [last, 0, last, 0],
        np.array([last, 0]),
        np.array([0], dtype=np.uint8),
        np.array([-1, 0]),
        range(last, -1, -1),
        [],
    ]


def keys_of(sample: Any) -> list[Any]:
    """Return the keys of a sample's columns; an empty list for a bare value."""
    if isinstance(sample, Mapping):
        return list(sample)
    if isinstance(sample, (tuple, list)):
        return list(range(len(sample)))
    return []
