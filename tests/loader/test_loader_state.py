"""Where a loader is: saved at any moment, and gone on from on any number of ranks and workers, or
refused.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_batches import numbers_given, numbers_to
from torch_or_stand_in import torch

from data_stack.exception import LoaderStateError
from data_stack.loader import BlockShuffled, Lanes, Loader, LoaderState


def loader_of(iterator: Any, batch_size: int = 8, **options: Any) -> Loader:
    return Loader(
        iterator, batch_size, **{"shuffle": True, "seed": 7, "worker_kind": "inline", **options}
    )


# ------------------------------------------------------------------------------------------- resume


def test_setting_the_epoch_of_a_loaded_state_changes_nothing() -> None:
    loader = loader_of(numbers_to(30))
    whole = [numbers_given(loader), numbers_given(loader)]
    state = moved(loader.state_dict(), epoch=1, position=16, first_epoch=1)
    resumed = loader_of(numbers_to(30))
    resumed.load_state_dict(state)

    found = []
    for epoch in range(resumed.epoch, 3):  # as loops do for torch's DistributedSampler
        resumed.set_epoch(epoch)
        found += numbers_given(resumed)

    assert found[:2] == whole[1][2:]
    assert len(found) == 2 + 4


def test_continuing_in_a_billion_samples_needs_no_list_of_them() -> None:
    iterator = numbers_to(1000).repeat(10**6)
    loader = loader_of(iterator, 256)
    state = moved(loader.state_dict(), position=256 * 10**6)

    loader.load_state_dict(state)
    batch = numbers_given(loader, 1)[0]

    expected = iterator.shuffle(7, epoch=0)
    assert batch == [expected[256 * 10**6 + place][0] for place in range(256)]


# ------------------------------------------------------------------------------------------ content


@pytest.mark.parametrize(("n_received", "epoch", "position"), [(2, 0, 32), (4, 1, 0), (5, 1, 16)])
def test_a_state_is_plain_json_data_even_of_numpys_arguments(
    n_received: int, epoch: int, position: int
) -> None:
    loader = loader_of(
        numbers_to(64),
        np.int64(8),
        seed=np.uint8(3),
        epochs=np.int16(2),
        shard=np.array([0, 2]),
        shuffle=BlockShuffled(block_lengths=np.array([32, 32]), window=np.int8(1)),
    )
    numbers_given(loader, n_received)

    state = loader.state_dict()

    assert json.loads(json.dumps(state)) == state
    names = ("seed", "epoch", "position", "first_epoch", "n_samples")
    assert tuple(state[name] for name in names) == (3, epoch, position, 0, 64)


# ----------------------------------------------------------------------------------------- refusals


def moved(state: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A state that was changed on purpose, and sealed again."""
    return replace(LoaderState.from_dict(state), **changes).to_dict()


def refused(loader: Loader, state: Any, said: str) -> None:
    """Loading the state fails and leaves the loader as it was."""
    before = loader.state_dict()

    with pytest.raises(LoaderStateError, match=said):
        loader.load_state_dict(state)

    assert loader.state_dict() == before


@pytest.mark.parametrize(
    "state",
    [{}, {"data_stack_loader": 1, "seed": 1, "epoch": 0, "position": 8}, {"data_stack_loader": 2}],
)
def test_what_is_no_state_is_refused(state: Any) -> None:
    refused(loader_of(numbers_to(30)), state, r"expected what state_dict\(\) of a loader returns")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 8),
        ("seed", True),
        ("position", None),
        ("position", np.array([1, 2])),
        ("digest", None),
        ("order", {"order": "in order"}),
        ("fingerprint", "0" * 64),
    ],
)
def test_a_state_of_which_a_field_was_changed_is_refused(key: str, value: Any) -> None:
    loader = loader_of(numbers_to(30))
    numbers_given(loader)
    numbers_given(loader, 1)
    state = loader.state_dict()
    assert str(state[key]) != str(value)

    refused(loader, {**state, key: value}, "changed or damaged")


def test_a_state_of_a_newer_version_is_refused() -> None:
    loader = loader_of(numbers_to(30))
    state = {**loader.state_dict(), "data_stack_loader": 3}

    refused(loader, state, r"newer|3")
    refused(loader, state, r"expected what state_dict\(\) of a loader returns.*, which ")


def test_a_state_after_the_last_batch_begins_an_epoch() -> None:
    loader = loader_of(numbers_to(30))
    numbers_given(loader, 4)

    state = loader.state_dict()

    assert (state["epoch"], state["position"]) == (1, 0)


def test_a_state_of_other_lanes_is_refused() -> None:
    def in_lanes(lanes: int, batch_size: int = 8) -> Loader:
        order = Lanes(BlockShuffled(block_lengths=10, window=3), lanes=lanes, batch_size=batch_size)
        return loader_of(numbers_to(80), shuffle=order)

    state = in_lanes(2).state_dict()

    in_lanes(2).load_state_dict(state)
    refused(in_lanes(4), state, "same shuffle=")
    refused(in_lanes(2, batch_size=4), state, "same shuffle=")


