"""The tasks of a run that wait for an attempt."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable

from data_stack.engines.attempts import Failure

logger = logging.getLogger("data_stack")

#: What a group of quick tasks takes. Ray needs a millisecond or two for each call of an actor.
_GROUP_SECONDS = 0.1

#: What a call of an actor takes at least.
_MIN_CALL_SECONDS = 0.0005


class TaskQueue:
    """The names of the tasks that wait for an attempt, and how often each has failed.

    Args:
        names: all tasks.
        max_attempts: maximum number of attempts at a task.
    """

    _waiting: deque[str]
    #: Tasks of groups whose actor died. One of them may have killed it, so they are attempted one
    #: by one: then a death tells of one task only.
    _suspects: set[str]
    _n_failures: Counter[str]
    _max_attempts: int

    def __init__(self, names: Iterable[str], max_attempts: int) -> None:
        self._waiting = deque(names)
        self._suspects = set()
        self._n_failures = Counter()
        self._max_attempts = max_attempts

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, max_tasks: int) -> list[str]:
        """Remove the first task, and those behind it up to ``max_tasks``. A suspect comes alone."""
        names = [self._waiting.popleft()]
        if names[0] in self._suspects:
            return names
        while self._waiting and len(names) < max_tasks:
            if self._waiting[0] in self._suspects:
                break
            names.append(self._waiting.popleft())
        return names

    def note_failure(self, name: str, failure: Failure) -> None:
        """Count a failed attempt, and append the task again.

        Raises:
            TaskError: it was the last attempt.
        """
        self._n_failures[name] += 1
        n_failures = self._n_failures[name]
        if n_failures >= self._max_attempts:
            raise failure.error(name, n_failures)
        logger.warning("%s: attempt %d %s; trying again", name, n_failures, failure.problem)
        self._waiting.append(name)

    def note_death(self, names: list[str], failure: Failure) -> None:
        """Count the death of an actor.

        Args:
            names: the tasks that the actor attempted; empty if the actor did not start.
            failure: how it died.

        Raises:
            TaskError: it was the last attempt at a task.
        """
        n_attempted = len(names)
        if n_attempted == 1:
            self.note_failure(names[0], failure)
        elif n_attempted > 1:
            # Nobody knows which of the tasks killed the actor.
            self._suspects.update(names)
            self._waiting.extend(names)
        elif self._waiting:
            # The actor did not start. The death counts as a failure of any task, as actors that
            # never start must not be replaced for ever.
            self.note_failure(self._waiting.popleft(), failure)


def choose_group_size(n_tasks: int, seconds: float, *, n_waiting: int, n_actors: int) -> int:
    """Return how many tasks an actor should attempt in its next call.

    Args:
        n_tasks: number of tasks of its last call; 0: it has just started.
        seconds: how long that call took.
        n_waiting: number of tasks that wait; each actor gets its part of them at most.
        n_actors: number of actors.
    """
    # A coarse clock may not have moved during a quick call.
    measured_seconds = max(seconds, _MIN_CALL_SECONDS)
    n_quick_tasks = int(_GROUP_SECONDS * n_tasks / measured_seconds)
    n_fair_tasks = n_waiting // n_actors
    return max(1, min(n_quick_tasks, n_fair_tasks))
