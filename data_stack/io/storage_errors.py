"""Turns errors of the operating system into errors of storage that say what to do."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Final

from data_stack.exception import DataStackError, StorageError, StorageFullError

#: The errors of a full disk, an exceeded quota or a limit of the size of files.
FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def storage_error(
    problem: str,
    error: OSError,
    path: str | os.PathLike[str] | None = None,
    *,
    if_full: str = "",
    otherwise: str = "",
) -> StorageError:
    """Return the error to raise for an error of the operating system.

    Args:
        problem: what failed: ``"could not write '/data/x.bag'"``.
        error: the cause.
        path: if the disk is full, the message says how many bytes are free there.
        if_full: advice for a full disk.
        otherwise: advice for any other error.
    """
    message = f"{problem}: {error.strerror or error}"
    if error.errno not in FULL_ERRORS:
        if otherwise:
            message += f". {otherwise}"
        return StorageError(message, error.errno)

    if path is not None:
        n_free_bytes = _free_bytes_at(os.path.abspath(path))
        if n_free_bytes is not None:
            message += f"; {n_free_bytes:,} bytes are free"
    advice = if_full or "Make room and try again."
    return StorageFullError(f"{message}. {advice}", error.errno)


@contextlib.contextmanager
def explaining(explain: Callable[[OSError], Exception]) -> Iterator[None]:
    """Raise ``explain(error)`` for an error of the operating system in the block.

    Errors of data_stack pass as they are, also those that are an OSError.
    """
    try:
        yield
    except DataStackError:
        raise
    except OSError as error:
        raise explain(error) from error


def storage_errors(
    action: str, path: str | os.PathLike[str], *, if_full: str = "", otherwise: str = ""
) -> contextlib.AbstractContextManager[None]:
    """Raise errors of the operating system in the block as those of :func:`storage_error`.

    Args:
        action: what the block does, as in ``could not {action} {path}``.
        path: the file or folder.
        if_full: advice for a full disk.
        otherwise: advice for any other error.
    """
    problem = f"could not {action} {os.fspath(path)!r}"
    return explaining(
        functools.partial(storage_error, problem, path=path, if_full=if_full, otherwise=otherwise)
    )


def _free_bytes_at(path: str) -> int | None:
    """Return the free bytes at a path, or above it if it does not exist yet; None if unknown."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None
