"""Requests to OpenML's API, version 1, as JSON."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import quote

from data_stack.exception import CatalogueAccessError, CatalogueError, DatasetNotFoundError
from data_stack.io.web import WebError, ask_json, follow

_SERVER: Final = "https://www.openml.org/api/v1"
#: Of errors: https://github.com/openml/OpenML/wiki/API-v1
_UNKNOWN, _REFUSED = {"111", "273", "372", "373"}, {"112", "274"}


def server() -> str:
    """Return the URL of the API: ``OPENML_SERVER``, or that of openml.org."""
    return (os.environ.get("OPENML_SERVER") or _SERVER).rstrip("/")


def ask(path: str, name: str, shape: Any, *, may_be_missing: bool = False) -> Any:
    """Return the answer to a request, checked against a shape; None if it is missing and may be.

    Raises:
        DatasetNotFoundError: the dataset does not exist. CatalogueAccessError: it is private.
        CatalogueBusyError, CatalogueUnavailableError, CatalogueError: as for :func:`~data_stack.io.web.ask_json`.
    """
    key = {"api_key": os.environ["OPENML_APIKEY"]} if os.environ.get("OPENML_APIKEY") else {}
    answer = ask_json(
        f"{server()}/json/{quote(path)}", shape, server="OpenML", subject=name, params=key
    )
    if answer.status == 200:
        return answer.value
    error = answer.value.get("error") if isinstance(answer.value, dict) else None
    code = str(error.get("code")) if isinstance(error, dict) else ""
    if code in _UNKNOWN or answer.status == 404:
        if may_be_missing:
            return None
        raise DatasetNotFoundError(
            f"OpenML has no dataset {name}: look for its number at https://www.openml.org"
        )
    if code in _REFUSED or answer.status in (401, 403):
        raise CatalogueAccessError(
            f"OpenML refuses {name} to this user: set OPENML_APIKEY to the key of a user with access"
        )
    raise CatalogueError(
        f"OpenML answered for {name} with the undocumented status {answer.status}: update this package"
    )


def file_url(url: str, name: str) -> str:
    """Check and return the URL of a file in a description.

    Raises:
        CatalogueError: the server may not lead to this URL.
    """
    try:
        return follow(server(), url)
    except WebError as error:
        raise CatalogueError(
            f"OpenML's description of {name} {error.reason}: report it at https://www.openml.org"
        ) from None
