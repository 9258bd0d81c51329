"""Columns of tuple samples by the names that a dataset declares; positions go on working, and
stacks keep the names.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from data_stack import DatasetCard, DatasetFactory, Resources
from data_stack.dataset.encoders import ClassMapping, ContinuousEncoder
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIteratorIF,
    SequenceDatasetIterator,
    column_names,
)
from data_stack.dataset.meta import IteratorMeta
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
        return SequenceDatasetIterator(
            [[i / 2 for i in range(n)], [i % 3 for i in range(n)], list(range(n))]
        )


@pytest.fixture
def flowers() -> InformedDatasetIteratorIF:
    repository = DatasetRepository()
    repository.register("flowers", Flowers)
    iterator: InformedDatasetIteratorIF = repository.load("flowers", "all")
    return iterator


ASKED: list[Callable[[Any, str], Any]] = [
    lambda it, name: it.read_column(name),
    lambda it, name: it.select(name),
    lambda it, name: it.filter(bool, column=name),
    lambda it, name: it.sort(name),
    lambda it, name: it.split([0.5, 0.5], stratify=name),
    lambda it, name: it.encode({name: ClassMapping({0: 1})}),
    lambda it, name: it.one_hot(column=name),
    lambda it, name: it.windows(2, offsets={0: [name]}),
]


def test_an_unknown_name_is_refused_at_once(
    flowers: InformedDatasetIteratorIF,
) -> None:
    message = r"no column 'specis' \(did you mean 'species'\?\): they have the columns 'size', 'species', 'number'"

    for ask in ASKED:
        with pytest.raises(ConfigError, match=message):
            ask(flowers, "specis")
    with pytest.raises(ConfigError, match="no column 3"):
        flowers.select(3)


SAME: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda it: it.select("number", "size"), lambda it: it.select(2, 0)),
    (
        lambda it: it.windows(2, offsets={0: ["size"], 1: None}),
        lambda it: it.windows(2, offsets={0: [0], 1: None}),
    ),
    (
        lambda it: it.split([0.5, 0.5], stratify="species")[0],
        lambda it: it.split([0.5, 0.5], stratify=1)[0],
    ),
    (
        lambda it: it.encode({"size": ContinuousEncoder()}, fit_on=it),
        lambda it: it.encode({0: ContinuousEncoder()}, fit_on=it),
    ),
]


@pytest.mark.parametrize(("by_name", "by_position"), SAME)
def test_a_layer_by_names_is_the_layer_by_positions(
    flowers: InformedDatasetIteratorIF,
    by_name: Callable[[Any], Any],
    by_position: Callable[[Any], Any],
) -> None:
    named, numbered = by_name(flowers), by_position(flowers)

    assert [str(sample) for sample in named] == [str(sample) for sample in numbered]
    assert named.fingerprint() == numbered.fingerprint()
    assert named.dataset_meta == numbered.dataset_meta


def identity(sample: Any) -> Any:
    return sample


KEPT: list[Callable[[Any], Any]] = [
    lambda it: it.map(identity, columns=["size", "species", "number"]),
    lambda it: it.map(str, column="number"),
    lambda it: it.combine(it.skip(1)),
    lambda it: it.mix(it, proportions=[1, 1], seed=1),
    lambda it: it.windows(2),
    lambda it: it.encode({"size": ContinuousEncoder()}, fit_on=it),
    lambda it: pickle.loads(pickle.dumps(it.take(4))),
    lambda it: it.as_dict().as_tuple("size", "species", "number"),
]


@pytest.mark.parametrize("stack", KEPT)
def test_layers_keep_the_names(
    flowers: InformedDatasetIteratorIF, stack: Callable[[Any], Any]
) -> None:
    stacked = stack(flowers)

    assert column_names(stacked) == ("size", "species", "number")
    assert str(stacked.read_column("species")) == str(stacked.read_column(1))


LOST = r"may move its columns, .* map\(function, columns=\[…\]\), or map one column, map\(function, column=…\)"


@pytest.mark.parametrize(
    "function", [identity, lambda sample: sample[::-1], lambda sample: sample[:2]]
)
def test_a_map_of_whole_tuples_loses_the_names(
    flowers: InformedDatasetIteratorIF, function: Callable[[Any], Any]
) -> None:
    mapped = flowers.map(function).skip(1).in_memory()

    for ask in ASKED:
        with pytest.raises(ConfigError, match=LOST):
            ask(mapped, "species")
    with pytest.raises(ConfigError, match=LOST):
        mapped.as_dict()
    assert (
        column_names(mapped),
        column_names(mapped.select(0)),
        repr(mapped).count("species"),
    ) == ((), (), 0)
    assert (
        mapped.as_dict(*"abc"[: len(mapped[0])]).read_column("a").tolist()
        == mapped.read_column(0).tolist()
    )


def test_a_map_that_declares_columns_has_these_names(flowers: InformedDatasetIteratorIF) -> None:
    swapped = flowers.map(lambda sample: (sample[1], sample[0]), columns=["species", "size"])
    batched = flowers.map(
        lambda batch: (batch[1], batch[0]), columns=["species", "size"], batched=True
    )

    for each in (swapped, batched):
        assert column_names(each) == ("species", "size")
        assert each.read_column("size").tolist() == flowers.read_column("size").tolist()
        assert each.as_dict()[4] == {"species": 1, "size": 2.0}
        assert (
            each.split([1 / 3, 2 / 3], stratify=True)[0].read_column("species").tolist().count(2)
            == 1
        )
    assert repr(swapped).endswith("columns species, size>")


@pytest.mark.parametrize(
    ("columns", "positions"),
    [
        (["number", "species", "size"], (2, 1, 0)),
        (["a", "b", "c"], (0, 1, 2)),
        (["species", "a"], ("sample", 0, "tag")),
        (["a", "species"], (0, 1, "tag")),
        (["a", "number"], (0, "target", 1)),
    ],
)
def test_the_roles_of_a_meta_follow_the_declared_names(
    flowers: InformedDatasetIteratorIF, columns: list[str], positions: tuple[Any, ...]
) -> None:
    mapped: Any = flowers.map(lambda sample: sample[: len(columns)], columns=columns)

    meta = mapped.dataset_meta
    assert (meta.sample_pos, meta.target_pos, meta.tag_pos) == positions
