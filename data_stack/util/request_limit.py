"""How much memory may be taken by what is decoded for one request: one limit for all formats, looked at before decoding.

A file says how much its contents are before they are decoded, and may say anything: 13 kB of PNG can be 10 GB of pixels. What
lies in a file as it does in memory (rows of an ``.npy`` file, say) is never more than the file, and does not count.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from data_stack.exception import ConfigError, RequestLimitError

__all__ = ["MAX_REQUEST_BYTES", "Request", "check_request", "current_request", "decoding_for", "limit_bytes"]

MAX_REQUEST_BYTES: Final = "DATA_STACK_MAX_REQUEST_BYTES"
"""The environment variable that sets the limit, in bytes; ``inf`` for none. It is looked at for each request, and worker
processes inherit it. Without it the limit is a quarter of the memory of the machine, or of its container; at least 1 GiB."""

_FEWEST_BYTES: Final = 1 << 30
_CONTAINER_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_NO_LIMIT: Final = 1 << 62


class _Current(threading.local):
    request: Request | None = None


_current: Final = _Current()


class Request:
    """What one request has decoded so far, in all of its threads.

    Attributes:
        n_bytes: of the values.
        limit_bytes: how much it may take.
    """

    __slots__ = ("limit_bytes", "n_bytes")

    def __init__(self) -> None:
        self.n_bytes, self.limit_bytes = 0, limit_bytes()

    def check(self, n_bytes: int, what: str) -> None:
        """Refuse to decode so much more.

        Raises:
            RequestLimitError: it is more than the request may take.
        """
        if self.n_bytes + n_bytes > self.limit_bytes:
            raise RequestLimitError(what, self.n_bytes + n_bytes, self.limit_bytes)

    def reserve(self, n_bytes: int, what: str) -> None:
        """The same, and count it."""
        self.check(n_bytes, what)
        self.n_bytes += n_bytes

    def add(self, value: Any) -> None:
        """Count a decoded value. (Threads may count at once: then one may be lost, which does no harm.)

        Raises:
            RequestLimitError: the request takes too much with it.
        """
        n_bytes = getattr(value, "nbytes", 0)
        if type(n_bytes) is int:
            self.n_bytes += n_bytes
            if self.n_bytes > self.limit_bytes:
                raise RequestLimitError("this value, with those before it", self.n_bytes, self.limit_bytes)


@contextlib.contextmanager
def decoding_for(request: Request) -> Iterator[Request]:
    """Let all that this thread decodes count for a request, as :func:`current_request` gives it."""
    before, _current.request = _current.request, request
    try:
        yield request
    finally:
        _current.request = before


def current_request() -> Request:
    """That which this thread decodes for; a new one where there is none."""
    return _current.request or Request()


def check_request(n_bytes: int, what: str) -> None:
    """Refuse to decode so much more for the request of this thread, or by itself where there is none.

    Args:
        n_bytes: what decoding would take, as far as headers tell.
        what: what it is, for the message.

    Raises:
        RequestLimitError: it is more than a request may take.
    """
    current_request().check(n_bytes, what)


def limit_bytes() -> int:
    """How much a request may take now.

    Raises:
        ConfigError: the environment variable is no positive number.
    """
    text = os.environ.get(MAX_REQUEST_BYTES, "").strip()
    if not text:
        return _default_bytes()
    if text.lower() == "inf":
        return _NO_LIMIT
    try:
        limit = int(text)
    except ValueError:
        limit = 0
    if limit < 1:
        raise ConfigError(f"{MAX_REQUEST_BYTES} is a positive number of bytes, or inf for no limit, not {text!r:.60}")
    return limit


@functools.cache
def _default_bytes() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 8 * _FEWEST_BYTES
    for path in map(Path, _CONTAINER_LIMITS):
        try:
            memory = min(memory, int(path.read_text()))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    return max(_FEWEST_BYTES, memory // 4)
