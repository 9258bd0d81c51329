"""The bytes of a resource behind a cache: from its local folder, or from the remote, and then kept there."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from data_stack.exception import ChecksumMismatchError, ResourceChangedError
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest, digest_of_block
from data_stack.io.lazy_source import LazySource
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks, blocks_of, runs_of
from data_stack.io.storage_connectors.cache_folder import (
    MAX_BLOCK_BYTES,
    WHOLE_BYTES,
    CacheFolder,
    Content,
    read_nothing,
)
from data_stack.io.storage_connectors.connector import ResourceInfo
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.util.polling import polls

#: The most that is requested and held in memory at once.
_AT_ONCE_BYTES = 4 << 20


class CachedSource(LazySource):
    """Those bytes; it prefetches even once they are whole on this disk, so that blocks, and orders by them, stay the same."""

    prefetches = True

    def __init__(self, cached: CachedResource) -> None:
        super().__init__(cached)
        self._cached = cached

    def close(self) -> None:
        super().close()
        self._cached.release()


class CachedResource:
    """Opens a resource with a content, according to the remote: its call returns pinned bytes.

    Args:
        cache: the CachedStorageConnector.
        identifier: of the resource.
        content: its bytes.
        opened: it in the remote, as it was opened last.
    """

    def __init__(
        self, cache: Any, identifier: str, content: Content, opened: StreamedResource | None
    ) -> None:
        self.cache, self.identifier, self.content, self.opened = cache, identifier, content, opened

    def fill(self) -> bool:
        """Copy all of it to the local disk; whether it fits."""
        folder = self.cache._folder
        with contextlib.closing(self()) as source:
            if isinstance(source, BlockedSource):
                buffer = memoryview(bytearray(_AT_ONCE_BYTES))
                for offset in range(0, source.size, _AT_ONCE_BYTES):
                    source.readinto_at(offset, buffer)
        return bool(folder.has("bytes", self.content) and not folder.has("blocks", self.content))

    def __call__(self) -> ByteSource:
        folder, content = self.cache._folder, self.content
        if content.size > WHOLE_BYTES or not folder.admits(content.size):
            source = folder.open_whole(content, self._read_again) or self._open()
        else:
            source = folder.share_one(
                content.key, lambda: folder.open_whole(content, self._read_again), self._open
            )
        self.release()
        return source

    def release(self) -> None:
        """Close the resource as it was opened last, if nothing has read from it."""
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.close()

    def _open(self) -> ByteSource:
        """Open what is not whole in the cache."""
        cache, content = self.cache, self.content
        folder: CacheFolder = cache._folder
        has_blocks, resource = folder.has("blocks", content), None
        if not (has_blocks and cache._is_silent()):
            try:
                resource, self.content = self.open_remote()
            except OSError:
                if not has_blocks:  # cached blocks serve while the remote is away
                    raise
        if resource is not None and self.content != content:  # it was replaced in between
            resource.close()
            return self()
        if content.size > WHOLE_BYTES or resource is None:
            # Another process may have completed it meanwhile.
            whole = None if resource is None else folder.open_whole(content, self._read_again)
            if resource is not None and whole is not None:
                resource.close()
                return whole
            return BlockedSource(_CachedBlocks(self, resource))
        with resource:
            data = cache._ask(self.identifier, lambda: resource.read_at(0, content.size))
        actual = hashlib.sha256(data).hexdigest()
        if actual != content.sha256:
            raise ChecksumMismatchError(self.identifier, repr(cache.remote), content.sha256, actual)
        folder.store_whole(content, data)
        whole = folder.open_whole(content, self._read_again)
        return whole or BytesSource(
            data, ResourceInfo(self.identifier, content.size, content.sha256)
        )

    def _read_again(self) -> ByteSource:
        """Open the same bytes again, whose cached file was damaged.

        Raises:
            ResourceChangedError: the remote has others now.
        """
        content = self.content
        source = CachedResource(self.cache, self.identifier, content, None)()
        if (source.sha256, source.size) != (content.sha256, content.size):
            now = f"sha256 {source.sha256}"
            source.close()
            raise ResourceChangedError(self.identifier, f"sha256 {content.sha256}", now)
        return source

    def open_remote(self) -> tuple[StreamedResource, Content]:
        """Open the resource in the remote; it stays open, so that a replacement does not change the bytes of this reader."""
        cache, identifier = self.cache, self.identifier
        for _ in polls(
            1.0, first=0.01, longest=0.1
        ):  # while a file is being replaced, a file store does not know its digest
            resource, self.opened = (
                self.opened
                or cache._ask(identifier, lambda: cache.remote.get_resource(identifier)),
                None,
            )
            content = cache._ask(identifier, functools.partial(Content.of, resource))
            if content is not None:
                return resource, content
            resource.close()
        raise ResourceChangedError(
            identifier, f"sha256 {self.content.sha256}", "bytes of an unknown digest"
        )


class _CachedBlocks(Blocks):
    """The blocks of a resource that is not whole in the cache: in a sparse file, with their digests in another one.

    A block is cached if it has the digest in the file of digests. After a kill, a torn write, a power cut or a flipped bit it
    does not, and is fetched again. Any number of threads and processes may add blocks at once. If the cache takes nothing, there
    are no files, and each block is fetched.
    """

    def __init__(self, source: CachedResource, resource: StreamedResource | None) -> None:
        self._source, self._resource = source, resource
        self._cache, self._folder, self._content = (
            source.cache,
            source.cache._folder,
            source.content,
        )
        self.size, self.sha256, self.block_bytes = (
            self._content.size,
            self._content.sha256,
            BLOCK_BYTES,
        )
        blocks = None if resource is None else blocks_of(resource)
        if blocks is not None:
            # Those of the remote: parts of its chunks would be moved as often as there are processes.
            self.block_bytes = (
                blocks.block_bytes
                if BLOCK_BYTES <= blocks.block_bytes <= MAX_BLOCK_BYTES
                else BLOCK_BYTES
            )
            self.ahead_bytes = blocks.ahead_bytes
        #: Of the bytes, and of the digests.
        self._handles: tuple[int, int] | None = None
        if self._folder.admits(self.size):
            with self._giving_up():
                *handles, self.block_bytes = self._folder.open_blocks(
                    self._content, self.block_bytes
                )
                self._handles = handles[0], handles[1]
        self._keeps, self._is_whole = self._handles is not None, False
        self._whole: ByteSource | None = None

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Cached blocks, and others from the remote that no other process is fetching."""
        if self._keeps:
            found = self._folder.share(self._content.key, numbers, self._find, self._make)
        else:
            found = self._find(numbers)
            if missing := [number for number in numbers if number not in found]:
                found |= self._make(missing)
        return [found[number] for number in numbers]

    def close(self) -> None:
        """Turn the file into a whole one if it has all blocks."""
        try:
            if self._keeps and not self._complete():  # the remote sent bytes without its own digest
                where = self._source.identifier, repr(self._cache.remote)
                raise ChecksumMismatchError(*where, self._content.sha256, "another one")
        finally:
            handles, self._handles = self._handles, None
            for handle in handles or ():
                os.close(handle)
            if self._whole is not None:
                self._whole.close()
            if self._resource is not None:
                self._resource.close()

    # ------------------------------------------------------------------ cached blocks

    def _find(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Those blocks that are cached, verified."""
        found = dict[int, bytes]()
        with self._giving_up():
            data, slots = self._handles or (-1, -1)
            # Another process may have completed it, and removed the digests, just before this one opened them; and a third one,
            # which fetched the same block, may write to it afterwards.
            self._is_whole |= (
                self._handles is not None and os.fstat(data).st_mtime_ns == self._content.seal_ns
            )
            if self._is_whole:
                return self._find_in_whole(numbers)
            for first, n_blocks in runs_of(numbers) if self._handles is not None else ():
                digests = os.pread(slots, n_blocks * DIGEST_BYTES, (1 + first) * DIGEST_BYTES)
                for number in range(first, first + n_blocks):
                    digest = digest_of_block(digests, number - first)
                    if digest.strip(b"\0"):
                        block = os.pread(data, self.block_bytes, number * self.block_bytes)
                        if block_digest(block) == digest:
                            found[number] = block
        return found

    def _find_in_whole(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Those blocks from the file that another process has completed, checked; none if it is damaged or gone.

        Raises:
            OSError: it is damaged.
        """
        if self._whole is None:
            self._whole = self._folder.open_whole(self._content, read_nothing)
        if self._whole is None:
            return {}
        ranges = [(number * self.block_bytes, self.block_bytes) for number in numbers]
        return dict(zip(numbers, self._whole.read_ranges(ranges), strict=True))

    def _keep(self, blocks: dict[int, bytes]) -> None:
        """Write blocks, unless there is no room, or the file was evicted or completed by another process."""
        if not self._keeps or self._handles is None:
            return
        data, digests = self._handles
        with self._giving_up():
            has_room = self._folder.has_room(sum(map(len, blocks.values())) + 8192 * len(blocks))
            # After an eviction, further writes would fill the disk unnoticed.
            status = os.fstat(data)
            self._keeps = (
                has_room and status.st_nlink > 0 and status.st_mtime_ns != self._content.seal_ns
            )
            for first, n_blocks in runs_of(list(blocks) if self._keeps else []):
                # Long writes: a file written in short ones is read more slowly. The digests of blocks that a full disk did not
                # take do not match.
                run = [blocks[number] for number in range(first, first + n_blocks)]
                os.pwritev(data, run, first * self.block_bytes)
                os.pwrite(digests, b"".join(map(block_digest, run)), (1 + first) * DIGEST_BYTES)

    def _complete(self) -> bool:
        """Seal the file if it has all blocks; False if all came as fetched, and the whole is wrong."""
        with self._giving_up():
            data, slots = self._handles or (-1, -1)
            content = self._content
            digests = os.pread(slots, content.digest_bytes(self.block_bytes), DIGEST_BYTES)
            is_complete = not self._is_whole and 0 not in memoryview(digests).cast("Q")
            if is_complete and not self._folder.seal(content, data):
                is_as_fetched = all(
                    self._find([number]) for number in range(len(digests) // DIGEST_BYTES)
                )
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

    # ------------------------------------------------------------------ from the remote

    def _make(self, numbers: Sequence[int]) -> dict[int, bytes]:
        fetched = dict(zip(numbers, self._fetch(numbers), strict=True))
        self._keep(fetched)
        return fetched

    def _fetch(self, numbers: Sequence[int]) -> Sequence[bytes]:
        identifier, runs, resource = self._source.identifier, list(runs_of(numbers)), self._resource
        if resource is None:  # the remote was away before
            resource, content = self._source.open_remote()
            if content != self._content:
                resource.close()
                raise ResourceChangedError(
                    identifier, f"sha256 {self.sha256}", f"sha256 {content.sha256}"
                )
            self._resource = resource
        blocks = blocks_of(resource)
        if (
            blocks is not None and blocks.block_bytes == self.block_bytes
        ):  # which would keep them in memory once more
            return self._cache._ask(identifier, lambda: blocks.fetch(numbers))  # type: ignore[no-any-return]
        ranges = [(start, stop - start) for start, stop in itertools.starmap(self.range_of, runs)]
        # A remote with read-ahead recognizes sequential access by single reads.
        read = (
            resource.read_ranges
            if len(ranges) > 1
            else lambda ranges: [resource.read_at(*ranges[0])]
        )
        pieces = self._cache._ask(identifier, lambda: read(ranges))
        for (start, size), data in zip(ranges, pieces, strict=True):
            if len(data) != size:
                where, end = repr(self._cache.remote), str(start + len(data))
                raise ChecksumMismatchError(identifier, where, str(self.size), end, "size")
        return [
            block
            for (_, n_blocks), data in zip(runs, pieces, strict=True)
            for block in self.split(data, n_blocks)
        ]
