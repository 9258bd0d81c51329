"""Workers that make batches ahead, in threads or where it is fastest."""

from __future__ import annotations

import math
import statistics
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Literal

from data_stack.exception import ConfigError, LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, InlineWorkers, Job, MadeBatch, Workers
from data_stack.util.executor import Executor, n_processors, set_thread_share
from data_stack.util.forks import call_in_forks

_CLEARLY = 0.9  # the most of inline's time that another kind may take: figures of a few batches are rough

# Number of batches of each worker that are measured, and for how long: the GIL changes hands only every 5 ms. Fewer suffice if
# they take long.
_MAX_SECONDS = 1.0
_ENOUGH = ((4, 0.05), (2, 0.2), (0, _MAX_SECONDS))

# The costs of handing a batch over and of starting; the fork server takes most of the latter, and only the first time.
_HAND_OVER_SECONDS = {"threads": 1e-4, "processes": 3e-4}
_START_SECONDS = {"threads": 0.0, "processes": 0.25}
_MAX_BYTES_SENT = 4 << 30

WorkerKind = Literal["auto", "in_process", "inline", "threads", "processes"]

_Made = tuple["deque[MadeBatch]", "LoadingError | None"]

# The memory of all batches that are made ahead, unless a worker would be idle.
_MAX_BYTES = 32 << 20

# The consumer waits in slices: Ctrl-C reaches it between two of them even where a lock cannot be interrupted (Windows).
_SLICE_SECONDS = 0.1


class PrefetchingWorkers(Workers):
    """Threads or processes that make batches ahead; fewer where batches are large.

    At least one batch per worker plus one may be in flight, if ``prefetch`` allows it: when the consumer has taken the oldest,
    each worker has one to make while the consumer uses its own.

    Args:
        maker: makes the batches.
        n_workers: at least 1.
        prefetch: the maximum number of batches that each worker makes ahead, at least 1.
        timeout_seconds: how long to wait for a batch; None for as long as its worker lives.
        max_bytes: of the arrays that processes may be sent.
    """

    warns_after_seconds = 5.0
    """How long the consumer waits for a batch before it is warned."""

    advice: str
    """What happened to a worker that exceeded the timeout, for the message."""

    def __init__(
        self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None, max_bytes: float = math.inf
    ) -> None:
        self._maker, self.n_workers, self._prefetch, self._max_bytes = maker, n_workers, prefetch, max_bytes
        self._timeout_seconds = math.inf if timeout_seconds is None else timeout_seconds
        self._last_bytes = 0
        self.capacity = n_workers * prefetch  # until the size of batches is known

    def _observe_size(self, n_bytes: int) -> None:
        """Adapt the capacity to the size of a batch."""
        larger, self._last_bytes = max(n_bytes, self._last_bytes), n_bytes  # the last batch of an epoch may be small
        most = self.n_workers * self._prefetch
        fitting = _MAX_BYTES // larger if larger else most
        self.capacity = max(min(most, self.n_workers + 1), min(most, fitting))

    def _wait(self, job: Job, is_done: Callable[[float], bool], name: Callable[[], str]) -> None:
        """Wait for the batch of a job.

        Args:
            job: that is being made.
            is_done: waits some seconds at most, and returns whether the batch is there.
            name: returns the name of the worker.

        Raises:
            WorkerError: it took longer than ``timeout_seconds``.
        """
        began, warns = time.monotonic(), self.warns_after_seconds
        while not is_done(min(_SLICE_SECONDS, self._timeout_seconds)):
            waited = time.monotonic() - began
            if waited >= self._timeout_seconds:
                problem = f"did not make the batch of {job} within timeout_seconds={self._timeout_seconds:g}. {self.advice}"
                raise WorkerError(name(), problem)
            if waited >= warns:
                warns = math.inf
                warnings.warn(f"{name()} takes long to make {job}: {waited:.0f} s so far", RuntimeWarning, stacklevel=4)


