"""Recognizes whether a file is still the one that was read first."""

from __future__ import annotations

import os
import time
from typing import Any, Final, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from data_stack.exception import ResourceChangedError
from data_stack.io.local_status import SETTLING_NS, local_status_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.owners import this_machine
from data_stack.util.forks import fork_lock

_NS_PER_SECOND: Final = 10**9

#: Held for the moment in which the version of a file is noted.
_NOTING: Final = fork_lock()


class LocalVersion(NamedTuple):
    """A version of a file of this machine.

    Attributes:
        size: length in bytes.
        modified_ns: time of the last change of the content, in nanoseconds since 1970.
        changed_ns: time of the last change of content, name or rights, in nanoseconds since 1970;
            programs cannot set it back.
        device: number of the device.
        inode: number of the file on the device.
        seen_ns: when the file had these values, in nanoseconds since 1970.
        machine: name of the machine, see
            :func:`~data_stack.io.storage_connectors.owners.this_machine`.
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
        """Return the version of a file of this status, which was asked just now."""
        return cls(
            size=status.st_size,
            modified_ns=status.st_mtime_ns,
            changed_ns=status.st_ctime_ns,
            device=status.st_dev,
            inode=status.st_ino,
            seen_ns=time.time_ns(),
            machine=this_machine(),
        )

    def is_of(self, status: os.stat_result) -> bool:
        """Return whether a file of this status is certainly this version."""
        return (
            status.st_ino == self.inode
            and status.st_ctime_ns == self.changed_ns
            and status.st_mtime_ns == self.modified_ns
            and status.st_size == self.size
            and status.st_dev == self.device
        )

    @property
    def content(self) -> tuple[int, int, int]:
        """Size and times, which differ between files of different content."""
        return self.size, self.modified_ns, self.changed_ns

    @property
    def file(self) -> tuple[int, int, int, int, int]:
        """The content, and which file of this machine has it."""
        return self.size, self.modified_ns, self.changed_ns, self.device, self.inode

    def __str__(self) -> str:
        return (
            f"{self.size} bytes, inode {self.inode}, content of {_format_time(self.modified_ns)}, "
            f"last changed {_format_time(self.changed_ns)}"
        )


def _format_time(time_ns: int) -> str:
    """Return a time in UTC, to the nanosecond."""
    seconds, fraction_ns = divmod(time_ns, _NS_PER_SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction_ns:09}Z"


def is_same_version(before: Any, now: Any) -> bool | None:
    """Return whether two versions of a file have the same content.

    Args:
        before: the version that was seen first, as :func:`version_of` returns it: a
            :class:`LocalVersion`, the SHA-256 or tag of a store, or None.
        now: the version of today.

    Returns:
        None if that is uncertain. It is if a version is unknown. It is for local files of two
        machines that have the same size. And it is if two files differ in nothing but their inode
        and device, and their times are too old to be a coincidence: some file systems (FUSE,
        network file systems) give a file a new inode each time it is opened.
    """
    if before is None or now is None:
        return None
    if not isinstance(before, LocalVersion) or not isinstance(now, LocalVersion):
        return bool(before == now)

    if before.machine != now.machine:
        if before.size != now.size:
            return False
        return None
    if before.file == now.file:
        return True
    is_settled = before.seen_ns - before.changed_ns > SETTLING_NS
    if is_settled and before.content == now.content:
        return None
    return False


def version_of(resource: StreamedResource) -> Any:
    """Return the version of a resource.

    Returns:
        The SHA-256 or tag of its store, or else a :class:`LocalVersion`; None where neither is
        known.
    """
    recorded = resource.sha256 or resource.tag
    if recorded is not None:
        return recorded
    return local_version_of(resource)


def local_version_of(resource: StreamedResource) -> LocalVersion | None:
    """Return the version of an open file of this machine; None for another resource."""
    status = local_status_of(resource)
    if status is None:
        return None
    return LocalVersion.of(status)


class SeenVersions:
    """Remembers the first version that was seen of each of some numbered files.

    It keeps 8 bytes for each file. Threads may share it.

    Args:
        n_files: number of the files.
    """

    def __init__(self, n_files: int) -> None:
        #: A digest of the version of each file; 0 if the file was not seen yet.
        self._digests = np.zeros(n_files, np.uint64)

    def is_unchanged(self, number: int, version: Any) -> bool:
        """Return whether a file still has the version that was seen first.

        The first call for a file notes its version, and returns True.

        Args:
            number: the number of the file.
            version: see :func:`version_of`; None counts as unchanged.
        """
        if version is None:
            return True
        facts = version.file if isinstance(version, LocalVersion) else version
        # A digest of 0, which would mean "not seen", becomes 1.
        digest = np.uint64(xxh3_64_intdigest(repr(facts).encode()) or 1)
        if self._digests[number] == 0:
            # Of two threads that see two versions of one file, the second one must notice that.
            with _NOTING:
                if self._digests[number] == 0:
                    self._digests[number] = digest
        return bool(self._digests[number] == digest)

    def check_opened(self, number: int, name: str, resource: StreamedResource) -> StreamedResource:
        """Return a file that was opened just now, if it has the version that was seen first.

        If it has another version, it is closed.

        Args:
            number: the number of the file.
            name: the name of the file, for the message.
            resource: the opened file.

        Raises:
            ResourceChangedError: the file was replaced or changed.
        """
        version = version_of(resource)
        if self.is_unchanged(number, version):
            return resource
        resource.close()
        raise ResourceChangedError(name, "another version when it was read first", str(version))
