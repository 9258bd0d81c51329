"""Finds the record of a DOI: resolves the DOI, then asks the repository that it leads to."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from data_stack.exception import (
    CatalogueAccessError,
    CatalogueError,
    CatalogueUnavailableError,
    DatasetNotFoundError,
)
from data_stack.io.retriever import is_offline
from data_stack.io.web import Exchange, WebError, ask_json, follow, retrying, web_timeout
from data_stack_doi import dataverse, figshare, zenodo
from data_stack_doi.records import Record

_DOI: Final = re.compile(r"10\.\d{4,9}/[-._;()/:A-Za-z0-9]+", re.ASCII)

# Paths of the pages that DOIs lead to.
_ZENODO_PATH: Final = re.compile(r"/records?/(\d+)")
_FIGSHARE_PATH: Final = re.compile(r"/articles/(?:[^/]+/)*?(\d+)(?:/(\d+))?/?$")

_MAX_REDIRECTS: Final = 10

#: How long after the timeout of a request the last retry may begin.
_RETRY_SECONDS: Final = 60.0


def find_record(doi: str) -> Record:
    """Return the record of a DOI.

    Raises:
        DatasetNotFoundError: the DOI does not exist, or its repository does not have the record.
        CatalogueAccessError: all files are restricted.
        CatalogueBusyError, CatalogueUnavailableError: as for :func:`~data_stack.io.web.ask_json`.
        CatalogueError: the repository is not supported, or its answer does not follow its
            documentation.
    """
    if not _DOI.fullmatch(doi):
        raise DatasetNotFoundError(
            f"expected a DOI such as 10.5281/zenodo.4924875, got {doi!r:.80}"
        )
    page = urlsplit(_resolve(doi))
    origin = f"{page.scheme}://{page.netloc}"

    zenodo_path = _ZENODO_PATH.search(page.path)
    if zenodo_path is not None:
        url = f"{origin}/api/records/{zenodo_path[1]}"
        return _request_record(doi, url, zenodo.SHAPE, zenodo.parse_record)

    figshare_path = _FIGSHARE_PATH.search(page.path)
    if figshare_path is not None:
        article, version = figshare_path.groups()
        url = f"{_figshare_api()}/articles/{article}"
        if version:
            url += f"/versions/{version}"
        return _request_record(doi, url, figshare.SHAPE, figshare.parse_record)

    if "persistentId=" in page.query:
        url = f"{origin}/api/datasets/:persistentId/?persistentId=doi:{doi}"
        return _request_record(
            doi, url, dataverse.SHAPE, partial(dataverse.parse_record, origin=origin)
        )

    raise CatalogueError(
        f"doi:{doi} leads to {page.netloc}, expected Zenodo, figshare or a Dataverse: download its "
        f"files"
    )


def _figshare_api() -> str:
    """Return the URL of figshare's API, which is not on the host of its pages."""
    url = os.environ.get("FIGSHARE_API") or "https://api.figshare.com/v2"
    return url.rstrip("/")


def _resolve(doi: str) -> str:
    """Return the URL of the page that a DOI leads to.

    Raises:
        DatasetNotFoundError: the DOI does not exist.
        CatalogueUnavailableError: the resolver or the page did not answer; a retry may help.
        CatalogueError: the resolver or the page refused the request.
    """
    if is_offline():
        raise CatalogueUnavailableError(f"cannot resolve doi:{doi}: DATA_STACK_OFFLINE is set")
    resolver = os.environ.get("DOI_RESOLVER") or "https://doi.org"
    url = f"{resolver.rstrip('/')}/{doi}"

    def attempt(deadline: float) -> tuple[int, str]:
        """Return the status and the URL of the page."""
        exchange = Exchange(url, max_redirects=_MAX_REDIRECTS, deadline=deadline)
        try:
            with exchange:
                return exchange.status, exchange.url
        except WebError as error:
            if error.status is None or not exchange.redirects:
                raise
            # The page may refuse programs, but its API does not.
            return error.status, exchange.url

    deadline = time.monotonic() + web_timeout() + _RETRY_SECONDS
    try:
        status, page = retrying(attempt, deadline=deadline)
    except WebError as error:
        if error.transient:
            raise CatalogueUnavailableError(
                f"doi:{doi} could not be resolved ({error.reason}): check the network, then retry"
            ) from None
        raise CatalogueError(f"doi:{doi} {error.reason}: download its files") from None
    if status == 404:
        raise DatasetNotFoundError(f"the DOI {doi} does not exist: check it")
    return page


def _request_record(
    doi: str, url: str, shape: Any, parse_record: Callable[[Any], Record]
) -> Record:
    """Return the record that a repository describes.

    Args:
        doi: the DOI.
        url: URL of the description.
        shape: the parts of the description that are used, see :func:`~data_stack.io.web.ask_json`.
        parse_record: makes a record of the description.

    Raises:
        DatasetNotFoundError: the repository does not have the record.
        CatalogueAccessError: all files are restricted.
        CatalogueError: the repository does not answer, or not as documented.
    """
    host = urlsplit(url).netloc
    answer = ask_json(url, shape, server=host, subject=f"doi:{doi}")
    if answer.status in (404, 410):
        raise DatasetNotFoundError(
            f"the repository of doi:{doi} does not have the record, or has removed it"
        )
    if answer.status in (401, 403):
        raise _make_access_error(doi)
    if answer.status != 200:
        raise CatalogueError(
            f"{host} answered for doi:{doi} with the undocumented status {answer.status}: "
            "update this package"
        )

    record = parse_record(answer.value)
    if record.restricted and not record.files:
        raise _make_access_error(doi)
    return _check_urls(record, url, doi)


def _make_access_error(doi: str) -> CatalogueAccessError:
    """Return the error for a record whose files are all restricted."""
    return CatalogueAccessError(
        f"the files of doi:{doi} are restricted: ask its authors for access"
    )


def _check_urls(record: Record, api_url: str, doi: str) -> Record:
    """Check that a repository may lead to the URLs of its files; return them as absolute ones.

    Raises:
        CatalogueError: the URL of a file is one to which a server must not lead, such as that of a
            local file.
    """
    try:
        files = [replace(file, url=follow(api_url, file.url)) for file in record.files]
    except WebError as error:
        host = urlsplit(api_url).netloc
        raise CatalogueError(
            f"{host} lists a file of doi:{doi} that {error.reason}: download it"
        ) from None
    return replace(record, files=tuple(files))
