"""What parsers of files need that may be damaged or hostile."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from data_stack.exception import (
    DatasetFileCorruptError,
    DataStackError,
)
from data_stack.io.location import as_resource
from data_stack.io.positional import PositionalFile
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.processes.isolation import ISOLATION, run_apart
from data_stack.util.request_limit import check_request

_logger = logging.getLogger(__name__)

#: Limit of claimed bytes per stored byte, above :data:`_HARMLESS_BYTES`.
MAX_EXPANSION = 200
_HARMLESS_BYTES = 64 << 20


class Readable(Protocol):
    """A stream that a format reads from front to end: a file, a resource, a decompressing stream."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes; none at the end."""


@contextlib.contextmanager
def reading(name: str, kind: str, file: PositionalFile | None = None) -> Iterator[None]:
    """Raise errors of a parser as DatasetFileCorruptError; our own errors pass.

    Args:
        name: of the file, for the message.
        kind: what the file should be, such as ``".npz file"``.
        file: the file, to say if it is a pointer of Git LFS or a page instead of data.
    """
    try:
        yield
    except (DataStackError, MemoryError):
        raise
    except Exception as error:
        if file is not None:
            check_no_stand_in(file.read_at(0, HEAD_BYTES), repr(name), file.size)
        raise DatasetFileCorruptError(
            f"{name!r} is not a readable {kind}: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def lend_or_open(file: Any) -> Iterator[Any]:
    """A stream to read: the file at a path or URL, closed in the end, or the caller's stream.

    Raises:
        As :func:`~data_stack.io.location.as_resource`.
    """
    if hasattr(file, "read"):
        yield file
        return
    with as_resource(file) as resource:
        yield resource


def name_of(file: Any) -> str:
    """The identifier or name of ``file``, for messages."""
    for attribute in ("identifier", "name"):
        name = getattr(file, attribute, None)
        if isinstance(name, str) and name:
            return name
    return f"<{type(file).__name__}>"


def check_expansion(
    name: str, claimed_bytes: int, stored_bytes: int, max_expansion: float | None = MAX_EXPANSION
) -> None:
    """Refuse a header that claims far more bytes than are stored.

    Raises:
        DatasetFileCorruptError: it claims more than 64 MiB and more than ``max_expansion`` times the stored bytes.
    """
    if max_expansion is not None and claimed_bytes > max(
        _HARMLESS_BYTES, max_expansion * stored_bytes
    ):
        what = f"claims {claimed_bytes} bytes of values, but stores {stored_bytes}, more than {max_expansion:g} to 1"
        raise DatasetFileCorruptError(
            f"{name!r} {what}: it is damaged or hostile. If you trust it, pass max_expansion=None"
        )


def check_apart(
    file: PositionalFile, function: str, arguments: Sequence[Any], *, seconds: float = 10.0
) -> None:
    """Parse a file in an isolated process first, unless its store knows its digest.

    Args:
        file: the file.
        function: ``"module:name"``; see :func:`~data_stack.processes.isolation.run_apart`.
        arguments: plain JSON data.
        seconds: limit of its CPU time.

    Raises:
        DatasetFileCorruptError: parsing fails, crashes, or takes too much time or memory.
    """
    if file.resource.sha256 is not None or os.environ.get(ISOLATION, "").strip().lower() in (
        "off",
        "0",
    ):
        return
    try:
        run_apart(
            function,
            arguments,
            name=file.name,
            size=file.size,
            read_at=file.read_at,
            seconds=seconds,
        )
    except OSError as error:
        if isinstance(error, DataStackError):
            raise
        _logger.warning(
            "%s is parsed without isolation, so a damaged file may crash this process: %s",
            file.name,
            error,
        )


def check_unpacked(file: Readable, n_bytes: int) -> None:
    """Check the unpacked size of a stream, unless it is a plain file or buffer.

    Raises:
        RequestLimitError: it exceeds the limit of a request.
    """
    holder = getattr(file, "raw", file)
    if isinstance(holder, (io.BytesIO, io.FileIO)):
        return
    try:
        size = getattr(holder, "size", 0)
    except (OSError, AttributeError):  # not seekable
        size = 0
    if size < n_bytes:
        check_request(n_bytes, f"the values of {name_of(file)!r}")
