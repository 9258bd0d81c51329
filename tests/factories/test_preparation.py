"""A preparation that fails goes on where it failed; what is complete is adopted; what is in use stays whole."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import PreparationError
from data_stack.factories import preparation
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector

SPLITS = ("train", "valid", "test")
#: What happens in each step; not on the class, for what is set there belongs to the code that is resumed or not.
HOOKS: dict[str, Callable[[str], None]] = {}
ALL = [f"preprocessed/{split}.json" for split in SPLITS]


class Interrupted(Exception):
    """What goes wrong in an author's code."""


class NumbersFactory(DatasetFactory):
    """Three splits, a step each; the hook ``"before"`` is called with each step's name and may raise."""

    card = DatasetCard(name="numbers", version="1.0.0")
    splits = SPLITS
    factor: ClassVar[int] = 1

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for split in prepared.steps(self.splits):
            with raw[f"raw/{split}.txt"] as source:
                values = [self.factor * int(value) for value in source.read().split()]
            with prepared.create(f"preprocessed/{split}.json") as file:
                file.write(json.dumps(values)[:3].encode())
                HOOKS["before"](split)
                file.write(json.dumps(values)[3:].encode())

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared[f"preprocessed/{split}.json"] as resource:
            return SequenceDatasetIterator([json.loads(resource.read())])


Numbers: TypeAlias = type[NumbersFactory]


def contents(split: str) -> bytes:
    return " ".join(str(100 * SPLITS.index(split) + i) for i in range(50)).encode()


def samples(factory: DatasetFactory, split: str) -> list[Any]:
    iterator, _ = factory.get_dataset_iterator({"split": split})
    return [iterator[i][0] for i in range(len(iterator))]


