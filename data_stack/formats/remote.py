"""Access to samples in a store that is far away, whose blocks are prefetched."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import ColumnKey, SourceAccess
from data_stack.dataset.iterator.blocks import (
    MAX_KEPT_REMOTE_BYTES,
    blocks_of_rows,
    rows_of_block,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.io.read_clock import read_clock
from data_stack.util.executor import Executor

#: The number of threads that prefetch. Each waits for one request: a fast connection to a distant
#: store needs this number of requests under way.
_N_THREADS: Final = 16

#: The maximum number of blocks that are remembered as prefetched, for each access.
_MAX_PREFETCHED: Final = 128

#: The threads that fetch blocks that are needed soon.
_executor = Executor("data_stack-ahead", lambda: _N_THREADS, grace_seconds=0.5)


@dataclass(slots=True)
class _PrefetchedBlocks:
    """The last blocks that an access has prefetched. Threads may share them.

    Attributes:
        process: the process whose threads fetch the blocks.
        n_samples: the number of samples in a block.
        futures: what fetches each block, by its number; the oldest block first.
    """

    process: int
    n_samples: int
    futures: dict[int, list[Future[object]]] = field(default_factory=dict)

    def blocks_of(self, positions: IndexArrayOfInts) -> list[int]:
        """Return the numbers of the blocks of samples, each once, in the order of the samples."""
        blocks = (positions // self.n_samples).tolist()
        return list(dict.fromkeys(blocks))

    def is_being_fetched(self, block: int) -> bool:
        """Return whether threads are fetching a block."""
        futures = self.futures.get(block, [])
        return any(not future.done() for future in futures)

    def cancel(self) -> None:
        """Cancel the fetches that no thread has begun."""
        for block, futures in list(self.futures.items()):
            are_cancelled = [future.cancel() for future in futures if not future.done()]
            if any(are_cancelled):
                self.futures.pop(block, None)

    def remember(self, block: int, futures: list[Future[object]]) -> None:
        """Remember what fetches a block, and forget the oldest blocks above the limit."""
        self.futures[block] = futures
        n_too_many = len(self.futures) - _MAX_PREFETCHED
        if n_too_many > 0:
            # A list is made at once: another thread may change the dict during a loop over it.
            for oldest_block in list(self.futures)[:n_too_many]:
                self.futures.pop(oldest_block, None)


#: The blocks that each access has prefetched. An access has no attribute for them, as it is
#: pickled, and futures cannot be.
_prefetched: WeakKeyDictionary[RemoteAccess, _PrefetchedBlocks] = WeakKeyDictionary()


class RemoteAccess(SourceAccess):
    """Access to samples that a store may hold, of which each read waits for the store."""

    @abstractmethod
    def remote_bytes(self) -> float:
        """Return the size of a sample in bytes, if it is read by range from a store.

        0 for local samples, or if the size is unknown.
        """

    @abstractmethod
    def fetches(
        self, positions: range, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        """Return calls that fetch neighbouring samples from their store into its cache.

        Args:
            positions: the positions of the samples.
            keys: the columns to fetch; None for all columns.

        Returns:
            A call for each column that is not in memory.
        """

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether samples are remote, as worker processes would each fetch the same blocks."""
        return self.remote_bytes() > 0

    @property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether the cache of the store cannot hold all samples."""
        return self.n_samples * self.remote_bytes() > MAX_KEPT_REMOTE_BYTES

    def blocks(self) -> npt.NDArray[np.int64] | None:
        sample_bytes = self.remote_bytes()
        if not sample_bytes:
            return None
        return blocks_of_rows(self.n_samples, sample_bytes)

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[ColumnKey] | None = None
    ) -> None:
        prefetched = _prefetched.get(self)
        if len(positions) == 0:
            if prefetched is not None:
                prefetched.cancel()
            return
        # A forked child has none of the threads of its parent.
        if prefetched is None or prefetched.process != os.getpid():
            sample_bytes = self.remote_bytes()
            if not sample_bytes:
                return
            prefetched = _PrefetchedBlocks(os.getpid(), rows_of_block(sample_bytes))
            _prefetched[self] = prefetched
        for block in prefetched.blocks_of(positions):
            # Two threads may both fetch a block; the cache of the store then fetches it once.
            if prefetched.is_being_fetched(block):
                continue
            start = block * prefetched.n_samples
            block_positions = range(start, min(start + prefetched.n_samples, self.n_samples))
            # Errors are raised when the samples are read.
            fetches = self.fetches(block_positions, keys)
            prefetched.remember(block, [_executor.submit(fetch) for fetch in fetches])

    def await_prefetched(self, positions: IndexArrayOfInts) -> bool:
        """Wait for the blocks of samples that are being prefetched.

        Otherwise the bytes of such a block would be fetched twice.

        Returns:
            Whether all blocks of the samples had been prefetched.
        """
        prefetched = _prefetched.get(self)
        if prefetched is None or prefetched.process != os.getpid():
            return False
        are_all_known = True
        for block in prefetched.blocks_of(positions):
            futures = prefetched.futures.get(block)
            if futures is None:
                are_all_known = False
            elif not all(future.done() for future in futures):
                # Waiting for futures that are done takes ten times as long as asking them.
                with read_clock:
                    wait(futures)
        return are_all_known
