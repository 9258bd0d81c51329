"""Positional reads of blocks from a slow store, with a small cache and read-ahead."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Final

from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.util.byte_cache import ByteCache
from data_stack.util.executor import waiting
from data_stack.util.forks import call_in_forks


class Blocks:
    """Immutable bytes of a store in blocks of one size (the last one may be shorter).

    A subclass defines :meth:`fetch_run`; or :meth:`fetch`, if one request can fetch blocks that are not neighbours.

    Attributes:
        size: length in bytes of the whole.
        block_bytes: length of a block.
        sha256: digest of the whole as recorded, 64 hex digits; None if unknown.
        ahead_bytes: limit of the read-ahead, which grows with sequential reading.
    """

    ahead_bytes: int = 4 << 20
    size: int
    block_bytes: int
    sha256: str | None
    #: The version in the store, if it does not know a digest.
    tag: str | None = None

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Fetch and verify the blocks of these numbers (ascending, no two equal); by default one request for each run.

        Any number of threads and forked processes may call it at once.

        Raises:
            DamagedBlockError: a block is missing or damaged.
            StorageUnavailableError: the store did not answer within its timeout.
        """
        runs = list(runs_of(numbers))
        if len(runs) == 1:
            return self.fetch_run(*runs[0])
        fetched = waiting.map(lambda run: self.fetch_run(*run), runs, at_once=16)
        return list(itertools.chain.from_iterable(fetched))

    def fetch_run(self, first: int, n_blocks: int) -> list[bytes]:
        """Fetch and verify neighbouring blocks in one request; raises as :meth:`fetch`."""
        raise NotImplementedError(f"{type(self).__name__} defines neither fetch() nor fetch_run()")

    def range_of(self, first: int, n_blocks: int) -> tuple[int, int]:
        """Where a run of blocks starts and stops, in bytes."""
        return first * self.block_bytes, min((first + n_blocks) * self.block_bytes, self.size)

    def split(self, data: bytes, n_blocks: int) -> list[bytes]:
        """The blocks in the bytes of a run; short or empty ones where bytes are missing."""
        return [
            data[number * self.block_bytes : (number + 1) * self.block_bytes]
            for number in range(n_blocks)
        ]

    def close(self) -> None:
        """Release handles."""


