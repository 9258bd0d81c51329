"""Copies datasets between stores, each whole or not ready."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from data_stack.dataset.journal import Journal, fingerprint
from data_stack.dataset.manifest import Manifest
from data_stack.dataset.resource_names import JOURNAL, MANIFEST
from data_stack.dataset.strict_json import MAX_BYTES
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    PreparationError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.copying import CopyFault, CopyReport, Parcel, Seal, Wanted, check_apart, copy_parcels
from data_stack.io.identifiers import checked_identifier
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector

__all__ = ["copy_datasets"]


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
        names: datasets to copy, with all that lies below their names; None for everything in the store, whether it belongs to
            a dataset or not. What others have begun and not finished stays behind, and so do journals and leases.
        n_threads: resources that are on their way at a time; each needs a few MiB of memory.
        deep: read what the target has already, and replace what is damaged there.
        dry_run: only say what would be copied.
        progress: show a progress bar; None to show it on a terminal.

    Returns:
        What was copied.

    Raises:
        DatasetNotFoundError: the source has nothing of that name. PreparationError: what it has is not a prepared dataset.
            Nothing was copied then.
        IncompleteCopyError: parts of the source are damaged or missing; all else is copied.
        ConfigError: both stores are the same, one URL names no store, or the source is a folder that is not there.
        UnsupportedStorageOperationError: ``names`` is None, and the source cannot list what it has.
        StorageError: a store failed. What is copied stays, and the same copy again goes on from there.
    """
    if isinstance(names, str):
        names = [names]  # a name is an iterable of names too, and never what was meant
    source, target = as_storage_connector(source), as_storage_connector(target)
    check_apart(source, target)
    if isinstance(source, FileStorageConnector) and not os.path.isdir(source.root_path):
        raise ConfigError(f"there is no folder {source.root_path!r} to copy from; is its path right, and its disk mounted?")
    chosen = _everything(source) if names is None else _named(source, dict.fromkeys(names))
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


def _named(source: StorageConnector, names: Mapping[str, None]) -> _Chosen:
    parcels = []
    for name in names:
        checked_identifier(f"{name}/{MANIFEST}")
        listed = _listed(source, f"{name}/")
        data = _manifest_bytes(source, name)
        if data is None and not listed:
            raise DatasetNotFoundError(_absence(source, name))
        try:
            if data is None:
                raise PreparationError("it has no manifest")
            parcels.append(_parcel(source, name, data, listed, _is_being_prepared(source, name)))
        except (DatasetFileCorruptError, PreparationError) as error:
            begun = ", and a preparation of it was begun and has not finished" if _is_being_prepared(source, name) else ""
            raise PreparationError(
                f"dataset {name!r} is not prepared in {source!r}: {error}. There are {len(listed)} other resources below "
                f"{name + '/'!r}{begun}. Prepare it there first (data-stack prepare {name}), or copy the whole store"
            ) from error
    return _Chosen(tuple(parcels))


def _everything(source: StorageConnector) -> _Chosen:
    """All resources, by the folder that is their dataset's, or would be."""
    try:
        identifiers = source.list_resources()
    except UnsupportedStorageOperationError as error:
        raise UnsupportedStorageOperationError(f"{error}; name the datasets that are to be copied") from error
    folders: dict[str, list[str]] = {}
    for identifier in identifiers:
        folders.setdefault(identifier.partition("/")[0], []).append(identifier)
    parcels, skipped, faults = [], [], []
    for name, below in folders.items():
        is_being_prepared = f"{name}/{JOURNAL}" in below
        data = _manifest_bytes(source, name) if f"{name}/{MANIFEST}" in below else None
        if data is None and not is_being_prepared:
            parcels.append(Parcel(name, tuple(map(Wanted, below))))
            continue
        try:
            if data is None:
                raise DatasetFileCorruptError("it has no manifest")
            parcels.append(_parcel(source, name, data, below, is_being_prepared))
        except DatasetFileCorruptError as error:
            if is_being_prepared or _is_taken_away(data):
                problem = "its preparation was begun and has not finished; `data-stack prepare` goes on with it"
                skipped.append(CopyFault(name, problem))
            else:
                faults.append(CopyFault(f"{name}/{MANIFEST}", f"{error}; prepare the dataset again"))
    return _Chosen(tuple(parcels), tuple(skipped), tuple(faults))


def _parcel(source: StorageConnector, name: str, data: bytes, listed: Sequence[str], is_being_prepared: bool) -> Parcel:
    """A prepared dataset: what its manifest lists, its sources if they were kept, and what else lies there.

    Raises:
        DatasetFileCorruptError: the manifest is damaged.
    """
    manifest = Manifest.from_json(data)
    wanted: dict[str, Wanted] = {}
    for each in manifest.prepared:
        wanted[f"{name}/{each.identifier}"] = Wanted(f"{name}/{each.identifier}", each.size, each.sha256)
    for record in manifest.sources:
        identifier = f"{name}/{record.identifier}"
        if identifier not in wanted and source.has_resource(identifier):  # raw resources need not be kept
            # Of an adopted dataset the manifest says what its sources should have been, not what is there.
            known = (None, None) if manifest.adopted else (record.size, record.sha256)
            wanted[identifier] = Wanted(identifier, *known)
    if not is_being_prepared:  # else it may be what somebody is just making
        own = {f"{name}/{MANIFEST}", f"{name}/{JOURNAL}"}
        for identifier in listed:
            if identifier not in own:
                wanted.setdefault(identifier, Wanted(identifier))
    # While the mark is there, the target's resources are not taken for a complete dataset, nor adopted as one.
    mark = Journal(fingerprint(manifest.name, manifest.version, manifest.factory, manifest.sources))
    seal = Seal(f"{name}/{MANIFEST}", data, f"{name}/{JOURNAL}", mark.to_json())
    return Parcel(name, tuple(wanted.values()), seal)


def _listed(source: StorageConnector, prefix: str) -> list[str]:
    """What lies below a name, as far as the store can tell; its manifest and journal are not counted."""
    try:
        identifiers = source.list_resources(prefix)
    except UnsupportedStorageOperationError:
        return []
    return [identifier for identifier in identifiers if identifier not in (prefix + MANIFEST, prefix + JOURNAL)]


def _manifest_bytes(source: StorageConnector, name: str) -> bytes | None:
    identifier = f"{name}/{MANIFEST}"
    if not source.has_resource(identifier):
        return None
    try:
        with source.get_resource(identifier) as resource:
            return bytes(resource.read(MAX_BYTES + 1)[:MAX_BYTES])  # cut short, it does not have its digest
    except ResourceNotFoundError:  # removed in between
        return None
    except DatasetFileCorruptError:
        return b""  # damaged: no manifest of anything


def _is_being_prepared(source: StorageConnector, name: str) -> bool:
    return source.has_resource(f"{name}/{JOURNAL}")


def _is_taken_away(data: bytes | None) -> bool:
    """Whether this stands for a manifest that was taken away in a store that cannot delete."""
    return data is not None and data.strip() == b"{}"


def _absence(source: StorageConnector, name: str) -> str:
    """Says that there is no such dataset, and what there is."""
    try:
        there = sorted({each.partition("/")[0] for each in source.list_resources() if each.endswith(f"/{MANIFEST}")})
    except UnsupportedStorageOperationError:
        return f"no dataset {name!r} in {source!r}; prepare it there first (data-stack prepare {name})"
    near = difflib.get_close_matches(name, there, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"no dataset {name!r} in {source!r}{hint}; it has: {', '.join(there[:20]) or 'none'}"
