"""Labels of several iterators mean the same classes, or joining them is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack import HigherOrderDatasetFactory
from data_stack.dataset.iterator import CombinedDatasetIterator
from data_stack.exception import ConfigError


def labelled(*names: str, classes: tuple[str, ...]) -> Any:
    """Samples with the class by name beside its number."""
    labels = np.array([classes.index(name) for name in names], np.int64)
    columns = {"name": np.array(names), "label": labels}
    return data_stack.from_numpy(columns, target="label", class_names=classes)


def pairs(samples: Any) -> list[tuple[str, int]]:
    return [(str(sample["name"]), int(sample["label"])) for sample in samples]


TRAIN = labelled("ant", "cat", classes=("ant", "bee", "cat"))
TEST = labelled("cat", "dog", classes=("cat", "dog"))

JOINS: dict[str, Callable[..., Any]] = {
    "combine": lambda first, second, **how: first.combine(second, **how),
    "interleave": lambda first, second, **how: first.interleave(second, **how),
    "mix": lambda first, second, **how: first.mix(second, proportions=[1, 1], seed=1, **how),
    "zip": lambda first, second, **how: first.zip(
        second.rename({"name": "name2", "label": "label2"}), **how
    ),
}


@pytest.mark.parametrize("method", JOINS)
def test_different_lists_of_classes_are_refused(method: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"iterators 0 and 1 have different classes: label 0 is 'ant' in the first and 'cat' in "
        r"the second; \w+\(…, classes='by name'\) gives",
    ):
        JOINS[method](TRAIN, TEST)


@pytest.mark.parametrize("method", JOINS)
def test_equal_lists_of_classes_are_joined(method: str) -> None:
    same = labelled("bee", "cat", classes=("ant", "bee", "cat"))

    joined = JOINS[method](TRAIN, same)

    assert joined.dataset_meta.class_names == ("ant", "bee", "cat")


@pytest.mark.parametrize("method", ["combine", "interleave", "mix"])
def test_classes_by_name_have_one_number(method: str) -> None:
    joined = JOINS[method](TRAIN, TEST, classes="by name")

    assert joined.dataset_meta.class_names == ("ant", "bee", "cat", "dog")
    assert set(pairs(joined)) == {("ant", 0), ("cat", 2), ("dog", 3)}
    assert joined.read_column("label").dtype == np.int64


def test_zipped_labels_by_name_have_one_number() -> None:
    joined = JOINS["zip"](TRAIN, TEST, classes="by name")

    assert joined.dataset_meta.class_names == ("ant", "bee", "cat", "dog")
    assert joined[0]["label2"] == 2
    assert joined[1]["label2"] == 3


def test_zipped_labels_may_stay_their_own() -> None:
    joined = JOINS["zip"](TRAIN, TEST, classes="first")

    assert joined.dataset_meta.class_names == ("ant", "bee", "cat")
    assert [sample["label2"] for sample in joined] == [0, 1]


def test_constructors_refuse_different_lists_of_classes() -> None:
    with pytest.raises(ConfigError, match="different classes"):
        CombinedDatasetIterator([TRAIN, TEST])
    with pytest.raises(ConfigError, match="different classes"):
        HigherOrderDatasetFactory.get_combined_dataset_iterator([TRAIN, TEST])


def test_a_longer_list_says_which_label_differs() -> None:
    longer = labelled("ant", classes=("ant", "bee", "cat", "dog"))

    with pytest.raises(
        ConfigError, match="label 3 is no class in the first and 'dog' in the second"
    ):
        TRAIN.combine(longer)


def test_unknown_classes_are_not_mapped_by_name() -> None:
    unknown = data_stack.from_numpy({"name": np.array(["ant"]), "label": np.array([0])})

    with pytest.raises(ConfigError, match="the classes of iterator 1 are unknown"):
        TRAIN.combine(unknown, classes="by name")
    with pytest.raises(ConfigError, match="classes must be 'same', 'by name' or"):
        TRAIN.combine(TEST, classes="union")


def test_one_hot_targets_are_not_mapped_by_name() -> None:
    with pytest.raises(ConfigError, match="one-hot vectors; combine the labels, then call one_hot"):
        TRAIN.one_hot().combine(TEST.one_hot(), classes="by name")


def test_targets_that_are_names_keep_them() -> None:
    def of_names(*names: str) -> Any:
        columns = {"label": np.array(names)}
        return data_stack.from_numpy(columns, target="label", class_names=tuple(sorted(set(names))))

    joined = of_names("ant", "cat").combine(of_names("dog", "cat"), classes="by name")

    assert joined.read_column("label").tolist() == ["ant", "cat", "dog", "cat"]
    assert joined.dataset_meta.class_names == ("ant", "cat", "dog")


def test_names_after_a_missing_label_are_names() -> None:
    def of_labels(*labels: str | None) -> Any:
        names = tuple(sorted({label for label in labels if label is not None}))
        columns = {"label": np.array(labels, dtype=object)}
        return data_stack.from_numpy(columns, target="label", class_names=names)

    joined = of_labels("cat", "ant").combine(of_labels(None, "dog", "cat"), classes="by name")

    assert joined.read_column("label").tolist() == ["cat", "ant", None, "dog", "cat"]
    assert joined.dataset_meta.class_names == ("ant", "cat", "dog")


def test_a_stack_by_name_has_a_recipe() -> None:
    joined = TRAIN.combine(TEST, classes="by name")

    assert json.loads(json.dumps(joined.recipe())) == joined.recipe()
    rebuilt = data_stack.from_recipe(joined.recipe(), sources=[TRAIN, TEST])
    assert pairs(rebuilt) == pairs(joined)


_CLASSES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)


@given(st.lists(_CLASSES, min_size=1, max_size=4))
def test_by_name_each_label_is_the_number_of_its_class(lists: list[list[str]]) -> None:
    first, *others = [labelled(*names, classes=tuple(names)) for names in lists]

    joined = first.combine(*others, classes="by name")

    class_names = joined.dataset_meta.class_names
    assert class_names == tuple(dict.fromkeys(name for names in lists for name in names))
    assert pairs(joined) == [(name, class_names.index(name)) for names in lists for name in names]
