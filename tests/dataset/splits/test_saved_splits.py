"""Splits that were saved are given back for the dataset they are of, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.fold import Fold
from data_stack.dataset.meta import DatasetMeta
from data_stack.dataset.splits.saved_splits import SavedSplits
from data_stack.dataset.splitter import SplitterFactory
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.stores.splits import load_splits, save_splits
from data_stack.util.untrusted_text import seal_json

N = 23


def dataset(first: int = 0) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([[first, *range(1, N)], [(7 * i) % 3 for i in range(N)]])


def informed() -> InformedDatasetIterator:
    return InformedDatasetIterator(dataset(), DatasetMeta(identifier="digits", dataset_tag="train"))


def samples(splits: Any) -> Any:
    """``splits`` with lists of positions in the place of iterators."""
    if isinstance(splits, DatasetIteratorIF):
        return [sample[0] for sample in splits]
    if isinstance(splits, Fold):
        return splits.number, samples(splits.train), samples(splits.test)
    if isinstance(splits, dict):
        return {name: samples(part) for name, part in splits.items()}
    return type(splits)(samples(part) for part in splits)


@pytest.fixture
def storage() -> InMemoryStorageConnector:
    return InMemoryStorageConnector()


def divisions(iterator: DatasetIteratorIF) -> dict[str, Any]:
    return {
        "list": iterator.split([0.8, 0.2], seed=1),
        "named": iterator.split({"train": 0.8, "val": 0.2}, stratify=True),
        "by column": iterator.split(by=1),
        "folds": iterator.folds(3),
        "one fold": iterator.folds(3)[1],
        "drawn order": SplitterFactory.get_stratified_splitter([0.5, 0.5], 1).split(iterator),
        "nested folds": SplitterFactory.get_nested_cv_splitter(3, 2).split(iterator),
        "any views": {
            "first": iterator.take(5),
            "rest": [iterator[5:], {"none": iterator[:0]}],
            "again": iterator[[3, 3, 1]],
        },
        "a single part": iterator[::2],
    }


@pytest.mark.parametrize("kind", divisions(dataset()))
@pytest.mark.parametrize("make", [dataset, informed])
def test_saved_splits_are_given_back_as_they_were(
    storage: InMemoryStorageConnector, kind: str, make: Any
) -> None:
    splits = divisions(make())[kind]
    save_splits(storage, "digits/splits.json", splits)

    loaded = load_splits(storage, "digits/splits.json", make())

    assert samples(loaded) == samples(splits)


@given(
    n=st.integers(1, 40),
    parts=st.lists(st.lists(st.integers(0, 39), max_size=60), min_size=1, max_size=4),
    in_order=st.booleans(),
)
def test_any_positions_survive(n: int, parts: list[list[int]], in_order: bool) -> None:
    iterator = SequenceDatasetIterator([list(range(n))])
    chosen = [[position % n for position in part] for part in parts]
    chosen = [sorted(set(part)) for part in chosen] if in_order else chosen
    saved = SavedSplits.of([iterator[part] for part in chosen])

    loaded = SavedSplits.from_json(saved.to_json())

    assert loaded == saved
    assert samples(loaded.apply_to(iterator)) == chosen


def test_a_loaded_part_is_a_view_with_its_meta(
    storage: InMemoryStorageConnector,
) -> None:
    iterator = informed()
    save_splits(storage, "splits.json", divisions(iterator)["named"])

    loaded = load_splits(storage, "splits.json", iterator)

    assert loaded["val"].underlying_iterators == [iterator]
    assert loaded["val"].dataset_meta.dataset_tag == "train/val"
    assert loaded["val"].dataset_meta.identifier == "digits"
    assert loaded["val"]._iterators_below()[0].view_tags == {"part": "val"}


def test_views_of_views_are_saved_for_the_named_iterator(
    storage: InMemoryStorageConnector,
) -> None:
    iterator = informed()
    train, test = iterator.split([0.8, 0.2], seed=1)
    inner = {"fit": train[::2], "stop": train[1::2].shuffle(3), "test": test, "all": iterator}

    save_splits(storage, "splits.json", inner, iterator=iterator)

    assert samples(load_splits(storage, "splits.json", informed())) == samples(inner)


def test_splits_are_not_replaced_by_others_unless_that_is_wanted(
    storage: InMemoryStorageConnector,
) -> None:
    first, second = dataset().split([0.8, 0.2], seed=1), dataset().split([0.8, 0.2], seed=2)
    save_splits(storage, "splits.json", first)
    save_splits(storage, "splits.json", first)

    with pytest.raises(ConfigError, match=r"other splits are stored as 'splits\.json' already"):
        save_splits(storage, "splits.json", second)

    assert samples(load_splits(storage, "splits.json", dataset())) == samples(first)
    save_splits(storage, "splits.json", second, replace=True)
    assert samples(load_splits(storage, "splits.json", dataset())) == samples(second)


def test_another_dataset_is_refused_by_both_names(storage: InMemoryStorageConnector) -> None:
    saved = save_splits(storage, "splits.json", dataset().split([0.8, 0.2]))
    other, shorter = dataset(first=99), dataset()[:-1]

    with pytest.raises(
        ConfigError, match=f"fingerprint {saved.fingerprint}.*fingerprint {other.fingerprint()}"
    ):
        load_splits(storage, "splits.json", other)
    with pytest.raises(ConfigError, match=r"of 23 samples .* has 22 samples"):
        load_splits(storage, "splits.json", shorter)


class Doubled(DatasetIteratorView):
    """A client's view that changes samples."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) * 2


@pytest.mark.parametrize(
    "splits",
    [
        [],
        {"train": None},
        [dataset()],
        [dataset()[:3], dataset()[3:]],
        [Doubled(dataset(), [1, 2])],
        [CombinedDatasetIterator([dataset()[:3]])],
    ],
)
def test_what_is_no_view_of_one_iterator_is_refused(splits: Any) -> None:
    with pytest.raises(ConfigError):
        SavedSplits.of(splits)


# --- damage ---------------------------------------------------------------------------------------


def stored() -> bytes:
    iterator = dataset()
    return SavedSplits.of({"train": iterator[[5, 2, 7]], "val": iterator.take(2)}).to_json()


def test_splits_that_were_cut_short_or_changed_are_refused() -> None:
    data = stored().rstrip()

    for position in range(0, len(data), 3):
        flipped = bytearray(data)
        flipped[position] ^= 1
        for damaged in (data[:position], bytes(flipped)):
            with pytest.raises(DatasetFileCorruptError):
                SavedSplits.from_json(damaged)


@pytest.mark.parametrize(
    "changes",
    [
        {"more": 1},
        {"parts": '{"part":7}'},
        {"parts": '{"part":[null,7]}'},
        {"parts": '{"fold":[0]}'},
        {"parts": "[" * 100_000},
        {"parts": '{"part":[null,{"array":{"dtype":"<i4","shape":[1],"values":[23]}}]}'},
    ],
)
def test_splits_that_contradict_themselves_are_refused(changes: Any) -> None:
    fields = json.loads(stored())
    del fields["digest"]
    fields.update(changes)

    with pytest.raises(DatasetFileCorruptError):
        SavedSplits.from_json(seal_json(fields)).apply_to(dataset())
