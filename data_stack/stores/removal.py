"""Removes datasets from stores, so that nothing that is half removed looks ready."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from data_stack.exception import (
    ArgumentError,
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    ResourceNotFoundError,
    StorageConflictError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.catalogue import stored_name
from data_stack.factories.journal import Journal
from data_stack.factories.resource_names import JOURNAL, MANIFEST
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.stores.inventory import (
    Inventory,
    StoredVersion,
    describe_absence,
    take_inventory,
)

#: The journal that a removal stores names no preparation, so that none resumes it.
_FINGERPRINT_OF_REMOVAL = "0" * 64


@dataclass(frozen=True, slots=True)
class RemovedVersion:
    """A version of a dataset that was removed, or (``dry_run``) would be.

    Attributes:
        folder: e.g. ``"digits/1.0.0"``.
        version: None if unknown, and for resources that belonged to no version.
        n_resources: number of resources.
        n_bytes: their bytes.
    """

    folder: str
    version: str | None
    n_resources: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class RemovalReport:
    """The result of :func:`remove_dataset`.

    Attributes:
        storage: the store, without credentials.
        name: the name of the dataset.
        removed: what was removed of each version.
        dry_run: whether nothing was removed.
    """

    storage: str
    name: str
    removed: tuple[RemovedVersion, ...]
    dry_run: bool

    @property
    def n_resources(self) -> int:
        """Number of resources in all."""
        return sum(version.n_resources for version in self.removed)

    @property
    def n_bytes(self) -> int:
        """Bytes of all of them.

        Stores that keep replaced content for readers free it by ``data-stack gc``.
        """
        return sum(version.n_bytes for version in self.removed)


def remove_dataset(
    name: str,
    storage: Storage | None = None,
    *,
    version: str | None = None,
    all_versions: bool = False,
    dry_run: bool = False,
) -> RemovalReport:
    """Remove a dataset from a store; its plugin is not needed.

    ::

        data_stack.remove_dataset("digits", version="1.0.0", dry_run=True).n_bytes

    A journal is stored first, which says that the dataset is incomplete. Then the manifest, all
    other resources and, last, the journal are deleted. So a removal that is killed leaves nothing
    that looks ready, and the same call removes what is left.

    Args:
        name: the name of the dataset in the store.
        storage: a connector, URL or path; None for the default store.
        version: the version to remove; None for the only one.
        all_versions: remove all versions, and all other resources below the name.
        dry_run: only report what would be removed.

    Raises:
        DatasetNotFoundError: the store does not have the dataset or version.
        ConfigError: there are several versions, and neither ``version`` nor ``all_versions`` is
            given.
        StorageConflictError: another process is preparing, copying or removing it.
        UnsupportedStorageOperationError: the store cannot list or delete; nothing was removed.
        StorageError: the store failed; the same call resumes the removal.
    """
    if not isinstance(name, str):
        raise ConfigError(f"expected the name of a dataset, then its storage, got {name!r:.200}")
    is_of_catalogue = ":" in name
    if is_of_catalogue:
        name, _, version_in_name = stored_name(name).partition("/")
        version = version or version_in_name or None
    if version is not None and all_versions:
        raise ConfigError("version and all_versions exclude each other")
    if "/" in name:
        raise ArgumentError(
            f"{name!r:.80} is not the name of a dataset; pass its version by", "version"
        )
    connector = as_storage_connector(storage)
    _check_deletes(connector, name)

    stored = take_inventory(connector, [name])
    versions = _choose_versions(stored, name, version, all_versions)
    loose = _choose_loose(stored, version, all_versions)
    if not versions and not loose:
        raise _not_stored(stored, name, version)

    removed = [_remove_version(connector, chosen, dry_run) for chosen in versions]
    if loose:
        removed.append(RemovedVersion(name, None, len(loose), _size(connector, loose)))
        if not dry_run:
            _delete_all(connector, loose)
    return RemovalReport(repr(connector), name, tuple(removed), dry_run)


def _check_deletes(connector: StorageConnector, name: str) -> None:
    """Check that a store can delete, before anything is changed.

    Raises:
        UnsupportedStorageOperationError: it cannot.
    """
    delete = type(uncached(connector)).delete_resource
    if delete is StorageConnector.delete_resource:
        raise UnsupportedStorageOperationError(
            f"{connector!r} cannot delete resources; remove those below '{name}/' by other means, "
            f"{MANIFEST} first"
        )


def _choose_versions(
    stored: Inventory, name: str, version: str | None, all_versions: bool
) -> list[StoredVersion]:
    """Return the versions to remove.

    Raises:
        ConfigError: there are several, and the caller did not choose.
    """
    versions = list(stored.versions.values())
    if version is not None:
        return [candidate for candidate in versions if candidate.version == version]
    if len(versions) > 1 and not all_versions:
        raise ArgumentError(
            f"several versions of dataset {name!r} are stored: {_list_versions(stored)}; "
            f"remove all versions, or choose one by",
            "version",
        )
    return versions


def _choose_loose(stored: Inventory, version: str | None, all_versions: bool) -> list[str]:
    """Return the resources of no version that are to be removed."""
    is_dataset_without_versions = version is None and not stored.versions
    if all_versions or is_dataset_without_versions:
        return stored.loose
    return []


def _not_stored(stored: Inventory, name: str, version: str | None) -> DatasetNotFoundError:
    if version is not None and stored.versions:
        return DatasetNotFoundError(
            f"no version {version!r} of dataset {name!r} is in {stored.connector!r}; "
            f"it has: {_list_versions(stored)}"
        )
    return DatasetNotFoundError(describe_absence(stored.connector, name))


def _list_versions(stored: Inventory) -> str:
    return ", ".join(version.version or "(unfinished)" for version in stored.versions.values())


def _remove_version(
    connector: StorageConnector, version: StoredVersion, dry_run: bool
) -> RemovedVersion:
    report = RemovedVersion(
        version.folder,
        version.version,
        len(version.identifiers),
        _size(connector, version.identifiers),
    )
    if dry_run:
        return report
    manifest = f"{version.folder}/{MANIFEST}"
    journal = f"{version.folder}/{JOURNAL}"
    with connector.lease(manifest) as lease:
        if not lease.acquire():
            raise StorageConflictError(
                f"another process is preparing, copying or removing dataset {version.folder!r} in "
                f"{connector!r}; nothing of it was removed. Wait for that process, or end it, and "
                f"try again"
            )
        # The journal comes first and goes last: in between, nothing looks ready, even after a
        # crash.
        connector.set_resource(journal, Journal(_FINGERPRINT_OF_REMOVAL).to_json())
        _delete_all(connector, [manifest])
        _delete_all(
            connector,
            [name for name in version.identifiers if name not in (manifest, journal)],
        )
        _delete_all(connector, [journal])
        has_folder_of_its_own = "/" in version.folder
        if has_folder_of_its_own:  # else the folder may contain other versions
            connector.remove_abandoned(f"{version.folder}/")
    return report


def _delete_all(connector: StorageConnector, identifiers: Iterable[str]) -> None:
    for identifier in identifiers:
        # An unfinished dataset has no manifest, or another process was faster.
        with contextlib.suppress(ResourceNotFoundError):
            connector.delete_resource(identifier)


def _size(connector: StorageConnector, identifiers: Sequence[str]) -> int:
    """Return the bytes of some resources, without those that are missing or damaged."""
    n_bytes = 0
    for identifier in identifiers:
        with contextlib.suppress(ResourceNotFoundError, DatasetFileCorruptError):
            n_bytes += connector.stat(identifier).size
    return n_bytes
