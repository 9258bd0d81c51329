"""Splits as TFDS and Hugging Face write them: slices in samples and percent, sums, all of them,
lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets.arrow_reader import ReadInstruction
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack import BaseDatasetFactory, DatasetCard, DatasetFactory, Resources
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import ConfigError, UnknownSplitError
from data_stack.repository.repository import DatasetRepository
from data_stack.repository.split_expressions import (
    Term,
    load_expression,
    parse_expression,
    position_of,
)
from data_stack.reproduce.lock_file import LockFile

LENGTHS = {"train": 37, "test": 12, "dev-clean.100": 5, "a+b": 3, "train[:5]": 2}


class Numbers(DatasetFactory):
    """Numbers that begin at another hundred in each split; some splits have the names of
    expressions.
    """

    card = DatasetCard(name="numbers", version="1")
    splits = tuple(LENGTHS)
    columns = ("number",)
    iterator_meta = IteratorMeta("number", None, None)  # type: ignore[arg-type]
    opened: list[str] = []

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        self.opened.append(split)
        start = 100 * list(LENGTHS).index(split)
        return SequenceDatasetIterator([np.arange(start, start + LENGTHS[split])])


class Legacy(BaseDatasetFactory):
    """Declares no splits, and takes any text for one."""

    def get_dataset_iterator(self, config: Any = None) -> Any:
        return SequenceDatasetIterator([[config["split"]] * 4, range(4)]), IteratorMeta()


@pytest.fixture
def repository() -> DatasetRepository:
    repository = DatasetRepository()
    repository.register("numbers", Numbers)
    return repository


def numbers(iterator: Any) -> list[int]:
    found: list[int] = iterator.read_column(0).tolist() if len(iterator) else []
    return found


TRAIN, TEST = list(range(37)), list(range(100, 112))


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[:10]", TRAIN[:10]),
        ("train[-10:]", TRAIN[-10:]),
        ("train[5:7]+test[:+2]+train[-1:]", [5, 6, 100, 101, 36]),
        ("train[:10%]", TRAIN[:4]),
        ("train[10%:-10%]", TRAIN[4:33]),
        ("train[-1%:]", []),
        ("dev-clean.100[1:3]", [201, 202]),
        ("train[:5]", [400, 401]),
        ("train[:5]+test[:1]", [0, 1, 2, 3, 4, 100]),
        ("all", TRAIN + TEST + [200, 201, 202, 203, 204, 300, 301, 302, 400, 401]),
        ("all[-3:]", [302, 400, 401]),
    ],
)
@pytest.mark.filterwarnings("ignore:the part .* is empty")
def test_an_expression_is_slices_and_sums_of_splits(
    repository: DatasetRepository, split: str, expected: list[int]
) -> None:
    loaded = repository.load("numbers", split)

    assert numbers(loaded) == expected
    tag = split if split in LENGTHS else loaded.dataset_meta.dataset_tag
    assert (loaded.dataset_meta.dataset_tag, loaded.dataset_meta.identifier) == (
        tag,
        f"numbers/{split}",
    )
    assert loaded.column_names == ["number"]


def test_a_list_gives_a_list(repository: DatasetRepository) -> None:
    fit, check, test = repository.load("numbers", ["train[:80%]", "train[80%:]", "test"])

    assert (numbers(fit) + numbers(check), numbers(test)) == (TRAIN, TEST)
    assert [len(each) for each in repository.load("numbers", ("train", "all"))] == [37, 59]


@given(
    n=st.integers(0, 300),
    start=st.integers(-100, 100),
    stop=st.integers(-100, 100),
    unit=st.sampled_from(["", "%"]),
)
@pytest.mark.filterwarnings("ignore:the part .* is empty")
def test_slices_are_those_of_hugging_face(n: int, start: int, stop: int, unit: str) -> None:
    samples = SequenceDatasetIterator([np.arange(n)])
    text = f"train[{start}{unit}:{stop}{unit}]"

    (instruction,) = ReadInstruction.from_spec(text).to_absolute({"train": n})
    expected = list(range(n))[instruction.from_ : instruction.to]
    if not any(
        bound < 0 and round(bound * n / 100) == 0 for bound in (start, stop)
    ):  # where theirs are all, not none
        assert numbers(load_expression(lambda name: samples, text, lambda: ("train",))) == expected


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (
            "trian[:10]",
            r"'trian' \(did you mean 'train'\?\) in 'trian\[:10\]'; the splits are: train, test",
        ),
        *(
            (split, "is malformed.* Write it as")
            for split in ("train[10]", "train[:10", "train++test", "train[a:b]", "train[:101%]")
        ),
        *(
            (split, "longer than 100")
            for split in ("train[:" + "1" * 2000 + "]", "+".join(["train"] * 101))
        ),
        (["train", 3], "a list of splits"),
        (["train", "trian"], "no split 'trian'"),
    ],
)
def test_a_malformed_expression_is_an_error_that_names_the_splits(
    repository: DatasetRepository, split: Any, message: str
) -> None:
    Numbers.opened.clear()

    with pytest.raises(UnknownSplitError, match=message):
        repository.load("numbers", split)
    assert Numbers.opened in ([], ["train"])


def test_only_named_splits_are_opened_each_once(repository: DatasetRepository) -> None:
    Numbers.opened.clear()

    repository.load("numbers", "train[:5]+train[-5:]+test")

    assert Numbers.opened == ["train", "test"]


def test_a_factory_without_splits_gets_names_unchanged() -> None:
    repository = DatasetRepository()
    repository.register("legacy", Legacy)

    assert repository.load("legacy", "a+b")[0] == ("a+b", 0)
    assert repository.load("legacy", "all")[0] == ("all", 0)
    assert list(repository.load("legacy", "x[1:3]")) == [("x", 1), ("x", 2)]


def test_recipes_and_fingerprints_of_expressions_are_those_of_the_stacks(
    repository: DatasetRepository,
) -> None:
    loaded = repository.load("numbers", "train[5:25%]+test")
    by_hand = repository.load("numbers", "train")[5:9].combine(repository.load("numbers", "test"))

    again: Any = data_stack.from_recipe(loaded.recipe(), repository=repository)

    assert loaded.fingerprint() == again.fingerprint() == by_hand.fingerprint()
    assert (numbers(again), again.dataset_meta) == (numbers(loaded), loaded.dataset_meta)
    assert loaded.recipe()["reproducible"]


def test_a_lock_file_knows_the_splits_of_an_expression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, store = tmp_path / "data_stack.lock", tmp_path / "store"
    wanted = data_stack.load("digits", split="test[:10%]+train[-5:]", storage=str(store))
    data_stack.lock(path=lock, storage=str(store), stack=wanted)

    monkeypatch.setenv("DATA_STACK_LOCK", str(lock))
    loaded = data_stack.load("digits", split="test[:10%]+train[-5:]", storage=str(store))

    assert loaded.fingerprint() == wanted.fingerprint()
    assert len(data_stack.load("digits", split="all", storage=str(store))) == 1797
    assert [
        len(each)
        for each in data_stack.load("digits", split=["test", "train[:1]"], storage=str(store))
    ] == [360, 1]
    with pytest.raises(UnknownSplitError, match=r"'tset'.*the splits are: train, test"):
        data_stack.load("digits", split="tset[:5]", storage=str(store))
    assert LockFile.read(lock).restore(str(store)) == []


def test_parts_by_counts_of_all_samples() -> None:
    iterator = SequenceDatasetIterator([range(137), [i % 3 for i in range(137)]])

    small, large = iterator.split([100, np.int64(37)], seed=3)
    named = iterator.split({"fit": 130, "check": 7}, stratify=1)

    assert (len(small), len(large), len(named["fit"]), len(named["check"])) == (100, 37, 130, 7)
    assert sorted(numbers(small) + numbers(large)) == list(range(137))
    assert sorted(np.bincount(named["check"].read_column(1))) == [2, 2, 3]
    assert (
        numbers(small)
        == numbers(iterator.split([100, 37], seed=3)[0])
        != numbers(iterator.split([100, 37], seed=4)[0])
    )
    again: Any = data_stack.from_recipe(small.recipe())
    assert (numbers(again), again.fingerprint()) == (numbers(small), small.fingerprint())
    assert [len(part) for part in iterator.take(1).split([1, 0])] == [1, 0]
    message = r"parts of 100 \+ 30 = 130 samples, but there are 137: add a part for the other 7, or give ratios"
    with pytest.raises(ConfigError, match=message):
        iterator.split([100, 30])
    with pytest.raises(ConfigError, match="must not be negative"):
        iterator.split([150, -13])


def test_a_shuffle_without_a_seed_draws_one_and_shows_it() -> None:
    iterator: Any = data_stack.load("digits", split="test")

    shuffled = iterator.shuffle()

    seed = next(
        node["arguments"]["seed"]
        for node in shuffled.recipe()["nodes"]
        if node["layer"] == "shuffled"
    )
    assert repr(shuffled).startswith(
        f"<InformedDatasetIterator: 360 samples shuffled with seed {seed} of 'digits/test'"
    )
    assert f"seed={seed}" in str(shuffled.explain())
    assert (
        shuffled.fingerprint()
        == iterator.shuffle(seed).fingerprint()
        == data_stack.from_recipe(shuffled.recipe()).fingerprint()
    )
    assert len({repr(iterator.shuffle()) for _ in range(4)}) > 1
    assert (
        repr(SequenceDatasetIterator([[1, 2]]).shuffle(1000))
        == "<ShuffledDatasetIterator: 2 samples shuffled with seed 1000>"
    )
    assert len(iterator.shuffle(1000)) == 360


def test_a_percentage_of_few_samples_is_warned_of_if_empty() -> None:
    repository = DatasetRepository()
    repository.register("numbers", Numbers)

    with pytest.warns(
        UserWarning, match=r"the part \[:1%\] of 37 samples is empty; name positions"
    ):
        part: Any = repository.load("numbers", "train[:1%]")

    assert len(part) == 0


def test_an_expression_is_parsed_into_terms() -> None:
    assert parse_expression(" train[ :10%] + test[+1_0:-5]+all", None) == [
        Term("train", None, "10%"),
        Term("test", "+1_0", "-5"),
        Term("all", None, None),
    ]


@pytest.mark.parametrize(
    ("bound", "position"),
    [("0", 0), ("7", 7), ("30", 30), ("-1", 19), ("-30", 0), ("50%", 10), ("-1%", 20), ("2.5%", 0)],
)
def test_a_bound_is_a_position_among_20_samples(bound: str, position: int) -> None:
    assert position_of(bound, 20) == position
