"""The jobs of an iteration: how the order is asked for their samples, and which places follow."""

from __future__ import annotations

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.loader import InOrder, Plan
from data_stack.loader.schedule import Schedule


class _RecordingOrder(InOrder):
    """The order of the iterator, which records how many positions each request has."""

    request_sizes: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.request_sizes = []

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        self.request_sizes.append(len(positions))
        return super().indices(positions, n_samples, seed, epoch)


IN_ORDER = InOrder()


def make_schedule(
    plan: Plan, *, position: int = 0, end_epoch: int = 1, order: InOrder = IN_ORDER
) -> Schedule:
    return Schedule(
        order=order,
        seed=7,
        plan_of=lambda epoch: plan,
        epoch=0,
        position=position,
        end_epoch=end_epoch,
    )


def test_the_first_batch_does_not_wait_for_others() -> None:
    order = _RecordingOrder()

    next(make_schedule(Plan(100, 10), order=order).jobs())

    assert order.request_sizes == [10]


def test_later_batches_share_requests() -> None:
    order = _RecordingOrder()

    jobs = list(make_schedule(Plan(95, 10), end_epoch=2, order=order).jobs())

    assert order.request_sizes == [10, 85, 95]
    assert [len(job.indices) for job in jobs] == [*[10] * 9, 5, *[10] * 9, 5]


def test_a_large_batch_is_a_request_of_its_own() -> None:
    order = _RecordingOrder()

    list(make_schedule(Plan(100_000, 40_000), order=order).jobs())

    assert order.request_sizes == [40_000, 40_000, 20_000]


def test_each_job_leads_to_the_place_of_the_next_one() -> None:
    jobs = list(make_schedule(Plan(25, 10), end_epoch=2).jobs())

    places = [(job.epoch, job.position) for job in jobs]
    assert [job.place_after for job in jobs] == [*places[1:], (2, 0)]


def test_jobs_continue_from_a_position() -> None:
    jobs = list(make_schedule(Plan(25, 10), position=15).jobs())

    assert [job.indices.tolist() for job in jobs] == [list(range(15, 25))]
    assert [job.place_after for job in jobs] == [(1, 0)]


def test_the_number_of_jobs_counts_what_remains() -> None:
    schedule = make_schedule(Plan(25, 10), position=15, end_epoch=3)

    assert schedule.n_jobs == len(list(schedule.jobs())) == 7
