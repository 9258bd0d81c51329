"""Requests to the API of the Hub, https://huggingface.co/docs/hub/api.

Tokens, proxies and certificates are those of huggingface_hub.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from data_stack import exception
from data_stack.io.web import ask_json

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo

#: What a user without permission can do.
LOG_IN: Final = "log in with `hf auth login`, or set HF_TOKEN"

_REPO_NAME: Final = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)

# The parts of answers that are used, see data_stack.io.web.ask_json.
_LISTED_DATASET: Final = {"id": str, "cardData?": {}, "description?": str, "mainSize?": int}
_LARGE_FILE: Final = {"sha256": str, "size": int}
_FILE: Final = {"rfilename": str, "size?": int, "blobId?": str, "lfs?": _LARGE_FILE}
_DATASET: Final = {**_LISTED_DATASET, "sha": str, "siblings?": [_FILE]}
_REFS: Final = {"converts?": [{"name": str, "targetCommit": str}]}


def endpoint() -> str:
    """Return the URL of the Hub: ``HF_ENDPOINT``, or huggingface.co."""
    url = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    return url.rstrip("/")


def own_headers() -> dict[str, str]:
    """Return the headers that huggingface_hub sends to the Hub, with the user's token."""
    # mypy: huggingface_hub does not mark it as exported.
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    return build_hf_headers()


def dataset_info(repo: str, revision: str) -> DatasetInfo:
    """Return a dataset at a revision, with its files.

    Args:
        repo: owner and name of the dataset.
        revision: a branch, tag or commit.

    Raises:
        DatasetNotFoundError: the dataset does not exist, or is private.
        RevisionNotFoundError: the dataset does not have the revision.
        CatalogueAccessError: the dataset is gated or disabled.
        CatalogueError: the Hub does not answer, or not as documented.
    """
    _check_name(repo)
    path = f"/{repo}/revision/{quote(revision, safe='')}"
    return _make_dataset_info(_request_api(repo, path, _DATASET, {"blobs": "true"}))


def converted_commit(repo: str) -> str | None:
    """Return the commit of a dataset's Parquet files that the Hub has converted.

    Returns:
        The commit; None if there are no such files.

    Raises:
        DatasetNotFoundError: the dataset does not exist, or is private.
        CatalogueAccessError: the dataset is gated or disabled.
        CatalogueError: the Hub does not answer, or not as documented.
    """
    _check_name(repo)
    refs = _request_api(repo, f"/{repo}/refs", _REFS, {})
    for ref in refs.get("converts") or ():
        if ref["name"] == "parquet":
            commit: str = ref["targetCommit"]
            return commit
    return None


def find_datasets(text: str, limit: int) -> list[DatasetInfo]:
    """Return datasets whose names contain a text.

    Args:
        text: a part of the name.
        limit: maximum number of datasets.

    Returns:
        The datasets, with the size of their main files in bytes as ``main_size``.

    Raises:
        CatalogueError: the Hub does not answer, or not as documented.
    """
    params = {"search": text, "limit": limit, "expand": ["cardData", "description", "mainSize"]}
    answer = _request_api(text, "", [_LISTED_DATASET], params)
    return [_make_dataset_info(fields) for fields in answer[:limit]]


def explain_refusal(repo: str, status: int, headers: Mapping[str, str]) -> exception.DataStackError:
    """Return the error for an answer that is not what was asked for.

    https://github.com/huggingface/huggingface_hub lists the codes of the Hub.

    Args:
        repo: owner and name of the dataset.
        status: status of the answer.
        headers: headers of the answer.
    """
    name = f"hf:{repo}"
    code = headers.get("X-Error-Code", "")
    message = headers.get("X-Error-Message", "")
    if code == "GatedRepo" or message == "Access to this resource is disabled.":
        page = f"https://huggingface.co/datasets/{repo}"
        return exception.CatalogueAccessError(
            f"{name} is gated or disabled: accept its terms at {page}, then {LOG_IN}"
        )
    if code in ("RevisionNotFound", "EntryNotFound"):
        return exception.RevisionNotFoundError(
            f"the Hub does not have this revision or file of {name}, or has removed it: "
            "choose another"
        )
    if code == "RepoNotFound":
        return _make_not_found_error(repo)
    if status in (401, 403):
        return exception.CatalogueAccessError(
            f"the Hub refuses {name} to this user (status {status}): {LOG_IN}"
        )
    return exception.CatalogueError(
        f"the Hub answered for {name} with the undocumented status {status}: update this package"
    )


def _make_not_found_error(repo: str) -> exception.DatasetNotFoundError:
    """Return the error for a dataset that does not exist, as far as the Hub tells this user."""
    return exception.DatasetNotFoundError(
        f"the Hub has no dataset hf:{repo}, or it is private: check the name, or {LOG_IN}"
    )


def _check_name(repo: str) -> None:
    """Check that a name can be a part of a URL.

    Raises:
        DatasetNotFoundError: it cannot.
    """
    if _REPO_NAME.fullmatch(repo) is None:
        raise _make_not_found_error(repo)


def _request_api(repo: str, path: str, shape: Any, params: Mapping[str, Any]) -> Any:
    """Return the answer of the API, checked against a shape.

    Raises:
        DatasetNotFoundError: the dataset does not exist.
        RevisionNotFoundError: the revision or file does not exist.
        CatalogueAccessError: the dataset is gated or disabled.
        CatalogueBusyError: the Hub requests a pause of more than a minute.
        CatalogueUnavailableError: the Hub does not answer, or the network is down.
        CatalogueError: the answer does not follow the Hub's documentation.
    """
    answer = ask_json(
        f"{endpoint()}/api/datasets{path}",
        shape,
        server="the Hub",
        subject=f"hf:{repo}",
        params=params,
        own_headers=own_headers(),
    )
    if answer.status != 200:
        raise explain_refusal(repo, answer.status, answer.headers)
    return answer.value


def _make_dataset_info(fields: Mapping[str, Any]) -> DatasetInfo:
    """Return the fields of an answer as huggingface_hub's object."""
    from huggingface_hub import DatasetInfo  # here, as importing it takes a second

    return DatasetInfo(**fields)  # type: ignore[no-untyped-call]  # untyped in huggingface_hub
