"""Publishes prepared datasets as plain files, which ``data_stack.load`` reads lazily."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from data_stack.exception import ChecksumMismatchError, ConfigError, install_command
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import Manifest
from data_stack.factories.opening_files import MAX_STORED_BYTES
from data_stack.factories.resource_names import OPENING_FILES
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.stored import StoredDataset
from data_stack.io.folder import Folder
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.location import location_of
from data_stack.io.resources import StreamedResource
from data_stack.plugins.first_party import extras_of
from data_stack.plugins.manager import default_manager
from data_stack.repository.default_storage import Storage
from data_stack.repository.named_dataset import has_prepared_resources
from data_stack.repository.published_description import (
    DESCRIPTION,
    DIGEST_BYTES,
    FORMAT,
    PublishedDescription,
    count_blocks,
)
from data_stack.repository.repository import Resolved, default_repository
from data_stack.util.program_lines import warn_program
from data_stack.util.untrusted_text import MAX_BYTES, seal_json


@dataclass(frozen=True, slots=True)
class PublishingResult:
    """What publishing a dataset came to.

    Attributes:
        pin: ``"sha256=…"``, the digest of ``data_stack.json``.
        documents: the names of the documents for other programs that the folder has, such as
            ``"croissant.json"``.
        missing_documents: the names of those that it lacks, as their package is not installed.
    """

    pin: str
    documents: tuple[str, ...]
    missing_documents: tuple[str, ...]

    def explain_missing_documents(self) -> list[str]:
        """Return a text for each missing document, which says how to get the document."""
        extras = extras_of("documents")
        return [
            f"No {name} was written, which describes the dataset for other programs: "
            f"`{install_command(extras[name])}`, then publish again. "
            f"If the package is installed, see `data-stack doctor`."
            for name in self.missing_documents
        ]


def publish(
    name: str,
    destination: str | os.PathLike[str] | Folder,
    storage: Storage | None = None,
    *,
    progress: bool | None = None,
) -> str:
    """Write a prepared dataset as plain files, from which :func:`data_stack.load` reads lazily.

    ::

        pin = data_stack.publish("digits", "/srv/www/digits")
        data_stack.load(f"https://example.org/digits#{pin}", split="train")

    The folder gets the prepared resources, ``croissant.json`` and, last, ``data_stack.json``: card,
    manifest, and a digest of each block of 64 KiB. A published dataset never changes: publishing it
    again writes nothing but documents that are missing, and another one is refused. After an
    interruption, files that are there are not sent again.

    The extra ``croissant`` brings the package that writes ``croissant.json``. Without the package,
    the dataset is published without that document, with a warning.

    Args:
        name: the name of the dataset; it is prepared first if it is not ready.
        destination: a folder, or a place in a store such as ``"s3://bucket/digits"``.
        storage: where the dataset is kept; None for the default store.
        progress: draw bars while it is prepared.

    Returns:
        ``"sha256=…"``, the digest of ``data_stack.json``, which pins the dataset behind the ``#``
        of its URL.

    Raises:
        DatasetNotFoundError, LicenseDeniedError, RetrievalError, PreparationError: as for
            :func:`data_stack.load`.
        ConfigError: the dataset stores nothing, or the destination has another one.
        StorageError: the destination cannot be written.
    """
    published = publish_dataset(name, destination, storage, progress=progress)
    for explanation in published.explain_missing_documents():
        warn_program(explanation)
    return published.pin


def publish_dataset(
    name: str,
    destination: str | os.PathLike[str] | Folder,
    storage: Storage | None = None,
    *,
    progress: bool | None = None,
) -> PublishingResult:
    """Publish a dataset as :func:`publish` does, and return what documents there are.

    Arguments and errors are those of :func:`publish`.
    """
    dataset = default_repository().resolve(name, storage)
    dataset.check_license()
    factory = _factory_of(dataset)
    factory.prepare(progress=progress)
    manifest = factory.manifest()
    if manifest is None:
        raise ConfigError(
            f"dataset {dataset.name!r} changed while it was published; publish it again"
        )
    if isinstance(destination, Folder):
        folder = destination
    else:
        folder = location_of(destination).as_folder()
    # Refuse what cannot be published before anything is sent.
    _check_names(manifest)
    license_name = dataset.describe().license
    check_size(manifest, license_name)
    _check_destination(manifest, folder)

    digests = _send_resources(factory, manifest, folder)
    description = _describe(manifest, license_name, digests)

    is_complete = folder.has_file(DESCRIPTION)
    if is_complete and folder.read(DESCRIPTION) != description:
        raise ConfigError(
            f"{folder.describe('')} already has {dataset.name} with another card; "
            f"choose another destination"
        )
    _write_documents(dataset.name, storage, folder, keeps_present=is_complete)
    if not is_complete:
        _send_opening_files(factory, folder)
        # The description last: with it, the dataset is complete.
        _write(folder, DESCRIPTION, description)

    names = _names_of_documents()
    return PublishingResult(
        pin=f"sha256={hashlib.sha256(description).hexdigest()}",
        documents=tuple(name for name in names if folder.has_file(name)),
        missing_documents=tuple(name for name in names if not folder.has_file(name)),
    )


def _factory_of(dataset: Resolved) -> DatasetFactory:
    """Return the factory of a dataset that stores prepared resources.

    Raises:
        ConfigError: it stores none.
    """
    factory = dataset.factory
    if not has_prepared_resources(factory):
        raise ConfigError(
            f"dataset {dataset.name!r} stores no prepared resources, so it cannot be published"
        )
    return factory


def _check_names(manifest: Manifest) -> None:
    """Refuse resources whose names published datasets reserve."""
    identifiers = {record.identifier for record in manifest.prepared}
    for reserved in (*_names_of_documents(), DESCRIPTION):
        if reserved in identifiers:
            raise ConfigError(
                f"dataset {manifest.name!r} prepares {reserved!r}, a name that published datasets "
                f"reserve; rename it"
            )


def check_size(manifest: Manifest, license_name: str | None) -> None:
    """Refuse a dataset whose description would have more bytes than readers of one accept.

    Args:
        manifest: the manifest of the dataset.
        license_name: the license on its card; None if the card names none.

    Raises:
        ConfigError: the dataset has too many resources, or too many bytes.
    """
    n_bytes_of_digests = 0
    for record in manifest.prepared:
        n_bytes_of_digests += count_blocks(record.size) * DIGEST_BYTES
    if n_bytes_of_digests > MAX_BYTES:
        # Not even the digests have room, and they may not have room in memory either.
        raise _too_large(manifest)

    # Digests of zeros take as much room as the real ones.
    digests = {}
    for record in manifest.prepared:
        digests[record.identifier] = bytes(count_blocks(record.size) * DIGEST_BYTES)
    if len(_describe(manifest, license_name, digests)) > MAX_BYTES:
        raise _too_large(manifest)


def _too_large(manifest: Manifest) -> ConfigError:
    return ConfigError(
        f"dataset {manifest.name!r} has {len(manifest.prepared):,} resources of "
        f"{manifest.size:,} bytes, too many to publish: {DESCRIPTION} would have more than "
        f"{MAX_BYTES:,} bytes; publish parts"
    )


def _check_destination(manifest: Manifest, folder: Folder) -> None:
    """Refuse a folder with another published dataset."""
    if not folder.has_file(DESCRIPTION):
        return
    present = PublishedDescription.parse(folder.read(DESCRIPTION), folder.name).manifest
    if present != manifest:
        raise ConfigError(
            f"{folder.describe('')} has {present.name} {present.version} of {present.created}, "
            f"and a published dataset never changes. Choose another destination for "
            f"{manifest.name} {manifest.version} of {manifest.created}"
        )


def _describe(manifest: Manifest, license_name: str | None, digests: Mapping[str, bytes]) -> bytes:
    """Return the contents of ``data_stack.json``.

    Args:
        manifest: the manifest of the dataset.
        license_name: the license on its card; None if the card names none.
        digests: for each resource the digests of its blocks, 16 bytes each.
    """
    blocks = {}
    for identifier, digests_of_blocks in digests.items():
        blocks[identifier] = base64.b64encode(digests_of_blocks).decode("ascii")
    fields = {
        "format": FORMAT,
        "license": license_name,
        "distribution": manifest.distribution,
        "manifest": manifest.to_json().decode("ascii"),
        "blocks": blocks,
    }
    return seal_json(fields)


def _names_of_documents() -> list[str]:
    """Return the names of all documents: of installed plugins, and of data_stack's own packages."""
    return sorted({*default_manager().provided("documents"), *extras_of("documents")})