def runs_of(numbers: Sequence[int], most: int = 0) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring blocks: the first one, and their number.

    Args:
        numbers: ascending numbers of blocks.
        most: begin another run at multiples of this number; 0: nowhere.
    """
    for _, run in itertools.groupby(
        enumerate(numbers), lambda each: (each[1] - each[0], most and each[1] // most)
    ):
        blocks = [number for _, number in run]
        yield blocks[0], len(blocks)


def blocks_of(resource: StreamedResource) -> Blocks | None:
    """The blocks of a resource, without the cache and read-ahead before them; None if it has none."""
    source = resource._source
    return source._blocks if isinstance(source, BlockedSource) else None


#: The recent blocks of all sources by the number of the source and of the block. h5py and zipfile read the same places again and
#: again, and a block-wise shuffle uses one window of 12 MiB while the next two arrive.
_kept: Final[ByteCache[tuple[int, int], bytes]] = ByteCache(40 << 20, len)
_numbers: Final = itertools.count()
#: The most that is prefetched at once.
_PREFETCHED_BYTES: Final = 14 << 20


class BlockedSource(ByteSource):
    """Positional access to :class:`Blocks`, with a cache of recent blocks, which all sources share, and read-ahead.

    Random reads fetch only the blocks that they touch, and threads that need the same block at once fetch it once. After more
    than a block of sequential reading, each request also fetches the following blocks, more of them the longer it continues.
    """

    prefetches = True
    size = 0
    sha256: str | None = None
    tag: str | None = None

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.size, self.sha256, self.tag = blocks.size, blocks.sha256, blocks.tag
        self._number = next(_numbers)
        self._end_of_last, self._run_bytes = -1, 0
        self._begin_in_fork()
        call_in_forks(self._begin_in_fork)

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        end = min(offset + len(buffer), self._blocks.size)
        if offset >= end:
            return 0
        block_bytes = self._blocks.block_bytes
        self._run_bytes = self._run_bytes + end - offset if offset == self._end_of_last else 0
        self._end_of_last = end
        n_ahead = min(self._run_bytes, self._blocks.ahead_bytes) // block_bytes
        position = offset
        for number, data in self._obtain(
            range(offset // block_bytes, -(-end // block_bytes)), n_ahead
        ):
            start = position - number * block_bytes
            part = memoryview(data)[start : start + end - position]
            buffer[position - offset : position - offset + len(part)] = part
            position += len(part)
        return end - offset

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        block_bytes = self._blocks.block_bytes
        parts: list[list[bytes | memoryview]] = [[] for _ in ranges]
        touching: dict[int, list[int]] = {}
        for index, (offset, size) in enumerate(ranges):
            end = min(offset + size, self._blocks.size)
            if offset < end:
                for number in range(offset // block_bytes, -(-end // block_bytes)):
                    touching.setdefault(number, []).append(index)
        for number, data in self._obtain(sorted(touching)):
            start = number * block_bytes
            for index in touching[number]:
                offset, size = ranges[index]
                # Blocks come in ascending order, so the parts of a range do too.
                first, end = max(0, offset - start), offset + size - start
                parts[index].append(
                    memoryview(data)[first:end] if first or end < len(data) else data
                )  # copied once, by join
        return [b"".join(part) for part in parts]

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        block_bytes = self._blocks.block_bytes
        room = max(1, _PREFETCHED_BYTES // block_bytes)
        numbers: set[int] = set()
        n_ranges = 0
        for offset, size in ranges:
            touched = (
                range(
                    offset // block_bytes, -(-min(offset + size, self._blocks.size) // block_bytes)
                )
                if size
                else ()
            )
            if n_ranges and len(numbers.union(touched)) > room:
                break
            numbers.update(touched)
            n_ranges += 1
        wanted = sorted(numbers)[:room]
        with self._lock:
            wanted = [
                number for number in wanted if number not in self._fetches
            ]  # the reader waits for those under way
        for _ in self._obtain(wanted):
            pass
        return n_ranges

    def close(self) -> None:
        _kept.drop(lambda key: key[0] == self._number)
        self._blocks.close()

    # ------------------------------------------------------------------ inside

    def _find(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Those blocks that are in the cache."""
        return {
            number: data
            for (_, number), data in _kept.get_many(
                [(self._number, each) for each in numbers]
            ).items()
        }

    def _obtain(self, numbers: Sequence[int], n_ahead: int = 0) -> Iterator[tuple[int, bytes]]:
        """Blocks with their numbers, from the cache or fetched, then with up to ``n_ahead`` following ones."""
        at_once = max(
            1, (16 << 20) // self._blocks.block_bytes
        )  # reading a gigabyte must not hold it twice
        for start in range(0, len(numbers), at_once):
            group = numbers[start : start + at_once]
            found = self._find(group)
            missing = [number for number in group if number not in found]
            if missing and n_ahead:
                stop = min(
                    max(missing[-1] + 1 + n_ahead, group[-1] + 1),
                    -(-self._blocks.size // self._blocks.block_bytes),
                )
                # Long reads end at multiples of ``ahead_bytes``, where a store may begin another object.
                aligned = stop - stop % max(1, self._blocks.ahead_bytes // self._blocks.block_bytes)
                stop = aligned if aligned > group[-1] else stop
                missing += [
                    number
                    for number in range(missing[-1] + 1, stop)
                    if (self._number, number) not in _kept
                ]
            while missing:
                found |= self._fetch(missing)
                missing = [
                    number for number in missing if number not in found
                ]  # those of a thread that failed
            for number in group:
                yield number, found[number]

    def _fetch(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Fetch blocks, and wait for those that other threads are fetching; without those for which another thread failed."""
        own, fetched = Future[dict[int, bytes]](), dict[int, bytes]()
        with self._lock:
            found = self._find(numbers)  # another thread may have fetched them just now
            others = {
                number: self._fetches[number] for number in numbers if number in self._fetches
            }
            missing = [number for number in numbers if number not in others and number not in found]
            self._fetches.update(dict.fromkeys(missing, own))
        try:
            if missing:
                fetched = dict(zip(missing, self._blocks.fetch(missing), strict=True))
                for number, data in fetched.items():
                    _kept.put((self._number, number), data)
        finally:
            with self._lock:
                for number in missing:
                    del self._fetches[number]
            own.set_result(fetched)
        found |= fetched
        for number, fetch in others.items():
            if number in fetch.result():
                found[number] = fetch.result()[number]
        return found

    def _begin_in_fork(self) -> None:
        # threads of the parent do not go on here
        self._lock = threading.Lock()
        self._fetches: dict[int, Future[dict[int, bytes]]] = {}