def test_a_state_survives_torch_json_numpy_and_further_fields() -> None:
    loader = loader_of(numbers_to(30))
    numbers_given(loader, 2)
    file = io.BytesIO()
    torch.save({"loader": loader.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)["loader"]

    for as_number in (int, np.int64, np.array):
        changed = {
            key: as_number(value) if type(value) is int else value
            for key, value in json.loads(json.dumps(state)).items()
        }
        other = loader_of(numbers_to(30))
        other.load_state_dict({**changed, "data_stack_loader": 2, "written_by": "my framework"})

        assert other.state_dict() == loader.state_dict()


def test_a_state_of_a_dataset_that_has_grown_is_refused() -> None:
    loader = loader_of(numbers_to(30))

    refused(loader, moved(loader.state_dict(), n_samples=40), "had 40 samples .* 30 now")
    refused(loader, loader_of(numbers_to(31)).state_dict(), "another dataset")


def test_a_state_of_another_order_is_refused() -> None:
    iterator = numbers_to(30).shuffle(seed=1)

    for shuffle in (False, BlockShuffled(block_lengths=10, window=3)):
        refused(
            loader_of(numbers_to(30)),
            loader_of(numbers_to(30), shuffle=shuffle).state_dict(),
            "same shuffle=",
        )
    refused(loader_of(iterator, redraw=False), loader_of(iterator).state_dict(), "redraw")
    refused(loader_of(iterator), loader_of(iterator, redraw=False).state_dict(), "redraw")


# ---------------------------------------------------------------------- ranks in different epochs


def ranks_of(n: int, batch_size: int, world: int, epochs: int | None = 3) -> list[Loader]:
    return [
        loader_of(
            numbers_to(n), batch_size, epochs=epochs, shard=(rank, world), uneven="keep", workers=0
        )
        for rank in range(world)
    ]


@settings(max_examples=150)
@given(st.integers(1, 20), st.integers(1, 4), st.integers(2, 4), st.data(), st.integers(1, 4))
def test_the_state_of_any_rank_is_enough_for_all(
    n: int, batch_size: int, world: int, data: st.DataObject, epochs: int
) -> None:
    whole = [numbers_given(loader) for loader in ranks_of(n, batch_size, world, epochs)]
    received: list[list[list[int]]] = [[] for _ in range(world)]
    loaders = ranks_of(n, batch_size, world, epochs)

    for _ in range(2):  # interrupted twice, and saved by other ranks
        n_steps = data.draw(st.integers(0, 8))
        if min(map(len, whole)) <= len(received[0]) + n_steps:
            n_steps = 0  # all ranks go on to the same step
        if n_steps:
            for rank, loader in enumerate(loaders):
                received[rank] += numbers_given(loader, n_steps)
        saving = data.draw(st.integers(0, world - 1))
        state = json.loads(json.dumps(loaders[saving].state_dict()))
        loaders = ranks_of(n, batch_size, world, epochs)
        for loader in loaders:
            loader.load_state_dict(state)
    for rank, loader in enumerate(loaders):
        received[rank] += numbers_given(loader)

    assert received == whole


def drifted_state() -> dict[str, Any]:
    loader = ranks_of(5, 1, 2)[0]
    numbers_given(loader, 5)
    return loader.state_dict()


@pytest.mark.parametrize(
    ("batch_size", "world", "uneven"), [(2, 2, "keep"), (1, 3, "keep"), (1, 2, "pad")]
)
def test_other_ranks_refuse_a_state_of_ranks_in_different_epochs(
    batch_size: int, world: int, uneven: str
) -> None:
    state = drifted_state()
    other = loader_of(numbers_to(5), batch_size, epochs=3, shard=(0, world), uneven=uneven)
    before = other.tell()

    with pytest.raises(
        LoaderStateError, match=r'Load it with uneven="keep", batch_size=1 and 2 ranks, not uneven='
    ):
        other.load_state_dict(state)

    assert other.tell() == before


def test_a_state_of_ranks_in_one_place_suits_any_ranks() -> None:
    one, other = ranks_of(5, 1, 2)
    first = numbers_given(one, 2) + numbers_given(other, 2)
    resumed = loader_of(numbers_to(5), 2, epochs=3, uneven="pad")

    resumed.load_state_dict(one.state_dict())

    assert resumed.tell() == (0, 4, 0)
    last = numbers_given(resumed, 1)
    assert sorted(np.concatenate([*first, *last]).tolist()) == list(range(5))


def test_ranks_that_stop_apart_begin_the_next_epoch_together() -> None:
    loaders = ranks_of(5, 1, 2)
    for loader in loaders:
        numbers_given(loader, 5)

    places = [loader.tell() for loader in loaders]

    assert places == [(3, 0, 3), (3, 0, 3)]


def test_a_rank_without_samples_has_a_state_when_endless() -> None:
    loader = ranks_of(1, 1, 2, None)[0]
    numbers_given(loader, 3)

    assert loader.state_dict()["ranks"]["differ"] == 1


def test_ranks_of_an_endless_run_end_with_the_same_epoch() -> None:
    loader = ranks_of(5, 1, 2, None)[0]
    numbers_given(loader, 11)
    state = loader.state_dict()

    ends = []
    for resumed in ranks_of(5, 1, 2, 2):
        resumed.load_state_dict(state)
        numbers_given(resumed)
        ends.append(resumed.tell())

    assert ends[0] == ends[1]
