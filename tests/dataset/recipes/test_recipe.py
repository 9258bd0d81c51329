"""A stack describes itself as plain data, has the same fingerprint everywhere, and can be drawn for
another epoch.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layer_laws import ClientWrapper, Samples
from torch_or_stand_in import torch

import data_stack
from data_stack import HigherOrderDatasetFactory, InformedDatasetFactory
from data_stack.codecs.plain_data import to_plain
from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import MetaFactory
from data_stack.dataset.positions import ComputedPositions
from data_stack.dataset.recipes.functions import named_function
from data_stack.dataset.recipes.stability import code_digest
from data_stack.exception import ConfigError

META = MetaFactory.get_dataset_meta("numbers/train", "numbers", "train")


def source(n_samples: int = 10) -> SequenceDatasetIterator:
    return SequenceDatasetIterator(
        [np.arange(n_samples), [f"text {number}" for number in range(n_samples)]]
    )


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


def top(iterator: DatasetIteratorIF) -> Any:
    return iterator.recipe()["nodes"][-1]


# ---------------------------------------------------------------------- the form


def test_a_recipe_is_a_list_of_nodes_lowest_first() -> None:
    values = SequenceDatasetIterator([np.array([5, 6, 7]), ["a", "b", "c"]])

    recipe = values[1:].combine(values, values[[2, 0, 0]]).recipe()

    column = to_plain(np.array([5, 6, 7]))
    assert recipe == {
        "data_stack_recipe": 2,
        "nodes": [
            {
                "layer": "sequence",
                "of": [],
                "arguments": {"dataset_sequences": [column, ["a", "b", "c"]]},
            },
            {
                "layer": "view",
                "of": [0],
                "arguments": {"indices": {"range": [1, 3, 1]}, "view_tags": None},
            },
            {
                "layer": "view",
                "of": [0],
                "arguments": {
                    "indices": to_plain(np.array([2, 0, 0], np.int32)),
                    "view_tags": None,
                },
            },
            {"layer": "combined", "of": [1, 0, 2], "arguments": {}},
        ],
        "reproducible": True,
        "why_not": [],
    }


def test_stacks_may_be_deeper_than_python() -> None:
    stack: DatasetIteratorIF = source(4)
    for _ in range(3_000):
        stack = stack[::-1]

    recipe = stack.recipe()

    assert len(recipe["nodes"]) == 3_001
    assert recipe["nodes"][-1]["of"] == [2_999]
    assert len(stack.fingerprint()) == 64
    assert stack.at_epoch(1) is stack


def test_what_is_stacked_on_itself_is_an_error() -> None:
    class Endless(Samples):
        @property
        def underlying_iterators(self) -> list[DatasetIteratorIF]:
            return [self]

    with pytest.raises(ConfigError, match="Endless is stacked on itself"):
        Endless([1]).combine(source()).recipe()


# ---------------------------------------------------------------------- metas and datasets


ORIGIN = {"name": "numbers", "version": "1.0.0", "split": "train", "config": {"scaled": True}}
RESOURCES = {"prepared/a.npy": "a" * 64, "prepared/b.npy": "b" * 64}


def test_a_recipe_pins_the_dataset_of_a_plugin() -> None:
    origin = {**ORIGIN, "resources": RESOURCES, "distribution": "numbers", "license": "CC0-1.0"}
    loaded = InformedDatasetIterator(Samples([1, 2, 3]), META, origin=origin)

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
def test_a_dataset_without_digests_is_what_its_factory_opened(
    more: dict[str, Any],
) -> None:
    loaded = InformedDatasetIterator(source(3), META, origin={**ORIGIN, **more})
    other = InformedDatasetIterator(source(4), META, origin={**ORIGIN, **more})

    assert top(loaded)["arguments"]["samples"] == source(3).fingerprint()
    assert loaded.fingerprint() != other.fingerprint()


# ---------------------------------------------------------------------- functions


def test_a_name_is_given_once() -> None:
    @named_function("tests first")
    def first(sample: Any) -> Any:
        return sample

    def other(sample: Any) -> Any:
        return sample

    with pytest.raises(ConfigError, match=r"'tests first'.*first"):
        named_function("tests first")(other)


# ---------------------------------------------------------------------- leaves


class TestLeaves:
    @pytest.mark.parametrize(
        ("iterator", "n_samples"), [(RandomIterator(), 3), (BrokenIterator(), None)]
    )
    def test_what_cannot_be_probed_has_no_probe(
        self, iterator: DatasetIteratorIF, n_samples: int | None
    ) -> None:
        arguments = top(iterator)["arguments"]

        assert arguments["probe"] is None
        assert arguments["n_samples"] == n_samples
        assert iterator.fingerprint() == iterator.fingerprint()

    @pytest.mark.parametrize(
        "column",
        [
            np.ma.masked_array([1, 2], [True, False]),
            np.zeros(2, dtype="i4,f4"),
            [object(), object()],
        ],
        ids=range(3),
    )
    def test_columns_that_cannot_be_written_are_told(self, column: Any) -> None:
        iterator = SequenceDatasetIterator([column])

        recipe = iterator.recipe()

        assert not recipe["reproducible"]
        assert "cannot be written down" in recipe["why_not"][0]
        assert json.loads(json.dumps(recipe)) == recipe == iterator.recipe()
        assert iterator.fingerprint() == iterator.fingerprint()


# ---------------------------------------------------------------------- fingerprints


def array_source() -> SequenceDatasetIterator:
    return SequenceDatasetIterator(
        [np.arange(6, dtype=np.float32).reshape(3, 2), ["ä", "b", "c"], [1, 2.5, None]]
    )


SIZED = {**ORIGIN, "config": {"scaled": True, "sizes": (28, 28)}}

# Saved splits and caches hold such fingerprints: a change of one of these breaks them all.
GOLDEN: dict[str, tuple[Callable[[], DatasetIteratorIF], str]] = {
    "arrays": (array_source, "906dde78cd0e5ba5839d805e7d084ece"),
    "objects": (
        lambda: SequenceDatasetIterator([[{"a": (1, b"x")}, {2, 1}], [float("nan"), 10**30]]),
        "81cc14ee70e628166ae45573b4b4dbce",
    ),
    "tensors": (
        lambda: SequenceDatasetIterator(
            [torch.arange(4).reshape(2, 2), torch.ones(2, dtype=torch.bfloat16)]
        ),
        "b5e0125e8f780b9dad7924db08dcd30e",
    ),
    "slice": (lambda: array_source()[::-2], "7f1bff2dce140fdd07484da83a570383"),
    "combined": (
        lambda: array_source().combine(array_source()[:2], array_source()),
        "7c5bce3576b469e94bb9ca24355dcb10",
    ),
    "named": (lambda: array_source().filter(len).map(np.log), "ed6c2a01ef9a057ad95fc633b962b7b3"),
    "dataset": (
        lambda: InformedDatasetIterator(array_source(), META, origin=SIZED)[1:],
        "d5630ddacf19baad1fac86c393ba36f5",
    ),
    "client": (
        lambda: DatasetIteratorView(FixedClient(), range(2)),
        "878e8f00f56c9669c981cc318d11a02b",
    ),
}


class FixedClient(Samples):
    __module__ = "somewhere"

    def __init__(self) -> None:
        super().__init__([(1, "a", np.zeros(3)), (2.5, "b", None)])


class TestFingerprint:
    @pytest.mark.parametrize("name", sorted(GOLDEN))
    def test_it_is_the_same_forever(self, name: str) -> None:
        make, expected = GOLDEN[name]

        assert make().fingerprint()[:32] == expected

    def test_it_is_the_same_in_every_process(self) -> None:
        program = (
            "import numpy as np, data_stack\n"
            "it = data_stack.SequenceDatasetIterator([np.arange(5), [{'a', 'b', 'c'}, frozenset('xyz'), 'ü', 1.5, (1,)]])\n"
            "print(it.combine(it[::-1]).shuffle(3).map(len).map(lambda s: s in {'a', 'b', 'q'}).fingerprint())"
        )

        command, path = (
            [sys.executable, "-c", program],
            str(Path(data_stack.__file__).parent.parent),
        )
        prints = {
            subprocess.check_output(command, env={"PYTHONPATH": path, "PYTHONHASHSEED": seed})
            for seed in "01"
        }

        assert len(prints) == 1

    @pytest.mark.parametrize(
        "others",
        [
            [lambda it: it[:3], lambda it: it.take(3), lambda it: it[range(3)], lambda it: it[-10:-7],
             lambda it: InformedDatasetFactory.get_dataset_iterator_view(it, META, range(3)),
             lambda it: InformedDatasetIterator(it, META)[:3], lambda it: it.in_memory()[:3], lambda it: it[:3].in_memory()],
            [lambda it: it[[0, 1, 2]], lambda it: it[np.array([0, 1, 2], dtype=np.uint8)],
             lambda it: it[[True] * 3 + [False] * 7],
             lambda it: HigherOrderDatasetFactory.get_dataset_iterator_view(it, [0, 1, 2], {"tag": 1}),
             lambda it: DatasetIteratorView(it, FirstPositions(3))],
            [lambda it: it.combine(it), lambda it: CombinedDatasetIterator([it, source()]),
             lambda it: InformedDatasetFactory.get_combined_dataset_iterator([it, it], META)],
            [lambda it: it.shuffle(5), lambda it: it.shuffle(np.int64(5)), lambda it: it.shuffle(np.uint8(5), epoch=0)],
        ],
        ids=["first", "by an array", "combined", "shuffled"],
    )  # fmt: skip
    def test_equal_stacks_have_one_however_they_were_made(
        self, others: list[Callable[[Any], DatasetIteratorIF]]
    ) -> None:
        assert len({make(source()).fingerprint() for make in others}) == 1

    def test_other_stacks_have_others(self) -> None:
        it, more = source(), source(11)
        stacks = [
            it, more, it[1:], it[:-1], it[::2], it[[1, 0]], it[[0, 2, 1]], it.shuffle(1), it.shuffle(2), it.shuffle(1, epoch=1),
            it.combine(more), more.combine(it), it.combine(it), it.combine(it, it), it.map(doubled), it.map(len), it.map(np.log),
            it.map(lambda sample: 1), it.map(lambda sample: 2), it.map(functools.partial(scaled, 2)), it.map(Transformation(1)),
            it.map(functools.partial(scaled, 3)), it.map(functools.partial(scaled, 2, offset=1)), it.map(Transformation(2)),
            SequenceDatasetIterator([np.arange(10)]), SequenceDatasetIterator([np.arange(10, dtype=np.int32)]),
            SequenceDatasetIterator([list(range(10))]), SequenceDatasetIterator([np.arange(10).reshape(5, 2)]),
            SequenceDatasetIterator([torch.arange(10)]), SequenceDatasetIterator([torch.arange(10).bfloat16()]),
            SequenceDatasetIterator([[1]]), SequenceDatasetIterator([[1.0]]), SequenceDatasetIterator([[True]]),
            SequenceDatasetIterator([["1"]]), SequenceDatasetIterator([[(1,)]]), SequenceDatasetIterator([[[1]]]),
            SequenceDatasetIterator([np.ma.masked_array([1, 2], [True, False])]),
            SequenceDatasetIterator([np.ma.masked_array([1, 2], [False, True])]),
        ]  # fmt: skip

        assert len({stack.fingerprint() for stack in stacks}) == len(stacks)

    def test_a_lambda_counts_by_what_it_refers_to(self) -> None:
        def made(factor: Any) -> DatasetIteratorIF:
            return source().map(lambda sample: sample * factor)

        factors = (2, 2, 3, np.arange(3), np.arange(4), threading.Lock(), threading.Lock())
        two, same, *others = (stack.fingerprint() for stack in list(map(made, factors)))

        assert two == same
        assert len({two, *others}) == 6

    @pytest.mark.parametrize(
        "used",
        ["Scaled()", "lambda sample: INSTANCE(sample)", "Scaled", "Scaled.of_class", "memoized"],
    )
    def test_objects_and_classes_of_a_program_count_with_their_code(self, used: str) -> None:
        prints, digests = [], []
        for factor in (2, 2, 3):
            names: dict[str, Any] = {"__name__": "__main__", "functools": functools}
            exec(
                "class Scaled:\n"
                "    def __init__(self, sample=()): pass\n"
                f"    def __call__(self, sample): return sample[0] * {factor}\n"
                "    @classmethod\n"
                f"    def of_class(cls, sample): return sample[0] * {factor}\n"
                "INSTANCE = Scaled()\n"
                "@functools.lru_cache\n"
                f"def memoized(sample): return sample[0] * {factor}\n",
                names,
            )
            prints.append(source().map(eval(used, names)).fingerprint())
            digests.append(code_digest(source().map(eval(used, names))))

        assert prints[0] == prints[1] != prints[2]
        assert used == "Scaled" or digests[0] == digests[1] != digests[2]


class FirstPositions(ComputedPositions):
    """The first ones, by a formula."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def at(self, index: int) -> int:
        return index

    def take(self, indices: Any) -> Any:
        return indices


