"""An engine that runs tasks in actors on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import ray

from data_stack.engines import PreparationEngine
from data_stack.engines.attempts import pack
from data_stack.exception import ConfigError
from data_stack_ray.actor_run import ActorRun
from data_stack_ray.attempts import Attempts
from data_stack_ray.session import ray_session


class RayEngine(PreparationEngine):
    """Runs tasks in actors of Ray, on all nodes of a cluster.

    There is an actor for each processor that Ray has at the time, as long as tasks are waiting, so
    nodes may join, leave and die. A task that raises, or whose actor or node dies, is attempted
    again, by another actor. Quick tasks go to an actor in groups; if it dies, those of the group
    are attempted one by one, and only that counts. Actors need data_stack, this package and the
    modules of the dataset at the same versions; functions and classes of a script or a notebook are
    sent by value. When the run ends early, actors that are at work are killed.

    Args:
        address: as for ``ray.init``, such as ``"auto"`` or ``"ray://host:10001"``. None: the Ray
            that this process is connected to, or ``RAY_ADDRESS``, or the Ray that ``ray start``
            started on this machine, or a new one, which ends with the run.
        attempts: maximum number of attempts at a task that raises or whose actor dies.
        resources: what a task needs, as for ``ray.remote``: ``{"num_cpus": 2, "memory": 1 << 30}``;
            None for one processor.

    Attributes:
        attempts: maximum number of attempts at a task.

    Raises:
        ConfigError: ``attempts`` is less than 1, or Ray refuses the resources.
    """

    attempts: int
    _address: str | None
    #: Ray's class of actors.
    _actor_class: Any
    #: Number of processors that an actor needs.
    _n_cpus_of_task: float

    def __init__(
        self,
        address: str | None = None,
        *,
        attempts: int = 3,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        if type(attempts) is not int or attempts < 1:
            raise ConfigError(f"attempts must be an integer, at least 1, got {attempts!r:.40}")
        self._address = address
        self.attempts = attempts

        options: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        options.update(resources or {})
        # Not Ray, but the engine attempts tasks again, as it counts the attempts.
        options["max_restarts"] = 0
        options["max_task_retries"] = 0
        # Tasks may need no processor, num_cpus=0 or None: then each processor has an actor.
        self._n_cpus_of_task = options["num_cpus"] or 1
        try:
            self._actor_class = ray.remote(**options)(Attempts)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"Ray refuses resources={resources!r:.200}: {error!s:.300}"
            ) from error

    def __repr__(self) -> str:
        return f"RayEngine({self._address!r}, attempts={self.attempts})"

    def run(
        self, work: Callable[[Any], Any], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Any], None, None]:
        """Call ``work(task)`` for each of the tasks; see :meth:`PreparationEngine.run`."""
        packed_work = pack(work)
        with ray_session(self._address):
            run = ActorRun(
                self._actor_class,
                self._n_cpus_of_task,
                packed_work,
                tasks,
                title=title,
                max_attempts=self.attempts,
            )
            try:
                yield from run.iterate_results()
            finally:
                run.kill_actors()
