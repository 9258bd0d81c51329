"""Names of other libraries: some are ours, too, and give way to a client's attribute; an error says
what the others are here.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.dataset.iterator import (
    DatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.names_of_others import (
    FUNCTIONS,
    LOADER_ARGUMENTS,
    METHOD_ARGUMENTS,
    METHODS,
)
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError

OURS = ("batch", "column_names", "features", "head", "unique")


class Plain(DatasetIterator):
    """As clients write one: no ``super().__init__()``, and attributes of their own names."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return index, "abc"[index]


def informed(iterator: DatasetIteratorIF, **facts: Any) -> Any:
    return InformedDatasetIterator(iterator, DatasetMeta(**facts))


def test_columns_are_listed_by_names_keys_or_positions() -> None:
    tuples = SequenceDatasetIterator([[1.5, 2.5], ["a", "b"]])

    assert tuples.column_names == [0, 1]
    assert tuples.as_dict("x", "y").column_names == ["x", "y"]
    assert informed(tuples, column_names=("x", "y")).skip(1).column_names == ["x", "y"]
    assert data_stack.from_numpy([3, 4]).map(lambda sample: 5).column_names == []
    assert tuples.take(0).column_names == [0, 1]


def test_distinct_values_come_in_the_order_of_their_appearance() -> None:
    iterator = SequenceDatasetIterator(
        [
            ["b", "a", "b", None],
            [2.0, 2, np.nan, np.nan],
            np.array([[1, 2], [1, 2], [3, 4], [1, 2]]),
        ]
    )
    named = informed(iterator, column_names=("x", "y", "z"))

    assert named.unique("x").tolist() == ["b", "a", None]
    assert str(iterator.unique().tolist()) == "[2.0, nan]"
    assert iterator.unique(2).tolist() == [[1, 2], [3, 4]]
    assert iterator.take(0).unique(0).tolist() == []
    with pytest.raises(ConfigError, match="no column 'q'"):
        named.unique("q")


@pytest.mark.parametrize("name", OURS)
def test_an_attribute_of_a_client_overrides_ours(name: str) -> None:
    of_instance, of_class = Plain(**{name: "mine"}), type("WithOwn", (Plain,), {name: "mine"})()

    for each in (of_instance, of_class, pickle.loads(pickle.dumps(of_instance))):
        assert getattr(each, name) == "mine"
    wrapper = informed(Plain())
    setattr(wrapper, name, "set later")
    assert getattr(wrapper, name) == "set later"


def test_a_wrapper_of_a_client_has_the_declared_names() -> None:
    class Wrapper(InformedDatasetIterator):
        dataset_meta = DatasetMeta(identifier="w", column_names=("x", "y"))

        def __init__(self) -> None:
            self.samples = Plain()

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: Any) -> Any:
            return self.samples[index]

    wrapper: Any = Wrapper()

    assert (wrapper.column_names, [*wrapper.head(1)], list(wrapper.features)) == (
        ["x", "y"],
        [(0, "a")],
        ["x", "y"],
    )
    assert repr(wrapper) == "<Wrapper: 3 samples of 'w', columns x, y>"
    with pytest.raises(AttributeError, match="no attribute 'targets'; here it is"):
        wrapper.targets  # noqa: B018


def test_a_method_of_another_library_leads_to_ours() -> None:
    for name, ours in METHODS.items():
        with pytest.raises(
            AttributeError, match=f"has no attribute '{name}'; here it is "
        ) as caught:
            getattr(informed(Plain()), name)
        assert ours in str(caught.value)
        assert getattr(informed(Plain(**{name: "mine"})), name) == "mine"
        assert not hasattr(DatasetIteratorIF, name)


@pytest.mark.parametrize("stack", ["source", "layer"])
def test_iterators_of_ours_name_ours_for_others(stack: str) -> None:
    source: Any = SequenceDatasetIterator([[1, 2]])
    iterator = source if stack == "source" else source.shuffle(seed=1)

    with pytest.raises(AttributeError, match=r"no attribute 'push_to_hub'; here it is "):
        iterator.push_to_hub  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'other'$"):
        iterator.other  # noqa: B018
    assert not hasattr(iterator, "targets")


def test_an_error_inside_a_property_is_shown_unchanged() -> None:
    class Broken(SequenceDatasetIterator):
        @property
        def first(self) -> Any:
            return [].missing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'list' object has no attribute 'missing'"):
        Broken([[1]]).first  # noqa: B018


@pytest.mark.parametrize(
    ("index", "advice"),
    [("label", r"use read_column\('label'\)"), (("x", "label"), r"use select\(…\)")],
)
def test_a_column_name_as_index_says_how_to_read_it(index: Any, advice: str) -> None:
    iterator = data_stack.from_numpy({"x": np.arange(3), "label": np.arange(3)})

    with pytest.raises(TypeError, match=advice):
        iterator[index]


@pytest.mark.parametrize("method", ["map", "filter"])
def test_a_function_of_dict_samples_on_tuples_says_column(method: str) -> None:
    iterator = SequenceDatasetIterator([np.arange(3), np.arange(3)])

    with pytest.raises(TypeError, match=r"tuple indices must be .* column=\"label\""):
        getattr(iterator, method)(lambda sample: sample["label"] == 3)[0]
    with pytest.raises(TypeError, match=r"^object of type"):
        getattr(iterator, method)(lambda sample: len(sample[0]))[0]


@pytest.mark.parametrize("method", ["map", "filter", "shuffle", "cache", "batch"])
def test_an_argument_of_another_method_leads_to_ours(method: str) -> None:
    iterator = data_stack.from_numpy({"x": np.arange(3)})

    for name, ours in METHOD_ARGUMENTS.items():
        if name not in inspect.signature(getattr(iterator, method)).parameters:
            with pytest.raises(TypeError, match=f"'{name}'; here it is ") as caught:
                getattr(iterator, method)(**{name: 1})
            assert ours in str(caught.value)


def test_an_argument_of_another_loader_leads_to_ours() -> None:
    make: Any = data_stack.Loader

    for name, ours in LOADER_ARGUMENTS.items():
        with pytest.raises(TypeError, match=f"'{name}'; here it is ") as caught:
            make(Plain(), 2, **{name: 1})
        assert ours in str(caught.value)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'color'$"):
        make(Plain(), 2, color=1)


def test_a_function_of_another_library_leads_to_ours() -> None:
    for name, ours in FUNCTIONS.items():
        with pytest.raises(
            AttributeError, match=f"module 'data_stack' has no attribute '{name}'; here it is "
        ) as caught:
            getattr(data_stack, name)
        assert ours in str(caught.value)


def test_an_argument_of_another_load_leads_to_ours(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")

    for dataset in ("digits", str(tmp_path / "a.csv")):
        with pytest.raises(ConfigError, match="'cache_dir'; here it is "):
            data_stack.load(dataset, split="train" if dataset == "digits" else None, cache_dir="x")


def test_a_dict_of_splits_says_that_it_is_one() -> None:
    splits: Any = data_stack.load("digits")

    with pytest.raises(
        AttributeError,
        match=r"no attribute 'map': it is a dict of splits. Take one of 'train', 'test'",
    ):
        splits.map(len)
    assert (
        copy.deepcopy(splits).keys() == pickle.loads(pickle.dumps(splits)).keys() == splits.keys()
    )
