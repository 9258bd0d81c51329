"""A read-only store of files of the Hub, which are read by range."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from data_stack import StorageConnector, StreamedResource
from data_stack.exception import ReadOnlyStorageError, ResourceNotFoundError
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack_huggingface.hub_file import HubFile

_BLOCK_BYTES: Final = 1 << 16


class HubFiles(StorageConnector):
    """Files of the Hub as resources.

    Each answer must have the commit and the listed digest. A file in Git itself is read whole and
    verified.

    Args:
        files: files by identifier.
    """

    _files: dict[str, HubFile]

    def __init__(self, files: Mapping[str, HubFile]) -> None:
        self._files = dict(files)

    def get_resource(self, identifier: str, resource_type: Any = None) -> StreamedResource:
        """Open a file as bytes.

        Raises:
            ResourceNotFoundError: there is no file of that name.
        """
        if identifier not in self._files:
            raise ResourceNotFoundError(identifier, "the Hub")
        source = BlockedSource(_FileBlocks(self._files[identifier]))
        return StreamedResource.from_source(identifier, source, self)

    def has_resource(self, identifier: str) -> bool:
        """Return whether the file exists."""
        return identifier in self._files

    def set_resource(self, identifier: str, resource: Any) -> None:
        """Raise an error.

        Raises:
            ReadOnlyStorageError: always, as nothing is stored on the Hub.
        """
        raise ReadOnlyStorageError(
            f"cannot store {identifier!r:.200} on the Hub: load without lazy=True"
        )


class _FileBlocks(Blocks):
    """The blocks of a file; neighbouring blocks are fetched in one request."""

    #: Readers of Parquet prefetch themselves.
    ahead_bytes = 0

    _file: HubFile

    #: The bytes of a file in Git itself, which is read whole; None for other files.
    _data: bytes | None

    def __init__(self, file: HubFile) -> None:
        self.size = file.size
        self.block_bytes = _BLOCK_BYTES
        self._file = file
        self._data = None
        self.sha256 = file.sha256
        if file.sha256 is None:
            self._data = file.read_whole()
            self.sha256 = hashlib.sha256(self._data).hexdigest()

    def fetch_run(self, first: int, n_blocks: int) -> bytes:
        """Fetch neighbouring blocks in one request."""
        start, stop = self.range_of(first, n_blocks)
        if self._data is not None:
            return self._data[start:stop]
        return self._file.read(start, stop)
