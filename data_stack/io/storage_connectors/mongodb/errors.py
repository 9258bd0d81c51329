"""Turns the errors of MongoDB and its driver into errors of this package."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from typing import Any, Final

from bson.errors import BSONError
from pymongo.errors import (
    ConnectionFailure,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from data_stack.exception import (
    DatasetFileCorruptError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)

#: What the driver raises for malformed documents, which it does not check.
UNREADABLE: Final = (
    BSONError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)

#: The code of a server for what a user has no right to.
UNAUTHORIZED_CODE: Final = 13
#: Other codes of servers:
#: https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml
_AUTHENTICATION_CODES: Final = (18, 8000)
_FULL_DISK_CODES: Final = (12501, 14031)


def code_of(error: Exception, servers: Sequence[Any]) -> int | None:
    """Return the code of a server in an error; None if there is none.

    Args:
        error: the error of the driver.
        servers: the descriptions of the servers. After a server has refused the driver, the driver
            does not ask it again for a while, and only its description has the code.
    """
    if isinstance(error, ServerSelectionTimeoutError):
        for server in servers:
            if isinstance(server.error, OperationFailure):
                return server.error.code
        return None
    if isinstance(error, OperationFailure):
        return error.code
    return None


def explain(problem: str, error: Exception, code: int | None, seconds: float) -> Exception:
    """Return the error to raise for an error of the driver.

    Args:
        problem: what failed: ``"could not read 'a' in mongodb://host/db"``.
        error: the error.
        code: the code of the server, see :func:`code_of`.
        seconds: the limit of the operation.
    """
    reason = _reason_of(error)
    if isinstance(error, UNREADABLE):
        return DatasetFileCorruptError(
            f"{problem}: the server sent an unreadable document ({reason})"
        )

    refusal = _explain_refusal(code)
    if refusal is not None:
        return StorageError(
            f"{problem}: {refusal} ({reason}). "
            "Check credentials and roles: reading needs 'read', writing 'readWrite'.",
            errno.EACCES,
        )

    # A full disk may also be an unknown error (code 8).
    if code in _FULL_DISK_CODES or "no space left" in reason.lower():
        return StorageFullError(
            f"{problem}: the server's disk is full ({reason}). "
            "Nothing was published; make room and try again.",
            errno.ENOSPC,
        )

    # Before the timeout: the driver looks for a server for a shorter time.
    if isinstance(error, ServerSelectionTimeoutError):
        return StorageUnavailableError(
            f"{problem}: no server can be reached ({reason}). Check that it runs, and try again."
        )
    if isinstance(error, PyMongoError) and error.timeout:
        return StorageUnavailableError(
            f"{problem}: the server did not answer within {seconds:g} s ({reason}). "
            "Check that it runs, and try again."
        )
    if isinstance(error, ConnectionFailure):
        return StorageUnavailableError(
            f"{problem}: the connection failed ({reason}). "
            "Check that the server runs, and try again."
        )
    return StorageError(f"{problem}: {reason}. The store is as it was.")


def _explain_refusal(code: int | None) -> str | None:
    """Return why a server refused an operation; None if it did not."""
    if code == UNAUTHORIZED_CODE:
        return "the user lacks the right"
    if code in _AUTHENTICATION_CODES:
        return "the server refused user or password"
    return None


def _reason_of(error: Exception) -> str:
    """Return the driver's message without its topology. It names hosts, never credentials."""
    parts = re.split(
        r", Timeout: |, full error: | \(configured timeouts: |, Topology Description: ",
        str(error),
    )
    return f"{type(error).__name__}: {parts[0][:300]}"
