"""How many batches are made ahead, by their size."""

from __future__ import annotations

import pytest

from data_stack.loader.workers import ThreadWorkers

MEBI = 1 << 20


def workers_of(n_workers: int, prefetch: int) -> ThreadWorkers:
    return ThreadWorkers(None, n_workers, prefetch=prefetch, timeout_seconds=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n_workers", "prefetch", "mebibytes", "expected"),
    [
        (2, 2, 1, 4),  # as many as were asked for
        (2, 2, 9, 3),  # each worker has one to make while the consumer is at its own
        (8, 2, 3, 10),
        (4, 1, 100, 4),
    ],
)
def test_large_batches_are_fewer_but_no_worker_waits_for_the_consumer(
    n_workers: int, prefetch: int, mebibytes: int, expected: int
) -> None:
    ahead = workers_of(n_workers, prefetch)
    assert ahead.capacity == n_workers * prefetch

    ahead._observe_size(mebibytes * MEBI)

    assert ahead.capacity == expected


def test_one_small_batch_at_the_end_of_an_epoch_changes_nothing() -> None:
    ahead = workers_of(2, 4)

    found = []
    for mebibytes in (16, 16, 1, 16, 1, 1, 0):
        ahead._observe_size(mebibytes * MEBI)
        found.append(ahead.capacity)

    assert found == [3, 3, 3, 3, 3, 8, 8]
