"""Tasks in actors on a Ray cluster."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from data_stack.distributed.attempts import Failure, pack
from data_stack.exception import ConfigError
from data_stack.factories.engine import PreparationEngine
from data_stack_ray.attempts import Attempts
from data_stack_ray.session import ray_session

logger = logging.getLogger("data_stack")

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 10.0
#: Tasks that take less on average wait in their actor, one each: Ray takes a millisecond or two to send the next one.
_QUICK_SECONDS = 0.1

#: What an actor does, and the task that waits behind it: what it will return, and the task; None: it starts.
_Work = deque[tuple[Any, str | None]]


class RayEngine(PreparationEngine):
    """Runs tasks in actors of Ray, on all nodes of a cluster.

    There is an actor for each processor that Ray has at the time, as long as tasks are waiting, so nodes may join, leave and die.
    A task that raises, or whose actor or node dies, is attempted again, by another actor. Actors need data_stack, this package
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

    def __init__(self, address: str | None = None, *, attempts: int = 3, resources: Mapping[str, Any] | None = None) -> None:
        if type(attempts) is not int or attempts < 1:
            raise ConfigError(f"attempts must be an integer, at least 1, got {attempts!r:.40}")
        self._address, self.attempts = address, attempts
        options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **(resources or {}), "max_restarts": 0, "max_task_retries": 0}
        self._n_cpus = options["num_cpus"] or 1
        try:
            self._actors: Any = ray.remote(**options)(Attempts)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Ray refuses resources={resources!r:.200}: {error!s:.300}") from error

    def __repr__(self) -> str:
        return f"RayEngine({self._address!r}, attempts={self.attempts})"

    def run(self, work: Callable[[Any], Any], tasks: Mapping[str, Any], *, title: str) -> Generator[tuple[str, Any], None, None]:
        package = pack(work)
        waiting, failures, n_done = deque(tasks), Counter[str](), 0
        with ray_session(self._address):
            sent = ray.put(package)
            actors: dict[Any, _Work] = {}  # by actor
            started, n_wanted, looked_at = time.monotonic(), 0, -_LOOK_SECONDS
            try:
                while waiting or any(name is not None for work in actors.values() for _, name in work):
                    if time.monotonic() - looked_at >= _LOOK_SECONDS:
                        n_wanted, looked_at = self._n_wanted(), time.monotonic()
                    n_starting = sum(work[0][1] is None for work in actors.values())
                    for _ in range(min(n_wanted - len(actors), len(waiting) - n_starting)):
                        actor = self._actors.remote()
                        actors[actor] = deque([(actor.wait.remote(), None)])
                    of_actors = {work[0][0]: actor for actor, work in actors.items()}
                    for reference in ray.wait([*of_actors], timeout=_LOOK_SECONDS)[0]:
                        actor = of_actors[reference]
                        _, name = actors[actor].popleft()
                        result, failure = _end_of(reference)
                        n_done += name is not None
                        if failure is None:
                            is_quick = (time.monotonic() - started) * n_wanted < _QUICK_SECONDS * n_done
                            while waiting and len(actors[actor]) < 1 + is_quick:
                                following = waiting.popleft()
                                attempt = actor.attempt.options(name=f"{title}: {following}")
                                actors[actor].append((attempt.remote(sent, tasks[following]), following))
                        else:
                            waiting.extendleft(following for _, following in actors[actor] if following is not None)
                            actors[actor].clear()
                        if not actors[actor]:
                            ray.kill(actor)
                            del actors[actor]
                        if failure is None and name is not None:
                            yield name, result
                        elif failure is not None and (name is not None or waiting):
                            name = waiting.popleft() if name is None else name  # of an actor that does not start: any task
                            failures[name] += 1
                            if failures[name] >= self.attempts:
                                raise failure.error(name, failures[name])
                            logger.warning("%s: attempt %d %s; trying again", name, failures[name], failure.problem)
                            waiting.append(name)
            finally:
                _kill(actors)

    def _n_wanted(self) -> int:
        """How many actors the processors suffice for that Ray has now, on all nodes; at least one."""
        n_cpus = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call]  # Ray's
        return max(1, int(n_cpus / self._n_cpus))


def _end_of(reference: Any) -> tuple[Any, Failure | None]:
    """Result and failure of what an actor has done; None of its start."""
    try:
        return ray.get(reference) or (None, None)
    except RayError as error:  # the actor or its node died, or its result cannot be sent
        return None, Failure(f"ended in Ray: {type(error).__name__}: {error!s:.1000}")


def _kill(actors: Mapping[Any, _Work]) -> None:
    """Kill actors, and wait until Ray has lost them. Cancelling their tasks now and then ends this process (Ray 2.60)."""
    for actor in actors:
        ray.kill(actor)
    if references := [reference for work in actors.values() for reference, _ in work]:
        ray.wait(references, num_returns=len(references), timeout=_GRACE_SECONDS, fetch_local=False)
