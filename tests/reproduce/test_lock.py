"""A lock file names the data of a piece of work, and tells what is not as it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layer_laws import Samples

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.exception import ConfigError, LockError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import (
    FileStorageConnector,
    InMemoryStorageConnector,
    StorageConnector,
)
from data_stack.reproduce.lock import LOCK_VARIABLE
from data_stack.reproduce.lock_file import SAMPLES_VARIABLE, LockFile

READ: list[int] = []


class Counted(Samples):
    """Numbers; notes which positions are read."""

    def __init__(self, numbers: Any) -> None:
        super().__init__([(number, number % 2, number % 2) for number in numbers.tolist()])
        self.read = READ


def numbers_class(
    source: Path, *, version: str = "1.0.0", offset: int = 0, note: bytes = b"", add: int = 0
) -> type[DatasetFactory]:
    """Return the factory of a dataset of the numbers in a file.

    Args:
        source: the file.
        version: version of the dataset.
        offset: added to the numbers when they are prepared: samples and prepared bytes change.
        note: appended to the prepared bytes: they change, but the samples do not.
        add: added to the numbers when they are opened: the samples change, but the bytes do not.
    """

    class Numbers(DatasetFactory):
        card = DatasetCard("numbers", version, license="CC0-1.0")
        sources = (ResourceDefinition("raw/numbers.txt", source.as_uri()),)
        splits = ("train", "test")

        def preprocess(self, raw: Any, prepared: Any) -> None:
            with raw["raw/numbers.txt"] as file, prepared.create("numbers.bin") as target:
                target.write((np.array(file.read().split(), np.int64) + offset).tobytes() + note)

        def open(self, split: str, prepared: Any, *, factor: int = 1) -> Any:
            with prepared["numbers.bin"] as file:
                numbers = np.frombuffer(file.read()[:80], np.int64) * factor
            chosen = numbers[:8] if split == "train" else numbers[8:]
            return Counted(chosen + add)

    return Numbers


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_text(" ".join(map(str, range(10))))
    return path


@pytest.fixture(autouse=True)
def _numbers(source: Path) -> Iterator[None]:
    register(numbers_class(source))
    yield
    data_stack.default_repository().remove("numbers")


def register(factory: type[DatasetFactory]) -> None:
    data_stack.default_repository().register("numbers", factory, replace=True)


@pytest.fixture
def lock_path(tmp_path: Path) -> Path:
    train = data_stack.load("numbers", "train", tmp_path / "first")
    path = tmp_path / "data_stack.lock"
    data_stack.lock(path=path, storage=tmp_path / "first", train=train.shuffle(seed=3).take(5))
    return path


def test_on_an_empty_machine_the_same_samples_come_back(lock_path: Path, tmp_path: Path) -> None:
    before = lock_path.read_bytes()
    store = FileStorageConnector(tmp_path / "second")

    missing = LockFile.read(lock_path).check(store)
    differences = LockFile.read(lock_path).restore(store)
    loaded = data_stack.load("numbers", "train", store, lock=lock_path)

    assert [difference.what for difference in missing] == ["preparation"]
    assert "not prepared here" in missing[0].message
    assert differences == []
    assert LockFile.read(lock_path).check(store) == []
    assert [int(number) for number, _, _ in loaded] == list(range(8))
    assert lock_path.read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "what", "is_harmless", "said"),
    [
        ({"offset": 1}, ["samples", "stack"], False, "the samples of 'test', 'train' differ"),
        ({"note": b"!"}, ["preparation", "stack"], True, "all samples are equal"),
        (
            {"version": "2.0.0"},
            ["version", "stack"],
            False,
            "without version '1.0.0'; it offers: 2.0.0",
        ),
    ],
)
def test_each_change_of_the_plugin_is_told_apart(
    lock_path: Path, source: Path, changed: Any, what: list[str], is_harmless: bool, said: str
) -> None:
    register(numbers_class(source, **changed))
    store = InMemoryStorageConnector()

    differences = LockFile.read(lock_path).restore(store)

    assert [difference.what for difference in differences] == what
    for difference in differences:
        assert difference.is_harmless == is_harmless
    assert said in differences[0].message
    if is_harmless:
        assert len(data_stack.load("numbers", "train", store, lock=lock_path)) == 8
    else:
        with pytest.raises(LockError, match="numbers"):
            data_stack.load("numbers", "train", store, lock=lock_path)


def test_a_source_has_its_mirrors_another_digest_is_told(source: Path, tmp_path: Path) -> None:
    def declare(sha256: str) -> type[DatasetFactory]:
        factory = numbers_class(source)
        gone = (tmp_path / "gone.txt").as_uri()
        factory.sources = (
            ResourceDefinition("raw/numbers.txt", source.as_uri(), sha256=sha256, mirrors=(gone,)),
        )
        register(factory)
        return factory

    declare(hashlib.sha256(source.read_bytes()).hexdigest())
    data_stack.lock("numbers", path=tmp_path / "x.lock", storage="memory://")
    source.write_text("1 2 3")
    mirrors = LockFile.read(tmp_path / "x.lock").restore(InMemoryStorageConnector())
    declare(hashlib.sha256(source.read_bytes()).hexdigest())
    declared = LockFile.read(tmp_path / "x.lock").check(InMemoryStorageConnector())

    assert [difference.what for difference in mirrors] == ["source"]
    assert "gone.txt: No such file" in mirrors[0].message
    assert [difference.what for difference in declared] == ["source", "preparation"]
    assert "has another digest" in declared[0].message


def test_the_digest_that_is_declared_here_is_named(source: Path, tmp_path: Path) -> None:
    data_stack.lock("numbers", path=tmp_path / "x.lock", storage="memory://")
    locked = LockFile.read(tmp_path / "x.lock")
    locked.datasets["numbers"]["sources"][0]["md5_sum"] = "0" * 32
    factory = numbers_class(source)
    factory.sources = (
        ResourceDefinition("raw/numbers.txt", source.as_uri(), md5_sum="1" * 32, sha256="2" * 64),
    )
    register(factory)

    declared = locked.check(InMemoryStorageConnector())

    assert f"has another digest, {'2' * 64}" in declared[0].message


@pytest.mark.parametrize(
    ("locked", "said"),
    [
        (["numpy 1.0.0"], "; libraries here: "),
        ([], ""),
        # One side has all that the other side has: it may only know more.
        (["lazy-data-stack 0.0.1", "numpy 1.0.0"], "then: lazy-data-stack 0.0.1, numpy 1.0.0"),
    ],
)
def test_other_versions_of_libraries_are_named_beside_other_samples(
    tmp_path: Path, locked: list[str], said: str
) -> None:
    store = FileStorageConnector(tmp_path / "store")
    data_stack.lock("digits", path=tmp_path / "x.lock", storage=store)
    lock = LockFile.read(tmp_path / "x.lock")
    entry = lock.datasets["digits"]
    entry["libraries"] = locked
    entry["configurations"][0]["splits"]["train"]["samples"] = "0" * 64

    (difference,) = lock.check(store)

    assert difference.what == "samples"
    assert said in difference.message
    assert ("libraries" in difference.message) == bool(locked)


def test_libraries_that_only_one_side_names_are_not_told(tmp_path: Path) -> None:
    store = FileStorageConnector(tmp_path / "store")
    data_stack.lock("digits", path=tmp_path / "x.lock", storage=store)
    lock = LockFile.read(tmp_path / "x.lock")
    entry = lock.datasets["digits"]
    entry["libraries"] = [*entry["libraries"], "numpy 1.0.0"]
    entry["configurations"][0]["splits"]["train"]["samples"] = "0" * 64

    (difference,) = lock.check(store)

    assert "libraries" not in difference.message


def test_a_dataset_without_prepared_files_is_compared_by_its_samples(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unprepared(DatasetFactory):
        card = DatasetCard("numbers", "1.0.0", license="CC0-1.0")
        splits = ("train",)
        added = 0

        def open(self, split: str, prepared: Any) -> Any:
            return Counted(np.arange(4) + self.added)

    register(Unprepared)
    store = InMemoryStorageConnector()
    data_stack.lock("numbers", path=tmp_path / "x.lock", storage=store)
    monkeypatch.setenv(SAMPLES_VARIABLE, "0")
    monkeypatch.setattr(Unprepared, "added", 1)

    (difference,) = LockFile.read(tmp_path / "x.lock").check(InMemoryStorageConnector())

    assert difference.what == "samples"
    assert "although the prepared bytes are equal" not in difference.message


def test_lock_returns_the_lock_that_it_wrote(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "x.lock"

    returned = data_stack.lock("numbers", path=path, storage=tmp_path / "store")

    assert returned.datasets == LockFile.read(path).datasets


def test_each_configuration_of_a_dataset_is_locked(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "x.lock"
    store = tmp_path / "store"
    plain = data_stack.load("numbers", "train", store)
    twice = data_stack.load("numbers", "train", store, factor=2)

    data_stack.lock(path=path, storage=store, plain=plain, twice=twice)
    data_stack.lock(path=path, storage=store, twice=twice.take(3))

    configurations = LockFile.read(path).datasets["numbers"]["configurations"]
    configs = [configuration["config"] for configuration in configurations]
    assert configs == [{}, {"factor": 2}]


def test_a_difference_names_splits_and_configurations(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "x.lock"
    store = tmp_path / "store"
    plain = data_stack.load("numbers", "train", store)
    twice = data_stack.load("numbers", "train", store, factor=2)
    data_stack.lock(path=path, storage=store, plain=plain, twice=twice)
    register(numbers_class(source, offset=1))

    differences = LockFile.read(path).restore(InMemoryStorageConnector())

    splits = "'test', 'train', 'test' (factor=2), 'train' (factor=2)"
    assert splits in differences[0].message


def test_of_several_locked_configurations_one_is_named(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "two.lock"
    store = tmp_path / "store"
    twice = data_stack.load("numbers", "train", store, factor=2)
    thrice = data_stack.load("numbers", "train", store, factor=3)
    data_stack.lock(path=path, storage=store, by_2=twice, by_3=thrice)

    loaded = data_stack.load("numbers", "train", store, lock=path, factor=3)

    assert len(loaded) == 8
    with pytest.raises(
        LockError,
        match=r"2 configurations of dataset 'numbers': factor=2; factor=3. Load it with one",
    ):
        data_stack.load("numbers", "train", store, lock=path)


def test_the_variable_names_the_lock_unknown_datasets_are_errors(
    lock_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCK_VARIABLE, str(lock_path))

    assert len(data_stack.load("numbers", "test", "memory://")) == 2
    with pytest.raises(
        LockError, match=r"'digits' is not in the lock file.*it has numbers. Add it with"
    ):
        data_stack.load("digits")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "format = 2",
        "format = 1\ndatasets = 3",
        "format = 1\n[datasets]\na = 1",
        "format = 1\n[datasets.a]\n",
        "[",
    ],
)
def test_a_damaged_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "data_stack.lock"
    path.write_text(text)

    with pytest.raises(LockError, match=r"data_stack.lock"):
        LockFile.read(path)
    with pytest.raises(LockError, match="Make one with"):
        LockFile.read(tmp_path / "other.lock")


def test_two_versions_of_a_dataset_need_two_lock_files(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "lock"
    store = tmp_path / "store"
    repository = data_stack.default_repository()
    repository.register("numbers@0.9.0", numbers_class(source, version="0.9.0", offset=5))
    try:
        old = data_stack.load("numbers@0.9.0", "train", store)
        new = data_stack.load("numbers", "train", store)

        with pytest.raises(ConfigError, match="two files"):
            data_stack.lock(old=old, new=new, path=path, storage=store)
    finally:
        repository.remove("numbers@0.9.0")
    assert not path.exists()


def test_a_value_that_toml_lacks_is_not_locked(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    configuration = {"config": {"step": None}, "splits": {}}
    locked = LockFile({"numbers": {"configurations": [configuration]}})

    with pytest.raises(ConfigError, match="TOML"):
        locked.write(path)
    assert not path.exists()


def test_a_path_is_not_locked_as_a_dataset(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    with pytest.raises(ConfigError, match="a path or URL, which a lock file cannot name"):
        data_stack.lock(str(tmp_path), path=path)
    assert not path.exists()


def test_a_stack_that_no_recipe_rebuilds_is_not_locked(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "lock"
    stack = data_stack.load("numbers", "train", tmp_path / "store").map(lambda sample: sample)

    with pytest.raises(
        ConfigError, match="stack 'new' cannot be locked, as its recipe cannot rebuild it: "
    ):
        data_stack.lock(new=stack, path=path)
    assert not path.exists()


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_file_is_found_after_moving_with_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    table = tmp_path / "project" / "data" / "x.csv"
    table.parent.mkdir(parents=True)
    table.write_text("a,b\n1,2\n3,4\n")
    monkeypatch.chdir(tmp_path / "project" / "data")
    stack = data_stack.from_csv("x.csv" if is_relative else table).shuffle(seed=1)
    data_stack.lock(path="../data_stack.lock", stack=stack)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").rename(tmp_path / "elsewhere")
    lock_file = tmp_path / "elsewhere" / "data_stack.lock"

    assert '"path\\":\\"data/x.csv\\"' in lock_file.read_text()
    assert LockFile.read(lock_file).restore("memory://") == []
    LockFile.read(lock_file).write(tmp_path / "above.lock")
    assert "elsewhere/data/x.csv" in (tmp_path / "above.lock").read_text()
    assert LockFile.read(tmp_path / "above.lock").restore("memory://") == []


@pytest.mark.parametrize("damage", ["another byte", "missing", "manifest"])
def test_a_damaged_dataset_is_not_said_to_be_unprepared(
    lock_path: Path, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "first" / "numbers" / "1.0.0"
    path = folder / ("manifest.json" if damage == "manifest" else "numbers.bin")
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[:-1] + b"!")

    (difference,) = LockFile.read(lock_path).check(tmp_path / "first")

    assert difference.what == "preparation"
    assert not difference.is_harmless
    assert "what is stored here cannot be used: " in difference.message
    assert LockFile.read(lock_path).restore(tmp_path / "first") == []


def test_a_lock_file_has_no_password_of_a_source(tmp_path: Path, source: Path) -> None:
    class Guarded(numbers_class(source)):  # type: ignore[misc]  # a class made here
        sources = (
            ResourceDefinition(
                "raw/numbers.txt",
                source.as_uri(),
                mirrors=("https://me:hunter2@example.org/x?token=abcdef",),
            ),
        )

    register(Guarded)
    path = tmp_path / "data_stack.lock"

    data_stack.lock("numbers", path=path, storage=tmp_path / "store")

    assert "https://***@example.org/x?token=***" in path.read_text()
    assert "hunter2" not in path.read_text()
    assert LockFile.read(path).check(tmp_path / "store") == []


@pytest.fixture
def samples_lock(tmp_path: Path, store: StorageConnector) -> Path:
    data_stack.lock("numbers", path=tmp_path / "data_stack.lock", storage=store)
    return tmp_path / "data_stack.lock"


def n_read(action: Callable[[], Any]) -> int:
    """How many samples an action reads."""
    READ.clear()
    action()
    return len(READ)


def test_a_changed_open_of_the_same_version_is_an_error(
    samples_lock: Path, source: Path, store: StorageConnector
) -> None:
    same = data_stack.load("numbers", "train", store, lock=samples_lock)
    register(numbers_class(source, add=100))

    with pytest.raises(
        LockError,
        match=r"samples of 'train' differ from those in the lock, although the prepared bytes are eq",
    ):
        data_stack.load("numbers", "train", store, lock=samples_lock)
    (checked,) = LockFile.read(samples_lock).check(store)
    (restored,) = LockFile.read(samples_lock).restore(InMemoryStorageConnector())

    assert [number for number, _, _ in same] == list(range(8))
    for difference in (checked, restored):
        assert difference.what == "samples"
        assert not difference.is_harmless
    assert "Register the dataset with its earlier code" in checked.message


def test_samples_are_read_once_for_each_code_and_split(
    samples_lock: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def n_read_by_load(storage: Path, split: str | None) -> int:
        return n_read(lambda: data_stack.load("numbers", split, storage, lock=samples_lock))

    def n_read_by_check(storage: Path) -> int:
        return n_read(lambda: LockFile.read(samples_lock).check(storage))

    other = tmp_path / "other"
    copy = tmp_path / "copy"
    with monkeypatch.context() as without_samples:
        without_samples.setenv(SAMPLES_VARIABLE, "0")
        LockFile.read(samples_lock).restore(other)

    # The 8 samples of train are compared by the first load, and the 2 of test by the next one.
    assert n_read_by_load(other, "train") == 8
    assert n_read_by_load(other, "train") == 0
    assert n_read_by_load(other, None) == 2
    assert n_read_by_check(other) == 0
    # A copy has the notes of what was compared.
    data_stack.copy_datasets(other, copy)
    assert n_read_by_load(copy, None) == 0
    # Other code reads all samples again, but the notes of the earlier code stay.
    register(numbers_class(source, add=1))
    assert n_read_by_check(other) == 10
    register(numbers_class(source))
    assert n_read_by_check(other) == 0


def test_damaged_notes_are_written_again(samples_lock: Path, store: StorageConnector) -> None:
    identifiers = store.list_resources()
    (notes,) = [identifier for identifier in identifiers if identifier.endswith("samples.json")]
    cut_off = store.get_resource(notes).read()[:-20]
    for damaged in (b"", b"{", b"[" * 100_000, cut_off):
        store.set_resource(notes, damaged)

        assert LockFile.read(samples_lock).check(store) == []
    assert n_read(lambda: LockFile.read(samples_lock).check(store)) == 0


def test_only_differing_bytes_are_compared_if_declined(
    samples_lock: Path, source: Path, store: StorageConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(numbers_class(source, add=100))
    monkeypatch.setenv(SAMPLES_VARIABLE, "0")

    assert n_read(lambda: data_stack.load("numbers", "train", store, lock=samples_lock)) == 0
    assert LockFile.read(samples_lock).check(store) == []
    locked = LockFile.read(samples_lock)
    locked.datasets["numbers"]["prepared"][0]["sha256"] = "0" * 64
    differences = locked.check(store)
    assert [difference.what for difference in differences] == ["samples"]
