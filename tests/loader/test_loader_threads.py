"""Worker threads: the same batches in the same order, errors in their turn, and nothing left that
holds on to a loader.
"""

from __future__ import annotations

import os
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from loader_batches import BlocksAccess, InBlocks
from process_harness import run_python, until

from data_stack.dataset.iterator import DatasetIteratorIF, InMemoryDatasetIterator, SampleAccess
from data_stack.exception import LoadingError, WorkerError
from data_stack.loader import Loader
from data_stack.loader.workers.base import WorkerOptions
from data_stack.loader.workers.threads import ThreadWorkers


def numbers(n: int, read: Callable[[int], Any] = lambda number: None) -> DatasetIteratorIF:
    """The numbers from 0 on; ``read`` is told of each."""
    return InMemoryDatasetIterator(range(n)).map(lambda number: (read(number), number)[1])


def loader(samples: Any, batch_size: int = 4, **options: Any) -> Loader:
    return Loader(samples, batch_size, **{"worker_kind": "threads", "workers": 3, **options})


# ----------------------------------------------------------------------------------- batches, order


def test_batches_are_made_by_several_threads_at_once() -> None:
    together = threading.Barrier(3, timeout=20)

    batches = list(loader(numbers(12), transform=lambda batch: (together.wait(), batch)[1]))

    assert len(batches) == 3


def test_no_more_batches_are_made_ahead_than_asked_for() -> None:
    read: list[int] = []
    iteration = iter(loader(numbers(400, read.append), prefetch=2))

    next(iteration)
    assert until(
        lambda: len(read) >= 6 * 4
    )  # what is handed out is counted as well, until the next one is asked for
    time.sleep(0.05)

    assert max(read) < 6 * 4
    iteration.close()  # type: ignore[attr-defined]


def test_an_idle_thread_keeps_no_batch() -> None:
    kept: list[weakref.ref[Any]] = []

    def transform(batch: Any) -> Any:
        kept.append(weakref.ref(batch))
        return batch

    with loader(numbers(40), transform=transform) as subject:
        for batch in subject:  # noqa: B007  # it is kept, as many a loop does
            pass
        del batch
        assert until(lambda: all(each() is None for each in kept))


def test_jobs_of_a_stopped_iteration_are_dropped_by_kept_threads() -> None:
    with loader(numbers(40)) as subject:
        next(iter(subject))

        np.testing.assert_array_equal(np.concatenate(list(subject)), np.arange(40))


# ------------------------------------------------------------------------------------ how far ahead


@pytest.mark.parametrize(
    ("n_workers", "prefetch", "mebibytes", "expected"),
    [
        (2, 2, [1], [4]),  # as many as were asked for
        (2, 2, [9], [3]),  # each worker has one to make while the consumer is at its own
        (8, 2, [3], [10]),
        (4, 1, [100], [4]),
        (
            2,
            4,
            [16, 16, 1, 16, 1, 1, 0],
            [3, 3, 3, 3, 3, 8, 8],
        ),  # one small batch at the end of an epoch changes nothing
    ],
)
def test_large_batches_are_fewer_but_keep_all_workers_busy(
    n_workers: int, prefetch: int, mebibytes: list[int], expected: list[int]
) -> None:
    workers = ThreadWorkers(None, WorkerOptions(n_workers, prefetch))  # type: ignore[arg-type]
    capacities = [workers.capacity]

    for size in mebibytes:
        workers.observe_size(size << 20)
        capacities.append(workers.capacity)

    assert capacities == [n_workers * prefetch, *expected]


class _CountedAccess(BlocksAccess):
    fixed_columns = True

    def batch(self, positions: Any) -> Any:
        if self.source.torn in positions:
            raise LookupError("not there")
        self.source.requests.append(len(positions))
        return positions


class Counted(InBlocks):
    """The numbers up to 400; ``requests`` are those for columns, and number 250 cannot be read."""

    def __init__(self) -> None:
        super().__init__(400, torn=250)
        self.requests: list[int] = []

    def make_access(self) -> SampleAccess:
        return _CountedAccess(self)


def test_small_batches_share_a_request_and_errors_keep_their_turn() -> None:
    source, received = Counted(), []

    with pytest.raises(LoadingError, match=r"sample 250 .* could not be read"):
        for batch in loader(source, 5):
            received.append(batch)

    np.testing.assert_array_equal(np.concatenate(received), np.arange(250))
    assert max(source.requests) > 5


# ----------------------------------------------------------------------------------- slow and stuck


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """A transform stands still until it is set."""
    made = threading.Event()
    yield made
    made.set()


def test_a_batch_beyond_the_timeout_is_an_error_naming_it(
    gate: threading.Event,
) -> None:
    subject = loader(
        numbers(40), transform=lambda batch: (gate.wait(60), batch)[1], timeout_seconds=0.2
    )

    with pytest.raises(WorkerError, match=r"a worker thread did not make the batch of step 0"):
        list(subject)

    gate.set()
    np.testing.assert_array_equal(np.concatenate(list(subject)), np.arange(40))


# ------------------------------------------------------------------------------------------ the end


IMPORTS = """
import os, sys, threading, time
import numpy as np
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import Loader
numbers = SequenceDatasetIterator([np.arange(400)])
"""


def run(script: str) -> tuple[str, str]:
    return run_python("-c", IMPORTS + textwrap.dedent(script), timeout_seconds=60)


def test_a_stuck_thread_does_not_keep_the_program_from_ending() -> None:
    done = run(
        """
        loader = Loader(numbers, 4, worker_kind="threads", workers=2, transform=lambda batch: time.sleep(1000))
        threading.Timer(0.3, lambda: os.kill(os.getpid(), 2)).start()
        try:
            next(iter(loader))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )

    assert done == ("interrupted\n", "")


def test_the_end_of_python_waits_for_a_batch_being_made() -> None:
    done = run(
        """
        begun = threading.Event()

        def work_on_later_batches(batch):
            if batch[0][0] > 0:
                begun.set()
                time.sleep(1.5)
                print("made", flush=True)
            return batch

        with Loader(numbers, 4, worker_kind="threads", workers=1, transform=work_on_later_batches) as loader:
            next(iter(loader))
            begun.wait()
        """
    )

    assert done == ("made\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_threads_of_its_own() -> None:
    done = run(
        """
        import warnings
        warnings.simplefilter("ignore")
        with Loader(numbers, 4, worker_kind="threads", workers=2) as loader:
            iteration = iter(loader)
            next(iteration)
            child = os.fork()
            if child == 0:
                assert [batch[0][0] for batch in loader] == list(range(0, 400, 4))
                sys.exit(5)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
            assert len(list(iteration)) == 99
        """
    )

    assert done[1] == ""
