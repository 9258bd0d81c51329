"""The automatic choice of workers: which one what was measured leads to, and that it changes no batch."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest
from loader_sources import Computing, Waiting, computing, fail_elsewhere
from process_census import census, left_since

from data_stack.dataset.iterator import Batch, DatasetIterator, InMemoryDatasetIterator, SequenceDatasetIterator
from data_stack.exception import LoadingError
from data_stack.loader import Loader
from data_stack.loader.workers import automatic
from data_stack.loader.workers.choice import Choice, Cost, Trial, chosen, kept_or_chosen, nature_of, overall
from data_stack.util.processors import n_processors

needs_processors = pytest.mark.skipif(n_processors() < 2, reason="with one processor, none can work for another")


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left() -> Iterator[None]:
    """All of them together leave no process, thread, descriptor or piece of shared memory behind; looking takes 0.2 s."""
    gc.collect()
    before = census()
    yield
    gc.collect()
    assert left_since(before) == []


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


def test_what_a_source_computes_without_python_s_lock_gets_all_threads_before_anything_was_tried() -> None:
    for busy in (COMPUTING, Cost(256, 0.02, 0.019, 0.038)):
        assert decided(choice(busy, None, n_workers=4, leaves_lock=True)) == ("threads", 4)
    assert decided(choice(Cost(256, 0.00005, 0.00005, 0.00005), None, leaves_lock=True)) == ("inline", 0)
    assert decided(choice(COMPUTING, None, n_processors=1, leaves_lock=True)) == ("inline", 0)


def test_what_only_copies_rows_is_done_inline_before_anything_was_tried_whatever_other_threads_compute_meanwhile() -> None:
    for busy in (COMPUTING, Cost(256, 0.02, 0.019, 0.038)):
        assert decided(choice(busy, None, only_gathers=True)) == ("inline", 0)
        assert decided(choice(busy, None, only_gathers=True, step_seconds=0.02, idle_seconds=0.015)) == ("threads", 1)
    assert decided(choice(Cost(256, 0.005, 0.0001, 0.0002), None, only_gathers=True)) == ("threads", 2)


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
        {"n_left": 400, "start_seconds": 3.0},
        {"refusal": "they cannot be had"},
        {"n_processors": 1},
        {"trial": None},
        {"trial": Trial(1.2, 0.8, delayed=0.4)},
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
    assert not choice(trial=Trial(1.2, 0.8, delayed=0.4)).is_final
    assert choice(n_left=2000).is_final


def test_two_threads_under_the_lock_show_that_on_a_busy_machine_too() -> None:
    assert decided(choice(trial=Trial(1.0, 0.5, delayed=0.3))) == ("processes", 2)
    assert not Trial(1.4, 0.8, delayed=0.3).is_conclusive
    assert Trial(1.4, 0.8, delayed=0.3, is_last=True).is_conclusive


def test_two_threads_that_seem_to_be_many_times_as_fast_as_one_show_that_the_cost_of_one_is_out_of_date() -> None:
    assert Trial(21.7, 1.0).is_of_stale_cost
    assert not LOCKED.is_of_stale_cost
    assert not FREE.is_of_stale_cost


TWO_THREADS = Choice("threads", 2, "as it was")


@pytest.mark.parametrize(
    ("new", "threads_seconds", "own_seconds", "expected"),
    [
        (Choice("threads", 2, "again"), 1e-5, 2e-6, ("inline", 0)),  # whatever two threads showed, that is faster
        (Choice("threads", 2, "again"), 1e-5, 1.5e-5, ("threads", 2)),
        (Choice("inline", 0, "cheap"), 1e-5, 2e-6, ("inline", 0)),
        (Choice("inline", 0, "cheap"), 1e-5, 1e-5, ("inline", 0)),
        (Choice("inline", 0, "cheap"), 1e-5, 3e-5, ("threads", 2)),  # however cheap, they come faster from the threads
        (Choice("processes", 2, "locked"), 1e-5, 1e-5, ("processes", 2)),
        (Choice("inline", 0, "too few are left", is_final=False), 1e-5, 1e-5, ("threads", 2)),
        (Choice("inline", 0, "too busy to tell", is_final=False), 1e-5, 2e-6, ("inline", 0)),
        (Choice("inline", 0, "cheap"), None, 1e-5, ("inline", 0)),
    ],
)
def test_how_fast_batches_came_outweighs_what_they_should_cost(
    new: Choice, threads_seconds: float | None, own_seconds: float, expected: tuple[str, int]
) -> None:
    after = kept_or_chosen(new, old=TWO_THREADS, old_cycle_seconds=threads_seconds, own_cycle_seconds=own_seconds)

    assert decided(after) == expected


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


class LeavingLock(Computing):
    """It says that threads compute side by side."""

    leaves_lock = True


@needs_processors
@pytest.mark.parametrize("stack", [lambda source: source, lambda source: source.shuffle(seed=1)], ids=["alone", "shuffled"])
def test_a_loader_of_a_source_that_leaves_python_s_lock_takes_threads_at_once(stack: Callable[[Any], Any]) -> None:
    subject = loader(stack(LeavingLock(16 * 40)), shuffle=True)
    kinds = []

    batches = []
    for batch in subject:
        batches.append(batch)
        kinds.append(subject.stats().worker_kind)

    assert kinds[:4] == ["inline"] * 4
    assert set(kinds[5:]) == {"threads"}
    assert "as the source says" in subject.stats().choice
    np.testing.assert_array_equal(np.sort(np.concatenate([numbers for numbers, _ in batches])), np.arange(16 * 40))


@needs_processors
@pytest.mark.parametrize(
    "options",
    [{"transform": lambda batch: batch}, {"collate": lambda samples: samples}],
    ids=["transform", "collate"],
)
def test_what_a_source_says_of_itself_is_not_taken_for_functions_that_are_given(options: dict[str, Any]) -> None:
    subject = loader(LeavingLock(16 * 60), **options)

    list(subject)

    assert "as the source says" not in subject.stats().choice


def test_what_a_source_says_of_itself_is_not_taken_for_layers_that_compute() -> None:
    subject = loader(LeavingLock(16 * 60).map(lambda sample: sample))

    list(subject)

    assert "as the source says" not in subject.stats().choice


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


class Warming(DatasetIterator):
    """Numbers whose requests take 4 ms, but for those from ``warm_from`` up to ``cold_from``; notes what was read.

    ``seconds``: how long those others take.
    ``interrupted``: in the consumer's thread, the request of this number is broken off as by Ctrl-C, once.
    """

    def __init__(
        self, n: int, warm_from: int, cold_from: int = 1 << 30, *, seconds: float = 0.0, bad: int = -1, interrupted: int = -1
    ) -> None:
        self.n, self.warm_from, self.cold_from, self.seconds = n, warm_from, cold_from, seconds
        self.bad, self.interrupted = bad, interrupted
        self.n_requests = 0
        self.read: Counter[int] = Counter()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise LookupError("not there")
        return index

    def read_batch(self, indices: Any) -> Batch:
        self.n_requests += 1
        if self.n_requests == self.interrupted and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        if not self.warm_from <= self.n_requests < self.cold_from:
            time.sleep(0.004)
        elif self.seconds:
            time.sleep(self.seconds)
        if self.bad in indices:
            raise LookupError("not there")
        self.read.update(indices.tolist())
        return np.array(indices)


def test_threads_end_when_batches_have_become_cheap_after_all() -> None:
    source = Warming(16 * 600, warm_from=24)
    subject = loader(source, shuffle=True)
    expected = list(Loader(SequenceDatasetIterator([np.arange(16 * 600)]), 16, shuffle=True, worker_kind="inline"))
    kinds = []

    batches = []
    for batch in subject:
        batches.append(batch)
        kinds.append(subject.stats().worker_kind)

    assert [kind for kind, _ in itertools.groupby(kinds)] == ["inline", "threads", "inline"]
    assert subject.stats().choice.startswith("inline: ")
    assert not [thread for thread in threading.enumerate() if "data_stack loader" in thread.name]
    np.testing.assert_array_equal(np.concatenate(batches), np.concatenate([column for (column,) in expected]))
    assert set(source.read.values()) == {1}


def test_threads_stay_when_batches_are_as_slow_as_ever_however_often_that_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "_SECONDS_BEFORE_FIRST_EXAMINED", 0.05)
    monkeypatch.setattr(automatic, "_PART_FIRST_EXAMINED", 1.0)
    source = Warming(16 * 200, warm_from=1 << 30)
    subject = loader(source)
    kinds = []

    batches = []
    for batch in subject:
        batches.append(batch)
        kinds.append(subject.stats().worker_kind)

    assert [kind for kind, _ in itertools.groupby(kinds)] == ["inline", "threads"]
    np.testing.assert_array_equal(np.concatenate(batches), np.arange(16 * 200))
    assert set(source.read.values()) == {1}


def test_a_consumer_that_hardly_waits_is_never_kept_waiting_by_an_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "_SECONDS_BEFORE_FIRST_EXAMINED", 0.05)
    monkeypatch.setattr(automatic, "_PART_FIRST_EXAMINED", 1.0)
    rested: list[int] = []
    monkeypatch.setattr(automatic.AutomaticWorkers, "_rest", lambda workers: rested.append(1))
    subject = loader(Warming(16 * 60, warm_from=24, seconds=0.001))

    for _ in subject:
        time.sleep(0.006)

    assert subject.stats().worker_kind == "threads"
    assert rested == []


def test_batches_that_become_slow_are_examined_and_batches_that_alternate_change_little() -> None:
    source = Warming(16 * 900, warm_from=1, cold_from=200)
    subject = loader(source)
    kinds = []

    batches = []
    for batch in subject:
        batches.append(batch)
        if len(batches) == 450:
            source.warm_from, source.cold_from = 1, 1 << 30
        kinds.append(subject.stats().worker_kind)

    in_turn = [kind for kind, _ in itertools.groupby(kinds)]
    assert in_turn[:2] == ["inline", "threads"]
    assert len(in_turn) <= 3
    np.testing.assert_array_equal(np.concatenate(batches), np.arange(16 * 900))
    assert set(source.read.values()) == {1}


@pytest.mark.parametrize("bad", [*range(50, 80), 90, 100])
def test_an_error_comes_in_its_turn_while_a_choice_is_examined(bad: int) -> None:
    source = Warming(16 * 130, warm_from=8, bad=bad * 16 + 5)

    received = []
    with pytest.raises(LoadingError, match=f"sample {bad * 16 + 5} could not be read") as raised:
        for batch in loader(source):
            received.append(batch)

    assert len(received) == bad == raised.value.step
    assert set(source.read.values()) == {1}


@pytest.mark.parametrize("keeps", [False, True])
def test_after_a_break_or_an_interruption_while_a_choice_is_examined_the_next_iteration_is_exact(keeps: bool) -> None:
    for stop in range(36, 75, 3):
        source = Warming(16 * 120, warm_from=8, interrupted=stop if stop % 2 else -1)
        subject = loader(source)
        if keeps:
            subject.__enter__()
        received = []
        try:
            for batch in subject:
                received.append(batch)
                if len(received) == stop + 4:
                    break
        except KeyboardInterrupt:
            pass
        np.testing.assert_array_equal(np.concatenate(received), np.arange(16 * len(received)))

        subject.set_epoch(0)
        batches = list(subject)

        np.testing.assert_array_equal(np.concatenate(batches), np.arange(16 * 120))
        subject.close()


def test_a_state_that_was_taken_while_a_choice_is_examined_names_what_was_received() -> None:
    expected = np.concatenate(list(Loader(Warming(16 * 110, 0), 16, shuffle=True, worker_kind="inline")))
    for stop in range(40, 70, 2):
        subject = loader(Warming(16 * 110, warm_from=8), shuffle=True)
        iteration = iter(subject)
        received = [next(iteration) for _ in range(stop)]

        state = subject.state_dict()

        iteration.close()  # type: ignore[attr-defined]
        another = loader(Warming(16 * 110, 0), shuffle=True)
        another.load_state_dict(state)
        np.testing.assert_array_equal(np.concatenate([*received, *another]), expected)


def test_what_was_found_out_is_known_in_the_next_iteration_though_the_threads_have_ended() -> None:
    subject = loader(Waiting(16 * 12))
    list(subject)
    first = subject.stats()

    for count, _ in enumerate(subject):
        if count == 0:
            assert (subject.stats().worker_kind, subject.stats().choice) == (first.worker_kind, first.choice)

    assert first.worker_kind == "threads"
    assert not [thread for thread in threading.enumerate() if "data_stack loader" in thread.name]


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
    assert "\n" not in subject.stats().choice
    assert len(subject.stats().choice) < 400
    np.testing.assert_array_equal(np.concatenate(received), np.arange(16 * len(received)) % (16 * 400))
    assert subject.stats().worker_kind != "processes"


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

    assert subject.stats().worker_kind != "processes"
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
