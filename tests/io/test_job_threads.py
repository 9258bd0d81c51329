"""Threads that work through a list of jobs."""

from __future__ import annotations

import threading

import pytest

from data_stack.io.job_threads import JobThreads, Stopped


def test_each_job_is_done_once() -> None:
    done = list[int]()

    JobThreads(range(100), done.append, 4).run()

    assert sorted(done) == list(range(100))


def test_no_jobs_are_done_at_once() -> None:
    done = list[int]()

    JobThreads([], done.append, 4).run()

    assert done == []


def test_a_failure_is_raised_and_no_more_jobs_begin() -> None:
    begun = list[int]()

    def work(job: int) -> None:
        begun.append(job)
        if job == 2:
            raise LookupError("job 2")

    with pytest.raises(LookupError, match="job 2"):
        JobThreads(range(100), work, 1).run()

    assert begun == [0, 1, 2]


def test_a_long_job_ends_when_another_one_fails() -> None:
    stopped = threading.Event()
    is_waiting = threading.Event()

    def work(job: str) -> None:
        if job == "fails":
            is_waiting.wait(60)
            raise LookupError
        try:
            while True:
                is_waiting.set()
                threads.check()
        except Stopped:
            stopped.set()
            raise

    threads = JobThreads(["waits", "fails"], work, 2)
    with pytest.raises(LookupError):
        threads.run(patience_seconds=60)

    assert stopped.is_set()


def test_an_interruption_ends_the_jobs() -> None:
    ended = threading.Event()

    def work(job: int) -> None:
        ended.wait(60)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        JobThreads([1], work, 1).run(interrupt, ended.set)

    assert ended.is_set()
