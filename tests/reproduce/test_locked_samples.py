"""A lock compares samples, not only prepared bytes; the store remembers their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.dataset.iterator import DatasetIterator
from data_stack.exception import LockError
from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector, StorageConnector
from data_stack.reproduce.lock import SAMPLES_VARIABLE, LockFile

READ: list[int] = []


class Counted(DatasetIterator):
    """Numbers; notes which positions are read."""

    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        READ.append(index)
        return int(self._numbers[index]), 0, 0


def numbers_class(add: int = 0) -> type[DatasetFactory]:
    """Ten numbers in each split; only ``open`` depends on ``add``."""

    class Numbers(DatasetFactory):
        card = DatasetCard("numbers", "1.0.0", license="CC0-1.0")
        splits = ("train", "test")

        def preprocess(self, raw: Any, prepared: Any) -> None:
            with prepared.create("numbers.bin") as target:
                target.write(np.arange(10).tobytes())

        def open(self, split: str, prepared: Any, *, factor: int = 1) -> Any:
            with prepared["numbers.bin"] as file:
                return Counted(np.frombuffer(file.read(), np.int64) * factor + add)

    return Numbers


@pytest.fixture(autouse=True)
def _numbers() -> Iterator[None]:
    register(numbers_class())
    yield
    data_stack.default_repository().remove("numbers")


def register(factory: type[DatasetFactory]) -> None:
    data_stack.default_repository().register("numbers", factory, replace=True)


@pytest.fixture
def store(tmp_path: Path) -> StorageConnector:
    return FileStorageConnector(tmp_path / "store")


@pytest.fixture
def lock_path(tmp_path: Path, store: StorageConnector) -> Path:
    data_stack.lock("numbers", path=tmp_path / "data_stack.lock", storage=store)
    return tmp_path / "data_stack.lock"


def n_read(action: Callable[[], Any]) -> int:
    """How many samples an action reads."""
    READ.clear()
    action()
    return len(READ)


def test_a_changed_open_of_the_same_version_is_an_error(lock_path: Path, store: StorageConnector) -> None:
    same = data_stack.load("numbers", "train", store, lock=lock_path)
    register(numbers_class(add=100))

    with pytest.raises(LockError, match=r"samples of 'train' differ from those in the lock, although the prepared bytes are eq"):
        data_stack.load("numbers", "train", store, lock=lock_path)
    (checked,) = LockFile.read(lock_path).check(store)
    (restored,) = LockFile.read(lock_path).restore(InMemoryStorageConnector())

    assert [number for number, _, _ in same] == list(range(10))
    assert (checked.what, checked.is_harmless) == (restored.what, restored.is_harmless) == ("samples", False)
    assert "Register the dataset with its earlier code" in checked.message


def test_samples_are_read_once_for_each_code_and_split_and_a_copy_of_the_store_knows_them(
    lock_path: Path, tmp_path: Path
) -> None:
    def load(storage: Any, split: str | None, **config: Any) -> Callable[[], Any]:
        return lambda: data_stack.load("numbers", split, storage, lock=lock_path, **config)

    other, check = tmp_path / "other", LockFile.read(lock_path).check
    LockFile.read(lock_path).restore(other, samples=False)
    first, again = n_read(load(other, "train")), n_read(load(other, "train"))
    both, checked = n_read(load(other, None)), n_read(lambda: check(other))
    data_stack.copy_datasets(other, tmp_path / "copy")
    copied = n_read(load(tmp_path / "copy", None))
    register(numbers_class(add=1))
    changed = n_read(lambda: check(other))
    register(numbers_class())

    assert (first, again, both, checked, copied, changed) == (10, 0, 10, 0, 0, 20)
    assert n_read(lambda: check(other)) == 0


def test_damaged_notes_are_written_again(lock_path: Path, store: StorageConnector) -> None:
    (identifier,) = [each for each in store.list_resources() if each.endswith("samples.json")]
    for damaged in (b"", b"{", b"[" * 100_000, store.get_resource(identifier).read()[:-20]):
        store.set_resource(identifier, damaged)

        assert LockFile.read(lock_path).check(store) == []
    assert n_read(lambda: LockFile.read(lock_path).check(store)) == 0


def test_comparing_equal_bytes_can_be_declined_and_differing_ones_are_compared_all_the_same(
    lock_path: Path, store: StorageConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(numbers_class(add=100))
    monkeypatch.setenv(SAMPLES_VARIABLE, "0")

    assert n_read(lambda: data_stack.load("numbers", "train", store, lock=lock_path)) == 0
    assert LockFile.read(lock_path).check(store) == []
    assert [each.what for each in LockFile.read(lock_path).check(store, samples=True)] == ["samples"]
    locked = LockFile.read(lock_path)
    locked.datasets["numbers"]["prepared"][0]["sha256"] = "0" * 64
    assert [each.what for each in locked.check(store)] == ["samples"]
