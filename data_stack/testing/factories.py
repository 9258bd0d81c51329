"""What every declared dataset promises."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from data_stack.dataset.declarative import DatasetFactory, dataset_folder
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.stacking import stack_samples, value_of
from data_stack.exception import ConfigError, UnknownSplitError
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.testing.iterators import assert_same

_N_SAMPLES = 32


class DatasetFactoryContract:
    """Inherit it in a test class, and name the factory; it is prepared once for all tests, in memory.

    ::

        class TestDigits(DatasetFactoryContract):
            factory_class = DigitsFactory
            n_samples = {"train": 1437, "test": 360}

    Sources that are not on this machine are retrieved: override the fixture ``storage_connector`` to keep them.

    Attributes:
        factory_class: the factory.
        n_samples: how many samples each split has.
        config: the options to open it with.
        is_reproducible: whether preparing twice gives the same bytes. Formats that write the time into their files do not.
        pickles: whether its iterators can be sent to spawned workers.
    """

    factory_class: ClassVar[type[DatasetFactory]]
    n_samples: ClassVar[Mapping[str, int]]
    config: ClassVar[Mapping[str, Any]] = {}
    is_reproducible: ClassVar[bool] = True
    pickles: ClassVar[bool] = True

    _store: ClassVar[InMemoryStorageConnector]

    @pytest.fixture
    def storage_connector(self) -> StorageConnector:
        """Where to prepare the dataset; the same for all tests of a class."""
        cls = type(self)
        if "_store" not in vars(cls):
            cls._store = InMemoryStorageConnector()
        return cls._store

    @pytest.fixture
    def factory(self, storage_connector: StorageConnector) -> DatasetFactory:
        """The factory; the first test that asks for it prepares the dataset."""
        factory = self.factory_class(storage_connector)
        factory.prepare(progress=False)
        return factory

    def iterator(self, factory: DatasetFactory, split: str) -> DatasetIteratorIF:
        """The samples of one split."""
        return factory.get_dataset_iterator({"split": split, **self.config})[0]

    def test_it_says_what_it_is(self) -> None:
        assert (self.factory_class.__doc__ or "").strip(), "its docstring is what `data-stack info` shows"
        assert self.factory_class.card.license, "users need to know the licence"
        assert list(self.n_samples) == list(self.factory_class.splits)

    def test_each_source_has_a_digest(self) -> None:
        assert [source.identifier for source in self.factory_class.sources if source.sha256 is None] == []

    def test_it_is_ready_once_prepared_and_needs_no_source_any_more(
        self, factory: DatasetFactory, storage_connector: StorageConnector
    ) -> None:
        again = self.factory_class(storage_connector)

        assert again.is_ready()
        assert again.prepare(offline=True, progress=False).already_ready
        assert again.verify() == []

    def test_each_split_has_its_samples(self, factory: DatasetFactory) -> None:
        assert {split: len(self.iterator(factory, split)) for split in factory.splits} == dict(self.n_samples)

    def test_the_first_split_is_the_default(self, factory: DatasetFactory) -> None:
        assert len(factory.get_dataset_iterator(dict(self.config))[0]) == self.n_samples[factory.splits[0]]

    def test_samples_have_what_the_meta_says(self, factory: DatasetFactory) -> None:
        for split in factory.splits:
            iterator, meta = factory.get_dataset_iterator({"split": split, **self.config})
            for position in {0, len(iterator) - 1} if len(iterator) else ():
                for key in (meta.sample_pos, meta.target_pos, meta.tag_pos):
                    value_of(iterator[position], key)
                assert factory.columns is None or len(iterator[position]) == len(factory.columns)

    def test_a_batch_is_its_samples_stacked(self, factory: DatasetFactory) -> None:
        for split in factory.splits:
            iterator = self.iterator(factory, split)
            positions = list(reversed(range(min(_N_SAMPLES, len(iterator)))))
            if positions:
                assert_same(iterator.read_batch(positions), stack_samples([iterator[position] for position in positions]))

    def test_an_iterator_pickles(self, factory: DatasetFactory) -> None:
        for split in factory.splits if self.pickles else ():
            iterator = self.iterator(factory, split)
            copy = pickle.loads(pickle.dumps(iterator))  # noqa: S301  # our own pickle

            assert len(copy) == len(iterator)
            for position in range(min(_N_SAMPLES, len(iterator))):
                assert_same(copy[position], iterator[position])

    def test_an_unknown_split_or_option_is_an_error_that_names_the_known_ones(self, factory: DatasetFactory) -> None:
        with pytest.raises(UnknownSplitError, match=factory.splits[0]):
            factory.get_dataset_iterator({"split": "no such split"})
        with pytest.raises(ConfigError, match="split"):
            factory.get_dataset_iterator({"no such option": 1})

    def test_preparing_again_gives_the_same_bytes(self, factory: DatasetFactory, storage_connector: StorageConnector) -> None:
        first = factory.manifest()
        if not self.is_reproducible or first is None:
            return
        elsewhere = InMemoryStorageConnector()
        for source in factory.sources:
            identifier = f"{dataset_folder(factory)}/{source.identifier}"
            if storage_connector.has_resource(identifier):
                elsewhere.set_resource(identifier, storage_connector.get_resource(identifier))
        again = self.factory_class(elsewhere)
        again.prepare(progress=False)

        second = again.manifest()

        assert second is not None
        assert second.prepared == first.prepared
