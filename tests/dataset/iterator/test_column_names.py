"""Columns of tuple samples by the names that a dataset declares; positions go on working, and stacks keep the names."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from data_stack.dataset.encoders import ClassMapping, ContinuousEncoder
from data_stack.dataset.factory import DatasetCard, DatasetFactory
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIteratorIF,
    SequenceDatasetIterator,
    column_names,
)
from data_stack.dataset.meta import IteratorMeta, MetaFactory
from data_stack.dataset.prepared import Resources
from data_stack.exception import ConfigError
from data_stack.repository.repository import DatasetRepository


class Flowers(DatasetFactory):
    """Nine flowers: their size, their species, and their number."""

    card = DatasetCard(name="flowers", version="1")
    splits = ("all", "half")
    columns = ("size", "species", "number")
    iterator_meta = IteratorMeta("size", "species", "number")

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        n = 9 if split == "all" else 4
        return SequenceDatasetIterator([[i / 2 for i in range(n)], [i % 3 for i in range(n)], list(range(n))])


@pytest.fixture
def flowers() -> InformedDatasetIteratorIF:
    repository = DatasetRepository()
    repository.register("flowers", Flowers)
    iterator: InformedDatasetIteratorIF = repository.load("flowers", "all")
    return iterator


def test_a_column_is_read_by_its_name_and_by_its_position(flowers: InformedDatasetIteratorIF) -> None:
    assert flowers.read_column("species").tolist() == flowers.read_column(1).tolist() == [0, 1, 2] * 3
    assert flowers.read_column("number", [2, 0]).tolist() == [2, 0]
    assert flowers[3:6].read_column("number").tolist() == [3, 4, 5]
    assert flowers[[1, 7]][::-1].read_column("size", [0]).tolist() == [3.5]


def test_a_meta_of_names_is_one_of_positions_to_programs(flowers: InformedDatasetIteratorIF) -> None:
    meta = flowers.dataset_meta

    assert (meta.sample_pos, meta.target_pos, meta.tag_pos) == (0, 1, 2)
    assert meta.column_names == ("size", "species", "number")
    assert MetaFactory.get_dataset_meta_from_existing(meta, identifier="x").column_names == meta.column_names


def test_a_name_that_there_is_not_is_refused_where_it_is_asked_for(flowers: InformedDatasetIteratorIF) -> None:
    message = r"no column 'specis' \(did you mean 'species'\?\): they have the columns 'size', 'species', 'number'"

    asked: list[Callable[[], Any]] = [
        lambda: flowers.read_column("specis"),
        lambda: flowers.select("specis"),
        lambda: flowers.filter(bool, column="specis"),
        lambda: flowers.sort("specis"),
        lambda: flowers.split([0.5, 0.5], stratify="specis"),
        lambda: flowers.encode({"specis": ClassMapping({0: 1})}),
        lambda: flowers.one_hot(column="specis"),
    ]
    for each in asked:
        with pytest.raises(ConfigError, match=message):
            each()
    with pytest.raises(ConfigError, match="no column 3"):
        flowers.select(3)


SAME: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda it: it.select("number", "size"), lambda it: it.select(2, 0)),
    (lambda it: it.as_dict(), lambda it: it.as_dict("size", "species", "number")),
    (
        lambda it: it.filter(max, column=["species", "number"]),
        lambda it: it.filter(max, column=[1, 2]),
    ),
    (lambda it: it.sort("species", descending=True), lambda it: it.sort(1, descending=True)),
    (lambda it: it.balance(seed=1, by="species"), lambda it: it.balance(seed=1, by=1)),
    (
        lambda it: it.windows(2, offsets={0: ["size"], 1: None}),
        lambda it: it.windows(2, offsets={0: [0], 1: None}),
    ),
    (lambda it: it.split([0.5, 0.5], stratify="species")[0], lambda it: it.split([0.5, 0.5], stratify=1)[0]),
    (lambda it: it.folds(3, stratify="species")[0].train, lambda it: it.folds(3, stratify=1)[0].train),
    (
        lambda it: it.map_classes(ClassMapping({0: 7}, unmapped="drop"), columns=["number"]),
        lambda it: it.map_classes(ClassMapping({0: 7}, unmapped="drop"), columns=[2]),
    ),
    (lambda it: it.one_hot(column="species"), lambda it: it.one_hot(column=1)),
    (
        lambda it: it.encode({"size": ContinuousEncoder()}, fit_on=it),
        lambda it: it.encode({0: ContinuousEncoder()}, fit_on=it),
    ),
]


@pytest.mark.parametrize(("by_name", "by_position"), SAME)
def test_a_layer_by_names_is_the_layer_by_positions(
    flowers: InformedDatasetIteratorIF, by_name: Callable[[Any], Any], by_position: Callable[[Any], Any]
) -> None:
    named, numbered = by_name(flowers), by_position(flowers)

    assert [str(sample) for sample in named] == [str(sample) for sample in numbered]
    assert named.fingerprint() == numbered.fingerprint()
    assert named.dataset_meta == numbered.dataset_meta


def identity(sample: Any) -> Any:
    return sample


KEPT: list[Callable[[Any], Any]] = [
    lambda it: it[2:],
    lambda it: it.map(identity),
    lambda it: it.combine(it.skip(1)),
    lambda it: it.mix(it, proportions=[1, 1], seed=1),
    lambda it: it.windows(2),
    lambda it: it.in_memory(),
    lambda it: it.shard(0, 2),
    lambda it: it.encode({"size": ContinuousEncoder()}, fit_on=it),
    lambda it: pickle.loads(pickle.dumps(it.take(4))),
    lambda it: it.as_dict().as_tuple("size", "species", "number"),
]


@pytest.mark.parametrize("stack", KEPT)
def test_layers_keep_the_names(flowers: InformedDatasetIteratorIF, stack: Callable[[Any], Any]) -> None:
    stacked = stack(flowers)

    assert column_names(stacked) == ("size", "species", "number")
    assert str(stacked.read_column("species")) == str(stacked.read_column(1))


def test_a_map_that_changes_the_number_of_columns_drops_the_names(flowers: InformedDatasetIteratorIF) -> None:
    pairs, dicts = flowers.map(lambda sample: sample[:2]), flowers.map(lambda sample: {"species": sample[1]})

    with pytest.raises(ConfigError, match="no column 'species': it has the columns 0 to 1"):
        pairs.read_column("species")
    assert (column_names(pairs), column_names(pairs.select(0))) == ((), ())
    assert dicts.read_column("species").tolist() == flowers.read_column("species").tolist()


def test_columns_side_by_side_have_names_where_no_two_are_the_same(flowers: InformedDatasetIteratorIF) -> None:
    others = flowers.as_dict("a", "b", "c").as_tuple()

    assert column_names(flowers.zip(others)) == ("size", "species", "number", "a", "b", "c")
    assert column_names(flowers.zip(flowers)) == column_names(flowers.zip(SequenceDatasetIterator([range(9)]))) == ()


def test_names_are_seen_in_representation_report_and_data_frame(flowers: InformedDatasetIteratorIF) -> None:
    frame = pd.DataFrame(flowers.as_dict().read_batch(range(3)))

    assert repr(flowers) == "<InformedDatasetIterator: 9 samples of 'flowers/all', columns size, species, number>"
    assert "| species | target | int64 | one value |" in str(flowers.report())
    assert [column["name"] for column in flowers.report("dict")["columns"]] == ["size", "species", "number"]
    assert frame.to_dict("list") == {"size": [0.0, 0.5, 1.0], "species": [0, 1, 2], "number": [0, 1, 2]}


@pytest.mark.parametrize("columns", ["image", ("a", "a"), ("", "b"), (1, 2), 5])
def test_columns_are_distinct_names(columns: Any) -> None:
    factory = type("Wrong", (Flowers,), {"columns": columns, "iterator_meta": IteratorMeta()})

    with pytest.raises(ConfigError, match=r"Wrong\.columns"):
        factory().get_dataset_iterator()
