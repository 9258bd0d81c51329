"""Removes the objects that no resource needs."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

from data_stack.exception import StorageError
from data_stack.io.identifiers import OWN_FOLDER
from data_stack.io.storage_connectors.connector import Garbage
from data_stack.io.storage_connectors.heartbeat import (
    MAX_SILENCE_SECONDS,
    MAX_VALUE_BYTES,
    is_left_by_the_dead,
)
from data_stack.io.storage_connectors.object_store.layout import (
    LEASES,
    OBJECTS,
    RESOURCES,
    TEMPORARIES,
    is_part_path,
    parts_folder,
    pointer_path,
)
from data_stack.io.storage_connectors.object_store.pointers import Pointers
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.remote_files import RemoteFiles
from data_stack.io.storage_connectors.owners import is_dead

#: An older temporary has no writer: writing one takes seconds.
_MAX_TEMPORARY_SECONDS: Final = 3600.0

_IsOld: TypeAlias = "Callable[[RemoteFile], bool]"


def collect_garbage(
    files: RemoteFiles,
    pointers: Pointers,
    store_name: str,
    grace_seconds: float,
    *,
    dry_run: bool,
) -> list[Garbage]:
    """Remove parts without a pointer that are older than the grace period, and abandoned leases.

    Nothing but names below the store's own folders is removed, and nothing if what the store lists
    is in doubt.

    Args:
        files: the files of the store.
        pointers: the pointers of the store.
        store_name: the ``repr`` of the connector, for messages.
        grace_seconds: the grace period, by the clock of the store.
        dry_run: only list what would be removed.

    Raises:
        DatasetFileCorruptError: a pointer cannot be read, so its parts are unknown. Nothing was
            removed.
        StorageError: the store could not be listed, or two listings differ in what is old. Nothing
            was removed.
    """
    parts = files.files(OBJECTS)
    leases = files.files(LEASES)
    temporaries = files.files(TEMPORARIES)
    if not parts and not leases and not temporaries:
        return []
    # Without writing, there is no clock but that of this machine.
    now = time.time() if dry_run and files.read_only else files.now()

    def is_old(file: RemoteFile) -> bool:
        if file.modified is None:
            return True
        # Rounded down, because some stores give whole seconds in some answers.
        return now - math.floor(file.modified) >= grace_seconds

    garbage = _find_useless_parts(files, pointers, store_name, parts, is_old)
    garbage += _find_abandoned_temporaries(temporaries, now)
    if not dry_run:
        for item in garbage:
            files.delete(item.name)
    return garbage + _collect_abandoned_leases(files, leases, now, dry_run=dry_run)


def _find_useless_parts(
    files: RemoteFiles,
    pointers: Pointers,
    store_name: str,
    parts: list[RemoteFile],
    is_old: _IsOld,
) -> list[Garbage]:
    """Return the parts that no pointer needs, and whose upload has ended long ago."""
    # If one part is young, the upload may still be running.
    young_folders = {os.path.dirname(file.path) for file in parts if not is_old(file)}
    old_parts = [
        file
        for file in parts
        if is_part_path(file.path) and os.path.dirname(file.path) not in young_folders
    ]
    if not old_parts:
        return []
    needed_folders = _find_needed_folders(files, pointers, store_name, is_old)
    return [
        Garbage(file.path, file.size, "no resource needs it")
        for file in old_parts
        if os.path.dirname(file.path) not in needed_folders
    ]


def _find_needed_folders(
    files: RemoteFiles, pointers: Pointers, store_name: str, is_old: _IsOld
) -> set[str]:
    """Return the folders of the parts of all resources.

    The pointers are listed twice, by different requests. The first listing may lack a resource that
    was moved meanwhile, and a listing from a cache or gateway may lack all of them.

    Raises:
        StorageError: only one of the listings has a pointer that was there long before.
    """
    needed_folders = set[str]()
    first_listing = {file.path: file for file in files.files(RESOURCES)}
    for pointer in pointers.read_many(first_listing):
        # A small resource has no parts.
        if pointer.version is not None:
            needed_folders.add(parts_folder(pointer.version))

    second_listing = {
        file.path: file for file in files.files(OWN_FOLDER) if file.path.startswith(f"{RESOURCES}/")
    }
    for pointer in pointers.read_many(second_listing):
        if pointer.version is not None:
            needed_folders.add(parts_folder(pointer.version))
        path = pointer_path(pointer.identifier)
        if path not in first_listing and is_old(second_listing[path]):
            _refuse_listings(store_name, path)

    # A pointer that the second listing lacks may have been deleted meanwhile.
    for path in first_listing.keys() - second_listing.keys():
        if is_old(first_listing[path]) and files.exist([path])[0]:
            _refuse_listings(store_name, path)
    return needed_folders


def _collect_abandoned_leases(
    files: RemoteFiles, leases: list[RemoteFile], now: float, *, dry_run: bool
) -> list[Garbage]:
    """Remove the leases whose holder is silent, or has died."""
    garbage = []
    for file in leases:
        value = files.read(file.path, MAX_VALUE_BYTES)
        is_silent = file.modified is None or now - file.modified >= MAX_SILENCE_SECONDS
        if value is None or not (is_silent or is_left_by_the_dead(value)):
            continue
        if not dry_run:
            # No process takes over a lease that has just changed, nor one that is gone. So none is
            # removed that another process holds.
            if not files.replace(file.path, value, secrets.token_bytes(16)):
                continue
            files.delete(file.path)
        garbage.append(Garbage(file.path, file.size, "its holder is gone"))
    return garbage


def _find_abandoned_temporaries(temporaries: list[RemoteFile], now: float) -> list[Garbage]:
    """Return the unfinished files whose writer has died, or is too slow to live."""
    garbage = []
    for file in temporaries:
        owner = os.path.basename(file.path).partition(".")[0]
        is_too_old = file.modified is not None and now - file.modified > _MAX_TEMPORARY_SECONDS
        if is_too_old or is_dead(owner):
            garbage.append(Garbage(file.path, file.size, "left by a writer that died"))
    return garbage


def _refuse_listings(store_name: str, path: str) -> NoReturn:
    raise StorageError(
        f"two listings of {store_name} differ: only one has {path!r}, which is old. "
        "Nothing was removed. Check what is between this machine and the store, such as a proxy or "
        "cache, and try again."
    )
