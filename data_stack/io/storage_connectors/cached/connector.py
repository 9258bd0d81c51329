"""A store with a local cache."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    StorageFullError,
    StorageUnavailableError,
)
from data_stack.io.byte_source import LazySource
from data_stack.io.identifiers import check_identifier
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.cached.folder import CacheFolder, Content
from data_stack.io.storage_connectors.cached.source import CachedResource, Remote
from data_stack.io.storage_connectors.connector import (
    BINARY,
    DAY_SECONDS,
    Garbage,
    Lease,
    ResourceInfo,
    StorageConnector,
    open_source,
)
from data_stack.io.storage_connectors.writer import ResourceWriter

_REMEMBERED = 1 << 16


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
        if max_bytes is not None and max_bytes < 0:
            raise ConfigError(f"max_bytes must not be negative, got {max_bytes}; None for no limit")
        if not fresh_seconds >= 0:
            raise ConfigError(f"fresh_seconds must not be negative, got {fresh_seconds}")
        self.remote, self.local = remote, os.path.abspath(os.fspath(local))
        self._max_bytes, self._fresh_seconds = max_bytes, fresh_seconds
        # Without memory addresses, which differ in the next process, the notes keep their name.
        self._folder = CacheFolder(self.local, re.sub(r" at 0x[0-9a-f]+", "", repr(remote)), max_bytes)
        self._asked = Remote(remote, self._folder)
        vars(self)["knows_digests"] = remote.knows_digests
        #: Time and result of the last stat of each identifier.
        self._last: dict[str, tuple[float, ResourceInfo]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        made = functools.partial(type(self), fresh_seconds=self._fresh_seconds)
        return made, (self.remote, self.local, self._max_bytes)

    def __repr__(self) -> str:
        limit = "" if self._max_bytes is None else f", max_bytes={self._max_bytes}"
        return f"{type(self).__name__}({self.remote!r}, {self.local!r}{limit})"

    # ------------------------------------------------------------------ reading

    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        info = self._look_up(identifier)
        content = Content.of(info.sha256, info.size)
        if content is None:
            return self.remote.get_resource(identifier, resource_type)
        return open_source(self, identifier, LazySource(CachedResource(self._asked, identifier, content)), resource_type)

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
        content = Content.of(found.sha256, found.size)
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
            content = Content.of(info.sha256, info.size)
            if content is None or not CachedResource(self._asked, identifier, content).fill():
                lacking.append(identifier)
        if lacking:
            raise StorageFullError(
                f"{len(lacking)} of {len(wanted)} resources, {lacking[0]!r} first, do not fit into the cache at {self.local}: "
                f"raise max_bytes (now {self._max_bytes}), make room on the disk, or let verify_resource() note their digests"
            )
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

    def collect_garbage(self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False) -> list[Garbage]:
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
        if self._asked.is_silent() and (info := self._read_note(identifier, must_be_held)) is not None:
            return info
        try:
            info = self._asked.ask(identifier, lambda: self.remote.stat(identifier))
        except (ResourceNotFoundError, StorageUnavailableError) as error:
            if isinstance(error, ResourceNotFoundError) and not self._asked.is_gone():
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
        if len(self._last) >= _REMEMBERED:
            self._last.clear()
        self._last[identifier] = time.monotonic(), info
        return info

    def _read_note(self, identifier: str, must_be_held: bool) -> ResourceInfo | None:
        """The last ``stat`` in the remote, if it can be served.

        Raises:
            ResourceNotFoundError: there was no such resource.
        """
        noted = self._folder.read_note(identifier)
        if noted is None:
            return None
        if noted.size < 0:
            raise ResourceNotFoundError(identifier, repr(self))
        content = Content.of(noted.sha256, noted.size)
        return noted if not must_be_held or (content is not None and self._folder.holds(content)) else None

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
