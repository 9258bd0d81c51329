"""The laws of batches by budget: each sample once, no batch above the budget, equal steps, and
resuming anywhere changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import sized

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import BlockShuffled, Budget, InOrder, Loader, Order, Shuffled
from data_stack.loader.plan import Uneven

EXAMPLES = settings(max_examples=sized(60, 1000), suppress_health_check=list(HealthCheck))


@dataclass
class Case:
    """The arguments of a loader with a budget."""

    costs: list[int]
    max_cost: int
    padded: bool
    max_samples: int | None
    window: int
    group: int
    order: Order
    seed: int

    def loader(self, rank: int = 0, world: int = 1, **options: Any) -> Loader:
        budget = Budget(
            self.max_cost,
            1,
            padded=self.padded,
            max_samples=self.max_samples,
            window=self.window,
            group=self.group,
            too_long="alone",
        )
        columns = [np.arange(len(self.costs)), np.array(self.costs, np.int64)]
        samples = SequenceDatasetIterator(columns)
        chosen = {"seed": self.seed, "worker_kind": "inline", **options}
        return Loader(samples, budget=budget, shuffle=self.order, shard=(rank, world), **chosen)

    def cost_of(self, batch: list[int]) -> int:
        costs = [self.costs[sample] for sample in batch]
        return max(costs) * len(costs) if self.padded else sum(costs)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    unit = draw(st.sampled_from([1, 100, 2**20, 2**33 - 1]))
    return Case(
        costs=[unit * cost for cost in draw(st.lists(st.integers(0, 20), max_size=60))],
        max_cost=unit * draw(st.integers(1, 60)),
        padded=draw(st.booleans()),
        max_samples=draw(st.none() | st.integers(1, 6)),
        window=draw(st.integers(1, 70)),
        group=draw(st.integers(1, 5)),
        order=draw(
            st.sampled_from([InOrder(), Shuffled(), BlockShuffled(block_lengths=7, window=2)])
        ),
        seed=draw(st.integers(0, 3)),
    )


def samples_in(batches: Any) -> list[list[int]]:
    return [numbers.tolist() for numbers, _ in batches]


def expected_windows(case: Case, epoch: int) -> Iterator[list[list[int]]]:
    """The batches of each window, cut sample by sample; the order of sorted ones is not decided."""
    n_samples = len(case.costs)
    positions = np.arange(n_samples)
    order = case.order.indices(positions, n_samples, case.seed, epoch).tolist() if n_samples else []
    is_sorted = case.padded and not isinstance(case.order, InOrder)
    for start in range(0, n_samples, case.window):
        samples = order[start : start + case.window]
        if is_sorted:
            samples = sorted(samples, key=lambda sample: -case.costs[sample])
        batches: list[list[int]] = []
        for sample in samples:
            longer = [*batches[-1], sample] if batches else []
            has_room = case.max_samples is None or len(longer) <= case.max_samples
            if longer and has_room and case.cost_of(longer) <= case.max_cost:
                batches[-1] = longer
            else:
                batches.append([sample])
        yield batches


@EXAMPLES
@given(cases())
def test_batches_are_those_of_a_plain_loop(case: Case) -> None:
    loader = case.loader()
    is_sorted = case.padded and not isinstance(case.order, InOrder)

    for epoch in range(2):
        batches = samples_in(loader)

        start = 0
        for expected in expected_windows(case, epoch):
            found = batches[start : start + len(expected)]
            if is_sorted:
                assert sorted(found) == sorted(expected)
            else:
                assert found == expected
            start += len(expected)
        assert start == len(batches)


@EXAMPLES
@given(cases())
def test_no_batch_of_several_samples_exceeds_the_budget(case: Case) -> None:
    for batch in samples_in(case.loader()):
        assert len(batch) == 1 or case.cost_of(batch) <= case.max_cost
        assert case.max_samples is None or len(batch) <= case.max_samples


@EXAMPLES
@given(cases(), st.integers(1, 5), st.sampled_from(["pad", "drop", "keep"]), st.booleans())
def test_ranks_divide_the_batches_of_one_rank(
    case: Case, world: int, uneven: Uneven, drop_last: bool
) -> None:
    alone = samples_in(case.loader())
    options: dict[str, Any] = {"uneven": uneven, "drop_last": drop_last}
    loaders = [case.loader(rank, world, **options) for rank in range(world)]
    lengths = [len(loader) for loader in loaders]

    ranks = [samples_in(loader) for loader in loaders]

    assert [len(rank) for rank in ranks] == lengths
    n_uneven = len(alone) % world
    if uneven != "keep" or drop_last:
        assert len(set(lengths)) == 1
    in_turn = [rank[step] for step in range(max(lengths)) for rank in ranks if step < len(rank)]
    if n_uneven and (drop_last or uneven == "drop"):
        assert in_turn == alone[:-n_uneven]
    elif n_uneven and uneven == "pad":
        repeated = [alone[place % len(alone)] for place in range(world - n_uneven)]
        assert in_turn == alone + repeated
    else:
        assert in_turn == alone


@EXAMPLES
@given(
    cases(),
    st.integers(0, 1),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=4),
)
def test_killed_runs_continue_on_any_number_of_ranks(
    case: Case, epoch: int, runs: list[tuple[int, int]]
) -> None:
    alone = case.loader()
    alone.set_epoch(epoch)
    state = alone.state_dict()
    expected = samples_in(alone)

    received: list[list[int]] = []
    for world, n_steps in [*runs, (1, len(expected))]:
        if len(received) == len(expected):
            break
        # The state has the seed of the run.
        options: dict[str, Any] = {"uneven": "keep", "seed": 99}
        loaders = [case.loader(rank, world, **options) for rank in range(world)]
        for loader in loaders:
            loader.load_state_dict(json.loads(json.dumps(state)))
        ranks = [
            samples_in(batch for _, batch in zip(range(n_steps), loader, strict=False))
            for loader in loaders
        ]
        for step in range(n_steps):
            received += [rank[step] for rank in ranks if step < len(rank)]
        state = loaders[0].state_dict()

    assert received == expected
