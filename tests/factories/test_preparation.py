"""A preparation that fails goes on where it failed; what is complete is adopted; what is in use
stays whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from plain_connector import MinimalConnector, UnwritableConnector

from data_stack import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import (
    MissingDependencyError,
    PreparationError,
    RetrievalError,
    StorageError,
)
from data_stack.factories import preparation
from data_stack.factories.journal import Journal
from data_stack.factories.resource_names import STAGED
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.owners import this_machine

SPLITS = ("train", "valid", "test")
#: What happens in each step, and when a split is opened; not on the class, for what is set there
#: belongs to the code.
HOOKS: dict[str, Callable[..., Any]] = {}
ALL = [f"preprocessed/{split}.json" for split in SPLITS]
SOURCES = {f"{split}.txt" for split in SPLITS}
#: The files of a prepared dataset.
WHOLE = {"manifest.json", "opening@files", *SOURCES, *(f"{split}.json" for split in SPLITS)}


class Interrupted(Exception):
    """What goes wrong in an author's code."""


class NumbersFactory(DatasetFactory):
    """Three splits, a step each; hooks are called with its name before and after its resource is
    complete, and may raise.
    """

    card = DatasetCard(name="numbers", version="1.0.0")
    splits = SPLITS
    factor: int = 1

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for split in prepared.steps(self.splits):
            with raw[f"raw/{split}.txt"] as source:
                values = [self.factor * int(value) for value in source.read().split()]
            with prepared.create(f"preprocessed/{split}.json") as file:
                file.write(json.dumps(values)[:3].encode())
                HOOKS["before"](split)
                file.write(json.dumps(values)[3:].encode())
            HOOKS["after"](split)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared[f"preprocessed/{split}.json"] as resource:
            opened: DatasetIteratorIF = HOOKS["open"](split, [json.loads(resource.read())])
        return opened


Numbers: TypeAlias = type[NumbersFactory]
Log: TypeAlias = pytest.LogCaptureFixture


def contents(split: str) -> bytes:
    return " ".join(str(100 * SPLITS.index(split) + i) for i in range(50)).encode()


def samples(factory: DatasetFactory, split: str) -> list[Any]:
    iterator, _ = factory.get_dataset_iterator({"split": split})
    return [iterator[i][0] for i in range(len(iterator))]


def expected(split: str, factor: int = 1) -> list[int]:
    return [factor * int(value) for value in contents(split).split()]


def names_of(dataset: DatasetFactory) -> set[str]:
    """The names of all files in its store but notes and leases."""
    store: Any = dataset.storage_connector
    return {path.name for path in Path(store.root_path, "numbers").rglob("*") if path.is_file()}


def source(path: Path, data: bytes) -> ResourceDefinition:
    """A source, which is written."""
    path.write_bytes(data)
    return ResourceDefinition(
        f"raw/{path.name}", path.as_uri(), sha256=hashlib.sha256(data).hexdigest()
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    return folder


@pytest.fixture
def numbers(folder: Path) -> Numbers:
    class SourcedNumbersFactory(NumbersFactory):
        sources = tuple(source(folder / f"{split}.txt", contents(split)) for split in SPLITS)

    HOOKS["before"] = HOOKS["after"] = lambda split: None
    HOOKS["open"] = lambda split, columns: SequenceDatasetIterator(columns)
    return SourcedNumbersFactory


@pytest.fixture
def dataset(numbers: Numbers, store: FileStorageConnector) -> NumbersFactory:
    return numbers(store)


def interrupt(
    dataset: DatasetFactory, at: str, error: BaseException, *, hook: str = "before", **how: Any
) -> list[str]:
    """Prepare up to an error in a step; the steps that were done before."""
    done: list[str] = []

    def stop(split: str) -> None:
        if split == at:
            raise error
        done.append(split)

    usual, HOOKS[hook] = HOOKS[hook], stop
    with pytest.raises(PreparationError if isinstance(error, Interrupted) else type(error)):
        dataset.prepare(**how)
    HOOKS[hook] = usual
    return done


def go_on(dataset: DatasetFactory, **how: Any) -> list[str]:
    """Prepare to the end; the steps that were done."""
    done: list[str] = []
    HOOKS["before"] = done.append
    report = dataset.prepare(**how)
    assert [name for name, _ in report.steps if name not in ("retrieve", "preprocess")] == done
    return done


# ---------------------------------------------------------------------- it goes on where it failed


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), StorageError("no room"), RetrievalError("raw", [])], ids=repr
)
def test_it_goes_on_at_the_step_that_was_interrupted(
    dataset: NumbersFactory, folder: Path, caplog: Log, error: BaseException
) -> None:
    first = interrupt(dataset, "valid", error)
    for path in folder.iterdir():
        path.unlink()  # nothing may be fetched twice

    assert first + go_on(dataset) == list(SPLITS)

    assert "again" not in caplog.text
    assert all(samples(dataset, split) == expected(split) for split in SPLITS)
    assert names_of(dataset) == WHOLE


