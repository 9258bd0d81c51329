"""Requests to OpenML's API, version 1, as JSON."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import quote

from data_stack.exception import CatalogueAccessError, CatalogueError, DatasetNotFoundError
from data_stack.io.web_api import ask_json

_SERVER: Final = "https://www.openml.org/api/v1"
#: Of errors: https://github.com/openml/OpenML/wiki/API-v1
_UNKNOWN, _REFUSED = {"111", "273", "372", "373"}, {"112", "274"}


def ask(path: str, name: str, *, may_be_missing: bool = False) -> dict[str, Any]:
    """The answer to a request, an object; empty if nothing is there, and that may be.

    Raises:
        DatasetNotFoundError: there is no such dataset. CatalogueAccessError: it is private.
        CatalogueBusyError, CatalogueUnavailableError: as :func:`~data_stack.io.web_api.ask_json`.
        CatalogueError: its answer has another form than is documented.
    """
    url = f"{(os.environ.get('OPENML_SERVER') or _SERVER).rstrip('/')}/json/{quote(path)}"
    key = {"api_key": os.environ["OPENML_APIKEY"]} if os.environ.get("OPENML_APIKEY") else None
    status, answer = ask_json(url, f"OpenML for {name}", params=key)
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
