"""How many threads compute in a process, and in one of several workers."""

from __future__ import annotations

import multiprocessing
import os

import pytest
from worker_subjects import Numbers

from data_stack.loader import Loader
from data_stack.util.processors import n_processors, n_threads, n_threads_here


def test_a_process_by_itself_has_all_processors_that_it_may_run_on() -> None:
    assert n_threads() == n_processors() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("n_workers", [1, 3])
def test_worker_threads_share_them(n_workers: int) -> None:
    with Loader(Numbers(8), 4, worker_kind="threads", workers=n_workers, transform=lambda batch: n_threads_here()) as loader:
        found = set(loader)

    assert found == {max(1, n_processors() // n_workers)}
    assert n_threads_here() == n_processors()


def test_a_process_of_multiprocessing_has_one() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(n_threads) == 1
