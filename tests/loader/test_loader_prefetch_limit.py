"""How many batches are made ahead, by their size."""

from __future__ import annotations

import pytest

from data_stack.loader.workers.workers import PrefetchLimit

MEBI = 1 << 20


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
    ahead = PrefetchLimit(n_workers, prefetch)
    assert ahead.n_batches == n_workers * prefetch

    ahead.observe(mebibytes * MEBI)

    assert ahead.n_batches == expected


def test_one_small_batch_at_the_end_of_an_epoch_changes_nothing() -> None:
    ahead = PrefetchLimit(2, 4)

    found = []
    for mebibytes in (16, 16, 1, 16, 1, 1, 0):
        ahead.observe(mebibytes * MEBI)
        found.append(ahead.n_batches)

    assert found == [3, 3, 3, 3, 3, 8, 8]
