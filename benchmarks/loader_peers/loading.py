"""What a compared loader does: shuffled batches of 256 of a workload, epoch after epoch, from two
workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import record_peers
from record_peers.system import BATCH, Batch
from record_peers.workload import Schema, Workload

__all__ = ["BATCH", "N_WORKERS", "LoaderSystem", "Loading", "as_columns"]

N_WORKERS = 2


class Loading(ABC):
    """An open loader.

    Attributes:
        ahead: how many batches its workers may make ahead; a turn begins after them.
    """

    ahead: int = 2 * N_WORKERS

    @abstractmethod
    def epoch(self) -> Iterator[Any]:
        """The batches of the next epoch, as the loader gives them."""

    def columns(self, batch: Any) -> Batch:
        """A batch as arrays by field, and lists of bytes for blobs; this is not measured."""
        return as_columns(batch)

    def kind_of_workers(self) -> str:
        """Which workers a loader that chooses by itself has chosen, and why; "" for all others."""
        return ""

    def close(self) -> None:
        """Let go of workers and files."""
        return


@dataclass(frozen=True)
class LoaderSystem:
    """A loader on top of a way to store samples.

    Attributes:
        open: makes a loader of what :meth:`write` wrote.
        kind: ``"ours"``, ``"limit"`` or ``"peer"``; the best peer is sought among peers.
        stored: the system of :mod:`record_peers` whose files it reads.
        works: the workloads it is measured in.
    """

    open: Callable[[Schema, Path], Loading]
    kind: str = "peer"
    stored: str = "memmap"
    works: tuple[str, ...] = ("W1", "W2", "W3", "W4")

    def write(self, work: Workload, folder: Path) -> None:
        """Write the workload into a folder that does not exist yet."""
        record_peers.system(self.stored).write(work, folder)


def as_columns(batch: Any) -> Batch:
    """Tensors as arrays, blobs as lists of bytes; ``lengths`` beside ``bytes`` are blobs end to
    end.
    """
    columns: dict[str, Any] = {
        name: values if isinstance(values, (list, np.ndarray)) else np.asarray(values)
        for name, values in batch.items()
    }
    if "lengths" not in columns:
        return {
            name: list(values) if isinstance(values[0], bytes) else values
            for name, values in columns.items()
        }
    lengths, whole = columns.pop("lengths").tolist(), columns.pop("bytes").tobytes()
    ends = np.cumsum(lengths).tolist()
    return {
        "blob": [whole[end - length : end] for end, length in zip(ends, lengths, strict=True)],
        **columns,
    }