def _write_documents(
    name: str, storage: Storage | None, folder: Folder, *, keeps_present: bool
) -> None:
    """Write the documents of installed plugins.

    Args:
        name: the name of the prepared dataset.
        storage: where it is kept.
        folder: where it is published.
        keeps_present: keep documents that are there. Otherwise they are those of an interrupted
            publishing, perhaps of another preparation, and are written again.
    """
    for file_name, describe in default_manager().provided("documents").items():
        if keeps_present and folder.has_file(file_name):
            continue
        _write(folder, file_name, describe(name, storage))


def _write(folder: Folder, name: str, data: bytes) -> None:
    with folder.create(name) as file:
        file.write(data)


# ---------------------------------------------------------------------- resources


def _send_resources(
    factory: DatasetFactory, manifest: Manifest, folder: Folder
) -> dict[str, bytes]:
    """Write the prepared resources to a folder; return by resource the digests of its blocks."""
    stored = _stored_dataset(factory)
    digests: dict[str, bytes] = {}
    for record in sorted(manifest.prepared, key=lambda record: record.identifier):
        with stored.connector.get_resource(stored.identifier(record.identifier)) as resource:
            digests[record.identifier] = _send(resource, record, folder)
    return digests


def _send(resource: StreamedResource, record: ResourceRecord, folder: Folder) -> bytes:
    """Write a resource to a folder, unless it is there; return the digests of its blocks."""
    digests = _Digests()
    if _is_there(folder, record):
        for block in _read_blocks(resource):
            digests.add(block)
        digests.check(record)
        return digests.of_blocks
    with folder.create(record.identifier) as target:
        for block in _read_blocks(resource):
            digests.add(block)
            target.write(block)
        # Checked before the file is stored, so that a damaged resource is not published.
        digests.check(record)
    return digests.of_blocks


