"""Reads a resource from the cache, and missing blocks from the remote."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from data_stack.exception import ChecksumMismatchError, ResourceChangedError, ResourceNotFoundError, StorageUnavailableError
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks, runs_of
from data_stack.io.storage_connectors.cached.folder import WHOLE_BYTES, CacheFolder, Content
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.memory import BytesSource

_Answer = TypeVar("_Answer")
#: After an unanswered request, cached resources are served without asking for this many times its duration.
_SILENCE_FACTOR, _MAX_SILENT_SECONDS = 10.0, 300.0
#: While a file is being replaced, a file store does not know its digest.
_ATTEMPTS, _PAUSE_SECONDS = 100, 0.01
#: The most that is requested and held in memory at once.
_AT_ONCE_BYTES = 4 << 20


class Remote:
    """The remote store of a cache, and its local folder.

    Attributes:
        store: the connector.
        folder: the local side.
    """

    def __init__(self, store: StorageConnector, folder: CacheFolder) -> None:
        self.store, self.folder = store, folder
        self._silent_until = 0.0

    def ask(self, identifier: str, request: Callable[[], _Answer]) -> _Answer:
        """Send a request to the store.

        Raises:
            StorageUnavailableError: the store is unavailable.
        """
        start = time.monotonic()
        try:
            answer = request()
        except (FileNotFoundError, ResourceNotFoundError):
            raise
        except OSError as error:
            # Offline work must not wait for the timeout at each opening.
            waited = time.monotonic() - start
            self._silent_until = time.monotonic() + min(_SILENCE_FACTOR * waited, _MAX_SILENT_SECONDS)
            raise StorageUnavailableError(
                f"{(str(error) or type(error).__name__).rstrip('.')}. {identifier!r}, or the part asked for, is not in the cache "
                f"at {self.folder.path} either; call fetch() while the remote answers.",
                error.errno,
            ) from error
        self._silent_until = 0.0
        return answer

    def is_silent(self) -> bool:
        """Whether a request was unanswered a moment ago."""
        return time.monotonic() < self._silent_until

    def is_gone(self) -> bool:
        """Whether the store is a missing folder: an unmounted disk or share looks like an empty store."""
        root = getattr(self.store, "root_path", None)
        return isinstance(root, str) and not os.path.isdir(root)


class CachedResource:
    """Opens a resource: its call returns pinned bytes.

    Args:
        remote: the remote store, and the local folder.
        identifier: the resource.
        content: its bytes, according to the remote.
    """

    def __init__(self, remote: Remote, identifier: str, content: Content) -> None:
        self.remote, self.identifier, self.content = remote, identifier, content

    def fill(self) -> bool:
        """Copy all of it to the local disk; whether it fits."""
        with contextlib.closing(self()) as source:
            if isinstance(source, BlockedSource):
                buffer = memoryview(bytearray(_AT_ONCE_BYTES))
                for offset in range(0, source.size, _AT_ONCE_BYTES):
                    source.readinto_at(offset, buffer)
        return self.remote.folder.holds(self.content) and not self.remote.folder.has_blocks(self.content)

    def __call__(self) -> ByteSource:
        remote, content = self.remote, self.content
        whole = remote.folder.open_whole(content)
        if whole is not None:
            return whole
        has_blocks, resource = remote.folder.has_blocks(content), None
        if not (has_blocks and remote.is_silent()):
            try:
                resource, self.content = self._open_remote()
            except OSError:
                if not has_blocks:  # cached blocks serve while the remote is away
                    raise
        if resource is not None and self.content != content:  # it was replaced in between
            resource.close()
            return self()
        if content.size > WHOLE_BYTES or resource is None:
            return BlockedSource(_CachedBlocks(self, resource))
        with resource:
            data = remote.ask(self.identifier, lambda: resource.read_at(0, content.size))
        actual = hashlib.sha256(data).hexdigest()
        if actual != content.sha256:
            raise ChecksumMismatchError(self.identifier, repr(remote.store), content.sha256, actual)
        remote.folder.store_whole(content, data)
        info = ResourceInfo(self.identifier, content.size, content.sha256)
        return remote.folder.open_whole(content) or BytesSource(data, info)

    def _open_remote(self) -> tuple[StreamedResource, Content]:
        """Open the resource in the remote; it stays open, so that a replacement does not change the bytes of this reader."""
        remote, identifier = self.remote, self.identifier
        for _ in range(_ATTEMPTS):
            with contextlib.ExitStack() as exits:
                resource = exits.enter_context(remote.ask(identifier, lambda: remote.store.get_resource(identifier)))
                content = remote.ask(identifier, lambda: Content.of(resource.sha256, resource.size))  # noqa: B023  # asked at once
                if content is not None:
                    exits.pop_all()
                    return resource, content
            time.sleep(_PAUSE_SECONDS)
        raise ResourceChangedError(identifier, f"sha256 {self.content.sha256}", "bytes of an unknown digest")

    def open_remote_again(self) -> StreamedResource:
        """Open the resource in the remote, which was away before.

        Raises:
            ResourceChangedError: it was replaced meanwhile.
        """
        resource, content = self._open_remote()
        if content != self.content:
            resource.close()
            raise ResourceChangedError(self.identifier, f"sha256 {self.content.sha256}", f"sha256 {content.sha256}")
        return resource


class _CachedBlocks(Blocks):
    """The blocks of a resource that is not whole in the cache: cached ones, and the others from the remote.

    A block is cached if it has the digest in the file of digests. After a kill, a torn write, a power cut or a flipped bit it
    does not, and is fetched again. Any number of threads and processes may add blocks at once.
    """

    block_bytes = BLOCK_BYTES

    def __init__(self, source: CachedResource, resource: StreamedResource | None) -> None:
        self._source, self._resource = source, resource
        self._remote, self._folder, self._content = source.remote, source.remote.folder, source.content
        self.size, self.sha256 = self._content.size, self._content.sha256
        #: Of the bytes, and of the digests.
        self._handles: tuple[int, int] | None = None
        if self._folder.admits(self.size):
            with self._giving_up():
                self._handles = self._folder.open_blocks(self._content)
        self._keeps = self._handles is not None

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        found = {number: block for number in numbers if (block := self._read_block(number)) is not None}
        missing = [number for number in numbers if number not in found]
        if missing:
            fetched = dict(zip(missing, self._fetch(missing), strict=True))
            found |= fetched
            self._keep(fetched)
        return [found[number] for number in numbers]

    def close(self) -> None:
        try:
            if self._keeps:
                self._complete()
        finally:
            handles, self._handles = self._handles, None
            for handle in handles or ():
                os.close(handle)
            if self._resource is not None:
                self._resource.close()

    def _read_block(self, number: int) -> bytes | None:
        """A cached block, verified."""
        with self._giving_up():
            if self._handles is not None:
                digest = os.pread(self._handles[1], DIGEST_BYTES, number * DIGEST_BYTES)
                if digest.strip(b"\0"):
                    block = os.pread(self._handles[0], BLOCK_BYTES, number * BLOCK_BYTES)
                    return block if block_digest(block) == digest else None
        return None

    def _fetch(self, numbers: Sequence[int]) -> list[bytes]:
        resource = self._resource = self._resource or self._source.open_remote_again()
        identifier, runs = self._source.identifier, list(runs_of(numbers))
        ranges = [(start, stop - start) for start, stop in itertools.starmap(self.range_of, runs)]
        # A remote with read-ahead recognizes sequential access by single reads.
        pieces = self._remote.ask(
            identifier, lambda: [resource.read_at(*ranges[0])] if len(ranges) == 1 else resource.read_ranges(ranges)
        )
        for (start, size), data in zip(ranges, pieces, strict=True):
            if len(data) != size:
                end = str(start + len(data))
                raise ChecksumMismatchError(identifier, repr(self._remote.store), str(self.size), end, "size")
        return [block for (_, n_blocks), data in zip(runs, pieces, strict=True) for block in self.split(data, n_blocks)]

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
                os.pwritev(data, run, first * BLOCK_BYTES)
                os.pwrite(digests, b"".join(map(block_digest, run)), first * DIGEST_BYTES)

    def _complete(self) -> None:
        """Turn the file into a whole one if it has all blocks.

        Raises:
            ChecksumMismatchError: the remote sent bytes that do not have its own digest.
        """
        is_damaged = False
        with self._giving_up():
            data, slots = self._handles or (-1, -1)
            digests = os.pread(slots, self._content.digest_bytes, 0)
            if 0 not in memoryview(digests).cast("Q") and not self._folder.seal(self._content, data):
                is_damaged = all(self._read_block(number) is not None for number in range(len(digests) // DIGEST_BYTES))
                self._folder.drop(self._content.key)
                self._keeps = False
        if is_damaged:
            raise ChecksumMismatchError(self._source.identifier, repr(self._remote.store), self._content.sha256, "another one")

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Stop caching this resource after an error of the local disk, and read on."""
        try:
            yield
        except OSError as error:
            self._keeps = False
            self._folder.cannot("use", error)
