"""How many bytes the datasets in a store take."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from data_stack.exception import DatasetFileCorruptError, ResourceNotFoundError
from data_stack.io.job_threads import JobThreads
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.repository.default_storage import Storage
from data_stack.stores.inventory import ExpectedResource, Inventory, take_inventory


@dataclass(slots=True)
class DatasetUsage:
    """The size of a stored version of a dataset.

    Attributes:
        name: the name of the dataset.
        version: None if unknown.
        n_resources: number of resources.
        raw: bytes of the sources, as retrieved.
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

    def add(self, resource: ExpectedResource, path: str, size: int) -> None:
        """Count a resource.

        Args:
            resource: what the manifest says of it.
            path: its identifier below the folder of the version.
            size: in bytes.
        """
        self.n_resources += 1
        self.total += size
        # Of a version without a manifest, only the folder says what a resource is.
        first_folder = path.partition("/")[0]
        if resource.is_source or (first_folder == "raw" and not resource.is_prepared):
            self.raw += size
        elif resource.is_prepared or first_folder == "preprocessed":
            self.preprocessed += size
        else:
            self.other += size


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The size of a store.

    Attributes:
        storage: the store, without credentials.
        datasets: the usage of each version of each dataset.
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
    """Count resources and bytes of a store, by dataset and kind.

    Reads manifests and no other bytes.

    Args:
        storage: a connector, URL or path; None for the default store.
        names: datasets, or versions of them; empty for the whole store.
        n_threads: resources to ask for at a time.

    Raises:
        DatasetNotFoundError: nothing is stored of one of ``names``.
    """
    inventory = take_inventory(storage, names, must_exist=True)
    expected = inventory.resources()
    infos = _ask_for_infos(inventory.connector, expected, n_threads)

    usage_by_folder: dict[str, DatasetUsage] = {}
    for identifier, info in sorted(infos.items()):
        folder = inventory.folder_of(identifier)
        if folder not in usage_by_folder:
            usage_by_folder[folder] = _empty_usage(inventory, folder)
        path = identifier.removeprefix(f"{folder}/")
        usage_by_folder[folder].add(expected[identifier], path, info.size)

    # A resource without a digest counts as content of its own.
    sizes_by_content = {info.sha256 or identifier: info.size for identifier, info in infos.items()}
    return DiskUsage(
        storage=repr(inventory.connector),
        datasets=tuple(usage_by_folder.values()),
        n_resources=len(infos),
        total=sum(info.size for info in infos.values()),
        unique=sum(sizes_by_content.values()),
    )


def _ask_for_infos(
    connector: StorageConnector, identifiers: Collection[str], n_threads: int
) -> dict[str, ResourceInfo]:
    """Return what a store knows of its resources, without those that are missing or damaged."""
    infos: dict[str, ResourceInfo] = {}

    def ask(identifier: str) -> None:
        # `data-stack verify` reports what is missing or damaged.
        with contextlib.suppress(ResourceNotFoundError, DatasetFileCorruptError):
            infos[identifier] = connector.stat(identifier)

    JobThreads(identifiers, ask, n_threads).run()
    return infos


def _empty_usage(inventory: Inventory, folder: str) -> DatasetUsage:
    """Return the usage of a version of which no resource is counted yet."""
    name = folder.partition("/")[0] or "(no dataset)"
    stored = inventory.versions.get(folder)
    if stored is None:
        return DatasetUsage(name, version=None)
    return DatasetUsage(name, stored.version)
