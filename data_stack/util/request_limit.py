"""The memory limit of the values that one request decodes, for all formats.

It is checked before decoding. Headers state how large the decoded contents are, and may be hostile:
13 kB of PNG can be 10 GB of pixels. Uncompressed contents, such as rows of an ``.npy`` file, are
never larger than the file, and do not count.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from data_stack.exception import ConfigError, RequestLimitError

MAX_REQUEST_BYTES: Final = "DATA_STACK_MAX_REQUEST_BYTES"
"""The environment variable that sets the limit, in bytes; ``inf`` for none.

It is read for each request, and worker processes inherit it. The default is a quarter of the memory
of the machine or container, at least 1 GiB.
"""

#: The smallest default.
_MIN_DEFAULT_BYTES: Final = 1 << 30

#: The memory that is taken for the machine's where the system does not say.
_ASSUMED_MEMORY_BYTES: Final = 8 << 30

#: Where Linux says the memory limit of a container: control groups of version 2 and 1.
_CONTAINER_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)

#: Stands for "inf"; an int, so that comparisons are quick.
_NO_LIMIT: Final = 1 << 62


class Request:
    """What one request has decoded so far, in all of its threads.

    Attributes:
        n_bytes: size of the values decoded so far.
        limit_bytes: limit of that size.
    """

    __slots__ = ("limit_bytes", "n_bytes")

    def __init__(self) -> None:
        self.n_bytes = 0
        self.limit_bytes = limit_bytes()

    def check(self, n_bytes: int, what: str) -> None:
        """Check that ``n_bytes`` more may be decoded.

        Args:
            n_bytes: the decoded size.
            what: the name of the value for the message.

        Raises:
            RequestLimitError: the request would exceed the limit.
        """
        if self.n_bytes + n_bytes > self.limit_bytes:
            raise RequestLimitError(what, self.n_bytes + n_bytes, self.limit_bytes)

    def reserve(self, n_bytes: int, what: str) -> None:
        """Count ``n_bytes`` that will be decoded.

        Raises:
            RequestLimitError: the request would exceed the limit; nothing is counted.
        """
        self.check(n_bytes, what)
        self.n_bytes += n_bytes

    def add(self, value: Any) -> None:
        """Count a decoded value.

        Threads that count at the same moment may lose a value, which does no harm.

        Raises:
            RequestLimitError: the request exceeds the limit with this value.
        """
        n_bytes = getattr(value, "nbytes", 0)
        if type(n_bytes) is not int:
            return
        self.n_bytes += n_bytes
        if self.n_bytes > self.limit_bytes:
            raise RequestLimitError(
                "this value, with those before it", self.n_bytes, self.limit_bytes
            )


#: The request that each thread decodes for.
_current: Final[contextvars.ContextVar[Request | None]] = contextvars.ContextVar(
    "request", default=None
)


@contextlib.contextmanager
def decoding_for(request: Request) -> Iterator[Request]:
    """Make a request the :func:`current_request` of this thread."""
    before = _current.get()
    _current.set(request)
    try:
        yield request
    finally:
        _current.set(before)


def current_request() -> Request:
    """Return the request that this thread decodes for, or a new one."""
    return _current.get() or Request()


def check_request(n_bytes: int, what: str) -> None:
    """Check that the current request may decode ``n_bytes`` more.

    Args:
        n_bytes: the decoded size according to the headers.
        what: the name of the value for the message.

    Raises:
        RequestLimitError: it exceeds the limit.
    """
    current_request().check(n_bytes, what)


def limit_bytes() -> int:
    """Return the limit of a request now.

    Raises:
        ConfigError: the environment variable is not a positive number.
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
        raise ConfigError(
            f"{MAX_REQUEST_BYTES} must be a positive number of bytes, or inf for no limit, "
            f"got {text!r:.60}"
        )
    return limit


@functools.cache
def _default_bytes() -> int:
    return max(_MIN_DEFAULT_BYTES, _memory_bytes() // 4)


def _memory_bytes() -> int:
    """Return the memory of the machine, or of the container if that has less."""
    memory = _ASSUMED_MEMORY_BYTES
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _CONTAINER_LIMITS:
        try:
            container_memory = int(Path(path).read_text())
        except (OSError, ValueError):  # the file is missing, or says "max"
            continue
        memory = min(memory, container_memory)
    return memory
