"""The choice of the kind of workers."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, get_args

from data_stack.exception import ConfigError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.threads import ThreadWorkers
from data_stack.loader.workers.workers import Workers
from data_stack.util.processors import n_processors

WorkerKind = Literal["auto", "in_process", "inline", "threads", "processes"]

_CLEARLY = 0.9  # the most of inline's time that another kind may take: figures of a few batches are rough

# Number of batches of each worker that are measured, and for how long: the GIL changes hands only every 5 ms.
_N_ROUNDS = 4
_MIN_SECONDS = 0.05
_MAX_SECONDS = 1.0

# The costs of handing a batch over and of starting; the fork server takes most of the latter, and only the first time.
_HAND_OVER_SECONDS = {"threads": 1e-4, "processes": 3e-4}
_START_SECONDS = {"threads": 0.0, "processes": 0.25}
_MAX_BYTES_SENT = 4 << 30

# Small batches out of blocks are read in one request: 0.25 ms a batch instead of 0.5 ms for plain columns of Parquet.
_MAX_TOGETHER = 32
_MAX_BYTES_TOGETHER = 1 << 20
_MAX_SECONDS_TOGETHER = 0.008


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
    if n_workers if kind == "inline" else kind in ("threads", "processes") and n_workers == 0:
        raise ConfigError(f"worker_kind={kind!r} does not go with workers={n_workers}; leave one of them out")
    if kind == "inline" or n_workers == 0:
        return InlineWorkers(maker)
    number = n_processors() if n_workers is None else n_workers
    if kind in ("auto", "in_process"):
        return AutomaticWorkers(maker, number, with_processes=kind == "auto", **options)
    if kind == "threads":
        return ThreadWorkers(maker, number, **options)
    from data_stack.loader.workers.processes import ProcessWorkers  # needs cloudpickle, which takes 15 ms

    return ProcessWorkers(maker, number, **options)


class InlineWorkers(Workers):
    """Makes a batch when it is requested, without threads or processes."""

    kind = "inline"
    n_workers = 0

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker
        self._jobs: deque[Job] = deque()
        self._making: Iterator[MadeBatch] = iter(())
        self.capacity = 1  # the first batch does not wait for others

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def next(self) -> MadeBatch:
        try:
            if (made := next(self._making, None)) is not None:
                return made
            made = self._make()
        except BaseException:
            self.cancel()
            raise
        seconds = made.read_seconds + made.collate_seconds + made.transform_seconds
        n_small = min(_MAX_BYTES_TOGETHER // max(made.n_bytes, 1), int(_MAX_SECONDS_TOGETHER / max(seconds, 1e-9)), _MAX_TOGETHER)
        self.capacity = max(1, n_small) if self._maker.can_join else 1
        return made

    def _make(self) -> MadeBatch:
        """The oldest job's batch; begins to make those of the other jobs of its epoch, too."""
        jobs = [self._jobs.popleft()]
        while self._maker.can_join and self._jobs and self._jobs[0].epoch == jobs[0].epoch:
            jobs.append(self._jobs.popleft())
        if len(jobs) == 1:
            return self._maker.make(jobs[0])
        self._making = self._maker.make_several(jobs)
        return next(self._making)

    def cancel(self) -> None:
        self._jobs.clear()
        self._making = iter(())

    def close(self) -> None:
        self.cancel()


