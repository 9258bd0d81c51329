"""What each wrapper adds to the contract."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from data_stack.dataset.iterator import (
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import MetaFactory
from data_stack.exception import DatasetOutOfBoundsError

# --- views ----------------------------------------------------------------------------------------


def test_a_view_has_its_indices_and_tags() -> None:
    source = SequenceDatasetIterator([list(range(10))])

    view = DatasetIteratorView(source, [3, -1], view_tags={"fold": 1})

    assert view.indices == [3, 9]
    assert view.view_tags == {"fold": 1}
    assert DatasetIteratorView(source, range(2)).view_tags is None
    assert DatasetIteratorView(source, np.array([4, 2])).indices.tolist() == [4, 2]


# --- combined -------------------------------------------------------------------------------------


def test_combined_iterators_without_samples_keep_their_columns() -> None:
    empty = SequenceDatasetIterator([np.ones((5, 3), np.uint8), list("abcde")]).take(0)

    combined = empty.combine(empty)
    batch: Any = combined.read_batch([])

    assert [column.shape for column in batch] == [(0, 3), (0,)]
    assert [combined.read_column(key).dtype.name for key in (0, 1)] == ["uint8", "object"]


# --- sequences ------------------------------------------------------------------------------------


def test_a_series_is_read_by_position_not_by_label() -> None:
    series = pd.Series([10, 20, 30], index=[2, 1, 0])
    iterator = SequenceDatasetIterator([series, pd.Series(["x", "y", "z"], index=list("abc"))])

    assert [iterator[0], iterator[-1]] == [(10, "x"), (30, "z")]
    assert iterator.read_column(0, [0, 2]).tolist() == [10, 30]
    assert iterator.read_column(1).tolist() == ["x", "y", "z"]
    assert pickle.loads(pickle.dumps(iterator))[0] == (10, "x")


def test_h5py_datasets_are_sequences(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as file:
        images = file.create_dataset("images", data=np.arange(12).reshape(4, 3))
        names = file.create_dataset(
            "names", data=[b"a", b"bcd", b"e", b"f"], dtype=h5py.string_dtype()
        )
        iterator = SequenceDatasetIterator([images, names])

        for indices in ([1, 2, 3], [3, 0, 3]):
            batch = iterator.read_batch(indices)
            assert batch[0].tolist() == np.arange(12).reshape(4, 3)[indices].tolist()
            assert batch[1].tolist() == [iterator[i][1] for i in indices]
        assert iterator.read_batch([])[0].shape == (0, 3)
        with pytest.raises(DatasetOutOfBoundsError):
            iterator[4]


def test_attributes_of_a_layer_are_on_its_informed_iterator() -> None:
    source = SequenceDatasetIterator([[5, 6, 7], [0, 1, 0]])
    informed = InformedDatasetIterator(source, MetaFactory.get_dataset_meta(identifier="x"))

    view: Any = pickle.loads(pickle.dumps(informed.take(2)))

    assert (list(view.indices), view.view_tags) == ([0, 1], None)
    with pytest.raises(
        AttributeError, match="'InformedDatasetIterator' object has no attribute 'shufle'"
    ):
        view.shufle(3)
    assert not hasattr(object.__new__(InformedDatasetIterator), "anything")