def test_so_it_does_while_earlier_resources_are_in_use(
    dataset: NumbersFactory, folder: Path
) -> None:
    dataset.prepare()
    changed = (source(folder / "train.txt", b"7 8"), *type(dataset).sources[1:])
    renewed: DatasetFactory = type("Renewed", (type(dataset),), {"sources": changed})(
        dataset.storage_connector
    )
    interrupt(renewed, "valid", KeyboardInterrupt(), hook="after")
    assert samples(dataset, "train") == expected("train")
    assert (
        len([name for name in names_of(dataset) if name.startswith(STAGED)]) == 1
    )  # of the finished step

    assert go_on(renewed) == ["valid", "test"]

    assert samples(renewed, "train") == [7, 8]
    assert names_of(dataset) == WHOLE


def test_the_error_names_dataset_and_step_and_has_the_cause(dataset: NumbersFactory) -> None:
    with pytest.raises(PreparationError) as caught:
        HOOKS["before"] = lambda split: int("the cause" if split == "valid" else 1)
        dataset.get_dataset_iterator()

    assert isinstance(caught.value.__cause__, ValueError)
    message = str(caught.value)
    assert all(
        part in message
        for part in ("'numbers' 1.0.0", "step 'valid'", "ValueError: invalid", "sources are kept")
    )


@pytest.mark.parametrize(
    "kind", [FileStorageConnector, lambda folder: MinimalConnector()], ids=["file", "minimal"]
)
def test_what_failing_code_made_is_not_used(numbers: Numbers, tmp_path: Path, kind: Any) -> None:
    dataset = numbers(kind(tmp_path / "store"))
    interrupt(dataset, "test", Interrupted("the cause"))
    if kind is FileStorageConnector:
        assert names_of(dataset) == {"journal.json", *SOURCES}

    assert go_on(dataset) == list(SPLITS)


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
    dataset: NumbersFactory,
    store: FileStorageConnector,
    harm: Callable[[StorageConnector, Path], object],
) -> None:
    interrupt(dataset, "test", KeyboardInterrupt())
    harm(store, Path(store.root_path, "numbers/1.0.0/preprocessed/valid.json"))

    assert go_on(dataset) == ["valid", "test"]
    assert samples(dataset, "valid") == expected("valid")


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"preprocess": lambda self, raw, prepared: None}, "created nothing"),
        ({"columns": ("a", "b", "c")}, "cannot be opened"),
        (
            {"preprocess": DatasetFactory.preprocess, "sources": (), "prepared_resources": ALL},
            "neither sources nor preprocess",
        ),
    ],
)
def test_what_makes_nothing_or_other_columns_is_an_error(
    numbers: Numbers, store: FileStorageConnector, attributes: dict[str, Any], said: str
) -> None:
    with pytest.raises(PreparationError, match=said):
        type("Wrong", (numbers,), attributes)(store).prepare()


def test_a_ready_dataset_stays_in_use_while_prepared_again(
    dataset: NumbersFactory, store: FileStorageConnector, folder: Path
) -> None:
    dataset.prepare()
    for path in folder.iterdir():
        path.unlink()  # the sources are kept
    dataset.factor = 3
    assert dataset.prepare().already_ready
    interrupt(dataset, "test", Interrupted("no"), again=True)
    assert samples(dataset, "train") == expected("train")
    other = type(dataset)(FileStorageConnector(store.root_path))
    HOOKS["after"] = lambda split: other.prepare()  # finds it ready, and leaves what is being made

    assert go_on(dataset, again=True) == list(SPLITS)

    assert samples(dataset, "train") == expected("train", 3)


# --------------------------------------------------------------- what cannot be opened is not ready


@pytest.mark.parametrize("unread", [0, 2])
def test_an_unreadable_split_is_named_with_its_cause(dataset: NumbersFactory, unread: int) -> None:
    class Unread(SequenceDatasetIterator):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index if index != unread else 1 // 0)

    right = HOOKS["open"]
    HOOKS["open"] = lambda split, columns: (
        Unread([[1, 2, 3]]) if split == "valid" else right(split, columns)
    )
    with pytest.raises(
        PreparationError, match=r"split 'valid' cannot be opened.*ZeroDivisionError"
    ) as caught:
        dataset.prepare()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not dataset.is_ready()
    HOOKS["open"] = right

    assert [name for name, _ in dataset.prepare().steps] == ["retrieve"]


