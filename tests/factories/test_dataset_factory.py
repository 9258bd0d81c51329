"""The factories of the original keep their methods, and never call into a subclass."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest

import data_stack.dataset.preprocesor
from data_stack.dataset.factory import BaseDatasetFactory, HigherOrderDatasetFactory, InformedDatasetFactory
from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.dataset.preprocessor import PreprocessingHelpers
from data_stack.io.resources import ResourceFactory
from data_stack.io.storage_connectors import InMemoryStorageConnector

META = DatasetMeta(dataset_name="digits")


def numbers(n: int = 12) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([list(range(n))])


def test_a_factory_written_for_the_original_works() -> None:
    class ClientFactory(BaseDatasetFactory):
        def __init__(self, storage_connector: Any = None) -> None:
            super().__init__(storage_connector)
            self.raw_path = "raw"

        def check_exists(self) -> bool:
            raise AssertionError("the client's own business")

        _prepare = _retrieve_raw = _prepare_split = _get_resource_id = check_exists

        def get_dataset_iterator(self, config: Any = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
            return numbers(config["n"]), IteratorMeta()

    connector = InMemoryStorageConnector()
    factory = ClientFactory(connector)

    assert factory.storage_connector is connector
    assert BaseDatasetFactory(storage_connector=None).storage_connector is None
    iterator, meta = factory.get_dataset_iterator({"n": 3})
    assert list(iterator) == [(0,), (1,), (2,)]
    assert meta == IteratorMeta()


def test_a_factory_without_an_iterator_says_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match=r"BaseDatasetFactory must define get_dataset_iterator"):
        BaseDatasetFactory().get_dataset_iterator()


def test_higher_order_iterators_stack() -> None:
    combined = HigherOrderDatasetFactory.get_combined_dataset_iterator(iterators=[numbers(2), numbers(1)])
    view = HigherOrderDatasetFactory.get_dataset_iterator_view(combined, [2, 1], {"fold": 0})

    assert list(view) == [(0,), (1,)]
    assert view.view_tags == {"fold": 0}  # type: ignore[attr-defined]  # declared as any iterator, as in the original


@pytest.mark.parametrize(
    ("informed", "expected"),
    [
        (InformedDatasetFactory.get_dataset_iterator(numbers(2), META), [0, 1]),
        (InformedDatasetFactory.get_combined_dataset_iterator([numbers(1), numbers(2)], META), [0, 0, 1]),
        (InformedDatasetFactory.get_dataset_iterator_view(numbers(), META, [5, 4]), [5, 4]),
        (InformedDatasetFactory.get_in_memory_dataset_iterator(numbers(2), META), [0, 1]),
        # the order that the original gave for this seed
        (InformedDatasetFactory.get_shuffled_dataset_iterator(numbers(), META, 42), [7, 5, 2, 8, 9, 6, 11, 3, 4, 0, 1, 10]),
    ],
)
def test_informed_iterators_know_their_dataset(informed: InformedDatasetIteratorIF, expected: list[int]) -> None:
    assert [number for (number,) in informed] == expected
    assert informed.dataset_meta == META


@pytest.mark.parametrize(
    "helpers", [PreprocessingHelpers, PreprocessingHelpers(), data_stack.dataset.preprocesor.PreprocessingHelpers]
)
def test_a_gzip_resource_is_decompressed_under_its_name(helpers: Any) -> None:
    resource = ResourceFactory.get_resource("mnist/raw/labels.gz", io.BytesIO(gzip.compress(b"labels")))

    with helpers.get_gzip_stream(resource=resource) as decompressed:
        assert decompressed.identifier == "mnist/raw/labels.gz"
        assert decompressed.read() == b"labels"
    assert not resource.closed
