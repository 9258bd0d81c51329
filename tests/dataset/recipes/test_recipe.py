"""A stack describes itself as plain data, has the same fingerprint everywhere, and can be drawn for another epoch."""

from __future__ import annotations

import functools
import json
import operator
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack.dataset.factory import HigherOrderDatasetFactory, InformedDatasetFactory
from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    InMemoryDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.contract import adapted
from data_stack.dataset.meta import MetaFactory
from data_stack.dataset.positions import ComputedPositions
from data_stack.dataset.recipes.functions import named_function
from data_stack.dataset.recipes.recipe import code_digest
from data_stack.dataset.recipes.recipe_values import MOST_EMBEDDED_BYTES, array_digest
from data_stack.exception import ConfigError

META = MetaFactory.get_dataset_meta("numbers/train", "numbers", "train")


def source(n_samples: int = 10) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(n_samples), [f"text {number}" for number in range(n_samples)]])


def doubled(sample: Any) -> Any:
    return (sample[0] * 2, *sample[1:])


def scaled(factor: float, sample: Any, *, offset: float = 0.0) -> Any:
    return (sample[0] * factor + offset, *sample[1:])


class Transformation:
    """A callable object, such as those of torchvision."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, sample: Any) -> Any:
        return doubled(sample)

    def method(self, sample: Any) -> Any:
        return doubled(sample)

    @classmethod
    def of_class(cls, sample: Any) -> Any:
        return doubled(sample)

    @staticmethod
    def static(sample: Any) -> Any:
        return doubled(sample)


class ClientIterator(DatasetIterator):
    """As third parties write them."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        if type(index) is not int or not 0 <= index < len(self.samples):
            raise AssertionError(f"asked for {index!r}")
        return self.samples[index]


class Columns:
    """Stands for an array in a file, such as one of h5py."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]


class ClientWrapper(DatasetIterator):
    """A wrapper of a third party."""

    def __init__(self, wrapped: DatasetIteratorIF) -> None:
        self.wrapped = wrapped

    def __len__(self) -> int:
        return len(self.wrapped)

    def __getitem__(self, index: int) -> Any:
        return self.wrapped[index]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        return [self.wrapped]


class ClientView(DatasetIteratorView):
    """A subclass of a layer, which does something of its own."""

    def __getitem__(self, index: int) -> Any:
        return ("changed", super().__getitem__(index))


class RandomIterator(DatasetIterator):
    """Another sample at each access."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng().random()


class BrokenIterator(DatasetIterator):
    """Cannot be read, nor measured."""

    def __len__(self) -> int:
        raise OSError("gone")

    def __getitem__(self, index: int) -> Any:
        raise OSError("gone")


def layers(iterator: DatasetIteratorIF) -> list[Any]:
    return [node["layer"] for node in iterator.recipe()["nodes"]]


def top(iterator: DatasetIteratorIF) -> Any:
    return iterator.recipe()["nodes"][-1]


# ---------------------------------------------------------------------- the form


def test_a_recipe_is_a_list_of_nodes_lowest_first() -> None:
    values = SequenceDatasetIterator([np.array([5, 6, 7]), ["a", "b", "c"]])

    recipe = values[1:].combine(values, values[[2, 0, 0]]).recipe()

    column = {"array": {"dtype": "<i8", "shape": [3], "values": [5, 6, 7]}}
    assert recipe == {
        "data_stack_recipe": 2,
        "nodes": [
            {"layer": "sequence", "of": [], "arguments": {"dataset_sequences": [column, ["a", "b", "c"]]}},
            {"layer": "view", "of": [0], "arguments": {"indices": {"range": [1, 3, 1]}, "view_tags": None}},
            {
                "layer": "view",
                "of": [0],
                "arguments": {"indices": {"array": {"dtype": "<i4", "shape": [3], "values": [2, 0, 0]}}, "view_tags": None},
            },
            {"layer": "combined", "of": [1, 0, 2], "arguments": {}},
        ],
        "reproducible": True,
        "why_not": [],
    }


def test_a_recipe_survives_json() -> None:
    stack = InformedDatasetIterator(source().shuffle(1)[np.arange(3, 9) % 7], META).map(doubled)

    recipe = stack.recipe()

    assert json.loads(json.dumps(recipe, allow_nan=False)) == recipe


def test_what_is_equal_stands_there_once() -> None:
    one, same = source(), source()

    diamond = one[:5].combine(one[5:], same[:5], one.shuffle(3), same.shuffle(3), one)

    assert layers(diamond) == ["sequence", "view", "view", "shuffled", "combined"]
    assert top(diamond)["of"] == [1, 2, 1, 3, 3, 0]


def test_a_stack_of_a_thousand_views_of_one_source_names_it_once() -> None:
    values = source(1000)

    recipe = CombinedDatasetIterator([values[number : number + 1] for number in range(1000)]).recipe()

    assert [node["layer"] for node in recipe["nodes"]] == ["sequence", *["view"] * 1000, "combined"]


def test_stacks_may_be_deeper_than_python() -> None:
    stack: DatasetIteratorIF = source(4)
    for _ in range(10_000):
        stack = stack[::-1]

    recipe = stack.recipe()

    assert len(recipe["nodes"]) == 10_001
    assert recipe["nodes"][-1]["of"] == [9_999]
    assert len(stack.fingerprint()) == 64
    assert stack.at_epoch(1) is stack


