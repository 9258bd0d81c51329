"""What every declared dataset promises."""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, RetrievalError, UnknownSplitError
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.resource_record import ResourceRecord
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.loader import Loader
from data_stack.repository.licenses import spdx_problem
from data_stack.repository.named_dataset import NamedDataset
from data_stack.reproduce.duplicates import find_duplicates
from data_stack.testing.comparing import assert_same
from data_stack.testing.dataset_iterator import DatasetIteratorContract
from data_stack.testing.processes import call_in_process

Splits: TypeAlias = dict[str, DatasetIteratorIF]
Records: TypeAlias = tuple[ResourceRecord, ...]
_MAX_SAMPLES = 100


class DatasetContract(DatasetIteratorContract):
    """Inherit it in a test class, and name the factory.

    ::

        class TestWine(DatasetContract):
            factory = WineFactory

    The sources are copied to files of this machine, with the digests of what is in these; no network is used. A source that has
    a path or a ``package:`` among its places is taken as it is. For any other, define :meth:`make_source`. The promises of
    :class:`DatasetIteratorContract` are tested on the first 100 samples of each split.

    Attributes:
        factory: the class.
        config: the options to open it with.
        n_samples: how many samples each split has, if known.
        n_shared_samples: how many different samples two splits share in the published data, summed over all pairs of splits.
        is_reproducible: whether preparing twice writes the same bytes, which formats with a time in their files do not.
    """

    factory: ClassVar[type[DatasetFactory]]
    config: ClassVar[Mapping[str, Any]] = {}
    n_samples: ClassVar[Mapping[str, int] | None] = None
    n_shared_samples: ClassVar[int] = 0
    is_reproducible: ClassVar[bool] = True

    _copy: ClassVar[CopiedDataset]

    def make_source(self, identifier: str) -> bytes:
        """The bytes of a source for the tests: made up, in the form of the real ones; few are enough.

        Args:
            identifier: of one of the factory's sources.
        """
        store = InMemoryStorageConnector()
        try:
            retrieve(
                [each for each in self.factory.sources if each.identifier == identifier],
                store,
                offline=True,
                progress=False,
            )
        except RetrievalError as error:
            advice = f"define make_source(self, identifier) in {type(self).__name__}, which returns made-up bytes in its form"
            pytest.fail(
                f"{identifier!r} of {self.factory.__qualname__} is not on this machine: {advice}\n{error}",
                pytrace=False,
            )
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
            cls._copy.folder.cleanup()
            del cls._copy

    @pytest.fixture
    def copied(self) -> CopiedDataset:
        """The dataset with copies of its sources; the same for all tests of a class."""
        cls = type(self)
        if "_copy" not in vars(cls):
            cls._copy = CopiedDataset(self.factory, self.make_source)
        return cls._copy

    @pytest.fixture
    def dataset(self, copied: CopiedDataset) -> DatasetFactory:
        """The factory, prepared in a folder; the first test that asks for it prepares it."""
        dataset = copied.factory(copied.store)
        dataset.prepare(progress=False)
        return dataset

    @pytest.fixture
    def splits(self, dataset: DatasetFactory) -> Splits:
        """All samples, as ``data_stack.load`` returns them."""
        return {
            split: load_split(type(dataset), dataset.storage_connector, split, self.config)
            for split in dataset.splits
        }

    @pytest.fixture
    def iterator(self, splits: Splits, split: str) -> DatasetIteratorIF:
        """The samples of one split, the first 100 of them."""
        if len(splits[split]) < 3:
            pytest.skip(f"split {split!r} has fewer than three samples")
        return splits[split] if len(splits[split]) <= _MAX_SAMPLES else splits[split][:_MAX_SAMPLES]

    @pytest.fixture
    def expected(self, iterator: DatasetIteratorIF) -> list[Any]:
        """The same samples, read one by one."""
        return [iterator[position] for position in range(len(iterator))]

    @pytest.fixture
    def prepared(self, dataset: DatasetFactory) -> Records:
        """What the preparation has made."""
        manifest = dataset.manifest()
        if manifest is None:
            pytest.skip("it stores nothing")
        return manifest.prepared

    @pytest.fixture(params=["folder", "memory"])
    def any_store(self, request: pytest.FixtureRequest, copied: CopiedDataset) -> StorageConnector:
        """An empty store of each kind."""
        return (
            FileStorageConnector(copied.scratch())
            if request.param == "folder"
            else InMemoryStorageConnector()
        )

    # ------------------------------------------------------------------ what it says of itself

    def test_the_card_and_the_docstring_say_what_it_is(self) -> None:
        card = self.factory.card

        missing = [
            name
            for name in ("name", "version", "license", "homepage", "citation")
            if not getattr(card, name)
        ]
        assert missing == [], "users need them"
        assert (self.factory.__doc__ or "").strip(), "its docstring is what `data-stack info` shows"

    def test_the_license_is_an_expression_of_spdx(self) -> None:
        hint = "see https://spdx.org/licenses; where it has no name there: LicenseRef-NAME, and the terms in the docstring"

        assert spdx_problem(self.factory.card.license or "") is None, hint

    def test_each_source_has_a_digest(self) -> None:
        assert [source.identifier for source in self.factory.sources if source.sha256 is None] == []

    def test_an_unknown_split_or_option_is_an_error_that_names_the_known_ones(
        self, dataset: DatasetFactory
    ) -> None:
        with pytest.raises(UnknownSplitError, match=re.escape(dataset.splits[0])):
            dataset.get_dataset_iterator({"split": "no such split"})
        with pytest.raises(ConfigError, match="split"):
            dataset.get_dataset_iterator({"no such option": 1})

    # ------------------------------------------------------------------ its samples

    def test_each_split_has_its_samples(self, splits: Splits) -> None:
        n_samples = {split: len(iterator) for split, iterator in splits.items()}

        assert min(n_samples.values()) > 0
        assert n_samples == (self.n_samples or n_samples)

    def test_the_first_split_is_the_default(self, dataset: DatasetFactory, splits: Splits) -> None:
        assert len(dataset.get_dataset_iterator(dict(self.config))[0]) == len(
            splits[dataset.splits[0]]
        )

    def test_no_sample_is_in_two_splits(self, splits: Splits) -> None:
        found = find_duplicates(splits)

        assert sum(pair.n_distinct for pair in found.between) == self.n_shared_samples, f"\n{found}"

    def test_class_names_cover_the_targets(self, dataset: DatasetFactory, splits: Splits) -> None:
        if dataset.class_names is None:
            pytest.skip("it declares no class_names")
        for split, iterator in splits.items():
            key = dataset.get_dataset_iterator({"split": split, **self.config})[1].target_pos
            targets = set(
                np.concatenate([np.ravel(target) for target in iterator.read_column(key)]).tolist()
            )
            known: set[Any] = {
                -1,
                *range(len(dataset.class_names)),
                *dataset.class_names,
            }  # -1: not labelled, as in scikit-learn

            assert targets <= known, f"targets of {split!r} without a name"

    # ------------------------------------------------------------------ its sources

    def test_sources_are_verified_and_named_in_the_manifest(
        self, copied: CopiedDataset, dataset: DatasetFactory
    ) -> None:
        known = getattr(dataset.manifest(), "sources", ())

        assert {each.identifier: each.sha256 for each in known} == {
            each.identifier: each.sha256 for each in copied.sources
        }
        assert all(source.verified for source in known)

    # ------------------------------------------------------------------ its preparation

    def test_once_prepared_it_needs_no_source(
        self, copied: CopiedDataset, prepared: Records
    ) -> None:
        again = with_sources(
            self.factory, [replace(each, source="/nowhere") for each in copied.sources]
        )(copied.store)

        assert again.is_ready()
        assert again.prepare(offline=True, progress=False).already_ready
        assert again.verify() == []

    def test_two_preparations_give_the_same_bytes(
        self, copied: CopiedDataset, prepared: Records
    ) -> None:
        if not self.is_reproducible:
            pytest.skip("is_reproducible is False")

        assert call_in_process(_prepare, self.factory, copied.sources, copied.scratch()) == prepared

    def test_every_store_keeps_it(
        self, copied: CopiedDataset, any_store: StorageConnector, splits: Splits
    ) -> None:
        for split, expected in splits.items():
            iterator = load_split(copied.factory, any_store, split, self.config)

            assert len(iterator) == len(expected)
            for position in range(min(_MAX_SAMPLES, len(iterator))):
                assert_same(iterator[position], expected[position])
        assert copied.factory(any_store).verify() == []

    def test_nothing_is_unpickled(self, copied: CopiedDataset) -> None:
        store = InMemoryStorageConnector()

        with watch_for_pickles() as found:
            copied.factory(store).prepare(progress=False)
            for split in copied.factory.splits:
                iterator = load_split(copied.factory, store, split, self.config)
                iterator.read_batch(range(min(_MAX_SAMPLES, len(iterator))))

        assert found == [], "a pickle runs the code of its author"

    # ------------------------------------------------------------------ other processes

    @pytest.mark.filterwarnings(
        "ignore:worker process:RuntimeWarning"
    )  # that it takes long to start, on a busy machine
    def test_workers_of_a_loader_read_the_same_samples(self, splits: Splits) -> None:
        if not self.pickles:
            pytest.skip("pickles is False")
        iterator = next(iter(splits.values()))[:_MAX_SAMPLES]
        batch_size = max(1, len(iterator) // 3)

        with Loader(
            iterator, batch_size, workers=1, worker_kind="processes", timeout_seconds=60
        ) as batches:
            assert_same(list(batches), list(Loader(iterator, batch_size, workers=0)))

    def test_fingerprints_are_the_same_in_every_process(
        self, copied: CopiedDataset, splits: Splits
    ) -> None:
        split = copied.factory.splits[0]

        found = call_in_process(
            _take_fingerprint, self.factory, copied.sources, copied.store, split, dict(self.config)
        )

        assert found == splits[split].fingerprint()


class CopiedDataset:
    """A factory whose sources are files of this machine, and a folder for stores."""

    def __init__(self, factory: type[DatasetFactory], make_source: Callable[[str], bytes]) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="data_stack-contract-")
        self.sources = []
        for number, source in enumerate(factory.sources):
            data, path = make_source(source.identifier), Path(self.folder.name, f"source {number}")
            path.write_bytes(data)
            sha256 = hashlib.sha256(data).hexdigest()
            self.sources.append(
                replace(
                    source, source=str(path), mirrors=(), sha256=sha256, md5_sum=None, size=None
                )
            )
        self.factory = with_sources(factory, self.sources)
        self.store = FileStorageConnector(self.scratch())

    def scratch(self) -> str:
        """A new empty folder."""
        return tempfile.mkdtemp(dir=self.folder.name)


