"""Habits of programs written for the original DataStack that no interface states, and that go on
working.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from plain_connector import MinimalConnector
from written_dataset import Written

import data_stack
from data_stack.dataset.encoders import ContinuousEncoder
from data_stack.dataset.factory import InformedDatasetFactory
from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.dataset.meta import IteratorMeta, MetaFactory
from data_stack.dataset.splitter import (
    CVSplitterImpl,
    NestedCVSplitterImpl,
    RandomSplitterImpl,
    Splitter,
    SplitterFactory,
    StratifiedSplitterImpl,
)
from data_stack.exception import DatasetFileCorruptError, RetrievalError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.resources import ResourceFactory, StreamedResource
from data_stack.io.retriever import RetrieverFactory
from data_stack.io.storage_connectors import FileStorageConnector


class DictConnector(MinimalConnector):
    """A client's connector: the three methods, and chunks taken by iterating."""

    def set_resource(self, identifier: str, resource: Iterable[bytes]) -> None:  # type: ignore[override]  # as the client has it
        self.stored[identifier] = b"".join(resource)


class Factory(Written):
    """Three thousand numbers."""

    files = {"all": b"\n\x01\x02" * 1000}


def test_a_connector_of_three_methods_that_iterates_keeps_a_dataset() -> None:
    connector = DictConnector()

    iterator, _ = Factory(connector).get_dataset_iterator()

    assert (len(iterator), iterator[0], iterator[1]) == (3000, (10,), (1,))
    assert Factory(connector).is_ready()
    assert len(data_stack.load("iris", split="all", storage=connector)) == 150


def test_a_buffer_outlives_the_name_it_was_stored_under(tmp_path: Path) -> None:
    buffer = io.BytesIO(b"abc")
    FileStorageConnector(tmp_path).set_resource("x", ResourceFactory.get_resource("x", buffer))
    StreamedResource("y", buffer)

    assert not buffer.closed
    buffer.seek(0)
    assert buffer.read() == b"abc"