@pytest.mark.parametrize(
    "error", [StorageError("no line"), MissingDependencyError("it", "h5py", "hdf5"), None], ids=repr
)
def test_open_is_not_blamed_for_stores_packages_or_empty_splits(
    dataset: NumbersFactory, error: Exception | None
) -> None:
    def opening(split: str, columns: Any) -> DatasetIteratorIF:
        if error is not None:
            raise error
        return SequenceDatasetIterator([[]])

    HOOKS["open"] = opening
    with (
        pytest.raises(StorageError) if isinstance(error, StorageError) else contextlib.nullcontext()
    ):
        dataset.prepare()

    assert dataset.is_ready() is not isinstance(
        error, StorageError
    )  # a package may be on other machines


# ---------------------------------------------------------------------- without preprocessing


def test_a_dataset_of_sources_alone_takes_their_sizes_and_digests(
    folder: Path,
) -> None:
    class Raw(DatasetFactory):
        card = DatasetCard("raw", "1")
        splits = ("a", "b")
        sources = [ResourceDefinition(f"raw/{name}", (folder / name).as_uri()) for name in "ab"]

        def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
            return SequenceDatasetIterator([list(prepared[f"raw/{split}"].read())])

    store = MinimalConnector()  # knows no digests
    new = [source(folder / "a", b"abc"), source(folder / "b", b"")]
    Raw(store).prepare()
    Raw(store).prepare(again=True)  # what is stored is not fetched

    manifest: Any = Raw(store).manifest()
    assert [(each.size, each.sha256) for each in manifest.sources] == [
        (3, new[0].sha256),
        (0, new[1].sha256),
    ]
    assert [(each.size, each.sha256) for each in manifest.prepared] == [
        (3, new[0].sha256),
        (0, new[1].sha256),
    ]
    new = [source(folder / "a", b"xyz"), source(folder / "b", b"d")]
    (folder / "b").unlink()
    with pytest.raises(RetrievalError):
        type("New", (Raw,), {"sources": new})(store).prepare()
    assert store.stored["raw/1/raw/a"] == b"xyz"
    assert not Raw(store).is_ready()


# ---------------------------------------------------------------- what the original left is adopted


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


def test_a_complete_store_without_manifest_is_adopted_and_logged(
    adopting: Numbers, legacy: FileStorageConnector, caplog: Log
) -> None:
    with caplog.at_level(logging.INFO, "data_stack"):
        report = adopting(legacy).prepare()

    assert (report.adopted, report.already_ready, [name for name, _ in report.steps]) == (
        True,
        False,
        ["adopt"],
    )
    assert samples(adopting(legacy), "valid") == [-1, -2]
    assert "adopted" in caplog.text
    manifest: Any = adopting(legacy).manifest()
    assert (manifest.adopted, manifest.seconds) == (True, None)
    assert [record.size for record in manifest.prepared] == [8, 8, 8]
    assert not any(source.verified for source in manifest.sources)
    assert adopting(legacy).verify() == []
    assert adopting(legacy).prepare().already_ready


def test_one_that_cannot_be_written_is_used_without_a_manifest(
    adopting: Numbers, legacy: FileStorageConnector
) -> None:
    dataset = adopting(UnwritableConnector(Path(legacy.root_path)))

    assert dataset.prepare().adopted
    assert (samples(dataset, "valid"), dataset.manifest()) == ([-1, -2], None)


def test_one_that_cannot_be_read_whole_is_not_adopted(
    adopting: Numbers, legacy: FileStorageConnector
) -> None:
    class Unreadable(FileStorageConnector):
        def verify_resource(self, identifier: str, sha256: str | None = None) -> Any:
            raise StorageError("input/output error")

    assert not adopting(Unreadable(legacy.root_path)).prepare().adopted


@pytest.mark.parametrize("damage", [b"", b"[-1, "])
def test_a_damaged_store_is_prepared_again_and_logged(
    adopting: Numbers, legacy: FileStorageConnector, caplog: Log, damage: bytes
) -> None:
    Path(legacy.root_path, "numbers/preprocessed/test.json").write_bytes(damage)

    with caplog.at_level(logging.INFO, "data_stack"):
        assert samples(adopting(legacy), "train") == expected("train")

    assert "damaged" in caplog.text
    assert samples(adopting(legacy), "test") == expected("test")


