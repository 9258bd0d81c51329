"""The automatic choice of the fastest kind of workers."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections import deque
from typing import Any, Literal, get_args

from data_stack.exception import ConfigError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.threads import ThreadWorkers
from data_stack.loader.workers.workers import Workers
from data_stack.util.processors import n_processors

WorkerKind = Literal["auto", "in_process", "inline", "threads", "processes"]

_CLEARLY = 0.9  # the most of inline's time that another kind may take: figures of a few batches are rough
_CHANGED = 2.0  # if the cost of a batch changes by this factor between epochs, every kind is measured again

# Number of batches of each worker that are measured, and for how long: the GIL changes hands only every 5 ms.
_N_ROUNDS = 4
_MIN_SECONDS = 0.05
_MAX_SECONDS = 1.0

# The costs of handing a batch over and of starting; the fork server takes most of the latter, and only the first time.
_HAND_OVER_SECONDS = {"threads": 1e-4, "processes": 3e-4}
_START_SECONDS = {"threads": 0.0, "processes": 0.25}
_MAX_BYTES_SENT = 4 << 30


def workers_of_kind(kind: WorkerKind, maker: BatchMaker, n_workers: int | None, **options: Any) -> Workers:
    """Make workers, which do not run yet.

    Args:
        kind: of the workers.
        maker: makes the batches.
        n_workers: number of threads or processes; None for one per processor, 0 for inline.
        options: ``prefetch`` and ``timeout_seconds`` of threads and processes.

    Raises:
        ConfigError: the kind is unknown, or does not fit this number of workers.
    """
    if kind not in get_args(WorkerKind):
        raise ConfigError(f"worker_kind must be 'auto', 'in_process', 'inline', 'threads' or 'processes', got {kind!r:.80}")
    if kind == "inline" and n_workers:
        raise ConfigError(f"worker_kind='inline' has no workers, got workers={n_workers}; use 'threads' or 'processes'")
    if kind in ("threads", "processes") and n_workers == 0:
        raise ConfigError(
            f"worker_kind={kind!r} needs at least one worker, got workers=0; use worker_kind='inline', or more workers"
        )
    if kind == "inline" or n_workers == 0:
        return InlineWorkers(maker)
    number = n_processors() if n_workers is None else n_workers
    if kind in ("auto", "in_process"):
        return AutomaticWorkers(maker, number, with_processes=kind == "auto", **options)
    if kind == "threads":
        return ThreadWorkers(maker, number, **options)
    from data_stack.loader.workers.processes import ProcessWorkers  # needs cloudpickle, which takes 15 ms

    return ProcessWorkers(maker, number, **options)


class AutomaticWorkers(Workers):
    """Measures a few batches of each kind of workers that may pay off, and continues with the fastest kind.

    Loaders that only copy rows of arrays stay in the consumer's thread. All others make the first batches there, the next ones by
    threads if that could be faster, and further ones by processes if the rest of the iteration is worth their start. Measured
    batches are delivered like all others, and each is made once; while processes start, batches are made as before.

    The rule: the kind with the shortest time from batch to batch; inline unless another is clearly faster. The choice stays until
    the epoch ends. Then the figure of the whole epoch replaces that of its first batches, and the rule is applied again; if the
    cost of a batch has halved or doubled, every kind is measured again.

    Args:
        maker: makes the batches.
        n_workers: number of threads or processes, at least 1.
        with_processes: whether processes may be used.
        options: of threads and processes, see :func:`workers_of_kind`.
    """

    def __init__(self, maker: BatchMaker, n_workers: int, *, with_processes: bool = True, **options: Any) -> None:
        self._maker, self._most_workers, self._options = maker, n_workers, options
        self._workers: Workers = InlineWorkers(maker)  # they get new jobs
        self._next: Workers | None = None  # get new jobs once they are ready
        self._given: deque[tuple[Workers, Job]] = deque()  # not delivered yet
        self._figures: dict[str, tuple[float, float]] = {}  # of each kind: seconds from batch to batch, and to make one
        self._measured = _Figure(1)
        self._epoch: int | None = None
        self._n_left, self._is_kept = math.inf, False
        # why processes cannot be used; None: not checked yet
        self._refusal: str | None = None if with_processes else "worker_kind='in_process'"
        self.choice = ""

    @property
    def kind(self) -> str:  # type: ignore[override]  # read-only here
        return self._workers.kind

    @property
    def n_workers(self) -> int:  # type: ignore[override]  # read-only here
        return self._workers.n_workers

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        return self._workers.capacity

    def start(self) -> None:
        self._is_kept = True  # the start of processes is paid once for all iterations

    def expect(self, n_jobs: int) -> None:
        self._n_left = n_jobs

    def submit(self, job: Job) -> None:
        if job.epoch != self._epoch:
            self._take_figure()
            self._epoch = job.epoch
            self._choose()
        if self._next is not None and self._next.is_ready:
            before, self._workers, self._next = self._workers, self._next, None
            self._close_unless_used(before)
            n_workers = self.n_workers
            self._measured = _Figure(n_workers if self._n_left > 4 * n_workers > 0 else 1)
        self._give(job)

    def next(self) -> MadeBatch:
        asked = time.perf_counter()
        try:
            made = self._next_made()
        except BaseException:
            self.cancel()
            raise
        workers, _ = self._given.popleft()
        self._n_left -= 1
        if workers is self._workers:
            self._measured.add(made, asked, time.perf_counter())
        else:
            self._close_unless_used(workers)
        if self.kind not in self._figures and self._has_measured_enough():
            self._figures[self.kind] = self._measured.seconds
            self._choose()
        return made

    def cancel(self) -> None:
        self._take_figure()
        self._epoch = None
        used = [workers for workers, _ in self._given if workers is not self._workers]
        self._given.clear()
        for workers in used:
            workers.close()
        self._workers.cancel()

    def close(self) -> None:
        self.cancel()
        self._turn_to(self.kind)
        self._workers.close()
        self._is_kept = False
        if self.kind == "processes":  # inline until new processes are ready, if they pay off
            self._workers = InlineWorkers(self._maker)

    # --------------------------------------------------------------------------------------------------------- making batches

    def _give(self, job: Job) -> None:
        self._given.append((self._workers, job))
        self._workers.submit(job)

    def _close_unless_used(self, workers: Workers) -> None:
        if not any(used is workers for used, _ in self._given):
            workers.close()

    def _next_made(self) -> MadeBatch:
        workers = self._given[0][0]
        try:
            return workers.next()
        except WorkerError as error:
            if self._measured.n_batches or workers is not self._workers or self.kind != "processes":
                raise
            # Processes do not work here at all, for example for lack of a module: fall back to this thread.
            warnings.warn(f"worker processes do not work here, so none are used: {error}", RuntimeWarning, stacklevel=4)
            self._refusal = f"they failed ({str(error).splitlines()[0][:160]})"
            jobs = [job for _, job in self._given]
            self._given.clear()
            self._workers = InlineWorkers(self._maker)
            self._choose()
            for job in jobs:
                self._give(job)
            return self._workers.next()

    # --------------------------------------------------------------------------------------------------------------- choosing

    def _has_measured_enough(self) -> bool:
        n_batches, n_workers = self._measured.n_batches, max(1, self.n_workers)
        seconds = n_batches * self._measured.seconds[0]
        if isinstance(self._workers, InlineWorkers):  # of whose requests the first batch takes all the time
            return n_batches >= max(_N_ROUNDS, self.capacity) or seconds > _MAX_SECONDS
        return n_batches >= n_workers and seconds > (_MIN_SECONDS if n_batches >= _N_ROUNDS * n_workers else _MAX_SECONDS)

    def _take_figure(self) -> None:
        """Keep the figure of the whole epoch; if it differs much from the previous one, forget the figures of all other kinds."""
        if self._measured.n_batches <= self.n_workers:
            return
        now, before = self._measured.seconds, self._figures.get(self.kind)
        if before is not None and not 1 / _CHANGED < now[1] / max(before[1], 1e-9) < _CHANGED:
            self._figures.clear()
        self._figures[self.kind], self._measured = now, _Figure(0)

    def _choose(self) -> None:
        """Switch to a kind that is worth a try, otherwise to the best one."""
        if self._maker.only_gathers or "inline" not in self._figures:
            # Copying rows takes less time than handing a batch over, and two threads are not faster than one.
            self.choice = "inline: it only copies rows of arrays" if self._maker.only_gathers else ""
            self._turn_to("inline")
            return
        untried = [kind for kind in ("threads", "processes") if kind not in self._figures and self._is_worth_a_try(kind)]
        wanted = untried[0] if untried else self._best()
        figures = ", ".join(
            f"{seconds * 1e3:.3g} ms " + ("inline" if kind == "inline" else f"from {self._most_workers} {kind}")
            for kind, (seconds, _) in self._figures.items()
        )
        refused = f"; no processes: {self._refusal}" if self._refusal else ""
        self.choice = f"{wanted}: a batch came every {figures}{refused}"
        self._turn_to(wanted)

    def _best(self) -> str:
        seconds = {kind: figure[0] for kind, figure in self._figures.items() if not (kind == "processes" and self._refusal)}
        best = min(seconds, key=seconds.__getitem__)
        return best if seconds[best] < _CLEARLY * seconds["inline"] else "inline"

    def _is_worth_a_try(self, kind: str) -> bool:
        """Whether a kind could be clearly faster if all its workers wait or compute at once."""
        n_at_once, start_seconds = min(self._most_workers, self._n_left), 0.0 if self._is_kept else _START_SECONDS[kind]
        if kind == "processes":
            n_at_once = min(n_at_once, n_processors())
            if self._refusal is None:
                one_processor = "this machine has one processor" if n_processors() == 1 else ""
                self._refusal = "the source decodes without the GIL" if self._maker.releases_gil else one_processor
        if self._n_left < 1 or (kind == "processes" and self._refusal):
            return False
        seconds, making_seconds = self._figures["inline"]  # besides making a batch, the consumer's own step
        possible = max(seconds - making_seconds, making_seconds / n_at_once) + _HAND_OVER_SECONDS[kind]
        best = self._figures[self._best()][0]
        return possible < _CLEARLY * best and self._n_left * (best - possible) > start_seconds

    def _turn_to(self, kind: Any) -> None:
        """Switch to a kind of workers, once they are ready."""
        if self._next is not None and self._next.kind != kind:
            self._next.close()
            self._next = None
        if self._next is not None or kind == self.kind:
            return
        options = {**self._options, "max_bytes": _MAX_BYTES_SENT} if kind == "processes" else self._options
        workers = workers_of_kind(kind, self._maker, 0 if kind == "inline" else self._most_workers, **options)
        try:
            workers.start()
        except (ConfigError, OSError) as error:
            self._refusal = str(error)[:160]
            self._choose()
        else:
            self._next = workers


class _Figure:
    """The time that batches of one kind of workers take.

    Args:
        n_skipped: the number of first batches that do not count, as they open files and fill queues, unless they take long.
    """

    def __init__(self, n_skipped: int) -> None:
        self._n_skipped = n_skipped
        self.n_batches = 0
        self._making = self._waiting = 0.0
        self._left_at: float | None = None  # when the consumer got its last batch
        self._steps: deque[float] = deque([0.0], maxlen=64)  # of the consumer; their median ignores its pauses

    def add(self, made: MadeBatch, asked: float, arrived: float) -> None:
        """Add a batch; the two times are those of ``time.perf_counter`` around the consumer's wait for it."""
        self._n_skipped -= 1
        if self._n_skipped < 0 or arrived - asked > _MAX_SECONDS:
            self.n_batches += 1
            self._making += made.read_seconds + made.collate_seconds + made.transform_seconds
            self._waiting += arrived - asked
            self._steps.append(asked - (self._left_at or asked))
        self._left_at = arrived

    @property
    def seconds(self) -> tuple[float, float]:
        """From batch to batch as the consumer sees it, and to make one, on average."""
        n_batches = max(1, self.n_batches)
        return self._waiting / n_batches + statistics.median(self._steps), self._making / n_batches
