"""The automatic choice of workers: which one what was measured leads to, and that it changes no batch."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest
from loader_sources import Computing, Waiting, computing, fail_elsewhere
from process_census import census

from data_stack.dataset.iterator import DatasetIterator, InMemoryDatasetIterator, SequenceDatasetIterator
from data_stack.exception import LoadingError
from data_stack.loader import Loader
from data_stack.loader.workers.choice import Choice, Cost, Trial, chosen, nature_of, overall
from data_stack.loader.workers.processors import n_processors

needs_processors = pytest.mark.skipif(n_processors() < 2, reason="with one processor, none can work for another")


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left() -> Iterator[None]:
    """All of them together leave no process, thread, descriptor or piece of shared memory behind; looking takes 0.2 s."""
    gc.collect()
    before = census()
    yield
    gc.collect()
    assert census() == before


def loader(samples: Any, batch_size: int = 16, **options: Any) -> Loader:
    return Loader(samples, batch_size, **{"worker_kind": "auto", "workers": 2, **options})


# ------------------------------------------------------------------------------------------------------ what figures lead to


COMPUTING = Cost(n_samples=256, seconds=0.0128, own_seconds=0.0128, all_seconds=0.0128)
LOCKED, FREE, MEMORY = Trial(0.95, 1.0), Trial(1.9, 1.95), Trial(1.1, 1.9)


def choice(cost: Cost = COMPUTING, trial: Trial | None = LOCKED, **facts: Any) -> Choice:
    known: dict[str, Any] = {
        "n_workers": 2,
        "n_processors": 2,
        "step_seconds": 0.0,
        "idle_seconds": 0.0,
        "n_left": None,
        "n_bytes_held": 0,
    }
    return chosen(cost, trial, **{**known, **facts})


def decided(made: Choice) -> tuple[str, int]:
    return made.kind, made.n_workers


@pytest.mark.parametrize(
    ("cost", "nature"),
    [
        (Cost(256, 0.00005, 0.00005, 0.00005), "cheap"),
        (Cost(4096, 0.003, 0.003, 0.003), "cheap"),  # less than a microsecond a sample
        (Cost(256, 0.005, 0.0001, 0.0002), "waits"),
        (Cost(256, 0.02, 0.001, 0.038), "parallel"),  # a pool of its own does all the work
        (Cost(256, 0.02, 0.019, 0.038), "parallel"),  # this thread takes part in it
        (Cost(256, 0.02, 0.019, 0.021), "computes"),
    ],
)
def test_the_nature_of_a_batch(cost: Cost, nature: str) -> None:
    assert nature_of(cost) == nature


def test_the_first_batch_which_opens_files_does_not_count_if_there_are_others() -> None:
    first, other = Cost(8, 1.0, 0.9, 0.9), Cost(8, 0.002, 0.001, 0.001)

    assert overall([first, other, other]) == other
    assert overall([first]) == first


def test_what_other_threads_of_the_program_compute_now_and_then_is_not_taken_for_the_batch() -> None:
    quiet = Cost(256, 0.01, 0.01, 0.0101)

    assert nature_of(overall([quiet, replace(quiet, all_seconds=0.02), quiet, replace(quiet, all_seconds=0.018)])) == "computes"


def test_cheap_batches_are_made_inline() -> None:
    assert decided(choice(Cost(256, 0.00005, 0.00005, 0.00005), None)) == ("inline", 0)


def test_what_waits_gets_all_threads_even_on_one_processor() -> None:
    assert decided(choice(Cost(256, 0.005, 0.0001, 0.0002), None, n_workers=6, n_processors=1)) == ("threads", 6)


def test_what_computes_on_several_processors_already_gets_one_thread() -> None:
    assert decided(choice(Cost(256, 0.02, 0.019, 0.038), None)) == ("threads", 1)


def test_threads_are_chosen_where_two_are_faster_than_one() -> None:
    assert decided(choice(trial=FREE)) == ("threads", 2)


def test_processes_are_chosen_where_python_s_lock_keeps_threads_from_computing_at_once() -> None:
    assert decided(choice(trial=LOCKED)) == ("processes", 2)


def test_more_threads_wait_for_the_lock_more_often_than_two_so_many_workers_are_processes() -> None:
    half_free = Trial(1.6, 1.8)

    assert decided(choice(trial=half_free)) == ("threads", 2)
    assert decided(choice(trial=half_free, n_workers=16, n_processors=16)) == ("processes", 16)


def test_one_thread_is_enough_where_the_memory_is_the_limit() -> None:
    assert decided(choice(trial=MEMORY)) == ("threads", 1)


@pytest.mark.parametrize(
    "facts",
    [
        {"n_left": 20},
        {"refusal": "they cannot be had"},
        {"n_processors": 1},
        {"trial": None},
        {"trial": Trial(1.0, 0.6, delayed=0.4)},
        {"n_workers": 1},
        {"trial": Trial(0.2, 1.1)},
        {"trial": Trial(0.2, 1.9)},
        {"n_bytes_held": 10**11},
        {"n_bytes_held": 3 * 10**9, "n_left": 400},
    ],
)
def test_no_processes_are_started_in_vain(facts: dict[str, Any]) -> None:
    assert decided(choice(**facts)) == ("inline", 0)


def test_one_process_is_worth_it_where_the_consumer_computes_meanwhile() -> None:
    assert decided(choice(n_workers=1, step_seconds=0.02)) == ("processes", 1)


def test_one_thread_works_while_the_consumer_waits_for_something_else() -> None:
    assert decided(choice(n_left=20, step_seconds=0.02, idle_seconds=0.018)) == ("threads", 1)


def test_too_few_batches_and_a_busy_machine_are_no_final_reasons() -> None:
    assert not choice(n_left=20).is_final
    assert not choice(trial=Trial(1.0, 0.6, delayed=0.4)).is_final
    assert choice(n_left=2000).is_final


def test_reasons_give_the_figures() -> None:
    assert choice(trial=FREE).reason == "a batch takes 12.8 ms; two threads were 1.9 times as fast as one"
    assert choice(Cost(100, 0.00005, 0.00005, 0.00005), None).reason.startswith("a batch takes 50 µs, 0.5 µs a sample")


# -------------------------------------------------------------------------------------------------------- what loaders choose


def test_a_loader_of_arrays_stays_inline() -> None:
    subject = loader(SequenceDatasetIterator([np.arange(3000)]))

    list(subject)

    stats = subject.stats()
    assert (stats.worker_kind, stats.n_workers) == ("inline", 0)
    assert stats.choice.startswith("inline: a batch takes ")


def test_a_loader_of_a_slow_store_takes_threads() -> None:
    subject = loader(Waiting(400), workers=3)

    batches = list(subject)

    stats = subject.stats()
    assert (stats.worker_kind, stats.n_workers) == ("threads", 3)
    assert "it waits" in stats.choice
    np.testing.assert_array_equal(np.concatenate(batches), np.arange(400))


def test_a_loader_of_a_store_that_is_slow_now_and_then_takes_threads_when_that_shows() -> None:
    source = Waiting(16 * 400, seconds=0.03, every=12)  # the first batches are measured before it waits for the first time
    subject = loader(source)

    batches = list(subject)

    assert subject.stats().worker_kind == "threads"
    assert "now and then" in subject.stats().choice
    np.testing.assert_array_equal(np.concatenate(batches), np.arange(16 * 400))
    assert source.n_requests == 400


def skip_if_busy(subject: Loader, began: float) -> None:
    if time.monotonic() > began + 8:
        pytest.skip(f"other programs keep the processors busy: {subject.stats().choice}")


@needs_processors
def test_a_loader_of_what_python_computes_takes_processes_and_makes_batches_here_until_they_are_ready() -> None:
    with loader(Computing(16 * 1500), epochs=None) as subject:
        here_or_there, began = [], time.monotonic()
        for count, (indices, pids) in enumerate(subject):
            np.testing.assert_array_equal(indices, np.arange(16) + 16 * (count % 1500))
            assert len(set(pids.tolist())) == 1
            here_or_there.append(int(pids[0]))
            if os.getpid() not in here_or_there[-8:] and len(set(here_or_there[-8:])) == 2:
                break
            skip_if_busy(subject, began)

    in_turn = [pid for pid, _ in itertools.groupby(here_or_there)]
    assert subject.stats().worker_kind == "processes"
    assert in_turn[0] == os.getpid()
    assert os.getpid() not in in_turn[1:]


@needs_processors
def test_processes_that_are_of_no_use_are_given_up_with_a_warning_and_no_batch_is_lost() -> None:
    subject = loader(Computing(16 * 400), transform=fail_elsewhere, epochs=30)
    received, began = [], time.monotonic()

    with pytest.warns(RuntimeWarning, match="no worker process works") as told:  # noqa: PT031
        for indices, _ in subject:
            received.append(indices)
            if len(received) > 400 and "they failed" in subject.stats().choice:
                break
            skip_if_busy(subject, began)

    assert len(told) == 1
    np.testing.assert_array_equal(np.concatenate(received), np.arange(16 * len(received)) % (16 * 400))
    assert subject.stats().worker_kind == "inline"


@needs_processors
def test_what_cannot_be_sent_to_processes_is_made_without() -> None:
    lock = threading.Lock()

    def transform(batch: Any) -> Any:
        with lock:
            return batch

    subject = loader(Computing(16 * 400), transform=transform, epochs=30)
    received, began = [], time.monotonic()
    for indices, _ in subject:
        received.append(indices)
        if len(received) > 400 and "there are none" in subject.stats().choice:
            break
        skip_if_busy(subject, began)

    assert subject.stats().worker_kind == "inline"
    np.testing.assert_array_equal(np.concatenate(received), np.arange(16 * len(received)) % (16 * 400))


def test_without_workers_there_is_nothing_to_choose() -> None:
    subject = loader(Waiting(64), workers=0)

    list(subject)

    assert (subject.stats().worker_kind, subject.stats().choice) == ("inline", "")


def test_inside_of_with_the_choice_is_kept() -> None:
    with loader(Waiting(16 * 12)) as subject:
        list(subject)
        chosen_first = subject.stats().choice
        before = [thread for thread in threading.enumerate() if "data_stack loader" in thread.name]
        for _ in range(3):
            assert sum(len(batch) for batch in subject) == 16 * 12
            assert subject.stats().choice == chosen_first
        after = [thread for thread in threading.enumerate() if "data_stack loader" in thread.name]

    assert len(before) == 2
    assert before == after


# --------------------------------------------------------------------------------------------------------- whatever is chosen


class Noted(DatasetIterator):
    """Notes which samples were read; ``bad`` ones cannot be."""

    def __init__(self, n: int, n_steps: int, bad: int = -1) -> None:
        self.n, self.n_steps, self.bad = n, n_steps, bad
        self.read: Counter[int] = Counter()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise LookupError("not there")
        self.read[index] += 1
        for _ in range(self.n_steps):
            pass
        return index

    def __reduce__(self) -> NoReturn:
        raise TypeError("only in this process")


@pytest.mark.parametrize("n_steps", [0, 300, 3000])
@pytest.mark.parametrize("n_batches", [1, 3, 5, 6, 12, 70])
def test_batches_are_those_of_inline_and_none_is_made_twice(n_steps: int, n_batches: int) -> None:
    source = Noted(16 * n_batches - 3, n_steps)
    expected = list(Loader(Noted(len(source), 0), 16, shuffle=True, worker_kind="inline"))

    batches = list(loader(source, shuffle=True))

    np.testing.assert_array_equal(np.concatenate(batches), np.concatenate(expected))
    assert set(source.read.values()) == {1}


@pytest.mark.parametrize("bad", range(0, 22, 1))
def test_an_error_comes_in_its_turn_whether_it_is_measured_tried_or_chosen(bad: int) -> None:
    source = Noted(16 * 30, 2500, bad * 16 + 5)

    received = []
    with pytest.raises(LoadingError, match=f"sample {bad * 16 + 5} could not be read") as raised:
        for batch in loader(source):
            received.append(batch)

    assert len(received) == bad == raised.value.step


def test_after_an_error_and_after_a_break_the_next_iteration_is_exact() -> None:
    source = Noted(16 * 20, 1500)
    with loader(source) as subject:
        for stop in [*range(1, 20), 3, 1]:
            subject.set_epoch(0)
            source.bad = 16 * stop if stop % 2 else -1
            received = []
            try:
                for batch in subject:
                    received.append(batch)
                    if len(received) == stop:
                        break
            except LoadingError:
                pass
            np.testing.assert_array_equal(np.concatenate(received), np.arange(16 * stop))


def test_a_state_that_was_taken_while_batches_are_tried_names_what_was_received() -> None:
    source = InMemoryDatasetIterator(range(16 * 30)).map(computing)
    expected = np.concatenate(list(Loader(source, 16, shuffle=True, worker_kind="inline")))
    for stop in range(1, 24):
        subject = loader(source, shuffle=True)
        iteration = iter(subject)
        received = [next(iteration) for _ in range(stop)]

        state = subject.state_dict()

        iteration.close()  # type: ignore[attr-defined]
        another = loader(source, shuffle=True)
        another.load_state_dict(state)
        np.testing.assert_array_equal(np.concatenate([*received, *another]), expected)
