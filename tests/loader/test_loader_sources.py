"""Granular's sources: pure functions of a step, read many at once, endless under a loader, and described by a recipe."""

from __future__ import annotations

import functools
import json
import math
import pickle
from collections.abc import Callable
from itertools import islice
from typing import Any

import granular.sources
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_stack.loader.sources
from data_stack import from_recipe
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.loader import Epochs, Interleave, Loader, Mix, Sample, StepSource, Transform, Truncate


def numbers(n: int, start: int = 0) -> DatasetIteratorIF:
    return SequenceDatasetIterator([np.arange(start, start + n), np.arange(n) % 3])


def squared(step: int) -> tuple[int, int]:
    return step * step, step


def whose(place: int, step: int) -> tuple[int, int]:
    return place, step


def scaled(sample: Any, seed: list[int]) -> Any:
    return sample[0] * 10, np.random.default_rng(seed).integers(1000)


def shifted(sample: Any, rng: np.random.Generator) -> Any:
    return sample[0], int(rng.integers(1000))


FUNCTIONS = {f"{function.__module__}:{function.__qualname__}": function for function in (squared, scaled, shifted)}

SOURCES: dict[str, Callable[[], StepSource]] = {
    "epochs": lambda: Epochs(numbers(37), seed=4),
    "epochs in order": lambda: Epochs(numbers(37), shuffle=False),
    "epochs of a function": lambda: Epochs(squared, length=20),
    "sample": lambda: Sample(numbers(37), seed=-1),
    "transform with a seed": lambda: Transform(Epochs(numbers(10)), scaled, seed=3),
    "transform with a generator": lambda: Transform(Sample(numbers(10)), shifted, seed=-3),
    "truncate": lambda: Truncate(numbers(50), 13),
    "interleave": lambda: Interleave([Epochs(numbers(10)), squared, Sample(numbers(7, 100))]),
    "mix": lambda: Mix([Epochs(numbers(10)), Epochs(numbers(23, 100)), squared], [0.5, 0.3, 0.2], seed=7),
    "mix of a mix": lambda: Mix([Mix([squared, Epochs(numbers(5))]), Truncate(Epochs(numbers(9)), 4)], (1, 4)),
}


def plain(sample: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in sample)


def read(source: StepSource, n_steps: int) -> Any:
    """The columns of the first steps."""
    return source.read_batch(np.arange(n_steps))


def rows(batch: Any) -> list[tuple[int, ...]]:
    return [plain(sample) for sample in zip(*batch, strict=True)]


# ---------------------------------------------------------------------- what all sources promise


@pytest.mark.parametrize("name", SOURCES)
def test_many_steps_at_once_are_what_each_step_is(name: str) -> None:
    source, other = SOURCES[name](), SOURCES[name]()
    steps = np.random.default_rng(0).integers(0, 1000, 200)

    expected = [plain(source(step)) for step in steps.tolist()]

    assert rows(other.read_batch(steps)) == expected
    assert [plain(sample) for sample in other.__getitems__(steps)] == expected
    assert other.read_column(1, steps).tolist() == [sample[1] for sample in expected]
    assert plain(other[int(steps[0])]) == plain(other[steps][0]) == expected[0]
    assert [len(column) for column in other.read_batch([])] == [0, 0]


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_found_far_away_at_once(name: str) -> None:
    source = SOURCES[name]()
    steps = np.array([2**48 - 1, 10**14 + 7, 10**14, 10**12])
    if "function" in name or "squared" in repr(source):  # whose own numbers leave 64 bits
        steps = np.array([10**9, 10**8 + 1])

    assert rows(source.read_batch(steps)) == [plain(source(step)) for step in steps.tolist()]


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_pickles_and_is_rebuilt_from_its_recipe(name: str) -> None:
    iterator = SOURCES[name]()
    recipe = json.loads(json.dumps(iterator.recipe()))

    rebuilt = from_recipe(recipe, functions=FUNCTIONS)
    pickled = pickle.loads(pickle.dumps(iterator))

    assert recipe["reproducible"]
    assert rebuilt.recipe() == pickled.recipe() == recipe
    assert rebuilt.fingerprint() == pickled.fingerprint() == iterator.fingerprint() == SOURCES[name]().fingerprint()
    expected = rows(iterator.read_batch(range(100)))
    assert rows(rebuilt.read_batch(range(100))) == rows(pickled.read_batch(range(100))) == expected