def test_what_is_stacked_on_itself_is_an_error() -> None:
    class Endless(ClientIterator):
        @property
        def underlying_iterators(self) -> list[DatasetIteratorIF]:
            return [self]

    with pytest.raises(ConfigError, match="Endless is stacked on itself"):
        Endless([1]).combine(source()).recipe()


# ---------------------------------------------------------------------- metas and datasets


def test_an_informed_iterator_is_described_with_its_meta() -> None:
    meta = MetaFactory.get_dataset_meta_from_existing(META, identifier="mine")

    node = top(InformedDatasetIterator(source(), meta))

    assert node["layer"] == "informed"
    assert node["arguments"] == {
        "dataset_meta": {
            "dataset_meta": {
                "identifier": "mine",
                "dataset_name": "numbers",
                "dataset_tag": "train",
                "target_kind": None,
                "class_names": None,
                "feature_names": None,
                "provenance": {"tuple": []},
                "sample_pos": 0,
                "target_pos": 1,
                "tag_pos": 2,
            }
        }
    }


ORIGIN = {"name": "numbers", "version": "1.0.0", "split": "train", "config": {"scaled": True}}
RESOURCES = {"prepared/a.npy": "a" * 64, "prepared/b.npy": "b" * 64}


def test_a_dataset_of_a_plugin_is_its_name_version_split_options_and_the_digests_of_what_was_prepared() -> None:
    origin = {**ORIGIN, "resources": RESOURCES, "distribution": "numbers", "license": "CC0-1.0"}
    loaded = InformedDatasetIterator(ClientIterator([1, 2, 3]), META, origin=origin)

    recipe = loaded[:2].recipe()

    resources = {"dict": [["prepared/a.npy", "a" * 64], ["prepared/b.npy", "b" * 64]]}
    config = {"dict": [["scaled", True]]}
    assert recipe["nodes"][0] == {
        "layer": "dataset",
        "of": [],
        "arguments": {**ORIGIN, "config": config, "resources": resources, "samples": None},
    }
    assert recipe["reproducible"]


@pytest.mark.parametrize("more", [{}, {"resources": RESOURCES}, {"distribution": "numbers"}])
def test_a_dataset_without_digests_or_of_the_program_is_also_what_its_factory_opened(more: dict[str, Any]) -> None:
    loaded = InformedDatasetIterator(source(3), META, origin={**ORIGIN, **more})
    other = InformedDatasetIterator(source(4), META, origin={**ORIGIN, **more})

    assert top(loaded)["arguments"]["samples"] == source(3).fingerprint()
    assert loaded.fingerprint() != other.fingerprint()


def test_a_dataset_has_the_same_fingerprint_whatever_its_licence() -> None:
    origin = {**ORIGIN, "resources": RESOURCES, "distribution": "numbers"}

    one = InformedDatasetIterator(source(), META, origin={**origin, "license": "CC0-1.0"})
    same = InformedDatasetIterator(source(), META, origin=origin)
    changes = {"name": "2", "version": "2", "split": "2", "resources": {**RESOURCES, "prepared/b.npy": "c" * 64}}
    others = [InformedDatasetIterator(source(), META, origin={**origin, key: value}) for key, value in changes.items()]

    assert one.fingerprint() == same.fingerprint()
    assert len({one.fingerprint(), *(other.fingerprint() for other in others)}) == 5


def test_an_option_that_is_no_plain_data_is_told() -> None:
    origin = {"name": "numbers", "version": None, "split": None, "config": {"transform": lambda sample: sample}}

    recipe = InformedDatasetIterator(source(), META, origin=origin).recipe()

    assert not recipe["reproducible"]
    assert "node 0 (dataset): " in recipe["why_not"][0]


# ---------------------------------------------------------------------- functions


@pytest.mark.parametrize(
    ("function", "form"),
    [
        (doubled, {"function": f"{__name__}:doubled"}),
        (Transformation.static, {"function": f"{__name__}:Transformation.static"}),
        (Transformation.of_class, {"function": f"{__name__}:Transformation.of_class"}),
        (Transformation, {"function": f"{__name__}:Transformation"}),
        (len, {"function": "builtins:len"}),
        (str.upper, {"function": "builtins:str.upper"}),
        (np.log, {"function": "numpy:log"}),
        (np.mean, {"function": "numpy:mean"}),
        (np.float32, {"function": "numpy:float32"}),
        (
            functools.partial(functools.partial(scaled, 2), offset=0.5),
            {
                "partial": {
                    "function": {"function": f"{__name__}:scaled"},
                    "arguments": [2],
                    "keywords": {"offset": 0.5},
                }
            },
        ),
    ],
)
def test_functions_are_written_by_their_name(function: Callable[..., Any], form: Any) -> None:
    recipe = source().map(function).recipe()

    assert recipe["nodes"][-1]["arguments"]["function"] == form
    assert recipe["reproducible"]


