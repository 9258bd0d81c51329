"""A store before which lies a local copy of what was read."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageFullError, StorageUnavailableError
from data_stack.io.identifiers import check_identifier
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.cached.folder import CacheFolder, Content
from data_stack.io.storage_connectors.cached.source import CachedSource, Remote
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

__all__ = ["CacheInfo", "CachedStorageConnector"]

_REMEMBERED = 1 << 16
_NOTHING: Final = (-math.inf, False)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache did for one connector, in this process, and what it holds.

    Attributes:
        hits: resources opened that were whole on the local disk.
        misses: resources opened that were not.
        fetched_bytes: read from the remote.
        held_bytes: what the cache takes on the disk now, whoever filled it.
        max_bytes: the limit of that; None if there is none.
    """

    hits: int
    misses: int
    fetched_bytes: int
    held_bytes: int
    max_bytes: int | None


class CachedStorageConnector(StorageConnector):
    """Keeps on the local disk what was read from a remote store, and reads it there from then on.

    The remote stays the store: it is asked for the digest of a resource each time that one is opened, and the cache only
    answers what the bytes of that digest are. So a resource that was replaced comes out new, and whoever has the old one
    open finishes with the old bytes. Resources up to 1 MiB come whole, longer ones by blocks of 64 KiB as they are read.
    Bytes are held against their SHA-256 before they count as held, and again when the file was changed by anybody. What is
    damaged is dropped and comes again from the remote. A cache that is full, read-only or broken costs speed, never a read.

    While the remote is away (it raises StorageUnavailableError or another OSError, or is a folder that is not mounted),
    what is held is served as the remote last described it, with one warning in the log; all else is a
    StorageUnavailableError. Writing, deleting, listing, leases and upkeep go to the remote.

    What the remote knows no digest of (a third party's connector of three methods, a file edited by hand) passes through
    uncached. Any number of processes and threads may share the folder; so may several remotes. It is private to its user
    (0700), as the remote may not be open to everybody.

    Args:
        remote: the store.
        local: folder of the cache, on a disk of this machine; made when first needed. It may be deleted at any time.
        max_bytes: what its files may take on that disk. What was not used for longest is evicted, and what is larger than
            the limit is not kept at all. None: no limit; :meth:`collect_garbage` removes what was replaced.
        fresh_seconds: trust what the remote said for so long without asking again. With 0, every opening is one
            request to the remote; for many small resources that never change, ``math.inf`` saves those.

    Raises:
        ConfigError: a limit below 0.
    """

    def __init__(
        self,
        remote: StorageConnector,
        local: str | os.PathLike[str],
        max_bytes: int | None = None,
        *,
        fresh_seconds: float = 0.0,
    ) -> None:
        if max_bytes is not None and max_bytes < 0:
            raise ConfigError(f"a cache of at most {max_bytes} bytes cannot be; give a number of bytes, or None for no limit")
        if not fresh_seconds >= 0:
            raise ConfigError(f"fresh_seconds is a time, and cannot be {fresh_seconds}")
        self._remote, self._local = remote, os.path.abspath(os.fspath(local))
        self._max_bytes, self._fresh_seconds = max_bytes, fresh_seconds
        # An address in memory is another one in the next process, and would part it from its notes.
        self._folder = CacheFolder(self._local, re.sub(r" at 0x[0-9a-f]+", "", repr(remote)), max_bytes)
        self._asked = Remote(remote, self._folder)
        # Each connector of this class knows what its remote knows.
        vars(self)["knows_digests"] = remote.knows_digests
        #: When the remote said what.
        self._last: dict[str, tuple[float, ResourceInfo | Literal[False] | None]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        made = functools.partial(type(self), fresh_seconds=self._fresh_seconds)
        return made, (self._remote, self._local, self._max_bytes)

    def __repr__(self) -> str:
        limit = "" if self._max_bytes is None else f", max_bytes={self._max_bytes}"
        return f"{type(self).__name__}({self._remote!r}, {self._local!r}{limit})"

    @property
    def remote(self) -> StorageConnector:
        """The store behind the cache."""
        return self._remote

    @property
    def local(self) -> str:
        """Absolute path of the cache's folder."""
        return self._local

    # ------------------------------------------------------------------ reading

    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        info = self._look_up(identifier)
        content = Content.of(info.sha256, info.size)
        if content is None:
            return self._remote.get_resource(identifier, resource_type)
        return open_source(self, identifier, CachedSource(self._asked, identifier, content), resource_type)

    def has_resource(self, identifier: str) -> bool:
        check_identifier(identifier)
        noted = self._folder.read_note(identifier)
        if self._asked.is_silent() and noted is not False:
            return noted is not None
        try:
            has = self._asked.ask(identifier, lambda: self._remote.has_resource(identifier))
        except StorageUnavailableError:
            if noted is False:
                raise
            return noted is not None
        if not has and self._asked.is_gone() and noted:
            return True
        if not has:
            self._note(identifier, None)
        return has

    def stat(self, identifier: str) -> ResourceInfo:
        return self._look_up(identifier, must_be_held=False)

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        """Read the remote's bytes whole and hold them against their digests; a damaged copy in the cache is dropped."""
        found = self._remote.verify_resource(identifier, sha256)
        content = Content.of(found.sha256, found.size)
        if content is not None:
            self._folder.verify(content)
        return found

    def fetch(self, identifiers: Iterable[str] | None = None) -> list[str]:
        """Bring resources into the cache whole, e.g. before going offline.

        Args:
            identifiers: what to fetch; None: all that the remote lists.

        Returns:
            Those, all of which are held now.

        Raises:
            StorageFullError: they cannot all be held: there is no room for them below ``max_bytes`` or on the disk, or
                the remote knows no digest of them.
            ResourceNotFoundError: the remote has no such resource.
        """
        wanted = self._remote.list_resources() if identifiers is None else list(identifiers)
        contents = {}
        for identifier in wanted:
            info = self._look_up(identifier)
            contents[identifier] = content = Content.of(info.sha256, info.size)
            if content is not None:
                with contextlib.closing(CachedSource(self._asked, identifier, content)) as source:
                    source.fill()
        lacking = [
            identifier
            for identifier, content in contents.items()
            if content is None or not os.path.exists(self._folder.path_of_whole(content))
        ]
        if lacking:
            raise StorageFullError(
                f"{len(lacking)} of {len(wanted)} resources, {lacking[0]!r} first, cannot be held in the cache at {self._local}: "
                f"raise max_bytes (now {self._max_bytes}), make room on the disk, or let verify_resource() note their digests"
            )
        return wanted

    def cache_info(self) -> CacheInfo:
        """How often the cache helped, and how much it holds (this looks at all its files)."""
        return CacheInfo(**self._asked.counts, held_bytes=self._folder.count_bytes(), max_bytes=self._max_bytes)

    # ------------------------------------------------------------------ writing, by the remote

    def set_resource(self, identifier: str, resource: Storable) -> Any:
        with self._changing(identifier):
            return self._remote.set_resource(identifier, resource)

    @contextlib.contextmanager
    def create(self, identifier: str) -> Iterator[ResourceWriter]:
        with self._changing(identifier), self._remote.create(identifier) as writer:
            yield writer

    @contextlib.contextmanager
    def create_resumable(self, identifier: str, key: str) -> Iterator[ResourceWriter]:
        with self._changing(identifier), self._remote.create_resumable(identifier, key) as writer:
            yield writer

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        with self._changing(identifier), self._changing(new_identifier):
            self._remote.move_resource(identifier, new_identifier)

    def delete_resource(self, identifier: str) -> None:
        with self._changing(identifier):
            self._remote.delete_resource(identifier)

    def list_resources(self, prefix: str = "") -> list[str]:
        # Not out of the notes when the remote is away: a list that lacks some looks like a store that lost them.
        return self._remote.list_resources(prefix)

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        return self._remote.lease(identifier)

    # ------------------------------------------------------------------ upkeep

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        return self._remote.remove_abandoned(prefix)

    def collect_garbage(self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False) -> list[Garbage]:
        """As the remote does; and from the cache, what was replaced or deleted in the remote."""
        found = list(self._folder.remove_unnamed(grace_seconds, dry_run=dry_run))
        return [*found, *self._remote.collect_garbage(grace_seconds, dry_run=dry_run)]

    # ------------------------------------------------------------------ inside

    def _look_up(self, identifier: str, *, must_be_held: bool = True) -> ResourceInfo:
        """What the remote says of a resource; while it is away, what it said last."""
        check_identifier(identifier)
        when, said = self._last.get(identifier, _NOTHING)
        if said and time.monotonic() - when < self._fresh_seconds:
            return said
        if self._asked.is_silent() and (info := self._read_note(identifier, must_be_held)) is not None:
            return info
        try:
            info = self._asked.ask(identifier, lambda: self._remote.stat(identifier))
        except (ResourceNotFoundError, StorageUnavailableError) as error:
            if isinstance(error, ResourceNotFoundError) and not self._asked.is_gone():
                self._note(identifier, None)
                raise
            info = self._read_note(identifier, must_be_held)
            if info is None:
                raise
            self._folder.say(f"{self._remote!r} is away; serving what is held")
            return info
        self._note(identifier, info)
        return info

    def _read_note(self, identifier: str, must_be_held: bool) -> ResourceInfo | None:
        """What the remote said last, if that is of use.

        Raises:
            ResourceNotFoundError: that there is no such resource.
        """
        noted = self._folder.read_note(identifier)
        if noted is None:
            raise ResourceNotFoundError(identifier, repr(self))
        if noted is False:
            return None
        content = Content.of(noted.sha256, noted.size)
        return noted if not must_be_held or (content is not None and self._folder.holds(content)) else None

    def _note(self, identifier: str, info: ResourceInfo | None) -> None:
        if self._last.get(identifier, _NOTHING)[1] != info:
            self._folder.note(identifier, info)
        if len(self._last) >= _REMEMBERED:
            self._last.clear()
        self._last[identifier] = time.monotonic(), info

    @contextlib.contextmanager
    def _changing(self, identifier: str) -> Iterator[None]:
        """Know nothing of a resource while and after it is changed; whoever reads it meanwhile may note the old one again."""
        self._forget(check_identifier(identifier))
        try:
            yield
        finally:
            self._forget(identifier)

    def _forget(self, identifier: str) -> None:
        self._last.pop(identifier, None)
        self._folder.forget(identifier)
