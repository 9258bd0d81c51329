"""Publishes prepared datasets as plain files, which are read lazily from a folder, a store or a static web server."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from typing import Any, Final

from data_stack.exception import ChecksumMismatchError, ConfigError
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import Manifest
from data_stack.factories.stored import StoredDataset
from data_stack.io.folder import Folder
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.location import location_of
from data_stack.io.resources import StreamedResource
from data_stack.repository.croissant.writing import to_croissant
from data_stack.repository.default_storage import Storage
from data_stack.repository.published_description import (
    DESCRIPTION,
    DIGEST_BYTES,
    FORMAT,
    PublishedDescription,
)
from data_stack.repository.repository import default_repository
from data_stack.util.json_text import json_text
from data_stack.util.untrusted_text import MAX_BYTES, seal_json

_CROISSANT: Final = "croissant.json"


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

    The folder gets the prepared resources, ``croissant.json`` and, last, ``data_stack.json``: card, manifest, and a digest of
    each block of 64 KiB. A published dataset never changes: publishing it again writes nothing, and another one is refused.
    After an interruption, files that are there are not sent again.

    Args:
        name: of the dataset; it is prepared first if it is not ready.
        destination: a folder, or a place in a store such as ``"s3://bucket/digits"``.
        storage: where the dataset is kept; None for the default store.
        progress: draw bars while it is prepared.

    Returns:
        ``"sha256=…"``, the digest of ``data_stack.json``, which pins the dataset behind the ``#`` of its URL.

    Raises:
        DatasetNotFoundError, LicenseDeniedError, RetrievalError, PreparationError: as for :func:`data_stack.load`.
        ConfigError: the dataset stores nothing, or the destination has another one.
        StorageError: the destination cannot be written.
    """
    dataset = default_repository().resolve(name, storage)
    dataset.check_license()
    name, factory = dataset.name, dataset.factory
    if (
        not isinstance(factory, DatasetFactory)
        or not DatasetDefinition(factory, DatasetFactory).needs_store
    ):
        raise ConfigError(
            f"dataset {name!r} stores no prepared resources, so it cannot be published"
        )
    factory.prepare(progress=progress)
    manifest = factory.manifest()
    if manifest is None:
        raise ConfigError(f"dataset {name!r} changed while it was published; publish it again")
    folder = (
        destination if isinstance(destination, Folder) else location_of(destination).as_folder()
    )
    _check(manifest, folder)
    connector: Any = factory.storage_connector
    stored = StoredDataset(connector, DatasetDefinition(factory, DatasetFactory))
    blocks = {}
    for record in sorted(manifest.prepared, key=lambda record: record.identifier):
        with connector.get_resource(stored.identifier(record.identifier)) as resource:
            digests = _send(resource, folder, record.identifier, record.sha256)
            blocks[record.identifier] = base64.b64encode(digests).decode()
    facts = {
        "format": FORMAT,
        "license": dataset.describe().license,
        "distribution": manifest.distribution,
    }
    data = seal_json({**facts, "manifest": manifest.to_json().decode("ascii"), "blocks": blocks})
    if not folder.has_file(DESCRIPTION):
        with folder.create(_CROISSANT) as file:
            file.write(json_text(to_croissant(name, storage)).encode())
        with folder.create(DESCRIPTION) as file:
            file.write(data)
    elif folder.read(DESCRIPTION) != data:
        raise ConfigError(
            f"{folder.describe('')} already has {name} with another card; choose another destination"
        )
    return f"sha256={hashlib.sha256(data).hexdigest()}"


def _check(manifest: Manifest, folder: Folder) -> None:
    """Refuse reserved names of resources, more bytes than a description has room for, and the place of another dataset."""
    taken = {record.identifier for record in manifest.prepared} & {DESCRIPTION, _CROISSANT}
    if taken:
        raise ConfigError(
            f"dataset {manifest.name!r} prepares {min(taken)!r}, a name that published datasets reserve; rename it"
        )
    if manifest.size // BLOCK_BYTES * 22 > MAX_BYTES // 2:  # characters of a digest
        raise ConfigError(
            f"dataset {manifest.name!r} has {manifest.size:,} bytes, too many to publish; publish parts"
        )
    if folder.has_file(DESCRIPTION):
        there = PublishedDescription.parse(folder.read(DESCRIPTION), folder.name).manifest
        if there != manifest:
            known = f"{folder.describe('')} has {there.name} {there.version} of {there.created}"
            ours = f"{manifest.name} {manifest.version} of {manifest.created}"
            raise ConfigError(
                f"{known}, and a published dataset never changes. Choose another destination for {ours}"
            )


def _send(resource: StreamedResource, folder: Folder, file: str, sha256: str | None) -> bytes:
    """Write a resource to a folder, unless it is there; return the digests of its blocks."""
    is_there = folder.has_file(file)
    if is_there:
        with folder.open(file) as present:
            is_there = _digests(present)[1] == sha256
    with contextlib.ExitStack() as stack:
        target = None if is_there else stack.enter_context(folder.create(file))
        blocks, found = _digests(resource, target)
        if sha256 not in (None, found):
            raise ChecksumMismatchError(file, "the store", str(sha256), found, "sha256")
    return blocks


def _digests(resource: Any, target: Any = None) -> tuple[bytes, str]:
    """The digests of all blocks, and of the whole; the bytes are written to ``target`` on the way."""
    whole, blocks = hashlib.sha256(), []
    while data := resource.read(BLOCK_BYTES):
        whole.update(data)
        blocks.append(hashlib.sha256(data).digest()[:DIGEST_BYTES])
        if target is not None:
            target.write(data)
    return b"".join(blocks), whole.hexdigest()
