"""The blocks of a resource of which a cache has only some, or none."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from data_stack.exception import ChecksumMismatchError, ResourceChangedError
from data_stack.io.integrity import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    digest_of_block,
    digests_of_blocks,
)
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.blocks import Blocks, Run, blocks_of, runs_of
from data_stack.io.storage_connectors.cached.content import Content
from data_stack.io.storage_connectors.cached.folder import (
    MAX_BLOCK_BYTES,
    BlockFiles,
    CacheFolder,
    refuse_damaged,
)
from data_stack.io.storage_connectors.cached.remote import Remote
from data_stack.io.storage_connectors.cached.room import DISK_PAGE_BYTES
from data_stack.io.storage_connectors.recent_pieces import Piece, index_pieces, pieces_of
from data_stack.util.forks import fork_lock
from data_stack.util.reused_memory import received

#: Opens the resource of the remote, and returns it with its content now.
OpenRemote: TypeAlias = "Callable[[], tuple[StreamedResource, Content]]"

#: The digest of a block that is missing.
_NO_DIGEST: Final = bytes(DIGEST_BYTES)


class CachedBlocks(Blocks):
    """Reads blocks from a sparse file in the cache, and fetches missing ones from the remote.

    A second file holds the digests of the blocks. A block counts as cached if its bytes have the
    digest in this file. After a kill, a torn write, a power cut or a flipped bit they do not, and
    the block is fetched again. Any number of threads and processes may add blocks at once. If the
    cache cannot store the resource, there are no files, and every block is fetched.

    Args:
        remote: the store behind the cache.
        folder: the folder of the cache.
        identifier: the identifier of the resource.
        content: the bytes of the resource.
        resource: the resource of the remote, which is closed with the blocks. None: it is opened
            once a block is missing.
        open_remote: opens the resource of the remote.
    """

    _remote: Remote
    _folder: CacheFolder
    _identifier: str
    _content: Content
    _resource: StreamedResource | None
    _open_remote: OpenRemote
    #: The modification time that a file of these bytes has once it is verified.
    _verified_ns: int
    #: The files of the blocks; None if the cache cannot store the resource, or after close().
    _files: BlockFiles | None
    #: Whether fetched blocks are added to the files.
    _adds_blocks: bool
    #: Whether another process has completed the file of the bytes.
    _is_completed: bool
    #: The completed file, verified; None before it is opened.
    _completed_file: ByteSource | None
    #: Held while this file or the resource of the remote is opened.
    _opening: threading.Lock

    def __init__(
        self,
        remote: Remote,
        folder: CacheFolder,
        identifier: str,
        content: Content,
        resource: StreamedResource | None,
        open_remote: OpenRemote,
    ) -> None:
        self._remote = remote
        self._folder = folder
        self._identifier = identifier
        self._content = content
        self._verified_ns = content.verified_ns
        self._resource = resource
        self._open_remote = open_remote
        self._files = None
        self._is_completed = False
        self._completed_file = None
        self._opening = fork_lock()
        self.size = content.size
        self.sha256 = content.sha256
        self.block_bytes = BLOCK_BYTES

        # Cache the blocks of the remote themselves, if their length is suitable. Of longer blocks,
        # every process that reads a part would fetch the whole.
        remote_blocks = None
        if resource is not None:
            remote_blocks = blocks_of(resource)
        if remote_blocks is not None:
            self.ahead_bytes = remote_blocks.ahead_bytes
            if BLOCK_BYTES <= remote_blocks.block_bytes <= MAX_BLOCK_BYTES:
                self.block_bytes = remote_blocks.block_bytes

        if self._folder.room.admits(self.size):
            with self._stopping_on_errors():
                self._files = self._folder.open_blocks(self._content, self.block_bytes)
                self.block_bytes = self._files.block_bytes
        self._adds_blocks = self._files is not None

    def fetch(self, numbers: Sequence[int]) -> list[Piece]:
        """Return blocks from the cache, or else from the remote.

        If another process is fetching a block, its result is awaited in the cache.
        """
        if self._adds_blocks:
            piece_of = self._folder.work.share(
                self._content.key, numbers, self._find, self._fetch_and_keep
            )
        else:
            piece_of = self._find(numbers)
            missing = [number for number in numbers if number not in piece_of]
            if missing:
                piece_of |= self._fetch_and_keep(missing)
        return pieces_of(numbers, piece_of)

    def close(self) -> None:
        """Close the files. If the file has all blocks, it becomes a whole file of the cache.

        A resource that nobody closed is closed when Python ends. It has no threads and few built-in
        functions by then, so the file keeps its blocks, and the next reader completes it.

        Raises:
            ChecksumMismatchError: the remote sent bytes without its own digest.
        """
        files = self._files
        may_complete = self._adds_blocks and not sys.is_finalizing()
        try:
            if may_complete and files is not None:
                self._complete_file(files)
        finally:
            self._files = None
            if files is not None:
                files.close()
            if self._completed_file is not None:
                self._completed_file.close()
            if self._resource is not None:
                self._resource.close()

    # ------------------------------------------------------------------ cached blocks

    def _find(self, numbers: Sequence[int]) -> dict[int, Piece]:
        """Return the pieces of those blocks that are cached, verified."""
        files = self._files
        if files is None:
            return {}
        pieces: list[Piece] = []
        with self._stopping_on_errors():
            # Another process may complete the file, and then removes the digests of its blocks.
            # That it did so is remembered: a third process, which has fetched the same block, may
            # write to the file afterwards, and so change the time that tells it.
            if not self._is_completed:
                self._is_completed = self._has_verified_time(files)
            if self._is_completed:
                return index_pieces(self._find_in_completed_file(numbers))
            for run in runs_of(numbers):
                pieces += self._find_in_run(files, run)
        return index_pieces(pieces)

    def _find_in_run(self, files: BlockFiles, run: Run) -> list[Piece]:
        """Return those of neighbouring blocks that are cached, verified.

        Raises:
            OSError: the disk failed.
        """
        digests_start = (1 + run.first) * DIGEST_BYTES
        digests = os.pread(files.digests, run.n_blocks * DIGEST_BYTES, digests_start)
        has_none = digests == bytes(len(digests))
        if has_none:
            return []
        digest_of = {}
        for number in range(run.first, run.first + run.n_blocks):
            digest = digest_of_block(digests, number - run.first)
            if digest not in (b"", _NO_DIGEST):
                digest_of[number] = digest

        # Neighbours are read together. If one of them is damaged, each is read by itself.
        pieces = []
        for cached_run in runs_of(list(digest_of)):
            piece = self._read_verified(files, cached_run, digest_of)
            if piece is not None:
                pieces.append(piece)
                continue
            for number in range(cached_run.first, cached_run.first + cached_run.n_blocks):
                piece = self._read_verified(files, Run(number, 1), digest_of)
                if piece is not None:
                    pieces.append(piece)
        return pieces

    def _read_verified(
        self, files: BlockFiles, run: Run, digest_of: Mapping[int, bytes]
    ) -> Piece | None:
        """Read neighbouring blocks; return None if one of them differs from its digest.

        Args:
            files: the files of the blocks.
            run: the blocks.
            digest_of: the digest of each block, by its number.

        Raises:
            OSError: the disk failed.
        """
        start, stop = self.range_of(run.first, run.n_blocks)
        buffer = received.lend(stop - start)
        n_read = os.preadv(files.data, [buffer], start)
        data = buffer[:n_read].toreadonly()
        piece = Piece(run.first, run.n_blocks, data)
        expected = b"".join(digest_of[number] for number in piece.numbers)
        if digests_of_blocks(data, self.block_bytes) != expected:
            return None
        return piece

    def _find_in_completed_file(self, numbers: Sequence[int]) -> list[Piece]:
        """Return blocks of the file that another process has completed, verified.

        Returns:
            All of the blocks; or none, if the file was removed.

        Raises:
            OSError: the file is damaged.
        """
        with self._opening:
            if self._completed_file is None:
                self._completed_file = self._folder.open_whole(self._content, refuse_damaged)
            completed_file = self._completed_file
        if completed_file is None:
            return []
        runs = list(runs_of(numbers))
        data_of_runs = completed_file.read_ranges(self._ranges_of(runs))
        return _make_pieces(runs, data_of_runs)

    def _has_verified_time(self, files: BlockFiles) -> bool:
        """Return whether the file of the bytes has the time of a verified whole file."""
        return os.fstat(files.data).st_mtime_ns == self._verified_ns

    def _keep(self, pieces: Sequence[Piece]) -> None:
        """Add pieces to the files, as long as the cache has room."""
        files = self._files
        if not self._adds_blocks or files is None:
            return
        with self._stopping_on_errors():
            # On the disk, a block may take one page more than its length, and its digest a page.
            n_bytes = sum(len(piece.data) for piece in pieces)
            n_blocks = sum(piece.n_blocks for piece in pieces)
            has_room = self._folder.room.has_room(n_bytes + 2 * DISK_PAGE_BYTES * n_blocks)
            # An evicted file has no name. Writing to it would take room that nobody counts.
            status = os.fstat(files.data)
            is_evicted = status.st_nlink == 0
            is_completed = status.st_mtime_ns == self._verified_ns
            if not has_room or is_evicted or is_completed:
                self._adds_blocks = False
                return
            for piece in pieces:
                # One long write: a file that was written by short ones is read more slowly.
                os.pwrite(files.data, piece.data, piece.first * self.block_bytes)
                # If the disk is full and some blocks were not written, their digests do not match.
                digests = digests_of_blocks(piece.data, self.block_bytes)
                os.pwrite(files.digests, digests, (1 + piece.first) * DIGEST_BYTES)

    def _complete_file(self, files: BlockFiles) -> None:
        """Turn the file into a whole one if it has all blocks.

        If the digest of the whole file is wrong, the file is removed.

        Raises:
            ChecksumMismatchError: the digest is wrong although all blocks are as the remote has
                sent them: the remote has stated another digest than that of its bytes.
        """
        is_fault_of_remote = False
        with self._stopping_on_errors():
            if self._is_completed or not self._has_all_blocks(files):
                return
            if self._folder.verify_open_file(self._content, files.data):
                return
            is_fault_of_remote = self._has_blocks_as_sent()
            self._folder.room.drop(self._content.key)
        if is_fault_of_remote:
            raise ChecksumMismatchError(
                self._identifier,
                repr(self._remote.connector),
                self._content.sha256,
                "another one",
            )

    def _has_all_blocks(self, files: BlockFiles) -> bool:
        """Return whether each block has a digest. The digest of a missing block is zero.

        Raises:
            OSError: the disk failed.
        """
        n_bytes = self._content.digests_size(self.block_bytes)
        digests = os.pread(files.digests, n_bytes, DIGEST_BYTES)
        # A digest has 8 bytes, so it is one integer of the type "Q".
        return 0 not in memoryview(digests).cast("Q")

    def _has_blocks_as_sent(self) -> bool:
        """Return whether all blocks in the file have the digests with which they were added."""
        n_blocks = -(-self.size // self.block_bytes)
        return all(self._find([number]) for number in range(n_blocks))

    @contextlib.contextmanager
    def _stopping_on_errors(self) -> Iterator[None]:
        """If the local disk fails in the block, report it, and add no further blocks."""
        try:
            yield
        except OSError as error:
            self._adds_blocks = False
            self._folder.health.report("use", error)

    # ------------------------------------------------------------------ blocks of the remote

    def _fetch_and_keep(self, numbers: Sequence[int]) -> dict[int, Piece]:
        pieces = self._fetch_from_remote(numbers)
        self._keep(pieces)
        return index_pieces(pieces)

    def _fetch_from_remote(self, numbers: Sequence[int]) -> list[Piece]:
        """Fetch blocks from the remote.

        Raises:
            ChecksumMismatchError: the remote sent less than it promised.
            ResourceChangedError: the remote has other bytes now.
            StorageUnavailableError: the remote did not answer.
        """
        resource = self._open_resource()

        # If the remote has blocks of the same length, they are fetched as blocks. Reading their
        # bytes would keep each block in memory a second time, among the recent pieces.
        remote_blocks = blocks_of(resource)
        if remote_blocks is not None and remote_blocks.block_bytes == self.block_bytes:
            return self._remote.ask(self._identifier, lambda: remote_blocks.fetch(numbers))

        runs = list(runs_of(numbers))
        ranges = self._ranges_of(runs)
        data_of_runs = self._remote.ask(self._identifier, lambda: _read_ranges(resource, ranges))
        for (start, size), data in zip(ranges, data_of_runs, strict=True):
            if len(data) != size:
                actual_end = str(start + len(data))
                raise ChecksumMismatchError(
                    self._identifier,
                    repr(self._remote.connector),
                    str(self.size),
                    actual_end,
                    "size",
                )
        return _make_pieces(runs, data_of_runs)

    def _ranges_of(self, runs: Sequence[Run]) -> list[tuple[int, int]]:
        """Return offset and size of each run of blocks."""
        ranges = []
        for run in runs:
            start, stop = self.range_of(run.first, run.n_blocks)
            ranges.append((start, stop - start))
        return ranges

    def _open_resource(self) -> StreamedResource:
        """Return the resource of the remote. It is opened now if that has not happened yet.

        Of several threads, one opens it, and the others wait.

        Raises:
            ResourceChangedError: the remote has other bytes now.
        """
        with self._opening:
            if self._resource is None:
                resource, content = self._open_remote()
                if content != self._content:
                    resource.close()
                    raise ResourceChangedError(
                        self._identifier, f"sha256 {self.sha256}", f"sha256 {content.sha256}"
                    )
                self._resource = resource
            return self._resource


def _make_pieces(runs: Sequence[Run], data_of_runs: Sequence[bytes]) -> list[Piece]:
    """Return the pieces of runs of blocks."""
    pieces = []
    for run, data in zip(runs, data_of_runs, strict=True):
        pieces.append(Piece(run.first, run.n_blocks, data))
    return pieces


def _read_ranges(resource: StreamedResource, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Read ``(offset, size)`` ranges of a resource."""
    if len(ranges) == 1:
        # A store with read-ahead recognizes sequential access by single reads.
        return [resource.read_at(*ranges[0])]
    return resource.read_ranges(ranges)
