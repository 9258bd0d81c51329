"""A store that is far away: a file store whose bytes come in blocks, each request counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from data_stack.io.byte_source import ByteSource
from data_stack.io.resources import (
    StreamedResource,
    StreamedTextResource,
    SupportedStreamedResourceTypes,
)
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks, runs_of
from data_stack.io.storage_connectors.connector import BINARY
from data_stack.io.storage_connectors.recent_pieces import Piece

BLOCK_BYTES = 261_120


class Claimed(ByteSource):
    """What a server says that it has of this size, and is empty."""

    size, sha256 = 0, None  # which each has for itself

    def __init__(self, size: int, sha256: str | None = None, tag: str | None = None) -> None:
        self.size, self.sha256, self.tag = size, sha256, tag

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        return 0

    def close(self) -> None: ...


class CountedBlocks(Blocks):
    """Blocks of a resource of another store; remembers which were fetched, request by request."""

    def __init__(
        self, resource: StreamedResource, requests: list[list[int]], block_bytes: int
    ) -> None:
        self.size, self.block_bytes, self.sha256 = resource.size, block_bytes, resource.sha256
        self._resource, self._requests, self._lock = resource, requests, threading.Lock()

    def fetch(self, numbers: Sequence[int]) -> list[Piece]:
        assert list(numbers) == sorted(set(numbers))
        assert numbers
        assert 0 <= numbers[0] <= numbers[-1] * self.block_bytes < self.size
        with self._lock:
            self._requests.append(list(numbers))
        pieces = []
        for run in runs_of(numbers):
            start, stop = self.range_of(run.first, run.n_blocks)
            pieces.append(Piece(*run, self._resource.read_at(start, stop - start)))
        return pieces

    def close(self) -> None:
        self._resource.close()


class FarStorageConnector(FileStorageConnector):
    """A file store that hands its resources out as a remote one does: by block, without a
    descriptor.

    Attributes:
        requests: the numbers of the blocks that were fetched, one list a request.
    """

    def __init__(self, root_path: Any, block_bytes: int = BLOCK_BYTES) -> None:
        super().__init__(root_path)
        self.block_bytes = block_bytes
        self.requests: list[list[int]] = []

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        source = BlockedSource(
            CountedBlocks(super().get_resource(identifier), self.requests, self.block_bytes)
        )
        resource = StreamedResource.from_source(identifier, source, self)
        if resource_type is SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE:
            text: Any = StreamedTextResource.from_streamed_resource(resource)
            return text  # type: ignore[no-any-return]  # as other connectors do
        return resource

    @property
    def fetched_bytes(self) -> int:
        """Bytes that were fetched."""
        return sum(map(len, self.requests)) * self.block_bytes
