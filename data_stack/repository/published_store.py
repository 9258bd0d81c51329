"""A published dataset as a store that cannot be written: plain files, verified block by block."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NoReturn, Protocol

from data_stack.exception import (
    DamagedBlockError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.opening_files import MAX_STORED_BYTES
from data_stack.factories.resource_names import MANIFEST, OPENING_FILES
from data_stack.io.folder import Folder
from data_stack.io.identifiers import check_identifier, check_prefix
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.io.storage_connectors.connector import BINARY, ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.repository.published_description import (
    DESCRIPTION,
    DIGEST_BYTES,
    Pin,
    PublishedDescription,
)
from data_stack.util.untrusted_text import MAX_BYTES


class PublishedFile(Protocol):
    """One file of a published dataset."""

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``; fewer only at the end of the file."""
        ...

    def read_view(self, start: int, stop: int) -> memoryview:
        """Return a view of the same bytes, perhaps of memory that is used again after it."""
        ...


class PublishedFiles(Protocol):
    """The files of a published dataset; their ``repr`` names the place, without credentials.

    Those of a web server are :class:`~data_stack.io.web.files.WebFiles`.
    """

    def read(self, file: str, start: int, stop: int) -> bytes:
        """Return the bytes of a file as it is now.

        Raises:
            ResourceNotFoundError: there is no such file.
        """
        ...

    def open(self, file: str) -> PublishedFile:
        """Return a file to be read in parts."""
        ...


@dataclass(frozen=True)
class FolderFiles:
    """The files of a published dataset in a folder, on this machine or in a store.

    Attributes:
        folder: where they are.
    """

    folder: Folder

    def __repr__(self) -> str:
        return self.folder.describe("")

    def read(self, file: str, start: int, stop: int) -> bytes:
        """Return the bytes of a file as it is now; see :class:`PublishedFiles`."""
        with self.folder.open(file) as resource:
            resource.seek(start)
            return bytes(resource.read(stop - start))

    def open(self, file: str) -> PublishedFile:
        """Return a file to be read in parts."""
        return _FolderFile(self, file)


@dataclass(frozen=True)
class _FolderFile:
    """One file of a folder, which is opened again for each part."""

    files: FolderFiles
    file: str

    def read(self, start: int, stop: int) -> bytes:
        return self.files.read(self.file, start, stop)

    def read_view(self, start: int, stop: int) -> memoryview:
        return memoryview(self.read(start, stop))


class _ReadOnlyStore(StorageConnector):
    """A store that only has what was published."""

    knows_digests = True
    checks_reads = True

    def set_resource(self, identifier: str, resource: Storable) -> NoReturn:
        self._refuse()

    def lease(self, identifier: str) -> NoReturn:
        # A preparation takes a lease before it retrieves anything, so it is refused in time.
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedStorageOperationError(
            f"{self!r} cannot be written: it has only what was published"
        )


class DescriptionStore(_ReadOnlyStore):
    """A store whose only resource is the description, so that a cache can be put before it.

    Args:
        files: the files of the published dataset.
        pin: the pin of the description; each pin has notes of its own in the cache.
    """

    def __init__(self, files: PublishedFiles, pin: Pin | None) -> None:
        self._files = files
        self._pin = pin

    def __repr__(self) -> str:
        place = repr(self._files)
        if self._pin is not None:
            place += str(self._pin)
        return f"<published dataset at {place}>"

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        """Open the description.

        Raises:
            ChecksumMismatchError: it is not the pinned one.
            ResourceNotFoundError: there is no description.
        """
        # One byte more than is allowed, so that a longer description is noticed.
        data = self._files.read(identifier, 0, MAX_BYTES + 1)
        if self._pin is not None:
            self._pin.check(data, repr(self._files))
        info = ResourceInfo(identifier, len(data), hashlib.sha256(data).hexdigest())
        return self._make_resource(identifier, BytesSource(data, info), resource_type)

    def has_resource(self, identifier: str) -> bool:
        """Return whether this is the name of the description."""
        return identifier == DESCRIPTION


