"""Which tasks an actor of Ray attempts next."""

from __future__ import annotations

import pytest
from data_stack_ray.task_queue import TaskQueue, choose_group_size

from data_stack.engines.attempts import Failure
from data_stack.exception import TaskError

FAILURE = Failure("raised ValueError")


def test_groups_are_taken_in_order_and_end_with_the_tasks() -> None:
    queue = TaskQueue(["a", "b", "c"], 3)

    assert [queue.take(2), queue.take(2), len(queue)] == [["a", "b"], ["c"], 0]


def test_tasks_of_a_group_whose_actor_died_come_alone() -> None:
    queue = TaskQueue(["a", "b", "c", "d"], 3)

    queue.note_death(queue.take(2), FAILURE)

    assert [queue.take(9) for _ in range(3)] == [["c", "d"], ["a"], ["b"]]


def test_a_task_that_fails_comes_again_until_its_last_attempt() -> None:
    queue = TaskQueue(["a", "b"], 2)
    queue.note_failure(queue.take(1)[0], FAILURE)
    assert queue.take(9) == ["b", "a"]

    with pytest.raises(TaskError) as caught:
        queue.note_death(["a"], FAILURE)

    assert (caught.value.task, caught.value.n_attempts) == ("a", 2)


def test_actors_that_never_start_end_the_run() -> None:
    queue = TaskQueue(["a", "b"], 2)
    queue.note_death([], FAILURE)
    queue.note_death([], FAILURE)

    with pytest.raises(TaskError):
        queue.note_death([], FAILURE)


@pytest.mark.parametrize(
    ("n_tasks", "seconds", "n_waiting", "size"),
    [
        (0, 1.0, 100, 1),  # the actor has just started
        (1, 0.001, 1000, 100),  # as many as take a tenth of a second
        (1, 0.001, 80, 20),  # each of four actors gets its part
        (1, 5.0, 100, 1),
        (10, 0.05, 1, 1),
    ],
)
def test_quick_tasks_come_in_groups(
    n_tasks: int, seconds: float, n_waiting: int, size: int
) -> None:
    assert choose_group_size(n_tasks, seconds, n_waiting=n_waiting, n_actors=4) == size


def test_a_call_too_quick_for_the_clock_has_a_size() -> None:
    assert choose_group_size(1, 0.0, n_waiting=40, n_actors=4) == 10
