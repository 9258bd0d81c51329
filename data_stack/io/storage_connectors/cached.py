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
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.resources import ByteSource, Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks, blocks_of, runs_of
from data_stack.io.storage_connectors.cache_blocks import CachedBlocks
from data_stack.io.storage_connectors.cache_folder import MAX_BLOCK_BYTES, WHOLE_BYTES, CacheFolder, Content
from data_stack.io.storage_connectors.connector import BINARY, Garbage, Lease, ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.util.polling import polls

_Answer = TypeVar("_Answer")
#: The most that is requested and held in memory at once.
_AT_ONCE_BYTES = 4 << 20


class CachedStorageConnector(StorageConnector):
    """Keeps resources of a remote store on the local disk once they were read.

    Opening a resource asks the remote for its digest, and the cache serves the bytes of that digest. A replaced resource is
    therefore fetched again, while open readers of the old one keep its bytes. Resources up to 1 MiB are fetched whole, longer
    ones as they are read, in the remote's own blocks if these have 64 KiB to 4 MiB, otherwise in blocks of 64 KiB. The cache
    verifies bytes by their SHA-256, again after any change of their file, and fetches damaged ones again. A cache that is full,
    read-only or broken costs speed, never a read.

    While the remote is away (it raises StorageUnavailableError or another OSError, or is a folder that is not mounted), cached
    resources are served as last described by the remote, with one warning in the log; others raise StorageUnavailableError.
    Writing, deleting, listing, leases and upkeep go to the remote.

    Resources whose digest the remote does not know (of a third party's connector with three methods, a file edited by hand) are
    not cached. Threads, processes and several remotes may share the folder: while one of the processes of a machine fetches a
    block or asks for a digest, the others wait for it (on Linux). The folder is private to its user (0700).

    Args:
        remote: the store.
        local: folder of the cache on this machine, created on first use. It may be deleted at any time.
        max_bytes: size limit of the folder, which several processes may exceed for a moment. The least recently used files
            are evicted; resources above the limit are not cached. None: no limit; :meth:`collect_garbage` removes the content
            of replaced resources.
        fresh_seconds: how long the processes of a machine trust a digest without asking again; not that a resource is missing.
            With 0, every opening sends one request to the remote, or shares the answer to one that another process sends later;
            ``math.inf``, until the next boot, saves these for resources that never change.

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
        self._silent_until, self._is_quick = 0.0, False
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
        start = time.monotonic()
        try:
            if self._is_quick and not self._fresh_seconds:
                return self._stat_remote(identifier, must_be_held)
            # As good as an answer to this process: that to a request of another one which began no earlier.
            return self._folder.share_one(
                f"{self.remote!r} {identifier}",
                lambda: self._read_note(identifier, False, start - self._fresh_seconds, start),
                lambda: self._stat_remote(identifier, must_be_held),
            )
        except (ResourceNotFoundError, StorageUnavailableError) as error:
            if isinstance(error, ResourceNotFoundError) and not self._is_unmounted():
                self._last.pop(identifier, None)
                raise
            info = self._read_note(identifier, must_be_held)
            if info is None:
                raise
            self._folder.say(f"{self.remote!r} is away; serving cached resources")
            return info

    def _stat_remote(self, identifier: str, must_be_held: bool) -> ResourceInfo:
        """Ask the remote for a resource, and note the answer; it is opened if it is to be read."""
        asked = time.monotonic()
        try:
            info = self._ask(identifier, lambda: self._describe(identifier) if must_be_held else self.remote.stat(identifier))
        except ResourceNotFoundError:
            if not self._is_unmounted():
                self._folder.note(identifier, None, asked)
            raise
        # Sharing an answer takes 0.1 ms.
        self._is_quick = time.monotonic() - asked < 0.001
        if not self._is_quick or self._fresh_seconds or self._last.get(identifier, (0.0, None))[1] != info:
            self._folder.note(identifier, info, asked)
        if len(self._last) >= 1 << 16:
            self._last.clear()
        self._last[identifier] = asked, info
        return info

    def _describe(self, identifier: str) -> ResourceInfo:
        """What an opened resource of the remote says; it is kept for its next reader, so that a request serves both."""
        if not self.remote.checks_reads:  # an opened file would hold a descriptor, and knows no time
            return self.remote.stat(identifier)
        resource = self.remote.get_resource(identifier)
        self._opened[identifier] = resource
        return ResourceInfo(identifier, resource.size, resource.sha256)

    def _is_unmounted(self) -> bool:
        """Whether the folder of the remote is gone: an unmounted disk looks like an empty store."""
        root = getattr(self.remote, "root_path", None)
        return isinstance(root, str) and not os.path.isdir(root)

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

    def _read_note(
        self, identifier: str, must_be_held: bool, since: float | None = None, start: float | None = None
    ) -> ResourceInfo | None:
        """The last ``stat`` in the remote, if it can be served; ResourceNotFoundError if there was no such resource.

        Only one that was asked for ``since``; or at ``start``, if it was missing, as it may come at any time.
        """
        noted = self._folder.read_note(identifier, since)
        if noted is not None and noted.size < 0:
            noted = self._folder.read_note(identifier, start)
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
        folder, content = self.cache._folder, self.content
        if content.size > WHOLE_BYTES or not folder.admits(content.size):
            source = folder.open_whole(content) or self._open()
        else:
            source = folder.share_one(content.key, lambda: folder.open_whole(content), self._open)
        self.opened = None
        return source

    def _open(self) -> ByteSource:
        """Open what is not whole in the cache."""
        cache, folder, content = self.cache, self.cache._folder, self.content
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
            if resource is not None and (whole := folder.open_whole(content)) is not None:
                resource.close()
                return whole
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
        for _ in polls(1.0, first=0.01, longest=0.1):  # while a file is being replaced, a file store does not know its digest
            resource, self.opened = self.opened or cache._ask(identifier, lambda: cache.remote.get_resource(identifier)), None
            content = cache._ask(identifier, functools.partial(Content.of, resource))
            if content is not None:
                return resource, content
            resource.close()
        raise ResourceChangedError(identifier, f"sha256 {self.content.sha256}", "bytes of an unknown digest")


class _CachedBlocks(Blocks):
    """The blocks of a resource that is not whole in the cache: cached ones, and the others from the remote."""

    def __init__(self, source: _CachedResource, resource: StreamedResource | None) -> None:
        self._source, self._resource = source, resource
        self._cache, self._content = source.cache, source.content
        self.size, self.sha256 = self._content.size, self._content.sha256
        blocks, block_bytes = None if resource is None else blocks_of(resource), BLOCK_BYTES
        if blocks is not None:
            # Those of the remote: parts of its chunks would be moved as often as there are processes.
            block_bytes = blocks.block_bytes if BLOCK_BYTES <= blocks.block_bytes <= MAX_BLOCK_BYTES else BLOCK_BYTES
            self.ahead_bytes = blocks.ahead_bytes
        self._cached = CachedBlocks(self._cache._folder, self._content, block_bytes)
        self.block_bytes = self._cached.block_bytes

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        return self._cached.obtain(numbers, self._fetch)

    def close(self) -> None:
        try:
            if not self._cached.close():  # the remote sent bytes without its own digest
                where = self._source.identifier, repr(self._cache.remote)
                raise ChecksumMismatchError(*where, self._content.sha256, "another one")
        finally:
            if self._resource is not None:
                self._resource.close()

    def _fetch(self, numbers: Sequence[int]) -> list[bytes]:
        identifier, runs, resource = self._source.identifier, list(runs_of(numbers)), self._resource
        if resource is None:  # the remote was away before
            resource, content = self._source.open_remote()
            if content != self._content:
                resource.close()
                raise ResourceChangedError(identifier, f"sha256 {self.sha256}", f"sha256 {content.sha256}")
            self._resource = resource
        blocks = blocks_of(resource)
        if blocks is not None and blocks.block_bytes == self.block_bytes:  # which would keep them in memory once more
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