class ThreadWorkers(PrefetchingWorkers):
    """Makes whole batches in threads, which share the maker; a thread makes several small ones at once."""

    kind = "threads"
    advice = "Python cannot end a thread, so it runs on until it is done. If it is only slow, allow more time"

    def __init__(self, maker: BatchMaker, n_workers: int, **options: Any) -> None:
        super().__init__(maker, n_workers, **options)
        self._n_together = 1
        self._begin()
        call_in_forks(self._begin)

    def _begin(self) -> None:
        """Begin without jobs, with new threads; in a fork, the parent's threads make the batches of earlier jobs."""
        n_workers = self.n_workers  # the threads must not keep this object
        self._jobs: list[Job] = []  # the next ones of a thread
        self._groups: deque[tuple[Job, Future[_Made]]] = deque()  # the first job, and the batches of several
        self._made: deque[MadeBatch] = deque()
        self._failure: LoadingError | None = None  # after them
        self._threads = Executor("data_stack-load", lambda: n_workers, grace_seconds=0.5)

    def submit(self, job: Job) -> None:
        if self._jobs and self._jobs[0].epoch != job.epoch:
            self._hand_out()
        self._jobs.append(job)
        if len(self._jobs) >= self._n_together:
            self._hand_out()

    def _hand_out(self) -> None:
        self._groups.append((self._jobs[0], self._threads.submit(_make, self._maker, self._jobs, self.n_workers)))
        self._jobs = []

    def next(self) -> MadeBatch:
        try:
            while not self._made:
                if self._failure is not None:
                    raise self._failure
                self._receive()
        except BaseException as error:
            self.cancel()
            if isinstance(error, WorkerError):
                self._begin()  # leaves the stuck threads behind
            raise
        return self._made.popleft()

    def _receive(self) -> None:
        """Wait for the next batches."""
        if not self._groups:
            self._hand_out()
        job, future = self._groups[0]
        self._wait(job, lambda seconds: bool(wait([future], seconds).done), lambda: "a worker thread")
        self._groups.popleft()
        self._made, self._failure = future.result()
        if self._made:
            self._n_together = self._maker.n_together(self._made[0])
            self._observe_size(self._made[0].n_bytes)
            self.capacity *= self._n_together

    def cancel(self) -> None:
        for _, future in self._groups:
            future.cancel()
        self._jobs, self._made, self._failure = [], deque(), None
        self._groups.clear()

    def close(self) -> None:
        self.cancel()
        self._threads.finish()


def _make(maker: BatchMaker, jobs: list[Job], n_workers: int) -> _Made:
    """What a thread does: the batches, up to the first that cannot be made."""
    set_thread_share(n_workers)  # a source that decodes in threads of its own leaves processors to the other workers
    made = deque[MadeBatch]()
    try:
        made.extend(maker.make_several(jobs))
        return made, None
    except LoadingError as error:
        failure = error
    except BaseException as error:  # noqa: BLE001  # SystemExit and the like
        job = jobs[len(made)]
        failure = LoadingError(f"the batch of {job} could not be made", error, epoch=job.epoch, step=job.step)
        failure.__cause__ = error
    failure.worker = threading.current_thread().name.replace("data_stack-load-", "worker thread ")
    try:
        return made, failure
    finally:
        del failure  # the traceback of an error refers to this frame, which must not lead back to the error


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
        make: returns workers of a kind, "threads" or "processes".
        with_processes: whether processes may be used.
    """

    def __init__(self, maker: BatchMaker, n_workers: int, make: Callable[..., Workers], *, with_processes: bool) -> None:
        self._maker, self._most_workers, self._make = maker, n_workers, make
        self._jobs: deque[Job] = deque()  # not delivered yet
        self._figures: dict[str, tuple[float, float]] = {}  # of each kind: seconds of waiting, and from batch to batch
        self._n_left, self._is_kept = math.inf, False
        # why processes cannot be used; None: not checked yet
        self._refusal: str | None = None if with_processes else "worker_kind='in_process'"
        self._use(InlineWorkers(maker))

    def _use(self, workers: Workers) -> None:
        self.kind, self.n_workers = workers.kind, workers.n_workers
        self._workers = workers
        self._next: Workers | None = None  # take over once they are ready
        self._n_made = self._n_measured = 0
        self._waiting = 0.0
        self._steps: deque[float] = deque([0.0], maxlen=64)  # of the consumer; their median ignores its pauses
        self._left_at: float | None = None  # when the consumer got its last batch

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

    def _next_made(self) -> MadeBatch:
        try:
            # inline is measured with the processors of one worker, of which the other kinds can divide the time
            set_thread_share(self._most_workers if self.kind == "inline" and self._n_made and not self._figures else 1)
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
        finally:
            set_thread_share(1)

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
        n_rounds = self._n_measured // max(1, self.n_workers)
        if self._waiting + sum(self._steps) > next(seconds for number, seconds in _ENOUGH if n_rounds >= number):
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
        elif "inline" in self._figures:
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

    def _turn_to(self, kind: str) -> None:
        """Let a kind of workers take over, once they are ready."""
        if self._next is not None and self._next.kind != kind:
            self._next.close()
            self._next = None
        if self._next is not None or kind == self.kind:
            return
        workers = InlineWorkers(self._maker) if kind == "inline" else self._make(kind, max_bytes=_MAX_BYTES_SENT)
        try:
            workers.start()
        except (ConfigError, OSError) as error:
            self._refusal = str(error)[:160]
            self._choose()
        else:
            self._next = workers