def test_wrong_digests_are_corrupt_files_however_many_there_are(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    jobs = [ResourceDefinition(f"x/{number}", str(tmp_path / "f"), "0" * 32) for number in range(4)]

    with pytest.raises(DatasetFileCorruptError) as caught:
        RetrieverFactory.get_file_retriever(FileStorageConnector(tmp_path / "root")).retrieve(jobs)

    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(caught.value, RetrievalError)
    assert (type(copy), str(copy)) == (type(caught.value), str(caught.value))


def labelled(n_samples: int) -> SequenceDatasetIterator:
    labels = [number % 3 for number in range(n_samples)]
    return SequenceDatasetIterator([list(range(n_samples)), labels, labels])


def test_splitters_answer_to_the_name_that_original_programs_know() -> None:
    iterator = labelled(30)

    drawn = RandomSplitterImpl(ratios=[0.5, 0.3, 0.2], seed=7)._determine_split_indices(
        dataset_length=30, ratios=[0.9, 0.1]
    )
    mixed = StratifiedSplitterImpl([0.5, 0.5], seed=7)._determine_split_indices(
        30, [0.8, 0.2], iterator
    )

    for parts, sizes in ((drawn, [27, 3]), (mixed, [24, 6])):
        assert [len(part) for part in parts] == sizes
        assert sorted(parts[0] + parts[1]) == list(range(30))


class EveryOther(RandomSplitterImpl):
    """A program's own way to divide."""

    def _determine_split_indices(self, dataset_length: int, ratios: Any) -> list[list[int]]:
        return [list(range(0, dataset_length, 2)), list(range(1, dataset_length, 2))]


class FirstOnes(StratifiedSplitterImpl):
    """Another one, which looks at the iterator."""

    def _determine_split_indices(
        self, dataset_length: int, ratios: Any, dataset_iterator: DatasetIteratorIF
    ) -> list[list[int]]:
        return [
            [i for i in range(dataset_length) if dataset_iterator[i][1] == label]
            for label in (0, 1)
        ]


@pytest.mark.parametrize(
    ("impl", "expected"), [(EveryOther, [[0, 2, 4], [1, 3, 5]]), (FirstOnes, [[0, 3], [1, 4]])]
)
def test_a_program_that_divides_by_its_own_rule_is_obeyed(
    impl: Any, expected: list[list[int]]
) -> None:
    splitter = Splitter(impl([0.5, 0.5], seed=1))

    assert splitter.get_indices(labelled(6)) == expected
    assert [part.indices for part in splitter.split(labelled(6))] == expected


class Reversed(CVSplitterImpl):
    """A program's own folds, which the original read the indices off."""

    def split(self, dataset_iterator: DatasetIteratorIF) -> list[DatasetIteratorView]:
        return super().split(dataset_iterator)[::-1]


class NestedReversed(NestedCVSplitterImpl):
    """The same of nested ones."""

    def split(self, dataset_iterator: DatasetIteratorIF) -> Any:
        outer, inner = super().split(dataset_iterator)
        return outer[::-1], inner[::-1]


def test_indices_of_folds_follow_a_split_that_programs_redefine() -> None:
    folds, nested = (
        CVSplitterImpl(3).get_indices(labelled(12)),
        NestedCVSplitterImpl(3, 2).get_indices(labelled(12)),
    )

    assert Reversed(3).get_indices(labelled(12)) == folds[::-1]
    assert NestedReversed(3, 2).get_indices(labelled(12)) == (nested[0][::-1], nested[1][::-1])


FLUENT_NAMES = [name for name in vars(FluentIterator) if not name.startswith("_")]


class ClientIterator(DatasetIteratorIF):
    """A client's iterator as the original's interface asks for it."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[float, int, int]:
        return float(index), index % 3, index % 3

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        return []


def refused(self: Any, *arguments: Any, **options: Any) -> Any:
    raise AssertionError("data_stack called a method that belongs to the client")


IN_THE_WAY: list[dict[str, Any]] = [
    dict.fromkeys(FLUENT_NAMES, 7),
    dict.fromkeys(FLUENT_NAMES, refused),
    dict.fromkeys(FLUENT_NAMES, property(refused)),
]


@pytest.mark.parametrize("members", IN_THE_WAY, ids=["attributes", "methods", "properties"])
def test_a_client_may_have_members_named_like_our_methods(members: dict[str, Any]) -> None:
    client = type("Client", (ClientIterator,), dict(members))()
    meta = MetaFactory.get_dataset_meta(
        identifier="x", dataset_name="clients", dataset_tag="all", iterator_meta=IteratorMeta()
    )
    informed = InformedDatasetFactory.get_dataset_iterator(client, meta)

    stack = informed.filter(lambda label: label > 0, column=1).encode(
        {0: ContinuousEncoder()}, fit_on=client
    )
    again = data_stack.from_recipe(informed.shuffle(1).recipe(), sources=[client])

    assert len(stack.combine(client, informed).report().sub_reports) == 3
    assert again.fingerprint() == informed.shuffle(1).fingerprint()
    assert len(SplitterFactory.get_stratified_splitter([0.5, 0.5], seed=1).split(client)[0]) == 6
    assert "Client" in str(informed.take(3).explain())
    assert data_stack.find_duplicates({"a": client, "b": informed.take(1)}).is_leaking


@pytest.mark.parametrize("name", ["_reader", "_samples", "_indices", "_source"])
def test_private_attributes_of_a_client_are_not_taken_for_ours(name: str) -> None:
    client = ClientIterator()
    setattr(client, name, {"a client's": "own"})

    stack = (
        CombinedDatasetIterator([client, DatasetIteratorView(client, [1, 2])])
        .take(13)
        .map_classes({0: "no"})
    )

    assert (stack[12], stack.read_column(1, [0, 1]).tolist()) == ((1.0, 1, 1), ["no", 1])
    assert len(client.split([0.5, 0.5])[0]) == 6
