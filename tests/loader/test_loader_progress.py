"""The place of a loader's next batch, and where ranks in different places continue from a state."""

from __future__ import annotations

import pytest

from data_stack.exception import LoaderStateError
from data_stack.loader import LoaderState, Plan
from data_stack.loader.progress import Progress
from data_stack.loader.state import PlaceInState, find_place


def test_an_iteration_that_stopped_inside_skips_to_the_next_epoch() -> None:
    progress = Progress()

    progress.receive(epoch=2, position=8, end_epoch=5)

    assert progress.place == (2, 8)
    assert progress.start_of_next() == (3, 0, 3)


def test_an_iteration_that_stopped_between_epochs_skips_none() -> None:
    progress = Progress()

    progress.receive(epoch=3, position=0, end_epoch=5)

    assert progress.start_of_next() == (3, 0, 3)


def test_the_next_iteration_begins_at_the_set_place() -> None:
    progress = Progress()
    progress.receive(epoch=2, position=8, end_epoch=5)

    progress.go_to(epoch=4, position=16, first_epoch=3)

    assert progress.start_of_next() == (4, 16, 3)
    assert (progress.origin, progress.n_batches) == ((4, 16), 0)


def test_going_to_the_present_place_keeps_the_origin() -> None:
    progress = Progress()
    progress.receive(epoch=0, position=8, end_epoch=5)

    progress.go_to(epoch=0, position=8, first_epoch=0)

    assert (progress.origin, progress.n_batches) == ((0, 0), 1)


def test_all_ranks_meet_at_the_end_of_an_iteration() -> None:
    progress = Progress()
    progress.receive(epoch=0, position=8, end_epoch=2)

    progress.receive(epoch=2, position=0, end_epoch=2)

    assert (progress.origin, progress.n_batches) == ((2, 0), 0)
    assert progress.start_of_next() == (2, 0, 2)


def test_a_rank_without_further_steps_skips_to_the_end() -> None:
    progress = Progress()
    progress.receive(epoch=1, position=8, end_epoch=2)

    progress.finish(end_epoch=2)

    assert (progress.origin, progress.n_batches) == ((2, 0), 0)
    assert progress.start_of_next() == (2, 0, 2)


def state_of_three_batches(differ: int) -> LoaderState:
    """Two ranks share 5 samples by batches of 1: rank 0 has 3 steps in an epoch, rank 1 has 2."""
    ranks = {
        "origin_epoch": 0,
        "origin_position": 0,
        "end_epoch": 4,
        "n_batches": 3,
        "batch_size": 1,
        "world": 2,
        "differ": differ,
    }
    return LoaderState(0, 1, 0, 0, 5, {"order": "in order"}, "fingerprint", ranks)


def plan_of_rank(rank: int, *, batch_size: int = 1, world: int = 2) -> Plan:
    return Plan(5, batch_size, rank=rank, world=world, uneven="keep")


@pytest.mark.parametrize(("rank", "place"), [(0, (1, 0)), (1, (1, 2))])
def test_each_rank_finds_its_own_place_in_a_state(rank: int, place: tuple[int, int]) -> None:
    plan = plan_of_rank(rank)

    found = find_place(state_of_three_batches(differ=1), plan, plan_of=lambda epoch: plan)

    assert (found.epoch, found.position) == place
    assert found.last_epoch == 1
    assert (found.origin, found.n_batches) == ((0, 0), 3)


def test_ranks_in_one_place_continue_where_the_state_says() -> None:
    plan = plan_of_rank(1, world=7, batch_size=3)

    found = find_place(state_of_three_batches(differ=0), plan, plan_of=lambda epoch: plan)

    assert found == PlaceInState(1, 0, last_epoch=1, origin=(1, 0), n_batches=0)


@pytest.mark.parametrize("changes", [{"world": 3}, {"batch_size": 2}])
def test_ranks_in_different_places_need_the_same_ranks_again(changes: dict[str, int]) -> None:
    plan = plan_of_rank(0, **changes)

    with pytest.raises(LoaderStateError, match="its 2 ranks were in different epochs"):
        find_place(state_of_three_batches(differ=1), plan, plan_of=lambda epoch: plan)
