"""Makes batches by the kind of workers that delivers them fastest, found by measuring."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable

from data_stack.exception import ConfigError, LoadingError, WorkerDifferenceError, WorkerError
from data_stack.loader.batch_maker import BatchMaker, MadeBatch
from data_stack.loader.job import Job
from data_stack.loader.workers.base import Workers
from data_stack.loader.workers.choice import choose_kind
from data_stack.loader.workers.inline import InlineWorkers
from data_stack.loader.workers.measuring import Measurement, Probe
from data_stack.util.executor import n_processors, set_thread_share
from data_stack.util.interrupts import is_from_signal_handler

#: The length of the reason why processes are not used, in :attr:`AutomaticWorkers.choice`.
_MAX_REASON_LENGTH = 600

MakeWorkers = Callable[[str], Workers]
"""Makes workers of a kind, "threads" or "processes", which do not run yet."""


class AutomaticWorkers(Workers):
    """Measures a few batches of each kind of workers that may pay off, and uses the fastest kind.

    The first batches are made inline, in the thread of the consumer. If threads could be faster,
    they make the next batches. If processes could be faster than both, and the remaining part of
    the iteration is long enough to pay for their start, they make further batches. Then the kind
    with the shortest time from batch to batch makes all others: inline unless another kind is
    clearly faster. Loaders that only copy rows of arrays stay inline.

    Each kind is measured once. An iteration begins with the measurements of the iterations before,
    and decides by its own number of batches.

    Measured batches are delivered like all others, and each is made once. While processes start,
    the workers before them make batches.

    Args:
        maker: makes the batches.
        n_workers: the number of threads or processes, at least 1.
        make_workers: makes workers of a kind.
        with_processes: whether processes may be used.
    """

    #: Makes the batches.
    _maker: BatchMaker
    #: The number of threads or processes, if they are used.
    _max_workers: int
    #: Makes workers of a kind.
    _make_workers: MakeWorkers
    #: The workers that make batches now; :attr:`kind` and :attr:`n_workers` describe them.
    _workers: Workers
    #: Workers that have been started, and replace the current ones as soon as they are ready.
    _successors: Workers | None
    #: The jobs that the current workers have not delivered yet, the oldest first.
    _jobs: deque[Job]
    #: Whether the current workers have delivered a batch.
    _have_delivered: bool
    #: Measures the current workers; None if their kind has been measured.
    _probe: Probe | None
    #: The measurements of the kinds that have been tried.
    _measurements: dict[str, Measurement]
    #: The number of batches until the end of the iteration.
    _n_batches_left: float
    #: Whether the workers outlive the iteration, so that their start costs nothing in the long run.
    _are_kept: bool
    #: Why the caller or an error forbids processes; "" if none of them does.
    _refusal: str
    #: Whether the batches of this iteration are made inline without a measurement.
    _stays_inline: bool

    def __init__(
        self, maker: BatchMaker, n_workers: int, make_workers: MakeWorkers, *, with_processes: bool
    ) -> None:
        self._maker = maker
        self._max_workers = n_workers
        self._make_workers = make_workers
        self._jobs = deque()
        self._measurements = {}
        self._n_batches_left = math.inf
        self._are_kept = False
        self._refusal = "" if with_processes else "worker_kind='in_process'"
        self._stays_inline = False
        self._use(InlineWorkers(maker))

    # ------------------------------------------------------------------ the interface of workers

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        """The number of jobs that should be in flight.

        It is 0 while the current workers deliver their last batches to successors that are ready.
        """
        if self._jobs and self._successors is not None and self._successors.is_ready:
            return 0
        return self._workers.capacity

    def start(self) -> None:
        """Announce that the workers are kept for further iterations.

        Nothing is started: no kind has been chosen yet.
        """
        self._are_kept = True

    def expect(self, n_jobs: int) -> None:
        self._n_batches_left = n_jobs
        self._stays_inline = self.kind == "inline" and self._maker.only_gathers
        self._choose()

    def submit(self, job: Job) -> None:
        if not self._stays_inline:
            self._jobs.append(job)
        self._workers.submit(job)

    def next(self) -> MadeBatch:
        if self._stays_inline:
            # There is nothing to measure.
            return self._workers.next()

        asked_at = time.perf_counter()
        try:
            made = self._make_next()
        except BaseException:
            self.cancel()
            raise
        delivered_at = time.perf_counter()

        self._jobs.popleft()
        self._n_batches_left -= 1
        self._have_delivered = True

        # Choose as soon as the current kind has been measured.
        if self._probe is not None:
            self._probe.add(asked_at, delivered_at)
            if self._probe.is_done:
                self._measurements[self.kind] = self._probe.measurement()
                self._probe = None
                self._choose()

        # Replace the workers between two batches, when they have nothing left to deliver.
        if not self._jobs and self._successors is not None and self._successors.is_ready:
            self._workers.close()
            self._use(self._successors)
        return made

    def cancel(self) -> None:
        self._jobs.clear()
        self._workers.cancel()
        if self._probe is not None:
            self._probe.pause()

    def close(self) -> None:
        self.cancel()
        self._close_successors()
        self._workers.close()
        self._are_kept = False
        if self.kind == "processes":
            # The next iteration begins inline until new processes are ready, if they pay off.
            self._use(InlineWorkers(self._maker))

    # ------------------------------------------------------------------ the current workers

    def _use(self, workers: Workers) -> None:
        """Let workers make the batches from now on."""
        self.kind = workers.kind
        self.n_workers = workers.n_workers
        self._workers = workers
        self._successors = None
        self._have_delivered = False
        self._probe = None
        if self.kind not in self._measurements:
            self._probe = Probe(workers.n_workers)

    def _make_next(self) -> MadeBatch:
        """Return the next batch of the current workers, or make it inline if processes fail."""
        set_thread_share(self._n_workers_at_once())
        try:
            return self._workers.next()
        except (WorkerError, LoadingError) as error:
            if not self._means_no_processes(error):
                raise
            return self._give_processes_up(error)
        finally:
            set_thread_share(1)

    def _n_workers_at_once(self) -> int:
        """Return among how many workers the processors are divided while the next batch is made.

        While inline is measured, this thread gets the processors of one of several workers. With
        all processors, a source that decodes in threads of its own would be so fast that the
        policy expected too much of several workers.
        """
        is_measured_inline = self.kind == "inline" and self._probe is not None
        if is_measured_inline and self._have_delivered:
            return self._max_workers
        return 1

    def _means_no_processes(self, error: WorkerError | LoadingError) -> bool:
        """Return whether an error means that processes do not work for these batches.

        That is so if they fail before their first batch, for example for lack of a module, or if
        they make other batches than this process.
        """
        if self.kind != "processes":
            return False
        return isinstance(error, WorkerDifferenceError) or not self._have_delivered

    def _give_processes_up(self, error: WorkerError | LoadingError) -> MadeBatch:
        """Return the next batch, made inline as all later ones, and warn."""
        self._workers.close()
        self._use(InlineWorkers(self._maker))
        for job in self._jobs:
            self._workers.submit(job)
        # If the user's function fails here as well, its own error is raised, as it says more.
        made = self._workers.next()

        warnings.warn(
            f"worker processes do not work here, so none are used: {error}",
            RuntimeWarning,
            stacklevel=5,
        )
        first_line = str(error).splitlines()[0][:_MAX_REASON_LENGTH]
        if isinstance(error, WorkerDifferenceError):
            self._refusal = f"they make other batches ({first_line})"
        else:
            self._refusal = f"they failed ({first_line})"
        self._choose()
        return made

    # ------------------------------------------------------------------ the choice

    def _choose(self) -> None:
        """Switch to a kind that may pay off and was not measured, otherwise to the fastest kind."""
        # Copying takes less time than handing a batch over, and two threads copy no faster.
        if self._maker.only_gathers:
            self.choice = "inline: it only copies rows of arrays"
            return
        if "inline" not in self._measurements:
            return  # inline is being measured

        refusal = self._why_no_processes()
        kind = choose_kind(
            self._measurements,
            n_workers=self._max_workers,
            n_processors=n_processors(),
            n_batches=self._n_batches_left,
            can_use_processes=not refusal,
            are_kept=self._are_kept,
        )
        self.choice = self._explain(kind, refusal)
        self._switch_to(kind)

    def _why_no_processes(self) -> str:
        """Return why processes are not used; "" if they may be used."""
        if self._refusal:
            return self._refusal
        if self._maker.releases_gil:
            return "the source decodes without the GIL"
        if n_processors() == 1:
            return "this machine has one processor"
        return ""

    def _explain(self, kind: str, refusal: str) -> str:
        """Return the text of :attr:`choice`: the kind, all measurements, and why no processes."""
        figures = []
        for measured_kind, measurement in self._measurements.items():
            milliseconds = f"{measurement.batch_seconds * 1e3:.3g} ms"
            if measured_kind == "inline":
                figures.append(f"{milliseconds} inline")
            else:
                figures.append(f"{milliseconds} from {self._max_workers} {measured_kind}")
        explanation = f"{kind}: a batch came every {', '.join(figures)}"
        if refusal:
            explanation += f"; no processes: {refusal}"
        return explanation

    def _switch_to(self, kind: str) -> None:
        """Start workers of a kind, which replace the current ones when they are ready."""
        if self._successors is not None:
            if self._successors.kind == kind:
                return
            self._close_successors()
        if self.kind == kind:
            return

        if kind == "inline":
            workers: Workers = InlineWorkers(self._maker)
        else:
            workers = self._make_workers(kind)
        try:
            workers.start()
        except (ConfigError, OSError) as error:
            if is_from_signal_handler(error):
                workers.close()
                raise
            # Something cannot be sent to processes, so choose again without them.
            self._refusal = str(error)[:_MAX_REASON_LENGTH]
            self._choose()
            return
        self._successors = workers

    def _close_successors(self) -> None:
        if self._successors is not None:
            self._successors.close()
            self._successors = None
