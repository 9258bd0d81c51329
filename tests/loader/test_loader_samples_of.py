"""Which samples a step read: what ``samples_of`` names is what the loader returned."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples

import data_stack
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    LoaderStateError,
    LoadingError,
)
from data_stack.loader import BlockShuffled, Lanes, Loader


def make_loader(samples: Any, batch_size: int, **options: Any) -> Loader:
    options.setdefault("worker_kind", "inline")
    return Loader(samples, batch_size, **options)


def numbers(n_samples: int) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(n_samples)])


def identity(sample: Any) -> Any:
    return sample


def ids_of(batch: Any) -> list[int]:
    ids: list[int] = batch[0].tolist()
    return ids


def run(loader: Loader, n_iterations: int = 1) -> list[list[int]]:
    """The samples of each batch of some iterations."""
    return [ids_of(batch) for _ in range(n_iterations) for batch in loader]


def named(loader: Loader, step: int, **options: Any) -> list[int]:
    """The samples that ``samples_of`` names; they come from one array, in which they are their
    positions.
    """
    found = loader.samples_of(step, **options)
    return [origin.position for sample in found for origin in sample.origins]


# ---------------------------------------------------------------------- the law


@given(data=st.data())
def test_all_steps_and_ranks_name_what_was_read(data: st.DataObject) -> None:
    n_samples = data.draw(st.integers(1, 30))
    world = data.draw(st.integers(1, 4))
    batch_size = data.draw(st.integers(1, 5))
    stack: Any = numbers(n_samples)
    if data.draw(st.booleans()):
        stack = stack.shuffle(data.draw(st.integers(0, 9)))  # redrawn for each epoch
    shuffle: Any = data.draw(
        st.sampled_from([False, True, BlockShuffled(block_lengths=3, window=2)])
    )
    if data.draw(st.booleans()):
        shuffle = Lanes(
            BlockShuffled(block_lengths=3, window=2), lanes=world, batch_size=batch_size
        )
    options: dict[str, Any] = {
        "shuffle": shuffle,
        "seed": data.draw(st.integers(0, 9)),
        "uneven": data.draw(st.sampled_from(["pad", "drop", "keep"])),
        "drop_last": data.draw(st.booleans()),
    }
    n_epochs = 3

    steps_of_ranks = []
    for rank in range(world):
        loader = make_loader(stack, batch_size, shard=(rank, world), **options)
        steps_of_ranks.append(run(loader, n_epochs))

    asked = make_loader(stack, batch_size, shard=(0, world), **options)
    for rank, steps in enumerate(steps_of_ranks):
        for step, expected in enumerate(steps):
            assert named(asked, step, rank=rank) == expected
    n_common_steps = min(len(steps) for steps in steps_of_ranks)
    for step in range(n_common_steps):
        of_all_ranks = [sample for steps in steps_of_ranks for sample in steps[step]]
        assert named(asked, step, rank="all") == of_all_ranks


@given(data=st.data())
def test_steps_from_a_state_name_what_other_ranks_read(data: st.DataObject) -> None:
    n_samples = data.draw(st.integers(4, 40))
    first_world, world = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    batch_size = data.draw(st.integers(1, 4))
    stack = numbers(n_samples).shuffle(3)
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "epochs": None}
    before = make_loader(stack, 2, shard=(0, first_world), **options)
    for _ in zip(range(data.draw(st.integers(0, 12))), before, strict=False):
        pass
    state = json.loads(json.dumps(before.state_dict()))

    steps_of_ranks = []
    for rank in range(world):
        resumed = make_loader(stack, batch_size, shard=(rank, world), **options)
        resumed.load_state_dict(state)
        steps_of_ranks.append([ids_of(batch) for batch in itertools.islice(resumed, 12)])

    # Another seed: that of the state counts.
    asked = make_loader(stack, batch_size, shard=(0, world), shuffle=True, seed=99, epochs=None)
    for rank, steps in enumerate(steps_of_ranks):
        for step, expected in enumerate(steps):
            assert named(asked, step, state=state, rank=rank) == expected


@given(data=st.data())
def test_stages_of_mixes_name_what_was_read_after_resumes(data: st.DataObject) -> None:
    first_ids = {"web": 0, "code": 1000}
    sources = [SequenceDatasetIterator([first + np.arange(30)]) for first in first_ids.values()]
    mixed = sources[0].mix(
        sources[1],
        names=list(first_ids),
        schedule=[(0, {"web": 3, "code": 1}), (17, {"web": 1, "code": 2})],
        n_samples=data.draw(st.integers(18, 50)),
        seed=4,
    )
    stack = mixed.map(identity).cache()
    worlds = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    state = None
    for world in worlds:
        loaders = [make_loader(stack, 2, shard=(rank, world), epochs=None) for rank in range(world)]
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        n_steps = data.draw(st.integers(1, 12))
        steps_of_ranks = [
            [ids_of(batch) for batch in itertools.islice(loader, n_steps)] for loader in loaders
        ]

        asked = make_loader(stack, 2, shard=(0, world), epochs=None)
        for rank, steps in enumerate(steps_of_ranks):
            for step, expected in enumerate(steps):
                found = asked.samples_of(step, state=state, rank=rank)
                names = [origin for sample in found for origin in sample.origins]
                ids = [first_ids[str(origin.source)] + origin.position for origin in names]
                assert ids == expected
        state = loaders[0].state_dict()


# ---------------------------------------------------------------------- budgets, damage


@given(data=st.data())
def test_steps_by_budget_name_what_was_read(data: st.DataObject) -> None:
    costs = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=25))
    world = data.draw(st.integers(1, 3))
    stack: Any = SequenceDatasetIterator([np.arange(len(costs)), np.array(costs)])
    if data.draw(st.booleans()):
        stack = stack.shuffle(3)  # redrawn for each epoch
    options: dict[str, Any] = {
        "budget": 8,
        "cost": 1,
        "shuffle": data.draw(st.booleans()),
        "worker_kind": "inline",
        "epochs": 3,
    }
    steps_of_ranks = []
    for rank in range(world):
        steps_of_ranks.append(run(Loader(stack, seed=5, shard=(rank, world), **options)))
    resumed_from = Loader(stack, seed=5, shard=(0, world), **options)
    next(iter(resumed_from))
    state = resumed_from.state_dict()

    asked = Loader(stack, seed=5, shard=(0, world), **options)
    of_another_seed = Loader(stack, seed=6, shard=(0, world), **options)
    for rank, steps in enumerate(steps_of_ranks):
        for step, expected in enumerate(steps):
            assert named(asked, step, rank=rank) == expected
        for step, expected in enumerate(steps[1:]):
            assert named(of_another_seed, step, rank=rank, state=state) == expected


class DamagedSamples(Samples):
    """Samples of which some cannot be decoded."""

    damaged = frozenset((3, 4, 11))

    def __getitem__(self, index: int) -> Any:
        if index in self.damaged:
            raise DatasetFileCorruptError(f"sample {index} is damaged")
        return super().__getitem__(index)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("is_redrawn", [False, True])
def test_damaged_samples_are_not_named(on_error: Any, is_redrawn: bool) -> None:
    samples: Any = DamagedSamples([(number,) for number in range(20)])
    if is_redrawn:
        samples = samples.shuffle(2)
    options: dict[str, Any] = {"shuffle": True, "on_error": on_error}
    loader = make_loader(samples, 4, **options)
    steps = run(loader, 2)
    state = loader.state_dict()

    fresh = make_loader(samples, 4, **options)
    for step, expected in enumerate(steps):
        assert named(loader, step) == expected
    next_step = ids_of(next(iter(loader)))
    assert named(fresh, 0, state=state) == next_step


# ---------------------------------------------------------------------- where steps are counted from


def test_a_step_of_an_epoch_is_counted_from_its_start() -> None:
    loader = make_loader(numbers(20), 4, shuffle=True, epochs=3)

    steps = run(loader)

    assert named(loader, 1, epoch=2) == steps[2 * 5 + 1]
    assert [sample.epoch for sample in loader.samples_of(1, epoch=2)] == [2, 2, 2, 2]


def test_a_step_in_the_far_future_is_found_at_once() -> None:
    loader = make_loader(numbers(20), 4, shuffle=True)

    found = loader.samples_of(10**15 + 3)

    assert found[0].epoch == 2 * 10**14
    assert found.indices.tolist() == named(loader, 3, epoch=2 * 10**14)


def test_negative_steps_lie_before_a_state() -> None:
    loader = make_loader(numbers(20), 4, shuffle=True)
    batches = iter(loader)
    read = [ids_of(next(batches)) for _ in range(3)]
    state = loader.state_dict()

    assert [named(loader, step, state=state) for step in (-3, -2, -1)] == read
    assert named(loader, 0, state=state) == ids_of(next(batches))  # the iteration goes on
    with pytest.raises(ConfigError, match=r"no step -4 before the state.*to the state is 3"):
        loader.samples_of(-4, state=state)


def test_ranks_in_different_epochs_find_their_own_places() -> None:
    options: dict[str, Any] = {"uneven": "keep", "epochs": 3, "shuffle": True}
    loaders = [make_loader(numbers(5), 2, shard=(rank, 2), **options) for rank in range(2)]
    steps_of_ranks = [run(loader) for loader in loaders]
    stopped = make_loader(numbers(5), 2, shard=(0, 2), **options)
    for _ in zip(range(2), stopped, strict=False):
        pass

    asked = make_loader(numbers(5), 2, shard=(1, 2), **options)
    state = stopped.state_dict()

    assert state["ranks"]["differ"] == 1
    for rank in range(2):
        assert named(asked, 0, state=state, rank=rank) == steps_of_ranks[rank][2]


def test_the_last_step_may_be_one_of_some_ranks() -> None:
    loader = make_loader(numbers(5), 2, shard=(0, 2), uneven="keep")

    found = loader.samples_of(1, epoch=0, rank="all")

    assert [(sample.rank, sample.index) for sample in found] == [(0, 4)]
    with pytest.raises(ConfigError, match="epoch 0 has no step 1 of rank 1"):
        loader.samples_of(1, epoch=0, rank=1)


# ---------------------------------------------------------------------- what it says


def test_a_packed_batch_of_a_mix_names_all_documents() -> None:
    web = SequenceDatasetIterator([[np.full(n % 5 + 1, n) for n in range(30)]])
    code = SequenceDatasetIterator([[np.full(n % 3 + 1, 100 + n) for n in range(30)]])
    packed = web.mix(code, proportions=[2, 1], seed=1, names=["web", "code"]).pack(
        8, strategy="best_fit", seed=2
    )
    loader = make_loader(packed, 4, shuffle=True, seed=3)

    for step, batch in enumerate(loader):
        for sample, tokens in zip(loader.samples_of(step), batch["tokens"], strict=True):
            documents: list[int] = []
            for origin in sample.origins:
                first = {"web": 0, "code": 100}[str(origin.source)]
                assert origin.part is not None
                start, stop = map(int, origin.part.removeprefix("tokens ").split(":"))
                documents += [first + origin.position] * (stop - start)
            assert tokens[: len(documents)].tolist() == documents
            assert not tokens[len(documents) :].any()


def test_an_error_names_all_documents_of_a_sequence(tmp_path: Path) -> None:
    lines = [json.dumps({"tokens": [number] * 3}) for number in range(12)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    packed = data_stack.from_jsonl(tmp_path / "a.jsonl").pack(6, "tokens")
    loader = make_loader(packed.map(refuse_five), 2)

    with pytest.raises(LoadingError, match=r"sample 2 .*row 4 of .*; row 5 of .*a.jsonl, tok"):
        list(loader)


def refuse_five(sample: Any) -> Any:
    if 5 in sample["tokens"]:
        raise ValueError("a five")
    return sample


def test_no_sample_is_read() -> None:
    samples = Samples([(number,) for number in range(20)])
    loader = make_loader(samples.shuffle(1).batch(2), 3, shuffle=True)

    found = loader.samples_of(1, rank="all")

    assert len(found) == 3
    assert samples.read == []


def test_a_sample_of_nothing_has_a_row() -> None:
    windows = numbers(4).windows(2, offsets={0: [], 1: []})

    found = make_loader(windows, 2, collate=list).samples_of(0)

    assert [sample.origins for sample in found] == [(), ()]
    assert len(str(found).splitlines()) == 2 + 2


def test_it_prints_a_table_without_empty_columns() -> None:
    loader = make_loader(numbers(4).combine(numbers(4)), 3)

    found = loader.samples_of(1)

    assert [line.split() for line in str(found).splitlines()[2:]] == [
        ["0", "0", "3", "3", "0"],
        ["0", "0", "4", "0", "1"],
        ["0", "0", "5", "1", "1"],
    ]
    assert str(found).split()[:6] == ["rank", "epoch", "sample", "in", "source", "source"]
    assert found.indices.tolist() == [3, 4, 5]
    assert json.loads(json.dumps(found.to_dict()))["samples"][1]["origins"] == [
        {"position": 0, "source": "1", "location": None, "part": None}
    ]
    assert [sample.index for sample in found[1:]] == [4, 5]
    assert "<table" in found._repr_html_()


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"step": 5, "epoch": 0}, "epoch 0 has no step 5 of rank 0: the number of its steps is 5"),
        ({"step": -1}, "step must be at least 0"),
        ({"step": -1, "epoch": 1}, "step must be at least 0"),
        ({"step": 0, "epoch": -1}, "epoch"),
        ({"step": 0, "rank": 2}, "rank"),
        ({"step": 0, "rank": "both"}, "rank must be a number"),
        ({"step": "1"}, "step"),
        ({"step": 0, "epoch": 0, "state": {}}, "epoch= or state="),
    ],
)
def test_what_does_not_exist_is_refused(options: dict[str, Any], problem: str) -> None:
    loader = make_loader(numbers(20), 2, shard=(0, 2))

    with pytest.raises((ConfigError, TypeError), match=problem):
        loader.samples_of(**options)


def test_a_state_of_other_samples_is_refused() -> None:
    state = make_loader(numbers(20), 2).state_dict()

    with pytest.raises(LoaderStateError, match="another dataset"):
        make_loader(numbers(21), 2).samples_of(0, state=state)


def test_a_loader_without_batches_has_no_step() -> None:
    with pytest.raises(ConfigError, match="rank 0 has no batch in epoch 0"):
        make_loader(numbers(0), 2).samples_of(0)
