"""The meta of samples, which says which column is the target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError
from data_stack.formats.numpy_arrays import NumpyDatasetIterator
from data_stack.formats.targets import with_target


def make_tuples(n_columns: int, tmp_path_factory: pytest.TempPathFactory) -> NumpyDatasetIterator:
    folder = tmp_path_factory.mktemp("columns")
    paths = []
    for number in range(n_columns):
        path = folder / f"{number}.npy"
        np.save(path, np.arange(3))
        paths.append(path)
    return NumpyDatasetIterator(paths)


def meta_of(iterator: Any) -> DatasetMeta:
    meta: DatasetMeta = iterator.dataset_meta
    return meta


def test_the_only_other_column_is_the_sample(tmp_path_factory: pytest.TempPathFactory) -> None:
    iterator = make_tuples(2, tmp_path_factory)

    meta = meta_of(with_target(iterator, "pairs", [0, 1], 1))

    assert (meta.sample_pos, meta.target_pos) == (0, 1)


def test_the_first_column_can_be_named_as_sample(tmp_path_factory: pytest.TempPathFactory) -> None:
    iterator = make_tuples(3, tmp_path_factory)

    meta = meta_of(with_target(iterator, "triples", [0, 1, 2], 2, sample=0))

    assert meta.sample_pos == 0


def test_class_names_make_the_target_a_label(tmp_path_factory: pytest.TempPathFactory) -> None:
    iterator = make_tuples(2, tmp_path_factory)

    labelled = meta_of(with_target(iterator, "pairs", [0, 1], 1, class_names=["cat", "dog"]))
    plain = meta_of(with_target(iterator, "pairs", [0, 1], 1, class_names=[]))

    assert (labelled.target_kind, labelled.class_names) == ("label", ("cat", "dog"))
    assert (plain.target_kind, plain.class_names) == (None, None)


def test_an_unknown_target_lists_the_columns(tmp_path_factory: pytest.TempPathFactory) -> None:
    iterator = make_tuples(2, tmp_path_factory)

    with pytest.raises(ConfigError, match="target 2 is not a column; the columns are 0, 1"):
        with_target(iterator, "pairs", [0, 1], 2)
