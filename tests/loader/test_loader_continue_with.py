"""Another mix takes the place of a loader's: each source goes on where it was."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_numbers import DamagedNumbers
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import sized

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.layers.mix_in_stack import MixInStack
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.loader import BlockShuffled, Loader, LoaderState
from data_stack.loader.workers.base import WorkerKind

NAMES = ("a", "b", "c", "d")
SEED = 5


def source(name: str, n_samples: int) -> DatasetIteratorIF:
    """Samples are ``(number of the source, position)``."""
    numbers = np.full(n_samples, NAMES.index(name))
    return SequenceDatasetIterator([numbers, np.arange(n_samples)])


def mix(sources: dict[str, DatasetIteratorIF], proportions: Any, **options: Any) -> Any:
    first, *others = sources.values()
    how = {"names": list(sources), "seed": SEED, "n_samples": 40, **options}
    return first.mix(*others, proportions=proportions, **how)


def samples_of(batch: Any) -> list[tuple[int, int]]:
    numbers, positions = batch
    return list(zip(numbers.tolist(), positions.tolist(), strict=True))


class Ranks:
    """The loaders of all ranks, which read in step."""

    def __init__(self, loaders: Sequence[Loader]) -> None:
        self.loaders = loaders
        self._iterations = [iter(loader) for loader in loaders]

    def take(self, n_steps: int) -> list[tuple[int, int]]:
        """Read some steps; return their samples in the order of the epoch."""
        samples: list[tuple[int, int]] = []
        for _ in range(n_steps):
            for iteration in self._iterations:
                samples += samples_of(next(iteration))
        return samples


def passes_of(name: str, n_samples: int, n_wanted: int) -> list[int]:
    """The positions of a source in the order of an uninterrupted mix of this source alone."""
    if n_wanted == 0:
        return []
    alone = mix({name: source(name, n_samples)}, [1], n_samples=n_wanted)
    return [position for _, position in (tuple(map(int, sample)) for sample in alone)]


# ---------------------------------------------------------------------- the law


@dataclass
class Stage:
    """A mix, and how it is read."""

    proportions: dict[str, int]
    n_steps: int
    world: int
    batch_size: int
    is_killed: bool


@st.composite
def stages(draw: st.DrawFn, lengths: dict[str, int]) -> Stage:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    proportions = {name: draw(st.integers(0, 5)) if lengths[name] else 0 for name in names}
    if not any(proportions.values()):
        proportions["a"] = 1
    return Stage(
        proportions,
        n_steps=draw(st.integers(0, 6)),
        world=draw(st.integers(1, 4)),
        batch_size=draw(st.integers(1, 4)),
        is_killed=draw(st.booleans()),
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[dict[str, int], list[Stage]]:
    lengths = {name: draw(st.integers(0, 30)) for name in NAMES}
    lengths["a"] = max(1, lengths["a"])
    return lengths, draw(st.lists(stages(lengths), min_size=2, max_size=5))


def read_run(lengths: dict[str, int], run: list[Stage], kind: WorkerKind) -> list[list[Any]]:
    """Read the stages one after the other, each with its mix; return the samples of each."""

    def make_mix(stage: Stage) -> Any:
        sources = {name: source(name, lengths[name]) for name in stage.proportions}
        return mix(sources, stage.proportions, n_samples=200)

    def make_loaders(stage: Stage) -> list[Loader]:
        return [
            Loader(make_mix(stage), stage.batch_size, shard=(rank, stage.world), worker_kind=kind)
            for rank in range(stage.world)
        ]

    def resume(stage: Stage, state: Any) -> Ranks:
        loaders = make_loaders(stage)
        for loader in loaders:
            loader.load_state_dict(json.loads(json.dumps(state)))
        return Ranks(loaders)

    samples_of_stages = []
    ranks = Ranks(make_loaders(run[0]))
    for stage, next_stage in zip(run, [*run[1:], None], strict=True):
        n_steps_before_kill = stage.n_steps // 2
        samples = ranks.take(n_steps_before_kill)
        if stage.is_killed:
            ranks = resume(stage, ranks.loaders[-1].state_dict())
        samples += ranks.take(stage.n_steps - n_steps_before_kill)
        samples_of_stages.append(samples)
        if next_stage is not None:
            # The ranks change the mix together; then other ranks go on.
            changed = [loader.continue_with(make_mix(next_stage)) for loader in ranks.loaders]
            ranks = resume(next_stage, changed[0].state_dict())
    return samples_of_stages


@pytest.mark.parametrize(
    ("kind", "n_examples"), [("inline", sized(60, 600)), ("threads", sized(15, 150))]
)
def test_each_source_goes_on_whatever_the_mixes_and_ranks(
    kind: WorkerKind, n_examples: int
) -> None:
    @settings(max_examples=n_examples)
    @given(runs())
    def law(case: tuple[dict[str, int], list[Stage]]) -> None:
        lengths, run = case

        samples_of_stages = read_run(lengths, run, kind)

        read = [sample for samples in samples_of_stages for sample in samples]
        for number, name in enumerate(NAMES):
            positions = [position for source_number, position in read if source_number == number]
            assert positions == passes_of(name, lengths[name], len(positions))
            for start in range(0, len(positions), max(1, lengths[name])):
                in_pass = positions[start : start + lengths[name]]
                assert len(set(in_pass)) == len(in_pass)
        for stage, samples in zip(run, samples_of_stages, strict=True):
            check_proportions(stage, samples)

    law()


def check_proportions(stage: Stage, samples: list[tuple[int, int]]) -> None:
    """At every position the counts differ from the proportions by less than one block."""
    total = sum(stage.proportions.values())
    block_size = -(-total // min(number for number in stage.proportions.values() if number))
    for n_read in range(1, len(samples) + 1):
        for name, proportion in stage.proportions.items():
            count = sum(1 for number, _ in samples[:n_read] if NAMES[number] == name)
            assert abs(count - n_read * proportion / total) <= block_size


# ---------------------------------------------------------------------- the new loader


def two_sources(n_a: int = 30, n_b: int = 30) -> dict[str, DatasetIteratorIF]:
    return {"a": source("a", n_a), "b": source("b", n_b)}


def read_steps(loader: Loader, n_steps: int) -> list[tuple[int, int]]:
    return Ranks([loader]).take(n_steps)


def positions_of(number: int, samples: list[tuple[int, int]]) -> list[int]:
    return [position for source_number, position in samples if source_number == number]


def test_the_iteration_before_ends_and_other_arguments_stay() -> None:
    loader = Loader(mix(two_sources(), [1, 1]), 4, seed=3, epochs=2, drop_last=True, workers=0)
    batches = iter(loader)
    next(batches)

    continued = loader.continue_with(mix(two_sources(), [1, 3], n_samples=22))

    with pytest.raises(RuntimeError, match="this iteration of a loader has ended"):
        next(batches)
    assert len(continued) == 5 + 5  # drop_last, and two epochs
    assert continued.state_dict()["seed"] == 3
    assert continued.n_batches_left == 10


def as_sum(batch: Any) -> int:
    return int(batch[1].sum())


def test_conversion_and_functions_stay() -> None:
    import torch

    loader = Loader(mix(two_sources(), [1, 1]), 4, collate=list, workers=0)
    converted = Loader(mix(two_sources(), [1, 1]), 4, workers=0).torch()

    assert isinstance(next(iter(loader.continue_with(mix(two_sources(), [1, 1])))), list)
    batch = next(iter(converted.continue_with(mix(two_sources(), [1, 1]))))
    assert isinstance(batch[0], torch.Tensor)


class NamedLoader(Loader):
    """A loader of a program, with another constructor."""

    def __init__(self, name: str, iterator: Any) -> None:
        super().__init__(iterator, 4, workers=0)
        self.name = name


def test_a_loader_of_a_subclass_stays_one() -> None:
    loader = NamedLoader("train", mix(two_sources(), [1, 1]))
    read_steps(loader, 2)

    continued = loader.continue_with(mix(two_sources(), [1, 1]))

    assert type(continued) is NamedLoader
    assert (continued.name, continued.batch_size) == ("train", 4)


def test_a_returning_source_continues_where_it_was_left() -> None:
    sources = two_sources()
    loader = Loader(mix(sources, [1, 1]), 4, workers=0)
    read = read_steps(loader, 3)
    loader = loader.continue_with(mix({"b": sources["b"]}, [1]))
    read += read_steps(loader, 2)
    state = json.loads(json.dumps(loader.state_dict()))

    resumed = Loader(mix({"b": sources["b"]}, [1]), 4, workers=0)
    resumed.load_state_dict(state)
    resumed = resumed.continue_with(mix(sources, [1, 1]))
    read += read_steps(resumed, 6)

    for number, name in enumerate("ab"):
        positions = positions_of(number, read)
        assert positions == passes_of(name, 30, len(positions))


def test_a_mix_may_change_twice_without_a_sample_between() -> None:
    sources = two_sources()
    loader = Loader(mix(sources, [1, 1]), 4, workers=0)
    read = read_steps(loader, 3)

    loader = loader.continue_with(mix({"b": sources["b"]}, [1]))
    loader = loader.continue_with(mix(sources, [1, 1]))
    read += read_steps(loader, 3)

    assert positions_of(0, read) == passes_of("a", 30, len(positions_of(0, read)))


def test_layers_below_and_above_the_mix_are_made_again() -> None:
    def stack_of(proportions: list[int]) -> Any:
        sources = {name: each.shuffle(seed=2) for name, each in two_sources().items()}
        return mix(sources, proportions, n_samples=20).map(list).cache()

    epoch_0 = Loader(stack_of([1, 1]), 4, workers=0, epochs=2)
    list(epoch_0)
    batches = iter(epoch_0)
    samples = samples_of(next(batches)) + samples_of(next(batches))
    continued = epoch_0.continue_with(stack_of([1, 3]))
    samples += read_steps(continued, 5)

    for number, name in enumerate("ab"):
        positions = positions_of(number, samples)
        alone = mix({name: two_sources()[name].shuffle(seed=2)}, [1], n_samples=len(positions))
        assert positions == [int(position) for _, position in alone.at_epoch(2)]


def test_sources_with_meta_go_on() -> None:
    def informed_mix() -> Any:
        sources = two_sources()
        return mix(
            {name: InformedDatasetIterator(sources[name], DatasetMeta()) for name in sources},
            [1, 1],
        )

    loader = Loader(informed_mix(), 4, workers=0)
    read = read_steps(loader, 3)
    read += read_steps(loader.continue_with(informed_mix()), 3)

    for number, name in enumerate("ab"):
        positions = positions_of(number, read)
        assert positions == passes_of(name, 30, len(positions))


def test_the_next_epoch_begins_anew() -> None:
    new_mix = mix(two_sources(), [1, 3], n_samples=16)
    loader = Loader(mix(two_sources(), [1, 1]), 4, epochs=2, workers=0)
    read_steps(loader, 3)
    continued = loader.continue_with(new_mix)
    assert "cursors" in continued.state_dict()

    batches = iter(continued)
    for _ in range(4):
        next(batches)
    state = continued.state_dict()
    rest = [sample for batch in batches for sample in samples_of(batch)]

    assert (state["epoch"], state["position"]) == (1, 0)
    assert "cursors" not in state
    assert rest == [tuple(map(int, sample)) for sample in new_mix.at_epoch(1)]


def test_between_epochs_the_new_mix_begins_an_epoch() -> None:
    new_mix = mix(two_sources(), [1, 3])
    loader = Loader(mix(two_sources(), [1, 1]), 4, workers=0)
    list(loader)

    continued = loader.continue_with(new_mix)

    assert "cursors" not in continued.state_dict()
    assert continued.epoch == 1
    assert read_steps(continued, 1) == [
        tuple(map(int, sample)) for sample in new_mix.at_epoch(1)[:4]
    ]


def test_a_mix_without_length_ends_with_a_pass() -> None:
    loader = Loader(mix(two_sources(10, 30), [1, 1]), 4, workers=0)
    read = read_steps(loader, 3)  # 6 of each

    continued = loader.continue_with(mix(two_sources(10, 30), [1, 1], n_samples=None))
    n_batches = len(continued)
    read += [sample for batch in continued for sample in samples_of(batch)]

    assert n_batches == -(-(len(read) - 12) // 4)
    assert sorted(positions_of(0, read)) == list(range(10))


def drawn(batch: Any, rng: np.random.Generator) -> float:
    return rng.random()


def test_the_transform_draws_other_numbers_after_the_change() -> None:
    loader = Loader(mix(two_sources(), [1, 1]), 4, transform=drawn, workers=0)
    before = [draw for draw, _ in zip(loader, range(3), strict=False)]

    continued = loader.continue_with(mix(two_sources(), [1, 1]))
    after = [draw for draw, _ in zip(continued, range(3), strict=False)]

    assert len({*before, *after}) == 6


def test_persistent_processes_load_the_state_of_a_mix() -> None:
    old_mix, new_mix = mix(two_sources(), [1, 1]), mix(two_sources(), [1, 3])
    loader = Loader(old_mix, 4, workers=0)
    read_steps(loader, 3)
    continued = loader.continue_with(new_mix)
    state = continued.state_dict()
    expected = read_steps(continued, 5)

    with Loader(new_mix, 4, worker_kind="processes", workers=2) as processes:
        anew = read_steps(processes, 5)
        processes.load_state_dict(state)
        resumed = read_steps(processes, 5)

    assert resumed == expected
    assert anew == [tuple(map(int, sample)) for sample in new_mix[:20]]


# ---------------------------------------------------------------------- the state


def changed_loader() -> Loader:
    loader = Loader(mix(two_sources(), [1, 1]), 4, workers=0)
    read_steps(loader, 3)
    return loader.continue_with(mix(two_sources(), [1, 3]))


def test_a_state_names_the_samples_of_each_source() -> None:
    state = changed_loader().state_dict()

    cursors = state["cursors"]
    assert (cursors["epoch"], cursors["consumed"]) == (0, {"a": 6, "b": 6})
    assert cursors["fingerprints"]["a"] == source("a", 30).fingerprint()
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize(
    "cursors",
    [
        {"epoch": 0, "consumed": {"a": 6}, "fingerprints": {}},
        {"epoch": 0, "consumed": {"a": -6}, "fingerprints": {"a": "0"}},
        {"epoch": 0, "consumed": {"a": 2**70}, "fingerprints": {"a": "0"}},
        {"epoch": 0, "consumed": [6], "fingerprints": {"a": "0"}},
        {"epoch": 0},
        7,
    ],
)
def test_a_state_with_other_cursors_is_refused(cursors: Any) -> None:
    loader = changed_loader()
    state = replace(LoaderState.from_dict(loader.state_dict()), cursors=cursors).to_dict()

    with pytest.raises(LoaderStateError, match="changed or damaged"):
        loader.load_state_dict(state)


def test_a_state_whose_cursors_were_changed_is_refused() -> None:
    loader = changed_loader()
    state = json.loads(json.dumps(loader.state_dict()))
    state["cursors"]["consumed"]["a"] = 7

    with pytest.raises(LoaderStateError, match="changed or damaged"):
        loader.load_state_dict(state)


def test_the_mix_before_refuses_the_state_of_the_new_one() -> None:
    loader = Loader(mix(two_sources(), [1, 1]), 4, workers=0)

    with pytest.raises(LoaderStateError, match=r"to change a mix, see Loader\.continue_with"):
        loader.load_state_dict(changed_loader().state_dict())


def test_an_older_state_takes_a_loader_back_before_the_change() -> None:
    new_mix = mix(two_sources(), [1, 3])
    continued = changed_loader()

    continued.load_state_dict(Loader(new_mix, 4, workers=0).state_dict())

    assert read_steps(continued, 2) == [tuple(map(int, sample)) for sample in new_mix[:8]]


# ---------------------------------------------------------------------- refusals


def refused(loader: Loader, iterator: Any, message: str) -> None:
    """The change fails and leaves the loader as it was."""
    state = loader.state_dict()

    with pytest.raises(ConfigError, match=message):
        loader.continue_with(iterator)

    assert loader.state_dict() == state


def test_stacks_without_such_a_mix_are_refused() -> None:
    mixed = mix(two_sources(), [1, 1])
    loader = Loader(mixed, 4, workers=0)
    unnamed = mix(two_sources(), [1, 1], names=None)

    refused(loader, source("a", 30), "has no mix below SequenceDatasetIterator")
    refused(loader, unnamed, r"pass names=\[")
    refused(Loader(unnamed, 4, workers=0), mixed, r"pass names=\[")
    for stack in (mixed.take(9), mixed.shuffle(seed=1), mixed.batch(2), mixed.in_memory()):
        refused(loader, stack, "is above the mix: .*shuffle or load each source, then mix")
        refused(Loader(stack, 4, workers=0), mixed, "is above the mix")
    refused(loader, mixed.combine(mixed), "has no mix below CombinedDatasetIterator")
    loaded = InformedDatasetIterator(mixed, DatasetMeta(), origin={"name": "digits"})
    refused(loader, loaded, "has no mix below InformedDatasetIterator")


def test_a_loader_that_shuffles_is_refused() -> None:
    mixed = mix(two_sources(), [1, 1])

    for order in (True, BlockShuffled(block_lengths=10, window=2)):
        loader = Loader(mixed, 4, shuffle=order, workers=0)
        refused(loader, mixed, "A mix is shuffled already: pass shuffle=False")


def cost_of(sample: Any) -> int:
    return 10


def test_loaders_that_read_other_samples_first_are_refused() -> None:
    mixed = mix(two_sources(), [1, 1])

    budgeted = Loader(mixed, budget=40, cost=cost_of, workers=0)
    refused(budgeted, mixed, "shuffles or has a budget= cannot continue")
    refused(Loader(mixed, 4, redraw=False, workers=0), mixed, "leave redraw= out")


def test_mixes_of_other_seeds_or_sources_are_refused() -> None:
    loader = Loader(mix(two_sources(), [1, 1]), 4, workers=0)
    loader.load_state_dict(changed_state(loader))

    refused(loader, mix(two_sources(), [1, 1], seed=6), "only with the same seed and epoch")
    refused(loader, mix(two_sources(29), [1, 1]), "the source 'a' has other samples than before")
    refused(loader, mix(two_sources(), [1, 1], consumed={"a": 3}), "leave it out")


def changed_state(loader: Loader) -> dict[str, Any]:
    """The state after three steps."""
    return replace(LoaderState.from_dict(loader.state_dict()), position=12).to_dict()


def test_a_source_that_returns_with_other_samples_is_refused() -> None:
    sources = two_sources()
    loader = Loader(mix(sources, [1, 1]), 4, workers=0)
    read_steps(loader, 3)
    loader = loader.continue_with(mix({"b": sources["b"]}, [1]))
    state = loader.state_dict()

    resumed = Loader(mix({"b": sources["b"]}, [1]), 4, workers=0)
    resumed.load_state_dict(state)

    refused(resumed, mix(two_sources(31), [1, 1]), "the source 'a' has other samples")


def test_a_mix_that_has_no_sample_left_is_refused() -> None:
    loader = Loader(mix(two_sources(6), [1, 1]), 4, workers=0)
    loader.load_state_dict(changed_state(loader))
    new_mix = mix(two_sources(6), [1, 1], n_samples=None)

    refused(loader, new_mix, r"the mixes before it had all of 'a'; pass n_samples=")


def test_ranks_in_different_epochs_are_refused() -> None:
    mixed = mix(two_sources(), [1, 1], n_samples=5)
    loader = Loader(mixed, 1, epochs=3, shard=(0, 2), uneven="keep", workers=0)
    batches = iter(loader)
    for _ in range(5):
        next(batches)

    with pytest.raises(ConfigError, match="the ranks of this loader are in different epochs"):
        loader.continue_with(mixed)
    next(batches)


# ---------------------------------------------------------------------- damaged samples, the trace


def test_known_damage_of_a_source_stays_known_at_another_place(tmp_path: Path) -> None:
    log = tmp_path / "damaged.jsonl"
    damaged = DamagedNumbers(10, [1, 5])
    other = SequenceDatasetIterator([np.arange(100, 130)])
    first_mix = mix({"other": other, "damaged": damaged}, [1, 1], n_samples=40)
    loader = Loader(first_mix, 4, on_error="skip", error_log=log, workers=0)
    batches = iter(loader)
    for _ in range(5):  # a whole pass of the damaged source
        next(batches)
    assert [sample.position for sample in loader.damaged_samples()] in ([31, 35], [35, 31])

    more = SequenceDatasetIterator([np.arange(200, 207)])
    sources: dict[str, DatasetIteratorIF] = {"more": more, "damaged": damaged, "other": other}
    continued = loader.continue_with(mix(sources, [1, 3, 1]))
    state = continued.state_dict()
    numbers = [number for batch in continued for number in batch[0].tolist()]

    assert sorted(state["damaged"]["DatasetFileCorruptError"]) == [8, 12]
    assert {1, 5}.isdisjoint(numbers)
    assert continued.stats().n_skipped > 0
    assert len(log.read_text(encoding="utf-8").splitlines()) == 2  # none is met again


def test_damage_of_sources_that_are_left_out_is_forgotten() -> None:
    sources: dict[str, DatasetIteratorIF] = {
        "a": DamagedNumbers(10, [1]),
        "b": DamagedNumbers(10, [2]),
    }
    loader = Loader(mix(sources, [1, 1]), 4, on_error="skip", workers=0)
    list(loader)

    continued = loader.continue_with(mix({"b": sources["b"]}, [1]))

    assert [sample.position for sample in continued.damaged_samples()] == [2]


def test_one_trace_shows_both_loaders(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    loader = Loader(mix(two_sources(), [1, 1]), 4, trace=path, workers=0)
    read_steps(loader, 1)
    first = path.read_text(encoding="utf-8")

    list(loader.continue_with(mix(two_sources(), [1, 1])))

    assert path.read_text(encoding="utf-8").startswith(first.rstrip())


def test_a_loader_that_continues_pickles_with_its_cursors() -> None:
    continued = changed_loader()
    expected = read_steps(pickle.loads(pickle.dumps(continued)), 3)

    assert expected == read_steps(continued, 3)
    assert copy.copy(continued).state_dict() == continued.state_dict()


def test_samples_of_a_step_are_of_the_continuing_mix() -> None:
    continued = changed_loader()
    batches = iter(continued)
    next(batches)
    next(batches)
    read = samples_of(next(batches))
    stack = MixInStack.find(mix(two_sources(), [1, 3])).with_consumed({"a": 6, "b": 6})

    for step in (continued.samples_of(2), continued.samples_of(-1, state=continued.state_dict())):
        assert [tuple(map(int, stack[int(index)])) for index in step.indices] == read
        positions = [sample.origins[0].position for sample in step]
        assert positions == [position for _, position in read]


def test_samples_before_the_change_are_asked_of_the_loader_before() -> None:
    loader = Loader(mix(two_sources(), [1, 1]), 4, epochs=None, workers=0)
    read_steps(loader, 12)  # two of epoch 1
    continued = loader.continue_with(mix(two_sources(), [1, 3]))

    assert len(continued.samples_of(0, epoch=1)) == 4
    with pytest.raises(ConfigError, match="epoch 0 had samples of the mix before"):
        continued.samples_of(3, epoch=0)


def test_no_argument_is_forgotten() -> None:
    """A loader with a budget does not continue; the shard is handed on as it is known."""
    parameters = {*inspect.signature(Loader).parameters}

    kept = Loader(mix(two_sources(), [1, 1]), 4)._arguments

    assert {*kept} == parameters - {"iterator", "shard", "budget", "cost"}
