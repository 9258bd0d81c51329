"""Sends GET requests to object stores by our web client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from data_stack.io.storage_connectors.object_store.refused_requests import (
    RefusedRequestError,
    hide_all,
    refused_request,
)
from data_stack.io.storage_connectors.object_store.s3 import REDIRECTED, WrongAnswerError
from data_stack.io.web import Exchange, WebError

#: The most that is read of an answer that is an error. Gateways send long pages.
_MAX_REFUSAL_BYTES: Final = 64 << 10
#: What the reasons of a WebError begin with that are whole sentences, such as "the host cannot be
#: found". The subject of others is the server.
_OWN_SUBJECTS: Final = ("the host ", "its TLS certificate ")


class RedirectedError(WrongAnswerError):
    """A server redirected a request, which was not followed.

    Attributes:
        headers: the headers of the redirect, by names in any case.
    """

    headers: Mapping[str, str]

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(REDIRECTED)
        self.headers = headers


@dataclass(frozen=True, slots=True, repr=False)
class SignedRequest:
    """A GET request that says who sends it. Its repr shows nothing.

    Attributes:
        url: the URL.
        headers: the headers.
        secrets: the texts in both that nobody else may see.
    """

    url: str
    headers: Mapping[str, str]
    secrets: Sequence[str] = ()


def get(
    request: SignedRequest,
    *,
    timeout_seconds: float,
    max_bytes: int,
    read_refusal: Callable[[int, str, Sequence[str]], RefusedRequestError],
) -> bytes:
    """Send a request once, and return the body of the answer.

    Redirects are not followed: they would take the login to any host.

    Args:
        request: the request.
        timeout_seconds: the limit of the request.
        max_bytes: the limit of the body.
        read_refusal: makes the exception for an answer with another status than 200, from the
            status, the beginning of the body, and the secrets that it must not show.

    Raises:
        RefusedRequestError: the server refused it.
        RedirectedError: the server redirected it.
        WrongAnswerError: the answer is not one of HTTP, or longer than its limit.
        ConnectionError: the server did not answer.
    """
    exchange = Exchange(
        request.url,
        own_headers=request.headers,
        timeout_seconds=timeout_seconds,
        deadline=time.monotonic() + timeout_seconds,
        max_redirects=0,
    )
    try:
        with exchange:
            if exchange.status == 200:
                return exchange.read(max_bytes)
            body = exchange.read_beginning(_MAX_REFUSAL_BYTES).decode(errors="replace")
    except WebError as error:
        raise _translate(error, exchange.redirects, request.secrets) from None
    raise read_refusal(exchange.status, body, request.secrets)


def _translate(
    error: WebError, redirects: Sequence[Mapping[str, str]], secrets: Sequence[str]
) -> Exception:
    """Return the exception to raise for one of our web client.

    Args:
        error: the exception.
        redirects: the headers of the redirect that was not followed, if it was one.
        secrets: the texts that were sent, and that the exception must not show.
    """
    if redirects:
        return RedirectedError(redirects[0])
    reason = hide_all(error.reason, secrets)
    if error.status is not None and error.transient:
        return refused_request(
            error.status, "", f"the server {reason}", retry_after=error.retry_after
        )
    if error.transient:
        return ConnectionError(reason)
    if reason.startswith(_OWN_SUBJECTS):
        return WrongAnswerError(reason)
    return WrongAnswerError(f"the server {reason}")
