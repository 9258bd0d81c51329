"""Removes datasets and garbage from a store; an unfinished removal never looks like a ready dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    ResourceNotFoundError,
    StorageConflictError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.catalogue import stored_name
from data_stack.factories.manifest import JOURNAL, MANIFEST, Journal
from data_stack.io.storage_connectors.cached import uncached
from data_stack.io.storage_connectors.connector import Garbage, StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.stores.inventory import StoredVersion, describe_absence, take_inventory

_MARK = Journal("0" * 64).to_json()


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
        name: of the dataset.
        removed: by version.
        dry_run: whether nothing was removed.
    """

    storage: str
    name: str
    removed: tuple[RemovedVersion, ...]
    dry_run: bool

    @property
    def n_resources(self) -> int:
        """Number of resources in all."""
        return sum(each.n_resources for each in self.removed)

    @property
    def n_bytes(self) -> int:
        """Bytes of all of them. Stores that keep replaced content for readers free it by ``data-stack gc``."""
        return sum(each.n_bytes for each in self.removed)


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

    It stores a mark that the dataset is incomplete, then deletes the manifest, all other resources, and the mark. A removal that
    is killed leaves nothing that looks ready, and the same call removes the rest.

    Args:
        name: of the dataset in the store.
        storage: a connector, URL or path; None for the default store.
        version: to remove; None for the only one.
        all_versions: remove all versions, and all other resources below the name.
        dry_run: only report what would be removed.

    Raises:
        DatasetNotFoundError: the store does not have the dataset or version.
        ConfigError: there are several versions, and neither ``version`` nor ``all_versions`` is given.
        StorageConflictError: another process is preparing, copying or removing it.
        UnsupportedStorageOperationError: the store cannot list or delete; nothing was removed.
        StorageError: the store failed; the same call resumes the removal.
    """
    if ":" in name:
        name, _, asked = stored_name(name).partition("/")
        version = version or asked or None
    if version is not None and all_versions:
        raise ConfigError("version and all_versions exclude each other")
    if "/" in name:
        raise ConfigError(f"{name!r:.80} is not the name of a dataset; pass its version as version=… (--version)")
    connector = as_storage_connector(storage)
    stored = take_inventory(connector, [name])
    _check_removable(connector, name, is_listed=stored.is_listed)
    chosen = _chosen(list(stored.versions.values()), name, version, all_versions)
    others = stored.loose if all_versions or (version is None and not chosen) else []
    if not chosen and not others:
        known = ", ".join(str(each.version) for each in stored.versions.values())
        raise DatasetNotFoundError(
            f"no version {version!r} of dataset {name!r} is in {connector!r}; it has: {known}"
            if version is not None and known
            else describe_absence(connector, name)
        )
    removed = [_remove(connector, each, dry_run) for each in chosen]
    if others:
        removed.append(RemovedVersion(name, None, len(others), _size(connector, others)))
        for identifier in others if not dry_run else ():
            _delete(connector, identifier)
    return RemovalReport(repr(connector), name, tuple(removed), dry_run)


def _check_removable(connector: StorageConnector, name: str, *, is_listed: bool) -> None:
    can_delete = type(uncached(connector)).delete_resource is not StorageConnector.delete_resource
    if not (is_listed and can_delete):
        raise UnsupportedStorageOperationError(
            f"{connector!r} cannot {'delete' if is_listed else 'list'} resources, so no dataset can be removed from it; "
            f"remove the resources below {name + '/'!r} by other means, {MANIFEST} first"
        )


def _chosen(versions: list[StoredVersion], name: str, version: str | None, all_versions: bool) -> list[StoredVersion]:
    if all_versions or version is not None:
        return [each for each in versions if version in (None, each.version)]
    if len(versions) > 1:
        known = ", ".join(str(each.version or "(unfinished)") for each in versions)
        raise ConfigError(
            f"several versions of dataset {name!r} are stored: {known}; choose one (version=…, --version), "
            f"or all of them (all_versions=True, --all-versions)"
        )
    return versions


def _remove(connector: StorageConnector, version: StoredVersion, dry_run: bool) -> RemovedVersion:
    manifest, mark = f"{version.folder}/{MANIFEST}", f"{version.folder}/{JOURNAL}"
    report = RemovedVersion(version.folder, version.version, len(version.identifiers), _size(connector, version.identifiers))
    if dry_run:
        return report
    with connector.lease(manifest) as lease:
        if not lease.acquire():
            raise StorageConflictError(
                f"another process is preparing, copying or removing dataset {version.folder!r} in {connector!r}; "
                f"nothing of it was removed. Wait for that process, or end it, and try again"
            )
        connector.set_resource(mark, _MARK)
        for identifier in [manifest, *(each for each in version.identifiers if each not in (manifest, mark)), mark]:
            _delete(connector, identifier)
        if "/" in version.folder:  # else it may contain other versions
            connector.remove_abandoned(f"{version.folder}/")
    return report


def _size(connector: StorageConnector, identifiers: Sequence[str]) -> int:
    n_bytes = 0
    for identifier in identifiers:
        with contextlib.suppress(ResourceNotFoundError, DatasetFileCorruptError):
            n_bytes += connector.stat(identifier).size
    return n_bytes


def _delete(connector: StorageConnector, identifier: str) -> None:
    with contextlib.suppress(ResourceNotFoundError):  # the manifest may not be there, or another process was faster
        connector.delete_resource(identifier)


def collect_garbage(storage: Storage | None = None, grace_seconds: float = 86_400.0, *, dry_run: bool = False) -> list[Garbage]:
    """Remove replaced content and leftovers of dead writers; other processes may read and write meanwhile.

    Args:
        storage: a connector, URL or path; None for the default store.
        grace_seconds: keep content that was replaced since, for its readers.
        dry_run: only report what would be removed.

    Returns:
        The items that were removed, or would be.
    """
    connector = as_storage_connector(storage)
    garbage = connector.collect_garbage(grace_seconds, dry_run=dry_run)
    if not dry_run:
        known = {each.name for each in garbage}
        left = [name for name in connector.remove_abandoned() if name not in known]
        garbage += [Garbage(name, None, "left by a writer that died") for name in left]
    return garbage
