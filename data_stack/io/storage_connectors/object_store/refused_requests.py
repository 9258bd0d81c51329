"""Exceptions for requests that a server refused, alike for clients that have none of their own."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Final

from data_stack.io.redaction import hide
from data_stack.util.untrusted_text import parse_json

_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,2000})</Message>")
#: Stands for a secret, as a server may repeat what was sent.
_HIDDEN: Final = "…"


class RefusedRequestError(OSError):
    """A server refused a request.

    Attributes:
        response: the status and the code, as the exceptions of botocore hold them.
        retry_after: how many seconds the server asked to wait; None if it did not ask, or if the
            client does not tell.
    """

    response: dict[str, dict[str, object]]
    retry_after: float | None

    def __init__(
        self, status: int, code: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message or f"the server answers {status}")
        self.retry_after = retry_after
        self.response = {
            "ResponseMetadata": {"HTTPStatusCode": status},
            "Error": {"Code": code or str(status)},
        }


class DeniedRequestError(RefusedRequestError, PermissionError):
    """A server refused a request because of its credentials."""


def refused_request(
    status: int, code: str, message: str, *, retry_after: float | None = None
) -> RefusedRequestError:
    """Return the exception for a request that a server refused.

    Args:
        status: of HTTP.
        code: that of the store, such as ``AccessDenied``; empty if it gave none.
        message: what the store says; empty if it says nothing.
        retry_after: how many seconds the server asked to wait; None if it did not ask, or if the
            client does not tell.
    """
    if status in (401, 403):
        return DeniedRequestError(status, code, message, retry_after)
    return RefusedRequestError(status, code, message, retry_after)


def refusal_in_xml(status: int, body: str, secrets: Sequence[str]) -> RefusedRequestError:
    """Return the exception for an answer that is an error, as S3, Google and Azure write it.

    Args:
        status: of HTTP.
        body: the body. One that is no such error has no code and no message.
        secrets: the texts that were sent, and that the exception must not show.
    """
    code_match = _CODE.search(body)
    message_match = _MESSAGE.search(body)
    code = "" if code_match is None else html.unescape(code_match[1])
    message = "" if message_match is None else html.unescape(message_match[1])
    # Azure adds the number and the time of the request, each in a line.
    message = " ".join(message.partition("\nRequestId:")[0].split())
    return refused_request(status, hide_all(code, secrets), hide_all(message, secrets))


def refusal_in_json(status: int, body: str, secrets: Sequence[str]) -> RefusedRequestError:
    """Return the exception for an answer that is an error, as the JSON API of Google writes it.

    https://cloud.google.com/storage/docs/json_api/v1/status-codes

    Args:
        status: of HTTP.
        body: the body. One that is no such error has no code and no message.
        secrets: the texts that were sent, and that the exception must not show.
    """
    try:
        error = parse_json(body)["error"]
        message = error["message"]
        code = error["errors"][0]["reason"]
    except (ValueError, KeyError, TypeError, IndexError):
        return refused_request(status, "", "")
    if not isinstance(message, str) or not isinstance(code, str):
        return refused_request(status, "", "")
    message = " ".join(message.split())
    return refused_request(status, hide_all(code, secrets), hide_all(message, secrets))


def hide_all(text: str, secrets: Sequence[str]) -> str:
    """Return a text of a server without secrets that were sent to it.

    The text is hidden as it is shown: a body may have secrets in another form, such as ``&#43;`` in
    place of ``+``.
    """
    for secret in secrets:
        text = hide(text, secret, _HIDDEN)
    return text


class CredentialsError(OSError):
    """There are no credentials, or they could not be renewed."""
