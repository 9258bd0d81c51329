"""Columns chosen, renamed, named and unnamed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples, check_all_ways_agree
from layer_laws import sources as any_sources

from data_stack.dataset.iterator import (
    Batch,
    Column,
    DatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.layers.fields import (
    DictsDatasetIterator,
    FieldsDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records

sources = any_sources().filter(lambda drawn: not drawn[1] or isinstance(drawn[1][0], (tuple, dict)))


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


def chosen(sample: Any, data: st.DataObject) -> list[Any]:
    """Some of the columns of a sample, negative positions among them."""
    keys = list(sample) if isinstance(sample, dict) else list(range(len(sample)))
    picked = data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))
    if isinstance(sample, dict):
        return picked
    return [key - len(sample) if data.draw(st.booleans()) else key for key in picked]


@given(source=sources, data=st.data())
def test_selected_columns_are_those_of_the_samples(source: tuple[DatasetIteratorIF, list[Any]], data: st.DataObject) -> None:
    iterator, samples = source
    empty = iterator.read_batch([])  # a bare array, if nothing tells the columns
    columns = chosen(samples[0] if samples else (isinstance(empty, (dict, tuple)) and empty) or (None,), data)

    selected = iterator.select(*columns)
    as_tuples = iterator.as_tuple(*columns)

    tuples = [tuple(sample[column] for column in columns) for sample in samples]
    dicts = [{column: sample[column] for column in columns} for sample in samples if isinstance(sample, dict)]
    check_all_ways_agree(selected, dicts or tuples, data)
    check_all_ways_agree(as_tuples, tuples, data)
    check_all_ways_agree(pickle.loads(pickle.dumps(selected)), dicts or tuples, data)


@given(source=sources, data=st.data())
def test_tuples_become_dicts_under_other_names_and_tuples_again(
    source: tuple[DatasetIteratorIF, list[Any]], data: st.DataObject
) -> None:
    iterator, samples = source
    width = max(1, len(samples[0] if samples else iterator.read_batch([])))

    tuples = iterator.as_tuple()
    dicts = tuples.as_dict(*[f"c{number}" for number in range(width)])
    renamed = dicts.rename({"c0": "first"})

    plain = [tuple(sample.values()) if isinstance(sample, dict) else sample for sample in samples]
    named = [{f"c{number}": value for number, value in enumerate(sample)} for sample in plain]
    check_all_ways_agree(tuples, plain, data)
    check_all_ways_agree(dicts, named, data)
    check_all_ways_agree(renamed, [{"first" if key == "c0" else key: value for key, value in d.items()} for d in named], data)
    check_all_ways_agree(pickle.loads(pickle.dumps(renamed.as_tuple())), plain, data)


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
        (TUPLES, lambda it: it.select(1.5)),
        (TUPLES, lambda it: it.rename(["a"])),
        (TUPLES, lambda it: it.rename({"a": "x", "b": "x"})),
        (TUPLES, lambda it: it.rename({"a": 1})),
        (TUPLES, lambda it: it.as_dict("a", "b", "a")),
        (TUPLES, lambda it: DictsDatasetIterator(it, "ab")),
        (TUPLES, lambda it: it.select("a")),
        (TUPLES, lambda it: it.rename({"a": "b"})),
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
        (DICTS, lambda it: it.select(0)),
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


def test_an_empty_iterator_has_no_samples_and_the_columns_that_are_known() -> None:
    known, unknown = SequenceDatasetIterator([np.empty((0, 3), dtype=np.uint8), [], []]), Samples([])

    batch = known.select(0, -1).as_dict("x", "y").read_batch([])

    assert isinstance(batch, dict)
    assert {key: column.shape for key, column in batch.items()} == {"x": (0, 3), "y": (0,)}
    assert known.select(0).read_column(0).dtype == np.uint8
    with pytest.raises(ConfigError, match="no column 1"):
        known.select(0).read_column(1)
    for layer in (unknown.select(7), unknown.rename({"a": "b"}), unknown.as_dict("a"), unknown.as_tuple("a"), unknown.as_tuple()):
        assert (list(layer), layer.read_batch([]), layer.__getitems__([])) == ([], (), [])
        assert layer.read_column("a").shape == layer.read_column(0, []).shape == (0,)


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
