"""A run of tasks in actors of Ray."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from data_stack.engines.attempts import Failure
from data_stack_ray.task_queue import TaskQueue, choose_group_size

#: How often Ray is asked for its processors, and how long a wait for actors takes at most.
_CHECK_SECONDS = 1.0

#: How long actors that are killed may take to end.
_GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an actor that has not returned yet.

    Attributes:
        actor: the actor.
        names: the tasks that the actor attempts; empty while the actor starts.
        sent_at: when it was called, in seconds of the monotonic clock.
    """

    actor: Any
    names: list[str]
    sent_at: float


class ActorRun:
    """Attempts tasks in actors: as many as there are processors, as long as tasks wait.

    Args:
        actor_class: Ray's class of actors, of :class:`data_stack_ray.attempts.Attempts`.
        n_cpus_of_task: number of processors that an actor needs.
        packed_work: the function of the tasks, see :func:`data_stack.engines.attempts.pack`.
        tasks: the arguments of the tasks, by name.
        title: the name of the run in Ray's interface.
        max_attempts: maximum number of attempts at a task.
    """

    _actor_class: Any
    _n_cpus_of_task: float
    #: Ray's reference to the packed function.
    _work: Any
    _tasks: Mapping[str, Any]
    _title: str
    _queue: TaskQueue
    #: The call of each actor, by Ray's reference to what it will return.
    _calls: dict[Any, _Call]
    #: The number of actors that Ray's processors suffice for. It changes as nodes join and leave.
    _max_actors: int
    #: When that number was found out, in seconds of the monotonic clock.
    _counted_at: float

    def __init__(
        self,
        actor_class: Any,
        n_cpus_of_task: float,
        packed_work: bytes,
        tasks: Mapping[str, Any],
        *,
        title: str,
        max_attempts: int,
    ) -> None:
        self._actor_class = actor_class
        self._n_cpus_of_task = n_cpus_of_task
        self._work = ray.put(packed_work)
        self._tasks = tasks
        self._title = title
        self._queue = TaskQueue(tasks, max_attempts)
        self._calls = {}
        self._max_actors = self._count_processors()
        self._counted_at = time.monotonic()

    def iterate_results(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the result of each task, in the order in which they end.

        Raises:
            TaskError: a task has failed too often.
        """
        while self._queue or self._is_attempting():
            self._start_actors()
            ended, _ = ray.wait(list(self._calls), timeout=_CHECK_SECONDS)
            for reference in ended:
                yield from self._end_call(reference)

    def _is_attempting(self) -> bool:
        """Return whether an actor attempts tasks at the moment."""
        return any(call.names for call in self._calls.values())

    def kill_actors(self) -> None:
        """Kill all actors, and wait until Ray has lost them."""
        # Cancelling their tasks instead ends this process now and then (Ray 2.60).
        for call in self._calls.values():
            ray.kill(call.actor)
        if self._calls:
            references = list(self._calls)
            ray.wait(
                references, num_returns=len(references), timeout=_GRACE_SECONDS, fetch_local=False
            )

    def _start_actors(self) -> None:
        """Start actors for waiting tasks, up to the number of processors."""
        if time.monotonic() - self._counted_at >= _CHECK_SECONDS:
            self._max_actors = self._count_processors()
            self._counted_at = time.monotonic()
        n_free = self._max_actors - len(self._calls)
        starting_calls = [call for call in self._calls.values() if not call.names]
        n_needed = len(self._queue) - len(starting_calls)
        for _ in range(min(n_free, n_needed)):
            actor = self._actor_class.remote()
            self._calls[actor.wait.remote()] = _Call(actor, [], time.monotonic())

    def _count_processors(self) -> int:
        """Return for how many actors the processors of all nodes suffice; at least one."""
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray's
        return max(1, int(resources.get("CPU", 1) / self._n_cpus_of_task))

    def _end_call(self, reference: Any) -> Iterator[tuple[str, Any]]:
        """Yield the results of a call that has ended, and let its actor go on.

        Raises:
            TaskError: a task has failed too often.
        """
        call = self._calls.pop(reference)
        try:
            outcomes = ray.get(reference)
        except RayError as error:  # the actor or its node died, or its results cannot be sent
            ray.kill(call.actor)
            death = Failure(f"ended in Ray: {type(error).__name__}: {error!s:.1000}")
            self._queue.note_death(call.names, death)
            return

        # The actor works while the caller uses the results.
        if self._queue:
            self._call_again(call)
        else:
            ray.kill(call.actor)

        if not call.names:
            return
        for name, (result, failure) in zip(call.names, outcomes, strict=True):
            if failure is None:
                yield name, result
            else:
                self._queue.note_failure(name, failure)

    def _call_again(self, call: _Call) -> None:
        """Send the next tasks to the actor of a call that has ended."""
        max_tasks = choose_group_size(
            len(call.names),
            time.monotonic() - call.sent_at,
            n_waiting=len(self._queue),
            n_actors=self._max_actors,
        )
        names = self._queue.take(max_tasks)
        arguments = [self._tasks[name] for name in names]
        attempts = call.actor.attempt.options(name=f"{self._title}: {names[0]}")
        reference = attempts.remote(self._work, arguments)
        self._calls[reference] = _Call(call.actor, names, time.monotonic())
