"""A verified local cache before a slow store."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DatasetFileCorruptError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageFullError,
    StorageUnavailableError,
)
from data_stack.io.byte_source import LazySource
from data_stack.io.identifiers import check_identifier
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.io.resources import ByteSource, Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks, blocks_of, runs_of
from data_stack.io.storage_connectors.cache_folder import WHOLE_BYTES, CacheFolder, Content
from data_stack.io.storage_connectors.connector import BINARY, Garbage, Lease, ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.io.storage_connectors.writer import ResourceWriter

_Answer = TypeVar("_Answer")
#: The most that is requested and held in memory at once.
_AT_ONCE_BYTES = 4 << 20


class CachedStorageConnector(StorageConnector):
    """Keeps resources of a remote store on the local disk once they were read.

    Opening a resource asks the remote for its digest, and the cache serves the bytes of that digest. A replaced resource is
    therefore fetched again, while open readers of the old one keep its bytes. Resources up to 1 MiB are fetched whole, longer
    ones in blocks of 64 KiB as they are read. The cache verifies bytes by their SHA-256, again after any change of their file,
    and fetches damaged ones again. A cache that is full, read-only or broken costs speed, never a read.

    While the remote is away (it raises StorageUnavailableError or another OSError, or is a folder that is not mounted), cached
    resources are served as last described by the remote, with one warning in the log; others raise StorageUnavailableError.
    Writing, deleting, listing, leases and upkeep go to the remote.

    Resources whose digest the remote does not know (of a third party's connector with three methods, a file edited by hand) are
    not cached. Processes, threads and several remotes may share the folder. It is private to its user (0700).

    Args:
        remote: the store.
        local: folder of the cache on this machine, created on first use. It may be deleted at any time.
        max_bytes: size limit of the folder, which several processes may exceed for a moment. The least recently used files
            are evicted; resources above the limit are not cached. None: no limit; :meth:`collect_garbage` removes the content
            of replaced resources.
        fresh_seconds: how long to trust a digest without asking again. With 0, every opening sends one request to the remote;
            ``math.inf`` saves these for many small resources that never change.

    Raises:
        ConfigError: a limit below 0.

    Attributes:
        remote: the store behind the cache.
        local: absolute path of the cache's folder.
    """

    def __init__(
        self, remote: StorageConnector, local: str | os.PathLike[str], max_bytes: int | None = None, *, fresh_seconds: float = 0.0
    ) -> None:
        if (max_bytes or 0) < 0 or not fresh_seconds >= 0:
            raise ConfigError(f"max_bytes and fresh_seconds must not be negative, got {max_bytes} and {fresh_seconds}")
        self.remote, self.local = remote, os.path.abspath(os.fspath(local))
        self._max_bytes, self._fresh_seconds = max_bytes, fresh_seconds
        # Without memory addresses, which differ in the next process, the notes keep their name.
        self._folder = CacheFolder(self.local, re.sub(r" at 0x[0-9a-f]+", "", repr(remote)), max_bytes)
        self._silent_until = 0.0
        vars(self)["knows_digests"] = remote.knows_digests
        #: Time and result of the last stat of each identifier.
        self._last: dict[str, tuple[float, ResourceInfo]] = {}
        self._opened: dict[str, StreamedResource] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        made = functools.partial(type(self), fresh_seconds=self._fresh_seconds)
        return made, (self.remote, self.local, self._max_bytes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.remote!r}, {self.local!r})"

    # ------------------------------------------------------------------ reading

    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        info = self._look_up(identifier)
        content = Content.of(info)
        if content is None:
            return self.remote.get_resource(identifier, resource_type)
        return self._make_resource(identifier, _CachedSource(_CachedResource(self, identifier, content)), resource_type)

    def has_resource(self, identifier: str) -> bool:
        try:
            self._look_up(identifier, must_be_held=False)
        except ResourceNotFoundError:
            return False
        except DatasetFileCorruptError:  # it is there, but damaged, as the remote says when it is read
            return self.remote.has_resource(identifier)
        return True

    def stat(self, identifier: str) -> ResourceInfo:
        return self._look_up(identifier, must_be_held=False)

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        """Read all bytes from the remote and verify them; a damaged copy in the cache is removed."""
        found = self.remote.verify_resource(identifier, sha256)
        content = Content.of(found)
        if content is not None:
            self._folder.verify(content)
        return found

    def fetch(self, identifiers: Iterable[str] | None = None) -> list[str]:
        """Fetch whole resources into the cache, e.g. before going offline.

        Args:
            identifiers: resources to fetch; None: all of the remote.

        Returns:
            Their identifiers.

        Raises:
            StorageFullError: some do not fit below ``max_bytes`` or on the disk, or the remote does not know their digests.
            ResourceNotFoundError: the remote has no such resource.
        """
        wanted = self.remote.list_resources() if identifiers is None else list(identifiers)
        lacking = []
        for identifier in wanted:
            info = self._look_up(identifier)
            content = Content.of(info)
            if content is None or not _CachedResource(self, identifier, content).fill():
                lacking.append(identifier)
        if lacking:
            problem = f"{len(lacking)} of {len(wanted)} resources, {lacking[0]!r} first, do not fit into {self.local}"
            advice = f"raise max_bytes (now {self._max_bytes}), make room, or let verify_resource() note their digests"
            raise StorageFullError(f"{problem}: {advice}")
        return wanted

    # ------------------------------------------------------------------ writing, by the remote

    def set_resource(self, identifier: str, resource: Storable) -> Any:
        with self._changing(identifier):
            return self.remote.set_resource(identifier, resource)

    @contextlib.contextmanager
    def create(self, identifier: str) -> Iterator[ResourceWriter]:
        with self._changing(identifier), self.remote.create(identifier) as writer:
            yield writer

    @contextlib.contextmanager
    def create_resumable(self, identifier: str, key: str) -> Iterator[ResourceWriter]:
        with self._changing(identifier), self.remote.create_resumable(identifier, key) as writer:
            yield writer

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        with self._changing(identifier), self._changing(new_identifier):
            self.remote.move_resource(identifier, new_identifier)

    def delete_resource(self, identifier: str) -> None:
        with self._changing(identifier):
            self.remote.delete_resource(identifier)

    def list_resources(self, prefix: str = "") -> list[str]:
        # Not from the notes while the remote is away: an incomplete list would look like lost resources.
        return self.remote.list_resources(prefix)

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        return self.remote.lease(identifier)

    # ------------------------------------------------------------------ upkeep

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        return self.remote.remove_abandoned(prefix)

    def collect_garbage(self, grace_seconds: float = 86_400.0, *, dry_run: bool = False) -> list[Garbage]:
        """Collect garbage of the remote; and remove from the cache what was replaced or deleted there."""
        found = list(self._folder.remove_unnamed(grace_seconds, dry_run=dry_run))
        return [*found, *self.remote.collect_garbage(grace_seconds, dry_run=dry_run)]

    # ------------------------------------------------------------------ inside

    def _look_up(self, identifier: str, *, must_be_held: bool = True) -> ResourceInfo:
        """The ``stat`` of a resource in the remote; while that is away, the last one."""
        check_identifier(identifier)
        when, said = self._last.get(identifier, (-math.inf, None))
        if said is not None and time.monotonic() - when < self._fresh_seconds:
            return said
        if self._is_silent() and (info := self._read_note(identifier, must_be_held)) is not None:
            return info
        try:
            info = self._ask(identifier, lambda: self._describe(identifier) if must_be_held else self.remote.stat(identifier))
        except (ResourceNotFoundError, StorageUnavailableError) as error:
            root = getattr(self.remote, "root_path", None)
            is_gone = isinstance(root, str) and not os.path.isdir(root)  # an unmounted disk looks like an empty store
            if isinstance(error, ResourceNotFoundError) and not is_gone:
                self._last.pop(identifier, None)
                self._folder.note(identifier, None)
                raise
            info = self._read_note(identifier, must_be_held)
            if info is None:
                raise
            self._folder.say(f"{self.remote!r} is away; serving cached resources")
            return info
        if said != info:
            self._folder.note(identifier, info)
        if len(self._last) >= 1 << 16:
            self._last.clear()
        self._last[identifier] = time.monotonic(), info
        return info

    def _describe(self, identifier: str) -> ResourceInfo:
        """What an opened resource of the remote says; it is kept for its next reader, so that a request serves both."""
        if not self.remote.checks_reads:  # an opened file would hold a descriptor, and knows no time
            return self.remote.stat(identifier)
        resource = self.remote.get_resource(identifier)
        self._opened[identifier] = resource
        return ResourceInfo(identifier, resource.size, resource.sha256)

    def _ask(self, identifier: str, request: Callable[[], _Answer]) -> _Answer:
        """Send a request to the remote; StorageUnavailableError if it does not answer."""
        start = time.monotonic()
        try:
            answer = request()
        except (FileNotFoundError, ResourceNotFoundError):
            raise
        except OSError as error:
            # Offline work must not wait for the timeout at each opening: for ten times as long, nothing is asked.
            waited = time.monotonic() - start
            self._silent_until = time.monotonic() + min(10.0 * waited, 300.0)
            problem = f"{(str(error) or type(error).__name__).rstrip('.')}. {identifier!r}, or a part, is not in the cache either"
            raise StorageUnavailableError(f"{problem}; call fetch() while the remote answers.", error.errno) from error
        self._silent_until = 0.0
        return answer

    def _is_silent(self) -> bool:
        """Whether a request was unanswered a moment ago."""
        return time.monotonic() < self._silent_until

    def _read_note(self, identifier: str, must_be_held: bool) -> ResourceInfo | None:
        """The last ``stat`` in the remote, if it can be served; ResourceNotFoundError if there was no such resource."""
        noted = self._folder.read_note(identifier)
        if noted is None:
            return None
        if noted.size < 0:
            raise ResourceNotFoundError(identifier, repr(self))
        content = Content.of(noted)
        return noted if not must_be_held or (content is not None and self._folder.has("bytes", content)) else None

    @contextlib.contextmanager
    def _changing(self, identifier: str) -> Iterator[None]:
        """Forget a resource before and after a change, as readers may note the old one meanwhile."""
        self._forget(check_identifier(identifier))
        try:
            yield
        finally:
            self._forget(identifier)

    def _forget(self, identifier: str) -> None:
        self._last.pop(identifier, None)
        self._folder.forget(identifier)


def uncached(connector: StorageConnector) -> StorageConnector:
    """The store behind all caches, which decides what is possible."""
    while isinstance(connector, CachedStorageConnector):
        connector = connector.remote
    return connector


class _CachedSource(LazySource):
    """Those bytes; it prefetches even once they are whole on this disk, so that blocks, and orders by them, stay the same."""

    prefetches = True


class _CachedResource:
    """Opens a resource with a content, according to the remote: its call returns pinned bytes."""

    def __init__(self, cache: CachedStorageConnector, identifier: str, content: Content) -> None:
        self.cache, self.identifier, self.content = cache, identifier, content
        #: In the remote, as it was opened last.
        self.opened = cache._opened.pop(identifier, None)

    def fill(self) -> bool:
        """Copy all of it to the local disk; whether it fits."""
        folder = self.cache._folder
        with contextlib.closing(self()) as source:
            if isinstance(source, BlockedSource):
                buffer = memoryview(bytearray(_AT_ONCE_BYTES))
                for offset in range(0, source.size, _AT_ONCE_BYTES):
                    source.readinto_at(offset, buffer)
        return folder.has("bytes", self.content) and not folder.has("blocks", self.content)

    def __call__(self) -> ByteSource:
        cache, folder, content = self.cache, self.cache._folder, self.content
        whole = folder.open_whole(content)
        if whole is not None:
            self.opened = None
            return whole
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
            return BlockedSource(_CachedBlocks(self, resource))
        with resource:
            data = cache._ask(self.identifier, lambda: resource.read_at(0, content.size))
        actual = hashlib.sha256(data).hexdigest()
        if actual != content.sha256:
            raise ChecksumMismatchError(self.identifier, repr(cache.remote), content.sha256, actual)
        folder.store_whole(content, data)
        return folder.open_whole(content) or BytesSource(data, ResourceInfo(self.identifier, content.size, content.sha256))

    def open_remote(self) -> tuple[StreamedResource, Content]:
        """Open the resource in the remote; it stays open, so that a replacement does not change the bytes of this reader."""
        cache, identifier = self.cache, self.identifier
        for _ in range(100):  # while a file is being replaced, a file store does not know its digest
            resource, self.opened = self.opened or cache._ask(identifier, lambda: cache.remote.get_resource(identifier)), None
            content = cache._ask(identifier, functools.partial(Content.of, resource))
            if content is not None:
                return resource, content
            resource.close()
            time.sleep(0.01)
        raise ResourceChangedError(identifier, f"sha256 {self.content.sha256}", "bytes of an unknown digest")


class _CachedBlocks(Blocks):
    """The blocks of a resource that is not whole in the cache: cached ones, and the others from the remote.

    A block is cached if it has the digest in the file of digests. After a kill, a torn write, a power cut or a flipped bit it
    does not, and is fetched again. Any number of threads and processes may add blocks at once.
    """

    block_bytes = BLOCK_BYTES

    def __init__(self, source: _CachedResource, resource: StreamedResource | None) -> None:
        self._source, self._resource = source, resource
        self._cache, self._folder, self._content = source.cache, source.cache._folder, source.content
        self.size, self.sha256 = self._content.size, self._content.sha256
        if resource is not None and (blocks := blocks_of(resource, BLOCK_BYTES)) is not None:
            self.ahead_bytes = blocks.ahead_bytes
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
        identifier, runs, resource = self._source.identifier, list(runs_of(numbers)), self._resource
        if resource is None:  # the remote was away before
            resource, content = self._source.open_remote()
            if content != self._content:
                resource.close()
                raise ResourceChangedError(identifier, f"sha256 {self.sha256}", f"sha256 {content.sha256}")
            self._resource = resource
        if (blocks := blocks_of(resource, BLOCK_BYTES)) is not None:  # which would keep them in memory once more
            return self._cache._ask(identifier, lambda: blocks.fetch(numbers))
        ranges = [(start, stop - start) for start, stop in itertools.starmap(self.range_of, runs)]
        # A remote with read-ahead recognizes sequential access by single reads.
        read = resource.read_ranges if len(ranges) > 1 else lambda ranges: [resource.read_at(*ranges[0])]
        pieces = self._cache._ask(identifier, lambda: read(ranges))
        for (start, size), data in zip(ranges, pieces, strict=True):
            if len(data) != size:
                where, end = repr(self._cache.remote), str(start + len(data))
                raise ChecksumMismatchError(identifier, where, str(self.size), end, "size")
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
        """Turn the file into a whole one if it has all blocks; an error if the remote sent bytes without its own digest."""
        is_damaged = False
        with self._giving_up():
            data, slots = self._handles or (-1, -1)
            digests = os.pread(slots, self._content.digest_bytes, 0)
            if 0 not in memoryview(digests).cast("Q") and not self._folder.seal(self._content, data):
                is_damaged = all(self._read_block(number) is not None for number in range(len(digests) // DIGEST_BYTES))
                self._folder.drop(self._content.key)
                self._keeps = False
        if is_damaged:
            raise ChecksumMismatchError(self._source.identifier, repr(self._cache.remote), self._content.sha256, "another one")

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Stop caching this resource after an error of the local disk, and read on."""
        try:
            yield
        except OSError as error:
            self._keeps = False
            self._folder.cannot("use", error)