def local_function() -> Callable[[Any], Any]:
    def inner(sample: Any) -> Any:
        return sample

    return inner


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda sample: sample, "is a lambda"),
        (local_function(), "is defined inside of another function"),
        (Transformation(2).method, "belongs to an object"),
        (Transformation(2), "is an object, not a function"),
        (functools.partial(lambda factor, sample: sample, 2), "is a lambda"),
        (functools.partial(scaled, 1, offset=lambda sample: sample), "is a lambda"),  # type: ignore[arg-type]  # it is never called
        ("text".join, "belongs to an object"),
        (operator.itemgetter(0), "is an object, not a function"),
    ],
)
def test_a_function_without_a_name_makes_the_recipe_say_so_and_why(function: Callable[..., Any], reason: str) -> None:
    recipe = source().map(function).recipe()

    assert not recipe["reproducible"]
    (why,) = recipe["why_not"]
    assert why.startswith("node 1 (mapped): ")
    assert reason in why
    assert "define it with def in a module" in why
    assert "@data_stack.named_function" in why


def test_a_function_of_the_program_itself_has_no_name(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, data_stack\n"
        "def mine(sample): return sample\n"
        "@data_stack.named_function('my own')\n"
        "def named(sample): return sample\n"
        "values = data_stack.SequenceDatasetIterator([[1, 2, 3]])\n"
        "print(json.dumps([values.map(mine).recipe(), values.map(named).recipe()]))\n"
    )

    recipe, named = json.loads(in_a_new_process(str(program)))

    assert "is defined in the program itself, not in a module" in recipe["why_not"][0]
    assert named["nodes"][1]["arguments"]["function"] == {"function": {"name": "my own"}}
    assert named["reproducible"]


