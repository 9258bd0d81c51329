"""Recognizes whether a file is still the one that was read first."""

from __future__ import annotations

import os
import stat
import time
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from data_stack.exception import ResourceChangedError
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.owners import this_machine

#: A file written so recently may have been replaced by one with equal times: file systems count in steps of up to 2 s.
_RESTLESS_NS = 2 * 10**9


class LocalVersion(NamedTuple):
    """A version of a file of this machine.

    Attributes:
        size: length in bytes.
        modified_ns: time of the last change of the content, in nanoseconds since 1970.
        changed_ns: time of the last change of content, name or rights, likewise; programs cannot set it back.
        device: number of the device.
        inode: number of the file on the device.
        seen_ns: when this was asked, likewise.
        machine: name of the machine, see :func:`~data_stack.io.storage_connectors.owners.this_machine`.
    """

    size: int
    modified_ns: int
    changed_ns: int
    device: int
    inode: int
    seen_ns: int
    machine: str

    @classmethod
    def of(cls, status: os.stat_result) -> LocalVersion:
        """The version of a file of this status, which was asked just now."""
        return cls(
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_dev,
            status.st_ino,
            time.time_ns(),
            this_machine(),
        )

    def is_of(self, status: os.stat_result) -> bool:
        """Whether a file of this status is certainly this version."""
        return (
            status.st_ino == self.inode
            and status.st_ctime_ns == self.changed_ns
            and status.st_mtime_ns == self.modified_ns
            and status.st_size == self.size
            and status.st_dev == self.device
        )

    def __str__(self) -> str:
        return (
            f"{self.size} bytes, inode {self.inode}, content of {_shown(self.modified_ns)}, "
            f"last changed {_shown(self.changed_ns)}"
        )


def _shown(moment_ns: int) -> str:
    seconds, fraction = divmod(moment_ns, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09}Z"


def is_same_version(before: Any, now: Any) -> bool | None:
    """Whether two versions of a file are of the same content; None if they do not tell.

    Some file systems (of FUSE, of networks) number a file anew each time it is opened: where only the number differs, and the
    times are too old to be those of two files, nothing is certain. Nor is it for a local file of another machine.

    Args:
        before: the version that was seen first: a :class:`LocalVersion`, what a store says (its SHA-256, its tag), or None.
        now: the version of today.
    """
    if before is None or now is None:
        return None
    if not isinstance(before, LocalVersion) or not isinstance(now, LocalVersion):
        return bool(before == now)
    if before.machine != now.machine:
        return None if before.size == now.size else False
    if before[:5] == now[:5]:
        return True
    is_settled = before.seen_ns - before.changed_ns > _RESTLESS_NS
    return None if before[:3] == now[:3] and is_settled else False


def version_of(resource: StreamedResource) -> Any:
    """The version of a resource: the SHA-256 or tag of its store, a :class:`LocalVersion`, or None where neither is known."""
    known = resource.sha256 or resource.tag
    return local_version_of(resource) if known is None else known


def local_version_of(resource: StreamedResource) -> LocalVersion | None:
    """The version of an open file of this machine; None for another resource."""
    try:
        status = os.fstat(resource.fileno())
    except (OSError, AttributeError, ValueError):  # io.UnsupportedOperation is both
        return None
    return LocalVersion.of(status) if stat.S_ISREG(status.st_mode) else None


class SeenVersions:
    """The versions of numbered files as they were first seen: 8 bytes for each. Threads may share it.

    Args:
        n_files: number of the files.
    """

    def __init__(self, n_files: int) -> None:
        self._digests = np.zeros(n_files, np.uint64)  # 0: not seen yet

    def is_first(self, number: int, version: Any) -> bool:
        """Note the version of a file, unless one was seen before; return whether it is that one.

        Args:
            number: of the file.
            version: see :func:`version_of`; None counts as unchanged.
        """
        if version is None:
            return True
        facts = version[:5] if isinstance(version, LocalVersion) else version
        digest = np.uint64(xxh3_64_intdigest(repr(facts).encode()) or 1)
        first = self._digests[number]
        if not first:
            self._digests[number] = digest
            return True
        return bool(first == digest)

    def open_first(self, number: int, name: str, resource: StreamedResource) -> StreamedResource:
        """Return a resource that was opened just now; close it and raise if it is another file than that seen first.

        Args:
            number: of the file.
            name: of the file, for the message.
            resource: the opened file.

        Raises:
            ResourceChangedError: it was replaced or changed.
        """
        version = version_of(resource)
        if self.is_first(number, version):
            return resource
        resource.close()
        raise ResourceChangedError(name, "another version when it was read first", str(version))
