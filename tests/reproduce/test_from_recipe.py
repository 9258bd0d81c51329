"""A recipe leads back to the stack that it describes, and runs nothing that is not allowed."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer_laws import Samples
from torch_or_stand_in import torch
from written_dataset import Written

from data_stack import DatasetCard, Resources
from data_stack.dataset.encoders import CategoricalEncoder, ClassMapping, ContinuousEncoder
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    DatasetIteratorView,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import IteratorMeta, MetaFactory
from data_stack.dataset.recipes.functions import named_function
from data_stack.dataset.recipes.stability import instability_reason
from data_stack.exception import ConfigError, RecipeError
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.repository.repository import DatasetRepository
from data_stack.reproduce.recipe_layers import import_layers
from data_stack.reproduce.recipes import from_recipe
from data_stack.values.digests import sample_digest

META = MetaFactory.get_dataset_meta("numbers/train", "numbers", "train", IteratorMeta(0, 1, 1))


def doubled(sample: Any) -> Any:
    return (sample[0] * 2, *sample[1:])


def jittered(sample: Any, random: np.random.Generator) -> Any:
    return (float(random.random()), *sample[1:])


def is_even(value: Any) -> bool:
    return bool(value % 2 == 0)


def at_least(limit: int, value: Any) -> bool:
    return bool(value >= limit)


HALVED = named_function("recipes test halved")(lambda sample: sample[0] / 2)
HERE = {
    f"{__name__}:{function.__qualname__}": function
    for function in (doubled, jittered, is_even, at_least)
}


def source(n_samples: int = 12) -> SequenceDatasetIterator:
    return SequenceDatasetIterator(
        [list(range(n_samples)), np.arange(n_samples) % 3, np.arange(2 * n_samples).reshape(-1, 2)]
    )


def informed() -> InformedDatasetIterator:
    return InformedDatasetIterator(source(), META)


def assert_same_samples(one: DatasetIteratorIF, other: DatasetIteratorIF) -> None:
    assert list(map(sample_digest, one)) == list(map(sample_digest, other))


def through_json(recipe: Any) -> Any:
    return json.loads(json.dumps(recipe, allow_nan=False))


STACKS: dict[str, Callable[[], DatasetIteratorIF]] = {
    "sequence": source,
    "view": lambda: source()[::-2][[1, 0, 1]],
    "informed": informed,
    "combined": lambda: source()[:3].combine(source(), source()[[1, 1]]),
    "in_memory": lambda: source().in_memory(),
    "cached": lambda: source().cache(1000),
    "shuffled": lambda: source().shuffle(3, epoch=2),
    "repeated": lambda: source().repeat(3),
    "interleaved": lambda: source().interleave(source(4), stop="shortest"),
    "mixed": lambda: source().mix(source(5), proportions=[3, 1], seed=5, epoch=1),
    "resampled": lambda: source().resample(20, seed=1, weights=np.arange(12.0)),
    "balanced": lambda: source()[:7].balance(seed=3),
    "filtered": lambda: (
        source().filter(functools.partial(at_least, 4), column=0).filter(is_even, column=1)
    ),
    "sorted": lambda: source().sort(1, descending=True),
    "deduplicated": lambda: source().deduplicate(1),
    "windowed": lambda: source().windows(3, stride=2, order_by=0, group_by=1, max_gap=4),
    "packed": lambda: source().pack(5, 2, seed=4, epoch=1, end_token=7, drop_last=False),
    "sharded": lambda: source().shard(1, 5, uneven="pad"),
    "mapped": lambda: source().map(doubled).map(jittered, seed=3),
    "fields": lambda: source().select(2, 0),
    "dicts": lambda: source().as_dict("number", "class", "pair"),
    "renamed": lambda: source().as_dict("number", "class", "pair").rename({"class": "label"}),
    "tuples": lambda: source().as_dict("number", "class", "pair").as_tuple("pair", "number"),
    "zipped": lambda: source().zip(source()[::-1]),
    "batched": lambda: source().batch(5),
    "encoded": lambda: source().encode(
        {0: ContinuousEncoder(), 1: CategoricalEncoder()}, fit_on=source(6)
    ),
    "mapped_classes": lambda: informed().map_classes(ClassMapping({(0, 1): "low", 2: "high"})),
    "split": lambda: source().split({"train": 0.5, "test": 0.5}, seed=3, stratify=1)["test"],
    "fold": lambda: source().folds(3, seed=1, stratify=1)[1].train,
    # more of these layers
    "tensors": lambda: SequenceDatasetIterator(
        [torch.arange(3), torch.ones((3, 2), dtype=torch.bfloat16), torch.rand(3) > 2]
    ),
    "tagged": lambda: DatasetIteratorView(source(), [3, 1], {"fold": 1, "of": ("a", 5)}),
    "named": lambda: source().map(HALVED),
    "diamond": lambda: (lambda it: it[:4].combine(it[4:], it[:4].shuffle(1)))(source()),
}


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_is_rebuilt(name: str) -> None:
    stack = STACKS[name]()
    recipe = through_json(stack.recipe())

    rebuilt = from_recipe(recipe, functions=HERE)

    assert recipe["reproducible"]
    assert instability_reason(stack) is None
    assert rebuilt.recipe() == recipe
    assert rebuilt.fingerprint() == stack.fingerprint()
    assert_same_samples(rebuilt, stack)
    if len(stack):
        assert sample_digest(rebuilt.read_batch([0, 0])) == sample_digest(stack.read_batch([0, 0]))
    assert getattr(rebuilt, "dataset_meta", None) == getattr(stack, "dataset_meta", None)


def test_every_layer_is_among_them() -> None:
    ours = {
        name
        for name, layer in import_layers().items()
        if layer.__module__.startswith("data_stack.")
    }

    assert ours - set(STACKS) == {"stored_cache", "table_file"}


def test_a_stored_cache_is_kept_in_the_given_store() -> None:
    first, second = InMemoryStorageConnector(), InMemoryStorageConnector()
    stack = source().cache(storage=first, identifier="caches/mine")
    recipe = through_json(stack.recipe())

    rebuilt = from_recipe(recipe, storage=second)

    assert_same_samples(rebuilt, stack)
    # the author of a recipe must not choose what is written
    assert {resource.rpartition("/")[0] for resource in second.list_resources()} == {
        f"caches/{source().fingerprint()}.records"
    }
    assert rebuilt.recipe() == recipe
    assert rebuilt.fingerprint() == stack.fingerprint() == source().fingerprint()


class Numbers(Written):
    """Numbers."""

    card = DatasetCard(name="numbers", version="1.2.0", license="CC0-1.0")
    splits = ("train", "test")
    files = {"train": b"1234", "test": b"567"}

    def open(self, split: str, prepared: Resources, *, scaled: float = 1.0) -> DatasetIteratorIF:
        numbers = [number * scaled for (number,) in super().open(split, prepared)]
        return SequenceDatasetIterator([numbers, [split] * len(numbers)])


@pytest.fixture
def repository() -> DatasetRepository:
    repository = DatasetRepository(storage=InMemoryStorageConnector())
    repository.register("numbers", Numbers)
    return repository


@pytest.mark.parametrize(("split", "config"), [("train", {}), ("test", {"scaled": 2.5})])
def test_they_are_loaded_by_name(repository: DatasetRepository, split: str, config: Any) -> None:
    stack = repository.load("numbers", split, **config)[::-1]
    recipe = through_json(stack.recipe())

    rebuilt = from_recipe(recipe, repository=repository)

    assert [node["layer"] for node in recipe["nodes"]] == ["dataset", "view", "informed"]
    assert recipe["reproducible"]
    assert rebuilt.recipe() == recipe
    assert_same_samples(rebuilt, stack)


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1.1.0"},
        {"split": None},
        {"config": {"dict": [["storage", "memory://"]]}},
        {"more": []},
        {"resources": {"dict": [["train", 5]]}},
        {"samples": "0" * 64},
    ],
)  # fmt: skip
def test_others_are_an_error(repository: DatasetRepository, change: dict[str, Any]) -> None:
    recipe = repository.load("numbers", "train").recipe()
    recipe["nodes"][0]["arguments"].update(change)

    with pytest.raises(RecipeError) as caught:
        list(from_recipe(recipe, repository=repository))

    assert (caught.value.node, caught.value.layer) == (0, "dataset")


def test_none_is_called_that_is_not_allowed() -> None:
    recipe = source().map(doubled).filter(is_even, column=0).recipe()

    with pytest.raises(RecipeError) as caught:
        from_recipe(recipe)

    assert f"node 1 (mapped): '{__name__}:doubled'" in str(caught.value)
    assert f"node 2 (filtered): '{__name__}:is_even'" in str(caught.value)


def test_an_iterator_of_a_client_is_given() -> None:
    mine = Samples([(1,), (2,), (3,)])
    stack = DatasetIteratorView(mine, [2, 0]).combine(DatasetIteratorView(mine, [1]))
    recipe = through_json(stack.recipe())

    rebuilt = from_recipe(recipe, sources=[mine])

    assert list(rebuilt) == [(3,), (1,), (2,)]
    assert rebuilt.recipe() == recipe
    with pytest.raises(RecipeError):
        from_recipe(recipe, sources=[Samples([(4,)])])


def test_missing_ones_are_listed_and_only_the_topmost() -> None:
    below, beside = Samples([1, 2, 3]), Samples([4])
    stack = below.map(lambda sample: sample).combine(beside, SequenceDatasetIterator([[object()]]))

    with pytest.raises(RecipeError) as caught:
        from_recipe(stack.recipe())

    _, *lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in sorted(lines)] == [
        "  node 1 (mapped)",
        "  node 2",
        "  node 3 (sequence)",
    ]


def changed(path: str, value: Any) -> Any:
    recipe = informed()[2:].map(doubled).recipe()
    place: Any = recipe
    *steps, last = path.split("/")
    for step in steps:
        place = place[int(step) if isinstance(place, list) else step]
    place[int(last) if isinstance(place, list) else last] = value
    return recipe


DAMAGED: list[Any] = [
    b"\xff\xfe",
    "[" * 100_000,
    '{"data_stack_recipe": 1, "data_stack_recipe": 1}',
    changed("data_stack_recipe", 1),
    changed("nodes/2/of", [-1]),
    changed("nodes/2/arguments/indices", {"range": [0, 10**30, 1]}),
    changed("nodes/2/arguments/indices", {"storage": "memory://"}),
    changed("nodes/1/arguments/origin", {"dict": []}),
    changed("nodes/0/arguments/dataset_sequences/0", {"tensor": {"dtype": "load", "values": [1]}}),
    {  # 2**60 samples of one
        "data_stack_recipe": 2,
        "nodes": [
            {"layer": "sequence", "of": [], "arguments": {"dataset_sequences": [[1]]}},
            *(
                {"layer": "combined", "of": [number, number], "arguments": {}}
                for number in range(60)
            ),
        ],
        "reproducible": True,
        "why_not": [],
    },
]


@pytest.mark.parametrize("recipe", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_recipe_is_an_error(recipe: Any) -> None:
    with pytest.raises(RecipeError):
        from_recipe(recipe, functions=HERE)


_words = st.sampled_from(
    ["layer", "of", "arguments", "nodes", "array", "scalar", "function", "partial", "encoder", "dataset_meta", "tensor", "dict",
     "tuple", "range", "slice", "indices", "seed", "epoch", "dataset_sequences", "samples", "times", "n_samples", "by", "length",
     "kind", "config", "learned", "fitted_on", "digest", "unknown", "unnamed", "storage", "dtype", "shape", "values", "base64"]
)  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 60) | st.just(2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4) | _words | st.sampled_from(["<i4", "AAAA", "nan", "os:system", "categorical", "columns"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words | st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def _places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [path, *(place for key, item in items for place in _places(item, (*path, key)))]


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.sampled_from(sorted(STACKS)), st.integers(0, 10**6), _json)
def test_any_change_of_a_recipe_is_refused_or_followed(name: str, place: int, value: Any) -> None:
    recipe = through_json(STACKS[name]().recipe())
    places = _places(recipe)[1:]
    *steps, last = places[place % len(places)]
    parent = functools.reduce(lambda data, step: data[step], steps, recipe)
    parent[last] = value

    try:
        rebuilt = from_recipe(
            recipe,
            functions=HERE,
            repository=DatasetRepository(),
            storage=InMemoryStorageConnector(),
        )
    except ConfigError:
        return
    rebuilt.recipe()