def in_a_new_process(*arguments: str, **environment: str) -> str:
    path = str(Path(data_stack.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, *arguments], env={"PYTHONPATH": path, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_name_is_given_once() -> None:
    @named_function("tests first")
    def first(sample: Any) -> Any:
        return sample

    def other(sample: Any) -> Any:
        return sample

    with pytest.raises(ConfigError, match=r"the name 'tests first' is that of .*first"):
        named_function("tests first")(other)


def test_a_function_defined_again_takes_its_own_name() -> None:
    functions = []
    for _ in range(2):

        @named_function("tests again")
        def again(sample: Any) -> Any:
            return sample

        functions.append(again)

    old, new = (source().map(function).recipe() for function in functions)

    assert new["reproducible"]
    assert not old["reproducible"]


@pytest.mark.parametrize("name", ["", "with:colon", 5, None])
def test_a_name_without_meaning_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="a text without a colon"):
        named_function(name)


def test_a_method_of_an_object_may_be_named() -> None:
    transformation = Transformation(2)
    named_function("recipe test method")(transformation.method)

    (node,) = source().map(transformation.method).recipe()["nodes"][1:]

    assert node["arguments"]["function"] == {"function": {"name": "recipe test method"}}


def test_an_object_that_answers_to_any_name_is_an_unnamed_function() -> None:
    recipe = source().map(Mock()).recipe()

    assert not recipe["reproducible"]


def test_only_functions_are_named() -> None:
    with pytest.raises(ConfigError, match="only a function can be named"):
        named_function("five")(5)  # type: ignore[type-var]


# ---------------------------------------------------------------------- leaves


class TestLeaves:
    @pytest.mark.parametrize(
        ("column", "form"),
        [
            ([1, 2.5, "x", None], [1, 2.5, "x", None]),
            ((1, 2), {"tuple": [1, 2]}),
            (range(3), {"range": [0, 3, 1]}),
            (
                torch.tensor([1, 2]),
                {"tensor": {"dtype": "int64", "values": {"array": {"dtype": "<i8", "shape": [2], "values": [1, 2]}}}},
            ),
            (
                torch.tensor([1.5], dtype=torch.bfloat16, requires_grad=True),
                {"tensor": {"dtype": "bfloat16", "values": {"array": {"dtype": "<f4", "shape": [1], "base64": "AADAPw=="}}}},
            ),
            (pd.Series([3, 4], index=[7, 8]), {"array": {"dtype": "<i8", "shape": [2], "values": [3, 4]}}),
        ],
        ids=["list", "tuple", "range", "tensor", "bfloat16", "series"],
    )  # fmt: skip
    def test_small_ones_stand_in_the_recipe(self, column: Any, form: Any) -> None:
        recipe = SequenceDatasetIterator([column]).recipe()

        assert recipe["nodes"][0]["arguments"] == {"dataset_sequences": [form]}
        assert recipe["reproducible"]

    def test_large_arrays_stand_there_by_their_digest(self) -> None:
        pictures = np.arange(MOST_EMBEDDED_BYTES, dtype=np.uint8).reshape(-1, 64)
        labels = list(range(len(pictures)))

        recipe = SequenceDatasetIterator([pictures, labels, pictures[:, 0].copy()]).recipe()

        first, second, third = recipe["nodes"][0]["arguments"]["dataset_sequences"]
        assert first == {"digest": {"of": "array", "dtype": "|u1", "shape": [16384, 64], "sha256": array_digest(pictures)}}
        assert second["digest"].keys() == {"of", "length", "sha256"}
        assert third["digest"]["shape"] == [16384]
        assert not recipe["reproducible"]
        assert "of dtype |u1 and shape (16384, 64) does not stand in the recipe" in recipe["why_not"][0]
        assert len(json.dumps(recipe)) < 3_000

    def test_the_limit_is_what_it_says(self) -> None:
        at_the_limit = SequenceDatasetIterator([np.zeros(MOST_EMBEDDED_BYTES - 64, dtype=np.uint8)])
        above = SequenceDatasetIterator([np.zeros(MOST_EMBEDDED_BYTES + 1, dtype=np.uint8)])

        assert at_the_limit.recipe()["reproducible"]
        assert not above.recipe()["reproducible"]

    def test_a_class_of_a_client_is_named_with_what_can_be_known(self) -> None:
        recipe = ClientIterator([1, 2, 3]).take(2).recipe()

        node = recipe["nodes"][0]
        assert (node["layer"], node["of"]) == (None, [])
        assert node["arguments"]["class"] == f"{__name__}.ClientIterator"
        assert node["arguments"]["n_samples"] == 3
        assert len(node["arguments"]["probe"]) == 64
        assert not recipe["reproducible"]
        assert "ClientIterator is no layer of data_stack" in recipe["why_not"][0]

    def test_the_probe_reads_few_samples(self) -> None:
        class Counting(ClientIterator):
            n_read = 0

            def __getitem__(self, index: int) -> Any:
                self.n_read += 1
                return super().__getitem__(index)

        iterator = Counting(range(1000))

        iterator.recipe()

        assert iterator.n_read == 9

    @pytest.mark.parametrize("samples", [[1, 2, 3, 4], [1, 2], [], [1, 2, 4]])
    def test_other_samples_have_another_probe(self, samples: list[int]) -> None:
        one, other, same = ClientIterator([1, 2, 3]), ClientIterator(samples), ClientIterator((1, 2, 3))

        assert one.fingerprint() != other.fingerprint()
        assert one.fingerprint() == same.fingerprint()

    @pytest.mark.parametrize(("iterator", "n_samples"), [(RandomIterator(), 3), (BrokenIterator(), None)])
    def test_what_cannot_be_probed_has_no_probe(self, iterator: DatasetIteratorIF, n_samples: int | None) -> None:
        arguments = top(iterator)["arguments"]

        assert arguments["probe"] is None
        assert arguments["n_samples"] == n_samples
        assert iterator.fingerprint() == iterator.fingerprint()

    def test_a_wrapper_of_a_client_names_what_it_is_stacked_on(self) -> None:
        recipe = ClientWrapper(source()[:3]).recipe()

        assert [node["of"] for node in recipe["nodes"]] == [[], [0], [1]]
        assert recipe["nodes"][2]["layer"] is None
        assert recipe["nodes"][2]["arguments"]["class"].endswith("ClientWrapper")

    def test_a_subclass_of_a_layer_is_no_layer(self) -> None:
        view = ClientView(source(), [1, 2])

        assert top(view)["layer"] is None
        assert view.fingerprint() != DatasetIteratorView(source(), [1, 2]).fingerprint()

    def test_two_objects_of_a_client_are_never_taken_for_one(self) -> None:
        one, other = ClientIterator([1, 2]), ClientIterator([1, 2])

        assert top(one.combine(other, one))["of"] == [0, 1, 0]

    def test_two_arrays_in_files_that_look_alike_are_never_taken_for_one(self) -> None:
        one, other = SequenceDatasetIterator([Columns(range(100))]), SequenceDatasetIterator([Columns(range(100))])

        assert top(one.combine(other, one))["of"] == [0, 1, 0]

    def test_lists_and_other_classes_are_described_too(self) -> None:
        recipe = DatasetIteratorView([1, 2, 3], [0, 1]).recipe()  # type: ignore[arg-type]  # works, and people do it

        assert recipe["nodes"][0]["arguments"]["class"] == "builtins.list"
        assert top(adapted([1, 2, 3]))["arguments"] == recipe["nodes"][0]["arguments"]

    @pytest.mark.parametrize(
        "column",
        [
            np.ma.masked_array([1, 2], [True, False]),
            np.zeros(2, dtype="i4,f4"),
            pd.Series(["a", "b"], dtype="category"),
            [object(), object()],
            torch.eye(2).to_sparse(),
        ],
        ids=["masked", "records", "series", "objects", "sparse"],
    )
    def test_columns_that_cannot_be_written_are_told(self, column: Any) -> None:
        iterator = SequenceDatasetIterator([column])

        recipe = iterator.recipe()

        assert not recipe["reproducible"]
        assert "cannot be written down" in recipe["why_not"][0]
        assert json.loads(json.dumps(recipe)) == recipe == iterator.recipe()
        assert iterator.fingerprint() == iterator.fingerprint()

    def test_many_values_that_cannot_be_written_stand_there_by_one_digest(self) -> None:
        prices = [Decimal(number) / 7 for number in range(1000)]

        recipe = SequenceDatasetIterator([prices, list(range(1000))]).recipe()

        first, _ = recipe["nodes"][0]["arguments"]["dataset_sequences"]
        assert first["digest"]["length"] == 1000
        assert recipe["why_not"][0] == "node 0 (sequence): an object of decimal.Decimal cannot be written down"
        assert len(recipe["why_not"]) == 2
        assert recipe == SequenceDatasetIterator([list(prices), list(range(1000))]).recipe()
        assert recipe != SequenceDatasetIterator([prices[::-1], list(range(1000))]).recipe()

    def test_masks_count(self) -> None:
        prints = {
            SequenceDatasetIterator([np.ma.masked_array([1, 2, 3], mask)]).fingerprint()
            for mask in ([True, False, False], [False, True, False], [False, False, False])
        }

        assert len(prints) == 3

    def test_what_was_read_into_memory_without_its_source_is_a_source(self) -> None:
        kept = InMemoryDatasetIterator(source(5), keep_source=False)

        assert layers(kept) == ["in_memory"]
        assert kept.recipe()["reproducible"]


# ---------------------------------------------------------------------- fingerprints


def array_source() -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(6, dtype=np.float32).reshape(3, 2), ["ä", "b", "c"], [1, 2.5, None]])


