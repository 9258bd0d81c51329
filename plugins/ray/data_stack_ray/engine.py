"""Tasks in the workers of a Ray cluster."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from data_stack.distributed.attempts import Failure, pack
from data_stack.exception import ConfigError
from data_stack.factories.engine import PreparationEngine
from data_stack_ray.attempts import attempt_by_ray
from data_stack_ray.session import ray_session

logger = logging.getLogger("data_stack")

Result = TypeVar("Result")

#: How many tasks are in Ray's hands for each processor: one that runs, and one that waits behind it.
_PER_PROCESSOR = 2
_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 10.0


class RayEngine(PreparationEngine):
    """Runs tasks in the workers of Ray, on all nodes of a cluster.

    Ray holds two tasks for each processor that it has at the time, so nodes may join, leave and die. A task that raises, or whose
    worker or node dies, is attempted again, by another worker. Workers need data_stack, this package and the modules of the
    dataset at the same versions; functions and classes of a script or a notebook are sent by value. When the run ends early,
    tasks that are still running are interrupted, and after 5 seconds killed.

    Args:
        address: as for ``ray.init``, such as ``"auto"`` or ``"ray://host:10001"``. None: the Ray that this process is connected
            to, or ``RAY_ADDRESS``, or the Ray that ``ray start`` started on this machine, or a new one, which ends with the run.
        attempts: maximum number of attempts at a task that raises or whose worker dies.
        resources: what a task needs, as for ``ray.remote``: ``{"num_cpus": 2, "memory": 1 << 30}``; None for one processor.

    Raises:
        ConfigError: ``attempts`` is less than 1, or Ray refuses the resources.
    """

    def __init__(self, address: str | None = None, *, attempts: int = 3, resources: Mapping[str, Any] | None = None) -> None:
        if type(attempts) is not int or attempts < 1:
            raise ConfigError(f"attempts must be an integer, at least 1, got {attempts!r:.40}")
        self._address, self.attempts = address, attempts
        options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **(resources or {}), "max_retries": 0}
        try:
            self._task = ray.remote(**options)(attempt_by_ray)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Ray refuses resources={resources!r:.200}: {error!s:.300}") from error

    def __repr__(self) -> str:
        return f"RayEngine({self._address!r}, attempts={self.attempts})"

    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        package = pack(work)
        waiting, failures = deque(tasks), Counter[str]()
        with ray_session(self._address):
            sent = ray.put(package)
            running: dict[Any, str] = {}
            room, looked_at = 0, -_LOOK_SECONDS
            try:
                while waiting or running:
                    if time.monotonic() - looked_at >= _LOOK_SECONDS:
                        room, looked_at = _PER_PROCESSOR * _n_processors(), time.monotonic()
                    while waiting and len(running) < room:
                        name = waiting.popleft()
                        running[self._task.options(name=f"{title}: {name}").remote(sent, tasks[name])] = name
                    done, _ = ray.wait([*running], timeout=_LOOK_SECONDS)
                    for reference in done:
                        name = running.pop(reference)
                        result, failure = _end_of(reference)
                        if failure is None:
                            yield name, result
                            continue
                        failures[name] += 1
                        if failures[name] >= self.attempts:
                            raise failure.error(name, failures[name])
                        logger.warning("%s: attempt %d %s; trying again", name, failures[name], failure.problem)
                        waiting.append(name)
            finally:
                _cancel([*running])


def _n_processors() -> int:
    """Those of all nodes that Ray has now, at least one."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))  # type: ignore[no-untyped-call]  # Ray's


def _end_of(reference: Any) -> tuple[Any, Failure | None]:
    """Result and failure of an attempt that has ended."""
    try:
        result, failure = ray.get(reference)
    except RayError as error:  # its worker or node died, or its result cannot be sent
        return None, Failure(f"ended in Ray: {type(error).__name__}: {error!s:.1000}")
    return result, failure


def _cancel(references: list[Any]) -> None:
    """Interrupt tasks that still run, kill the workers of those that go on, and wait until they have ended."""
    started = time.monotonic()
    while references and (seconds := time.monotonic() - started) < _GRACE_SECONDS:
        for reference in references:
            # Again, as one that arrives while a task starts may be lost. Killing at once has ended the driver, too.
            ray.cancel(reference, force=seconds > _GRACE_SECONDS / 2)
        _, references = ray.wait(references, num_returns=len(references), timeout=0.5, fetch_local=False)