# ---------------------------------------------------------------------- epochs


class TestAtEpoch:
    def test_random_layers_are_drawn_anew(self) -> None:
        stack = source().shuffle(3)[:5].combine(source()).repeat(2)

        later = stack.at_epoch(4)

        assert list(later) == list(source().shuffle(3, epoch=4)[:5].combine(source()).repeat(2))
        assert list(later) != list(stack)
        assert later.fingerprint() != stack.fingerprint()
        assert list(later.at_epoch(0)) == list(stack)
        assert later.at_epoch(0).recipe() == stack.recipe()

    def test_a_client_wrapper_lies_below_but_not_above(self) -> None:
        below = ClientWrapper(source()).shuffle(1)

        assert list(below.at_epoch(1)) != list(below)
        with pytest.raises(ConfigError, match="ClientWrapper"):
            ClientWrapper(below).at_epoch(1)


_SCALARS = [
    *(np.int8(100), np.uint64(2**64 - 1), np.int64(3), np.bool_(True), np.float64(0.5)),
    *(np.float16(0.5), np.datetime64("2024-01-01"), np.timedelta64(1, "s"), 3, True, 0.5),
]


@pytest.mark.parametrize(
    "wrap", [lambda value: value, lambda value: {"a": [value]}], ids=["bare", "nested"]
)
def test_samples_of_numpy_scalars_keep_their_types(wrap: Any) -> None:
    for scalar in _SCALARS:
        samples = SequenceDatasetIterator([[wrap(scalar), wrap(scalar)]])

        again = data_stack.from_recipe(json.loads(json.dumps(samples.recipe())))

        assert again.fingerprint() == samples.fingerprint()
        (value,) = again[1]
        found = value["a"][0] if isinstance(value, dict) else value
        assert found == scalar
        assert type(found) is type(scalar)
        assert again.read_column(0).dtype == samples.read_column(0).dtype