def origin_source() -> InformedDatasetIterator:
    config = {"scaled": True, "sizes": (28, 28)}
    return InformedDatasetIterator(
        array_source(), META, origin={"name": "numbers", "version": "1.0.0", "split": "train", "config": config}
    )


# Saved splits and caches hold such fingerprints: a change of one of these breaks them all.
GOLDEN: dict[str, tuple[Callable[[], DatasetIteratorIF], str]] = {
    "arrays": (array_source, "f6321a0658e3039cf2764b297528e6e89944745f155d0352beaf99a7722272aa"),
    "dates": (
        lambda: SequenceDatasetIterator([np.array(["2020-01-01", "NaT"], dtype="M8[D]"), np.array(["ü", "b"])]),
        "7e834329b5798a0eaa671626e560df2183d6034bfc5b139261b11c06d0ce51da",
    ),
    "objects": (
        lambda: SequenceDatasetIterator([[{"a": (1, b"x")}, {2, 1}], [float("nan"), 10**30]]),
        "b846b48f93fd95df63b59bdcb57fdafe24cae81273dad8b83ec5f3ca455388e3",
    ),
    "many": (
        lambda: SequenceDatasetIterator([list(range(10_000)), np.arange(10_000) % 7 == 0]),
        "7fc799f48176e1fbb56843b9cc7cf976602c0a4f10996640131bab67cfa535f5",
    ),
    "tensors": (
        lambda: SequenceDatasetIterator([torch.arange(4).reshape(2, 2), torch.ones(2, dtype=torch.bfloat16)]),
        "f2fa5ea8c79a051046e888934c3d0dc75e8776ac72f427a082cf9f0e448b3763",
    ),
    "slice": (lambda: array_source()[::-2], "fd7aeb49a278c5684c280426cbf4fffe85ce7c6ca20ccb296f95f76ce59ffc9d"),
    "indices": (lambda: array_source()[[2, 0, 0, 1]], "d233af920bd29c3b00cb42b78431fe5846ae384bb1ddc059ccb513aa0afa9e6e"),
    "combined": (
        lambda: array_source().combine(array_source()[:2], array_source()),
        "8300142b6d78ec273c036e1386448a246db0634ede68c54909b98ac35ad8a495",
    ),
    "shuffled": (lambda: array_source().shuffle(7, epoch=2), "0df8a585b03b267cb0dd90ac9beedc41f093e11094bcaa767a92b5662a0b8dd9"),
    "named": (lambda: array_source().filter(len).map(np.log), "a400c51b67a5b4148560089212ce65ce6ff07c3c751da5b06e8f5533d543d333"),
    "partial": (
        lambda: array_source().map(functools.partial(max, 1.5, key=abs)),
        "5136eb4a6640cb9f4711125068e0783edce4bd8db45ca12fd5a3b7cb49d9c7ab",
    ),
    "dataset": (lambda: origin_source()[1:], "4f242901b03e6ea9d0fb1da1c4988db8685d2cbbe004cdea6eeca2aa9f14e581"),
    "client": (
        lambda: DatasetIteratorView(FixedClient(), range(2)),
        "d192a93ef612c21d5fa566f5d18fab06cd35112ee072ff16ef26b6feeaa8d1ce",
    ),
}


class FixedClient(ClientIterator):
    __module__ = "somewhere"

    def __init__(self) -> None:
        super().__init__([(1, "a", np.zeros(3)), (2.5, "b", None)])


