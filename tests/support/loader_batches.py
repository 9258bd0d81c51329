"""Small datasets for a loader, and what is in the batches that it gives."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    DatasetIterator,
    DatasetIteratorIF,
    SampleAccess,
    SequenceDatasetIterator,
    SourceAccess,
)
from data_stack.loader import Loader


def numbers_to(n: int) -> DatasetIteratorIF:
    """Samples that are their own positions."""
    return SequenceDatasetIterator([np.arange(n)])


def rows_and_numbers(n: int = 100) -> SequenceDatasetIterator:
    """Samples of a row of three float32, each a number of its own, and the sample's position."""
    return SequenceDatasetIterator([np.arange(n * 3, dtype=np.float32).reshape(n, 3), np.arange(n)])


def numbers_given(loader: Loader, n_batches: int | None = None) -> list[list[int]]:
    """The numbers in the next batches of an iteration, which is broken off after so many."""
    batches = []
    for (column,) in loader:
        batches.append(column.tolist())
        if len(batches) == n_batches:
            break
    return batches


def beginning_at(offset: int, n: int = 1024) -> Any:
    """``n`` float32 that begin ``offset`` bytes behind a multiple of 64; they are not set."""
    memory = np.zeros(n * 4 + 128, dtype=np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + n * 4].view(np.float32)


class BlocksAccess(SourceAccess):
    """The access of :class:`InBlocks`."""

    releases_gil = True

    def __init__(self, source: InBlocks) -> None:
        super().__init__(source)
        self.n_samples = sum(source.lengths)

    def sample(self, position: int) -> dict[str, Any]:
        if position == self.source.torn:
            raise OSError("a page is torn")
        return {"x": position}

    def blocks(self) -> npt.NDArray[np.int64]:
        return np.array(self.source.lengths)

    def locate(self, position: int) -> str:
        ends = np.cumsum(self.source.lengths)
        page = int(np.searchsorted(ends, position, side="right"))
        start = ends[page] - self.source.lengths[page]
        return f"line {position - start} of page {page}"


class InBlocks(AccessedDatasetIterator):
    """A source as a client writes it: numbers in blocks, which are read outside of the GIL.

    Args:
        lengths: the number of samples of each block.
        torn: a sample that cannot be read; None if all can.
    """

    _keeps_access = False

    def __init__(self, *lengths: int, torn: int | None = None) -> None:
        self.lengths = lengths
        self.torn = torn

    def make_access(self) -> SampleAccess:
        return BlocksAccess(self)


class Computing(DatasetIterator):
    """Rows that Python computes under the GIL, ``n_steps`` for each; a row holds the process
    number.
    """

    def __init__(self, n: int, n_steps: int = 1500) -> None:
        self.n = n
        self.n_steps = n_steps

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[int, int]:
        total = 0
        for step in range(self.n_steps):
            total += step
        return index, os.getpid()


class _FailsElsewhere:
    """A transform that other processes cannot even unpickle."""

    def __call__(self, batch: Any) -> Any:
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, (os.getpid(),)


def _refuse(pid: int) -> NoReturn:
    raise ImportError("what this needs is not installed here")


fail_elsewhere = _FailsElsewhere()