def expected(split: str, factor: int = 1) -> list[int]:
    return [factor * int(value) for value in contents(split).split()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    for split in SPLITS:
        folder.joinpath(f"{split}.txt").write_bytes(contents(split))
    return folder


@pytest.fixture
def numbers(folder: Path) -> Numbers:
    class SourcedNumbersFactory(NumbersFactory):
        sources = tuple(
            ResourceDefinition(
                f"raw/{split}.txt", (folder / f"{split}.txt").as_uri(), sha256=hashlib.sha256(contents(split)).hexdigest()
            )
            for split in SPLITS
        )

    HOOKS["before"] = lambda split: None
    return SourcedNumbersFactory


def failing_at(failing: str, done: list[str], error: BaseException) -> Callable[[str], None]:
    def before(split: str) -> None:
        if split == failing:
            raise error
        done.append(split)

    return before


def test_it_goes_on_at_the_step_that_was_interrupted(numbers: Numbers, store: FileStorageConnector, folder: Path) -> None:
    first: list[str] = []
    HOOKS["before"] = failing_at("valid", first, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        numbers(store).prepare()
    for path in folder.iterdir():
        path.unlink()  # nothing may be fetched twice
    second: list[str] = []
    HOOKS["before"] = failing_at("", second, Interrupted("no"))

    report = numbers(store).prepare()

    assert first + second == list(SPLITS)
    assert [name for name, _ in report.steps] == ["retrieve", *second, "preprocess"]
    assert not report.already_ready
    assert all(samples(numbers(store), split) == expected(split) for split in SPLITS)
    assert not store.has_resource("numbers/1.0.0/journal.json")


def test_the_error_names_dataset_and_step_and_has_the_cause(numbers: Numbers, store: FileStorageConnector) -> None:
    HOOKS["before"] = failing_at("valid", [], Interrupted("the cause"))

    with pytest.raises(PreparationError) as caught:
        numbers(store).get_dataset_iterator()

    assert isinstance(caught.value.__cause__, Interrupted)
    message = str(caught.value)
    assert all(part in message for part in ("'numbers' 1.0.0", "step 'valid'", "Interrupted: the cause", "sources are kept"))


@pytest.mark.parametrize(
    "harm",
    [
        # Same size, other bytes, and no note of the store's about them: only reading tells.
        lambda store, path: path.write_bytes(path.read_bytes()[::-1]),
        lambda store, path: store.delete_resource("numbers/1.0.0/preprocessed/valid.json"),
    ],
    ids=["overwritten", "deleted"],
)
def test_a_step_whose_resource_was_harmed_since_is_done_again(
    numbers: Numbers, store: FileStorageConnector, harm: Callable[[StorageConnector, Path], object]
) -> None:
    HOOKS["before"] = failing_at("test", [], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        numbers(store).prepare()
    harm(store, Path(store.root_path, "numbers/1.0.0/preprocessed/valid.json"))
    done: list[str] = []
    HOOKS["before"] = failing_at("", done, Interrupted("no"))

    numbers(store).prepare()

    assert done == ["valid", "test"]
    assert samples(numbers(store), "valid") == expected("valid")


def test_a_preprocessing_that_makes_nothing_is_an_error(numbers: Numbers, store: FileStorageConnector) -> None:
    factory: DatasetFactory = type("Idle", (numbers,), {"preprocess": lambda self, raw, prepared: None})(store)

    with pytest.raises(PreparationError, match="created nothing"):
        factory.prepare()


def test_what_is_ready_is_prepared_anew_when_asked_for_and_stays_in_use_until_then(
    numbers: Numbers, store: FileStorageConnector, folder: Path
) -> None:
    numbers(store).prepare()
    for path in folder.iterdir():
        path.unlink()  # the sources are kept
    numbers.factor = 3
    assert numbers(store).prepare().already_ready
    HOOKS["before"] = failing_at("test", [], Interrupted("no"))
    with pytest.raises(PreparationError):
        numbers(store).prepare(again=True)
    assert samples(numbers(store), "train") == expected("train")
    HOOKS["before"] = lambda split: None

    report = numbers(store).prepare(again=True)

    assert not report.already_ready
    assert samples(numbers(store), "train") == expected("train", 3)


# ---------------------------------------------------------------------- what cannot be opened is not ready


def test_the_error_names_the_split_and_its_cause_and_nothing_is_ready(numbers: Numbers, store: FileStorageConnector) -> None:
    class Unread(SequenceDatasetIterator):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index if index < len(self) - 1 else 1 // 0)

    class Broken(numbers):  # type: ignore[valid-type,misc]  # a class from a fixture
        def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
            opened: DatasetIteratorIF = super().open(split, prepared)
            return Unread([list(range(3))]) if split == "valid" else opened

    with pytest.raises(PreparationError, match=r"split 'valid' cannot be opened.*ZeroDivisionError") as caught:
        Broken(store).prepare()

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not Broken(store).is_ready()


@pytest.fixture
def adopting(numbers: Numbers) -> Numbers:
    class AdoptingNumbersFactory(numbers):  # type: ignore[valid-type,misc]  # a class from a fixture
        card = DatasetCard(name="numbers", version="1.0.0", keeps_versions=False)
        prepared_resources = ALL

    return AdoptingNumbersFactory


@pytest.fixture
def legacy(tmp_path: Path) -> FileStorageConnector:
    """A store as the original left it: prepared files, and nothing else."""
    folder = tmp_path / "legacy"
    for split in SPLITS:
        path = folder / f"numbers/preprocessed/{split}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([-1, -2]))
    return FileStorageConnector(folder)


def test_a_complete_store_without_manifest_is_used_as_it_is_and_the_log_says_so(
    adopting: Numbers, legacy: FileStorageConnector, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "data_stack"):
        report = adopting(legacy).prepare()

    assert (report.adopted, report.already_ready) == (True, False)
    assert samples(adopting(legacy), "valid") == [-1, -2]
    assert "adopted" in caplog.text
    manifest = adopting(legacy).manifest()
    assert manifest is not None
    assert manifest.adopted
    assert [record.size for record in manifest.prepared] == [8, 8, 8]
    assert not any(source.verified for source in manifest.sources)
    assert adopting(legacy).verify() == []
    assert adopting(legacy).prepare().already_ready


@pytest.mark.parametrize("damage", [b"", b"[-1, "])
def test_a_damaged_store_is_prepared_again_and_the_log_says_so(
    adopting: Numbers, legacy: FileStorageConnector, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    Path(legacy.root_path, "numbers/preprocessed/test.json").write_bytes(damage)

    with caplog.at_level(logging.INFO, "data_stack"):
        assert samples(adopting(legacy), "train") == expected("train")

    assert "damaged" in caplog.text
    assert samples(adopting(legacy), "test") == expected("test")


def test_an_interrupted_preparation_is_not_taken_for_a_complete_store(adopting: Numbers, store: FileStorageConnector) -> None:
    class Late(adopting):  # type: ignore[valid-type,misc]  # a class from a fixture
        def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
            for split in self.splits:  # no steps: the journal stays empty
                with prepared.create(f"preprocessed/{split}.json") as file:
                    file.write(b"[0]")
            raise Interrupted("everything is there, but not right")

    with pytest.raises(PreparationError):
        Late(store).prepare()

    assert samples(adopting(store), "train") == expected("train")
    manifest = adopting(store).manifest()
    assert manifest is not None
    assert not manifest.adopted


def test_an_overtaken_preparation_stops_and_uses_the_other(
    numbers: Numbers, store: FileStorageConnector, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[str] = []

    class Overtaken(numbers):  # type: ignore[valid-type,misc]  # a class from a fixture
        def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
            for split in self.splits:
                started.append(split)
                try:
                    with prepared.create(f"preprocessed/{split}.json") as file:
                        file.write(b"[0]")
                        if split == "train":  # meanwhile, a process that never heard of leases:
                            numbers(FreeConnector(store.root_path)).prepare()
                except Exception as error:  # an author may be careless
                    raise AssertionError("being overtaken is no error of the author's") from error

    with caplog.at_level(logging.INFO, "data_stack"):
        got = samples(Overtaken(store), "train")

    assert (got, started) == (expected("train"), ["train"])
    assert "another process has prepared it" in caplog.text


def test_a_lease_that_is_not_given_back_is_waited_for_no_longer_than_told(
    numbers: Numbers, store: FileStorageConnector, caplog: pytest.LogCaptureFixture
) -> None:
    with store.lease("numbers/1.0.0/manifest.json") as lease:
        assert lease.acquire()
        report = numbers(store).prepare(lease_timeout_seconds=0.2)

    assert not report.already_ready
    assert "another process" in caplog.text
    assert samples(numbers(store), "test") == expected("test")


def test_a_process_that_keeps_overwriting_the_dataset_is_an_error(
    numbers: Numbers, store: FileStorageConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_ATTEMPTS", 2)  # it waits in between

    class Vandalised(numbers):  # type: ignore[valid-type,misc]  # a class from a fixture
        def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
            super().preprocess(raw, prepared)
            store.set_resource("numbers/1.0.0/preprocessed/train.json", b"[0]")

    with pytest.raises(PreparationError, match=r"below 'numbers/1\.0\.0'"):
        Vandalised(store).prepare()
    assert not Vandalised(store).is_ready()


class FreeConnector(FileStorageConnector):
    """A file store whose leases are always free."""

    lease = StorageConnector.lease
