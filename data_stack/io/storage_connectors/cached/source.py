"""Reads a resource out of the cache, and what is not there out of the remote."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from data_stack.exception import (
    ChecksumMismatchError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageUnavailableError,
)
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.io.storage_connectors.cached.folder import WHOLE_BYTES, CacheFolder, Content
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.file_source import FileSource
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.util.forks import ForkLock

__all__ = ["CachedSource", "Remote"]

_Answer = TypeVar("_Answer")
#: A remote that let us wait is not asked again, for what is held here, for so many times as long.
_SILENCE_FACTOR, _MOST_SILENT_SECONDS = 10.0, 300.0
#: A folder knows no digest of a file in the moment in which it is replaced; else it was changed by other means.
_ATTEMPTS, _PAUSE_SECONDS = 100, 0.01
#: The most that is asked for and held in memory at once.
_AT_ONCE_BYTES = 4 << 20


class Remote:
    """A store as a cache sees it, and the folder in which it keeps what came from there.

    Attributes:
        store: the connector.
        folder: the local side.
        counts: what happened so far.
    """

    def __init__(self, store: StorageConnector, folder: CacheFolder) -> None:
        self.store, self.folder = store, folder
        self.counts: Counter[str] = Counter(hits=0, misses=0, fetched_bytes=0)
        self._silent_until = 0.0

    def ask(self, identifier: str, request: Callable[[], _Answer]) -> _Answer:
        """The answer of the store to a request.

        Raises:
            StorageUnavailableError: it is away, and what was asked for is not to be had.
        """
        start = time.monotonic()
        try:
            answer = request()
        except (FileNotFoundError, ResourceNotFoundError):
            raise
        except OSError as error:
            # Waiting for the timeout each time that a resource is opened would be no way to work offline.
            waited = time.monotonic() - start
            self._silent_until = time.monotonic() + min(_SILENCE_FACTOR * waited, _MOST_SILENT_SECONDS)
            raise StorageUnavailableError(
                f"{(str(error) or type(error).__name__).rstrip('.')}. {identifier!r}, or the part asked for, is not in the cache "
                f"at {self.folder.path} either; fetch() brings resources there while the remote answers.",
                error.errno,
            ) from error
        self._silent_until = 0.0
        return answer

    def is_silent(self) -> bool:
        """Whether the store let us wait in vain a moment ago."""
        return time.monotonic() < self._silent_until

    def is_gone(self) -> bool:
        """Whether the store is a folder that is not there: a disk or share that is not mounted looks like an empty store."""
        root = getattr(self.store, "root_path", None)
        return isinstance(root, str) and not os.path.isdir(root)


class CachedSource(ByteSource):
    """Reads a resource by position. It is opened, and from then on stays the same bytes, at the first need.

    Args:
        remote: where it comes from, and the folder that it is kept in.
        identifier: the resource.
        content: its bytes, as the remote said.
    """

    def __init__(self, remote: Remote, identifier: str, content: Content) -> None:
        self._remote, self._identifier, self._content = remote, identifier, content
        self._source: ByteSource | None = None
        #: Of a file with all bytes, which the source closes.
        self._handle = -1
        self._blocks: _CachedBlocks | None = None
        #: Blocks that are a file by now; another thread may still be reading from them.
        self._retired: ByteSource | None = None
        self._lock = ForkLock()

    @property
    def size(self) -> int:
        return self._ensure_open().size

    @property
    def sha256(self) -> str | None:
        return self._ensure_open().sha256

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        # Small reads of a file take so little that a call more would show.
        if self._handle >= 0:
            n_read = os.preadv(self._handle, [buffer], offset) if offset < self._content.size else 0
            if n_read == len(buffer) or offset + n_read >= self._content.size:
                return n_read
        return self._ensure_open().readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._ensure_open().read_ranges(ranges)

    @property
    def prefetches(self) -> bool:
        return self._ensure_open().prefetches

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        return self._ensure_open().prefetch(ranges)

    def fileno(self) -> int:
        return self._ensure_open().fileno()

    def fill(self) -> None:
        """Bring everything to the local disk, as far as there is room."""
        size = self.size  # opens it
        buffer = memoryview(bytearray(_AT_ONCE_BYTES if self._blocks is not None else 0))
        for offset in range(0, size, _AT_ONCE_BYTES) if buffer else ():
            self.readinto_at(offset, buffer)

    def close(self) -> None:
        self._handle = -1
        for source in (self._source, self._retired):
            if source is not None:
                source.close()
        self._source = self._blocks = self._retired = None

    def _ensure_open(self) -> ByteSource:
        source = self._source
        if source is None or (self._blocks is not None and self._blocks.is_complete()):
            with self._lock:
                if self._source is None:
                    self._source = self._open()
                elif self._blocks is not None and (whole := self._open_whole()) is not None:
                    self._retired, self._source, self._blocks = self._source, whole, None
                source = self._source
        return source

    def _open(self) -> ByteSource:
        remote, content = self._remote, self._content
        whole = self._open_whole()
        if whole is not None:
            remote.counts["hits"] += 1
            return whole
        is_here = os.path.exists(remote.folder.parts_path(content))
        resource = None
        if not (is_here and remote.is_silent()):
            try:
                resource, self._content = self._open_remote()
            except OSError:
                if not is_here:  # blocks that are here serve while the remote is away
                    raise
        if resource is not None and self._content != content:  # it was given other bytes in between
            resource.close()
            return self._open()
        remote.counts["misses"] += 1
        if content.size > WHOLE_BYTES or resource is None:
            self._blocks = _CachedBlocks(self, remote, self._identifier, content, resource)
            return BlockedSource(self._blocks)
        with resource:
            data = remote.ask(self._identifier, lambda: resource.read_at(0, content.size))
        remote.counts["fetched_bytes"] += len(data)
        actual = hashlib.sha256(data).hexdigest()
        if actual != content.sha256:
            raise ChecksumMismatchError(self._identifier, repr(remote.store), content.sha256, actual)
        remote.folder.store_whole(content, data)
        return self._open_whole() or BytesSource(data, ResourceInfo(self._identifier, content.size, content.sha256))

    def _open_whole(self) -> FileSource | None:
        opened = self._remote.folder.open_whole(self._content)
        if opened is None:
            return None
        source = FileSource(lambda: opened, _raise)
        self._handle = source.fileno()
        return source

    def _open_remote(self) -> tuple[StreamedResource, Content]:
        """The resource in the remote, kept open, so that this reader finishes with the bytes that it began with."""
        remote, identifier = self._remote, self._identifier
        for _ in range(_ATTEMPTS):
            resource = remote.ask(identifier, lambda: remote.store.get_resource(identifier))
            try:
                content = remote.ask(identifier, lambda: Content.of(resource.sha256, resource.size))  # noqa: B023  # asked at once
            except BaseException:
                resource.close()
                raise
            if content is not None:
                return resource, content
            resource.close()
            time.sleep(_PAUSE_SECONDS)
        raise ResourceChangedError(identifier, f"sha256 {self._content.sha256}", "bytes of an unknown digest")

    def open_remote_again(self) -> StreamedResource:
        """The resource in the remote, which was away when this was opened.

        Raises:
            ResourceChangedError: it has other bytes by now.
        """
        resource, content = self._open_remote()
        if content != self._content:
            resource.close()
            raise ResourceChangedError(self._identifier, f"sha256 {self._content.sha256}", f"sha256 {content.sha256}")
        return resource


class _CachedBlocks(Blocks):
    """The blocks of a resource that is not whole in the cache: those that are here, and the others out of the remote.

    A block counts as here if its slot at the end of the file holds its digest. After a kill, a torn write, a power cut or a
    flipped bit the two do not fit, and the block is fetched again. Any number of threads and processes may fill in at once.
    """

    block_bytes = BLOCK_BYTES

    def __init__(
        self, source: CachedSource, remote: Remote, identifier: str, content: Content, resource: StreamedResource | None
    ) -> None:
        self._source, self._remote, self._identifier = source, remote, identifier
        self._content, self._resource = content, resource
        self.size, self.sha256 = content.size, content.sha256
        self._n_blocks = -(-content.size // BLOCK_BYTES)
        self._slots = self._n_blocks * BLOCK_BYTES
        self._handle, self._keeps, self._n_put, self._n_missing = -1, remote.folder.admits(content.size), 0, 0
        if self._keeps:
            try:
                self._handle = remote.folder.open_parts(content, self._slots + self._n_blocks * DIGEST_BYTES)
                self._count()
            except OSError as error:
                self._give_up(error)

    def is_complete(self) -> bool:
        """Whether the file has become a whole one, here or elsewhere: the slots at its end are cut off then."""
        return self._handle >= 0 and os.fstat(self._handle).st_size == self.size

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        found = {number: block for number in numbers if (block := self._read_block(number)) is not None}
        missing = [number for number in numbers if number not in found]
        if missing:
            fetched = dict(zip(missing, self._fetch(missing), strict=True))
            found |= fetched
            if self._keeps:
                self._keep(fetched)
                if 2 * self._n_put >= self._n_missing:
                    self._complete()
        return [found[number] for number in numbers]

    def close(self) -> None:
        if self._keeps:
            self._complete()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        if self._resource is not None:
            self._resource.close()

    def _read_block(self, number: int) -> bytes | None:
        """A block that is here, and right."""
        if self._handle < 0:
            return None
        try:
            slot = os.pread(self._handle, DIGEST_BYTES, self._slots + number * DIGEST_BYTES)
            if slot.strip(b"\0"):
                block = os.pread(self._handle, min(BLOCK_BYTES, self.size - number * BLOCK_BYTES), number * BLOCK_BYTES)
                return block if block_digest(block) == slot else None
        except OSError as error:
            self._give_up(error)
        return None

    def _fetch(self, numbers: Sequence[int]) -> list[bytes]:
        resource = self._resource = self._resource or self._source.open_remote_again()
        ranges = [(number * BLOCK_BYTES, min(BLOCK_BYTES, self.size - number * BLOCK_BYTES)) for number in numbers]
        if numbers[-1] - numbers[0] == len(numbers) - 1:
            start, size = ranges[0][0], sum(size for _, size in ranges)
            # In one piece, which a remote with a read-ahead of its own takes for what it is.
            data = memoryview(self._remote.ask(self._identifier, lambda: resource.read_at(start, size)))
            blocks = [bytes(data[offset - start : offset - start + length]) for offset, length in ranges]
        else:
            blocks = self._remote.ask(self._identifier, lambda: resource.read_ranges(ranges))
        self._remote.counts["fetched_bytes"] += sum(map(len, blocks))
        for (offset, length), block in zip(ranges, blocks, strict=True):
            if len(block) != length:
                end = str(offset + len(block))
                raise ChecksumMismatchError(self._identifier, repr(self._remote.store), str(self.size), end, "size")
        return blocks

    def _keep(self, blocks: dict[int, bytes]) -> None:
        """Write blocks, unless there is no room, or the file was evicted or completed by somebody else."""
        try:
            with self._remote.folder.room(sum(map(len, blocks.values())) + 8192 * len(blocks)) as fits:
                # After an eviction, going on would fill the disk with bytes that are not counted.
                self._keeps = fits and os.fstat(self._handle).st_nlink > 0 and not self.is_complete()
                if not self._keeps:
                    return
                numbers = sorted(blocks)
                starts = [i for i, number in enumerate(numbers) if i == 0 or number != numbers[i - 1] + 1]
                for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
                    # In long pieces: a file that was written in short ones is read more slowly, out of memory too. What a disk
                    # that is filling up does not take does not have its digest.
                    run = [blocks[number] for number in numbers[start:end]]
                    os.pwritev(self._handle, run, numbers[start] * BLOCK_BYTES)
                    slots = b"".join(map(block_digest, run))
                    os.pwrite(self._handle, slots, self._slots + numbers[start] * DIGEST_BYTES)
                self._n_put += len(blocks)
        except OSError as error:
            self._give_up(error)

    def _count(self) -> None:
        slots = os.pread(self._handle, self._n_blocks * DIGEST_BYTES, self._slots).ljust(self._n_blocks * DIGEST_BYTES, b"\0")
        self._n_missing, self._n_put = memoryview(slots).cast("Q").tolist().count(0), 0

    def _complete(self) -> None:
        """Make a whole resource of all blocks once they are here.

        Raises:
            ChecksumMismatchError: the bytes as they came from the remote are not what the remote said.
        """
        folder = self._remote.folder
        try:
            self._count()
            if self._n_missing or self.is_complete():
                return
            if folder.is_right(self._content, self._handle):
                folder.complete(self._content, self._handle)
                return
            is_as_it_came = all(self._read_block(number) is not None for number in range(self._n_blocks))
        except OSError as error:
            self._give_up(error)
            return
        folder.drop(self._content)
        self._keeps = False
        if is_as_it_came:
            raise ChecksumMismatchError(self._identifier, repr(self._remote.store), self._content.sha256, "another one")

    def _give_up(self, error: OSError) -> None:
        """What goes wrong with the local disk ends the caching of this resource, not the reading."""
        self._keeps = False
        self._remote.folder.cannot("use", error)


def _raise(error: OSError) -> NoReturn:
    raise error
