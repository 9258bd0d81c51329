"""Lists the datasets in a store with the facts of their manifests; needs no plugin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from data_stack.exception import (
    DatasetFileCorruptError,
    DatasetNotFoundError,
    ResourceNotFoundError,
)
from data_stack.factories.catalogue import stored_name
from data_stack.factories.manifest import Manifest
from data_stack.factories.resource_names import JOURNAL, MANIFEST
from data_stack.factories.resource_record import ResourceRecord
from data_stack.io.account import account_of
from data_stack.io.identifiers import check_identifier, is_identifier
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector, existing_storage
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import MAX_BYTES, parse_json
from data_stack.util.versions import version_key

#: The rule that leaves files of other tools out of copies and checks of a whole store.
NO_IDENTIFIER = "a file of another tool, whose name is no identifier"

#: Resources whose folder is that of a version of a dataset.
_RESOURCES_OF_VERSIONS = (MANIFEST, JOURNAL)

#: Folders above them: that of the dataset, and that of the version.
_MAX_FOLDERS = 2

#: Datasets that an error lists.
_MAX_NAMES_SHOWN = 20


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
        folder: that of all its resources: ``"digits/1.0.0"``, or ``"digits"`` for a dataset without
            folders of versions.
        identifiers: the identifiers of its resources, with manifest and journal.
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
    def dataset(self) -> str:
        """The name of its dataset."""
        return self.folder.partition("/")[0]

    @property
    def version(self) -> str | None:
        """Its version; None if neither folder nor manifest names it."""
        version_of_folder = self.folder.partition("/")[2]
        if version_of_folder:
            return version_of_folder
        if self.manifest is None:
            return None
        return self.manifest.version

    @property
    def is_begun(self) -> bool:
        """Whether a preparation, copy or removal of it is under way, or was interrupted."""
        return f"{self.folder}/{JOURNAL}" in self.identifiers

    def resources(self, connector: StorageConnector) -> dict[str, ExpectedResource]:
        """Return present and expected resources by identifier.

        These are the resources of the manifest, its sources if they were kept, and all others below
        the folder.
        """
        resources = {identifier: ExpectedResource(identifier) for identifier in self.identifiers}
        if self.manifest is None:
            return resources
        for source in self.manifest.sources:
            identifier = f"{self.folder}/{source.identifier}"
            # Sources need not be kept, and those of several versions may lie elsewhere.
            if identifier not in resources and not connector.has_resource(identifier):
                continue
            if self.manifest.adopted:
                # This manifest lists the sources of the definition, not the bytes that were stored.
                resources[identifier] = ExpectedResource(identifier, is_source=True)
            else:
                resources[identifier] = ExpectedResource(
                    identifier, source.size, source.sha256, is_source=True
                )
        for record in self.manifest.prepared:
            self._add_prepared(resources, record)
        return resources

    def _add_prepared(self, resources: dict[str, ExpectedResource], record: ResourceRecord) -> None:
        identifier = f"{self.folder}/{record.identifier}"
        # Without preprocessing, the sources are the prepared resources.
        is_source = identifier in resources and resources[identifier].is_source
        resources[identifier] = ExpectedResource(
            identifier, record.size, record.sha256, is_prepared=True, is_source=is_source
        )


@dataclass(frozen=True)
class Inventory:
    """The resources of a store, or of some datasets in it.

    Attributes:
        connector: the store.
        versions: the versions of datasets, by their folders.
        loose: identifiers that belong to no version of a dataset.
        others: the keys of files of other tools, which are no identifiers; empty for an inventory
            of some datasets.
    """

    connector: StorageConnector
    versions: dict[str, StoredVersion]
    loose: list[str]
    others: list[str] = field(default_factory=list)

    @property
    def prepared_versions(self) -> dict[str, list[str]]:
        """The versions that have a manifest, by dataset; both are sorted.

        The version of a damaged manifest may be unknown: ``"?"``.
        """
        versions_by_name: dict[str, list[str]] = {}
        for stored in self.versions.values():
            if stored.data is not None:
                versions = versions_by_name.setdefault(stored.dataset, [])
                versions.append(stored.version or "?")
        for versions in versions_by_name.values():
            versions.sort(key=version_key)
        return dict(sorted(versions_by_name.items()))

    def folder_of(self, identifier: str) -> str:
        """Return the folder of the version that a resource belongs to.

        Returns:
            The first folder of the identifier, if the resource belongs to no version; empty if it
            lies in no folder.
        """
        name, slash, path = identifier.partition("/")
        folder = f"{name}/{path.partition('/')[0]}"
        if folder in self.versions:
            return folder
        if not slash:
            return ""
        return name

    def resources(self) -> dict[str, ExpectedResource]:
        """Return all present and expected resources, sorted by identifier."""
        resources = {identifier: ExpectedResource(identifier) for identifier in self.loose}
        for version in self.versions.values():
            resources.update(version.resources(self.connector))
        return dict(sorted(resources.items()))


def take_inventory(
    storage: Storage | None = None, names: Sequence[str] = (), *, must_exist: bool = False
) -> Inventory:
    """List the datasets in a store; reads nothing but manifests.

    ::

        data_stack.take_inventory("/data/sets").prepared_versions    # {"digits": ["1.0.0"], …}

    Args:
        storage: a connector, URL or path; None for the default store.
        names: datasets, or versions as ``"digits/1.0.0"`` or ``"hf:owner/name@version"``; empty for
            the whole store.
        must_exist: whether a missing folder, or a name of which nothing is stored, is an error.

    Warns:
        LeftOutWarning: ``must_exist``, and the store has files of other tools whose names are no
            identifiers.

    Raises:
        MalformedIdentifierError: no dataset can have such a name.
        DatasetNotFoundError: with ``must_exist``, nothing is stored of one of ``names``.
        StorageError: with ``must_exist``, the folder does not exist.
        UnsupportedStorageOperationError: the store cannot list its resources.
    """
    if must_exist:
        connector = existing_storage(storage)
    else:
        connector = as_storage_connector(storage)
    if isinstance(names, str):
        names = [names]
    folders = [stored_name(name) for name in names]
    for folder in folders:
        check_identifier(f"{folder}/{MANIFEST}")

    others: list[str] = []
    if folders:
        identifiers = _list_below(connector, folders)
    else:
        identifiers, others = _list_whole_store(connector)
    if others and must_exist:
        keys = [*identifiers, *others]
        account_of(repr(connector), identifiers, keys, NO_IDENTIFIER).warn()

    inventory = Inventory(connector, _find_versions(connector, identifiers), [], others)
    for identifier in identifiers:
        version = inventory.versions.get(inventory.folder_of(identifier))
        if version is None:
            inventory.loose.append(identifier)
        else:
            version.identifiers.append(identifier)

    if must_exist:
        present = inventory.resources()
        for folder in folders:
            if not any(identifier.startswith(f"{folder}/") for identifier in present):
                raise DatasetNotFoundError(describe_absence(connector, folder))
    return inventory


def _list_below(connector: StorageConnector, folders: Iterable[str]) -> list[str]:
    """Return the identifiers below some folders, each once, sorted."""
    identifiers: set[str] = set()
    for folder in dict.fromkeys(folders):
        identifiers.update(connector.list_resources(f"{folder}/"))
    return sorted(identifiers)


def _list_whole_store(connector: StorageConnector) -> tuple[list[str], list[str]]:
    """Return the identifiers in a store, and the keys of files of other tools that are none."""
    # A connector of a third party may have the methods of the contract only.
    list_keys = getattr(connector, "list_keys", connector.list_resources)
    identifiers: list[str] = []
    others: list[str] = []
    for key in list_keys():
        if is_identifier(key):
            identifiers.append(key)
        else:
            others.append(key)
    return identifiers, others


def _find_versions(
    connector: StorageConnector, identifiers: Sequence[str]
) -> dict[str, StoredVersion]:
    """Return the versions whose manifest or journal is among some resources, by folder."""
    present = set(identifiers)
    versions: dict[str, StoredVersion] = {}
    # The datasets without folders of versions come first.
    for identifier in sorted(identifiers, key=_depth):
        folder, _, name = identifier.rpartition("/")
        if name not in _RESOURCES_OF_VERSIONS or not folder or _depth(identifier) > _MAX_FOLDERS:
            continue
        if folder in versions:
            continue
        has_manifest = f"{folder}/{MANIFEST}" in present
        version = _read_version(connector, folder, has_manifest=has_manifest)
        if version is not None:
            versions[folder] = version
    return versions


def _depth(identifier: str) -> int:
    """Return the number of folders above a resource."""
    return identifier.count("/")


def _read_version(
    connector: StorageConnector, folder: str, *, has_manifest: bool
) -> StoredVersion | None:
    """Return the version in a folder.

    Returns:
        The version; None if the resource with the name of a manifest is of another kind, such as
        that of records, or of another folder.
    """
    stored = StoredVersion(folder)
    if not has_manifest:
        return stored
    try:
        with connector.get_resource(f"{folder}/{MANIFEST}") as resource:
            # A truncated manifest fails its digest.
            stored.data = bytes(resource.read(MAX_BYTES))
    except ResourceNotFoundError:
        # Another process has removed it since the resources were listed.
        return stored
    except DatasetFileCorruptError as error:
        stored.data = b""
        stored.problem = str(error)
        return stored
    name, _, version = folder.partition("/")
    try:
        stored.manifest = Manifest.from_json(stored.data)
    except DatasetFileCorruptError as error:
        stored.problem = str(error)
        if version and _is_of_another_kind(stored.data):
            return None
        return stored
    if version and (stored.manifest.name, stored.manifest.version) != (name, version):
        return None
    return stored


def _is_of_another_kind(data: bytes) -> bool:
    """Return whether a file is JSON, but not the manifest of a dataset, whole or damaged."""
    try:
        fields = parse_json(data)
    except ValueError:
        return False
    if not fields:
        return False
    return not isinstance(fields, dict) or "prepared" not in fields


def describe_absence(connector: StorageConnector, name: str) -> str:
    """Say that nothing of a dataset is stored, and what is."""
    stored = take_inventory(connector)
    datasets = sorted(stored.prepared_versions)
    suggestion = did_you_mean(name, [*datasets, *stored.versions])
    shown = ", ".join(datasets[:_MAX_NAMES_SHOWN]) or "no datasets"
    return f"dataset {name!r} is not in {connector!r}{suggestion}; the store has: {shown}"
