"""Serves a browser over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from data_stack.browse.browser import Browser
from data_stack.browse.guard import Guard
from data_stack.exception import ConfigError, DatasetOutOfBoundsError, MissingDependencyError

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import BaseRoute, Mount, Route
    from starlette.staticfiles import StaticFiles
except ImportError as error:
    raise MissingDependencyError("data-stack browse", "starlette", "browse") from error

_STATIC: Final = Path(__file__).with_name("static")
#: The URL of a picture contains a number of this run, so that pictures of another dataset on the same port are never reused.
_KEPT: Final = {"cache-control": "private, max-age=86400, immutable"}


def make_app(browser: Browser, token: str) -> Guard:
    """An ASGI application that answers requests with the token."""
    questions: dict[str, Callable[[Mapping[str, str]], Any]] = {
        "/api/overview": lambda _: browser.overview(),
        "/api/samples": lambda given: browser.samples(
            _number(given, "split"), given.get("where", ""), _number(given, "start"), _number(given, "count", "60")
        ),
        "/api/histograms": lambda given: browser.histograms(
            _number(given, "split"),
            given.get("where", ""),
            [_as_number("columns", each) for each in given.get("columns", "").split(",") if each],
        ),
        "/api/sample": lambda given: browser.sample(_number(given, "split"), _number(given, "position")),
        "/api/compare": lambda given: browser.compare(given.get("name", "")),
        "/api/duplicates": lambda given: browser.duplicates(
            _number(given, "column", "-1"), starts=_choice(given, "run", "01") == "1"
        ),
        "/picture": lambda given: Response(
            browser.picture(
                _number(given, "split"),
                _number(given, "position"),
                _number(given, "column"),
                _choice(given, "size", ("small", "large")) == "large",
            ),
            media_type="image/png",
            headers=_KEPT,
        ),
    }
    routes: list[BaseRoute] = [Route(path, _answer(question)) for path, question in questions.items()]
    routes.append(Route("/", lambda request: FileResponse(_STATIC / "index.html")))
    routes.append(Mount("/", StaticFiles(directory=_STATIC)))
    return Guard(Starlette(routes=routes), token)


def _answer(question: Callable[[Any], Any]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        try:
            answer = question(request.query_params)
            return answer if isinstance(answer, Response) else JSONResponse(answer)
        except Exception as error:  # noqa: BLE001  # foreign code reads the samples; the page shows the error
            return _failure(error)

    return endpoint


def _failure(error: Exception) -> Response:
    status = 404 if isinstance(error, DatasetOutOfBoundsError) else 400 if isinstance(error, ConfigError) else 500
    return JSONResponse({"error": f"{error}"[:2000] or type(error).__name__}, status)


def _number(given: Mapping[str, str], name: str, default: str = "") -> int:
    return _as_number(name, given.get(name, default))


def _as_number(name: str, text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        raise ConfigError(f"{name} must be an integer, got {text!r:.40}")
    return int(text)


def _choice(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    text = given.get(name, choices[0])
    if text not in tuple(choices):
        raise ConfigError(f"{name} must be {' or '.join(choices)}, got {text!r:.40}")
    return text
