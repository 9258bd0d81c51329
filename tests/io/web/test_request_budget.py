"""The time and bytes of a request, on a clock that the tests set."""

from __future__ import annotations

import math

import pytest

from data_stack.io.web import WebError
from data_stack.io.web.request_budget import RequestBudget


class SetTime:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> SetTime:
    return SetTime()


@pytest.fixture
def budget(time: SetTime) -> RequestBudget:
    return RequestBudget(10.0, 1000.0, math.inf, now=time)


def seconds_until_overdue(budget: RequestBudget, time: SetTime) -> int:
    """Move the time in seconds until the server is overdue."""
    for n_seconds in range(1, 100):
        time.seconds += 1.0
        try:
            budget.tick(0)
        except WebError:
            return n_seconds
    raise AssertionError("the server is never overdue")


def test_a_header_must_arrive_within_the_timeout(budget: RequestBudget, time: SetTime) -> None:
    assert seconds_until_overdue(budget, time) == 10


def test_an_overdue_server_may_be_asked_again(budget: RequestBudget, time: SetTime) -> None:
    time.seconds += 10.0

    with pytest.raises(WebError, match="no answer within 10 s") as raised:
        budget.tick(0)

    assert raised.value.transient


def test_a_deadline_comes_before_the_timeout(time: SetTime) -> None:
    budget = RequestBudget(10.0, 1000.0, time.seconds + 3.0, now=time)

    assert seconds_until_overdue(budget, time) == 3


def test_bytes_of_a_header_earn_no_time(budget: RequestBudget, time: SetTime) -> None:
    budget.tick(5000)

    assert seconds_until_overdue(budget, time) == 10


def test_bytes_of_a_body_earn_time_at_the_minimal_rate(
    budget: RequestBudget, time: SetTime
) -> None:
    budget.begin_body(is_chunked=False)
    time.seconds += 9.0
    budget.tick(4000)

    assert seconds_until_overdue(budget, time) == 5


def test_bytes_earn_no_more_than_the_timeout(budget: RequestBudget, time: SetTime) -> None:
    budget.begin_body(is_chunked=False)
    budget.tick(1_000_000)

    assert seconds_until_overdue(budget, time) == 10


def test_a_pause_of_the_caller_is_not_the_servers(budget: RequestBudget, time: SetTime) -> None:
    with budget.paused():
        time.seconds += 60.0

    assert seconds_until_overdue(budget, time) == 10


def test_a_wait_is_short_enough_to_be_cut(budget: RequestBudget) -> None:
    assert budget.tick(0) <= 0.1

    budget.cut()

    with pytest.raises(WebError, match="interrupted"):
        budget.tick(0)


def test_too_many_bytes_before_the_content_are_refused(budget: RequestBudget) -> None:
    budget.tick(8 << 20)

    with pytest.raises(WebError, match="before the content"):
        budget.tick(1)


@pytest.mark.parametrize("n_content_bytes", [0, 1 << 20])
def test_framing_may_grow_with_the_content(budget: RequestBudget, n_content_bytes: int) -> None:
    budget.begin_body(is_chunked=True)
    budget.note_content(n_content_bytes)
    budget.tick((4 << 20) + 8 * n_content_bytes)

    with pytest.raises(WebError, match="around the content"):
        budget.tick(1)
