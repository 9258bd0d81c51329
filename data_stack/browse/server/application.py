"""Answers requests by the methods of a browser."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from data_stack.browse.browser import Browser
from data_stack.browse.server.connection import MAX_CONNECTIONS
from data_stack.browse.server.daemon_threads import DaemonThreads
from data_stack.browse.server.guard import Guard
from data_stack.exception import ConfigError, DatasetOutOfBoundsError

_STATIC_FOLDER: Final = Path(__file__).parent.parent / "static"

#: The valid texts of some parameters; other parameters may have any text of their type.
_CHOICES: Final = {"size": ("small", "large"), "run": ("0", "1")}

#: The maximum number of digits of a split, sample or column.
_MAX_DIGITS: Final = 19

#: The maximum number of characters of an error in an answer.
_MAX_ERROR_CHARACTERS: Final = 2000

#: The URL of a picture contains a number of this run, so that a picture of another dataset on the
#: port is never shown in its place.
_HEADERS_OF_PICTURES: Final = {"cache-control": "private, max-age=86400, immutable"}


def make_app(browser: Browser, token: str) -> Guard:
    """Make an ASGI application that answers requests with the token."""
    methods = (
        browser.overview,
        browser.samples,
        browser.histograms,
        browser.sample,
        browser.compare,
        browser.duplicates,
    )
    threads = DaemonThreads(MAX_CONNECTIONS)
    routes: list[BaseRoute] = []
    for method in methods:
        routes.append(Route(f"/api/{method.__name__}", _endpoint(method, threads)))
    routes.append(Route("/picture", _endpoint(browser.picture, threads)))
    routes.append(Route("/", lambda request: FileResponse(_STATIC_FOLDER / "index.html")))
    routes.append(Mount("/", StaticFiles(directory=_STATIC_FOLDER)))
    return Guard(Starlette(routes=routes), token)


class _AsciiResponse(JSONResponse):
    """JSON in ASCII, which holds any name of a file.

    A name may have bytes that are not UTF-8. Starlette would refuse to encode them.
    """

    def render(self, content: Any) -> bytes:
        """Return the body of the answer."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def _endpoint(
    method: Callable[..., Any], threads: DaemonThreads
) -> Callable[[Request], Awaitable[Response]]:
    """Make a function that answers requests by a method of the browser, in a thread."""
    parameters = inspect.signature(method, eval_str=True).parameters

    def answer(request: Request) -> Response:
        try:
            arguments = _read_arguments(request, parameters)
            return _response_of(method(**arguments))
        except Exception as error:  # noqa: BLE001  # foreign code; the page shows the error
            return _response_of_error(error)

    async def endpoint(request: Request) -> Response:
        response: Response = await threads.run(functools.partial(answer, request))
        return response

    return endpoint


def _response_of(answer: Any) -> Response:
    if isinstance(answer, bytes):
        return Response(answer, media_type="image/png", headers=_HEADERS_OF_PICTURES)
    return _AsciiResponse(answer)


def _response_of_error(error: Exception) -> Response:
    status = 500
    if isinstance(error, DatasetOutOfBoundsError):
        status = 404
    elif isinstance(error, ConfigError):
        status = 400
    message = str(error)[:_MAX_ERROR_CHARACTERS]
    return _AsciiResponse({"error": message or type(error).__name__}, status)


# ---------------------------------------------------------------------- arguments


def _read_arguments(
    request: Request, parameters: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    """Return the parameters of a URL as arguments of a method.

    Parameters that the method does not have are ignored. A required parameter that the URL lacks is
    read as an empty text.

    Raises:
        ConfigError: a parameter is not of its type.
    """
    arguments: dict[str, Any] = {}
    for name, parameter in parameters.items():
        text = request.query_params.get(name)
        if text is None and parameter.default is parameter.empty:
            text = ""
        if text is not None:
            arguments[name] = _parse(name, text, parameter.annotation)
    return arguments


def _parse(name: str, text: str, type_: Any) -> Any:
    """Return a parameter as the type that the argument declares: text, integer or integers."""
    choices = _CHOICES.get(name)
    if choices is not None and text not in choices:
        raise ConfigError(f"{name} must be {' or '.join(choices)}, got {text!r:.40}")
    if type_ is str:
        return text
    if type_ == Sequence[int]:
        return [_parse_integer(name, number) for number in text.split(",") if number]
    return _parse_integer(name, text)


def _parse_integer(name: str, text: str) -> int:
    """Parse an integer.

    Raises:
        ConfigError: the text is not an integer in ASCII digits, or too long.
    """
    # int() would also take underscores, spaces and digits of other scripts.
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(text) > _MAX_DIGITS:
        raise ConfigError(f"{name} must be an integer, got {text!r:.40}")
    return int(text)