class AutomaticWorkers(Workers):
    """Measures a few batches of each kind of workers that may pay off, and continues with the fastest kind.

    Loaders that only copy rows of arrays stay in the consumer's thread. All others make the first batches there, the next ones by
    threads if that could be faster, and further ones by processes if the rest of the iteration is worth their start. Measured
    batches are delivered like all others, and each is made once; while processes start, batches are made as before.

    The rule: the kind with the shortest time from batch to batch; inline unless another is clearly faster. It is applied again
    when an iteration begins, with the figure of the whole iteration before.

    Args:
        maker: makes the batches.
        n_workers: number of threads or processes, at least 1.
        with_processes: whether processes may be used.
        options: of threads and processes, see :func:`workers_of_kind`.
    """

    _left_at: float | None  # when the consumer got its last batch

    def __init__(self, maker: BatchMaker, n_workers: int, *, with_processes: bool = True, **options: Any) -> None:
        self._maker, self._most_workers, self._options = maker, n_workers, options
        self._next: Workers | None = None  # take over once they are ready
        self._jobs: deque[Job] = deque()  # not delivered yet
        self._figures: dict[
            str, tuple[float, float]
        ] = {}  # of each kind: seconds of waiting for a batch, and from batch to batch
        self._n_left, self._is_kept = math.inf, False
        # why processes cannot be used; None: not checked yet
        self._refusal: str | None = None if with_processes else "worker_kind='in_process'"
        self._use(InlineWorkers(maker))

    @property
    def kind(self) -> str:  # type: ignore[override]  # read-only here
        return self._workers.kind

    @property
    def n_workers(self) -> int:  # type: ignore[override]  # read-only here
        return self._workers.n_workers

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        is_draining = self._jobs and self._next is not None and self._next.is_ready
        return 0 if is_draining else self._workers.capacity

    def start(self) -> None:
        self._is_kept = True  # the start of processes is paid once for all iterations

    def expect(self, n_jobs: int) -> None:
        self._n_left = n_jobs
        if self.kind in self._figures and self._n_measured:
            self._take_figure()
        self._choose()

    def submit(self, job: Job) -> None:
        self._jobs.append(job)
        self._workers.submit(job)

    def next(self) -> MadeBatch:
        asked = time.perf_counter()
        try:
            made = self._next_made()
        except BaseException:
            self.cancel()
            raise
        self._jobs.popleft()
        self._n_left -= 1
        self._n_made += 1
        self._measure(asked, time.perf_counter())
        if not self._jobs and self._next is not None and self._next.is_ready:
            self._workers.close()
            self._use(self._next)
        return made

    def cancel(self) -> None:
        self._jobs.clear()
        self._left_at = None
        self._workers.cancel()

    def close(self) -> None:
        self.cancel()
        self._turn_to(self.kind)
        self._workers.close()
        self._is_kept = False
        if self.kind == "processes":  # inline until new processes are ready, if they pay off
            self._use(InlineWorkers(self._maker))

    def _use(self, workers: Workers) -> None:
        self._workers, self._next = workers, None
        self._n_made = self._n_measured = 0
        self._waiting = 0.0
        self._steps: deque[float] = deque([0.0], maxlen=64)  # of the consumer; their median ignores its pauses
        self._left_at = None

    def _next_made(self) -> MadeBatch:
        try:
            return self._workers.next()
        except WorkerError as error:
            if self._n_made or self.kind != "processes":
                raise
            # Processes do not work here at all, for example for lack of a module: fall back to this thread.
            warnings.warn(f"worker processes do not work here, so none are used: {error}", RuntimeWarning, stacklevel=4)
            self._refusal = f"they failed ({str(error).splitlines()[0][:160]})"
            self._use(InlineWorkers(self._maker))
            for job in self._jobs:
                self._workers.submit(job)
            self._choose()
            return self._workers.next()

    def _measure(self, asked: float, arrived: float) -> None:
        """Note the time of a batch, and choose as soon as the figures of this kind suffice."""
        # the first batches open files and fill queues
        if self._n_made > max(1, self.n_workers) or arrived - asked > _MAX_SECONDS:
            self._n_measured += 1
            self._waiting += arrived - asked
            self._steps.append(asked - (self._left_at or asked))
        self._left_at = arrived
        if self.kind in self._figures or not self._n_measured:
            return
        enough = _MIN_SECONDS if self._n_measured >= _N_ROUNDS * max(1, self.n_workers) else _MAX_SECONDS
        if self._waiting + sum(self._steps) > enough:
            self._take_figure()
            self._choose()

    def _take_figure(self) -> None:
        waiting = self._waiting / self._n_measured
        self._figures[self.kind] = waiting, waiting + statistics.median(self._steps)
        self._n_measured, self._waiting = 0, 0.0

    def _choose(self) -> None:
        """Switch to a kind that is worth a try, otherwise to the best one."""
        if self._maker.only_gathers:  # copying takes less time than handing a batch over, and two threads are not faster than one
            self.choice = "inline: it only copies rows of arrays"
            return
        if "inline" not in self._figures:
            return
        untried = [kind for kind in ("threads", "processes") if kind not in self._figures and self._is_worth_a_try(kind)]
        wanted = untried[0] if untried else self._best()
        figures = ", ".join(
            f"{seconds * 1e3:.3g} ms " + ("inline" if kind == "inline" else f"from {self._most_workers} {kind}")
            for kind, (_, seconds) in self._figures.items()
        )
        refused = f"; no processes: {self._refusal}" if self._refusal else ""
        self.choice = f"{wanted}: a batch came every {figures}{refused}"
        self._turn_to(wanted)

    def _best(self) -> str:
        seconds = {kind: figure[1] for kind, figure in self._figures.items() if not (kind == "processes" and self._refusal)}
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
        making, seconds = self._figures["inline"]
        possible = max(seconds - making, making / n_at_once) + _HAND_OVER_SECONDS[kind]
        best = self._figures[self._best()][1]
        return possible < _CLEARLY * best and self._n_left * (best - possible) > start_seconds

    def _turn_to(self, kind: Any) -> None:
        """Let a kind of workers take over, once they are ready."""
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
