"""Positional reads of blocks from a slow store, with a small cache and read-ahead."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.util.byte_cache import ByteCache
from data_stack.util.executor import waiting
from data_stack.util.forks import call_in_forks

#: The limit of the cache of recent blocks: three windows of a block-wise shuffle. Each has 12 MiB,
#: and the next two arrive while one is read.
_MAX_RECENT_BYTES: Final = 40 << 20
#: The limit of one call of ``prefetch()``: a window, and the blocks at its ends.
_MAX_PREFETCHED_BYTES: Final = 14 << 20
#: A long read fetches this much at a time, so that its bytes are not held twice.
_MAX_GROUP_BYTES: Final = 16 << 20
#: The number of requests that :meth:`Blocks.fetch` sends at once.
_REQUESTS_AT_ONCE: Final = 16

#: The recent blocks of all sources, by the number of the source and of the block. h5py and zipfile
#: read the same places again and again.
_recent: Final[ByteCache[tuple[int, int], bytes]] = ByteCache(_MAX_RECENT_BYTES, len)
_source_numbers: Final = itertools.count()


class Run(NamedTuple):
    """Neighbouring blocks.

    Attributes:
        first: the number of the first block.
        n_blocks: how many blocks there are.
    """

    first: int
    n_blocks: int


class Blocks:
    """Immutable bytes of a store, in blocks of one size. The last block may be shorter.

    A subclass defines :meth:`fetch_run`. A subclass that can fetch any blocks by one request
    defines :meth:`fetch` instead.

    Attributes:
        size: the length of all bytes.
        block_bytes: the length of a block in bytes.
        sha256: the recorded SHA-256 of all bytes, 64 hex digits; None if unknown.
        tag: the version in the store, if the store does not know a digest; otherwise None.
        ahead_bytes: the limit of the read-ahead, in bytes. The read-ahead grows with sequential
            reading.
    """

    ahead_bytes: int = 4 << 20
    size: int
    block_bytes: int
    sha256: str | None
    tag: str | None = None

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Fetch and verify blocks. By default, each run of neighbours is one request.

        Any number of threads and forked processes may call it at once.

        Args:
            numbers: the numbers of the blocks, ascending, no two equal.

        Returns:
            The bytes of each block, in the order of ``numbers``.

        Raises:
            DamagedBlockError: a block is missing or damaged.
            StorageUnavailableError: the store did not answer within its timeout.
        """
        runs = list(runs_of(numbers))
        if len(runs) == 1:
            return self.fetch_run(runs[0].first, runs[0].n_blocks)

        def fetch(run: Run) -> list[bytes]:
            return self.fetch_run(run.first, run.n_blocks)

        blocks_of_runs = waiting.map(fetch, runs, at_once=_REQUESTS_AT_ONCE)
        return list(itertools.chain.from_iterable(blocks_of_runs))

    def fetch_run(self, first: int, n_blocks: int) -> list[bytes]:
        """Fetch and verify neighbouring blocks in one request.

        Args:
            first: the number of the first block.
            n_blocks: how many blocks to fetch.

        Raises:
            DamagedBlockError: a block is missing or damaged.
            StorageUnavailableError: the store did not answer within its timeout.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither fetch() nor fetch_run()")

    def range_of(self, first: int, n_blocks: int) -> tuple[int, int]:
        """Return the first byte of neighbouring blocks, and the byte behind the last one."""
        start = first * self.block_bytes
        stop = min((first + n_blocks) * self.block_bytes, self.size)
        return start, stop

    def split(self, data: bytes, n_blocks: int) -> list[bytes]:
        """Split the bytes of neighbouring blocks.

        Returns:
            ``n_blocks`` blocks. If ``data`` is too short, the last ones are short or empty.
        """
        starts = range(0, n_blocks * self.block_bytes, self.block_bytes)
        return [data[start : start + self.block_bytes] for start in starts]

    def close(self) -> None:
        """Release what the blocks hold open. By default this is nothing."""


def runs_of(numbers: Sequence[int], group_size: int = 0) -> Iterator[Run]:
    """Yield the runs of neighbours among ascending numbers of blocks.

    Args:
        numbers: the numbers.
        group_size: no run crosses a multiple of this number; 0: runs have no limit.
    """
    if not numbers:
        return
    first = numbers[0]
    n_blocks = 0
    for number in numbers:
        is_neighbour = number == first + n_blocks
        begins_group = group_size > 0 and number % group_size == 0
        if n_blocks and (not is_neighbour or begins_group):
            yield Run(first, n_blocks)
            first = number
            n_blocks = 0
        n_blocks += 1
    yield Run(first, n_blocks)


def blocks_of(resource: StreamedResource) -> Blocks | None:
    """Return the blocks of a resource, to fetch them without its cache and its read-ahead.

    Returns:
        None if the resource has no blocks.
    """
    source = resource._source
    if isinstance(source, BlockedSource):
        return source._blocks
    return None


class BlockedSource(ByteSource):
    """Positional access to :class:`Blocks`, with read-ahead and a cache that all sources share.

    Random reads fetch only the blocks that they touch. Threads that need the same block at once
    fetch it once. After more than a block of sequential reading, each request also fetches the
    following blocks, more of them the longer it continues.

    Args:
        blocks: the blocks. They are closed with the source.
    """

    prefetches = True
    # Attributes in place of the abstract properties; the constructor sets them.
    size = 0
    sha256: str | None = None
    tag: str | None = None
    _blocks: Blocks
    #: Identifies this source in the cache of recent blocks.
    _number: int
    #: Where the last read ended; -1 before the first one.
    _last_end: int
    #: How many bytes were read one after the other up to ``_last_end``.
    _n_sequential_bytes: int
    #: The fetches under way in this process, by the number of the block. A fetch ends with the
    #: blocks that it got; some or all are missing if it failed.
    _fetches: dict[int, Future[dict[int, bytes]]]
    #: Guards ``_fetches``.
    _lock: Any

    def __init__(self, blocks: Blocks) -> None:
        self.size = blocks.size
        self.sha256 = blocks.sha256
        self.tag = blocks.tag
        self._blocks = blocks
        self._number = next(_source_numbers)
        self._last_end = -1
        self._n_sequential_bytes = 0
        self._forget_fetches()
        call_in_forks(self._forget_fetches)

    # ------------------------------------------------------------------ reading

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        end = min(offset + len(buffer), self._blocks.size)
        if offset >= end:
            return 0
        n_ahead = self._note_read(offset, end)

        n_filled = 0
        for number, block in self._get_blocks(self._blocks_in(offset, end), n_ahead):
            start = offset + n_filled - number * self._blocks.block_bytes
            n_wanted = end - offset - n_filled
            part = memoryview(block)[start : start + n_wanted]
            buffer[n_filled : n_filled + len(part)] = part
            n_filled += len(part)
        return end - offset

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        block_bytes = self._blocks.block_bytes

        # Which ranges touch which block?
        ranges_of_block: dict[int, list[int]] = {}
        for index, (offset, size) in enumerate(ranges):
            end = min(offset + size, self._blocks.size)
            for number in self._blocks_in(offset, end):
                ranges_of_block.setdefault(number, []).append(index)

        # Blocks come in ascending order, so the parts of a range do too. They are copied once, when
        # they are joined.
        parts: list[list[bytes | memoryview]] = [[] for _ in ranges]
        for number, block in self._get_blocks(sorted(ranges_of_block)):
            block_start = number * block_bytes
            for index in ranges_of_block[number]:
                offset, size = ranges[index]
                start = max(0, offset - block_start)
                stop = offset + size - block_start
                is_whole_block = start == 0 and stop >= len(block)
                parts[index].append(block if is_whole_block else memoryview(block)[start:stop])
        return [b"".join(parts_of_range) for parts_of_range in parts]

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        max_blocks = max(1, _MAX_PREFETCHED_BYTES // self._blocks.block_bytes)

        # Take ranges until they need too many blocks, but at least one.
        numbers: set[int] = set()
        n_ranges = 0
        for offset, size in ranges:
            end = min(offset + size, self._blocks.size)
            touched_numbers = self._blocks_in(offset, end)
            is_first_range = n_ranges == 0
            if not is_first_range and len(numbers.union(touched_numbers)) > max_blocks:
                break
            numbers.update(touched_numbers)
            n_ranges += 1

        # A reader waits for the fetches under way; prefetching does not.
        with self._lock:
            wanted = [
                number for number in sorted(numbers)[:max_blocks] if number not in self._fetches
            ]
        for _ in self._get_blocks(wanted):
            pass
        return n_ranges

    def close(self) -> None:
        _recent.drop(lambda key: key[0] == self._number)
        self._blocks.close()

    def _note_read(self, offset: int, end: int) -> int:
        """Note that a range of bytes is read; return how many blocks to read ahead of it.

        Threads that read one source at once disturb each other's notes: then too little or too much
        is read ahead, which does no harm.
        """
        if offset == self._last_end:
            self._n_sequential_bytes += end - offset
        else:
            self._n_sequential_bytes = 0
        self._last_end = end
        n_ahead_bytes = min(self._n_sequential_bytes, self._blocks.ahead_bytes)
        return n_ahead_bytes // self._blocks.block_bytes

    # ------------------------------------------------------------------ blocks

    def _blocks_in(self, start: int, stop: int) -> range:
        """Return the numbers of the blocks that hold a range of bytes; none if it is empty."""
        if start >= stop:
            return range(0)
        block_bytes = self._blocks.block_bytes
        return range(start // block_bytes, -(-stop // block_bytes))

    def _get_blocks(self, numbers: Sequence[int], n_ahead: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield blocks with their numbers, from the cache or fetched.

        Args:
            numbers: the numbers of the blocks, ascending.
            n_ahead: how many following blocks a request also fetches.
        """
        group_size = max(1, _MAX_GROUP_BYTES // self._blocks.block_bytes)
        for start in range(0, len(numbers), group_size):
            group = numbers[start : start + group_size]
            blocks = self._find_recent(group)
            missing = [number for number in group if number not in blocks]
            if missing and n_ahead:
                missing += self._numbers_ahead(missing[-1], group[-1], n_ahead)
            while missing:
                blocks |= self._fetch(missing)
                # The blocks that another thread was fetching when it failed are fetched here.
                missing = [number for number in missing if number not in blocks]
            for number in group:
                yield number, blocks[number]

    def _find_recent(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return those blocks that are in the cache, by their numbers."""
        recent_blocks = _recent.get_many([(self._number, number) for number in numbers])
        return {number: block for (_, number), block in recent_blocks.items()}

    def _numbers_ahead(self, last_missing: int, last_wanted: int, n_ahead: int) -> list[int]:
        """Return the numbers of the blocks that a request for missing blocks also fetches.

        Args:
            last_missing: the last block that is missing.
            last_wanted: the last block that the reader wants.
            n_ahead: how many blocks are read ahead.
        """
        n_blocks = -(-self._blocks.size // self._blocks.block_bytes)
        stop = min(max(last_missing + n_ahead, last_wanted) + 1, n_blocks)
        # Long reads end at multiples of ``ahead_bytes``, where a store may begin another object.
        aligned_stop = stop - stop % max(1, self._blocks.ahead_bytes // self._blocks.block_bytes)
        if aligned_stop > last_wanted:
            stop = aligned_stop
        return [
            number
            for number in range(last_missing + 1, stop)
            if (self._number, number) not in _recent
        ]

    def _fetch(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Fetch blocks, and wait for those that other threads are fetching.

        Returns:
            The blocks, without those for which another thread failed.
        """
        outcome = Future[dict[int, bytes]]()
        with self._lock:
            # Another thread may have fetched some just now.
            blocks = self._find_recent(numbers)
            other_fetches = {}
            missing = []
            for number in numbers:
                if number in self._fetches:
                    other_fetches[number] = self._fetches[number]
                elif number not in blocks:
                    missing.append(number)
            for number in missing:
                self._fetches[number] = outcome

        fetched: dict[int, bytes] = {}
        try:
            if missing:
                fetched = dict(zip(missing, self._blocks.fetch(missing), strict=True))
                for number, block in fetched.items():
                    _recent.put((self._number, number), block)
        finally:
            with self._lock:
                for number in missing:
                    del self._fetches[number]
            outcome.set_result(fetched)

        blocks |= fetched
        for number, other_fetch in other_fetches.items():
            other_blocks = other_fetch.result()
            if number in other_blocks:
                blocks[number] = other_blocks[number]
        return blocks

    def _forget_fetches(self) -> None:
        """Begin without fetches. In a fork, the threads of the parent do not go on."""
        self._lock = threading.Lock()
        self._fetches = {}