def with_sources(factory: type[DatasetFactory], sources: Any) -> type[DatasetFactory]:
    """The author's class with other sources, under its own name."""
    names = {name: getattr(factory, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(factory.__name__, (factory,), {**names, "sources": tuple(sources)})


def load_split(
    factory: type[DatasetFactory], store: StorageConnector, split: str, config: Mapping[str, Any]
) -> DatasetIteratorIF:
    """The samples of a split, as ``data_stack.load`` returns them."""
    iterator: DatasetIteratorIF = NamedDataset(factory.card.name, factory, store).load(
        split, progress=False, **config
    )
    return iterator


# These two are called in other processes, which cannot find the class of ``with_sources`` by its name.


def _prepare(factory: type[DatasetFactory], sources: Any, folder: str) -> Records:
    prepared = with_sources(factory, sources)(FileStorageConnector(folder))
    prepared.prepare(progress=False)
    return getattr(prepared.manifest(), "prepared", ())


def _take_fingerprint(
    factory: type[DatasetFactory],
    sources: Any,
    store: StorageConnector,
    split: str,
    config: Mapping[str, Any],
) -> str:
    return load_split(with_sources(factory, sources), store, split, config).fingerprint()


@contextlib.contextmanager
def watch_for_pickles() -> Iterator[list[str]]:
    """The classes and functions that are looked up by any unpickler, also that of torch.load or numpy, during the block."""
    found: list[str] = []
    watches = True

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if watches and event == "pickle.find_class":
            found.append(".".join(map(str, arguments)))

    sys.addaudithook(look)
    try:
        yield found
    finally:
        watches = False
