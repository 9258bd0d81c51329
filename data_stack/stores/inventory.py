"""Lists the datasets in a store, their versions and resources, with the facts of the manifests; needs no plugin."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from data_stack.exception import (
    DatasetFileCorruptError,
    DatasetNotFoundError,
    ResourceNotFoundError,
)
from data_stack.factories.catalogue import stored_name
from data_stack.factories.manifest import JOURNAL, MANIFEST, Manifest
from data_stack.io.account import account_of
from data_stack.io.identifiers import check_identifier, is_identifier
from data_stack.io.job_threads import JobThreads
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector, existing_storage
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import MAX_BYTES, parse_json
from data_stack.util.versions import version_key

_MARKS = (MANIFEST, JOURNAL)
#: The rule that leaves files of other tools out of copies and checks of a whole store.
NO_IDENTIFIER = "a file of another tool, whose name is no identifier"


@dataclass(frozen=True, slots=True)
class ExpectedResource:
    """A resource of a store, with the facts of its dataset's manifest.

    Attributes:
        identifier: its name in the store.
        size: length in bytes; None if unknown.
        sha256: 64 hex digits; None if unknown.
        is_prepared: whether it is a result of the preparation.
        is_source: whether the dataset was prepared from it.
    """

    identifier: str
    size: int | None = None
    sha256: str | None = None
    is_prepared: bool = False
    is_source: bool = False


@dataclass
class StoredVersion:
    """A version of a dataset in a store, ready or not.

    Attributes:
        folder: that of all its resources: ``"digits/1.0.0"``, or ``"digits"`` for a dataset without folders of versions.
        identifiers: of its resources, with manifest and journal.
        data: the bytes of its manifest; None if it has no manifest.
        manifest: the parsed manifest; None if it is missing or damaged.
        problem: why the manifest is damaged.
    """

    folder: str
    identifiers: list[str] = field(default_factory=list)
    data: bytes | None = None
    manifest: Manifest | None = None
    problem: str | None = None

    @property
    def version(self) -> str | None:
        """Its version; None if neither folder nor manifest names it."""
        return self.folder.partition("/")[2] or (
            self.manifest.version if self.manifest is not None else None
        )

    @property
    def is_begun(self) -> bool:
        """Whether it is being prepared, copied or removed, or that was interrupted."""
        return f"{self.folder}/{JOURNAL}" in self.identifiers

    def resources(self, connector: StorageConnector) -> dict[str, ExpectedResource]:
        """Present and expected resources by identifier: those of the manifest, its sources if they were kept, and all others."""
        found = {identifier: ExpectedResource(identifier) for identifier in self.identifiers}
        if self.manifest is None:
            return found
        for source in self.manifest.sources:
            identifier = f"{self.folder}/{source.identifier}"
            if identifier in found or connector.has_resource(
                identifier
            ):  # sources need not be kept
                # The manifest of an adopted dataset lists the sources of the definition, not the stored bytes.
                known = (None, None) if self.manifest.adopted else (source.size, source.sha256)
                found[identifier] = ExpectedResource(identifier, *known, is_source=True)
        for record in self.manifest.prepared:
            identifier = f"{self.folder}/{record.identifier}"
            is_source = identifier in found and found[identifier].is_source
            found[identifier] = ExpectedResource(
                identifier, record.size, record.sha256, is_prepared=True, is_source=is_source
            )
        return found


@dataclass(frozen=True)
class Inventory:
    """The resources of a store, or of some datasets in it.

    Attributes:
        connector: the store.
        versions: by folder.
        loose: identifiers that belong to no version of a dataset.
        others: of the whole store, the keys of files of other tools that are no identifiers.
    """

    connector: StorageConnector
    versions: dict[str, StoredVersion]
    loose: list[str]
    others: list[str] = field(default_factory=list)

    @property
    def prepared_versions(self) -> dict[str, list[str]]:
        """The versions of each dataset that have a manifest, sorted; ``"?"`` for an unknown version."""
        versions: dict[str, list[str]] = {}
        for each in self.versions.values():
            if each.data is not None:
                versions.setdefault(each.folder.partition("/")[0], []).append(each.version or "?")
        return {name: sorted(found, key=version_key) for name, found in sorted(versions.items())}

    def folder_of(self, identifier: str) -> str:
        """The folder of the version that a resource belongs to, or else its first folder; empty without one."""
        name, slash, rest = identifier.partition("/")
        version = f"{name}/{rest.partition('/')[0]}"
        return version if version in self.versions else name if slash else ""

    def resources(self) -> dict[str, ExpectedResource]:
        """All present and expected resources, sorted by identifier."""
        found = {identifier: ExpectedResource(identifier) for identifier in self.loose}
        for version in self.versions.values():
            found |= version.resources(self.connector)
        return dict(sorted(found.items()))


def take_inventory(
    storage: Storage | None = None, names: Sequence[str] = (), *, must_exist: bool = False
) -> Inventory:
    """List the datasets in a store; reads nothing but manifests.

    ::

        data_stack.take_inventory("/data/sets").prepared_versions    # {"digits": ["1.0.0"], …}

    Args:
        storage: a connector, URL or path; None for the default store.
        names: datasets, or versions as ``"digits/1.0.0"`` or ``"hf:owner/name@version"``; empty for the whole store.
        must_exist: whether a missing folder, or a name of which nothing is stored, is an error.

    Warns:
        LeftOutWarning: ``must_exist``, and the store has files of other tools whose names are no identifiers.

    Raises:
        MalformedIdentifierError: no dataset can have such a name.
        DatasetNotFoundError: nothing is stored of one of ``names``, and ``must_exist``.
        StorageError: the folder does not exist, likewise.
        UnsupportedStorageOperationError: the store cannot list its resources.
    """
    connector = existing_storage(storage) if must_exist else as_storage_connector(storage)
    names = [
        stored_name(name) for name in ([names] if isinstance(names, str) else names)
    ]  # not its letters
    for name in names:
        check_identifier(f"{name}/{MANIFEST}")
    listed: set[str] = set()
    for name in dict.fromkeys(names):
        listed.update(connector.list_resources(f"{name}/"))
    identifiers, others = sorted(listed), list[str]()
    if not names:
        identifiers, others = _keys_of_whole_store(connector)
    versions: dict[str, StoredVersion] = {}
    for identifier in sorted(identifiers, key=lambda each: each.count("/")):
        folder, _, rest = identifier.rpartition("/")
        if rest in _MARKS and folder and folder.count("/") < 2 and folder not in versions:
            found = _look_at(connector, folder, has_manifest=f"{folder}/{MANIFEST}" in identifiers)
            if found is not None:
                versions[folder] = found
    inventory = Inventory(connector, versions, [], others)
    if others and must_exist:
        account_of(repr(connector), identifiers, [*identifiers, *others], NO_IDENTIFIER).warn()
    for identifier in identifiers:
        version = versions.get(inventory.folder_of(identifier))
        (inventory.loose if version is None else version.identifiers).append(identifier)
    for name in names if must_exist else ():
        if not any(identifier.startswith(f"{name}/") for identifier in inventory.resources()):
            raise DatasetNotFoundError(describe_absence(connector, name))
    return inventory


def _keys_of_whole_store(connector: StorageConnector) -> tuple[list[str], list[str]]:
    """The identifiers in a store, and the keys of files of other tools that are none."""
    list_keys = getattr(connector, "list_keys", connector.list_resources)
    identifiers: list[str] = []
    others: list[str] = []
    for key in list_keys():
        (identifiers if is_identifier(key) else others).append(key)
    return identifiers, others


def describe_absence(connector: StorageConnector, name: str) -> str:
    """Say that nothing of a dataset is stored, and what is."""
    stored = take_inventory(connector)
    there = sorted(stored.prepared_versions)
    near = did_you_mean(name, [*there, *stored.versions])
    return f"dataset {name!r} is not in {connector!r}{near}; the store has: {', '.join(there[:20]) or 'no datasets'}"


def _look_at(
    connector: StorageConnector, folder: str, *, has_manifest: bool
) -> StoredVersion | None:
    """The version in a folder; None if the manifest is of another kind, such as that of records."""
    name, _, version = folder.partition("/")
    found = StoredVersion(folder)
    try:
        if has_manifest:
            with connector.get_resource(f"{folder}/{MANIFEST}") as resource:
                found.data = bytes(
                    resource.read(MAX_BYTES + 1)[:MAX_BYTES]
                )  # a truncated manifest fails its digest
            found.manifest = Manifest.from_json(found.data)
    except ResourceNotFoundError:  # removed in between
        pass
    except DatasetFileCorruptError as error:
        found.data, found.problem = found.data or b"", str(error)
        with contextlib.suppress(ValueError):
            fields = parse_json(found.data)
            if version and fields and not (isinstance(fields, dict) and "prepared" in fields):
                return None
    manifest = found.manifest
    is_here = (
        not version or manifest is None or (manifest.name, manifest.version) == (name, version)
    )
    return found if is_here else None


# ---------------------------------------------------------------------- how much


@dataclass(slots=True)
class DatasetUsage:
    """The size of a stored version of a dataset.

    Attributes:
        name: of the dataset.
        version: None if unknown.
        n_resources: number of resources.
        raw: bytes as retrieved.
        preprocessed: bytes of the prepared resources.
        other: all other bytes.
        total: all bytes.
    """

    name: str
    version: str | None
    n_resources: int = 0
    raw: int = 0
    preprocessed: int = 0
    other: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The size of a store.

    Attributes:
        storage: the store, without credentials.
        datasets: by version.
        n_resources: number of resources.
        total: their bytes.
        unique: bytes, equal content counted once.
    """

    storage: str
    datasets: tuple[DatasetUsage, ...]
    n_resources: int
    total: int
    unique: int


