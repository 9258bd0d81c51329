"""The jobs of an iteration: which samples, in which order, and where the loader is behind each."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from data_stack.loader import Plan, Shuffled
from data_stack.loader.schedule import NEVER, Schedule


def schedule(n: int, batch_size: int, *, epoch: int = 0, position: int = 0, end_epoch: int = 2) -> Schedule:
    return Schedule(Shuffled(), 7, lambda _: Plan(n, batch_size), epoch, position, end_epoch)


@given(st.integers(0, 60), st.integers(1, 9), st.data())
def test_from_behind_any_batch_on_the_jobs_are_the_rest_of_them(n: int, batch_size: int, data: st.DataObject) -> None:
    whole = list(schedule(n, batch_size).jobs())
    k = data.draw(st.integers(0, len(whole)))
    epoch, position = (whole[k - 1][1].epoch, whole[k - 1][1].position) if k else (0, 0)

    rest = schedule(n, batch_size, epoch=epoch, position=position)

    assert [job.indices.tolist() for job, _ in rest.jobs()] == [job.indices.tolist() for job, _ in whole[k:]]
    assert rest.n_jobs == len(whole) - k


def test_steps_are_counted_within_their_epoch() -> None:
    jobs = [job for job, _ in schedule(10, 4).jobs()]

    assert [(job.epoch, job.step, job.position) for job in jobs[2:4]] == [(0, 2, 8), (1, 0, 0)]
    assert str(jobs[0]) == f"step 0 of epoch 0 (samples {', '.join(map(str, jobs[0].indices.tolist()))})"


def test_what_never_ends_goes_on_and_on() -> None:
    jobs = schedule(3, 2, end_epoch=NEVER).jobs()

    assert [job.epoch for job, _ in islice(jobs, 5)] == [0, 0, 1, 1, 2]
