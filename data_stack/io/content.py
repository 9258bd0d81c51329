"""Identifies the content of a resource: by the digest of its store, or one computed once."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from data_stack.io.resources import StreamedResource
from data_stack.util.executor import n_threads, waiting
from data_stack.util.logger import logger

_READ_BYTES: Final = 1 << 20
#: Hashing this much takes a second.
_LARGE_BYTES: Final = 1 << 30
#: A file written so recently may change again without a change of its times.
_RESTLESS_NS: Final = 2 * 10**9

#: Limit of the files remembered, which take some 50 MB.
_MAX_KNOWN: Final = 1 << 17

#: SHA-256 of local files by device, inode, size and both times.
_OF_FILES: Final[dict[tuple[int, ...], str]] = {}


def content_of_resource(resource: StreamedResource) -> str:
    """A text that is equal for equal content: as a rule the SHA-256, 64 hex digits.

    It is the SHA-256 of the store, or its tag for the version of a file (S3's ETag). Otherwise the resource is read whole; the
    digest of a file in a local folder is remembered in this process until the file changes.
    """
    known = resource.sha256 or resource.tag
    if known is not None:
        return known
    status = _status(resource)
    if status is not None and status in _OF_FILES:
        return _OF_FILES[status]
    started = time.time_ns()
    digest = _digest(resource)
    if status is not None and max(status[3:]) <= started - _RESTLESS_NS and _status(resource) == status:
        if len(_OF_FILES) >= _MAX_KNOWN:
            _OF_FILES.clear()
        _OF_FILES[status] = digest
    return digest


def contents_of_resources(openings: Iterable[Callable[[], AbstractContextManager[StreamedResource]]]) -> list[str]:
    """:func:`content_of_resource` of several resources, in order; several threads open them."""

    def content_of(opening: Callable[[], AbstractContextManager[StreamedResource]]) -> str:
        with opening() as resource:
            return content_of_resource(resource)

    return list(waiting.map(content_of, openings, at_once=2 * n_threads()))


def _status(resource: StreamedResource) -> tuple[int, ...] | None:
    """Device, inode, size and times of a local file; None for other resources."""
    if not resource.is_sealed:
        return None
    try:
        status = os.fstat(resource.fileno())
    except (OSError, AttributeError, ValueError):  # io.UnsupportedOperation is both
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _digest(resource: StreamedResource) -> str:
    size = resource.size
    if size >= _LARGE_BYTES:
        logger.info("computing the SHA-256 of %r, %d bytes, which its store does not know", resource.identifier, size)
    digest = hashlib.sha256()
    offset = 0
    while data := resource.read_at(offset, _READ_BYTES):
        digest.update(data)
        offset += len(data)
    return digest.hexdigest()
