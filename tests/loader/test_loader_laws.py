"""The law of the loader: for any stack, ranks and interruption each epoch is exact, and resuming
changes nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from layer_laws import Samples, exact
from sizes import sized

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import DatasetOutOfBoundsError
from data_stack.loader import BlockShuffled, InOrder, Loader, Order, Shuffled
from data_stack.loader.plan import Uneven
from data_stack.loader.workers.base import WorkerKind
from data_stack.values.stacking import stack_samples

KINDS: list[WorkerKind] = ["inline", "threads"]
EXAMPLES = {"inline": sized(20, 400), "threads": sized(8, 150)}


def columns_of(n: int) -> list[Any]:
    return [
        np.arange(n),
        np.arange(n * 3, dtype=np.float32).reshape(n, 3),
        [f"s{i}" for i in range(n)],
        [np.arange(i % 3) for i in range(n)],
    ]


def jittered(sample: Any, rng: np.random.Generator) -> Any:
    return (sample[0], sample[1] + rng.random(3), *sample[2:])


def doubled(batch: Any) -> Any:
    return (batch[0], batch[1] * 2, *batch[2:])


def is_not_divided_by_three(number: Any) -> bool:
    return bool(number % 3)


def changed(batch: Any, rng: np.random.Generator) -> Any:
    return (*batch, rng.random())


LAYERS: list[Callable[[DatasetIteratorIF], DatasetIteratorIF]] = [
    lambda it: it,
    lambda it: it.skip(1),
    lambda it: it.shuffle(seed=3),
    lambda it: it.map(jittered, seed=1),
    lambda it: it.map(doubled, batched=True),
    lambda it: it.filter(is_not_divided_by_three, column=0),
    lambda it: it.repeat(2),
    lambda it: it.mix(it.shuffle(seed=5), proportions=[0.6, 0.4], seed=2) if len(it) else it,
    lambda it: it.resample(len(it) + 3, seed=4) if len(it) else it,
    lambda it: it.shuffle(seed=8).take(5),
    lambda it: it.in_memory(),
]


@dataclass
class Case:
    """A loader's arguments."""

    stack: DatasetIteratorIF
    order: Order
    seed: int
    batch_size: int
    world: int
    uneven: Uneven
    drop_last: bool

    def loaders(self, kind: WorkerKind = "inline", **changes: Any) -> list[Loader]:
        """That of each rank."""
        batch_size, world = (
            changes.pop("batch_size", self.batch_size),
            changes.pop("world", self.world),
        )
        options = {"uneven": self.uneven, "drop_last": self.drop_last, "seed": self.seed, **changes}
        return [
            Loader(
                self.stack,
                batch_size,
                shuffle=self.order,
                shard=(rank, world),
                worker_kind=kind,
                **options,
            )
            for rank in range(world)
        ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    columns = columns_of(draw(st.integers(0, 40)))
    sources = [
        SequenceDatasetIterator(columns[:2]),
        SequenceDatasetIterator(columns),
        Samples(list(zip(*columns, strict=True))),
    ]
    stack: DatasetIteratorIF = draw(st.sampled_from(sources))
    for layer in draw(st.lists(st.sampled_from(LAYERS), max_size=3)):
        stack = layer(stack)
    try:
        for epoch in range(7):
            stack.at_epoch(epoch)
    except DatasetOutOfBoundsError:  # positions in what has fewer samples in another epoch
        reject()
    order = draw(st.sampled_from([InOrder(), Shuffled(), BlockShuffled(block_lengths=7, window=2)]))
    return Case(
        stack,
        order,
        draw(st.integers()),
        draw(st.integers(1, 12)),
        draw(st.integers(1, 4)),
        draw(st.sampled_from(["pad", "drop", "keep"])),
        draw(st.booleans()),
    )


def samples_of(batches: list[Any]) -> list[Any]:
    """The samples in batches, as texts."""
    return [repr(exact(list(sample))) for batch in batches for sample in zip(*batch, strict=True)]


def in_turn(ranks: list[list[Any]]) -> list[Any]:
    """Samples step by step, and in each step rank by rank."""
    longest = max(map(len, ranks))
    return [
        sample
        for step in range(longest)
        for rank in ranks
        if step < len(rank)
        for sample in samples_of([rank[step]])
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_has_each_sample_once_over_all_ranks(
    kind: WorkerKind,
) -> None:
    @settings(max_examples=EXAMPLES[kind], suppress_health_check=list(HealthCheck))
    @given(cases())
    def law(case: Case) -> None:
        loaders = case.loaders(kind)
        for epoch in range(2):
            stack = case.stack.at_epoch(epoch)
            expected = Counter(samples_of([stack_each(stack)]))

            ranks = [list(loader) for loader in loaders]
            found = Counter(sample for rank in ranks for sample in samples_of(rank))

            n_missing, n_more = (expected - found).total(), (found - expected).total()
            per_step = case.world * case.batch_size
            if case.drop_last:
                assert (n_missing, n_more) == (len(stack) % per_step, 0)
            else:
                assert n_missing == (len(stack) % case.world if case.uneven == "drop" else 0)
                assert n_more == (
                    -len(stack) % case.world if case.uneven == "pad" and len(stack) else 0
                )
            n_steps = [len(rank) for rank in ranks]
            assert [loader.epoch for loader in loaders] == [
                epoch + 1
            ] * case.world  # also of a rank without a batch
            assert max(n_steps) - min(n_steps) <= (case.uneven == "keep" and not case.drop_last)

    law()


def stack_each(stack: DatasetIteratorIF) -> Any:
    """All samples, each stacked by itself, so that none decides the dtype of another."""
    alone: list[Any] = [stack_samples([sample]) for sample in stack]
    return (
        tuple([batch[place][0] for batch in alone] for place in range(len(alone[0])))
        if alone
        else ()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_continues_elsewhere_with_the_same_batches(
    kind: WorkerKind,
) -> None:
    @settings(max_examples=EXAMPLES[kind], suppress_health_check=list(HealthCheck))
    @given(cases(), st.integers(1, 3), st.integers(0, 60))
    def law(case: Case, epochs: int, n_received: int) -> None:
        for uninterrupted, interrupted, resumed in zip(
            *[
                case.loaders(each, epochs=epochs, transform=changed)
                for each in ("inline", kind, kind)
            ],
            strict=True,
        ):
            first, second = [*uninterrupted], [*uninterrupted]
            received = [batch for _, batch in zip(range(n_received + 1), interrupted, strict=False)]
            state = json.loads(json.dumps(interrupted.state_dict()))

            resumed.load_state_dict(state)
            rest = [*resumed]

            # a rank that keeps one step less than others is in the middle of the epoch behind its
            # last batch of it, too
            is_within = len(received) < len(first) or state["position"] > 0
            assert exact(received + rest) == exact(first if is_within else first + second)

    law()


@settings(suppress_health_check=list(HealthCheck))
@given(cases(), st.integers(1, 12), st.integers(1, 5), st.integers(0, 8))
def test_another_world_and_batch_size_continue_in_the_same_order(
    case: Case, batch_size: int, world: int, n_steps: int
) -> None:
    case.drop_last, case.uneven = False, "keep"
    (alone,) = case.loaders(world=1)
    order = in_turn([list(alone)])
    before = case.loaders()
    first = [
        [batch for _, batch in zip(range(max(1, n_steps)), loader, strict=False)]
        for loader in before
    ]
    state = before[0].state_dict()
    after = case.loaders(batch_size=batch_size, world=world)
    for loader in after:
        loader.load_state_dict(state)

    rest = in_turn([list(loader) for loader in after])

    if state["epoch"] == 0:
        assert in_turn(first) + rest == order
    else:
        assert in_turn(first) == order


def test_worker_processes_continue_where_others_stopped() -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "epochs": 2, "transform": changed}
    jumbled = (
        SequenceDatasetIterator(columns_of(60)).shuffle(seed=3).map(jittered, seed=1)
    )  # anew in each epoch
    stack = jumbled.in_memory().filter(is_not_divided_by_three, column=0).repeat(2)
    whole = list(Loader(stack, 7, worker_kind="inline", **options))
    interrupted = Loader(stack, 7, worker_kind="threads", workers=3, **options)
    received = [batch for _, batch in zip(range(8), interrupted, strict=False)]

    with Loader(stack, 7, worker_kind="processes", workers=2, **options) as processes:
        all_of_them = list(processes)
        processes.load_state_dict(json.loads(json.dumps(interrupted.state_dict())))
        rest = [batch for _, batch in zip(range(6), processes, strict=False)]
    last = Loader(stack, 7, worker_kind="inline", **options)
    last.load_state_dict(processes.state_dict())

    assert exact(all_of_them) == exact(whole)
    assert exact(received + rest + list(last)) == exact(whole)
