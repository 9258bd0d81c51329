"""What tells the content of a resource: the digest that its store recorded, or one that is taken once."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from data_stack.io.resources import StreamedResource
from data_stack.util.executor import waiting
from data_stack.util.logger import logger
from data_stack.util.processors import n_threads

__all__ = ["content_of_resource", "contents_of_resources"]

_READ_BYTES: Final = 1 << 20
#: Hashing so much takes a second.
_LARGE_BYTES: Final = 1 << 30
#: A file that was written to so recently may be written to again without its times telling.
_RESTLESS_NS: Final = 2 * 10**9

#: So many files are remembered, which takes some 50 MB.
_MOST_KNOWN: Final = 1 << 17

#: SHA-256 of files by device, inode, size and both times, and of other sealed resources as long as they live.
_OF_FILES: Final[dict[tuple[int, ...], str]] = {}
_OF_RESOURCES: Final[weakref.WeakKeyDictionary[StreamedResource, str]] = weakref.WeakKeyDictionary()


def content_of_resource(resource: StreamedResource) -> str:
    """A text that is the same for equal content, and another for any other: as a rule the SHA-256, 64 hex digits.

    What the store knows is asked for first: its SHA-256, or the tag that it gives each version of a file (S3's ETag). Otherwise
    the resource is read whole: a file of this machine once in each process, until it changes; what else is sealed once for
    each object; a buffer in memory each time.
    """
    known = resource.sha256 or resource.tag or _OF_RESOURCES.get(resource)
    if known is not None:
        return known
    status = _status(resource)
    if status is None:
        digest = _digest(resource)
        if resource.is_sealed:
            _OF_RESOURCES[resource] = digest
        return digest
    known = _OF_FILES.get(status)
    if known is not None:
        return known
    started = time.time_ns()
    digest = _digest(resource)
    if max(status[3:]) <= started - _RESTLESS_NS and _status(resource) == status:
        if len(_OF_FILES) >= _MOST_KNOWN:
            _OF_FILES.clear()
        _OF_FILES[status] = digest
    return digest


def contents_of_resources(openings: Iterable[Callable[[], AbstractContextManager[StreamedResource]]]) -> list[str]:
    """:func:`content_of_resource` of several, opened one by one by several threads, in their order."""

    def content_of(opening: Callable[[], AbstractContextManager[StreamedResource]]) -> str:
        with opening() as resource:
            return content_of_resource(resource)

    return list(waiting.map(content_of, openings, at_once=2 * n_threads()))


def _status(resource: StreamedResource) -> tuple[int, ...] | None:
    """What tells versions of a file of this machine apart; None for anything else, a stream on top of a file included."""
    if not resource.is_sealed:
        buffer = getattr(resource, "_buffer", None)
        if not isinstance(getattr(buffer, "raw", buffer), io.FileIO):
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
        logger.info("taking the SHA-256 of %r, %d bytes, which its store does not know", resource.identifier, size)
    digest = hashlib.sha256()
    offset = 0
    while data := resource.read_at(offset, _READ_BYTES):
        digest.update(data)
        offset += len(data)
    return digest.hexdigest()
