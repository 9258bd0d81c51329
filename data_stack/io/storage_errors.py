"""Maps errors of the operating system to ours."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Final

from data_stack.exception import DataStackError, StorageError, StorageFullError

#: A full disk, an exceeded quota or file size limit.
FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def storage_error(
    problem: str,
    error: OSError,
    path: str | os.PathLike[str] | None = None,
    *,
    if_full: str = "",
    otherwise: str = "",
) -> StorageError:
    """The error to raise for an error of the operating system.

    Args:
        problem: what failed: ``"could not write '/data/x.bag'"``.
        error: the cause.
        path: if the disk is full, the message says how many bytes are free there.
        if_full: advice for a full disk.
        otherwise: advice for any other error.
    """
    reason = f"{problem}: {error.strerror or error}"
    if error.errno not in FULL_ERRORS:
        return StorageError(f"{reason}. {otherwise}" if otherwise else reason, error.errno)
    free = None if path is None else _free_bytes(os.path.abspath(path))
    reason += "" if free is None else f"; {free:,} bytes are free"
    return StorageFullError(f"{reason}. {if_full or 'Make room and try again.'}", error.errno)


@contextlib.contextmanager
def explaining(explain: Callable[[OSError], Exception]) -> Iterator[None]:
    """Raise ``explain(error)`` for an error of the operating system in the block; our own errors pass."""
    try:
        yield
    except DataStackError:
        raise
    except OSError as error:
        raise explain(error) from error


def storage_errors(
    action: str, path: str | os.PathLike[str], *, if_full: str = "", otherwise: str = ""
) -> contextlib.AbstractContextManager[None]:
    """Raise errors of the operating system in the block as those of :func:`storage_error`; ``could not {action} {path}``."""
    problem = f"could not {action} {os.fspath(path)!r}"
    return explaining(
        functools.partial(storage_error, problem, path=path, if_full=if_full, otherwise=otherwise)
    )


def _free_bytes(path: str) -> int | None:
    """Free bytes at a path, or above it if it does not exist yet."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    with contextlib.suppress(OSError):
        return shutil.disk_usage(path).free
    return None
