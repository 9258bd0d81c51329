"""Access to samples in a store that is far away, whose blocks are prefetched."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import ColumnKey, SourceAccess
from data_stack.dataset.iterator.blocks import MAX_KEPT_REMOTE_BYTES, blocks_of_rows
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.util.executor import Executor

#: Reads blocks that are needed soon; as many at once as a fast line over a long way takes.
_ahead = Executor("data_stack-ahead", lambda: 16, grace_seconds=0.5)
#: The last blocks that an access has prefetched, by number, with what fetches them, and the process.
_expected: WeakKeyDictionary[RemoteAccess, tuple[int, dict[int, list[Future[object]]]]] = (
    WeakKeyDictionary()
)
_MAX_EXPECTED = 128


class RemoteAccess(SourceAccess):
    """Access to samples that a store may hold, of which each read waits for the store."""

    @abstractmethod
    def remote_bytes(self) -> float:
        """Size of a sample in bytes if it is read by range from a store; 0 if it is local, or its size is unknown."""

    releases_gil = property(
        lambda self: self.remote_bytes() > 0
    )  # worker processes would each fetch the same blocks
    prefers_blocks = property(
        lambda self: self.n_samples * self.remote_bytes() > MAX_KEPT_REMOTE_BYTES
    )

    def blocks(self) -> npt.NDArray[np.int64] | None:
        n_bytes = self.remote_bytes()
        return blocks_of_rows(self.n_samples, n_bytes) if n_bytes else None

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[ColumnKey] | None = None
    ) -> None:
        process, expected = _expected.get(self, (0, {}))
        if process != os.getpid():
            _expected[self] = os.getpid(), (expected := {})
        for block, places in self._blocks_of(positions):
            if all(future.done() for future in expected.get(block, ())):
                # Errors are raised when the samples are read.
                expected[block] = [_ahead.submit(fetch) for fetch in self.fetches(places, keys)]
                while len(expected) > _MAX_EXPECTED:
                    expected.pop(next(iter(expected)), None)

    def await_prefetched(self, positions: IndexArrayOfInts) -> bool:
        """Wait for the blocks of samples that are on their way, rather than to ask for a part of them again; whether all were."""
        process, expected = _expected.get(self, (0, {}))
        if process != os.getpid():
            return False
        found = [expected.get(block) for block, _ in self._blocks_of(positions)]
        wait(future for futures in found for future in futures or ())
        return None not in found

    def _blocks_of(self, positions: IndexArrayOfInts) -> Iterator[tuple[int, range]]:
        """The blocks of samples, in the order of the samples, with all positions in each."""
        if (lengths := self.blocks()) is not None:
            ends = np.cumsum(lengths)
            for block in dict.fromkeys(ends.searchsorted(positions, side="right").tolist()):
                yield block, range(int(ends[block] - lengths[block]), int(ends[block]))

    @abstractmethod
    def fetches(
        self, places: range, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        """Calls that fetch neighbouring samples from their store into its cache, one for each column (of ``keys``)."""