@pytest.mark.parametrize("error", [PreparationError, KeyboardInterrupt])
def test_an_interrupted_preparation_is_not_taken_for_a_complete_store(
    adopting: Numbers, store: FileStorageConnector, caplog: Log, error: type[BaseException]
) -> None:
    class Late(adopting):  # type: ignore[valid-type,misc]  # a class from a fixture
        def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
            for split in self.splits:  # no steps: the journal stays empty
                with prepared.create(f"preprocessed/{split}.json") as file:
                    file.write(b"[0]")
            raise error("everything is there, but not right")

    with pytest.raises(error):
        Late(store).prepare()

    assert "damaged" not in caplog.text  # there was nothing to adopt
    assert samples(adopting(store), "train") == expected("train")
    manifest: Any = adopting(store).manifest()
    assert not manifest.adopted


# ---------------------------------------------------------------------- beside other processes


def test_the_second_preparation_waits_for_the_work_of_the_first(
    numbers: Numbers, store: FileStorageConnector
) -> None:
    has_begun, may_go_on, done = threading.Event(), threading.Event(), list[str]()

    def before(split: str) -> None:
        has_begun.set()
        may_go_on.wait(60)
        done.append(split)

    HOOKS["before"] = before
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(numbers(store).prepare)
        has_begun.wait(60)
        second = threads.submit(numbers(FileStorageConnector(store.root_path)).prepare)
        ended = wait([first, second], timeout=0.3).done
        may_go_on.set()

    assert not ended
    assert [each.result().already_ready for each in (first, second)] == [False, True]
    assert done == list(SPLITS)


@pytest.mark.parametrize("is_own", [True, False])
def test_leftovers_are_removed_unless_another_preparation_is_under_way(
    dataset: NumbersFactory, store: FileStorageConnector, is_own: bool
) -> None:
    temporary = Path(store.root_path, f"numbers/1.0.0/.~{this_machine()}-1-0-deadbeef")
    temporary.parent.mkdir(parents=True)
    temporary.write_bytes(b"half")
    journals: list[bytes] = []
    HOOKS["before"] = lambda split: journals.append(
        store.get_resource("numbers/1.0.0/journal.json").read()
    )
    dataset.prepare()
    assert names_of(dataset) == WHOLE
    store.set_resource(
        "numbers/1.0.0/journal.json", journals[-1] if is_own else Journal("ab" * 32).to_json()
    )
    store.set_resource(f"numbers/1.0.0/{STAGED}1", b"[0]")
    temporary.write_bytes(b"half")

    assert dataset.prepare().already_ready

    assert names_of(dataset) == (
        WHOLE if is_own else {*WHOLE, "journal.json", f"{STAGED}1", temporary.name}
    )


@pytest.mark.parametrize(("again", "at"), [(False, "train"), (True, "test")])
def test_an_overtaken_preparation_stops_leaves_nothing_and_uses_the_other(
    numbers: Numbers, store: FileStorageConnector, caplog: Log, again: bool, at: str
) -> None:
    class Overtaken(numbers):  # type: ignore[valid-type,misc]  # a class from a fixture
        def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
            for split in prepared.steps(self.splits):
                started.append(split)
                try:
                    with prepared.create(f"preprocessed/{split}.json") as file:
                        file.write(b"[0]")
                        if split == at:  # meanwhile, a process that never heard of leases:
                            numbers(FreeConnector(store.root_path)).prepare(again=again)
                except Exception as error:  # an author may be careless
                    raise AssertionError("being overtaken is no error of the author's") from error

    started: list[str] = []
    if again:
        numbers(store).prepare()

    with caplog.at_level(logging.INFO, "data_stack"):
        Overtaken(store).prepare(again=again)

    assert samples(Overtaken(store), "train") == expected("train")
    assert started == list(SPLITS[: SPLITS.index(at) + 1])
    assert "another process has prepared it" in caplog.text
    assert names_of(numbers(store)) == WHOLE


def test_an_unreleased_lease_is_waited_for_until_the_timeout(
    dataset: NumbersFactory, store: FileStorageConnector, caplog: Log
) -> None:
    with store.lease("numbers/1.0.0/manifest.json") as lease:
        assert lease.acquire()
        report = dataset.prepare(lease_timeout_seconds=0.2)

    assert not report.already_ready
    assert "another process" in caplog.text
    assert samples(dataset, "test") == expected("test")


def test_a_process_that_keeps_overwriting_the_dataset_is_an_error(
    numbers: Numbers, store: FileStorageConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_MAX_ATTEMPTS", 2)  # it waits in between

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