def disk_usage(
    storage: Storage | None = None, names: Sequence[str] = (), *, n_threads: int = 8
) -> DiskUsage:
    """Count resources and bytes of a store, by dataset and kind. Reads manifests and no other bytes.

    Args:
        storage: a connector, URL or path; None for the default store.
        names: datasets, or versions of them; empty for the whole store.
        n_threads: resources to ask for at a time.

    Raises:
        DatasetNotFoundError: nothing is stored of one of ``names``.
    """
    inventory = take_inventory(storage, names, must_exist=True)
    connector, expected = inventory.connector, inventory.resources()
    infos: dict[str, ResourceInfo] = {}

    def ask(identifier: str) -> None:
        with contextlib.suppress(
            ResourceNotFoundError, DatasetFileCorruptError
        ):  # `data-stack verify` reports these
            infos[identifier] = connector.stat(identifier)

    JobThreads(expected, ask, n_threads).run()
    rows: dict[str, DatasetUsage] = {}
    for identifier, info in sorted(infos.items()):
        folder = inventory.folder_of(identifier)
        version = inventory.versions.get(folder)
        name = folder.partition("/")[0] or "(no dataset)"
        row = rows.setdefault(
            folder, DatasetUsage(name, None if version is None else version.version)
        )
        row.n_resources += 1
        row.total += info.size
        each, first = expected[identifier], identifier.removeprefix(f"{folder}/").partition("/")[0]
        kind = "preprocessed" if each.is_prepared or first == "preprocessed" else "other"
        if each.is_source or (first == "raw" and not each.is_prepared):
            kind = "raw"
        setattr(row, kind, getattr(row, kind) + info.size)
    unique = {(info.sha256 or identifier): info.size for identifier, info in infos.items()}
    return DiskUsage(
        storage=repr(connector),
        datasets=tuple(rows.values()),
        n_resources=len(infos),
        total=sum(info.size for info in infos.values()),
        unique=sum(unique.values()),
    )
