"""Figures of a loader's iteration."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from data_stack.loader.advice import Advice, Pace, advise
from data_stack.loader.batch_maker import MadeBatch
from data_stack.loader.conversion import Pairs
from data_stack.loader.workers.base import Workers
from data_stack.util.executor import n_processors


@dataclass(slots=True)
class LoaderStatistics:
    """Figures of a loader's current or last iteration; seconds are wall time.

    Attributes:
        worker_kind: "inline", "threads" or "processes"; "" before the first batch.
        n_workers: the number of threads or processes; 0 for inline.
        choice: why ``worker_kind="auto"`` chose these; "" if the caller did, or before it has
            measured enough batches.
        n_batches: the number of delivered batches.
        n_samples: the number of delivered samples.
        n_bytes: the size of the delivered arrays; columns of objects count their references.
        elapsed_seconds: the time from the start of the iteration to its end, or until now.
        waiting_seconds: how long the consumer waited for batches.
        read_seconds: how long reading samples took, summed over the workers.
        fetch_seconds: how much of this time the workers waited for bytes of files and stores. Bytes
            that other threads of a source read, and those of memory maps, do not count.
        collate_seconds: how long ``collate`` took, summed over the workers.
        transform_seconds: how long ``transform`` took, summed over the workers.
        convert_seconds: how long conversion to tensors and copies to a device took, in the
            consumer's thread.
        n_skipped: the number of samples that delivered batches lack, as they are damaged.
        n_replaced: the number of samples in delivered batches that are there in place of damaged
            ones.
        damaged: how many different samples the training has found to be damaged until now, also
            before the iteration, by the class of the error, such as ``{"DamagedBlockError": 2}``.
        speed_without_loading: samples per second of the training step alone, as
            :meth:`Loader.speed_without_loading` measured it last; 0 if it was not measured.
    """

    worker_kind: str = ""
    n_workers: int = 0
    choice: str = ""
    n_batches: int = 0
    n_samples: int = 0
    n_bytes: int = 0
    elapsed_seconds: float = 0.0
    waiting_seconds: float = 0.0
    read_seconds: float = 0.0
    fetch_seconds: float = 0.0
    collate_seconds: float = 0.0
    transform_seconds: float = 0.0
    convert_seconds: float = 0.0
    n_skipped: int = 0
    n_replaced: int = 0
    damaged: dict[str, int] = field(default_factory=dict)
    speed_without_loading: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Delivered samples per second; 0 before the first batch."""
        if self.n_samples == 0 or self.elapsed_seconds == 0:
            return 0.0
        return self.n_samples / self.elapsed_seconds

    @property
    def waiting_share(self) -> float:
        """The share of the time that the consumer waited.

        Near 0 the model is the bottleneck, near 1 the data is.
        """
        if self.elapsed_seconds == 0:
            return 0.0
        return self.waiting_seconds / self.elapsed_seconds

    @property
    def advice(self) -> Advice | None:
        """What the training waits for, and what would help; None before 20 batches."""
        pace = Pace(
            n_batches=self.n_batches,
            elapsed_seconds=self.elapsed_seconds,
            waiting_seconds=self.waiting_seconds,
            convert_seconds=self.convert_seconds,
            stage_seconds={
                "fetch": self.fetch_seconds,
                "decode": self.read_seconds - self.fetch_seconds,
                "collate": self.collate_seconds,
                "transform": self.transform_seconds,
            },
            n_workers=self.n_workers,
            n_processors=n_processors(),
            is_automatic=self.choice != "",
        )
        return advise(pace)

    def __str__(self) -> str:
        workers = self.worker_kind or "nowhere yet"
        if self.n_workers:
            workers += f" ({self.n_workers})"
        text = (
            f"{self.n_samples:,} samples in {self.n_batches:,} batches, "
            f"{self.samples_per_second:,.0f} samples/s, {self.n_bytes / 1e6:,.1f} MB; "
            f"the consumer waited {self.waiting_seconds:.3f} s of {self.elapsed_seconds:.3f} s "
            f"({self.waiting_share:.1%}); made {workers}: read {self.read_seconds:.3f} s "
            f"(of it fetch {self.fetch_seconds:.3f} s), collate {self.collate_seconds:.3f} s, "
            f"transform {self.transform_seconds:.3f} s, convert {self.convert_seconds:.3f} s"
        )
        if self.damaged:
            kinds = ", ".join(f"{n_samples} {error}" for error, n_samples in self.damaged.items())
            text += (
                f"; damaged: {kinds}; {self.n_skipped:,} samples skipped, "
                f"{self.n_replaced:,} replaced"
            )
        if self.speed_without_loading > 0:
            text += f"; without loading {self.speed_without_loading:,.0f} samples/s"
        advice = self.advice
        if advice is not None:
            text += f"\n{advice}"
        return text


