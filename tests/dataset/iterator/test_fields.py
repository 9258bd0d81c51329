"""Columns chosen, renamed, named and unnamed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layer_laws import Samples

from data_stack.dataset.iterator import (
    Batch,
    Column,
    DatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIterator,
)
from data_stack.dataset.iterator.layers.fields import (
    FieldsDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records


class Recording(DatasetIterator):
    """Dicts ``{"image", "label", "tag"}`` from a store of columns; tells what it was asked for."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self._columns = {"image": np.arange(20).reshape(5, 4), "label": np.arange(5) % 2, "tag": np.arange(5)}

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        self.requests.append(index)
        return {key: column[index] for key, column in self._columns.items()}

    def read_batch(self, indices: Any) -> Batch:
        self.requests.append("batch")
        return {key: column[indices] for key, column in self._columns.items()}

    def read_column(self, key: Any, indices: Any = None) -> Column:
        self.requests.append(key)
        return self._columns[key][slice(None) if indices is None else indices]


def test_only_sample_0_is_read_when_columns_are_chosen_and_only_they_are_read_later() -> None:
    source = Recording()

    selected = source.select("label", "tag").rename({"label": "target"}).as_tuple("target")
    assert (set(source.requests), len(selected)) == ({0}, 5)
    batch = selected.read_batch([1, 0])

    assert isinstance(batch, tuple)
    assert batch[0].tolist() == [1, 0]
    assert set(source.requests) == {0, "label"}
    assert source.requests.count(0) <= 3  # sample 0, once for each layer that wants to know what columns there are


TUPLES = [(1, 2, 3)]
DICTS = [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("samples", "make"),
    [
        (TUPLES, lambda it: FieldsDatasetIterator(it, [])),
        (TUPLES, lambda it: FieldsDatasetIterator(it, "label")),
        (TUPLES, lambda it: it.select(1, 0, 1)),
        (TUPLES, lambda it: it.rename(["a"])),
        (TUPLES, lambda it: it.rename({"a": 1})),
        (TUPLES, lambda it: it.as_dict("a", "b", "a")),
        (TUPLES, lambda it: it.select("a")),
        (DICTS, lambda it: it.select("c")),
        (DICTS, lambda it: it.as_tuple("a", "x")),
        (DICTS, lambda it: it.rename({"x": "y"})),
        (DICTS, lambda it: it.rename({"a": "b"})),
        ([5], lambda it: it.select("a")),
    ],
)
def test_names_and_columns_that_cannot_be_meant_are_refused_at_once(samples: list[Any], make: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigError):
        make(Samples(samples))


@pytest.mark.parametrize(
    ("samples", "make"),
    [
        (TUPLES, lambda it: it.select(3)),
        (TUPLES, lambda it: it.select(2, -1)),
        (TUPLES, lambda it: it.as_dict("a", "b")),
        (DICTS, lambda it: it.as_dict("x", "y")),
        (["text"], lambda it: it.as_tuple()),
        ([np.ones(3)], lambda it: it.as_dict("a", "b", "c")),
        ([(1, 2), {"a": 1}], lambda it: it.as_tuple()),
    ],
)
def test_columns_that_the_samples_lack_are_refused_when_a_sample_is_read(
    samples: list[Any], make: Callable[[Any], DatasetIteratorIF]
) -> None:
    iterator = make(Samples(samples))

    for read in (list, lambda it: it.__getitems__(range(len(it))), lambda it: it.read_batch(range(len(it)))):
        with pytest.raises(ConfigError):
            read(iterator)


def test_a_key_is_looked_for_in_the_schema_where_there_is_one(tmp_path: Path) -> None:
    with records.RecordWriter(tmp_path / "records", {"a": "i64", "b": "utf8[]"}) as writer:
        writer.append({"a": 1, "b": ["x"]})
    data = bytearray((tmp_path / "records" / "b.bag").read_bytes())
    data[-1] ^= 1  # damage that reading a sample finds
    (tmp_path / "records" / "b.bag").write_bytes(data)
    reader = records.open(tmp_path / "records")

    with pytest.raises(ConfigError, match="no column 'c': they have the columns 'a', 'b'"):
        reader.take(1).select("c")

    with pytest.raises(DatasetFileCorruptError):
        reader.take(1).select("b")[0]


META = DatasetMeta(IteratorMeta(0, 1, 2), "id", "digits", "train", "label", ("zero", "one"), ("x", "y"))


def followed(samples: list[Any], meta: DatasetMeta, make: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """Where the meta of a layer says the columns are."""
    found: DatasetMeta = make(InformedDatasetIterator(Samples(samples), meta)).dataset_meta
    return found.sample_pos, found.target_pos, found.tag_pos


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda it: it.select(1, 0, 2), (1, 0, 2)),
        (lambda it: it.select(2, 0), (1, "target", 0)),
        (lambda it: it.select(-1, -2), ("sample", 1, 0)),
        (lambda it: it.as_tuple(1), ("sample", 0, "tag")),
        (lambda it: it.as_tuple(), (0, 1, 2)),
        (lambda it: it.as_dict("image", "label", "tag"), ("image", "label", "tag")),
        (lambda it: it.as_dict("image", "label", "tag").rename({"label": "y"}), ("image", "y", "tag")),
        (lambda it: it.as_dict("image", "label", "tag").select("label", "image"), ("image", "label", "tag")),
        (lambda it: it.as_dict("image", "label", "tag").as_tuple("label", "image"), (1, 0, "tag")),
        (lambda it: it.as_dict("image", "label", "tag").select("label").as_tuple(), ("image", 0, "tag")),
    ],
)
def test_the_meta_follows_the_columns(make: Callable[[Any], Any], expected: tuple[Any, Any, Any]) -> None:
    assert followed([(10, 1, 2)], META, make) == expected


def test_what_was_known_of_a_column_goes_with_it_and_asking_for_it_says_what_there_is() -> None:
    informed: Any = InformedDatasetIterator(Samples([(10, 1, 2)]), META)

    images, labels = informed.select(0, 2), informed.select(1)

    assert (images.dataset_meta.target_kind, images.dataset_meta.class_names) == (None, None)
    assert images.dataset_meta.feature_names == ("x", "y")
    assert (labels.dataset_meta.class_names, labels.dataset_meta.feature_names) == (("zero", "one"), None)
    assert labels.dataset_meta.provenance == ("fields",)
    with pytest.raises(ConfigError, match="no column 'target': they have the columns 0 to 1"):
        images.read_column(images.dataset_meta.target_pos)
