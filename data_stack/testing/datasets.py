"""What every declared dataset promises."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import (
    ConfigError,
    CorruptSourceError,
    MissingDependencyError,
    RetrievalError,
    UnknownSplitError,
)
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.manifest import ResourceRecord
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.loader import Loader
from data_stack.repository.default_storage import as_storage_connector
from data_stack.show.leakage import find_duplicates
from data_stack.show.licences import spdx_problem
from data_stack.testing.iterators import DatasetIteratorContract, assert_same
from data_stack.testing.processes import ChildProcess, call_in_process, find_left_over
from data_stack.testing.served import ServedDataset, load_split, prepare_dataset, take_fingerprint
from data_stack.testing.web_server import Answer

Splits: TypeAlias = dict[str, DatasetIteratorIF]
Records: TypeAlias = tuple[ResourceRecord, ...]
_MAX_SAMPLES = 100


class DatasetContract(DatasetIteratorContract):
    """Inherit it in a test class, and name the factory.

    ::

        class TestWine(DatasetContract):
            factory = WineFactory

    The sources are served by a web server of this machine, with the digests of what it serves, and prepared from there; no
    other network is used. A source that has a path or a ``package:`` among its places is served as it is. For any other, define
    :meth:`make_source`. The promises of :class:`DatasetIteratorContract` are tested on the first 100 samples of each split.

    Attributes:
        factory: the class.
        config: the options to open it with.
        n_samples: how many samples each split has, if known.
        n_shared_samples: how many different samples two splits share in the published data, summed over all pairs of splits.
        is_reproducible: whether preparing twice writes the same bytes, which formats with a time in their files do not.
        n_kills: how many times a preparation is killed, each time at another change of a file.
    """

    factory: ClassVar[type[DatasetFactory]]
    config: ClassVar[Mapping[str, Any]] = {}
    n_samples: ClassVar[Mapping[str, int] | None] = None
    n_shared_samples: ClassVar[int] = 0
    is_reproducible: ClassVar[bool] = True
    n_kills: ClassVar[int] = 6

    _served: ClassVar[ServedDataset]

    def make_source(self, identifier: str) -> bytes:
        """The bytes of a source for the tests: made up, in the form of the real ones; few are enough.

        Args:
            identifier: of one of the factory's sources.
        """
        source = next(source for source in self.factory.sources if source.identifier == identifier)
        store = InMemoryStorageConnector()
        try:
            retrieve([source], store, offline=True, progress=False)
        except RetrievalError as error:
            pytest.fail(
                f"{identifier!r} of {self.factory.__qualname__} is not on this machine: define make_source(self, identifier) in "
                f"{type(self).__name__}, which returns made-up bytes in its form\n{error}",
                pytrace=False,
            )
        with store.get_resource(identifier) as resource:
            return bytes(resource.read())

    # ------------------------------------------------------------------ what the tests use

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Run the tests of iterators for each split."""
        if "split" in metafunc.fixturenames:
            metafunc.parametrize("split", list(cls.factory.splits))

    @classmethod
    def teardown_class(cls) -> None:
        """End the server."""
        if "_served" in vars(cls):
            cls._served.close()
            del cls._served

    @pytest.fixture(autouse=True)
    def _own_surroundings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No proxy or setting stands between the tests and their server."""
        monkeypatch.delenv("DATA_STACK_OFFLINE", raising=False)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "*")

    @pytest.fixture
    def served(self) -> ServedDataset:
        """The dataset with sources that are served; the same for all tests of a class."""
        cls = type(self)
        if "_served" not in vars(cls):
            cls._served = ServedDataset(
                self.factory, {source.identifier: self.make_source(source.identifier) for source in self.factory.sources}
            )
        cls._served.answer()
        return cls._served

    @pytest.fixture
    def dataset(self, served: ServedDataset) -> DatasetFactory:
        """The factory, prepared in a folder; the first test that asks for it prepares it."""
        dataset = served.factory(served.store)
        dataset.prepare(offline=False, progress=False)
        return dataset

    @pytest.fixture
    def splits(self, dataset: DatasetFactory) -> Splits:
        """All samples, as ``data_stack.load`` returns them."""
        return {split: load_split(type(dataset), dataset.storage_connector, split, self.config) for split in dataset.splits}

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

    @pytest.fixture(params=["folder", "memory", "mongodb", "s3"])
    def any_store(self, request: pytest.FixtureRequest, served: ServedDataset) -> Iterator[StorageConnector]:
        """An empty store of each kind; those that need a server where a variable names one."""
        if request.param in ("folder", "memory"):
            yield FileStorageConnector(served.scratch()) if request.param == "folder" else InMemoryStorageConnector()
            return
        variable = f"DATA_STACK_TEST_{request.param.upper()}_URI"
        if not os.environ.get(variable):
            pytest.skip(f"set {variable} to the URL of an empty database or bucket")
        connector, folder = as_storage_connector(os.environ[variable]), f"{self.factory.card.name}/"
        assert connector.list_resources(folder) == [], f"{variable} is for a store without this dataset, which is removed from it"
        yield connector
        for identifier in connector.list_resources(folder):
            connector.delete_resource(identifier)

    # ------------------------------------------------------------------ what it says of itself

    def test_the_card_and_the_docstring_say_what_it_is(self) -> None:
        card = self.factory.card

        missing = [name for name in ("name", "version", "license", "homepage", "citation") if not getattr(card, name)]
        assert missing == [], "users need them"
        assert (self.factory.__doc__ or "").strip(), "its docstring is what `data-stack info` shows"

    def test_the_licence_is_an_expression_of_spdx(self) -> None:
        hint = "see https://spdx.org/licenses; where it has no name there: LicenseRef-NAME, and the terms in the docstring"

        assert spdx_problem(self.factory.card.license or "") is None, hint

    def test_each_source_has_a_digest(self) -> None:
        assert [source.identifier for source in self.factory.sources if source.sha256 is None] == []

    def test_an_unknown_split_or_option_is_an_error_that_names_the_known_ones(self, dataset: DatasetFactory) -> None:
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
        assert len(dataset.get_dataset_iterator(dict(self.config))[0]) == len(splits[dataset.splits[0]])

    def test_no_sample_is_in_two_splits(self, splits: Splits) -> None:
        found = find_duplicates(splits)

        assert sum(pair.n_distinct for pair in found.between) == self.n_shared_samples, f"\n{found}"

    def test_class_names_cover_the_targets(self, dataset: DatasetFactory, splits: Splits) -> None:
        if dataset.class_names is None:
            pytest.skip("it declares no class_names")
        for split, iterator in splits.items():
            key = dataset.get_dataset_iterator({"split": split, **self.config})[1].target_pos
            targets = set(np.concatenate([np.ravel(target) for target in iterator.read_column(key)]).tolist())
            known: set[Any] = {-1, *range(len(dataset.class_names)), *dataset.class_names}  # -1: not labelled, as in scikit-learn

            assert targets <= known, f"targets of {split!r} without a name"

    def test_pictures_and_texts_are_drawn(self, splits: Splits) -> None:
        for split, iterator in splits.items():
            assert repr(iterator)
            assert str(iterator.explain())
            with contextlib.suppress(MissingDependencyError):  # pictures need Pillow
                from data_stack.show import contact_sheet

                assert contact_sheet(iterator, n_samples=4, title=split).width > 0

    # ------------------------------------------------------------------ its sources

    def test_sources_are_verified_and_named_in_the_manifest(self, served: ServedDataset, dataset: DatasetFactory) -> None:
        manifest = dataset.manifest()

        known = {} if manifest is None else {source.identifier: source for source in manifest.sources}
        assert {name: source.sha256 for name, source in known.items()} == {
            each.identifier: each.sha256 for each in served.sources
        }
        assert all(source.verified for source in known.values())

    @pytest.mark.parametrize("fault", ["missing", "truncated", "flipped", "a page"])
    def test_a_mirror_delivers_what_the_first_source_does_not(self, served: ServedDataset, fault: str) -> None:
        store = InMemoryStorageConnector()
        served.answer(first=[_answer(served.first_content(), fault)])

        served.factory(store).prepare(offline=False, progress=False)

        assert f"/second/{served.identifiers[0]}" in served.requests
        assert served.factory(store).verify() == []

    @pytest.mark.parametrize("fault", ["missing", "truncated", "flipped", "a page"])
    def test_a_broken_download_is_refused_and_leaves_nothing(self, served: ServedDataset, fault: str) -> None:
        store = FileStorageConnector(served.scratch())
        broken = [_answer(served.first_content(), fault)]
        served.answer(first=broken, second=broken)
        dataset = served.factory(store)

        with pytest.raises(RetrievalError if fault == "missing" else CorruptSourceError, match=re.escape(served.identifiers[0])):
            dataset.prepare(offline=False, progress=False)

        assert not dataset.is_ready()
        assert not any(name.endswith(served.identifiers[0]) for name in store.list_resources())
        assert self._left_over(store) == []

    def test_a_download_that_is_cut_off_goes_on(self, served: ServedDataset) -> None:
        data = served.first_content()
        served.answer(first=[replace(served.whole(data), cut_at=len(data) // 2), served.whole(data)])

        served.factory(InMemoryStorageConnector()).prepare(offline=False, progress=False)

        assert served.requests.count(f"/first/{served.identifiers[0]}") == 2

    # ------------------------------------------------------------------ its preparation

    def test_once_prepared_it_needs_no_source(self, served: ServedDataset, prepared: Records) -> None:
        served.answer()
        again = served.factory(served.store)

        assert again.is_ready()
        assert again.prepare(offline=True, progress=False).already_ready
        assert again.verify() == []
        assert served.requests == []

    def test_two_preparations_give_the_same_bytes(self, served: ServedDataset, prepared: Records) -> None:
        if not self.is_reproducible:
            pytest.skip("is_reproducible is False")

        again = call_in_process(prepare_dataset, served.author, served.sources, FileStorageConnector(served.scratch()))[2]

        assert again == prepared

    def test_a_preparation_that_is_killed_anywhere_is_finished_by_the_next(
        self, served: ServedDataset, prepared: Records
    ) -> None:
        whole = FileStorageConnector(served.scratch())
        n_changes = call_in_process(prepare_dataset, served.author, served.sources, whole)[0]
        for change in sorted({round(place) for place in np.linspace(1, max(1, n_changes - 1), self.n_kills)}):
            store = FileStorageConnector(served.scratch())

            code = ChildProcess(prepare_dataset, served.author, served.sources, store, change).wait()[0]

            dataset = served.factory(store)
            # Threads and heartbeats come and go, so the last changes are met by chance.
            assert code == -signal.SIGKILL or change > 0.8 * n_changes
            assert not dataset.is_ready() or dataset.verify() == []
            dataset.prepare(offline=False, progress=False)
            self._assert_same_resources(dataset, prepared)
            assert self._left_over(store) == []

    def test_two_processes_at_once_prepare_it_once(self, served: ServedDataset, prepared: Records) -> None:
        store = FileStorageConnector(served.scratch())

        running = [ChildProcess(prepare_dataset, served.author, served.sources, store) for _ in range(2)]
        ends = [child.wait() for child in running]

        (_, first_was_ready, first_made), (_, second_was_ready, second_made) = (value for _, value in ends)
        assert sorted([first_was_ready, second_was_ready]) == [False, True]
        assert first_made == second_made
        assert served.factory(store).verify() == []
        assert self._left_over(store) == []

    def test_every_store_keeps_it(self, served: ServedDataset, any_store: StorageConnector, splits: Splits) -> None:
        for split, expected in splits.items():
            iterator = load_split(served.factory, any_store, split, self.config)

            assert len(iterator) == len(expected)
            for position in range(min(_MAX_SAMPLES, len(iterator))):
                assert_same(iterator[position], expected[position])
        assert served.factory(any_store).verify() == []

    def test_nothing_is_unpickled(self, served: ServedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
        store = InMemoryStorageConnector()
        for name in ("load", "loads", "Unpickler"):
            monkeypatch.setattr(pickle, name, _refuse_to_unpickle)

        with watch_for_pickles() as found:
            served.factory(store).prepare(offline=False, progress=False)
            for split in served.factory.splits:
                iterator = load_split(served.factory, store, split, self.config)
                iterator.read_batch(range(min(_MAX_SAMPLES, len(iterator))))

        assert found == [], "a pickle runs the code of its author"

    # ------------------------------------------------------------------ other processes

    @pytest.mark.filterwarnings("ignore:worker process:RuntimeWarning")  # that it takes long to start, on a busy machine
    def test_workers_of_a_loader_read_the_same_samples(self, splits: Splits) -> None:
        if not self.pickles:
            pytest.skip("pickles is False")
        iterator = next(iter(splits.values()))[:_MAX_SAMPLES]
        batch_size = max(1, len(iterator) // 3)

        with Loader(iterator, batch_size, workers=1, worker_kind="processes", timeout_seconds=60) as batches:
            read = list(batches)

        with Loader(iterator, batch_size, workers=0) as batches:
            assert_same(read, list(batches))

    def test_fingerprints_are_the_same_in_every_process(self, served: ServedDataset, splits: Splits) -> None:
        split = served.factory.splits[0]

        found = call_in_process(take_fingerprint, served.author, served.sources, served.store, split, dict(self.config))

        assert found == splits[split].fingerprint()

    # ------------------------------------------------------------------ inside

    def _left_over(self, store: FileStorageConnector) -> list[str]:
        return find_left_over(f"{store.root_path}/{self.factory.card.name}")

    def _assert_same_resources(self, dataset: DatasetFactory, prepared: Records) -> None:
        manifest = dataset.manifest()
        assert manifest is not None
        assert dataset.verify() == []
        assert [each.identifier for each in manifest.prepared] == [each.identifier for each in prepared]
        assert manifest.prepared == prepared or not self.is_reproducible


def _answer(data: bytes, fault: str) -> Answer:
    """The answer of a source with a fault."""
    if fault == "missing":
        return Answer(b"not here", status=404)
    if fault == "a page":
        return Answer(b"<!DOCTYPE html><html>Please log in</html>")
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    return Answer(data[:-1] if fault == "truncated" else flipped)


def _refuse_to_unpickle(*_: Any, **__: Any) -> Any:
    raise pickle.UnpicklingError("a dataset must not be unpickled: a pickle runs the code of its author")


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
