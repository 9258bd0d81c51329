"""What changes while a loader is used: where it is, the iteration that is under way, its workers and its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from data_stack.loader.epoch_position import EpochPosition
from data_stack.loader.iteration import Iteration
from data_stack.loader.plan import Plan
from data_stack.loader.process_group import group_shard
from data_stack.loader.statistics import Counters
from data_stack.loader.workers.workers import Workers
from data_stack.util.forks import call_in_forks
from data_stack.util.logger import logger

__all__ = ["Session"]


class Session:
    """One for a loader and all loaders that :meth:`Loader.converted <data_stack.loader.loader.Loader.converted>` makes of it.

    It pickles without what runs.

    Args:
        plan: which samples each batch of an epoch has.
        seed: of the order.
        knows_shard: whether the plan's rank and world were given.
        make_workers: gives workers that are not running yet.

    Attributes:
        place: where the consumer is.
        iteration: the one that is under way, if any.
        counters: what it does, or the last one did.
        fingerprint: of the stack of iterators, once it has been asked for.
    """

    def __init__(self, plan: Plan, seed: int, knows_shard: bool, make_workers: Callable[[], Workers]) -> None:
        self.plan, self.seed, self.knows_shard = plan, seed, knows_shard
        self.place = EpochPosition()
        self.iteration: Iteration | None = None
        self.counters = Counters()
        self.fingerprint: str | None = None
        self._make_workers = make_workers
        self._workers: Workers | None = None
        self._inherited: Workers | None = None
        self._keeps_workers = False
        call_in_forks(self._begin_in_fork)

    @property
    def workers(self) -> Workers | None:
        """Those of the current or last iteration."""
        return self._workers

    def running_workers(self) -> Workers:
        """The workers of this process."""
        if self._workers is None:
            self._workers = self._make_workers()
        return self._workers

    def keep_workers(self) -> None:
        """Start the workers, and let them run until :meth:`let_go_of_workers`."""
        self._keeps_workers = True
        self.running_workers().start()

    def let_go_of_workers(self) -> None:
        """Let workers end with the next iteration."""
        self._keeps_workers = False

    def find_shard(self) -> None:
        """Take the shard of the process group, if none was given and there is one by now."""
        if self.knows_shard or self.iteration is not None or (shard := group_shard()) is None:
            return
        self.knows_shard = True
        rank, world = shard
        if world > 1:
            self.plan = replace(self.plan, rank=rank, world=world)
            logger.info(
                "a loader was given no shard: it takes (%d, %d), the rank and world of torch.distributed's group, so this "
                "process gets its part of the samples; Loader(…, shard=(0, 1)) gives it all of them",
                *shard,
            )

    def end_iteration(self) -> None:
        """End the iteration that is under way, if there is one."""
        if self.iteration is not None:
            self.iteration.end()

    def iteration_is_over(self, iteration: Iteration) -> None:
        """Count no further, and let go of the workers, or of what they were to make."""
        self.counters.end(self._workers)
        if self.iteration is iteration:
            self.iteration = None
        if self._workers is not None and self._keeps_workers:
            self._workers.cancel()
        else:
            self._close_workers()

    def close(self) -> None:
        """End the iteration that is under way, and all workers."""
        self.end_iteration()
        self._close_workers()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_workers": None, "_inherited": None, "iteration": None, "_keeps_workers": False, "counters": Counters()}
        return {**self.__dict__, **own, "place": replace(self.place)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        call_in_forks(self._begin_in_fork)

    def _begin_in_fork(self) -> None:
        self._inherited, self._workers = self._workers, None  # the parent's, which are not to be let go of here

    def _close_workers(self) -> None:
        if self._workers is not None:
            self._workers.close()  # they are kept, with what they know of the batches, for the next iteration to start them
