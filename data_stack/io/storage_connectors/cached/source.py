"""The bytes of one resource, out of the local disk as far as they are there, else out of the remote and onto the disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
from collections.abc import Iterator, Sequence

from data_stack.exception import ChecksumMismatchError, DataStackError, ResourceChangedError
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.io.storage_connectors.cached.folder import Content
from data_stack.io.storage_connectors.cached.parts import PartialContent
from data_stack.io.storage_connectors.cached.remote import Remote
from data_stack.io.storage_connectors.connector import ResourceInfo
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.util.forks import call_in_forks

__all__ = ["CachedSource"]

#: What is shorter comes in one request, and is held against its digest before a byte of it is handed out.
WHOLE_BYTES = 1 << 20
#: The most that is asked for and held in memory at once.
_AT_ONCE_BLOCKS = (4 << 20) // BLOCK_BYTES


class CachedSource(ByteSource):
    """Reads a resource by position. It is opened, and from then on stays the same bytes, at the first need.

    Args:
        remote: where it comes from, and the folder that it is kept in.
        identifier: the resource.
        content: its bytes, as the remote said.
    """

    def __init__(self, remote: Remote, identifier: str, content: Content) -> None:
        self._remote, self._identifier, self._content = remote, identifier, content
        #: All bytes in a file of the cache; or what else they are read from.
        self._handle = -1
        self._others: ByteSource | None = None
        self._blocks: _CachedBlocks | None = None
        self._resource: StreamedResource | None = None
        self._is_open, self._is_pinned = False, True
        self._retired: list[int] = []
        self._renew_lock()
        call_in_forks(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()

    # ------------------------------------------------------------------ what ByteSource asks for

    @property
    def size(self) -> int:
        self._opened()
        return self._content.size

    @property
    def sha256(self) -> str | None:
        self._opened()
        return self._content.sha256 if self._is_pinned else None

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        others = self._opened()
        if others is not None:
            return others.readinto_at(offset, buffer)
        try:
            n_read = os.preadv(self._handle, [buffer], offset)
        except OSError:
            n_read = -1
        if n_read == len(buffer) or (n_read >= 0 and offset + n_read >= self._content.size):
            return n_read
        with self._lock:
            if self._handle >= 0:
                # Cut short, or the disk fails. Other threads may be reading from the descriptor: closed later.
                self._remote.folder.say(f"{self._content.key} is damaged; the remote is read instead", once=False)
                self._retired.append(self._handle)
                self._handle, self._is_open = -1, False
                self._remote.folder.drop(self._content)
        return self.readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        others = self._opened()
        return super().read_ranges(ranges) if others is None else others.read_ranges(ranges)

    @property
    def prefetches(self) -> bool:
        others = self._opened()
        return others is not None and others.prefetches

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        others = self._opened()
        return len(ranges) if others is None else others.prefetch(ranges)

    def fill(self) -> None:
        """Bring everything to the local disk, as far as there is room."""
        self._opened()
        if self._blocks is not None:
            self._blocks.fill()

    def fileno(self) -> int:
        if self._opened() is not None:
            raise io.UnsupportedOperation(
                f"resource {self._identifier!r} is not whole in the cache yet: read it to its end, or fetch() it first"
            )
        return self._handle

    def close(self) -> None:
        others, self._others = self._others, None
        if others is not None:
            others.close()
        for handle in [*self._retired, self._handle]:
            if handle >= 0:
                os.close(handle)
        self._handle, self._retired = -1, []
        resource, self._resource = self._resource, None
        if resource is not None:
            resource.close()

    # ------------------------------------------------------------------ opening

    def _opened(self) -> ByteSource | None:
        """What to read from; None: the file of the cache."""
        if not self._is_open:
            with self._lock:
                if not self._is_open:
                    self._open()
                    self._is_open = True
        return self._others if self._handle < 0 else None

    def _open(self) -> None:
        folder = self._remote.folder
        self._others = self._blocks = None
        if self.open_whole():
            self._remote.count(hits=1)
            return
        self._remote.count(misses=1)
        here = os.path.exists(folder.parts_path(self._content))
        if not (here and self._remote.is_silent()):
            try:
                self.open_remote()
            except OSError:
                if not here:  # blocks that are here serve while the remote is away
                    raise
            if self.open_whole():  # the remote had been given other bytes in between
                return
        if self._content.size <= WHOLE_BYTES and self._is_pinned:
            self._fetch_whole()
            return
        parts = None
        # What is not pinned may have been replaced since the digest was told, so it is not kept.
        if folder.limit.admits(self._content.size) and self._is_pinned:
            try:
                parts = PartialContent(folder, self._content)
            except OSError as error:
                folder.cannot("write to", error)
        self._blocks = _CachedBlocks(self, self._remote, self._identifier, self._content, parts)
        self._others = BlockedSource(self._blocks)

    def open_whole(self) -> bool:
        """Read from the file of the cache from now on, if all bytes are there."""
        with self._lock:
            handle = self._remote.folder.open_whole(self._content) if self._handle < 0 else None
            if handle is not None:
                self._handle = handle
            return self._handle >= 0

    def open_remote(self) -> StreamedResource:
        """The resource in the remote, kept open, so that this reader finishes with the bytes that it began with."""
        with self._lock:
            if self._resource is None:
                resource = self._remote.resource(self._identifier)
                try:
                    size, sha256 = self._remote.ask(self._identifier, lambda: (resource.size, resource.sha256))
                    pinned = Content.of(sha256, size)
                    content = pinned or Content(self._content.sha256, size)
                    if self._is_open and pinned != self._content:
                        raise ResourceChangedError(
                            self._identifier, f"sha256 {self._content.sha256}", f"sha256 {sha256}, {size:,} bytes"
                        )
                except BaseException:
                    resource.close()
                    raise
                self._resource, self._content, self._is_pinned = resource, content, pinned is not None
            return self._resource

    def _fetch_whole(self) -> None:
        resource, content = self.open_remote(), self._content
        data = self._remote.ask(self._identifier, lambda: resource.read_at(0, content.size))
        self._remote.count(fetched_bytes=len(data))
        actual = hashlib.sha256(data).hexdigest()
        if actual != content.sha256:
            raise ChecksumMismatchError(self._identifier, repr(self._remote.store), content.sha256, actual)
        handle = self._remote.folder.store_whole(content, data) if self._remote.folder.limit.admits(content.size) else None
        if handle is None:
            self._others = BytesSource(data, ResourceInfo(self._identifier, content.size, content.sha256))
        else:
            self._handle = handle
        self._resource = None
        resource.close()


class _CachedBlocks(Blocks):
    """The blocks of a resource that is not whole in the cache: those that are here, and the others out of the remote."""

    block_bytes = BLOCK_BYTES

    def __init__(
        self, source: CachedSource, remote: Remote, identifier: str, content: Content, parts: PartialContent | None
    ) -> None:
        self._source, self._remote, self._identifier, self._parts = source, remote, identifier, parts
        self._content, self._keeps = content, parts is not None
        self.size, self.sha256 = content.size, content.sha256

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        found: dict[int, bytes] = {}
        if self._parts is not None:
            with self._local_trouble():
                found = self._parts.read(numbers)
        missing = [number for number in numbers if number not in found]
        if missing:
            fetched = dict(zip(missing, self._fetched(missing), strict=True))
            found |= fetched
            if self._keeps and self._parts is not None:
                with self._local_trouble():
                    # If there is no room, or it was evicted or completed by somebody else, so much for keeping blocks.
                    self._keeps = self._parts.put(fetched)
                    if not self._keeps:
                        self._source.open_whole()
                    elif self._parts.seems_complete():
                        self._complete(self._parts)
        return [found[number] for number in numbers]

    def fill(self) -> None:
        """Bring all blocks here, as far as there is room."""
        parts = self._parts
        with self._local_trouble():
            for first in range(0, 0 if parts is None else parts.n_blocks, _AT_ONCE_BLOCKS):
                if self._keeps:
                    self.fetch(range(first, min(first + _AT_ONCE_BLOCKS, -(-self.size // BLOCK_BYTES))))
            if self._keeps and parts is not None and parts.seems_complete():
                self._complete(parts)

    def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            with contextlib.suppress(OSError):
                if self._keeps and parts.seems_complete():
                    parts.complete()
            parts.close()

    def _fetched(self, numbers: Sequence[int]) -> list[bytes]:
        resource = self._source.open_remote()
        ranges = [(number * BLOCK_BYTES, min(BLOCK_BYTES, self.size - number * BLOCK_BYTES)) for number in numbers]
        if numbers[-1] - numbers[0] == len(numbers) - 1:
            start, size = ranges[0][0], sum(size for _, size in ranges)
            # In one piece, which a remote with a read-ahead of its own takes for what it is.
            data = memoryview(self._remote.ask(self._identifier, lambda: resource.read_at(start, size)))
            blocks = [bytes(data[offset - start : offset - start + length]) for offset, length in ranges]
        else:
            blocks = self._remote.ask(self._identifier, lambda: resource.read_ranges(ranges))
        self._remote.count(fetched_bytes=sum(map(len, blocks)))
        for (offset, length), block in zip(ranges, blocks, strict=True):
            if len(block) != length:
                raise ChecksumMismatchError(
                    self._identifier, repr(self._remote.store), str(self.size), str(offset + len(block)), "size"
                )
        return blocks

    def _complete(self, parts: PartialContent) -> None:
        if not parts.complete():
            raise ChecksumMismatchError(self._identifier, repr(self._remote.store), self._content.sha256, "another one")
        self._source.open_whole()

    @contextlib.contextmanager
    def _local_trouble(self) -> Iterator[None]:
        """What goes wrong with the local disk ends the caching of this resource, not the reading."""
        try:
            yield
        except OSError as error:
            if isinstance(error, DataStackError):
                raise  # what the remote said
            self._keeps = False
            self._remote.folder.cannot("use", error)
