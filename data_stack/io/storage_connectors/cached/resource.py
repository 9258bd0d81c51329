"""The bytes of a resource behind a cache: from its folder, or from the remote."""

from __future__ import annotations

import contextlib
import hashlib
from functools import partial
from typing import Final

from data_stack.exception import ChecksumMismatchError, ResourceChangedError
from data_stack.io.lazy_source import LazySource
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.blocks import BlockedSource
from data_stack.io.storage_connectors.cached.blocks import CachedBlocks
from data_stack.io.storage_connectors.cached.content import WHOLE_BYTES, Content
from data_stack.io.storage_connectors.cached.folder import CacheFolder
from data_stack.io.storage_connectors.cached.remote import Remote
from data_stack.io.storage_connectors.connector import ResourceInfo
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.util.polling import polls

#: :meth:`CachedResource.fill` reads this much at once.
_FILL_BYTES: Final = 4 << 20

#: While a file is being replaced, a file store does not know its digest. Within this time, the
#: store is asked again, after pauses that grow.
_REPLACEMENT_SECONDS: Final = 1.0
_FIRST_PAUSE_SECONDS: Final = 0.01
_MAX_PAUSE_SECONDS: Final = 0.1


class CachedResource:
    """Opens a resource of a remote that has stated its content.

    Args:
        remote: the store behind the cache.
        folder: the folder of the cache.
        identifier: the identifier of the resource.
        content: the bytes of the resource.
        opened: the resource of the remote, if it was opened before. It is closed when this one is
            opened or released.

    Attributes:
        remote: the store behind the cache.
        folder: the folder of the cache.
        identifier: the identifier of the resource.
        content: the bytes of the resource. Opening it may find that they were replaced.
    """

    remote: Remote
    folder: CacheFolder
    identifier: str
    content: Content
    _opened: StreamedResource | None

    def __init__(
        self,
        remote: Remote,
        folder: CacheFolder,
        identifier: str,
        content: Content,
        opened: StreamedResource | None,
    ) -> None:
        self.remote = remote
        self.folder = folder
        self.identifier = identifier
        self.content = content
        self._opened = opened

    def open(self) -> ByteSource:
        """Open the bytes, which do not change when the resource is replaced."""
        content = self.content
        is_fetched_whole = content.size <= WHOLE_BYTES and self.folder.room.admits(content.size)
        if is_fetched_whole:
            # One process fetches it, while the others wait for the file.
            source = self.folder.work.share_one(
                content.key, self._open_whole, self._open_incomplete
            )
        else:
            whole = self._open_whole()
            source = self._open_incomplete() if whole is None else whole
        self.release()
        return source

    def fill(self) -> bool:
        """Copy the resource to the local disk. Return whether all of it is there."""
        with contextlib.closing(self.open()) as source:
            if isinstance(source, BlockedSource):
                buffer = memoryview(bytearray(_FILL_BYTES))
                for offset in range(0, source.size, _FILL_BYTES):
                    source.readinto_at(offset, buffer)
        return self.folder.has_bytes(self.content) and not self.folder.has_blocks(self.content)

    def release(self) -> None:
        """Close the resource of the remote, if nothing has read from it."""
        opened = self._opened
        self._opened = None
        if opened is not None:
            opened.close()

    def open_remote(self) -> tuple[StreamedResource, Content]:
        """Open the resource of the remote.

        Returns:
            The resource, and its content now. The resource stays open, so that a replacement does
            not change the bytes of this reader.

        Raises:
            ResourceChangedError: the remote does not know the digest of the resource any longer.
            StorageUnavailableError: the remote did not answer.
        """
        for _ in polls(
            _REPLACEMENT_SECONDS, first=_FIRST_PAUSE_SECONDS, longest=_MAX_PAUSE_SECONDS
        ):
            resource = self._opened
            self._opened = None
            if resource is None:
                request = partial(self.remote.connector.get_resource, self.identifier)
                resource = self.remote.ask(self.identifier, request)
            # This is a request too: a resource may open its file only when its digest is read.
            content = self.remote.ask(self.identifier, partial(Content.of, resource))
            if content is not None:
                return resource, content
            resource.close()
        raise ResourceChangedError(
            self.identifier, f"sha256 {self.content.sha256}", "bytes of an unknown digest"
        )

    # ------------------------------------------------------------------ opening

    def _open_whole(self) -> ByteSource | None:
        """Open the whole file in the folder; return None if there is none."""
        return self.folder.open_whole(self.content, self._read_again)

    def _open_incomplete(self) -> ByteSource:
        """Open a resource that is not whole in the folder."""
        content = self.content
        # Cached blocks serve while the remote is away.
        has_blocks = self.folder.has_blocks(content)
        if has_blocks and self.remote.is_silent():
            return self._open_blocks(None)
        try:
            resource, self.content = self.open_remote()
        except OSError:
            if not has_blocks:
                raise
            return self._open_blocks(None)

        # The resource may have been replaced since it was looked up.
        if self.content != content:
            resource.close()
            return self.open()

        if content.size <= WHOLE_BYTES:
            return self._fetch_whole(resource)

        # Another process may have completed the file meanwhile.
        whole = self._open_whole()
        if whole is not None:
            resource.close()
            return whole
        return self._open_blocks(resource)

    def _open_blocks(self, resource: StreamedResource | None) -> BlockedSource:
        """Open a resource whose blocks are fetched as they are read."""
        blocks = CachedBlocks(
            self.remote, self.folder, self.identifier, self.content, resource, self.open_remote
        )
        return BlockedSource(blocks)

    def _fetch_whole(self, resource: StreamedResource) -> ByteSource:
        """Fetch a resource in one request, and keep it.

        Raises:
            ChecksumMismatchError: the remote sent bytes without its own digest.
        """
        content = self.content
        with resource:
            data = self.remote.ask(self.identifier, lambda: resource.read_at(0, content.size))
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 != content.sha256:
            raise ChecksumMismatchError(
                self.identifier, repr(self.remote.connector), content.sha256, sha256
            )
        self.folder.store_whole(content, data)
        whole = self._open_whole()
        if whole is not None:
            return whole
        return BytesSource(data, ResourceInfo(self.identifier, content.size, content.sha256))

    def _read_again(self) -> ByteSource:
        """Open the same bytes again after their cached file was damaged.

        Raises:
            ResourceChangedError: the remote has other bytes now.
        """
        content = self.content
        resource = CachedResource(self.remote, self.folder, self.identifier, content, None)
        source = resource.open()
        if source.sha256 != content.sha256 or source.size != content.size:
            sha256 = source.sha256
            source.close()
            raise ResourceChangedError(
                self.identifier, f"sha256 {content.sha256}", f"sha256 {sha256}"
            )
        return source


class CachedSource(LazySource):
    """The bytes of a resource behind a cache, which are opened by the first read.

    It prefetches even once the bytes are whole on this disk, so that blocks, and orders of samples
    that depend on them, stay the same.

    Args:
        resource: the resource.
    """

    prefetches = True
    _resource: CachedResource

    def __init__(self, resource: CachedResource) -> None:
        super().__init__(resource.open)
        self._resource = resource

    def close(self) -> None:
        super().close()
        self._resource.release()
