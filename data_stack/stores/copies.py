"""Copies datasets between stores; each is ready at the target once all of it is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_stack.exception import DatasetNotFoundError, PreparationError
from data_stack.factories.catalogue import stored_name
from data_stack.factories.manifest import JOURNAL, MANIFEST, Journal, Manifest, fingerprint
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

    Each byte is hashed and compared with the manifest. Resources that the target has already, with the same digest and size, are
    not sent again, so the same call resumes an interrupted copy. The manifest is copied last: a dataset is ready at the target
    once all of it is there.

    Args:
        source: a connector, URL or path; it is only read.
        target: a connector, URL or path.
        names: datasets to copy, with all versions and all other resources below their names, or versions of them as
            ``"digits/1.0.0"``; None for everything in the store. Unfinished preparations, journals and leases are not copied.
        n_threads: resources to copy at a time; each needs a few MiB of memory.
        deep: read what the target has already, and replace what is damaged there.
        dry_run: only report what would be copied.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Returns:
        What was copied.

    Raises:
        DatasetNotFoundError: the source has no resource of a name. PreparationError: it has resources, but no manifest.
        IncompleteCopyError: parts of the source are damaged or missing; all else is copied.
        ConfigError: both stores are the same, or a URL names no store.
        UnsupportedStorageOperationError: the source cannot list its resources.
        StorageError: the folder of the source does not exist, or a store failed or is full. The same call resumes the copy.
    """
    if isinstance(names, str):
        names = [names]
    source, target = as_storage_connector(source), as_storage_connector(target)
    check_apart(source, target)
    check_there(source)
    parcels, skipped, faults = list[CopyGroup](), list[Fault](), list[Fault]()
    for name in [None] if names is None else dict.fromkeys(map(stored_name, names)):
        chosen = _choose(source, name)
        parcels, skipped, faults = parcels + chosen[0], skipped + chosen[1], faults + chosen[2]
    how: dict[str, Any] = {
        "n_threads": n_threads,
        "deep": deep,
        "dry_run": dry_run,
        "progress": progress,
    }
    return copy_groups(source, target, parcels, skipped=skipped, faults=faults, **how)


def _choose(
    source: StorageConnector, name: str | None
) -> tuple[list[CopyGroup], list[Fault], list[Fault]]:
    """What to copy of a dataset, or of the whole store; versions that are unfinished; and manifests that are damaged."""
    stored = take_inventory(source, [] if name is None else [name])
    if name is not None and not stored.versions and not stored.loose:
        raise DatasetNotFoundError(describe_absence(source, name))
    parcels, skipped, faults = list[CopyGroup](), list[Fault](), list[Fault]()
    skipped += [Fault(key, NO_IDENTIFIER) for key in stored.others if not is_hidden(key)]
    for version in stored.versions.values():
        if version.manifest is not None:
            parcels.append(_parcel(source, version, version.manifest))
        elif version.is_begun or version.data is None:
            skipped.append(
                Fault(
                    version.folder,
                    "its preparation has not finished; `data-stack prepare` resumes it",
                )
            )
        else:
            faults.append(
                Fault(
                    f"{version.folder}/{MANIFEST}", f"{version.problem}; prepare the dataset again"
                )
            )
    if name is not None and not parcels and not faults:
        problem = f"dataset {name!r} is not prepared in {source!r}: it has no manifest{' yet' if skipped else ''}"
        raise PreparationError(
            f"{problem}. Prepare it there first (data-stack prepare {name}), or copy the whole store"
        )
    if stored.loose:
        parcels.append(CopyGroup("", tuple(map(CopyItem, stored.loose))))
    return parcels, skipped, faults


def _parcel(source: StorageConnector, version: StoredVersion, manifest: Manifest) -> CopyGroup:
    """A prepared dataset: the resources of its manifest, its sources if they were kept, and all else below its folder."""
    folder = version.folder
    wanted = [
        CopyItem(each.identifier, each.size, each.sha256)
        for each in version.resources(source).values()
        # Resources that the manifest does not list may be unfinished work of another process.
        if each.identifier != f"{folder}/{MANIFEST}"
        and (each.is_prepared or each.is_source or not version.is_begun)
    ]
    # While the mark is there, the target's resources do not count as a complete dataset, nor are they adopted as one.
    mark = Journal(fingerprint(manifest.name, manifest.version, manifest.factory, manifest.sources))
    return CopyGroup(
        folder,
        tuple(wanted),
        SmallFile(f"{folder}/{MANIFEST}", version.data or b""),
        SmallFile(f"{folder}/{JOURNAL}", mark.to_json()),
    )