class TestFingerprint:
    @pytest.mark.parametrize("name", sorted(GOLDEN))
    def test_it_is_the_same_forever(self, name: str) -> None:
        make, expected = GOLDEN[name]

        assert make().fingerprint() == expected

    def test_it_is_the_same_in_every_process(self) -> None:
        program = (
            "import numpy as np, data_stack\n"
            "it = data_stack.SequenceDatasetIterator([np.arange(5), [{'a', 'b', 'c'}, frozenset('xyz'), 'ü', 1.5, (1,)]])\n"
            "print(it.combine(it[::-1]).shuffle(3).map(len).map(lambda s: s in {'a', 'b', 'q'}).fingerprint())"
        )

        prints = {in_a_new_process("-c", program, PYTHONHASHSEED=str(seed)) for seed in (0, 1, 2)}

        assert len(prints) == 1

    @pytest.mark.parametrize(
        "others",
        [
            [lambda it: it[:3], lambda it: it.take(3), lambda it: it[[0, 1, 2]],
             lambda it: it[np.array([0, 1, 2], dtype=np.uint8)],
             lambda it: it[range(3)], lambda it: it[[True] * 3 + [False] * 7], lambda it: it[-10:-7],
             lambda it: HigherOrderDatasetFactory.get_dataset_iterator_view(it, [0, 1, 2], {"tag": 1}),
             lambda it: InformedDatasetFactory.get_dataset_iterator_view(it, META, range(3)),
             lambda it: InformedDatasetIterator(it, META)[:3], lambda it: it.in_memory()[:3], lambda it: it[:3].in_memory(),
             lambda it: DatasetIteratorView(it, FirstPositions(3))],
            [lambda it: it[5:5], lambda it: it[[]], lambda it: it.skip(99), lambda it: it[9:2]],
            [lambda it: it[4:5], lambda it: it[[4]], lambda it: it[4:9:7], lambda it: it[[-6]]],
            [lambda it: it[::-1], lambda it: it[list(range(9, -1, -1))]],
            [lambda it: it[[3, 3, 3]], lambda it: it[np.array([3, 3, -7])]],
            [lambda it: it.combine(it), lambda it: CombinedDatasetIterator([it, source()]),
             lambda it: InformedDatasetFactory.get_combined_dataset_iterator([it, it], META)],
            [lambda it: it.shuffle(5), lambda it: it.shuffle(np.int64(5)), lambda it: it.shuffle(np.uint8(5), epoch=0)],
        ],
        ids=["first", "none", "one", "reversed", "repeats", "combined", "shuffled"],
    )  # fmt: skip
    def test_equal_stacks_have_one_however_they_were_made(self, others: list[Callable[[Any], DatasetIteratorIF]]) -> None:
        assert len({make(source()).fingerprint() for make in others}) == 1

    def test_other_stacks_have_others(self) -> None:
        it, more = source(), source(11)
        stacks = [
            it, more, it[1:], it[:-1], it[::2], it[[1, 0]], it[[0, 2, 1]], it.shuffle(1), it.shuffle(2), it.shuffle(1, epoch=1),
            it.combine(more), more.combine(it), it.combine(it), it.combine(it, it), it.map(doubled), it.map(len), it.map(np.log),
            it.map(lambda sample: 1), it.map(lambda sample: 2), it.map(functools.partial(scaled, 2)), it.map(Transformation(1)),
            it.map(functools.partial(scaled, 3)), it.map(functools.partial(scaled, 2, offset=1)), it.map(Transformation(2)),
            it.map(Transformation(1).method), it.map(Transformation(2).method), it.repeat(1), it.repeat(2),
            SequenceDatasetIterator([np.arange(10)]), SequenceDatasetIterator([np.arange(10, dtype=np.int32)]),
            SequenceDatasetIterator([list(range(10))]), SequenceDatasetIterator([tuple(range(10))]),
            SequenceDatasetIterator([np.arange(10).reshape(5, 2)]), SequenceDatasetIterator([np.arange(10).reshape(10, 1)]),
            SequenceDatasetIterator([torch.arange(10)]), SequenceDatasetIterator([torch.arange(10).bfloat16()]),
            SequenceDatasetIterator([torch.arange(10).float()]), SequenceDatasetIterator([["x" * 70]]),
            SequenceDatasetIterator([["x" * 71]]), SequenceDatasetIterator([[1]]), SequenceDatasetIterator([[1.0]]),
            SequenceDatasetIterator([[True]]), SequenceDatasetIterator([["1"]]), SequenceDatasetIterator([[(1,)]]),
            SequenceDatasetIterator([[[1]]]), SequenceDatasetIterator([[{"a": 1}]]), SequenceDatasetIterator([[float("nan")]]),
            SequenceDatasetIterator([list(range(1000))]), SequenceDatasetIterator([[*range(999), 0]]),
            SequenceDatasetIterator([np.array([None, 1, "x"])]), SequenceDatasetIterator([np.array([None, 1, "y"])]),
        ]  # fmt: skip

        assert len({stack.fingerprint() for stack in stacks}) == len(stacks)

    def test_an_array_counts_by_its_values_not_by_its_place_in_memory(self) -> None:
        values = np.arange(12, dtype=np.int32).reshape(3, 4)
        others = [values.copy(order="F"), values.astype(">i4"), np.repeat(values, 2, axis=0)[::2]]

        prints = {SequenceDatasetIterator([each]).fingerprint() for each in (values, *others)}

        assert len(prints) == 1

    def test_a_lambda_counts_by_what_it_does_and_what_it_refers_to(self) -> None:
        def made(factor: Any) -> Callable[[Any], Any]:
            return lambda sample: sample * factor

        it = source()

        assert it.map(made(2)).fingerprint() == it.map(made(2)).fingerprint()
        assert it.map(made(2)).fingerprint() != it.map(made(3)).fingerprint()
        assert it.map(made(np.arange(3))).fingerprint() != it.map(made(np.arange(4))).fingerprint()
        assert it.map(made(threading.Lock())).fingerprint() != it.map(made(threading.Lock())).fingerprint()

    def test_a_lambda_counts_with_the_global_values_that_it_uses(self) -> None:
        prints = []
        for factor in (2, 2, 3):
            names: dict[str, Any] = {"factor": factor}
            exec("f = lambda sample: sample * factor", names)
            prints.append(source().map(names["f"]).fingerprint())

        assert prints[0] == prints[1] != prints[2]

    @pytest.mark.parametrize("used", ["Scaled()", "lambda sample: INSTANCE(sample)", "Scaled", "Scaled.of_class", "memoized"])
    def test_objects_and_classes_of_a_program_count_with_their_code(self, used: str) -> None:
        prints = []
        for factor in (2, 2, 3):
            names: dict[str, Any] = {"__name__": "__main__", "functools": functools}
            exec(
                "class Scaled:\n"
                f"    def __call__(self, sample): return sample[0] * {factor}\n"
                "    @classmethod\n"
                f"    def of_class(cls, sample): return sample[0] * {factor}\n"
                "INSTANCE = Scaled()\n"
                "@functools.lru_cache\n"
                f"def memoized(sample): return sample[0] * {factor}\n",
                names,
            )
            prints.append(source().map(eval(used, names)).fingerprint())

        assert prints[0] == prints[1] != prints[2]

    def test_getters_of_operator_count_by_what_they_get(self) -> None:
        def prints(*functions: Any) -> list[str]:
            return [source().map(function).fingerprint() for function in functions]

        assert prints(operator.itemgetter(1)) == prints(operator.itemgetter(1))
        assert len({*prints(operator.itemgetter(1), operator.itemgetter(2), operator.attrgetter("a"))}) == 3
        assert prints(operator.methodcaller("f", 1, k=2)) == prints(operator.methodcaller("f", 1, k=2))
        assert prints(operator.methodcaller("f", 1, k=2)) != prints(operator.methodcaller("f", 1, k=3))

    def test_numbers_of_samples_count_with_their_dtype(self) -> None:
        columns: list[Any] = [[1, 2], [np.int32(1), np.int32(2)], [np.int8(1), np.int8(2)]]

        assert len({SequenceDatasetIterator([column]).fingerprint() for column in columns}) == 3
        assert source().shuffle(np.int8(1)).fingerprint() == source().shuffle(1).fingerprint()

    def test_columns_of_which_nothing_can_be_known_are_never_taken_for_equal(self) -> None:
        one, other = torch.eye(3).to_sparse(), (2 * torch.eye(3)).to_sparse()

        assert SequenceDatasetIterator([one]).fingerprint() != SequenceDatasetIterator([other]).fingerprint()

    def test_functions_may_refer_to_each_other(self) -> None:
        def odd(number: int) -> bool:
            return number != 0 and even(number - 1)

        def even(number: int) -> bool:
            return number == 0 or odd(number - 1)

        assert source().map(odd).fingerprint() != source().map(even).fingerprint()

    def test_long_index_arrays_are_not_written_out(self) -> None:
        order = np.random.default_rng(0).permutation(1_000_000)
        view = source(2)[np.zeros(0, dtype=int)]
        long = DatasetIteratorView(SequenceDatasetIterator([np.zeros(1_000_000, dtype=np.uint8)]), order)

        assert long.fingerprint() == long.fingerprint() != view.fingerprint()

    def test_more_positions_than_int32_has(self) -> None:
        class Huge(ClientIterator):
            def __len__(self) -> int:
                return 2**40

        huge = Huge([0])
        indices: list[Any] = [range(2**31, 2**40), [2**35, 5], [2**35, 6], [2**35 + 2**32, 5], slice(None, None, -1)]

        prints = {*(DatasetIteratorView(huge, each).fingerprint() for each in indices), huge.shuffle(1).fingerprint()}

        assert len(prints) == 6

    @given(st.lists(st.integers(-10, 9), max_size=12))
    def test_views_are_equal_if_their_positions_are(self, indices: list[int]) -> None:
        resolved = [index % 10 for index in indices]

        one, same = source()[indices], source()[np.array(resolved, dtype=np.int64)]
        other = source()[[*resolved, 0]]

        assert one.fingerprint() == same.fingerprint() != other.fingerprint()

    def test_a_pickled_stack_has_the_same(self) -> None:
        stack = InformedDatasetIterator(source().combine(source()[:3]), META).shuffle(3).map(doubled)[[5, 1, 1]]

        assert pickle.loads(pickle.dumps(stack)).fingerprint() == stack.fingerprint()


