"""Copies datasets between stores, each whole or not ready."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from data_stack.dataset.journal import Journal, fingerprint
from data_stack.dataset.manifest import Manifest
from data_stack.dataset.resource_names import JOURNAL, MANIFEST
from data_stack.exception import (
    DatasetNotFoundError,
    PreparationError,
    UnsupportedStorageOperationError,
)
from data_stack.io.copying import CopyFault, CopyReport, Parcel, Seal, Wanted, check_apart, copy_parcels
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector, check_there
from data_stack.repository.inventory import StoredVersion, take_inventory

__all__ = ["copy_datasets"]

_UNFINISHED = "its preparation was begun and has not finished; `data-stack prepare` goes on with it"


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

    Each byte is hashed on its way and held against the manifest. What the target has already, with the same digest and size,
    is neither read nor sent, so a copy that was interrupted goes on with the resource that broke off (which is sent anew).
    The manifest comes last: a dataset is ready at the target when all of it is there, and not before.

    Args:
        source: a connector, URL or path; it is only read.
        target: a connector, URL or path.
        names: datasets to copy, with all versions and whatever else lies below their names, or versions of them as
            ``"digits/1.0.0"``; None for everything in the store, whether it belongs to
            a dataset or not. What others have begun and not finished stays behind, and so do journals and leases.
        n_threads: resources that are on their way at a time; each needs a few MiB of memory.
        deep: read what the target has already, and replace what is damaged there.
        dry_run: only say what would be copied.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Returns:
        What was copied.

    Raises:
        DatasetNotFoundError: the source has nothing of that name. PreparationError: what it has is not a prepared dataset.
            Nothing was copied then.
        IncompleteCopyError: parts of the source are damaged or missing; all else is copied.
        ConfigError: both stores are the same, or one URL names no store.
        UnsupportedStorageOperationError: ``names`` is None, and the source cannot list what it has.
        StorageError: the source is a folder that is not there, or a store failed. What is copied stays, and the same copy again
            goes on from there. StorageFullError: the target has no room left.
    """
    if isinstance(names, str):
        names = [names]  # a name is an iterable of names too, and never what was meant
    source, target = as_storage_connector(source), as_storage_connector(target)
    check_apart(source, target)
    check_there(source)
    chosen = _everything(source) if names is None else _name_of(source, dict.fromkeys(names))
    return copy_parcels(
        source,
        target,
        chosen.parcels,
        skipped=chosen.skipped,
        faults=chosen.faults,
        n_threads=n_threads,
        deep=deep,
        dry_run=dry_run,
        progress=progress,
    )


@dataclass(frozen=True)
class _Chosen:
    """What is to be copied, and what is not and why."""

    parcels: tuple[Parcel, ...]
    skipped: tuple[CopyFault, ...] = ()
    faults: tuple[CopyFault, ...] = ()


def _name_of(source: StorageConnector, names: Mapping[str, None]) -> _Chosen:
    parcels, skipped = [], []
    for name in names:
        stored = take_inventory(source, [name])
        if not stored.versions and not stored.loose:
            raise DatasetNotFoundError(_absence(source, name))
        ready, unfinished = [], []
        for version in stored.versions.values():
            if version.manifest is None:
                unfinished.append(CopyFault(version.folder, _UNFINISHED))
                if not (version.data is None or version.is_taken_away):
                    raise PreparationError(f"dataset {version.folder!r} is not prepared in {source!r}: {version.problem}")
                continue
            ready.append(_parcel(source, version, version.manifest))
        if not ready:
            there = [*stored.loose, *(each for version in stored.versions.values() for each in version.identifiers)]
            n_others = sum(each.rpartition("/")[2] not in (MANIFEST, JOURNAL) for each in there)
            begun = ", and a preparation of it was begun and has not finished" if unfinished else ""
            raise PreparationError(
                f"dataset {name!r} is not prepared in {source!r}: it has no manifest. There are {n_others} other resources below "
                f"{name + '/'!r}{begun}. Prepare it there first (data-stack prepare {name}), or copy the whole store"
            )
        parcels += ready
        skipped += unfinished
        if stored.loose:
            parcels.append(Parcel(f"{name}/", tuple(map(Wanted, stored.loose))))
    return _Chosen(tuple(parcels), tuple(skipped))


def _everything(source: StorageConnector) -> _Chosen:
    """All resources, by the version of a dataset that they belong to."""
    stored = take_inventory(source)
    if not stored.is_listed:
        raise UnsupportedStorageOperationError(f"{source!r} cannot list what it has; name the datasets that are to be copied")
    parcels, skipped, faults = [], [], []
    for version in stored.versions.values():
        if version.manifest is not None:
            parcels.append(_parcel(source, version, version.manifest))
        elif version.is_begun or version.is_taken_away:
            skipped.append(CopyFault(version.folder, _UNFINISHED))
        else:
            faults.append(CopyFault(f"{version.folder}/{MANIFEST}", f"{version.problem}; prepare the dataset again"))
    if stored.loose:
        parcels.append(Parcel("", tuple(map(Wanted, stored.loose))))
    return _Chosen(tuple(parcels), tuple(skipped), tuple(faults))


def _parcel(source: StorageConnector, version: StoredVersion, manifest: Manifest) -> Parcel:
    """A prepared dataset: what its manifest lists, its sources if they were kept, and what else lies there."""
    folder = version.folder
    wanted = [
        Wanted(each.identifier, each.size, each.sha256)
        for each in version.resources(source).values()
        # What a manifest does not name may be what another process is just making.
        if each.identifier != f"{folder}/{MANIFEST}" and (each.is_prepared or each.is_source or not version.is_begun)
    ]
    # While the mark is there, the target's resources are not taken for a complete dataset, nor adopted as one.
    mark = Journal(fingerprint(manifest.name, manifest.version, manifest.factory, manifest.sources))
    seal = Seal(f"{folder}/{MANIFEST}", version.data or b"", f"{folder}/{JOURNAL}", mark.to_json())
    return Parcel(folder, tuple(wanted), seal)


def _absence(source: StorageConnector, name: str) -> str:
    """Says that there is no such dataset, and what there is."""
    stored = take_inventory(source)
    there = sorted({each.name for each in stored.versions.values() if each.data is not None})
    if not stored.is_listed:
        return f"no dataset {name!r} in {source!r}; prepare it there first (data-stack prepare {name})"
    near = difflib.get_close_matches(name, there, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"no dataset {name!r} in {source!r}{hint}; it has: {', '.join(there[:20]) or 'none'}"
