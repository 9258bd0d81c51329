"""Laws of the plan: which positions of an epoch are in which batch of which rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import ConfigError
from data_stack.loader import Plan, Shuffled
from data_stack.loader import plan as plan_module
from data_stack.loader import ranks as ranks_module
from data_stack.loader.plan import Uneven

sizes = st.integers(0, 120)
batch_sizes = st.integers(1, 17)
worlds = st.integers(1, 7)


def ranks(
    n_samples: int, batch_size: int, world: int, drop_last: bool = False, uneven: Uneven = "pad"
) -> list[Plan]:
    """The plan of each rank."""
    return [
        Plan(n_samples, batch_size, rank=rank, world=world, drop_last=drop_last, uneven=uneven)
        for rank in range(world)
    ]


def batches(plan: Plan, position: int = 0) -> list[list[int]]:
    """The positions of each of a rank's batches."""
    return [
        plan.positions([plan.part(step, position)]).tolist()
        for step in range(plan.n_steps(position))
    ]


@given(
    sizes, batch_sizes, worlds, st.booleans(), st.sampled_from(["pad", "drop", "keep"]), st.data()
)
def test_parts_of_steps_are_those_of_each_step(
    n: int, batch: int, world: int, drop_last: bool, uneven: Uneven, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, n))
    for plan in ranks(n, batch, world, drop_last, uneven):
        n_steps = plan.n_steps(position)
        if n_steps == 0:
            continue
        first_step = data.draw(st.integers(0, n_steps - 1))
        steps = range(first_step, data.draw(st.integers(first_step + 1, n_steps)))

        assert plan.parts(steps, position) == [plan.part(step, position) for step in steps]


@given(sizes, batch_sizes, worlds, st.data())
def test_padding_repeats_few_samples_from_the_start_of_the_epoch(
    n: int, batch: int, world: int, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, n))
    n_missing = -(n - position) % world

    steps = zip(
        *[batches(plan, position) for plan in ranks(n, batch, world, uneven="pad")], strict=True
    )
    positions = [place for step in steps for of_rank in step for place in of_rank]

    assert (
        positions
        == [*range(position, n), *[place % n for place in range(n_missing) if n]][: len(positions)]
    )
    assert len(positions) == n - position + n_missing


@given(
    sizes, batch_sizes, worlds, st.booleans(), st.sampled_from(["pad", "drop", "keep"]), st.data()
)
def test_all_ranks_have_equally_many_steps_unless_samples_are_kept(
    n: int, batch: int, world: int, drop_last: bool, uneven: Uneven, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, n))
    plans = ranks(n, batch, world, drop_last, uneven)

    n_steps = [plan.n_steps(position) for plan in plans]
    n_samples = [plan.n_batch_samples(position) for plan in plans]

    allowed = 1 if uneven == "keep" and not drop_last else 0
    assert max(n_steps) - min(n_steps) <= allowed
    assert max(n_samples) - min(n_samples) <= allowed
    assert n_steps == sorted(n_steps, reverse=True)  # rank 0 has the most
    assert n_samples == [sum(map(len, batches(plan, position))) for plan in plans]
    assert all(each for plan in plans for each in batches(plan, position))  # none is empty
    assert [plans[0].n_steps(position, rank=rank) for rank in range(world)] == n_steps


def test_fewer_ranks_continue_after_a_thousand_in_a_billion_samples() -> None:
    n, batch, step = 10**9 + 7, 256, 1234
    before = [Plan(n, batch, rank=rank, world=1000) for rank in range(1000)]
    position = before[0].position_after(step)
    after = [Plan(n, batch, rank=rank, world=768) for rank in range(768)]

    shared = np.concatenate([plan.positions([plan.part(step)]) for plan in before])
    continued = np.concatenate([plan.positions([plan.part(0, position)]) for plan in after])

    start = step * 256_000
    assert np.array_equal(
        np.concatenate([shared, continued]), np.arange(start, start + 256_000 + 768 * 256)
    )
    samples = Shuffled().indices(shared, n, 7, 0)
    assert len(np.unique(samples)) == len(samples)
    assert {plan.n_steps() for plan in before} == {3907}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"n_samples": -1}, "n_samples"),
        ({"rank": 2, "world": 2}, "in a world of 2 must be at most 1"),
        ({"rank": -1}, "in a world of 1 must be at least 0"),
        ({"uneven": "repeat"}, "'pad', 'drop' or 'keep'"),
    ],
)
def test_a_plan_that_cannot_be_says_why(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Plan(**{"n_samples": 10, "batch_size": 2, **given})


@pytest.mark.parametrize("name", ["launcher_shard", "warn_without_shard"])
def test_functions_that_moved_to_ranks_are_found_with_a_warning(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"use data_stack.loader.ranks.{name}"):
        moved = getattr(plan_module, name)

    assert moved is getattr(ranks_module, name)


def test_other_names_of_the_plan_module_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'group_shard'"):
        plan_module.group_shard  # noqa: B018
