"""What a loader has done, and how long its consumer waited for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from data_stack.loader.jobs import MadeBatch
from data_stack.loader.workers.workers import Workers

__all__ = ["Counters", "LoaderStatistics"]


@dataclass(slots=True)
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
        self._figures = LoaderStatistics()
        self._began: float | None = None
        self._is_over = False
        self.making_seconds = 0.0  # what the consumer's thread spent before the conversion
        self._n_asked = self._sum_ready = 0

    def begin(self) -> None:
        """The consumer asks for its first batch."""
        self._began = time.perf_counter()

    def waited(self, seconds: float) -> None:
        """The consumer has waited so long for a batch."""
        self._figures.waiting_seconds += seconds

    def made(self, made: MadeBatch, workers: Workers, n_ready: int) -> None:
        """A batch has come from the workers; when it was asked for, so many were ready."""
        self._n_asked += 1
        self._sum_ready += n_ready
        figures = self._figures
        figures.read_seconds += made.read_seconds
        figures.collate_seconds += made.collate_seconds
        figures.transform_seconds += made.transform_seconds
        figures.worker_kind, figures.n_workers, figures.choice = workers.kind, workers.n_workers, workers.choice

    def received(self, n_samples: int, n_bytes: int) -> None:
        """The consumer has received a batch."""
        self._figures.n_batches += 1
        self._figures.n_samples += n_samples
        self._figures.n_bytes += n_bytes

    def end(self) -> None:
        """The iteration has ended."""
        self._figures, self._is_over = self.statistics(None), True

    def statistics(self, workers: Workers | None) -> LoaderStatistics:
        """What has been counted until now, or until the end of the iteration."""
        if self._is_over:
            return replace(self._figures)
        return replace(
            self._figures,
            elapsed_seconds=0.0 if self._began is None else time.perf_counter() - self._began,
            convert_seconds=max(0.0, self._figures.waiting_seconds - self.making_seconds),
            n_ready=0 if workers is None else workers.n_ready,
            mean_ready=self._sum_ready / self._n_asked if self._n_asked else 0.0,
        )
