"""Iterating: what comes in which epoch, what a batch is, and what ends an iteration."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from loader_batches import numbers_given, numbers_to

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    InMemoryDatasetIterator,
    SampleAccess,
    SequenceDatasetIterator,
)
from data_stack.exception import ConfigError, LoadingError
from data_stack.loader import Loader
from data_stack.loader.state import LoaderState
from data_stack.loader.torch import TorchDataset
from data_stack.testing.comparing import assert_same
from data_stack.testing.waiting import wait_until
from data_stack.values.stacking import stack_samples


def loader_of(iterator: Any, batch_size: Any = 4, **options: Any) -> Loader:
    return Loader(iterator, batch_size, **{"worker_kind": "inline", **options})


# ------------------------------------------------------------------------------------------ batches


def test_a_transform_gets_the_collated_batch_and_returns_any_value() -> None:
    loader = loader_of([1, 2, 3], 2, collate=sum, transform=lambda total: {"total": total})

    assert list(loader) == [{"total": 3}, {"total": 3}]


def test_a_transform_draws_by_seed_epoch_and_position_alone() -> None:
    def draw(batch: Any, rng: np.random.Generator) -> float:
        return rng.random()

    loader = loader_of(numbers_to(20), transform=draw)
    epochs = [list(loader), list(loader)]

    assert len(set(epochs[0] + epochs[1])) == 10
    assert list(loader_of(numbers_to(20), transform=draw)) == epochs[0]
    assert list(loader_of(numbers_to(20), transform=draw, seed=1)) != epochs[0]
    ranks = [list(loader_of(numbers_to(20), transform=draw, shard=(rank, 5))) for rank in range(5)]
    assert [number for rank in ranks for number in rank] == epochs[0]


# ------------------------------------------------------------------------------------------- epochs


def test_the_length_is_always_that_of_a_whole_iteration() -> None:
    loader = loader_of(numbers_to(10), epochs=2)
    lengths = [len(loader)]

    for _ in loader:
        lengths.append(len(loader))
    state = LoaderState.from_dict(loader.state_dict())
    loader.load_state_dict(replace(state, epoch=5, first_epoch=5, position=8).to_dict())
    lengths.append(len(loader))
    lengths.append(len(numbers_given(loader)))

    assert lengths == [6] * 8 + [4]


def test_the_batches_that_are_left_are_those_that_follow() -> None:
    loader = Loader(numbers_to(10), 3, epochs=2)

    before = loader.n_batches_left
    inside = []
    for _ in loader:
        inside.append(loader.n_batches_left)
        if len(inside) == 5:
            state = loader.state_dict()
    resumed = Loader(numbers_to(10), 3, epochs=2)
    resumed.load_state_dict(state)

    assert before == 8
    assert inside == [7, 6, 5, 4, 3, 2, 1, 8]  # after the last one, those of the next iteration
    assert resumed.n_batches_left == 3 == len([*resumed])
    with pytest.raises(TypeError, match="endless"):
        _ = Loader(numbers_to(10), 3, epochs=None).n_batches_left


def test_the_length_reads_nothing_whatever_lies_below() -> None:
    calls = []

    def is_even(number: int) -> bool:
        calls.append(number)
        return number % 2 == 0

    loader = loader_of(numbers_to(10).shuffle(1).filter(is_even, column=0), epochs=10**6)
    calls.clear()

    assert (len(loader), calls) == (2 * 10**6, [])


def test_an_endless_loader_has_no_length_and_does_not_end() -> None:
    loader = loader_of(numbers_to(10), epochs=None)

    assert [len(batch) for batch in numbers_given(loader, 7)] == [4, 4, 2, 4, 4, 2, 4]
    assert loader.state_dict()["epoch"] == 2
    with pytest.raises(TypeError, match="endless"):
        len(loader)


# ----------------------------------------------------------------------------------- small datasets


@pytest.mark.parametrize(("n", "drop_last"), [(0, False), (3, True)])
def test_an_endless_loader_without_batches_is_an_error(n: int, drop_last: bool) -> None:
    loader = loader_of(numbers_to(n), epochs=None, drop_last=drop_last)

    with pytest.raises(ConfigError, match=f"epoch 0 has {n} samples"):
        next(iter(loader))


# ------------------------------------------------------------------------- the ends of an iteration


def test_a_second_iteration_ends_the_first_which_says_so() -> None:
    loader = loader_of(numbers_to(10))
    first = iter(loader)
    next(first)

    second = iter(loader)

    assert next(second)[0].tolist() == [0, 1, 2, 3]
    loader.load_state_dict(loader.state_dict())
    for ended in (first, second):
        with pytest.raises(
            RuntimeError, match="another one began, or the loader was closed or loaded a state"
        ):
            next(ended)
    assert numbers_given(loader) == [[4, 5, 6, 7], [8, 9]]


def test_ctrl_c_while_a_batch_is_made_loses_none() -> None:
    pressed = [8]

    def transform(batch: Any) -> Any:
        if batch[0][0] in pressed:
            signal.raise_signal(signal.SIGINT)
        return batch

    loader = loader_of(numbers_to(10), transform=transform)

    with pytest.raises(KeyboardInterrupt) as raised:
        numbers_given(loader)

    assert raised.traceback[-1].name == "transform"
    pressed.clear()
    loader.load_state_dict(loader.state_dict())
    assert numbers_given(loader) == [[8, 9]]


@pytest.mark.parametrize("of", [iter, Loader.torch])
def test_a_dropped_batch_is_freed_before_the_next_one(
    of: Callable[[Loader], Any],
) -> None:
    made, n_alive = list[weakref.ref[Any]](), list[int]()

    def transform(batch: Any) -> Any:
        n_alive.append(sum(each() is not None for each in made))
        made.append(weakref.ref(batch[0]))
        return batch

    list(map(len, of(loader_of(numbers_to(16), transform=transform))))

    assert n_alive == [0, 0, 0, 0]


def test_an_unreadable_sample_is_named_in_its_turn_and_retried() -> None:
    bad = [13]

    def read(number: int) -> int:
        if number in bad:
            raise OSError(f"block {number} is damaged")
        return number

    loader = loader_of(InMemoryDatasetIterator(range(20)).map(read))
    received = []

    with pytest.raises(
        LoadingError, match="sample 13 could not be read: OSError: block 13 is damaged"
    ) as raised:
        for batch in loader:
            received.append(batch.tolist())

    assert received == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert (raised.value.index, raised.value.epoch, raised.value.step) == (13, 0, 3)
    assert loader.state_dict()["position"] == 12
    bad.clear()
    loader.load_state_dict(loader.state_dict())
    assert [batch.tolist() for batch in loader] == [[12, 13, 14, 15], [16, 17, 18, 19]]


@pytest.mark.parametrize("option", ["collate", "transform"])
def test_a_function_that_fails_is_named_with_its_samples(option: str) -> None:
    def fails(batch: Any) -> Any:
        raise KeyError("label")

    loader = loader_of(numbers_to(10), **{option: fails})

    with pytest.raises(
        LoadingError,
        match=rf"{option}.*\(of the samples 0, 1, 2, 3\): KeyError: 'label' \(step 0 of epoch 0\)",
    ):
        next(iter(loader))


# -------------------------------------------------------------------------------- the loader itself


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))]
)
def test_a_copy_of_a_loader_continues_on_its_own(
    copied: Callable[[Loader], Loader],
) -> None:
    loader = loader_of(numbers_to(30), shuffle=True, seed=4)
    batches = iter(loader)
    next(batches)

    other = copied(loader)

    assert other.state_dict() == loader.state_dict()
    assert (
        numbers_given(other)[0]
        == numbers_to(30).shuffle(4, epoch=1).read_column(0, range(4)).tolist()
    )
    assert len(list(batches)) == 7
    state = LoaderState.from_dict(loader.state_dict())
    other.load_state_dict(replace(state, epoch=2, first_epoch=2).to_dict())
    assert (loader.epoch, other.epoch) == (1, 2)


def test_a_pickled_loader_draws_anew_what_is_held_in_memory() -> None:
    stack = numbers_to(20).shuffle(seed=1).in_memory().shuffle(seed=2).in_memory()
    loader = loader_of(stack)

    other = pickle.loads(pickle.dumps(loader))

    epochs = [numbers_given(loader) for _ in range(3)]
    assert [numbers_given(other) for _ in range(3)] == epochs
    assert np.concatenate(epochs[1]).tolist() == stack.at_epoch(1).read_column(0).tolist()
    assert other.state_dict() == loader.state_dict()


@pytest.mark.parametrize("kind", ["inline", "threads"])
def test_figures_are_exact_after_each_batch_of_a_request(kind: str) -> None:
    rows = np.random.default_rng(0).random((1003, 3), dtype=np.float32)
    iterator = SequenceDatasetIterator([np.arange(1003), rows, np.array(["text"] * 1003)])
    n_samples = n_bytes = 0

    with loader_of(iterator, 10, worker_kind=kind, shuffle=True, epochs=2) as loader:
        for n_batches, batch in enumerate(loader, 1):
            n_samples += len(batch[0])
            n_bytes += sum(column.nbytes for column in batch)
            figures = loader.stats()
            assert figures.n_batches == n_batches
            assert (figures.n_samples, figures.n_bytes) == (n_samples, n_bytes)

    assert n_samples == 2 * 1003


class _NestedAccess(SampleAccess):
    """Access to numbers in columns inside of columns, as those of n-grams."""

    n_samples = 100
    fixed_columns = True

    def sample(self, position: int) -> Any:
        return {"now": {"number": position}, "pair": (position, -position)}

    def batch(self, positions: Any) -> Any:
        return {"now": {"number": positions.copy()}, "pair": (positions.copy(), -positions)}


class _Nested(AccessedDatasetIterator):
    def make_access(self) -> SampleAccess:
        return _NestedAccess()


def test_batches_of_one_request_keep_nested_columns() -> None:
    batches = list(loader_of(_Nested(), 7))

    assert len(batches) == 15
    for number, batch in enumerate(batches):
        positions = np.arange(100)[7 * number :][:7]
        assert_same(batch, {"now": {"number": positions}, "pair": (positions, -positions)})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_cannot_continue_an_iteration_of_its_parent() -> None:
    loader = loader_of(numbers_to(20))
    batches = iter(loader)
    next(batches)

    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(RuntimeError, match="this is a fork of its process"):
                next(batches)
            begins_again = numbers_given(loader)[0] == [0, 1, 2, 3]
            os._exit(0 if begins_again else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)

    assert status == 0
    assert next(batches)[0].tolist() == [4, 5, 6, 7]


def test_the_figures_count_what_was_handed_out() -> None:
    iterator = SequenceDatasetIterator([np.arange(20), np.zeros((20, 5), dtype=np.float32)])
    loader = loader_of(iterator, 8, transform=lambda batch: batch, collate=stack_samples)
    before, started = loader.stats(), time.perf_counter()
    for received, _ in enumerate(loader, 1):
        figures = loader.stats()
        assert (figures.n_batches, figures.n_samples) == (received, min(20, 8 * received))
    after = loader.stats()

    assert (
        before.n_batches,
        before.elapsed_seconds,
        before.samples_per_second,
        before.waiting_share,
    ) == (0, 0.0, 0.0, 0.0)
    assert (after.n_batches, after.n_samples, after.n_bytes) == (3, 20, 20 * 28)
    assert (after.worker_kind, after.n_workers) == ("inline", 0)
    parts = (after.read_seconds, after.collate_seconds, after.transform_seconds)
    assert min(parts) > 0 <= after.convert_seconds
    assert (
        sum(parts) + after.convert_seconds
        <= after.waiting_seconds
        <= after.elapsed_seconds
        <= time.perf_counter() - started
    )
    assert 0 < after.waiting_share <= 1
    assert after == loader.stats()  # the clock has stopped
    assert all(text in str(after) for text in ("20 samples in 3 batches", "; made inline: read "))


@pytest.mark.parametrize(
    "options",
    [
        {"iterator": 17},
        {"batch_size": 0},
        {"shuffle": "yes"},
        {"epochs": 0},
        {"drop_last": "no"},
        {"shard": (2, 2)},
        {"uneven": "wrap"},
        {"workers": 2},
        {"workers": 0, "worker_kind": "threads"},
        {"worker_kind": "fibers"},
        {"prefetch": 0},
        {"collate": "padded"},
        {"transform": 3},
        {"timeout_seconds": float("nan")},
    ],
)
def test_an_argument_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    arguments = {"iterator": numbers_to(10), "batch_size": 4, **options}

    with pytest.raises(ConfigError):
        loader_of(arguments.pop("iterator"), arguments.pop("batch_size"), **arguments)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("digits", "got str 'digits'. Load"),
        (b"digits", "got bytes"),
        (memoryview(b"digits"), "got memoryview"),
        (
            {"train": SequenceDatasetIterator([[1]])},
            "a dict of the splits 'train'; take one of them",
        ),
        ({"image": [1, 2]}, "got dict .*make one of columns"),
        (pd.DataFrame({"image": [1, 2]}), "got DataFrame. .*from_pandas"),
        (pa.table({"image": [1, 2]}), "got Table. .* from_arrow"),
        (pl.DataFrame({"image": [1, 2]}), "got DataFrame. "),
        ([SequenceDatasetIterator([[1]])], "got list .*choose one"),
        ((number for number in range(3)), "got generator "),
        (np.array(3), "got ndarray"),
        (3, "got int 3"),
        (loader_of([1, 2]), "got Loader"),
    ],
)
def test_what_is_no_iterator_is_refused_with_a_remedy(given: Any, message: str) -> None:
    for make in (loader_of, TorchDataset, SequenceDatasetIterator([[1]]).combine):
        with pytest.raises(ConfigError, match=f"expected (an|one) iterator.* {message}"):
            make(given)


# ---------------------------------------------------------------------- one iteration at a time


def test_an_iteration_replaced_before_it_began_is_an_error() -> None:
    loader = loader_of(numbers_to(20))
    first = iter(loader)
    second = iter(loader)

    with pytest.raises(RuntimeError, match="this iteration of a loader has ended"):
        next(first)
    assert len(list(second)) == 5


def test_an_iteration_that_another_one_interrupted_is_an_error() -> None:
    loader = loader_of(numbers_to(20))
    first = iter(loader)
    next(first)
    list(loader)

    with pytest.raises(RuntimeError, match="call iter\\(loader\\) again"):
        next(first)


def test_a_closed_loader_has_no_workers_until_the_next_iteration() -> None:
    loader = loader_of(numbers_to(20), worker_kind="threads", workers=2)
    threads_before = set(threading.enumerate())

    def has_no_workers() -> bool:
        # Idle threads of earlier tests may end meanwhile.
        return threads_before.issuperset(threading.enumerate())

    with loader:
        list(loader)
        assert not has_no_workers()

    assert wait_until(has_no_workers)
    assert len(list(loader)) == 5
    assert wait_until(has_no_workers)
