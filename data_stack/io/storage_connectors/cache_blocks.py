"""The cached blocks of a resource that is not whole in the local folder of a cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from data_stack.io.integrity import DIGEST_BYTES, block_digest, digest_of_block
from data_stack.io.storage_connectors.blocks import runs_of
from data_stack.io.storage_connectors.cache_folder import CacheFolder, Content


class CachedBlocks:
    """Blocks in a sparse file, with their digests in another one.

    A block is cached if it has the digest in the file of digests. After a kill, a torn write, a power cut or a flipped bit it
    does not, and is fetched again. Any number of threads and processes may add blocks at once.

    Args:
        folder: the cache. If it takes nothing, there are no files, and each block is fetched.
        content: the bytes of the resource.
        block_bytes: length of the blocks, unless there are files with blocks of another length.

    Attributes:
        block_bytes: length of the blocks.
    """

    def __init__(self, folder: CacheFolder, content: Content, block_bytes: int) -> None:
        self._folder, self._content, self.block_bytes = folder, content, block_bytes
        #: Of the bytes, and of the digests.
        self._handles: tuple[int, int] | None = None
        if folder.admits(content.size):
            with self._giving_up():
                *handles, self.block_bytes = folder.open_blocks(content, block_bytes)
                self._handles = handles[0], handles[1]
        self._keeps, self._is_whole = self._handles is not None, False

    def obtain(self, numbers: Sequence[int], fetch: Callable[[Sequence[int]], Sequence[bytes]]) -> list[bytes]:
        """Cached blocks, and others by ``fetch``, which is called for those that no other process is fetching."""

        def make(missing: Sequence[int]) -> dict[int, bytes]:
            fetched = dict(zip(missing, fetch(missing), strict=True))
            self._keep(fetched)
            return fetched

        if self._keeps:
            found = self._folder.share(self._content.key, numbers, self._find, make)
        else:
            found = self._find(numbers)
            if missing := [number for number in numbers if number not in found]:
                found |= make(missing)
        return [found[number] for number in numbers]

    def close(self) -> bool:
        """Turn the file into a whole one if it has all blocks; False if all came as fetched, and the whole is wrong."""
        try:
            return not self._keeps or self._complete()
        finally:
            handles, self._handles = self._handles, None
            for handle in handles or ():
                os.close(handle)

    def _find(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Those blocks that are cached, verified."""
        found = dict[int, bytes]()
        with self._giving_up():
            data, slots = self._handles or (-1, -1)
            # Another process may have completed it, and removed the digests, just before this one opened them; and a third one,
            # which fetched the same block, may write to it afterwards.
            self._is_whole |= self._handles is not None and os.fstat(data).st_mtime_ns == self._content.seal_ns
            for first, n_blocks in runs_of(numbers) if self._handles is not None else ():
                digests = os.pread(slots, n_blocks * DIGEST_BYTES, (1 + first) * DIGEST_BYTES)
                for number in range(first, first + n_blocks):
                    digest = digest_of_block(digests, number - first)
                    if self._is_whole or digest.strip(b"\0"):
                        block = os.pread(data, self.block_bytes, number * self.block_bytes)
                        if self._is_whole or block_digest(block) == digest:
                            found[number] = block
        return found

    def _keep(self, blocks: dict[int, bytes]) -> None:
        """Write blocks, unless there is no room, or the file was evicted or completed by another process."""
        if not self._keeps or self._handles is None:
            return
        data, digests = self._handles
        with self._giving_up():
            has_room = self._folder.has_room(sum(map(len, blocks.values())) + 8192 * len(blocks))
            # After an eviction, further writes would fill the disk unnoticed.
            status = os.fstat(data)
            self._keeps = has_room and status.st_nlink > 0 and status.st_mtime_ns != self._content.seal_ns
            for first, n_blocks in runs_of(list(blocks) if self._keeps else []):
                # Long writes: a file written in short ones is read more slowly. The digests of blocks that a full disk did not
                # take do not match.
                run = [blocks[number] for number in range(first, first + n_blocks)]
                os.pwritev(data, run, first * self.block_bytes)
                os.pwrite(digests, b"".join(map(block_digest, run)), (1 + first) * DIGEST_BYTES)

    def _complete(self) -> bool:
        with self._giving_up():
            data, slots = self._handles or (-1, -1)
            content = self._content
            digests = os.pread(slots, content.digest_bytes(self.block_bytes), DIGEST_BYTES)
            is_complete = not self._is_whole and 0 not in memoryview(digests).cast("Q")
            if is_complete and not self._folder.seal(content, data):
                is_as_fetched = all(self._find([number]) for number in range(len(digests) // DIGEST_BYTES))
                self._folder.drop(content.key)
                return not is_as_fetched
        return True

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Stop caching this resource after an error of the local disk, and read on."""
        try:
            yield
        except OSError as error:
            self._keeps = False
            self._folder.cannot("use", error)
