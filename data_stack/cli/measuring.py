"""How fast a Parquet dataset is read: what ``data-stack parquet throughput`` measures, apart from printing."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from data_stack.cli.parquet_facts import facts_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.dataset import ParquetDataset
from data_stack.loader.loader import Loader
from data_stack.loader.orders import BlockShuffled
from data_stack.loader.workers.kinds import WorkerKind

__all__ = ["Throughput", "measured"]

#: The size of decoded values is told of so many rows.
_SIZED_ROWS: Final = 1000
_MILLION: Final = 10**6


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
        decoded_mb_per_second: MB of values handed out, by the mean size of the first 1,000 rows.
        first_batch_seconds: from opening the dataset to its first batch, in the first epoch of all.
        cpu_percent: processor time by wall time, this process and workers together: 200 is two processors.
        peak_memory_mb: of this process, as the system counts it, with what it had before it read.
        peak_worker_memory_mb: the sum of those of the worker processes; what they share is counted for each.
    """

    fields: tuple[str, ...]
    worker_kind: str
    n_workers: int
    n_epochs: int
    n_rows: int
    seconds: float
    rows_per_second: float
    stored_mb_per_second: float
    decoded_mb_per_second: float
    first_batch_seconds: float
    cpu_percent: float
    peak_memory_mb: float
    peak_worker_memory_mb: float


def measured(
    source: Any,
    fields: Sequence[str] | None = None,
    *,
    workers: int | None = None,
    worker_kind: WorkerKind = "auto",
    batch_size: int = 256,
    shuffle: bool = True,
    window: int = 8,
    seed: int = 0,
    warmup: int = 1,
    epochs: int = 1,
    rows: int | None = None,
) -> Throughput:
    """Read whole epochs of a dataset, and measure that.

    Each epoch reads the files again, with workers of its own; the system may have the files in memory.

    Args:
        source: as for :class:`~data_stack.formats.parquet.ParquetDataset`.
        fields: names or regular expressions; None for all.
        workers: threads or processes; None for as many as there are processors.
        worker_kind: as for :class:`~data_stack.loader.loader.Loader`.
        batch_size: rows of a batch.
        shuffle: row groups in a random order, and the rows of ``window`` of them.
        window: row groups that are mixed.
        seed: of the shuffle.
        warmup: epochs before those that count.
        epochs: that count.
        rows: count as many epochs as have so many rows, and at least ``epochs``.

    Raises:
        ConfigError: there is no such field, or the dataset has no rows.
        ResourceNotFoundError, DatasetFileCorruptError: as ``ParquetDataset``.
    """
    facts = facts_of(source)
    if not facts["n_rows"]:
        raise ConfigError(f"there are no rows to read in {facts['name']!r}")
    if rows is not None:
        epochs = max(epochs, -(-rows // facts["n_rows"]))
    first_batch, n_rows, seconds, cpu_seconds, worker_peak = 0.0, 0, 0.0, 0.0, 0
    kind: WorkerKind = worker_kind
    chosen, n_workers = "", 0
    for epoch in range(warmup + epochs):
        began = time.perf_counter()
        loader = Loader(
            ParquetDataset(source, fields),  # of its own for each epoch: what one keeps in memory is not read again
            batch_size,
            shuffle=BlockShuffled(window=window) if shuffle else False,
            seed=seed + epoch,
            workers=workers,
            worker_kind=kind,
        )
        start, cpu_start, n_in_epoch = time.perf_counter(), _cpu_seconds(), 0
        with loader:
            for batch in loader:
                if not first_batch:
                    first_batch = time.perf_counter() - began
                n_in_epoch += len(next(iter(batch.values())))
            if epoch >= warmup:
                seconds += time.perf_counter() - start
                cpu_seconds += _cpu_seconds() - cpu_start
                n_rows += n_in_epoch
            statistics = loader.stats()
            chosen, n_workers = statistics.worker_kind, statistics.n_workers
            if kind == "auto":  # what it chose remains
                kind, workers = cast(WorkerKind, chosen), n_workers or None
            worker_peak = max(worker_peak, sum(map(_peak_bytes_of, _descendants(os.getpid()))))
    dataset = ParquetDataset(source, fields)
    names = tuple(dataset.schema.fields)
    stored = sum(field["stored_bytes"] or 0 for field in facts["fields"] if field["name"] in names) / facts["n_rows"]
    decoded = _mean_row_bytes(dataset)
    per_second = n_rows / seconds
    return Throughput(
        fields=names,
        worker_kind=chosen,
        n_workers=n_workers,
        n_epochs=epochs,
        n_rows=n_rows,
        seconds=seconds,
        rows_per_second=per_second,
        stored_mb_per_second=stored * per_second / _MILLION,
        decoded_mb_per_second=decoded * per_second / _MILLION,
        first_batch_seconds=first_batch,
        cpu_percent=100 * cpu_seconds / seconds,
        peak_memory_mb=_own_peak_bytes() / _MILLION,
        peak_worker_memory_mb=worker_peak / _MILLION,
    )


# ---------------------------------------------------------------------- the ways to read


def _mean_row_bytes(dataset: ParquetDataset) -> float:
    n_rows = min(_SIZED_ROWS, len(dataset))
    return sum(_bytes_of(column) for column in dataset.read_batch(range(n_rows)).values()) / n_rows


def _bytes_of(value: Any) -> int:
    """Of an array and what it holds, a text, bytes; of anything else its size in Python."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes) if value.dtype != object else sum(map(_bytes_of, value.ravel()))
    if isinstance(value, (bytes, str)):
        return len(value)
    return 0 if value is None else sys.getsizeof(value)


# ---------------------------------------------------------------------- what the system tells


def _descendants(pid: int) -> list[int]:
    """The processes that a process started, and theirs; none where the system does not tell."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found, waiting = [], list(children.get(pid, ()))
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], ())
    return found


def _stat(pid: int) -> list[str] | None:
    """What stands behind the name of a process in its line of the system (proc_pid_stat(5)), from its state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return None


def _cpu_seconds() -> float:
    """Processor time of this process and of all that it started, those that ended included."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    ticks = 0
    for pid in _descendants(os.getpid()):
        fields = _stat(pid)
        if fields is not None:
            ticks += sum(map(int, fields[11:15]))  # utime, stime, and those of children that it waited for
    return total + (ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0)


def _own_peak_bytes() -> int:
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10  # macOS counts bytes, Linux KiB


def _peak_bytes_of(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
