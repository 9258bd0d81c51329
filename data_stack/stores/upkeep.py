"""Keeps stores sound: verifies their resources, removes datasets and garbage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    ResourceNotFoundError,
    StorageConflictError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.catalogue import stored_name
from data_stack.factories.manifest import JOURNAL, MANIFEST, Journal
from data_stack.io.integrity import Fault
from data_stack.io.job_threads import JobThreads
from data_stack.io.progress import byte_bar
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import Garbage, ResourceInfo, StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector, check_there
from data_stack.stores.inventory import (
    ExpectedResource,
    StoredVersion,
    describe_absence,
    take_inventory,
)


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
    if not isinstance(name, str):
        raise ConfigError(f"expected the name of a dataset, then its storage, got {name!r:.200}")
    if ":" in name:
        name, _, asked = stored_name(name).partition("/")
        version = version or asked or None
    if version is not None and all_versions:
        raise ConfigError("version and all_versions exclude each other")
    if "/" in name:
        raise ConfigError(
            f"{name!r:.80} is not the name of a dataset; pass its version as version=… (--version)"
        )
    connector = as_storage_connector(storage)
    if type(uncached(connector)).delete_resource is StorageConnector.delete_resource:
        advice = f"remove those below '{name}/' by other means, {MANIFEST} first"
        raise UnsupportedStorageOperationError(f"{connector!r} cannot delete resources; {advice}")
    stored = take_inventory(connector, [name])
    versions = list(stored.versions.values())
    known = ", ".join(each.version or "(unfinished)" for each in versions)
    if version is None and not all_versions and len(versions) > 1:
        advice = (
            "choose one (version=…, --version), or all of them (all_versions=True, --all-versions)"
        )
        raise ConfigError(f"several versions of dataset {name!r} are stored: {known}; {advice}")
    chosen = [each for each in versions if version in (None, each.version)]
    others = stored.loose if all_versions or (version is None and not chosen) else []
    if not chosen and not others:
        if version is not None and known:
            raise DatasetNotFoundError(
                f"no version {version!r} of dataset {name!r} is in {connector!r}; it has: {known}"
            )
        raise DatasetNotFoundError(describe_absence(connector, name))
    removed = [_remove(connector, each, dry_run) for each in chosen]
    if others:
        removed.append(RemovedVersion(name, None, len(others), _size(connector, others)))
        for identifier in others if not dry_run else ():
            _delete(connector, identifier)
    return RemovalReport(repr(connector), name, tuple(removed), dry_run)


def _remove(connector: StorageConnector, version: StoredVersion, dry_run: bool) -> RemovedVersion:
    manifest, mark = f"{version.folder}/{MANIFEST}", f"{version.folder}/{JOURNAL}"
    report = RemovedVersion(
        version.folder,
        version.version,
        len(version.identifiers),
        _size(connector, version.identifiers),
    )
    if dry_run:
        return report
    with connector.lease(manifest) as lease:
        if not lease.acquire():
            problem = f"another process is preparing, copying or removing dataset {version.folder!r} in {connector!r}"
            raise StorageConflictError(
                f"{problem}; nothing of it was removed. Wait for that process, or end it, and try again"
            )
        connector.set_resource(mark, Journal("0" * 64).to_json())
        for identifier in [
            manifest,
            *(each for each in version.identifiers if each not in (manifest, mark)),
            mark,
        ]:
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
    with contextlib.suppress(
        ResourceNotFoundError
    ):  # the manifest may not be there, or another process was faster
        connector.delete_resource(identifier)


def collect_garbage(
    storage: Storage | None = None, grace_seconds: float = 86_400.0, *, dry_run: bool = False
) -> list[Garbage]:
    """Remove replaced content and leftovers of dead writers; other processes may read and write meanwhile.

    Args:
        storage: a connector, URL or path; None for the default store.
        grace_seconds: keep content that was replaced since, for its readers.
        dry_run: only report what would be removed.

    Returns:
        The items that were removed, or would be.

    Raises:
        StorageError: the place of the store does not exist, or the store failed.
    """
    connector = as_storage_connector(storage)
    check_there(connector, may_be_new=storage is None)
    return connector.collect_garbage(grace_seconds, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class StorageVerification:
    """The result of :func:`verify_storage`.

    Attributes:
        storage: the store, without credentials.
        state: ``"ok"`` or ``"faulty"``.
        n_resources: resources that were read.
        n_bytes: their bytes.
        n_without_digest: resources without a digest to compare with.
        faults: damaged and missing resources, sorted.
        seconds: duration.
    """

    storage: str
    state: str
    n_resources: int
    n_bytes: int
    n_without_digest: int
    faults: tuple[Fault, ...]
    seconds: float


def verify_storage(
    storage: Storage | None = None,
    names: Sequence[str] = (),
    *,
    n_threads: int = 4,
    progress: bool | None = None,
) -> StorageVerification:
    """Read all resources, and compare them with the digests of the store and of the manifests. A fault does not stop it.

    Args:
        storage: a connector, URL or path; None for the default store. A cache before a store is bypassed.
        names: datasets, or versions of them; empty for the whole store.
        n_threads: resources to read at a time.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Raises:
        DatasetNotFoundError: one of ``names`` is not stored.
        StorageUnavailableError: the store does not answer. StorageError: the folder does not exist.
    """
    started = time.perf_counter()
    connector = as_storage_connector(storage)
    check_there(connector, may_be_new=storage is None)
    connector = uncached(connector)  # the cache says nothing about the store
    inventory = take_inventory(connector, names, must_exist=True)
    expected, faults, infos = inventory.resources(), list[Fault](), list[ResourceInfo]()
    for folder, version in inventory.versions.items():
        if version.problem is not None and not version.is_begun:  # else it is being prepared
            faults.append(Fault(f"{folder}/{MANIFEST}", version.problem))
            expected.pop(f"{folder}/{MANIFEST}", None)

    def check(each: ExpectedResource) -> None:
        try:
            info = connector.stat(each.identifier)
            infos.append(info)
            if each.size not in (None, info.size):
                problem = f"resource {info.identifier!r} has {info.size:,} bytes, the manifest lists {each.size:,}"
                faults.append(Fault(info.identifier, problem))
            else:
                connector.verify_resource(each.identifier, each.sha256)
        except StorageUnavailableError:
            raise
        except (DatasetFileCorruptError, StorageError, ResourceNotFoundError) as error:
            if each.is_prepared or not isinstance(
                error, ResourceNotFoundError
            ):  # else it was deleted meanwhile
                faults.append(Fault(each.identifier, str(error)))

    with byte_bar("verifying", progress) as draw:
        all_bytes = sum(each.size or 0 for each in expected.values())
        workers = JobThreads(expected.values(), check, n_threads)
        workers.run(lambda: draw(sum(info.size for info in list(infos)), all_bytes))
    return StorageVerification(
        storage=repr(connector),
        state="faulty" if faults else "ok",
        n_resources=len(infos),
        n_bytes=sum(info.size for info in infos),
        n_without_digest=sum(
            info.sha256 is None and expected[info.identifier].sha256 is None for info in infos
        ),
        faults=tuple(sorted(faults, key=lambda fault: fault.identifier)),
        seconds=time.perf_counter() - started,
    )
