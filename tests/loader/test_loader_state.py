"""Where a loader is: saved at any moment, and gone on from on any number of ranks and workers, or refused."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from loader_batches import numbers_given, numbers_to

from data_stack.exception import LoaderStateError
from data_stack.loader import BlockShuffled, Loader, LoaderState
from data_stack.loader.workers.automatic import WorkerKind

KINDS: list[WorkerKind] = ["inline", "threads", "processes"]


def loader_of(iterator: Any, batch_size: int = 8, **options: Any) -> Loader:
    return Loader(iterator, batch_size, **{"shuffle": True, "seed": 7, "worker_kind": "inline", **options})


def dealt(iterator: Any, state: dict[str, Any], world: int, batch_size: int, **options: Any) -> list[int]:
    """What all ranks of a world give from a state on, step by step and rank by rank."""
    each = []
    for rank in range(world):
        loader = loader_of(iterator, batch_size, shard=(rank, world), **options)
        loader.load_state_dict(state)
        each.append(numbers_given(loader))
    assert len({len(batches) for batches in each}) == 1
    return [number for step in zip(*each, strict=True) for batch in step for number in batch]


# -------------------------------------------------------------------------------------------------------------------- resume


@pytest.mark.parametrize("n_received", [1, 12, 13])
def test_a_fresh_loader_goes_on_with_the_very_next_batch(n_received: int) -> None:
    iterator = numbers_to(100)
    uninterrupted = loader_of(iterator)
    epochs = [numbers_given(uninterrupted) for _ in range(3)]
    interrupted = loader_of(iterator)
    numbers_given(interrupted)
    numbers_given(interrupted, n_received)

    resumed = loader_of(iterator, seed=99)
    resumed.load_state_dict(interrupted.state_dict())

    rest = epochs[1][n_received:]
    assert numbers_given(resumed) == (rest or epochs[2])
    assert numbers_given(resumed) == (epochs[2] if rest else numbers_given(uninterrupted))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_names_what_was_received_and_not_what_was_made_ahead(kind: WorkerKind) -> None:
    loader = loader_of(numbers_to(1000), worker_kind=kind, prefetch=4)
    states = []

    with loader:
        for _ in zip(range(20), loader, strict=False):
            states.append(loader.state_dict()["position"])

    assert states == list(range(8, 168, 8))


def test_a_state_of_four_ranks_with_three_workers_goes_on_on_two_and_on_eight() -> None:
    iterator = numbers_to(1000)
    order = [number for batch in numbers_given(loader_of(iterator)) for number in batch]
    ranks = [
        loader_of(iterator, 6, shard=(rank, 4), worker_kind="threads" if "threads" in KINDS else "inline", workers=None)
        for rank in range(4)
    ]
    first = [numbers_given(loader, 9) for loader in ranks]
    states = [loader.state_dict() for loader in ranks]

    assert all(state == states[0] for state in states)
    n_done = 9 * 4 * 6
    assert [number for step in zip(*first, strict=True) for batch in step for number in batch] == order[:n_done]
    assert dealt(iterator, states[0], 2, 16, workers=0, worker_kind="auto") == order[n_done:]
    assert dealt(iterator, states[3], 8, 5) == order[n_done:]
    assert dealt(iterator, states[1], 1, 1) == order[n_done:]


def test_a_state_after_the_last_batch_of_an_epoch_goes_on_with_the_next() -> None:
    iterator = numbers_to(20)
    epochs = [numbers_given(loader) for loader in [loader_of(iterator)] for _ in range(2)]
    inside, after = loader_of(iterator), loader_of(iterator)
    numbers_given(inside, 3)  # broken off after the last batch
    numbers_given(after)  # to the end

    assert inside.state_dict() == after.state_dict()
    for state in (inside.state_dict(), after.state_dict()):
        resumed = loader_of(iterator)
        resumed.load_state_dict(state)
        assert (resumed.epoch, numbers_given(resumed)) == (1, epochs[1])


def test_naming_the_epoch_of_the_state_that_was_loaded_goes_on_where_it_was() -> None:
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


def test_going_on_in_a_dataset_of_a_billion_samples_takes_no_list_of_them() -> None:
    iterator = numbers_to(1000).repeat(10**6)
    loader = loader_of(iterator, 256)
    state = moved(loader.state_dict(), position=256 * 10**6)

    loader.load_state_dict(state)
    batch = numbers_given(loader, 1)[0]

    expected = iterator.shuffle(7, epoch=0)
    assert batch == [expected[256 * 10**6 + place][0] for place in range(256)]


# -------------------------------------------------------------------------------------------------------------------- content


def test_a_state_is_plain_json_data_even_of_numpys_arguments() -> None:
    loader = loader_of(
        numbers_to(64),
        np.int64(8),
        seed=np.uint8(3),
        epochs=np.int16(2),
        shard=np.array([0, 2]),
        shuffle=BlockShuffled(block_lengths=np.array([32, 32]), window=np.int8(1)),
    )
    numbers_given(loader, 2)

    state = loader.state_dict()

    assert json.loads(json.dumps(state)) == state
    assert (state["seed"], state["epoch"], state["position"], state["first_epoch"], state["n_samples"]) == (3, 0, 32, 0, 64)


# -------------------------------------------------------------------------------------------------------------------- refusals


def moved(state: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A state that was changed on purpose, and sealed again."""
    return replace(LoaderState.from_dict(state), **changes).to_dict()


