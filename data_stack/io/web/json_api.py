"""Web services that answer in JSON, whose form is checked."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
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
from data_stack.io.web.limits import Limits
from data_stack.util.untrusted_text import check_json_memory

#: The longest pause that a server may ask for is a minute.
_LIMITS: Final = Limits(n_retries=3, backoff_seconds=0.2, max_wait_seconds=60.0, max_bytes=64 << 20)

#: The types of parsed JSON, as messages name them.
_TYPE_NAMES: Final = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """The answer of a web service.

    Attributes:
        status: the status of HTTP.
        headers: the headers; their names in any case.
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
        shape: the expected form of an answer with status 200, as :func:`check_shape` takes it.
        server: the name of the server in messages, such as ``"OpenML"``.
        subject: what the request is about, in messages, such as ``"openml:61"``.
        params: parameters of the query, such as a key; they are never shown.
        own_headers: headers such as a token, as :class:`~data_stack.io.web.Exchange` takes them.

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

    def receive(exchange: Exchange) -> JsonAnswer:
        data = exchange.read(_LIMITS.max_bytes)
        try:
            check_json_memory(data)
        except ValueError as error:
            raise CatalogueError(f"{server} was asked for {subject}: {error}") from None
        value = None
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(data)
        return JsonAnswer(exchange.status, exchange.headers, value)

    try:
        answer = ask(
            _with_params(url, params),
            receive,
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

    # The body of another status, such as 404, is the caller's to read.
    if answer.status == 200:
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


def check_shape(value: Any, shape: Any, place: str = "the answer") -> None:
    """Check the structure of untrusted JSON before it is used.

    ``{"name": str, "rows?": int, "files": [{"url": str}]}`` is the shape of an object with a name,
    perhaps a number of rows, and a list of objects that each have a URL.

    Args:
        value: parsed JSON.
        shape: one of

            - a type, for a value of this type;
            - a list of one shape, for a list of any length;
            - a tuple of shapes, of which one must fit;
            - a dict of shapes by key, for an object with these keys and perhaps others. A key that
              ends with ``?`` may be missing or null.
        place: names the value in errors.

    Raises:
        ValueError: the value has another shape; the message says where.
    """
    if isinstance(shape, tuple):
        _check_one_of(value, shape, place)
        return

    expected_type = shape if isinstance(shape, type) else type(shape)
    has_type = isinstance(value, expected_type)
    if isinstance(value, bool) and expected_type in (int, float):
        has_type = False  # in Python a bool is an int, in JSON it is not
    if not has_type:
        actual_name = _TYPE_NAMES.get(type(value), "null")
        raise ValueError(f"{place} is {actual_name}, expected {_TYPE_NAMES[expected_type]}")

    if isinstance(shape, list):
        for position, entry in enumerate(value):
            check_shape(entry, shape[0], f"entry {position} of {place}")
    elif isinstance(shape, dict):
        for key, inner_shape in shape.items():
            _check_entry(value, key, inner_shape, place)


def _check_one_of(value: Any, shapes: tuple[Any, ...], place: str) -> None:
    """Check that a value has one of several shapes; the error tells how the last one differs."""
    for shape in shapes[:-1]:
        try:
            check_shape(value, shape, place)
        except ValueError:
            continue
        return
    check_shape(value, shapes[-1], place)


def _check_entry(parent: dict[str, Any], key: str, shape: Any, place: str) -> None:
    """Check an entry of an object; ``key`` may end with ``?``."""
    name = key.removesuffix("?")
    is_optional = key.endswith("?")
    if is_optional and parent.get(name) is None:
        return
    if name not in parent:
        raise ValueError(f"{place} has no {name!r}")
    check_shape(parent[name], shape, f"{name!r} of {place}")


def _with_params(url: str, params: Mapping[str, object]) -> str:
    """Return a URL with parameters added to its query."""
    if not params:
        return url
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}{urlencode(params, doseq=True)}"
