"""Asks web services that answer in JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

from data_stack.exception import (
    CatalogueBusyError,
    CatalogueError,
    CatalogueUnavailableError,
)
from data_stack.io.offline import OFFLINE, is_offline
from data_stack.io.web.client import ask
from data_stack.io.web.errors import WebError
from data_stack.io.web.exchange import Exchange
from data_stack.io.web.json_shape import check_shape
from data_stack.io.web.limits import Limits
from data_stack.util.untrusted_text import check_json_memory

#: The longest pause that a server may ask for is a minute.
_LIMITS: Final = Limits(n_retries=3, backoff_seconds=0.2, max_wait_seconds=60.0, max_bytes=64 << 20)


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """The answer of a web service.

    Attributes:
        status: the HTTP status.
        headers: the headers, found by their names in any case.
        value: the parsed body; None if the body is not JSON.
    """

    status: int
    headers: Mapping[str, str]
    value: Any


def ask_json(
    url: str,
    shape: Any,
    *,
    server: str,
    subject: str,
    params: Mapping[str, object] = MappingProxyType({}),
    own_headers: Mapping[str, str] = MappingProxyType({}),
) -> JsonAnswer:
    """Send a GET request for JSON, and again after a pause where that may help.

    Args:
        url: the URL of the request.
        shape: the expected form of an answer with status 200, for
            :func:`~data_stack.io.web.json_shape.check_shape`.
        server: the name of the server in messages, such as ``"OpenML"``.
        subject: what the request is about, in messages, such as ``"openml:61"``.
        params: parameters of the query, such as a key; they are never shown.
        own_headers: headers for the server of ``url`` only, such as a token.

    Returns:
        The answer. With status 200 its value has the shape; with another status, such as 404, the
        value may be anything.

    Raises:
        CatalogueBusyError: the server wants a longer pause than a minute, or was asked too often.
        CatalogueUnavailableError: the server does not answer within the timeout and a minute of
            pauses, or this process is offline.
        CatalogueError: the answer has another form, or more than 64 MiB, or values that would take
            more than 512 MiB of memory; or the server redirects where it may not.
    """
    if is_offline():
        raise CatalogueUnavailableError(
            f"{server} was not asked for {subject}, as {OFFLINE} is set"
        )

    try:
        answer = ask(
            _with_params(url, params),
            partial(_receive_json, server=server, subject=subject),
            _LIMITS,
            seconds=_LIMITS.max_wait_seconds,
            own_headers=own_headers,
        )
    except WebError as error:
        if error.status == 429:
            raise CatalogueBusyError(
                f"{server} was asked too often for {subject}: retry later"
            ) from None
        if not error.transient:
            raise CatalogueError(f"{server} was asked for {subject}: {error.reason}") from None
        raise CatalogueUnavailableError(
            f"{server} did not answer for {subject} ({error.reason}): check the network, then retry"
        ) from None

    # An answer with another status, such as 404, may have any form.
    if answer.status != 200:
        return answer
    try:
        if answer.value is None:
            raise ValueError("it is not JSON")
        check_shape(answer.value, shape)
    except ValueError as error:
        raise CatalogueError(
            f"{server} answered for {subject} in an undocumented form ({error}): "
            "update this package"
        ) from None
    return answer


def _receive_json(exchange: Exchange, *, server: str, subject: str) -> JsonAnswer:
    """Read the body of an answer, and parse it.

    Raises:
        CatalogueError: the values would take too much memory.
    """
    data = exchange.read(_LIMITS.max_bytes)
    try:
        check_json_memory(data)
    except ValueError as error:
        raise CatalogueError(f"{server} was asked for {subject}: {error}") from None
    # Servers send errors as pages, so what is not JSON is an error with status 200 only.
    value = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(data)
    return JsonAnswer(exchange.status, exchange.headers, value)


def _with_params(url: str, params: Mapping[str, object]) -> str:
    """Return a URL with parameters added to its query."""
    if not params:
        return url
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}{urlencode(params, doseq=True)}"
