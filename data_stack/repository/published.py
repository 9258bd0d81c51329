"""Reads published datasets: plain files of a folder, a store or a static web server, verified block by block."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DamagedBlockError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.manifest import MANIFEST, Manifest
from data_stack.io.folder import Folder
from data_stack.io.identifiers import check_identifier, check_prefix
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.location import Location
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.io.storage_connectors.connector import BINARY, ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.io.storage_connectors.url import split_cache
from data_stack.io.url import StorageURL
from data_stack.io.web.files import WebFiles
from data_stack.util.untrusted_text import MAX_BYTES, JsonObject

DESCRIPTION: Final = "data_stack.json"
FORMAT: Final = 1
#: Of the SHA-256 of a block: enough against attackers, and half the room.
DIGEST_BYTES: Final = 16
_PIN: Final = re.compile("sha256=[0-9a-fA-F]{64}")


def open_published(place: str | Location) -> tuple[PublishedDataset, StorageConnector] | None:
    """A published dataset, and a store of its prepared resources that cannot be written; None if the place has none.

    Args:
        place: a URL of a web server, ``"https://example.org/digits#sha256=…"``, with ``?cache=/folder&cacheBytes=50GB`` before
            the ``#`` to keep what is read, and ``&cacheFresh=60`` to request the description once a minute, or with a pin once;
            or a folder.

    Raises:
        ResourceNotFoundError: the web server has no published dataset there.
        DatasetFileCorruptError: its description is damaged; ChecksumMismatchError: it is not the pinned one.
        ConfigError: the text after ``#`` is not a pin.
    """
    pin = ""
    cached: Callable[..., StorageConnector] | None = None
    files: WebFiles | _FolderFiles
    if isinstance(place, str):
        url, _, pin = place.partition("#")
        if (parts := StorageURL.parse(url)) is not None and parts.query:
            parts, cached = split_cache(parts)
            url = str(parts)
        files = WebFiles(url)
        if pin and not _PIN.fullmatch(pin):
            raise ConfigError(
                f"a published dataset is pinned by #sha256= and 64 hexadecimal digits, not by {pin!r:.80}"
            )
    else:
        files = _FolderFiles(place.as_folder())
        if not files.folder.has_file(DESCRIPTION):
            return None
    description: StorageConnector = _Description(files, pin.lower())
    if cached is not None:  # a pinned one stays as it is
        description = cached(description, fresh_seconds=math.inf) if pin else cached(description)
    try:
        with description.get_resource(DESCRIPTION) as resource:
            data = bytes(resource.read())
    except ResourceNotFoundError:
        advice = f"{DESCRIPTION}, which `data-stack publish` writes, is missing; download other files of web servers"
        raise ResourceNotFoundError(f"{files!r} is not a published dataset: {advice}") from None
    published = PublishedDataset.parse(data, repr(files), pin)
    store = _PublishedFiles(files, published)
    return published, store if cached is None else cached(
        store, fresh_seconds=0.0
    )  # the description says it at once


@dataclass(frozen=True)
class PublishedDataset:
    """The contents of ``data_stack.json``.

    Attributes:
        manifest: of the prepared resources.
        license: of the card; None if it names none.
        blocks: by resource the digests of its blocks, 16 bytes each.
    """

    manifest: Manifest
    license: str | None
    blocks: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """Of the dataset, with its version."""
        return f"{self.manifest.name}@{self.manifest.version}"

    @classmethod
    def parse(cls, data: bytes, place: str, pin: str = "") -> PublishedDataset:
        """Parse and check a description.

        Args:
            data: the file.
            place: names it in errors.
            pin: ``"sha256=…"``; empty for any.

        Raises:
            DatasetFileCorruptError: it is damaged, of another format or too large; ChecksumMismatchError: the pin is another.
        """
        what = f"{DESCRIPTION} of {place}"
        _check_pin(data, place, pin)
        if len(data) > MAX_BYTES:
            raise DatasetFileCorruptError(f"{what} has more than {MAX_BYTES:,} bytes")
        fields = JsonObject.unseal(data, what)
        fields.known_format(FORMAT)
        manifest = Manifest.from_json(fields.text("manifest").encode("ascii"))
        check_identifier(manifest.name)
        license_name = fields.optional(fields.text, "license")
        distribution = fields.optional(fields.text, "distribution")
        digests = JsonObject(fields.value("blocks"), what)
        blocks = {
            each.identifier: _blocks(digests, each.identifier, each.size, what)
            for each in manifest.prepared
        }
        digests.done()
        fields.done()
        if distribution != manifest.distribution:
            raise DatasetFileCorruptError(f"{what} names two distributions")
        return cls(manifest, license_name, blocks)


def _check_pin(data: bytes, place: str, pin: str) -> str:
    """The SHA-256 of a description, if it is the pinned one."""
    found = hashlib.sha256(data).hexdigest()
    if pin and pin.lower() != f"sha256={found}":
        raise ChecksumMismatchError(DESCRIPTION, place, pin.partition("=")[2], found, "sha256")
    return found


def _blocks(digests: JsonObject, identifier: str, size: int, what: str) -> bytes:
    try:
        blocks = base64.b64decode(digests.text(identifier), validate=True)
    except ValueError:
        blocks = b""
    if len(blocks) != -(-size // BLOCK_BYTES) * DIGEST_BYTES:
        raise DatasetFileCorruptError(f"{what} lacks a digest for some blocks of {identifier!r}")
    return blocks


@dataclass(frozen=True)
class _FolderFiles:
    folder: Folder

    def __repr__(self) -> str:
        return self.folder.describe("")

    def read(self, file: str, start: int, stop: int) -> bytes:
        """As :meth:`WebFiles.read`."""
        with self.folder.open(file) as resource:
            resource.seek(start)
            return bytes(resource.read(stop - start))

    def open(self, file: str) -> _FolderFile:
        """As :meth:`WebFiles.open`."""
        return _FolderFile(self, file)


@dataclass(frozen=True)
class _FolderFile:
    files: _FolderFiles
    file: str

    def read(self, start: int, stop: int) -> bytes:
        """As :meth:`WebFile.read`."""
        return self.files.read(self.file, start, stop)


class _ReadOnly(StorageConnector):
    knows_digests = checks_reads = True

    def set_resource(self, identifier: str, resource: Storable = b"") -> NoReturn:
        raise UnsupportedStorageOperationError(
            f"{self!r} cannot be written: it has only what was published"
        )

    lease = set_resource  # which comes before a preparation retrieves anything


class _Description(_ReadOnly):
    """The description as the only resource of a store, for a cache before it; each pin has its own notes there."""

    def __init__(self, files: WebFiles | _FolderFiles, pin: str) -> None:
        self._files, self._pin = files, pin

    def __repr__(self) -> str:
        return f"<published dataset at {self._files!r}{'#' if self._pin else ''}{self._pin}>"

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        data = self._files.read(identifier, 0, MAX_BYTES + 1)
        info = ResourceInfo(identifier, len(data), _check_pin(data, repr(self._files), self._pin))
        return self._make_resource(identifier, BytesSource(data, info), resource_type)

    def has_resource(self, identifier: str) -> bool:
        return identifier == DESCRIPTION


class _PublishedFiles(_ReadOnly):
    """A published dataset as a store that cannot be written."""

    def __init__(self, files: WebFiles | _FolderFiles, published: PublishedDataset) -> None:
        self._files, self._blocks, self._manifest = (
            files,
            published.blocks,
            published.manifest.to_json(),
        )
        manifest = published.manifest
        facts = {each.identifier: (each.size, each.sha256) for each in manifest.prepared}
        facts[MANIFEST] = len(self._manifest), hashlib.sha256(self._manifest).hexdigest()
        self._prefix = f"{manifest.name}/{manifest.version}/"
        self._infos = {
            self._prefix + name: ResourceInfo(self._prefix + name, *fact)
            for name, fact in facts.items()
        }

    def __repr__(self) -> str:
        return f"<published dataset at {self._files!r}>"

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        info, file = self.stat(identifier), identifier.removeprefix(self._prefix)
        if file == MANIFEST:
            return self._make_resource(identifier, BytesSource(self._manifest, info), resource_type)
        blocks = _VerifiedBlocks(self._files, file, info, self._blocks[file])
        return self._make_resource(identifier, BlockedSource(blocks), resource_type)

    def has_resource(self, identifier: str) -> bool:
        return check_identifier(identifier) in self._infos

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        return sorted(each for each in self._infos if each.startswith(prefix))

    def stat(self, identifier: str) -> ResourceInfo:
        if not self.has_resource(identifier):
            raise ResourceNotFoundError(identifier, repr(self))
        return self._infos[identifier]


class _VerifiedBlocks(Blocks):
    block_bytes = BLOCK_BYTES

    def __init__(
        self, files: WebFiles | _FolderFiles, file: str, info: ResourceInfo, digests: bytes
    ) -> None:
        self._files = files
        self._file = file
        self._opened = files.open(file)
        self._digests = digests
        self.size = info.size
        self.sha256 = info.sha256

    def fetch_run(self, first: int, n_blocks: int) -> list[bytes]:
        blocks = self.split(self._opened.read(*self.range_of(first, n_blocks)), n_blocks)
        for number, block in enumerate(blocks, first):
            found = hashlib.sha256(block).digest()[:DIGEST_BYTES]
            expected = self._digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
            if found != expected:
                where = (self._file, repr(self._files), number, BLOCK_BYTES)
                raise DamagedBlockError(*where, expected.hex(), found.hex(), "sha256 (16 bytes)")
        return blocks
