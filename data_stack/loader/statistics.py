"""What a loader has done, and how long its consumer waited for it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from data_stack.loader.jobs import MadeBatch
from data_stack.loader.workers.workers import Workers

__all__ = ["Counters", "LoaderStatistics"]


@dataclass(frozen=True, slots=True)
class LoaderStatistics:
    """Of a loader's current or last iteration; seconds are wall time.

    Attributes:
        worker_kind: "inline", "threads" or "processes"; "" before the first batch.
        n_workers: threads or processes; 0 for inline.
        choice: why ``worker_kind="auto"`` chose these; "" if they were asked for.
        n_batches: handed out.
        n_samples: handed out.
        n_bytes: of the arrays handed out (of columns of objects, of the references).
        elapsed_seconds: from the beginning of the iteration to its end, or until now.
        waiting_seconds: of these, how long the consumer waited for batches.
        read_seconds: spent on reading samples, summed over the workers.
        collate_seconds: on a ``collate`` that was given, likewise.
        transform_seconds: on the transform, likewise.
        convert_seconds: on making tensors of batches and sending them to a device, by the consumer.
        n_ready: batches that are made and wait for the consumer, now.
        mean_ready: how many did so on average whenever the consumer asked.
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
    collate_seconds: float = 0.0
    transform_seconds: float = 0.0
    convert_seconds: float = 0.0
    n_ready: int = 0
    mean_ready: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Samples handed out by the time elapsed; 0 before the first batch."""
        return self.n_samples / self.elapsed_seconds if self.elapsed_seconds and self.n_samples else 0.0

    @property
    def waiting_share(self) -> float:
        """Which part of the time the consumer waited: near 0 the model is what takes time, near 1 the data."""
        return self.waiting_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0

    def __str__(self) -> str:
        where = self.worker_kind + (f" ({self.n_workers})" if self.n_workers else "")
        return (
            f"{self.n_samples:,} samples in {self.n_batches:,} batches, {self.samples_per_second:,.0f} samples/s, "
            f"{self.n_bytes / 1e6:,.1f} MB; the consumer waited {self.waiting_seconds:.3f} s of {self.elapsed_seconds:.3f} s "
            f"({self.waiting_share:.1%}); made {where or 'nowhere yet'}: read {self.read_seconds:.3f} s, collate "
            f"{self.collate_seconds:.3f} s, transform {self.transform_seconds:.3f} s, convert {self.convert_seconds:.3f} s; "
            f"{self.n_ready} ready, {self.mean_ready:.1f} on average"
        )


class Counters:
    """Counts while a loader is iterated over; an iteration has its own."""

    def __init__(self) -> None:
        self.waiting_seconds = 0.0
        self.making_seconds = 0.0  # of these, what the consumer's thread spent before the conversion
        self._began: float | None = None
        self._ended: float | None = None
        self._workers = ("", 0, "")
        self._n_batches = self._n_samples = self._n_bytes = 0
        self._n_asked = self._sum_ready = 0
        self._read_seconds = self._collate_seconds = self._transform_seconds = 0.0

    def begin(self) -> None:
        """The consumer asks for its first batch."""
        self._began = time.perf_counter()

    def asked(self, n_ready: int) -> None:
        """The consumer asks, and so many batches are ready."""
        self._n_asked += 1
        self._sum_ready += n_ready

    def made(self, made: MadeBatch) -> None:
        """A batch has come from the workers."""
        self._read_seconds += made.read_seconds
        self._collate_seconds += made.collate_seconds
        self._transform_seconds += made.transform_seconds

    def received(self, n_samples: int, n_bytes: int) -> None:
        """The consumer has received a batch."""
        self._n_batches += 1
        self._n_samples += n_samples
        self._n_bytes += n_bytes

    def end(self, workers: Workers | None) -> None:
        """The iteration has ended."""
        if self._began is not None:
            self._ended = time.perf_counter()
        self._look_at(workers)

    def statistics(self, workers: Workers | None) -> LoaderStatistics:
        """What has been counted until now, or until the end of the iteration."""
        if self._ended is None:
            self._look_at(workers)
        kind, n_workers, choice = self._workers
        elapsed = 0.0 if self._began is None else (self._ended or time.perf_counter()) - self._began
        return LoaderStatistics(
            worker_kind=kind,
            n_workers=n_workers,
            choice=choice,
            n_batches=self._n_batches,
            n_samples=self._n_samples,
            n_bytes=self._n_bytes,
            elapsed_seconds=elapsed,
            waiting_seconds=self.waiting_seconds,
            read_seconds=self._read_seconds,
            collate_seconds=self._collate_seconds,
            transform_seconds=self._transform_seconds,
            convert_seconds=max(0.0, self.waiting_seconds - self.making_seconds),
            n_ready=0 if workers is None or self._ended is not None else workers.n_ready,
            mean_ready=self._sum_ready / self._n_asked if self._n_asked else 0.0,
        )

    def _look_at(self, workers: Workers | None) -> None:
        if workers is not None and self._n_asked:
            self._workers = workers.kind, workers.n_workers, workers.choice
