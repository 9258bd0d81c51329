"""The automatic choice of workers: which one measured figures lead to, and that it changes no
batch.
"""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from layer_laws import Samples
from loader_batches import Computing, fail_elsewhere
from process_census import census, left_since
from process_harness import until

from data_stack.dataset.iterator import InMemoryDatasetIterator, SequenceDatasetIterator
from data_stack.loader import Loader
from data_stack.loader.batch_maker import BatchMaker
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.workers import automatic, measuring
from data_stack.loader.workers.base import WorkerOptions
from data_stack.loader.workers.make_workers import make_prefetching_workers
from data_stack.util.executor import n_processors


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left() -> Iterator[None]:
    """All of them together leave no process, thread, descriptor or piece of shared memory behind;
    looking takes 0.2 s.
    """
    gc.collect()
    before = census()
    yield
    gc.collect()
    # What was killed ends a little later on a busy machine.
    assert until(lambda: left_since(before) == []), left_since(before)


def loader(samples: Any, batch_size: int = 16, **options: Any) -> Loader:
    """A loader that accepts rows with the number of the process."""
    chosen = {"worker_kind": "auto", "workers": 2, "compare_workers": False, **options}
    return Loader(samples, batch_size, **chosen)


# ------------------------------------------------------------------------------ what loaders choose


def test_a_loader_of_arrays_stays_inline() -> None:
    subject = loader(SequenceDatasetIterator([np.arange(3000)]))

    list(subject)

    stats = subject.stats()
    assert (stats.worker_kind, stats.n_workers) == ("inline", 0)
    assert stats.choice.startswith("inline: it only copies rows of arrays")


def sleep(sample: Any) -> Any:
    time.sleep(0.001)
    return sample


@pytest.mark.skipif(n_processors() == 1, reason="one processor")
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (InMemoryDatasetIterator(range(16)).repeat(1000).map(sleep), "threads"),
        (Computing(16_000, 5000), "processes"),
    ],
)
def test_waiting_leads_to_threads_and_computing_to_processes(source: Any, kind: str) -> None:
    def tries() -> bool:
        with loader(source, epochs=None) as subject:
            return any(
                kind in subject.stats().choice for _ in zip(range(500), subject, strict=False)
            )

    # On a busy machine, figures are rough, and processes gain little.
    assert until(tries)


# ----------------------------------------------------------------------------------- for any choice


def choosing(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    """Choose these kinds in turn, whatever was measured, and then stay with the last one."""
    following = itertools.chain(kinds, itertools.repeat(kinds[-1]))

    def choose_next(measurements: Any, *, can_use_processes: bool, **_: Any) -> str:
        kind = next(following)
        if kind == "processes" and not can_use_processes:
            return "inline"
        return kind

    monkeypatch.setattr(automatic, "choose_kind", choose_next)
    monkeypatch.setattr(measuring, "is_enough", lambda n_rounds, elapsed_seconds: n_rounds >= 4)


@pytest.mark.parametrize("way", [("inline",), ("threads",), ("threads", "inline")])
@pytest.mark.parametrize("n_batches", [1, 5, 40])
def test_batches_are_those_of_inline_and_none_is_made_twice(
    way: tuple[str, ...], n_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choosing(monkeypatch, *way)
    source = Samples(range(16 * n_batches - 3))
    expected = list(Loader(Samples(source.samples), 16, shuffle=True, worker_kind="inline"))

    batches = list(loader(source, shuffle=True))

    np.testing.assert_array_equal(np.concatenate(batches), np.concatenate(expected))
    assert sorted(source.read) == list(source.samples)


def test_batches_are_exact_while_processes_start_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, "processes", "threads")
    are_from_processes = []

    with loader(Computing(16 * 5_000_000, 100), epochs=None) as subject:
        for count, (indices, pids) in enumerate(subject):
            np.testing.assert_array_equal(indices, np.arange(16) + 16 * count)
            are_from_processes.append(int(pids[0]) != os.getpid())
            if sum(are_from_processes) > 10 and not are_from_processes[-1]:
                break

    assert not are_from_processes[0]
    assert sum(are_from_processes) > 10


def test_what_cannot_be_sent_is_never_made_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, "threads", "processes")
    lock = threading.Lock()

    def transform(batch: Any) -> Any:
        with lock:
            return batch

    subject = loader(Computing(16 * 40, 1), transform=transform, epochs=5)
    received = [(indices, pids) for indices, pids in subject]

    assert "cannot be sent to worker processes" in subject.stats().choice
    assert {int(pid) for _, pids in received for pid in pids} == {os.getpid()}
    np.testing.assert_array_equal(
        np.concatenate([indices for indices, _ in received]), np.arange(16 * 200) % (16 * 40)
    )


def test_arrays_that_are_too_large_are_not_sent_to_processes() -> None:
    maker = BatchMaker(EpochStacks(SequenceDatasetIterator([np.zeros(4_000)]), redraws=True))
    options = WorkerOptions(n_workers=1, prefetch=1, max_bytes_sent=30_000)
    workers = make_prefetching_workers(maker, "processes", options)

    with pytest.raises(OSError, match="too large to send"):
        workers.start()


def test_failing_processes_are_given_up_without_losing_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choosing(monkeypatch, "threads", "processes")
    subject = loader(Computing(16 * 5_000_000, 100), transform=fail_elsewhere)
    received = []

    with pytest.warns(RuntimeWarning, match="worker processes do not work here") as told:  # noqa: PT031
        for indices, _ in subject:
            received.append(indices)
            if told.list:
                break

    assert len(told) == 1
    np.testing.assert_array_equal(np.concatenate(received), np.arange(16 * len(received)))
    assert subject.stats().worker_kind != "processes"


class WithProcessNumber(Computing):
    """Rows that differ in another process."""


class Alike(Computing):
    """Rows that are the same in every process."""

    def __getitem__(self, index: int) -> tuple[int, int]:
        return super().__getitem__(index)[0], 7


def received_until(
    subject: Loader, has_happened: Callable[[], bool], seconds: float = 60.0
) -> list[Any]:
    """The columns of an endless loader's batches until something has happened."""
    received = []
    deadline = time.monotonic() + seconds
    for batch in subject:
        received.append(batch)
        if has_happened():
            return received
        assert time.monotonic() < deadline
    return received


def test_processes_that_make_other_batches_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, "threads", "processes")

    with (
        loader(
            WithProcessNumber(16 * 5_000_000, 100), epochs=None, compare_workers=True
        ) as subject,
        pytest.warns(RuntimeWarning, match="column 1, row 0 is .* there, .* here") as told,
    ):
        received = received_until(subject, lambda: "no processes" in subject.stats().choice)

    assert len(told) == 1
    assert "no processes: they make other batches" in subject.stats().choice
    assert {int(pid) for _, pids in received for pid in pids} == {os.getpid()}
    indices = np.concatenate([indices for indices, _ in received])
    np.testing.assert_array_equal(indices, np.arange(16 * len(received)))


def test_processes_that_make_the_same_batches_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, "threads", "processes")

    with loader(Alike(16 * 5_000_000, 100), epochs=None, compare_workers=True) as subject:
        received = received_until(subject, lambda: subject.stats().worker_kind == "processes")

    indices = np.concatenate([indices for indices, _ in received])
    np.testing.assert_array_equal(indices, np.arange(16 * len(received)))