def _send_opening_files(factory: DatasetFactory, folder: Folder) -> None:
    """Write the copy of the files that ``open()`` reads, if the store has one.

    Readers compare each of them with its digest, so it is sent as it is.
    """
    stored = _stored_dataset(factory)
    data = stored.read(OPENING_FILES, MAX_STORED_BYTES + 1)
    if data is not None and len(data) <= MAX_STORED_BYTES:
        _write(folder, OPENING_FILES, data)


def _stored_dataset(factory: DatasetFactory) -> StoredDataset:
    """Return the dataset of a factory in its store."""
    definition = DatasetDefinition(factory, DatasetFactory)
    return StoredDataset(factory.storage_connector, definition)


def _is_there(folder: Folder, record: ResourceRecord) -> bool:
    """Return whether a folder has a resource already, with the same bytes."""
    if not folder.has_file(record.identifier):
        return False
    digests = _Digests()
    with folder.open(record.identifier) as present:
        for block in _read_blocks(present):
            digests.add(block)
    return digests.whole == record.sha256


def _read_blocks(resource: StreamedResource) -> Iterator[bytes]:
    """Yield a resource in blocks of 64 KiB; the last may be shorter."""
    while True:
        block = resource.read(BLOCK_BYTES)
        if not block:
            return
        yield block


class _Digests:
    """The digests of a resource, block by block."""

    #: The digests of all blocks so far, one after the other.
    _of_blocks: bytearray

    #: The digest of all bytes so far.
    _whole: hashlib._Hash

    def __init__(self) -> None:
        self._of_blocks = bytearray()
        self._whole = hashlib.sha256()

    def add(self, block: bytes) -> None:
        self._whole.update(block)
        self._of_blocks += hashlib.sha256(block).digest()[:DIGEST_BYTES]

    @property
    def of_blocks(self) -> bytes:
        """The digests of all blocks so far, 16 bytes each."""
        return bytes(self._of_blocks)

    @property
    def whole(self) -> str:
        """The SHA-256 of all bytes so far."""
        return self._whole.hexdigest()

    def check(self, record: ResourceRecord) -> None:
        """Compare the digest of the whole with that of the manifest, which need not have one.

        Raises:
            ChecksumMismatchError: they differ.
        """
        if record.sha256 is not None and record.sha256 != self.whole:
            raise ChecksumMismatchError(
                record.identifier, "the store", record.sha256, self.whole, "sha256"
            )
