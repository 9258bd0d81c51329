"""Tasks in actors on a Ray cluster."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from data_stack.engines import PreparationEngine
from data_stack.engines.attempts import Failure, pack
from data_stack.exception import ConfigError
from data_stack_ray.attempts import Attempts
from data_stack_ray.session import ray_session

logger = logging.getLogger("data_stack")

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 10.0
#: What a group of quick tasks takes, which an actor attempts in one call.
_GROUP_SECONDS = 0.1


class RayEngine(PreparationEngine):
    """Runs tasks in actors of Ray, on all nodes of a cluster.

    There is an actor for each processor that Ray has at the time, as long as tasks are waiting, so nodes may join, leave and die.
    A task that raises, or whose actor or node dies, is attempted again, by another actor. Quick tasks go to an actor in groups;
    if it dies, those of the group are attempted one by one, and only that counts. Actors need data_stack, this package
    and the modules of the dataset at the same versions; functions and classes of a script or a notebook are sent by value. When
    the run ends early, actors that are at work are killed.

    Args:
        address: as for ``ray.init``, such as ``"auto"`` or ``"ray://host:10001"``. None: the Ray that this process is connected
            to, or ``RAY_ADDRESS``, or the Ray that ``ray start`` started on this machine, or a new one, which ends with the run.
        attempts: maximum number of attempts at a task that raises or whose actor dies.
        resources: what a task needs, as for ``ray.remote``: ``{"num_cpus": 2, "memory": 1 << 30}``; None for one processor.

    Raises:
        ConfigError: ``attempts`` is less than 1, or Ray refuses the resources.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        attempts: int = 3,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        if type(attempts) is not int or attempts < 1:
            raise ConfigError(f"attempts must be an integer, at least 1, got {attempts!r:.40}")
        self._address, self.attempts = address, attempts
        options = {
            "num_cpus": 1,
            "scheduling_strategy": "SPREAD",
            **(resources or {}),
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        self._n_cpus = options["num_cpus"] or 1
        try:
            self._actors: Any = ray.remote(**options)(Attempts)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"Ray refuses resources={resources!r:.200}: {error!s:.300}"
            ) from error

    def __repr__(self) -> str:
        return f"RayEngine({self._address!r}, attempts={self.attempts})"

    def run(
        self, work: Callable[[Any], Any], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Any], None, None]:
        package = pack(work)
        waiting, suspects, failures = deque(tasks), set[str](), Counter[str]()
        with ray_session(self._address):
            sent = ray.put(package)
            groups: dict[Any, _Group] = {}  # by what Ray will return; each has an actor of its own
            n_wanted, looked_at = 0, -_LOOK_SECONDS
            try:
                while waiting or any(group.names for group in groups.values()):
                    if time.monotonic() - looked_at >= _LOOK_SECONDS:
                        n_wanted, looked_at = self._n_wanted(), time.monotonic()
                    n_starting = sum(not group.names for group in groups.values())
                    for _ in range(min(n_wanted - len(groups), len(waiting) - n_starting)):
                        actor = self._actors.remote()
                        groups[actor.wait.remote()] = _Group(actor, [])
                    for reference in ray.wait([*groups], timeout=_LOOK_SECONDS)[0]:
                        group = groups.pop(reference)
                        results, death = _end_of(reference)
                        if death is None and waiting:
                            names = _take(
                                waiting, min(group.n_next(), len(waiting) // n_wanted), suspects
                            )
                            attempts = group.actor.attempt.options(name=f"{title}: {names[0]}")
                            groups[attempts.remote(sent, [tasks[name] for name in names])] = _Group(
                                group.actor, names
                            )
                        else:
                            ray.kill(group.actor)
                        if death is not None and len(group.names) > 1:
                            suspects.update(group.names)
                            waiting.extend(group.names)
                        elif death is not None and (group.names or waiting):
                            group.names = group.names or [
                                waiting.popleft()
                            ]  # of an actor that does not start: any task
                            results = [(None, death)]
                        for name, (result, failure) in zip(group.names, results, strict=False):
                            if failure is None:
                                yield name, result
                                continue
                            failures[name] += 1
                            if failures[name] >= self.attempts:
                                raise failure.error(name, failures[name])
                            logger.warning(
                                "%s: attempt %d %s; trying again",
                                name,
                                failures[name],
                                failure.problem,
                            )
                            waiting.append(name)
            finally:
                _kill(groups)

    def _n_wanted(self) -> int:
        """How many actors the processors suffice for that Ray has now, on all nodes; at least one."""
        n_cpus = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call]  # Ray's
        return max(1, int(n_cpus / self._n_cpus))


@dataclass
class _Group:
    """Tasks that an actor attempts in one call; none: it starts."""

    actor: Any
    names: list[str]
    sent_at: float = field(default_factory=time.monotonic)

    def n_next(self) -> int:
        """How many tasks like these take a moment together: Ray takes a millisecond or two for each call."""
        return int(_GROUP_SECONDS * len(self.names) / (time.monotonic() - self.sent_at))


def _take(waiting: deque[str], n_most: int, suspects: Set[str]) -> list[str]:
    """The first waiting task, and those behind it up to ``n_most``; a suspect comes alone, as its death tells of itself only."""
    names = [waiting.popleft()]
    while len(names) < n_most and not suspects & {names[0], waiting[0]}:
        names.append(waiting.popleft())
    return names


def _end_of(reference: Any) -> tuple[list[tuple[Any, Failure | None]], Failure | None]:
    """Results and failures of a group's tasks, and how the group died, or None."""
    try:
        return ray.get(reference) or [], None
    except RayError as error:  # the actor or its node died, or its results cannot be sent
        return [], Failure(f"ended in Ray: {type(error).__name__}: {error!s:.1000}")


def _kill(groups: Mapping[Any, _Group]) -> None:
    """Kill actors, and wait until Ray has lost them. Cancelling their tasks now and then ends this process (Ray 2.60)."""
    for group in groups.values():
        ray.kill(group.actor)
    if groups:
        ray.wait([*groups], num_returns=len(groups), timeout=_GRACE_SECONDS, fetch_local=False)