class Doubling(StepSource):
    """A source that a user wrote."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, step: int) -> int:
        return self.factor * step


def test_a_source_of_ones_own_needs_no_more_than_a_call() -> None:
    source = Doubling(2)

    assert read(source, 3).tolist() == [0, 2, 4]
    assert Epochs(source, length=4, shuffle=False)(6) == 4
    assert source.fingerprint() == Doubling(2).fingerprint() != Doubling(3).fingerprint()
    assert not source.recipe()["reproducible"]


# ---------------------------------------------------------------------- each of them


@pytest.mark.parametrize("n_samples", [1, 37, 70_000])
def test_epochs_have_the_orders_of_a_shuffled_loader(n_samples: int) -> None:
    dataset = numbers(n_samples)
    source = Epochs(dataset, seed=3)

    loader = Loader(dataset, 64, shuffle=True, seed=3, epochs=2, worker_kind="inline")

    expected = np.concatenate([batch[0] for batch in loader])
    assert np.array_equal(read(source, 2 * n_samples)[0], expected)
    assert [source(step)[0] for step in range(min(2 * n_samples, 50))] == expected[:50].tolist()
    assert np.array_equal(dataset.shuffle(3, epoch=1).read_column(0), expected[n_samples:])


def test_draws_are_independent_and_even() -> None:
    drawn = read(Sample(numbers(100), seed=1), 20_000)[0]

    counts = np.bincount(drawn, minlength=100)
    assert 60 < ((counts - 200) ** 2 / 200).sum() < 150  # chi-square of 99 degrees of freedom
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.03
    assert not np.array_equal(drawn, read(Sample(numbers(100), seed=2), 20_000)[0])


def test_a_transform_gets_what_it_asks_for() -> None:
    seeds, keywords = [], []

    def seeded(sample: Any, seed: Any) -> Any:
        seeds.append(seed)
        return sample

    def any_keywords(sample: Any, **given: Any) -> Any:
        keywords.append(given)
        return sample

    for function in (seeded, any_keywords):
        Transform(numbers(5), function, seed=9)(3)
        Transform(numbers(5), function, seed=9).read_batch([4])

    assert seeds == [[9, 3], [9, 4]]
    assert keywords == [{"seed": [9, 3]}, {"seed": [9, 4]}]
    assert Transform(numbers(5), len)(0) == 2
    assert Transform(numbers(5), shifted)(1)[1] == Transform(numbers(5), shifted)(1)[1]
    assert len({Transform(numbers(5), shifted, seed)(1)[1] for seed in range(9)}) > 5


def test_finite_sources_end() -> None:
    transformed = Transform(numbers(5), shifted)
    interleaved = Interleave([numbers(5), squared, numbers(3)])

    assert len(transformed) == 5
    assert len(interleaved) == interleaved.n_steps == 11
    assert [plain(sample)[0] for sample in interleaved] == [0, 0, 0, 1, 1, 1, 2, 4, 2, 3, 9]
    assert Truncate(numbers(5), 9)(6)[0] == 1
    assert len(Loader(transformed, 2, worker_kind="inline")) == 3
    for too_far in (lambda: transformed(5), lambda: interleaved(11), lambda: interleaved.read_batch([11])):
        with pytest.raises(IndexError):
            too_far()


@given(st.lists(st.sampled_from([0, 1, 2, 5, 0.1, 0.25, 7.5]), min_size=1, max_size=5).filter(any), st.integers(0, 2**40))
def test_a_mix_asks_each_source_for_its_steps_in_their_order_and_in_proportion(weights: list[float], seed: int) -> None:
    sources = [functools.partial(whose, place) for place in range(len(weights))]

    taken, steps = read(Mix(sources, weights, seed=seed), 2000)

    total = sum(weights)
    block = math.ceil(total / min(weight for weight in weights if weight) - 1e-9)
    for place, weight in enumerate(weights):
        is_its = taken == place
        assert steps[is_its].tolist() == list(range(is_its.sum()))
        ends = np.arange(block, 2001, block)
        assert (abs(np.cumsum(is_its)[ends - 1] - ends * weight / total) < 1 + 1e-6).all()


@pytest.mark.parametrize("theirs", [granular.sources, data_stack.loader.sources], ids=["granular", "ours"])
def test_a_program_for_granulars_sources_runs_with_either(theirs: Any) -> None:
    reader = [{"id": np.int64(n), "x": np.full(3, n, np.float32)} for n in range(30)]

    def augmented(datapoint: Any, seed: Any) -> Any:
        return {**datapoint, "noise": np.random.default_rng(seed).random()}

    source = theirs.Transform(
        theirs.Interleave(
            [
                theirs.Epochs(reader, length=20, shuffle=True, seed=0),
                theirs.Sample(reader, seed=3),
                theirs.Truncate(reader, 4),
                theirs.Mix([theirs.Epochs(reader, shuffle=False), lambda step: reader[step % 7]], weights=[3, 1], seed=0),
            ]
        ),
        augmented,
        seed=7,
    )
    samples = [source(step) for step in range(160)]

    ids = [int(sample["id"]) for sample in samples]
    assert sorted(ids[0:80:4]) == sorted(ids[80::4]) == list(range(20))
    assert ids[0:80:4] != ids[80::4]
    assert ids[2::4] == [0, 1, 2, 3] * 10
    assert samples[5]["noise"] == np.random.default_rng([7, 5]).random()
    assert source(5)["noise"] == samples[5]["noise"]


# ---------------------------------------------------------------------- under a loader


def test_an_endless_source_goes_on_from_a_state() -> None:
    source = Transform(SOURCES["mix"](), scaled, seed=1)
    loader = Loader(source, 16, worker_kind="threads", workers=2)
    taken = [row for batch in islice(loader, 4) for row in rows(batch)]

    resumed = Loader(source, 16, worker_kind="inline")
    resumed.load(json.loads(json.dumps(loader.save())))
    taken += [row for batch in islice(resumed, 4) for row in rows(batch)]

    assert taken == [plain(source(step)) for step in range(128)]
    with pytest.raises(TypeError, match="never ends"):
        len(loader)


# ---------------------------------------------------------------------- what is refused


ours: Any = data_stack.loader  # what is refused at run time, types refuse as well


@pytest.mark.parametrize(
    "make",
    [
        lambda: ours.Epochs(squared),
        lambda: ours.Epochs([]),
        lambda: ours.Epochs(numbers(3), 4),
        lambda: ours.Epochs(5),
        lambda: ours.Truncate(numbers(3), 0),
        lambda: ours.Transform(numbers(3), 5),
        lambda: ours.Interleave([]),
        lambda: ours.Interleave("digits"),
        lambda: ours.Mix({"train": numbers(3)}),
        lambda: ours.Mix(3),
        lambda: ours.Epochs("digits"),
        lambda: ours.Interleave(numbers(3)),
        lambda: ours.Mix([squared, numbers(3)]),
        lambda: ours.Mix([squared], [1, 2]),
        lambda: ours.Epochs(numbers(3))(-1),
    ],
)
def test_what_makes_no_source_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError):
        make()
