"""The resources of a ready dataset in a store that notices by itself what has changed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError, ResourceNotFoundError, StorageError
from data_stack.factories.opening_files import (
    MAX_STORED_BYTES,
    OpeningFiles,
    may_have_opening_files,
)
from data_stack.factories.resource_names import OPENING_FILES
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.resources import Resources, check_unchanged
from data_stack.io.lazy_source import LazySource
from data_stack.io.resource_source import ResourceSource
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.util.byte_cache import ByteCache
from data_stack.util.forks import fork_lock
from data_stack.util.logger import logger

#: The limit of the opening files that a process keeps, of all datasets together.
_MAX_KEPT_BYTES: Final = 32 << 20

#: The opening files that this process has read, by their SHA-256. So the next opening of the same
#: dataset only asks for its manifest.
_kept: Final[ByteCache[str, bytes]] = ByteCache(_MAX_KEPT_BYTES, len)


def is_checked_when_read(connector: Any) -> bool:
    """Return whether a store notices, when a resource is read, that it is lost or has changed.

    Such a store states the digest of a resource when it opens it, and verifies each read. So
    nothing need be asked before. A folder is not such a store, but asking it costs no request.
    """
    store = uncached(connector)
    return bool(getattr(store, "checks_reads", False) and getattr(store, "knows_digests", False))


class ReadyResources(Resources):
    """The resources of a ready dataset, of which the store is asked when they are read.

    Size and digest of a resource are those of the manifest. The first read opens the resource, and
    compares it with them. What ``open()`` reads comes from the opening files, in one request for
    all splits and shards.

    Args:
        storage_connector: the store, of which :func:`is_checked_when_read` is true.
        dataset: the folder of its resources, ``name/version``.
        records: the resources as the manifest lists them.

    Attributes:
        are_pinned: whether each resource that was opened had the digest of the manifest. If not,
            the digest of one was not known.
    """

    are_pinned: bool

    #: The SHA-256 of the files that are among the opening files; None if that is not known yet.
    _opening_digests: frozenset[str] | None

    #: Whether the opening files were requested.
    _has_asked: bool

    #: Held while the opening files are requested.
    _lock: Any

    def __init__(
        self,
        storage_connector: StorageConnector,
        dataset: str,
        records: Iterable[ResourceRecord],
    ) -> None:
        super().__init__(storage_connector, dataset, records)
        self.are_pinned = True
        self._opening_digests = None
        if not may_have_opening_files(list(self._records.values())):
            self._opening_digests = frozenset()
        self._has_asked = False
        self._lock = fork_lock()

    def __getstate__(self) -> dict[str, Any]:
        # Another process requests the opening files again, if it needs one.
        state = {**self.__dict__, "_has_asked": False}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = fork_lock()

    def __getitem__(self, name: str) -> StreamedResource:
        """Return a resource, which is opened by its first read.

        Raises:
            ResourceNotFoundError: the dataset has no such resource.
        """
        identifier = self._identifier(name)
        source = _RecordedSource(self._records[name], partial(self._open_source, name))
        return StreamedResource.from_source(identifier, source, self._connector)

    def stat(self, name: str) -> ResourceInfo:
        """Return size and digest of a resource, as the manifest says.

        Raises:
            ResourceNotFoundError: the dataset has no such resource.
        """
        identifier = self._identifier(name)
        record = self._records[name]
        return ResourceInfo(identifier, record.size, record.sha256)

    def end_opening(self) -> None:
        """Look for no opening files from now on, unless ``open()`` has read some.

        The samples of most datasets are not among them.
        """
        if self._opening_digests is None:
            self._opening_digests = frozenset()

    # ------------------------------------------------------------------ opening a resource

    def _open_source(self, name: str) -> ByteSource:
        """Open the bytes of a resource.

        Raises:
            ResourceNotFoundError: the store has lost it.
            ResourceChangedError: it was replaced since the dataset was found ready.
        """
        identifier = self._identifier(name)
        record = self._records[name]
        content = self._read_opening_file(record)
        if content is not None:
            info = ResourceInfo(identifier, record.size, record.sha256)
            return BytesSource(content, info)

        resource: StreamedResource = self._connector.get_resource(identifier)
        try:
            check_unchanged(identifier, record.size, resource.size)
            check_unchanged(identifier, record.sha256, resource.sha256)
        except BaseException:
            resource.close()
            raise
        if record.sha256 is None or resource.sha256 is None:
            self.are_pinned = False
        return ResourceSource(resource)

    def _read_opening_file(self, record: ResourceRecord) -> bytes | None:
        """Return the content of a resource that is among the opening files; None if it is not."""
        sha256 = record.sha256
        if sha256 is None:
            return None
        content = _kept.get(sha256)
        if content is not None:
            return content
        if not self._may_be_opening_file(sha256):
            return None
        with self._lock:
            # Another thread may have requested them meanwhile.
            if self._may_be_opening_file(sha256):
                self._request_opening_files()
        return _kept.get(sha256)

    def _may_be_opening_file(self, sha256: str) -> bool:
        """Return whether a file may be among the opening files that were not requested yet."""
        if self._has_asked:
            return False
        return self._opening_digests is None or sha256 in self._opening_digests

    def _request_opening_files(self) -> None:
        """Request the opening files, and keep those that belong to this dataset."""
        contents: dict[str, bytes] = {}
        identifier = f"{self._dataset}/{OPENING_FILES}"
        try:
            with self._connector.get_resource(identifier) as resource:
                data = bytes(resource.read(MAX_STORED_BYTES + 1))
            contents = OpeningFiles.from_bytes(data, identifier).by_digest()
        except ResourceNotFoundError:
            # An earlier version of data_stack has prepared the dataset.
            pass
        except (DatasetFileCorruptError, StorageError) as error:
            # Some stores refuse access to what is missing. If the store is away, the files that
            # are read now say so.
            logger.info("dataset %r opens by a request for each file: %s", self._dataset, error)

        own_digests = {record.sha256 for record in self._records.values()}
        self._opening_digests = frozenset(sha256 for sha256 in contents if sha256 in own_digests)
        for sha256 in self._opening_digests:
            _kept.put(sha256, contents[sha256])
        self._has_asked = True


class _RecordedSource(LazySource):
    """The bytes of a resource whose size and digest are known from the manifest."""

    def __init__(self, record: ResourceRecord, open_source: Any) -> None:
        super().__init__(open_source)
        self._record = record

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._record.size

    @property
    def sha256(self) -> str | None:
        """Recorded SHA-256 of the whole; None if neither manifest nor store know it."""
        if self._record.sha256 is not None:
            return self._record.sha256
        return super().sha256
