"""Guards of the parsers: against files that are damaged, hostile, or not the data."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from data_stack.exception import DatasetFileCorruptError, DataStackError, StorageError
from data_stack.io.location import as_resource
from data_stack.io.location import name_of as name_of
from data_stack.io.positional import PositionalFile
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.processes.isolation import is_switched_off, run_apart
from data_stack.util.request_limit import check_request

_logger = logging.getLogger(__name__)

#: Limit of claimed bytes per stored byte, above :data:`_HARMLESS_BYTES`.
MAX_EXPANSION: Final = 200
_HARMLESS_BYTES: Final = 64 << 20


class Readable(Protocol):
    """A stream that a format reads from front to end, such as a decompressing one."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most ``size`` bytes; none at the end."""


@contextlib.contextmanager
def lend_or_open(file: Any) -> Iterator[Any]:
    """Yield a stream to read: ``file`` itself if it has ``read()``, or the file that it names.

    A file that is opened here is closed after the block. A stream of the caller is not closed.

    Args:
        file: a stream, or an argument of :func:`~data_stack.io.location.as_resource`, which says
            what is raised if it cannot be opened.
    """
    if hasattr(file, "read"):
        yield file
        return
    with as_resource(file) as resource:
        yield resource


@contextlib.contextmanager
def reading(name: str, kind: str, file: PositionalFile | None = None) -> Iterator[None]:
    """Raise the errors of a parser in the block as DatasetFileCorruptError.

    Errors of data_stack, MemoryError, and warnings that the program has made errors pass as they
    are.

    Args:
        name: the name of the file, for the message.
        kind: what the file should be, such as ``".npz file"``.
        file: the file; if it is a pointer of Git LFS or a page instead of data, the error says so.

    Raises:
        StorageError: the operating system could not read the file.
        DatasetFileCorruptError: the parser raised an error.
    """
    try:
        yield
    except (DataStackError, MemoryError, Warning):
        raise
    except Exception as error:
        raise_if_of_system(error, repr(name))
        if file is not None:
            check_no_stand_in(file.read_at(0, HEAD_BYTES), repr(name), file.size)
        raise DatasetFileCorruptError(
            f"{name!r} is not a readable {kind}: {type(error).__name__}: {error}"
        ) from error


def raise_if_of_system(error: Exception, name: str) -> None:
    """Raise an error of the operating system, which says nothing about the content of a file.

    Parsers raise a plain OSError, without a number, for damaged content.

    Args:
        error: what a parser raised.
        name: the name of the file, for the message.

    Raises:
        StorageError: the operating system could not read the file.
    """
    if isinstance(error, OSError) and error.errno is not None:
        reason = os.strerror(error.errno)
        raise StorageError(f"could not read {name}: {reason}", error.errno) from error


def check_expansion(
    name: str, claimed_bytes: int, stored_bytes: int, max_expansion: float | None = MAX_EXPANSION
) -> None:
    """Refuse a header that claims far more bytes than are stored.

    Args:
        name: the name of the file, for the message.
        claimed_bytes: how many bytes of values the header claims.
        stored_bytes: how many bytes the file has.
        max_expansion: limit of the claimed bytes per stored byte; None for no limit.

    Raises:
        DatasetFileCorruptError: the header claims more than 64 MiB and more than ``max_expansion``
            times the stored bytes.
    """
    if max_expansion is None or claimed_bytes <= _HARMLESS_BYTES:
        return
    if claimed_bytes > max_expansion * stored_bytes:
        raise DatasetFileCorruptError(
            f"{name!r} claims {claimed_bytes} bytes of values, but stores {stored_bytes}, "
            f"more than {max_expansion:g} to 1: it is damaged or hostile. "
            "If you trust it, pass max_expansion=None"
        )


def check_unpacked(file: Readable, n_bytes: int) -> None:
    """Check how many bytes are read out of a stream, if it may unpack them out of fewer.

    Args:
        file: the stream.
        n_bytes: how many bytes of values its header claims.

    Raises:
        RequestLimitError: the values exceed the limit of a request.
    """
    raw_stream = getattr(file, "raw", file)
    if isinstance(raw_stream, (io.BytesIO, io.FileIO)):
        return  # the values are there as they are
    try:
        n_stored_bytes = getattr(raw_stream, "size", 0)
    except (OSError, AttributeError):
        n_stored_bytes = 0  # its size is unknown, as it cannot seek
    if n_stored_bytes < n_bytes:
        check_request(n_bytes, f"the values of {name_of(file)!r}")


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
    is_known = file.resource.sha256 is not None
    if is_known or is_switched_off():
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
    except DataStackError:
        raise
    except OSError as error:
        _logger.warning(
            "%s is parsed without isolation, so a damaged file may crash this process: %s",
            file.name,
            error,
        )