class FirstPositions(ComputedPositions):
    """The first ones, by a formula."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def at(self, index: int) -> int:
        return index

    def taken(self, indices: Any) -> Any:
        return indices


class TestCodeDigest:
    def test_it_changes_with_the_code_of_named_functions(self) -> None:
        digests = []
        for factor in (2, 2, 3):
            names: dict[str, Any] = {"__name__": "somewhere"}
            exec(f"def f(sample): return sample[0] * {factor}", names)
            digests.append(code_digest(source().map(functools.partial(names["f"]))[:2]))

        assert digests[0] == digests[1] != digests[2]

    def test_it_changes_with_the_code_of_callable_objects_and_memoized_functions(self) -> None:
        digests: dict[str, list[str | None]] = {"instance": [], "memoized": []}
        for factor in (2, 2, 3):
            names: dict[str, Any] = {"__name__": "somewhere", "functools": functools}
            exec(
                f"class Scaled:\n    def __call__(self, sample): return sample[0] * {factor}\n"
                f"@functools.lru_cache\ndef memoized(sample): return sample[0] * {factor}\n"
                "instance = Scaled()\n",
                names,
            )
            for name, found in digests.items():
                found.append(code_digest(source().map(names[name])))

        for found in digests.values():
            assert found[0] == found[1] != found[2]

    def test_it_is_the_same_for_what_has_no_code(self) -> None:
        assert code_digest(source()) == code_digest(source().map(np.log)) == code_digest(source()[:3])
        assert code_digest(source().map(doubled)) != code_digest(source())


# ---------------------------------------------------------------------- epochs


def jittered(sample: Any, random: np.random.Generator) -> Any:
    return (float(random.random()), *sample[1:])


class TestAtEpoch:
    def test_random_layers_are_drawn_anew(self) -> None:
        stack = source().shuffle(3)[:5].combine(source()).repeat(2)

        later = stack.at_epoch(4)

        assert list(later) == list(source().shuffle(3, epoch=4)[:5].combine(source()).repeat(2))
        assert list(later) != list(stack)
        assert later.fingerprint() != stack.fingerprint()
        assert list(later.at_epoch(0)) == list(stack)
        assert later.at_epoch(0).recipe() == stack.recipe()

    def test_random_maps_are_drawn_anew(self) -> None:
        stack = source().map(jittered, seed=1)

        assert list(stack.at_epoch(2)) == list(source().map(jittered, seed=1, epoch=2))
        assert list(stack.at_epoch(2)) != list(stack)

    @pytest.mark.parametrize(
        "stack",
        [source(), source()[:3].combine(source()), InformedDatasetIterator(source(), META), source().map(doubled)],
        ids=["source", "views", "informed", "map"],
    )
    def test_where_nothing_is_random_the_stack_is_its_own(self, stack: DatasetIteratorIF) -> None:
        assert stack.at_epoch(3) is stack

    def test_the_epoch_that_it_is_at_is_its_own(self) -> None:
        stack = source().shuffle(1, epoch=2)[:4]

        assert stack.at_epoch(2) is stack

    def test_what_lies_below_and_beside_is_shared(self) -> None:
        values = source()
        beside = values[:3]
        shuffled = values.shuffle(1)

        later = shuffled.combine(beside, shuffled[:4]).at_epoch(1)

        first, second, third = later.underlying_iterators
        assert second is beside
        assert first.underlying_iterators == [values]
        assert third.underlying_iterators == [first]

    def test_layers_that_read_do_so_again(self) -> None:
        stack = source().map(jittered, seed=1).sort(0)

        later = stack.at_epoch(1)

        assert [sample[0] for sample in later] == sorted(sample[0] for sample in source().map(jittered, seed=1, epoch=1))

    def test_the_meta_stays(self) -> None:
        stack = InformedDatasetIterator(source(), META).shuffle(1)

        later: Any = stack.at_epoch(1)

        assert later.dataset_meta == stack.dataset_meta  # type: ignore[attr-defined]  # it is informed

    def test_a_wrapper_of_a_client_can_lie_below_but_not_above(self) -> None:
        below = ClientWrapper(source()).shuffle(1)

        assert list(below.at_epoch(1)) != list(below)
        with pytest.raises(ConfigError, match=r"ClientWrapper is stacked on something random.*put it below"):
            ClientWrapper(below).at_epoch(1)

    def test_samples_of_clients_are_not_read_for_it(self) -> None:
        assert len(BrokenIteratorOfLength(3).shuffle(1).at_epoch(1)) == 3

    def test_a_dataset_that_was_loaded_is_taken_as_it_is(self) -> None:
        origin: dict[str, Any] = {"name": "numbers", "version": "1", "split": None, "config": {}}
        loaded = InformedDatasetIterator(source().shuffle(1), META, origin=origin)

        assert loaded.at_epoch(5) is loaded

    @pytest.mark.parametrize("epoch", [-1, 1.5, "1", None, True, np.int64(-3), [1]])
    def test_an_epoch_is_a_whole_number(self, epoch: Any) -> None:
        with pytest.raises(ConfigError, match="an epoch is a whole number"):
            source().shuffle(1).at_epoch(epoch)

    def test_an_epoch_may_be_a_number_of_numpy(self) -> None:
        assert source().shuffle(1).at_epoch(np.int64(3)).recipe() == source().shuffle(1, epoch=3).recipe()


class BrokenIteratorOfLength(BrokenIterator):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def test_array_digests_are_of_the_values_in_order() -> None:
    assert array_digest(np.zeros(0)) == array_digest(np.zeros((0, 5), dtype=np.uint8))
    assert array_digest(np.array(5, dtype="<i4")) == array_digest(np.array([5], dtype=">i4"))
    assert array_digest(np.arange(10, dtype=np.uint8)) == "1f825aa2f0020ef7cf91dfa30da4668d791c5d4824fc8e41354b89ec05795ab3"
    many = np.arange(5_000_000, dtype=np.int64)  # more than one block
    assert array_digest(many) == array_digest(many.reshape(-1, 1000))
