"""Which datasets lie in a store, in which versions; their plugins need not be installed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from data_stack.dataset.manifest import Manifest
from data_stack.dataset.resource_names import JOURNAL, MANIFEST
from data_stack.dataset.strict_json import MAX_BYTES
from data_stack.exception import (
    DatasetFileCorruptError,
    DataStackError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.identifiers import checked_identifier
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.repository.repository import default_repository

__all__ = ["Inventory", "StoredVersion", "found_in"]

_MARKS = (MANIFEST, JOURNAL)


@dataclass
class StoredVersion:
    """A version of a dataset in a store, ready or not.

    Attributes:
        folder: what all of it lies below: ``"digits/1.0.0"``, or ``"digits"`` for a dataset without folders of versions.
        identifiers: of what lies there, as far as the store can list it; manifest and journal are among them.
        data: the bytes of its manifest; None: it has none.
        manifest: what those say; None if there are none, or if they are damaged.
        problem: why they are damaged.
    """

    folder: str
    identifiers: list[str] = field(default_factory=list)
    data: bytes | None = None
    manifest: Manifest | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.folder.partition("/")[0]

    @property
    def version(self) -> str | None:
        """Its version; None if neither folder nor manifest tells."""
        return self.folder.partition("/")[2] or (self.manifest.version if self.manifest is not None else None)

    @property
    def is_begun(self) -> bool:
        """Whether something of it is being prepared, copied or removed, or was when that was interrupted."""
        return f"{self.folder}/{JOURNAL}" in self.identifiers

    @property
    def is_taken_away(self) -> bool:
        """Whether its manifest stands for one that was taken away in a store that cannot delete."""
        return self.data is not None and self.data.strip() == b"{}"


@dataclass(frozen=True)
class Inventory:
    """What lies in a store, or below some names in it.

    Attributes:
        versions: by their folders.
        loose: identifiers of what belongs to no version of a dataset.
        is_listed: False where the store cannot list, and ``versions`` are those of which a manifest was asked for.
    """

    versions: dict[str, StoredVersion]
    loose: list[str]
    is_listed: bool


def found_in(connector: StorageConnector, names: Sequence[str] = ()) -> Inventory:
    """Look what lies in a store; reads manifests and nothing else.

    Where the store cannot list, the versions of installed plugins are looked for, and the layout without versions.

    Args:
        connector: the store.
        names: datasets, or versions as ``"digits/1.0.0"``; none: all of the store.

    Raises:
        MalformedIdentifierError: no dataset can have such a name.
    """
    for name in names:
        checked_identifier(f"{name}/{MANIFEST}")
    try:
        listed = {each for name in dict.fromkeys(names) for each in connector.list_resources(f"{name}/")}
        identifiers = sorted(listed) if names else connector.list_resources()
        is_listed = True
    except UnsupportedStorageOperationError:
        folders = dict.fromkeys([*names, *_folders_of_plugins(names)])
        identifiers = [f"{each}/{mark}" for each in folders for mark in _MARKS if connector.has_resource(f"{each}/{mark}")]
        is_listed = False
    versions: dict[str, StoredVersion] = {}
    for identifier in sorted(identifiers, key=lambda each: each.count("/")):
        folder, _, rest = identifier.rpartition("/")
        if rest in _MARKS and folder and folder.count("/") < 2 and folder not in versions:
            found = _looked_at(connector, folder, has_manifest=f"{folder}/{MANIFEST}" in identifiers)
            if found is not None and not _is_part_of(versions.get(found.name), found):
                versions[folder] = found
    loose: list[str] = []
    for identifier in identifiers:
        first, _, rest = identifier.partition("/")
        version = versions.get(f"{first}/{rest.partition('/')[0]}") or versions.get(first)
        (loose if version is None or not rest else version.identifiers).append(identifier)
    return Inventory(versions, loose, is_listed)


def _folders_of_plugins(names: Sequence[str]) -> Iterator[str]:
    repository = default_repository()
    for name in names or repository.list():
        if not names:
            yield name
        with contextlib.suppress(DataStackError):  # not installed, or broken
            if "/" not in name and (version := repository.describe(name).version) is not None:
                yield f"{name}/{version}"


def _looked_at(connector: StorageConnector, folder: str, *, has_manifest: bool) -> StoredVersion | None:
    """The version below a folder; None if what lies there is something else, such as records with a manifest of their own."""
    name, _, version = folder.partition("/")
    found = StoredVersion(folder, data=_read(connector, f"{folder}/{MANIFEST}") if has_manifest else None)
    if found.data is None:
        return found
    try:
        found.manifest = Manifest.from_json(found.data)
    except DatasetFileCorruptError as error:
        found.problem = str(error)
        return None if version and _is_of_others(found.data) else found
    is_here = not version or (found.manifest.name, found.manifest.version) == (name, version)
    return found if is_here else None


def _is_part_of(whole: StoredVersion | None, version: StoredVersion) -> bool:
    if whole is None or whole.manifest is None or whole.folder == version.folder:
        return False
    inside = version.folder.partition("/")[2] + "/"
    return any(record.identifier.startswith(inside) for record in whole.manifest.prepared)


def _is_of_others(data: bytes) -> bool:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return bool(fields) and not (isinstance(fields, dict) and "prepared" in fields)


def _read(connector: StorageConnector, identifier: str) -> bytes | None:
    try:
        with connector.get_resource(identifier) as resource:
            return bytes(resource.read(MAX_BYTES + 1)[:MAX_BYTES])  # cut short, it does not have its digest
    except ResourceNotFoundError:  # removed in between
        return None
    except DatasetFileCorruptError:
        return b""  # damaged: no manifest of anything
