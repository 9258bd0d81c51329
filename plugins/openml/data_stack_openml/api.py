"""Requests to OpenML's API, version 1, as JSON."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Final
from urllib.parse import quote

import requests

from data_stack.exception import (
    CatalogueAccessError,
    CatalogueBusyError,
    CatalogueError,
    CatalogueUnavailableError,
    DatasetNotFoundError,
)
from data_stack.io.retriever import is_offline

__all__ = ["ask", "field_of"]

_SERVER: Final = "https://www.openml.org/api/v1"
_TIMEOUT_SECONDS: Final = 30.0
_ATTEMPTS: Final = 4
_MOST_WAIT_SECONDS: Final = 60.0
_MOST_BYTES: Final = 64 << 20
_PASSING: Final = (429, 500, 502, 503, 504)
#: Of errors: https://github.com/openml/OpenML/wiki/API-v1
_UNKNOWN, _REFUSED = {"111", "273", "372", "373"}, {"112", "274"}


def ask(path: str, name: str, *, may_be_missing: bool = False) -> dict[str, Any]:
    """The answer to a request, an object; empty if nothing is there, and that may be.

    Raises:
        DatasetNotFoundError: there is no such dataset. CatalogueAccessError: it is private.
        CatalogueBusyError: the server wants a longer pause than a minute. CatalogueUnavailableError: it does not answer.
        CatalogueError: its answer has another form than is documented.
    """
    if is_offline():
        raise CatalogueUnavailableError(f"OpenML was not asked for {name}, as DATA_STACK_OFFLINE is set")
    url = f"{(os.environ.get('OPENML_SERVER') or _SERVER).rstrip('/')}/json/{quote(path)}"
    key = {"api_key": os.environ["OPENML_APIKEY"]} if os.environ.get("OPENML_APIKEY") else None
    attempt = 0
    while True:
        status, asked, data = 0, "", None
        try:
            with requests.get(url, params=key, timeout=_TIMEOUT_SECONDS, allow_redirects=False, stream=True) as answer:
                status, asked = answer.status_code, answer.headers.get("Retry-After", "")
                if status not in _PASSING:
                    data = answer.raw.read(_MOST_BYTES + 1, decode_content=True)
        except (requests.RequestException, OSError):  # whose text has the key
            status = 0
        if data is not None:
            return _understand(status, data, name, may_be_missing=may_be_missing)
        attempt += 1
        pause = float(asked) if asked.isdecimal() else 0.1 * 2**attempt
        if attempt == _ATTEMPTS or pause > _MOST_WAIT_SECONDS:
            if status == 429:
                raise CatalogueBusyError(f"OpenML was asked too often for {name}: retry later")
            raise CatalogueUnavailableError(f"OpenML did not answer for {name}: check the network, then retry")
        time.sleep(pause)


def _understand(status: int, data: bytes, name: str, *, may_be_missing: bool) -> dict[str, Any]:
    try:
        answer = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        answer = None
    if status == 200 and isinstance(answer, dict):
        return answer
    code = str(answer.get("error", {}).get("code", "")) if isinstance(answer, dict) else ""
    if code in _UNKNOWN or status == 404:
        if may_be_missing:
            return {}
        raise DatasetNotFoundError(f"OpenML has no dataset {name}: look for its number at https://www.openml.org")
    if code in _REFUSED or status in (401, 403):
        raise CatalogueAccessError(f"OpenML refuses {name} to this user: set OPENML_APIKEY to the key of a user who may read it")
    raise CatalogueError(f"OpenML's answer for {name} is of no form that it documents (status {status}): update this package")


def field_of(answer: Any, name: str, dataset: str) -> Any:
    """A field of an answer.

    Raises:
        CatalogueError: it is missing.
    """
    if not isinstance(answer, dict) or name not in answer:
        raise CatalogueError(f"OpenML's answer for {dataset} has no {name!r}, which it documents: update this package")
    return answer[name]
