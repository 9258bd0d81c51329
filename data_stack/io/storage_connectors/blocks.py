"""Positional reads of blocks from a slow store, with a small cache and read-ahead."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from data_stack.exception import DamagedBlockError
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.recent_pieces import (
    Piece,
    RecentPieces,
    index_pieces,
    pieces_of,
)
from data_stack.util.executor import waiting
from data_stack.util.forks import call_in_forks

#: The limit of the recent pieces.
_MAX_RECENT_BYTES: Final = 40 << 20
#: The same for four windows of a block-wise shuffle, of 25 MiB each: while workers read the end of
#: one and the start of the next, two more arrive. Room for three made an epoch by two workers move
#: up to two thirds more than its bytes.
_MAX_RECENT_BYTES_PREFETCHING: Final = 104 << 20
#: The limit of one call of ``prefetch()``: a window, and the blocks at its ends.
_MAX_PREFETCHED_BYTES: Final = 28 << 20
#: A long read fetches this much at a time, so that its bytes are not held twice.
_MAX_GROUP_BYTES: Final = 16 << 20
#: The number of requests that :meth:`Blocks.fetch` sends at once.
_REQUESTS_AT_ONCE: Final = 16

#: The recent pieces of all sources. h5py and zipfile read the same places again and again.
_recent: Final = RecentPieces(_MAX_RECENT_BYTES, _MAX_RECENT_BYTES_PREFETCHING)
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

    def fetch(self, numbers: Sequence[int]) -> list[Piece]:
        """Fetch and verify blocks. By default, each run of neighbours is one request and one piece.

        Any number of threads and forked processes may call it at once.

        Args:
            numbers: the numbers of the blocks, ascending, no two equal.

        Returns:
            Pieces of exactly these blocks, in the order of ``numbers``.

        Raises:
            DamagedBlockError: a block is missing or damaged.
            StorageUnavailableError: the store did not answer within its timeout.
        """
        runs = list(runs_of(numbers))
        if len(runs) == 1:
            return [self._fetch_piece(runs[0])]
        return list(waiting.map(self._fetch_piece, runs, at_once=_REQUESTS_AT_ONCE))

    def fetch_run(self, first: int, n_blocks: int) -> bytes | memoryview:
        """Fetch and verify neighbouring blocks in one request.

        Args:
            first: the number of the first block.
            n_blocks: how many blocks to fetch.

        Returns:
            The bytes of the blocks, end to end.

        Raises:
            DamagedBlockError: a block is missing or damaged.
            StorageUnavailableError: the store did not answer within its timeout.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither fetch() nor fetch_run()")

    def _fetch_piece(self, run: Run) -> Piece:
        return Piece(run.first, run.n_blocks, self.fetch_run(run.first, run.n_blocks))

    def range_of(self, first: int, n_blocks: int) -> tuple[int, int]:
        """Return the first byte of neighbouring blocks, and the byte behind the last one."""
        start = first * self.block_bytes
        stop = min((first + n_blocks) * self.block_bytes, self.size)
        return start, stop

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
    #: Identifies this source among the recent pieces.
    _number: int
    #: Where the last read ended; -1 before the first one.
    _last_end: int
    #: How many bytes were read one after the other up to ``_last_end``.
    _n_sequential_bytes: int
    #: The fetches under way in this process, by the number of the block. A fetch ends with the
    #: piece of each block; some or all are missing if it failed.
    _fetches: dict[int, Future[dict[int, Piece]]]
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

        for piece in self._get_pieces(self._blocks_in(offset, end), n_ahead):
            piece_start = piece.first * self._blocks.block_bytes
            start = max(offset, piece_start)
            stop = min(end, piece_start + len(piece.data))
            part = memoryview(piece.data)[start - piece_start : stop - piece_start]
            buffer[start - offset : stop - offset] = part
        return end - offset

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        # The bytes are copied once, here.
        return [b"".join(parts) for parts in self._find_parts(ranges)]

    def read_views(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        views = []
        for parts in self._find_parts(ranges):
            is_in_one_piece = len(parts) == 1
            views.append(parts[0] if is_in_one_piece else memoryview(b"".join(parts)))
        return views

    def _find_parts(self, ranges: Sequence[tuple[int, int]]) -> list[list[memoryview]]:
        """Return the bytes of ranges as parts of pieces, which are kept or fetched."""
        blocks_of_ranges = []
        numbers = set[int]()
        for offset, size in ranges:
            end = min(offset + size, self._blocks.size)
            blocks = self._blocks_in(offset, end)
            blocks_of_ranges.append(blocks)
            numbers.update(blocks)
        piece_of = index_pieces(self._get_pieces(sorted(numbers)))

        parts_of_ranges = []
        for (offset, size), blocks in zip(ranges, blocks_of_ranges, strict=True):
            end = min(offset + size, self._blocks.size)
            position = offset
            parts = []
            for piece in pieces_of(blocks, piece_of):
                # Two pieces may have the same blocks, if one was dropped and fetched again.
                piece_start = piece.first * self._blocks.block_bytes
                stop = min(end, piece_start + len(piece.data))
                part = memoryview(piece.data)[position - piece_start : stop - piece_start]
                parts.append(part)
                position += len(part)
            parts_of_ranges.append(parts)
        return parts_of_ranges

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
        for _ in self._get_pieces(wanted, is_prefetch=True):
            pass
        return n_ranges

    def close(self) -> None:
        _recent.drop(self._number)
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

    def _get_pieces(
        self, numbers: Sequence[int], n_ahead: int = 0, *, is_prefetch: bool = False
    ) -> Iterator[Piece]:
        """Yield pieces that have all of some blocks, kept or fetched.

        Args:
            numbers: the numbers of the blocks, ascending.
            n_ahead: how many following blocks a request also fetches.
            is_prefetch: whether nobody needs the blocks yet.
        """
        group_size = max(1, _MAX_GROUP_BYTES // self._blocks.block_bytes)
        for start in range(0, len(numbers), group_size):
            group = numbers[start : start + group_size]
            piece_of = _recent.find(self._number, group)
            missing = [number for number in group if number not in piece_of]
            if missing and n_ahead:
                ahead = self._numbers_ahead(missing[-1], group[-1], n_ahead)
                piece_of |= self._fetch_with_ahead(missing, ahead)
                missing = [number for number in missing if number not in piece_of]
            while missing:
                piece_of |= self._fetch(missing, is_prefetch=is_prefetch)
                # The blocks that another thread was fetching when it failed are fetched here.
                missing = [number for number in missing if number not in piece_of]
            yield from pieces_of(group, piece_of)

    def _fetch_with_ahead(self, missing: list[int], ahead: list[int]) -> dict[int, Piece]:
        """Fetch missing blocks, and blocks ahead of them, whose damage is not the reader's concern.

        Args:
            missing: the numbers of the blocks that the reader wants, ascending.
            ahead: the numbers of the blocks behind them.

        Returns:
            As of :meth:`_fetch`; nothing if the blocks have to be fetched without those ahead.
        """
        try:
            return self._fetch(missing + ahead, is_prefetch=False)
        except DamagedBlockError:
            # Which block is damaged is clear once the others are fetched alone.
            return {}

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
            if not _recent.has(self._number, number)
        ]

    def _fetch(self, numbers: Sequence[int], *, is_prefetch: bool) -> dict[int, Piece]:
        """Fetch blocks, and wait for those that other threads are fetching.

        Args:
            numbers: the numbers of the blocks, ascending.
            is_prefetch: whether nobody needs the blocks yet.

        Returns:
            The piece of each block, without the blocks for which another thread failed.
        """
        outcome = Future[dict[int, Piece]]()
        with self._lock:
            # Another thread may have fetched some just now.
            piece_of = _recent.find(self._number, numbers)
            other_fetches = {}
            missing = []
            for number in numbers:
                if number in self._fetches:
                    other_fetches[number] = self._fetches[number]
                elif number not in piece_of:
                    missing.append(number)
            self._fetches.update(dict.fromkeys(missing, outcome))

        fetched: dict[int, Piece] = {}
        try:
            if missing:
                pieces = self._blocks.fetch(missing)
                fetched = index_pieces(pieces)
                for piece in pieces:
                    _recent.put(self._number, piece, is_prefetched=is_prefetch)
        finally:
            with self._lock:
                for number in missing:
                    del self._fetches[number]
            outcome.set_result(fetched)

        for number in missing:
            piece_of[number] = fetched[number]
        for number, other_fetch in other_fetches.items():
            other_pieces = other_fetch.result()
            if number in other_pieces:
                piece_of[number] = other_pieces[number]
        return piece_of

    def _forget_fetches(self) -> None:
        """Begin without fetches. In a fork, the threads of the parent do not go on."""
        self._lock = threading.Lock()
        self._fetches = {}
