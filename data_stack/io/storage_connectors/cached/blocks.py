"""The blocks of a resource that is not whole in a cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from data_stack.exception import ChecksumMismatchError, ResourceChangedError
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest, digest_of_block
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

#: Opens the resource of the remote, and returns it with its content now.
OpenRemote: TypeAlias = "Callable[[], tuple[StreamedResource, Content]]"

#: The digest of a block that is missing.
_NO_DIGEST: Final = bytes(DIGEST_BYTES)


class CachedBlocks(Blocks):
    """Blocks in a sparse file, with their digests in another one; or from the remote.

    A block is cached if it has the digest in the file of digests. After a kill, a torn write, a
    power cut or a flipped bit it does not, and is fetched again. Any number of threads and
    processes may add blocks at once. If the cache takes nothing, there are no files, and each block
    is fetched.

    Args:
        remote: the store behind the cache.
        folder: the folder of the cache.
        identifier: the identifier of the resource.
        content: the bytes of the resource.
        resource: the resource of the remote; None: it is opened when a block is missing. It is
            closed with the blocks.
        open_remote: opens the resource of the remote.
    """

    _remote: Remote
    _folder: CacheFolder
    _identifier: str
    _content: Content
    _resource: StreamedResource | None
    _open_remote: OpenRemote
    #: The files of the blocks; None if the cache takes nothing, or once they are closed.
    _files: BlockFiles | None
    #: Whether blocks are still added to the files.
    _keeps: bool
    #: Whether another process has completed the file.
    _is_whole: bool
    #: The file that another process has completed, verified; None before it is opened.
    _whole: ByteSource | None

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
        self._resource = resource
        self._open_remote = open_remote
        self._files = None
        self._keeps = True
        self._is_whole = False
        self._whole = None
        self.size = content.size
        self.sha256 = content.sha256
        self.block_bytes = BLOCK_BYTES

        # The blocks of the remote, if they have a suitable length. In others, parts of its blocks
        # would be moved by as many processes as read them.
        remote_blocks = None if resource is None else blocks_of(resource)
        if remote_blocks is not None:
            self.ahead_bytes = remote_blocks.ahead_bytes
            if BLOCK_BYTES <= remote_blocks.block_bytes <= MAX_BLOCK_BYTES:
                self.block_bytes = remote_blocks.block_bytes

        if self._folder.room.admits(self.size):
            with self._giving_up():
                self._files = self._folder.open_blocks(self._content, self.block_bytes)
                self.block_bytes = self._files.block_bytes
        if self._files is None:
            self._keeps = False

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Return cached blocks, and others from the remote that no other process is fetching."""
        if self._keeps:
            blocks = self._folder.work.share(
                self._content.key, numbers, self._find, self._fetch_and_keep
            )
        else:
            blocks = self._find(numbers)
            missing = [number for number in numbers if number not in blocks]
            if missing:
                blocks |= self._fetch_and_keep(missing)
        return [blocks[number] for number in numbers]

    def close(self) -> None:
        """Close the files. If all blocks are there, the file of the bytes becomes a whole one.

        Raises:
            ChecksumMismatchError: the remote sent bytes without its own digest.
        """
        files = self._files
        try:
            if self._keeps and files is not None:
                self._complete_file(files)
        finally:
            self._files = None
            if files is not None:
                files.close()
            if self._whole is not None:
                self._whole.close()
            if self._resource is not None:
                self._resource.close()

    # ------------------------------------------------------------------ cached blocks

    def _find(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return those blocks that are cached, verified."""
        files = self._files
        if files is None:
            return {}
        blocks: dict[int, bytes] = {}
        with self._giving_up():
            # Another process may have completed the file, and removed the digests, just before this
            # one opened them; and a third one, which fetched the same block, may write to the file
            # afterwards.
            if not self._is_whole:
                self._is_whole = os.fstat(files.data).st_mtime_ns == self._content.verified_ns
            if self._is_whole:
                return self._find_in_whole(numbers)
            for run in runs_of(numbers):
                blocks.update(self._find_run(files, run))
        return blocks

    def _find_run(self, files: BlockFiles, run: Run) -> dict[int, bytes]:
        """Return those of neighbouring blocks that are cached, verified.

        Raises:
            OSError: the disk failed.
        """
        digests_start = (1 + run.first) * DIGEST_BYTES
        digests = os.pread(files.digests, run.n_blocks * DIGEST_BYTES, digests_start)
        blocks = {}
        for number in range(run.first, run.first + run.n_blocks):
            digest = digest_of_block(digests, number - run.first)
            if digest in (b"", _NO_DIGEST):
                continue
            block = os.pread(files.data, self.block_bytes, number * self.block_bytes)
            if block_digest(block) == digest:
                blocks[number] = block
        return blocks

    def _find_in_whole(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return blocks of the file that another process has completed, verified.

        Returns:
            No blocks if the file is gone.

        Raises:
            OSError: the file is damaged.
        """
        if self._whole is None:
            self._whole = self._folder.open_whole(self._content, refuse_damaged)
        if self._whole is None:
            return {}
        ranges = [(number * self.block_bytes, self.block_bytes) for number in numbers]
        return dict(zip(numbers, self._whole.read_ranges(ranges), strict=True))

    def _keep(self, blocks: dict[int, bytes]) -> None:
        """Add blocks to the files, if the cache still takes them.

        Args:
            blocks: the blocks by their numbers, ascending.
        """
        files = self._files
        if not self._keeps or files is None:
            return
        with self._giving_up():
            # A block may need a page more than its length in the file of the bytes, and one in that
            # of the digests.
            n_bytes = sum(len(block) for block in blocks.values())
            has_room = self._folder.room.has_room(n_bytes + 2 * DISK_PAGE_BYTES * len(blocks))
            status = os.fstat(files.data)
            # After an eviction, further writes would fill the disk unnoticed.
            is_evicted = status.st_nlink == 0
            is_completed = status.st_mtime_ns == self._content.verified_ns
            if not has_room or is_evicted or is_completed:
                self._keeps = False
                return
            for run in runs_of(list(blocks)):
                run_blocks = [blocks[run.first + index] for index in range(run.n_blocks)]
                # One long write: a file that was written in short ones is read more slowly.
                os.pwritev(files.data, run_blocks, run.first * self.block_bytes)
                # The digests of blocks that a full disk did not take do not match.
                digests = b"".join(block_digest(block) for block in run_blocks)
                os.pwrite(files.digests, digests, (1 + run.first) * DIGEST_BYTES)

    def _complete_file(self, files: BlockFiles) -> None:
        """Turn the file into a whole one if it has all blocks.

        Raises:
            ChecksumMismatchError: all blocks are as the remote has sent them, but the digest of
                the whole differs from the one that the remote stated. The files are removed.
        """
        was_sent_wrong = False
        with self._giving_up():
            if not self._is_whole and self._has_all_blocks(files):
                is_right = self._folder.verify_open_file(self._content, files.data)
                if not is_right:
                    was_sent_wrong = self._drop_wrong_file()
        if was_sent_wrong:
            raise ChecksumMismatchError(
                self._identifier,
                repr(self._remote.connector),
                self._content.sha256,
                "another one",
            )

    def _has_all_blocks(self, files: BlockFiles) -> bool:
        """Return whether each block has a digest.

        Raises:
            OSError: the disk failed.
        """
        n_bytes = self._content.digests_size(self.block_bytes)
        digests = os.pread(files.digests, n_bytes, DIGEST_BYTES)
        return 0 not in memoryview(digests).cast("Q")

    def _drop_wrong_file(self) -> bool:
        """Remove a file with all blocks and other bytes than expected.

        Returns:
            Whether each of its blocks is as the remote has sent it.
        """
        n_blocks = -(-self.size // self.block_bytes)
        is_as_sent = all(self._find([number]) for number in range(n_blocks))
        self._folder.room.drop(self._content.key)
        return is_as_sent

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Stop caching this resource after an error of the local disk in the block."""
        try:
            yield
        except OSError as error:
            self._keeps = False
            self._folder.health.report("use", error)

    # ------------------------------------------------------------------ blocks of the remote

    def _fetch_and_keep(self, numbers: Sequence[int]) -> dict[int, bytes]:
        blocks = dict(zip(numbers, self._fetch_from_remote(numbers), strict=True))
        self._keep(blocks)
        return blocks

    def _fetch_from_remote(self, numbers: Sequence[int]) -> list[bytes]:
        """Fetch blocks from the remote.

        Raises:
            ChecksumMismatchError: the remote sent less than it promised.
            ResourceChangedError: the remote has other bytes now.
            StorageUnavailableError: the remote did not answer.
        """
        resource = self._open_resource()

        # Blocks of the same length are fetched as blocks: reading bytes would keep them in memory
        # once more.
        remote_blocks = blocks_of(resource)
        if remote_blocks is not None and remote_blocks.block_bytes == self.block_bytes:
            return self._remote.ask(self._identifier, lambda: remote_blocks.fetch(numbers))

        runs = list(runs_of(numbers))
        ranges = []
        for run in runs:
            start, stop = self.range_of(run.first, run.n_blocks)
            ranges.append((start, stop - start))
        pieces = self._remote.ask(self._identifier, lambda: _read_ranges(resource, ranges))

        blocks = []
        for run, (start, size), data in zip(runs, ranges, pieces, strict=True):
            if len(data) != size:
                actual_end = str(start + len(data))
                raise ChecksumMismatchError(
                    self._identifier,
                    repr(self._remote.connector),
                    str(self.size),
                    actual_end,
                    "size",
                )
            blocks.extend(self.split(data, run.n_blocks))
        return blocks

    def _open_resource(self) -> StreamedResource:
        """Return the resource of the remote. It is opened now if the remote was away before.

        Raises:
            ResourceChangedError: the remote has other bytes now.
        """
        if self._resource is None:
            resource, content = self._open_remote()
            if content != self._content:
                resource.close()
                raise ResourceChangedError(
                    self._identifier, f"sha256 {self.sha256}", f"sha256 {content.sha256}"
                )
            self._resource = resource
        return self._resource


def _read_ranges(resource: StreamedResource, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Read ``(offset, size)`` ranges of a resource."""
    if len(ranges) == 1:
        # A store with read-ahead recognizes sequential access by single reads.
        return [resource.read_at(*ranges[0])]
    return resource.read_ranges(ranges)
