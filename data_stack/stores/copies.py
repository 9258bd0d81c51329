"""Copies datasets between stores; each is ready at the target once all of it is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from data_stack.exception import DatasetNotFoundError, PreparationError
from data_stack.factories.catalogue import stored_name
from data_stack.factories.journal import Journal, fingerprint
from data_stack.factories.manifest import Manifest
from data_stack.factories.resource_names import JOURNAL, MANIFEST
from data_stack.io.account import is_hidden
from data_stack.io.copying import (
    CopyGroup,
    CopyItem,
    CopyReport,
    SmallFile,
    check_apart,
    copy_groups,
)
from data_stack.io.integrity import Fault
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector, check_there
from data_stack.stores.inventory import (
    NO_IDENTIFIER,
    StoredVersion,
    describe_absence,
    take_inventory,
)


def copy_datasets(
    source: Storage,
    target: Storage,
    names: Iterable[str] | None = None,
    *,
    n_threads: int = 4,
    deep: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
) -> CopyReport:
    """Copy prepared datasets from one store to another, so that they are ready there.

    ::

        data_stack.copy_datasets("/data/sets", "mongodb://host/datasets", ["digits"])

    Each byte is hashed and compared with the manifest. Resources that the target has already, with
    the same digest and size, are not sent again, so the same call resumes an interrupted copy. The
    manifest is copied last: a dataset is ready at the target once all of it is there.

    Args:
        source: a connector, URL or path; it is only read.
        target: a connector, URL or path.
        names: datasets to copy, with all versions and all other resources below their names, or
            versions of them as ``"digits/1.0.0"``; None for everything in the store. Unfinished
            preparations, journals and leases are not copied.
        n_threads: resources to copy at a time; each needs a few MiB of memory.
        deep: read what the target has already, and replace what is damaged there.
        dry_run: only report what would be copied.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Returns:
        What was copied.

    Raises:
        DatasetNotFoundError: the source has no resource of a name.
        PreparationError: the source has resources of a name, but no manifest.
        IncompleteCopyError: parts of the source are damaged or missing; all else is copied.
        ConfigError: both stores are the same, or a URL names no store.
        UnsupportedStorageOperationError: the source cannot list its resources.
        StorageError: the folder of the source does not exist, or a store failed or is full. The
            same call resumes the copy.
    """
    source = as_storage_connector(source)
    target = as_storage_connector(target)
    check_apart(source, target)
    check_there(source)

    selection = _Selection()
    if names is None:
        selection.add_whole_store(source)
    else:
        if isinstance(names, str):
            names = [names]
        # A dataset that is named twice is copied once.
        for folder in dict.fromkeys(stored_name(name) for name in names):
            selection.add_dataset(source, folder)

    return copy_groups(
        source,
        target,
        selection.groups,
        skipped=selection.skipped,
        faults=selection.faults,
        n_threads=n_threads,
        deep=deep,
        dry_run=dry_run,
        progress=progress,
    )


@dataclass
class _Selection:
    """What to copy, and what not.

    Attributes:
        groups: the resources to copy; those of a version of a dataset are one group.
        skipped: what is left out: unfinished versions, and files of other tools.
        faults: damaged manifests.
    """

    groups: list[CopyGroup] = field(default_factory=list)
    skipped: list[Fault] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add_whole_store(self, source: StorageConnector) -> None:
        """Add all datasets of a store, and the resources that belong to none."""
        stored = take_inventory(source)
        for key in stored.others:
            if not is_hidden(key):
                self.skipped.append(Fault(key, NO_IDENTIFIER))
        self._add_versions(source, stored.versions.values())
        self._add_other_resources(stored.loose)

    def add_dataset(self, source: StorageConnector, folder: str) -> None:
        """Add a dataset, or a version of it.

        Raises:
            DatasetNotFoundError: none of its resources is stored.
            PreparationError: it is not prepared.
        """
        stored = take_inventory(source, [folder])
        if not stored.versions and not stored.loose:
            raise DatasetNotFoundError(describe_absence(source, folder))
        if not any(_has_manifest(version) for version in stored.versions.values()):
            problem = "it has no manifest"
            has_begun = bool(stored.versions)
            if has_begun:
                problem += " yet"
            raise PreparationError(
                f"dataset {folder!r} is not prepared in {source!r}: {problem}. Prepare it there "
                f"first (data-stack prepare {folder}), or copy the whole store"
            )
        self._add_versions(source, stored.versions.values())
        self._add_other_resources(stored.loose)

    def _add_versions(self, source: StorageConnector, versions: Iterable[StoredVersion]) -> None:
        """Add prepared versions to what is copied, all others to the faults or to what is left."""
        for version in versions:
            if version.manifest is not None:
                self.groups.append(_group_of(source, version, version.manifest))
            elif _has_manifest(version):
                manifest = f"{version.folder}/{MANIFEST}"
                problem = f"{version.problem}; prepare the dataset again"
                self.faults.append(Fault(manifest, problem))
            else:
                problem = "its preparation has not finished; `data-stack prepare` resumes it"
                self.skipped.append(Fault(version.folder, problem))

    def _add_other_resources(self, identifiers: Iterable[str]) -> None:
        """Add resources that belong to no version of a dataset."""
        items = tuple(CopyItem(identifier) for identifier in identifiers)
        if items:
            self.groups.append(CopyGroup("", items))


def _has_manifest(version: StoredVersion) -> bool:
    """Return whether a version has a manifest, whole or damaged.

    A damaged manifest beside a journal is that of a preparation that will replace it.
    """
    if version.manifest is not None:
        return True
    return version.data is not None and not version.is_begun


def _group_of(source: StorageConnector, version: StoredVersion, manifest: Manifest) -> CopyGroup:
    """Return the resources of a prepared dataset.

    These are the resources of its manifest, its sources if they were kept, and all else below its
    folder.
    """
    identifier_of_manifest = f"{version.folder}/{MANIFEST}"
    # Asked once: it searches the identifiers of the version.
    is_begun = version.is_begun
    items: list[CopyItem] = []
    for resource in version.resources(source).values():
        if resource.identifier == identifier_of_manifest:
            continue
        is_in_manifest = resource.is_prepared or resource.is_source
        if is_begun and not is_in_manifest:
            # It may be unfinished work of another process.
            continue
        items.append(CopyItem(resource.identifier, resource.size, resource.sha256))
    # While the journal is there, the resources at the target do not count as a complete dataset,
    # nor are they adopted as one.
    journal = Journal(
        fingerprint(manifest.name, manifest.version, manifest.factory, manifest.sources)
    )
    return CopyGroup(
        version.folder,
        tuple(items),
        SmallFile(identifier_of_manifest, version.data or b""),
        SmallFile(f"{version.folder}/{JOURNAL}", journal.to_json()),
    )
