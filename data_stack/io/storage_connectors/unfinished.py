"""Unfinished files in a folder: how they are named, and which of them are abandoned.

A *temporary* is being written by one process; its name ``.~OWNER-RANDOM`` says by which one. A
*partial file* ``.~partial-KEY-VALIDATOR`` is a download that another process can resume
(:mod:`data_stack.io.storage_connectors.partial`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from data_stack.io.storage_connectors.owners import is_dead, is_of_this_machine, this_process
from data_stack.util.interrupts import open_descriptor
from data_stack.util.lock_file import try_lock

#: The prefix of unfinished files. No identifier has it.
TEMPORARY: Final = ".~"
#: The prefix of partial files.
PARTIAL: Final = ".~partial-"

#: The processes of other machines and containers are not visible here. Their temporaries count as
#: abandoned after this time.
_MAX_FOREIGN_AGE_SECONDS: Final = 86_400.0

#: Not through a link, and without waiting if the name is that of a pipe.
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class UnfinishedFile:
    """An unfinished file that nobody needs.

    Attributes:
        path: its path.
        size: its length in bytes.
        reason: why it is not needed.
    """

    path: str
    size: int
    reason: str


def make_temporary_name() -> str:
    """Return a new name for a temporary of this process."""
    return f"{TEMPORARY}{this_process()}-{secrets.token_hex(4)}"


def remove_unfinished(
    folder: str, grace_seconds: float, *, dry_run: bool
) -> Iterator[UnfinishedFile]:
    """Remove the unfinished files that nobody needs, at any depth below a folder.

    A temporary stays while its writer lives. A partial file stays while a process uses it, and for
    the grace period afterwards.

    Args:
        folder: the path of the folder.
        grace_seconds: how long a partial file stays after the last write to it.
        dry_run: only yield what would be removed.

    Yields:
        Each file that was removed.
    """
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if name.startswith(PARTIAL):
                file = _remove_partial(path, grace_seconds, dry_run=dry_run)
            elif name.startswith(TEMPORARY):
                file = _remove_temporary(path, dry_run=dry_run)
            else:
                continue
            if file is not None:
                yield file


def _remove_temporary(path: str, *, dry_run: bool) -> UnfinishedFile | None:
    """Remove a temporary; return None if it is needed, or cannot be removed."""
    owner = os.path.basename(path).removeprefix(TEMPORARY).rpartition("-")[0]
    try:
        status = os.stat(path, follow_symlinks=False)
        if is_of_this_machine(owner):
            is_abandoned = is_dead(owner)
        else:
            is_abandoned = time.time() - status.st_mtime > _MAX_FOREIGN_AGE_SECONDS
        if not is_abandoned:
            return None
        if not dry_run:
            os.unlink(path)
    except OSError:
        return None
    return UnfinishedFile(path, status.st_size, "left by a writer that died")


def _remove_partial(path: str, grace_seconds: float, *, dry_run: bool) -> UnfinishedFile | None:
    """Remove a partial file; return None if it is needed, or cannot be removed."""
    with contextlib.suppress(OSError), open_descriptor(path, _FLAGS) as handle:
        # The file is locked until it is removed. A process that waits for the lock then sees that
        # the name is gone.
        if not try_lock(handle, if_unsupported=False):
            return None
        status = os.fstat(handle)
        if time.time() - status.st_mtime < grace_seconds:
            return None
        if not dry_run:
            os.unlink(path)
        return UnfinishedFile(path, status.st_size, "an interrupted download")
    return None