class StatisticsRecorder:
    """Records the figures of one iteration while it runs.

    Args:
        workers: the workers of the iteration.
    """

    #: The workers of the iteration, which describe themselves.
    _workers: Workers
    #: The figures but those of the workers, and those that depend on the present time.
    _statistics: LoaderStatistics
    #: When the first batch was requested; None before.
    _began_at: float | None
    #: How long the thread of the consumer made batches for a conversion, or waited for workers. The
    #: remaining waiting time of the consumer is the conversion. None without a conversion.
    _making_seconds: float | None
    #: How much of it :meth:`split_wait` has returned.
    _split_making_seconds: float

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._statistics = LoaderStatistics()
        self._began_at = None
        self._making_seconds = None
        self._split_making_seconds = 0.0

    def begin(self) -> None:
        """Note that the first batch is requested now."""
        self._began_at = time.perf_counter()

    def time_making(self, pairs: Pairs) -> Pairs:
        """Yield the pairs that a conversion reads, and record how long it waits for them."""
        self._making_seconds = 0.0
        while True:
            asked_at = time.perf_counter()
            pair = next(pairs, None)
            self._making_seconds += time.perf_counter() - asked_at
            if pair is None:
                return
            yield pair
            del pair  # free the batch before the next one is made

    def split_wait(self, waiting_seconds: float) -> float:
        """Return how much of the wait for a batch made it; the remaining time converted it."""
        if self._making_seconds is None:
            return waiting_seconds
        seconds = self._making_seconds - self._split_making_seconds
        self._split_making_seconds = self._making_seconds
        return seconds

    def add_delivered(self, made: MadeBatch, n_samples: int, waiting_seconds: float) -> None:
        """Add a batch that the consumer receives now.

        Args:
            made: what it took to make the batch.
            n_samples: the number of the samples of its job.
            waiting_seconds: how long the consumer waited for the batch and its conversion.
        """
        statistics = self._statistics
        reading = made.reading
        statistics.n_batches += 1
        statistics.n_samples += n_samples
        statistics.n_bytes += made.n_bytes
        statistics.waiting_seconds += waiting_seconds
        # Properties of these shares would take a tenth of a microsecond.
        statistics.read_seconds += reading.seconds / reading.n_batches
        statistics.fetch_seconds += reading.fetch_seconds / reading.n_batches
        statistics.collate_seconds += made.collate_seconds
        statistics.transform_seconds += made.transform_seconds
        if made.damage is not None:
            statistics.n_samples -= made.damage.n_skipped
            statistics.n_skipped += made.damage.n_skipped
            statistics.n_replaced += made.damage.n_replaced

    def read(self) -> LoaderStatistics:
        """Return the figures until now."""
        statistics = replace(self._statistics)
        if self._began_at is None or statistics.n_batches == 0:
            return statistics
        statistics.worker_kind = self._workers.kind
        statistics.n_workers = self._workers.n_workers
        statistics.choice = self._workers.choice
        statistics.elapsed_seconds = time.perf_counter() - self._began_at
        if self._making_seconds is not None:
            converting_seconds = statistics.waiting_seconds - self._making_seconds
            statistics.convert_seconds = max(0.0, converting_seconds)
        return statistics
