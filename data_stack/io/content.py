"""Identifiers of the content of resources."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from data_stack.io.local_status import SETTLING_NS, local_status_of
from data_stack.io.resources import StreamedResource
from data_stack.util.executor import n_threads, waiting
from data_stack.util.logger import logger

#: How many digests are remembered, which takes some 50 MB.
_MAX_FILES: Final = 1 << 17
#: Hashing a resource of this size takes a second, which is said in the log.
_LARGE_BYTES: Final = 1 << 30
#: How much of a resource is read at a time to hash it.
_PIECE_BYTES: Final = 1 << 20


def content_of_resource(resource: StreamedResource) -> str:
    """Return an identifier of the content of a resource. Other content has another identifier.

    If the store has recorded the SHA-256, the identifier is that: 64 hex digits. If an object store
    knows only its own tag, as for a file that another program has put there, it is the tag (the
    ETag of S3). Otherwise the resource is read whole and hashed. This process remembers the digest
    of a file of a local folder until the file changes.
    """
    recorded = resource.sha256 or resource.tag
    if recorded is not None:
        return recorded
    return _file_digests.sha256_of(resource)


def contents_of_resources(
    openings: Iterable[Callable[[], AbstractContextManager[StreamedResource]]],
) -> list[str]:
    """Return :func:`content_of_resource` of several resources, opened and hashed by threads.

    Args:
        openings: functions that each open a resource.

    Returns:
        The identifiers, in the order of ``openings``.
    """

    def open_and_identify(opening: Callable[[], AbstractContextManager[StreamedResource]]) -> str:
        with opening() as resource:
            return content_of_resource(resource)

    # Some threads wait for a disk or server while others compute digests.
    max_at_once = 2 * n_threads()
    return list(waiting.map(open_and_identify, openings, at_once=max_at_once))


@dataclass(frozen=True, slots=True)
class _FileState:
    """What the operating system says about a file, which differs once the file was changed."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    def is_settled_at(self, time_ns: int, settling_ns: int) -> bool:
        """Return whether the last change is so old that another change will change the times."""
        return max(self.modified_ns, self.changed_ns) <= time_ns - settling_ns


class FileDigests:
    """Remembers the SHA-256 of local files, so that each file is read once until it changes.

    Args:
        max_files: how many digests are remembered; beyond, all are forgotten.
        settling_ns: how long after its last change a file is not trusted to be unchanged, in
            nanoseconds.
    """

    _digests: dict[_FileState, str]
    _max_files: int
    _settling_ns: int

    def __init__(self, max_files: int = _MAX_FILES, settling_ns: int = SETTLING_NS) -> None:
        self._digests = {}
        self._max_files = max_files
        self._settling_ns = settling_ns

    def sha256_of(self, resource: StreamedResource) -> str:
        """Return the SHA-256 of a resource, 64 hex digits.

        A resource that is not a local file is read each time.
        """
        state = _state_of(resource)
        if state is None:
            return _hash(resource)
        # One look-up: another thread may clear the digests at any time.
        known_digest = self._digests.get(state)
        if known_digest is not None:
            return known_digest

        started_ns = time.time_ns()
        digest = _hash(resource)
        # The digest is remembered unless the file may have changed while it was read.
        if state.is_settled_at(started_ns, self._settling_ns) and _state_of(resource) == state:
            if len(self._digests) >= self._max_files:
                self._digests.clear()
            self._digests[state] = digest
        return digest


#: The digests of local files that this process knows.
_file_digests: Final = FileDigests()


def _state_of(resource: StreamedResource) -> _FileState | None:
    """Return the state of a local file; None for another resource."""
    if not resource.is_sealed:
        return None
    status = local_status_of(resource)
    if status is None:
        return None
    return _FileState(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def _hash(resource: StreamedResource) -> str:
    """Read a resource whole, and return its SHA-256."""
    if resource.size >= _LARGE_BYTES:
        logger.info(
            "computing the SHA-256 of %r, %d bytes, which its store does not know",
            resource.identifier,
            resource.size,
        )
    sha256 = hashlib.sha256()
    offset = 0
    while data := resource.read_at(offset, _PIECE_BYTES):
        sha256.update(data)
        offset += len(data)
    return sha256.hexdigest()
