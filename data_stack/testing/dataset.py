"""The test suite of declared datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest

from data_stack.dataset.class_lists import check_class_numbers, known_classes
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, RetrievalError, UnknownSplitError
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.resource_record import ResourceRecord
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.loader import Loader
from data_stack.repository.licenses import spdx_problem
from data_stack.repository.named_dataset import NamedDataset
from data_stack.reproduce.duplicates import find_duplicates
from data_stack.testing.comparing import assert_same
from data_stack.testing.copied_dataset import CopiedDataset, with_sources
from data_stack.testing.dataset_iterator import DatasetIteratorContract
from data_stack.testing.processes import call_in_process
from data_stack.testing.unpickling import watch_for_pickles

Splits: TypeAlias = dict[str, DatasetIteratorIF]
"""The samples of each split."""

Records: TypeAlias = tuple[ResourceRecord, ...]
"""The records of prepared resources in a manifest."""

#: Samples of a split that are read where reading all of them would take long.
_MAX_SAMPLES = 100

#: The target of a sample without a label, as in scikit-learn.
_NOT_LABELLED = -1

#: What a card must say of a dataset; users need it.
_FACTS_OF_CARD = ("name", "version", "license", "homepage", "citation")


class DatasetContract(DatasetIteratorContract):
    """What every declared dataset promises.

    Inherit it in a test class, and name the factory. ::

        class TestWine(DatasetContract):
            factory = WineFactory

    The tests use no network: they copy each source to a file, and expect the digest of the copy. A
    source that has a path or a ``package:`` among its places is copied from there. For sources of
    other places, define :meth:`make_source`. The promises of :class:`DatasetIteratorContract` are
    tested on the first 100 samples of each split.

    Attributes:
        factory: the class that is tested.
        config: the options, beside ``split``, that are passed to the factory.
        n_samples: how many samples each split has, by the names of splits; None: unknown.
        n_shared_samples: how many different samples two splits share in the published data, summed
            over all pairs of splits.
        is_reproducible: whether preparing twice writes the same bytes. Set it to False for a format
            that writes the time into its files.
    """

    factory: ClassVar[type[DatasetFactory]]
    config: ClassVar[Mapping[str, Any]] = {}
    n_samples: ClassVar[Mapping[str, int] | None] = None
    n_shared_samples: ClassVar[int] = 0
    is_reproducible: ClassVar[bool] = True

    #: The dataset with copies of its sources, made by the first test of a class.
    _copy: ClassVar[CopiedDataset]

    def make_source(self, identifier: str) -> bytes:
        """Return the bytes of a source for the tests.

        Override it to make bytes up, in the form of the real ones; few are enough.

        Args:
            identifier: the identifier of one of the factory's sources.
        """
        sources = [source for source in self.factory.sources if source.identifier == identifier]
        store = InMemoryStorageConnector()
        try:
            retrieve(sources, store, offline=True, progress=False)
        except RetrievalError as error:
            raise pytest.fail.Exception(
                f"{identifier!r} of {self.factory.__qualname__} is not on this machine: define "
                f"make_source(self, identifier) in {type(self).__name__}, which returns made-up "
                f"bytes in its form\n{error}",
                pytrace=False,
            ) from None
        return bytes(store.get_resource(identifier).read())

    # ------------------------------------------------------------------ what the tests use

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Run the tests of iterators for each split."""
        if "split" in metafunc.fixturenames:
            metafunc.parametrize("split", list(cls.factory.splits))

    @classmethod
    def teardown_class(cls) -> None:
        """Remove the copies."""
        if "_copy" in vars(cls):
            cls._copy.close()
            del cls._copy

    @pytest.fixture
    def copied(self) -> CopiedDataset:
        """Return the dataset with copies of its sources; the same for all tests of a class."""
        cls = type(self)
        # Not that of a base class, whose factory may be another one.
        if "_copy" not in vars(cls):
            cls._copy = CopiedDataset(self.factory, self.make_source)
        return cls._copy

    @pytest.fixture
    def dataset(self, copied: CopiedDataset) -> DatasetFactory:
        """Return the factory, prepared in a folder; the first test that asks for it prepares it."""
        dataset = copied.factory(copied.store)
        dataset.prepare(progress=False)
        return dataset

    @pytest.fixture
    def splits(self, dataset: DatasetFactory) -> Splits:
        """Return all samples, as ``data_stack.load`` returns them."""
        return {
            split: load_split(type(dataset), dataset.storage_connector, split, self.config)
            for split in dataset.splits
        }

    @pytest.fixture
    def iterator(self, splits: Splits, split: str) -> DatasetIteratorIF:
        """Return the first 100 samples of one split."""
        iterator = splits[split]
        if len(iterator) < 3:
            pytest.skip(f"split {split!r} has fewer than three samples")
        if len(iterator) <= _MAX_SAMPLES:
            return iterator
        first_samples: DatasetIteratorIF = iterator[:_MAX_SAMPLES]
        return first_samples

    @pytest.fixture
    def expected(self, iterator: DatasetIteratorIF) -> list[Any]:
        """Return the same samples, read one by one."""
        return [iterator[position] for position in range(len(iterator))]

    @pytest.fixture
    def prepared(self, dataset: DatasetFactory) -> Records:
        """Return what the manifest says of the prepared resources."""
        manifest = dataset.manifest()
        if manifest is None:
            pytest.skip("it stores nothing")
        return manifest.prepared

    @pytest.fixture(params=["folder", "memory"])
    def any_store(self, request: pytest.FixtureRequest, copied: CopiedDataset) -> StorageConnector:
        """Return an empty store of each kind."""
        if request.param == "folder":
            return FileStorageConnector(copied.make_folder())
        return InMemoryStorageConnector()

    # ------------------------------------------------------------------ what it says of itself

    def test_the_card_and_the_docstring_say_what_it_is(self) -> None:
        """The card has all facts; the docstring is what ``data-stack info`` shows."""
        card = self.factory.card
        docstring = self.factory.__doc__ or ""

        missing_facts = [name for name in _FACTS_OF_CARD if not getattr(card, name)]

        assert missing_facts == [], "users need them"
        assert docstring.strip(), "its docstring is what `data-stack info` shows"

    def test_the_license_is_an_expression_of_spdx(self) -> None:
        """The license of the data is one of https://spdx.org/licenses, or ``LicenseRef-NAME``."""
        problem = spdx_problem(self.factory.card.license or "")

        assert problem is None, (
            "see https://spdx.org/licenses; where it has no name there: LicenseRef-NAME, and the "
            "terms in the docstring"
        )

    def test_each_source_has_a_digest(self) -> None:
        """Each source has a SHA-256, so that nobody can replace its bytes."""
        without_digest = [
            source.identifier for source in self.factory.sources if source.sha256 is None
        ]

        assert without_digest == []

    def test_an_unknown_split_is_an_error(self, dataset: DatasetFactory) -> None:
        """The error for an unknown split names the splits."""
        with pytest.raises(UnknownSplitError, match=re.escape(dataset.splits[0])):
            dataset.get_dataset_iterator({"split": "no such split"})

    def test_an_unknown_option_is_an_error(self, dataset: DatasetFactory) -> None:
        """The error for an unknown option names the options, of which ``split`` is one."""
        with pytest.raises(ConfigError, match="split"):
            dataset.get_dataset_iterator({"no such option": 1})

    # ------------------------------------------------------------------ its samples

    def test_each_split_has_its_samples(self, splits: Splits) -> None:
        """No split is empty, and each has ``n_samples`` if the test class says how many."""
        n_samples = {split: len(iterator) for split, iterator in splits.items()}

        assert min(n_samples.values()) > 0
        if self.n_samples:
            assert n_samples == self.n_samples

    def test_the_first_split_is_the_default(self, dataset: DatasetFactory, splits: Splits) -> None:
        """Without an option ``split``, the first split is opened."""
        first_split = splits[dataset.splits[0]]

        iterator, _ = dataset.get_dataset_iterator(dict(self.config))

        assert len(iterator) == len(first_split)

    def test_no_sample_is_in_two_splits(self, splits: Splits) -> None:
        """What a model was trained on is not in the split that tests it."""
        duplicates = find_duplicates(splits)

        n_shared_samples = sum(pair.n_distinct for pair in duplicates.between)
        assert n_shared_samples == self.n_shared_samples, f"\n{duplicates}"

    def test_class_names_cover_the_targets(self, dataset: DatasetFactory, splits: Splits) -> None:
        """Each target is the number of a class, the name of one, or -1 for "not labelled"."""
        class_names = dataset.class_names
        if class_names is None:
            pytest.skip("it declares no class_names")
        known_targets: set[Any] = {_NOT_LABELLED, *class_names}
        known_targets.update(range(len(class_names)))

        for split, iterator in splits.items():
            _, meta = dataset.get_dataset_iterator({"split": split, **self.config})
            targets = iterator.read_column(meta.target_pos)
            # A sample may have several targets, in an array of any shape.
            all_targets = np.concatenate([np.ravel(target) for target in targets])
            different_targets = set(all_targets.tolist())

            assert different_targets <= known_targets, f"targets of {split!r} without a name"

    def test_a_class_has_one_number_in_all_splits(
        self, dataset: DatasetFactory, splits: Splits
    ) -> None:
        """``class_names`` and the iterators that know their classes agree on the numbers."""
        class_lists: dict[str, Sequence[Any]] = {"class_names": dataset.class_names or ()}
        for split, iterator in splits.items():
            class_lists[f"split {split!r}"] = known_classes(iterator)

        check_class_numbers(class_lists)

    # ------------------------------------------------------------------ its preparation

    def test_sources_are_verified_and_named_in_the_manifest(
        self, copied: CopiedDataset, dataset: DatasetFactory
    ) -> None:
        """The manifest has the digest of each source, and that it was verified."""
        # A dataset that stores nothing has no manifest.
        recorded_sources = getattr(dataset.manifest(), "sources", ())

        digests = {source.identifier: source.sha256 for source in recorded_sources}
        assert digests == {source.identifier: source.sha256 for source in copied.sources}
        assert all(source.verified for source in recorded_sources)

    def test_once_prepared_it_needs_no_source(
        self, copied: CopiedDataset, prepared: Records
    ) -> None:
        """A prepared dataset is ready, and verified, without a network and without its sources."""
        lost_sources = [replace(source, source="/nowhere") for source in copied.sources]

        dataset = with_sources(self.factory, lost_sources)(copied.store)

        assert dataset.is_ready()
        assert dataset.prepare(offline=True, progress=False).already_ready
        assert dataset.verify() == []

    def test_two_preparations_give_the_same_bytes(
        self, copied: CopiedDataset, prepared: Records
    ) -> None:
        """Another process prepares the same bytes: no time, path or order of a set is in them."""
        if not self.is_reproducible:
            pytest.skip("is_reproducible is False")

        prepared_again = call_in_process(
            _prepare, self.factory, copied.sources, copied.make_folder()
        )

        assert prepared_again == prepared

    def test_every_store_keeps_it(
        self, copied: CopiedDataset, any_store: StorageConnector, splits: Splits
    ) -> None:
        """The samples are the same from a folder and from memory."""
        for split, expected in splits.items():
            iterator = load_split(copied.factory, any_store, split, self.config)

            assert len(iterator) == len(expected)
            for position in range(min(_MAX_SAMPLES, len(iterator))):
                assert_same(iterator[position], expected[position])
        assert copied.factory(any_store).verify() == []

    def test_nothing_is_unpickled(self, copied: CopiedDataset) -> None:
        """Neither preparing nor reading loads a pickle, which would run the code of its author."""
        store = InMemoryStorageConnector()

        with watch_for_pickles() as unpickled_names:
            copied.factory(store).prepare(progress=False)
            for split in copied.factory.splits:
                iterator = load_split(copied.factory, store, split, self.config)
                iterator.read_batch(range(min(_MAX_SAMPLES, len(iterator))))

        assert unpickled_names == [], "a pickle runs the code of its author"

    # ------------------------------------------------------------------ other processes

    # On a busy machine, a process warns that it takes long to start.
    @pytest.mark.filterwarnings("ignore:worker process:RuntimeWarning")
    def test_workers_of_a_loader_read_the_same_samples(self, splits: Splits) -> None:
        """Batches of a loader with a worker process are those of a loader without."""
        if not self.pickles:
            pytest.skip("pickles is False")
        first_split = next(iter(splits.values()))
        iterator = first_split[:_MAX_SAMPLES]
        batch_size = max(1, len(iterator) // 3)
        expected_batches = list(Loader(iterator, batch_size, workers=0))

        with Loader(
            iterator, batch_size, workers=1, worker_kind="processes", timeout_seconds=60
        ) as loader:
            batches = list(loader)

        assert_same(batches, expected_batches)

    def test_fingerprints_are_the_same_in_every_process(
        self, copied: CopiedDataset, splits: Splits
    ) -> None:
        """Another process computes the same fingerprint of the stored samples."""
        split = copied.factory.splits[0]

        fingerprint = call_in_process(
            _take_fingerprint, self.factory, copied.sources, copied.store, split, dict(self.config)
        )

        assert fingerprint == splits[split].fingerprint()


def load_split(
    factory: type[DatasetFactory], store: StorageConnector, split: str, config: Mapping[str, Any]
) -> DatasetIteratorIF:
    """Return the samples of a split, as ``data_stack.load`` returns them."""
    dataset = NamedDataset(factory.card.name, factory, store)
    iterator: DatasetIteratorIF = dataset.load(split, progress=False, **config)
    return iterator


# These two are called in other processes, which cannot find the class of ``with_sources`` by its
# name; so they get the author's class and the sources.


def _prepare(
    factory: type[DatasetFactory], sources: Sequence[ResourceDefinition], folder: str
) -> Records:
    """Prepare a dataset in a folder, and return what its manifest says of prepared resources."""
    dataset = with_sources(factory, sources)(FileStorageConnector(folder))
    dataset.prepare(progress=False)
    prepared: Records = getattr(dataset.manifest(), "prepared", ())
    return prepared


def _take_fingerprint(
    factory: type[DatasetFactory],
    sources: Sequence[ResourceDefinition],
    store: StorageConnector,
    split: str,
    config: Mapping[str, Any],
) -> str:
    return load_split(with_sources(factory, sources), store, split, config).fingerprint()
