"""Tells in a sentence why a request of ``requests`` failed."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from urllib3.exceptions import HTTPError

from data_stack.io.web.connections import BadFramingError
from data_stack.io.web.header_lines import BadHeaderError

#: Errors of a connection that the server closed.
_CLOSED: Final = (
    http.client.RemoteDisconnected,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
)
#: Errors that requests, urllib3, http.client and sockets raise.
_LIBRARY_ERRORS: Final = (OSError, ValueError, http.client.HTTPException, HTTPError)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed.

    Attributes:
        reason: a sentence without its subject, which is the server; it may hold credentials.
        is_transient: whether a retry may help.
    """

    reason: str
    is_transient: bool


def describe_failure(error: Exception, timeout_seconds: float) -> Failure | None:
    """Describe an error that a library raised for a request.

    Args:
        error: the error.
        timeout_seconds: the timeout of the request, for the message.

    Returns:
        None if the error is a fault of our own code, not one of a library.
    """
    if not isinstance(error, _LIBRARY_ERRORS):
        return None

    # A cause of these kinds says exactly what went wrong, wherever in the chain it stands.
    causes = list(causes_of(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Failure(f"its TLS certificate is refused: {cause.verify_message}", False)
        if isinstance(cause, socket.gaierror):
            may_be_found_later = cause.errno == socket.EAI_AGAIN
            return Failure(f"the host cannot be found: {cause.strerror}", may_be_found_later)
        if isinstance(cause, http.client.IncompleteRead):
            return Failure("the connection was cut", True)
        if isinstance(cause, (BadFramingError, BadHeaderError)):
            return Failure(str(cause), False)

    # Otherwise the first timeout, or the first error with a text of the operating system.
    for cause in causes:
        if isinstance(cause, TimeoutError):
            return Failure(f"no answer within {timeout_seconds:g} s", True)
        if isinstance(cause, OSError) and cause.strerror:
            return Failure(cause.strerror[0].lower() + cause.strerror[1:], True)

    last_cause = causes[-1]
    # requests and urllib3 raise a ValueError for a malformed URL, which no retry mends.
    is_transient = not isinstance(error, ValueError)
    return Failure(f"{type(last_cause).__name__}: {last_cause}", is_transient)


def is_closed_by_server(error: BaseException) -> bool:
    """Return whether an error says that the server closed the connection."""
    return any(isinstance(cause, _CLOSED) for cause in causes_of(error))


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised for, outermost first.

    requests and urllib3 wrap an error several times: as ``__cause__``, as an argument of the next
    error, or as its attribute ``reason``.
    """
    pending = [error]
    seen_ids = set[int]()
    while pending:
        current = pending.pop()
        if id(current) in seen_ids:
            continue
        seen_ids.add(id(current))
        yield current

        candidates = list(current.args)
        candidates.append(getattr(current, "reason", None))
        candidates.append(current.__cause__)
        candidates.append(current.__context__)
        pending.extend(item for item in candidates if isinstance(item, BaseException))
