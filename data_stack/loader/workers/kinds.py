"""Makes workers of the kind that is asked for."""

from __future__ import annotations

from typing import Any, Literal

from data_stack.exception import ConfigError
from data_stack.loader.jobs import BatchMaker
from data_stack.loader.workers.automatic import AutomaticWorkers
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.threads import ThreadWorkers
from data_stack.loader.workers.workers import Workers
from data_stack.util.processors import n_processors

__all__ = ["WorkerKind", "workers_of_kind"]

WorkerKind = Literal["auto", "inline", "threads", "processes"]


def workers_of_kind(kind: WorkerKind, maker: BatchMaker, n_workers: int | None, **options: Any) -> Workers:
    """Workers that are not running yet.

    Args:
        kind: of the workers.
        maker: makes the batches.
        n_workers: threads or processes; None for as many as this process has processors, 0 for inline.
        options: ``prefetch`` and ``timeout_seconds`` of those of threads and processes.

    Raises:
        ConfigError: there is no such kind, or it does not go with so many workers.
    """
    if kind not in ("auto", "inline", "threads", "processes"):
        raise ConfigError(f"worker_kind must be 'auto', 'inline', 'threads' or 'processes', got {kind!r:.80}")
    if kind == "inline" and n_workers:
        raise ConfigError(f"inline means no workers, got workers={n_workers}; ask for threads or processes")
    if kind in ("threads", "processes") and n_workers == 0:
        raise ConfigError(f"workers=0 means that there are no {kind}; ask for worker_kind='inline', or for workers")
    if kind == "inline" or n_workers == 0:
        return InlineWorkers(maker)
    number = n_processors() if n_workers is None else n_workers
    if kind == "auto":

        def make_workers(chosen: Any) -> Workers:
            return workers_of_kind(chosen, maker, 0 if chosen == "inline" else number, **options)

        return AutomaticWorkers(maker, number, make_workers)
    if kind == "threads":
        return ThreadWorkers(maker, number, **options)
    from data_stack.loader.workers.processes import ProcessWorkers  # needs cloudpickle, which takes 15 ms

    return ProcessWorkers(maker, number, **options)
