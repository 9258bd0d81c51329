"""Figures of a loader's iteration."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoaderStatistics"]


@dataclass(slots=True)
class LoaderStatistics:
    """Figures of a loader's current or last iteration; seconds are wall time.

    Attributes:
        worker_kind: "inline", "threads" or "processes"; "" before the first batch.
        n_workers: threads or processes; 0 for inline.
        choice: why ``worker_kind="auto"`` chose these; "" if the caller did.
        n_batches: handed out.
        n_samples: handed out.
        n_bytes: of the arrays handed out (of columns of objects, of the references).
        elapsed_seconds: from the start of the iteration to its end, or until now.
        waiting_seconds: how long the consumer waited for batches.
        read_seconds: for reading samples, summed over the workers.
        collate_seconds: for ``collate``, summed over the workers.
        transform_seconds: for ``transform``, summed over the workers.
        convert_seconds: for conversion to tensors and copies to a device, in the consumer's thread.
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

    @property
    def samples_per_second(self) -> float:
        """Samples handed out per second; 0 before the first batch."""
        return self.n_samples / self.elapsed_seconds if self.elapsed_seconds and self.n_samples else 0.0

    @property
    def waiting_share(self) -> float:
        """The share of the time that the consumer waited: near 0 the model is the bottleneck, near 1 the data."""
        return self.waiting_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0

    def __str__(self) -> str:
        where = self.worker_kind + (f" ({self.n_workers})" if self.n_workers else "")
        return (
            f"{self.n_samples:,} samples in {self.n_batches:,} batches, {self.samples_per_second:,.0f} samples/s, "
            f"{self.n_bytes / 1e6:,.1f} MB; the consumer waited {self.waiting_seconds:.3f} s of {self.elapsed_seconds:.3f} s "
            f"({self.waiting_share:.1%}); made {where or 'nowhere yet'}: read {self.read_seconds:.3f} s, collate "
            f"{self.collate_seconds:.3f} s, transform {self.transform_seconds:.3f} s, convert {self.convert_seconds:.3f} s"
        )
