"""Exceptions for requests that a server refused, alike for clients that have none of their own."""

from __future__ import annotations


class RefusedRequestError(OSError):
    """A server refused a request.

    Attributes:
        response: the status and the code, as the exceptions of botocore hold them.
    """

    response: dict[str, dict[str, object]]

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message or f"the server answers {status}")
        self.response = {
            "ResponseMetadata": {"HTTPStatusCode": status},
            "Error": {"Code": code or str(status)},
        }


class DeniedRequestError(RefusedRequestError, PermissionError):
    """A server refused a request because of its credentials."""


def refused_request(status: int, code: str, message: str) -> RefusedRequestError:
    """Return the exception for a request that a server refused.

    Args:
        status: of HTTP.
        code: that of the store, such as ``AccessDenied``; empty if it gave none.
        message: what the store says; empty if it says nothing.
    """
    if status in (401, 403):
        return DeniedRequestError(status, code, message)
    return RefusedRequestError(status, code, message)


class CredentialsError(OSError):
    """There are no credentials, or they could not be renewed."""
