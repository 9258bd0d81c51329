"""Names of files and folders say which split they belong to."""

from __future__ import annotations

import pytest

from data_stack.formats.split_names import (
    differ_in_numbers_only,
    find_incomplete_parts,
    group_by_split,
    in_order_of_numbers,
    split_of,
)


def groups(*names: str) -> dict[str, list[str]]:
    return group_by_split({name: name for name in names})


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"),
        ("training", "training"),
        ("val", "val"),
        ("valid", "valid"),
        ("validation", "validation"),
        ("dev", "dev"),
        ("test", "test"),
        ("testing", "testing"),
        ("eval", "eval"),
        ("evaluation", "evaluation"),
        ("Train", "Train"),
        ("TEST", "TEST"),
        ("train-00000-of-00005", "train"),
        ("train.0", "train"),
        ("train_part1", "train"),
        ("train-part-0-of-2", "train"),
        ("test_shard_3", "test"),
        ("val-000123", "val"),
        ("train-00000-of-00001-9b8c7d6e5f", "train"),
    ],
)
def test_a_word_with_or_without_a_number_is_a_split(name: str, split: str) -> None:
    said = split_of(name)

    assert said is not None
    assert (said.split, said.is_exact) == (split, True)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("mnist_train", "mnist_train"),
        ("train2017", "train2017"),
        ("train-clean-100", "train-clean-100"),
        ("dev-other", "dev-other"),
        ("imagenet-val-001281", "imagenet-val"),
        ("mnist_test-00000-of-00003", "mnist_test"),
    ],
)
def test_a_name_that_contains_a_word_keeps_the_others(name: str, split: str) -> None:
    said = split_of(name)

    assert said is not None
    assert (said.split, said.is_exact) == (split, False)


@pytest.mark.parametrize(
    "name", ["cat", "latest", "contest", "trainset", "001.Black_footed_Albatross", "device", ""]
)
def test_other_names_say_no_split(name: str) -> None:
    assert split_of(name) is None


def test_parts_of_a_split_are_ordered_by_their_numbers() -> None:
    assert groups("test", "train_part10", "train_part2", "val.0") == {
        "train": ["train_part2", "train_part10"],
        "test": ["test"],
        "val": ["val.0"],
    }


def test_beside_splits_other_names_are_splits_of_their_own() -> None:
    assert groups("train", "test", "extra.v2", "mnist_train") == {
        "train": ["train"],
        "extra.v2": ["extra.v2"],
        "mnist_train": ["mnist_train"],
        "test": ["test"],
    }


def test_names_that_contain_words_are_splits_only_together() -> None:
    assert groups("mnist_train", "mnist_test") == {
        "mnist_test": ["mnist_test"],
        "mnist_train": ["mnist_train"],
    }
    assert groups("mnist_train", "mnist_test", "cat") == {}
    assert groups("crash_test", "stress_test") == {}
    assert groups("train_station", "airport") == {}


def test_other_names_are_no_splits() -> None:
    assert groups("cat", "dog") == groups() == groups("part-0", "part-1") == {}


def test_parts_differ_in_their_numbers_only() -> None:
    assert differ_in_numbers_only(["part-0", "part-17"])
    assert differ_in_numbers_only(["a"])
    assert not differ_in_numbers_only(["images", "labels"])


@pytest.mark.parametrize(
    ("names", "incomplete"),
    [
        (["a-00000-of-00002.csv"], ["1 of 2 'a-*-of-00002.csv'"]),
        (["a-00001-of-00002.csv"], ["1 of 2 'a-*-of-00002.csv'"]),
        (["a-00000-of-00002.csv", "a-00001-of-00002.csv"], []),
        (["part-1-of-2", "part-2-of-2"], []),
        (["a-0-of-2.csv", "a-1-of-2.csv", "b_1_of_3.csv"], ["1 of 3 'b_*_of_3.csv'"]),
        (["a-0-of-2-9b8c7d6e5f.csv", "a-1-of-2-aaaaaaaaaa.csv"], []),
        (["1 of 4 seasons.csv", "of.csv", "2of3", "train-00001.csv"], []),
        (["0" * 255 + "-of-" + "9" * 255], []),
    ],
)
def test_names_of_parts_tell_whether_all_are_there(names: list[str], incomplete: list[str]) -> None:
    assert find_incomplete_parts(names) == incomplete


def test_long_names_are_read() -> None:
    for name in (
        "-train" * 170 + "x",
        "train" + "-1" * 500 + "-",
        "train" + "-part" * 200,
        "1" * 5000,
    ):
        split_of(name)
        assert in_order_of_numbers(name)