def refused(loader: Loader, state: Any, said: str) -> None:
    """Loading the state fails and leaves the loader as it was."""
    before = loader.state_dict()

    with pytest.raises(LoaderStateError, match=said):
        loader.load_state_dict(state)

    assert loader.state_dict() == before


DAMAGED: list[tuple[Any, str]] = [
    ({}, "expected the state of a loader"),
    ({"data_stack_loader": 1, "seed": 1, "epoch": 0, "position": 8}, "version 1, expected 2"),
    ({"data_stack_loader": 2}, "lacks seed, epoch, position"),
]


@pytest.mark.parametrize(("state", "said"), DAMAGED)
def test_what_is_no_state_is_refused(state: Any, said: str) -> None:
    refused(loader_of(numbers_to(30)), state, said)


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


def test_a_state_survives_torch_json_numpy_and_further_fields() -> None:
    loader = loader_of(numbers_to(30))
    numbers_given(loader, 2)
    file = io.BytesIO()
    torch.save({"loader": loader.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)["loader"]

    for as_number in (int, np.int64, np.array):
        changed = {key: as_number(value) if type(value) is int else value for key, value in json.loads(json.dumps(state)).items()}
        other = loader_of(numbers_to(30))
        other.load_state_dict({**changed, "data_stack_loader": 2, "written_by": "my framework"})

        assert other.state_dict() == loader.state_dict()


def test_a_state_of_a_dataset_that_has_grown_is_refused() -> None:
    loader = loader_of(numbers_to(30))

    refused(loader, moved(loader.state_dict(), n_samples=40), "had 40 samples .* 30 now")
    refused(loader, loader_of(numbers_to(31)).state_dict(), "another dataset")


@pytest.mark.parametrize("shuffle", [False, BlockShuffled(block_lengths=10, window=3)])
def test_a_state_of_another_order_is_refused(shuffle: Any) -> None:
    refused(loader_of(numbers_to(30)), loader_of(numbers_to(30), shuffle=shuffle).state_dict(), "same shuffle=")


def test_a_state_with_random_layers_drawn_anew_is_refused_where_they_stay() -> None:
    iterator = numbers_to(30).shuffle(seed=1)

    refused(loader_of(iterator, redraw=False), loader_of(iterator).state_dict(), "redraw")
    refused(loader_of(iterator), loader_of(iterator, redraw=False).state_dict(), "redraw")
