"""How fast a Parquet dataset is read: what ``data-stack parquet throughput`` measures, apart from printing.

Figures are of the epochs that count, but for ``first_batch_seconds``: from opening the dataset to its first batch, in the first
epoch of all. ``stored_mb_per_second`` is MB (10⁶ bytes) of the fields as they are stored, ``peak_memory_mb`` that of this
process, as the system counts it, with what it had before it read.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.cli.parquet_facts import facts_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.dataset import ParquetDataset
from data_stack.loader.loader import Loader
from data_stack.loader.orders import BlockShuffled
from data_stack.loader.workers.kinds import WorkerKind

__all__ = ["Throughput", "measure"]


@dataclass(frozen=True)
class Throughput:
    """Figures of whole epochs; those of the warm-up do not count, but for the first batch.

    Attributes:
        fields: that were read.
        worker_kind: "inline", "threads" or "processes".
        n_workers: threads or processes; 0 for inline.
        n_epochs: that count.
        n_rows: of all of these.
        seconds: that these took.
        rows_per_second: the one by the other.
        stored_mb_per_second: MB (10⁶ bytes) of these fields as they are stored.
        first_batch_seconds: from opening the dataset to its first batch, in the first epoch of all.
        peak_memory_mb: of this process, as the system counts it, with what it had before it read.
    """

    fields: tuple[str, ...]
    worker_kind: str
    n_workers: int
    n_epochs: int
    n_rows: int
    seconds: float
    rows_per_second: float
    stored_mb_per_second: float
    first_batch_seconds: float
    peak_memory_mb: float


def measure(
    source: Any,
    fields: Sequence[str] | None = None,
    *,
    workers: int | None = None,
    worker_kind: WorkerKind = "auto",
    batch_size: int = 256,
    shuffle: bool = True,
    window: int = 8,
    warmup: int = 1,
    epochs: int = 1,
) -> Throughput:
    """Read whole epochs of a dataset, and measure that.

    Each epoch reads the files again, with workers of its own; the system may have the files in memory.

    Args:
        source: as for :class:`~data_stack.formats.parquet.ParquetDataset`.
        fields: names or regular expressions; None for all.
        workers: as for :class:`~data_stack.loader.loader.Loader`.
        worker_kind: likewise.
        batch_size: likewise.
        shuffle: row groups in a random order, and the rows of ``window`` of them.
        window: row groups that are mixed.
        warmup: epochs before those that count.
        epochs: that count.

    Raises:
        ConfigError: there is no such field, or the dataset has no rows.
        ResourceNotFoundError, DatasetFileCorruptError: as ``ParquetDataset``.
    """
    facts = facts_of(source)
    if not facts["n_rows"]:
        raise ConfigError(f"there are no rows to read in {facts['name']!r}")
    order = BlockShuffled(window=window) if shuffle else False
    first_batch, n_rows, seconds = 0.0, 0, 0.0
    for epoch in range(warmup + epochs):
        start = time.perf_counter()
        dataset = ParquetDataset(source, fields)  # of its own for each epoch: what one keeps in memory is not read again
        with Loader(dataset, batch_size, shuffle=order, seed=epoch, workers=workers, worker_kind=worker_kind) as loader:
            for batch in loader:
                first_batch = first_batch or time.perf_counter() - start
                n_rows += len(next(iter(batch.values()))) if epoch >= warmup else 0
            seconds += time.perf_counter() - start if epoch >= warmup else 0.0
            statistics = loader.stats()
    names = tuple(dataset.schema.fields)
    stored = sum(field["stored_bytes"] or 0 for field in facts["fields"] if field["name"] in names) / facts["n_rows"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Throughput(
        fields=names,
        worker_kind=statistics.worker_kind,
        n_workers=statistics.n_workers,
        n_epochs=epochs,
        n_rows=n_rows,
        seconds=seconds,
        rows_per_second=n_rows / seconds,
        stored_mb_per_second=stored * n_rows / seconds / 1e6,
        first_batch_seconds=first_batch,
        peak_memory_mb=peak / 1e6 if sys.platform == "darwin" else peak / 1e3,  # macOS counts bytes, Linux KiB
    )
