"""Requests to OpenML's API, version 1, as JSON: https://www.openml.org/apis.

The JSON is converted from XML: a list of one entry may be the entry, and a number a text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from data_stack.exception import CatalogueAccessError, CatalogueError, DatasetNotFoundError
from data_stack.io.web import WebError, ask_json, follow

_SERVER: Final = "https://www.openml.org/api/v1"

# Codes of errors: https://github.com/openml/OpenML/wiki/API-v1
_UNKNOWN_CODES: Final = frozenset(("111", "273", "372", "373"))
_REFUSED_CODES: Final = frozenset(("112", "274"))

# The parts of answers that are used, see data_stack.io.web.ask_json.
_NUMBER: Final = (int, str)
_TEXTS: Final = (str, [str])
_DESCRIPTION: Final = {
    "id": _NUMBER,
    "version": _NUMBER,
    "url": str,
    "name?": str,
    "description?": object,
    "format?": str,
    "licence?": str,
    "citation?": object,
    "md5_checksum?": str,
    "default_target_attribute?": _TEXTS,
    "row_id_attribute?": _TEXTS,
    "ignore_attribute?": _TEXTS,
}
_FEATURE: Final = {
    "name": str,
    "data_type?": str,
    "nominal_value?": _TEXTS,
    "is_ignore?": str,
    "is_row_identifier?": str,
}
_LISTED_DATASET: Final = {"did": _NUMBER, "name": str, "version": _NUMBER, "status?": str}


def server() -> str:
    """Return the URL of the API: ``OPENML_SERVER``, or that of openml.org."""
    url = os.environ.get("OPENML_SERVER") or _SERVER
    return url.rstrip("/")


def describe_dataset(number: str, name: str) -> Mapping[str, Any]:
    """Return the description of a dataset.

    Args:
        number: number of the dataset.
        name: the user's name of it, for errors.

    Raises:
        DatasetNotFoundError: the dataset does not exist.
        CatalogueAccessError: the dataset is private.
        CatalogueError: OpenML does not answer, or not as documented.
    """
    shape = {"data_set_description": _DESCRIPTION}
    description: Mapping[str, Any] = _request_api(f"data/{number}", name, shape)[
        "data_set_description"
    ]
    return description


def list_features(number: str, name: str) -> list[Mapping[str, Any]]:
    """Return the features of a dataset, in the order of its file.

    The arguments and the errors are those of :func:`describe_dataset`.
    """
    shape = {"data_features": {"feature": ([_FEATURE], _FEATURE)}}
    answer = _request_api(f"data/features/{number}", name, shape)
    return as_list(answer["data_features"]["feature"])


def find_datasets(name: str, limit: int, version: str | None = None) -> list[Mapping[str, Any]]:
    """Return the active datasets of exactly this name; the API has no other search.

    Args:
        name: the name.
        limit: maximum number of datasets.
        version: the version to find; None for all.

    Raises:
        CatalogueAccessError: OpenML refuses the key of the user.
        CatalogueError: OpenML does not answer, or not as documented.
    """
    path = f"data/list/data_name/{name}/limit/{limit}/status/active"
    if version is not None:
        path += f"/data_version/{version}"
    shape = {"data": {"dataset": [_LISTED_DATASET]}}
    try:
        answer = _request_api(path, f"openml:{name}", shape)
    except DatasetNotFoundError:
        return []
    datasets: list[Mapping[str, Any]] = answer["data"]["dataset"]
    return datasets


def file_url(url: str, name: str) -> str:
    """Check and return the URL of a file in a description.

    Raises:
        CatalogueError: the URL is one to which a server must not lead, such as that of a local
            file.
    """
    try:
        return follow(server(), url)
    except WebError as error:
        raise CatalogueError(
            f"OpenML's description of {name} {error.reason}: report it at https://www.openml.org"
        ) from None


def as_list(entries: Any) -> list[Any]:
    """Return entries as a list; a single entry is not a list in the answers."""
    if isinstance(entries, list):
        return entries
    return [entries]


def _request_api(path: str, name: str, shape: Any) -> Any:
    """Return the answer to a request, checked against a shape.

    Raises:
        DatasetNotFoundError: the dataset does not exist.
        CatalogueAccessError: it is private.
        CatalogueBusyError, CatalogueUnavailableError, CatalogueError: as for
            :func:`~data_stack.io.web.ask_json`.
    """
    params = {}
    key = os.environ.get("OPENML_APIKEY")
    if key:
        params["api_key"] = key
    url = f"{server()}/json/{quote(path)}"
    answer = ask_json(url, shape, server="OpenML", subject=name, params=params)
    if answer.status == 200:
        return answer.value

    code = _error_code_of(answer.value)
    if code in _UNKNOWN_CODES or answer.status == 404:
        raise DatasetNotFoundError(
            f"OpenML has no dataset {name}: look for its number at https://www.openml.org"
        )
    if code in _REFUSED_CODES or answer.status in (401, 403):
        raise CatalogueAccessError(
            f"OpenML refuses {name} to this user: set OPENML_APIKEY to the key of a user with "
            f"access"
        )
    raise CatalogueError(
        f"OpenML answered for {name} with the undocumented status {answer.status}: update this "
        f"package"
    )


def _error_code_of(answer: Any) -> str:
    """Return the code of an error; empty for answers without one."""
    if not isinstance(answer, dict):
        return ""
    error = answer.get("error")
    if not isinstance(error, dict):
        return ""
    return str(error.get("code"))
