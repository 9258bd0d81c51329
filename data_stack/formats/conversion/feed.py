"""The columns of a dataset, batch by batch, read ahead by threads, with a progress bar."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from data_stack.formats.conversion.source import Source
from data_stack.io.progress import new_bar, shows_progress
from data_stack.util.executor import waiting

__all__ = ["Feed", "Prepare", "progress_bar", "read_ahead", "size_of"]

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")

#: About what a batch takes in memory, and how many samples it has at most.
_BATCH_BYTES: Final = 8 << 20
_MOST_IN_BATCH: Final = 4096
_LOOKED_AT: Final = 4

Prepare = Callable[[int, dict[str, Any]], Any]
"""What to make of a batch that begins with a position; called in the threads that read ahead."""


class Feed:
    """Reads a source for a target, in order.

    Args:
        source: what to read; threads share it where ``jobs`` is more than 1.
        jobs: threads that read ahead; 1 to read where it is asked for.
        tick: told of samples as they are read.
    """

    def __init__(self, source: Source, jobs: int, tick: Callable[[int], Any]) -> None:
        self.source, self._jobs, self._tick = source, jobs, tick
        self.n_samples = len(source)
        self._batch_samples: int | None = None

    def skip(self, n_samples: int) -> None:
        """Count samples that need not be read."""
        self._tick(n_samples)

    def batches(self, stored: Collection[str] = (), *, start: int = 0, prepare: Prepare | None = None) -> Iterator[Any]:
        """Batches from sample ``start`` on, as ``prepare`` makes them of columns by name.

        Args:
            stored: columns that are read as the bytes of their files.
            start: the first sample.
            prepare: what to make of a batch; None to leave it as it is.
        """
        size, names = self.size_of_batch(stored), list(self.source.schema)
        firsts = range(start, self.n_samples, size)

        def read(first: int) -> Any:
            positions = np.arange(first, min(first + size, self.n_samples), dtype=np.intp)
            columns = self.source.read(positions, names, stored)
            return columns if prepare is None else prepare(first, columns)

        for first, batch in zip(firsts, read_ahead(read, firsts, self._jobs), strict=True):
            yield batch
            self._tick(min(first + size, self.n_samples) - first)

    def size_of_batch(self, stored: Collection[str] = ()) -> int:
        """How many samples a batch has, by the size of the first ones."""
        positions = np.arange(min(_LOOKED_AT, self.n_samples), dtype=np.intp)
        if not len(positions):
            return 1
        columns = self.source.read(positions, self.source.schema, stored)
        n_bytes = sum(map(size_of, columns.values())) / len(positions)
        return int(max(1, min(_MOST_IN_BATCH, _BATCH_BYTES // max(1, n_bytes))))


def read_ahead(read: Callable[[_Item], _Made], items: Sequence[_Item], jobs: int) -> Iterator[_Made]:
    """``map(read, items)``, by ``jobs`` threads that are no more than that ahead; 1 to read where it is asked for."""
    if jobs == 1 or len(items) < 2:
        yield from map(read, items)
        return
    yield from waiting.map(read, items, at_once=jobs)


def size_of(column: npt.NDArray[Any]) -> int:
    """About how many bytes the values of a column take."""
    if column.dtype.kind != "O":
        return int(column.nbytes)
    return sum(getattr(value, "nbytes", None) or sys.getsizeof(value) for value in column)


@contextlib.contextmanager
def progress_bar(what: str, n_samples: int, progress: bool | None) -> Iterator[Callable[[int], Any]]:
    """Gives what counts samples on a bar on standard error, if there is somebody to look at it."""
    if not shows_progress(progress):
        yield lambda n_more: None
        return
    with new_bar(desc=what, total=n_samples, unit=" samples") as bar:
        yield bar.update
