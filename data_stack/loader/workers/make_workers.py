"""Makes the workers that the arguments of a loader ask for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

from data_stack.exception import ConfigError
from data_stack.loader.batch_maker import BatchMaker
from data_stack.loader.workers.automatic import AutomaticWorkers
from data_stack.loader.workers.base import WorkerKind, WorkerOptions, Workers
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.threads import ThreadWorkers
from data_stack.util.executor import n_processors

#: The maximum size of the arrays that "auto" sends to processes to try them.
_MAX_BYTES_SENT = 4 << 30


def make_workers(
    maker: BatchMaker,
    kind: WorkerKind,
    *,
    n_workers: int | None,
    prefetch: int,
    timeout_seconds: float | None,
    compares_batches: bool = True,
) -> Workers:
    """Make workers, which do not run yet.

    Args:
        maker: makes the batches.
        kind: the kind of the workers.
        n_workers: the number of threads or processes; None for one per processor, 0 for inline.
        prefetch: the maximum number of batches that each thread or process makes ahead.
        timeout_seconds: how long to wait for a batch; None for as long as its worker lives.
        compares_batches: whether to compare the first batch of processes with that of this process.

    Raises:
        ConfigError: the kind is unknown, or does not fit this number of workers.
    """
    _check_kind(kind, n_workers)
    if kind == "inline" or n_workers == 0:
        return InlineWorkers(maker)

    if n_workers is None:
        n_workers = n_processors()
    if timeout_seconds is None:
        timeout_seconds = math.inf
    options = WorkerOptions(
        n_workers=n_workers,
        prefetch=prefetch,
        timeout_seconds=timeout_seconds,
        compares_batches=compares_batches,
    )
    if kind in ("threads", "processes"):
        return make_prefetching_workers(maker, kind, options)

    trial_options = replace(options, max_bytes_sent=_MAX_BYTES_SENT)
    return AutomaticWorkers(
        maker,
        options.n_workers,
        lambda chosen_kind: make_prefetching_workers(maker, chosen_kind, trial_options),
        with_processes=kind == "auto",
    )


def make_prefetching_workers(maker: BatchMaker, kind: str, options: WorkerOptions) -> Workers:
    """Make workers of a kind, "threads" or "processes"."""
    if kind == "threads":
        return ThreadWorkers(maker, options)

    # This imports cloudpickle, which takes 15 ms.
    from data_stack.loader.workers.processes import ProcessWorkers

    return ProcessWorkers(maker, options)


def _check_kind(kind: WorkerKind, n_workers: int | None) -> None:
    """Check that a kind is known and fits a number of workers.

    Raises:
        ConfigError: it is not, or does not.
    """
    if kind not in get_args(WorkerKind):
        raise ConfigError(
            "worker_kind must be 'auto', 'in_process', 'inline', 'threads' or 'processes', "
            f"got {kind!r:.80}"
        )
    inline_has_workers = kind == "inline" and n_workers not in (None, 0)
    others_have_none = kind in ("threads", "processes") and n_workers == 0
    if inline_has_workers or others_have_none:
        raise ConfigError(
            f"worker_kind={kind!r} does not go with workers={n_workers}; leave one of them out"
        )
