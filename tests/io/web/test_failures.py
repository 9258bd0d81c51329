"""What is said about the errors of libraries."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl

import pytest

from data_stack.io.web.connections import BadFramingError
from data_stack.io.web.failures import Failure, describe_failure, is_closed_by_server


def wrapped(cause: BaseException) -> OSError:
    """An error as requests raises it: the cause is an argument of an argument."""
    return OSError(Exception("Max retries exceeded", cause))


@pytest.mark.parametrize(
    ("cause", "failure"),
    [
        (
            socket.gaierror(socket.EAI_NONAME, "Unknown"),
            Failure("the host cannot be found: Unknown", False),
        ),
        (
            socket.gaierror(socket.EAI_AGAIN, "Later"),
            Failure("the host cannot be found: Later", True),
        ),
        (http.client.IncompleteRead(b""), Failure("the connection was cut", True)),
        (BadFramingError("two lengths"), Failure("two lengths", False)),
        (TimeoutError(), Failure("no answer within 3 s", True)),
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
            Failure("connection refused", True),
        ),
    ],
)
def test_the_cause_is_said_however_deep_it_is(cause: Exception, failure: Failure) -> None:
    assert describe_failure(wrapped(cause), 3.0) == failure


def test_a_refused_certificate_is_not_tried_again() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed"

    failure = describe_failure(wrapped(error), 3.0)

    assert failure == Failure("its TLS certificate is refused: self-signed", False)


def test_a_malformed_url_is_not_tried_again() -> None:
    failure = describe_failure(ValueError("no host"), 3.0)

    assert failure == Failure("ValueError: no host", False)


def test_an_error_of_our_code_is_not_blamed_on_libraries() -> None:
    assert describe_failure(KeyError("x"), 3.0) is None


def test_causes_that_go_round_in_a_circle_are_seen_once() -> None:
    first = OSError("first")
    second = OSError("second")
    first.__cause__ = second
    second.__cause__ = first

    assert not is_closed_by_server(first)


def test_a_closed_connection_is_told_by_its_cause() -> None:
    assert is_closed_by_server(wrapped(http.client.RemoteDisconnected("closed")))