class PublishedStore(_ReadOnlyStore):
    """The prepared resources and the manifest of a published dataset, as a preparation stores them.

    Args:
        files: the files of the published dataset.
        description: the description of the published dataset.
    """

    #: Where the published files are.
    _files: PublishedFiles
    #: By file the digests of its blocks.
    _blocks: dict[str, bytes]
    #: The manifest, which the description contains.
    _manifest: bytes
    #: The folder that the dataset has in a store, ``"digits/1.0.0/"``.
    _prefix: str
    #: What is known of each resource, by its identifier.
    _infos: dict[str, ResourceInfo]

    def __init__(self, files: PublishedFiles, description: PublishedDescription) -> None:
        manifest = description.manifest
        self._files = files
        self._blocks = dict(description.blocks)
        self._manifest = manifest.to_json()
        self._prefix = f"{manifest.name}/{manifest.version}/"
        self._infos = {}
        for record in manifest.prepared:
            self._add_info(record.identifier, record.size, record.sha256)
        sha256 = hashlib.sha256(self._manifest).hexdigest()
        self._add_info(MANIFEST, len(self._manifest), sha256)

    def _add_info(self, file: str, size: int, sha256: str | None) -> None:
        identifier = self._prefix + file
        self._infos[identifier] = ResourceInfo(identifier, size, sha256)

    def __repr__(self) -> str:
        return f"<published dataset at {self._files!r}>"

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        """Open a resource; each block is verified when it is read."""
        if identifier == self._prefix + OPENING_FILES:
            return self._open_opening_files(identifier, resource_type)
        info = self.stat(identifier)
        file = identifier.removeprefix(self._prefix)
        if file == MANIFEST:
            return self._make_resource(identifier, BytesSource(self._manifest, info), resource_type)
        blocks = _VerifiedBlocks(self._files, file, info, self._blocks[file])
        return self._make_resource(identifier, BlockedSource(blocks), resource_type)

    def _open_opening_files(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes
    ) -> StreamedResource:
        """Open the copy of the small files that ``open()`` reads, which is read at once.

        The description has no digests of it: its reader compares each file with that in the
        manifest.

        Raises:
            ResourceNotFoundError: an earlier version of data_stack has published the dataset.
        """
        # One byte more than is allowed, so that a longer copy is noticed.
        data = self._files.read(OPENING_FILES, 0, MAX_STORED_BYTES + 1)
        info = ResourceInfo(identifier, len(data), hashlib.sha256(data).hexdigest())
        return self._make_resource(identifier, BytesSource(data, info), resource_type)

    def has_resource(self, identifier: str) -> bool:
        """Return whether the dataset has this resource."""
        return check_identifier(identifier) in self._infos

    def list_resources(self, prefix: str = "") -> list[str]:
        """Return the identifiers that begin with ``prefix``, sorted."""
        check_prefix(prefix)
        return sorted(identifier for identifier in self._infos if identifier.startswith(prefix))

    def stat(self, identifier: str) -> ResourceInfo:
        """Return size and digest of a resource; nothing is read."""
        if not self.has_resource(identifier):
            raise ResourceNotFoundError(identifier, repr(self))
        return self._infos[identifier]


class _VerifiedBlocks(Blocks):
    """The blocks of one published file, each compared with its digest.

    Args:
        files: the files of the published dataset.
        file: the name of the file.
        info: the size and digest of the file.
        digests: the digests of its blocks, one after the other.
    """

    block_bytes = BLOCK_BYTES

    #: The files of the published dataset.
    _files: PublishedFiles

    #: The name of the file.
    _file: str

    #: The file, opened.
    _opened: PublishedFile

    #: The digests of the blocks, one after the other.
    _digests: bytes

    def __init__(
        self, files: PublishedFiles, file: str, info: ResourceInfo, digests: bytes
    ) -> None:
        self._files = files
        self._file = file
        self._opened = files.open(file)
        self._digests = digests
        self.size = info.size
        self.sha256 = info.sha256

    def fetch_run(self, first: int, n_blocks: int) -> memoryview:
        start, stop = self.range_of(first, n_blocks)
        data = self._opened.read_view(start, stop)
        for number in range(first, first + n_blocks):
            block_start = (number - first) * BLOCK_BYTES
            self._verify(number, data[block_start : block_start + BLOCK_BYTES])
        return data

    def _verify(self, number: int, block: memoryview) -> None:
        """Compare a block with its digest. A block that is missing is empty.

        Raises:
            DamagedBlockError: the block is missing or damaged.
        """
        actual = hashlib.sha256(block).digest()[:DIGEST_BYTES]
        expected = self._digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        if actual != expected:
            raise DamagedBlockError(
                self._file,
                repr(self._files),
                number,
                BLOCK_BYTES,
                expected.hex(),
                actual.hex(),
                "sha256 (16 bytes)",
            )
