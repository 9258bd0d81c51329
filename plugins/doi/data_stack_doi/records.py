"""The files of a record, by the documented APIs of Zenodo, figshare and Dataverse."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests

from data_stack.exception import CatalogueAccessError, CatalogueError, CatalogueUnavailableError, DatasetNotFoundError
from data_stack.io.retriever import is_offline
from data_stack.io.web_api import ask_json

_DOI: Final = re.compile(r"10\.\d{4,9}/[-._;()/:A-Za-z0-9]+", re.ASCII)
_MOST_REDIRECTS: Final = 10


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of a record.

    Attributes:
        name: as the repository calls it.
        url: where it is.
        size: in bytes; None if the repository does not say.
        md5: 32 hex digits; None likewise.
    """

    name: str
    url: str
    size: int | None
    md5: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """What a repository says of a DOI.

    Attributes:
        title: a line.
        licence: as the repository says it; None if it does not.
        files: in the order of the listing.
    """

    title: str
    licence: str | None
    files: tuple[RecordFile, ...]


def find_record(doi: str) -> Record:
    """The record behind a DOI.

    Raises:
        DatasetNotFoundError: there is no such DOI, or its repository has no such record.
        CatalogueAccessError: the record is restricted.
        CatalogueBusyError, CatalogueUnavailableError: as :func:`~data_stack.io.web_api.ask_json`.
        CatalogueError: it is of no repository that is known here, or the answer has another form than is documented.
    """
    if not _DOI.fullmatch(doi):
        raise DatasetNotFoundError(f"{doi!r:.80} is no DOI, such as 10.5281/zenodo.4924875")
    page = _resolve(doi)
    parts = urlsplit(page)
    origin = f"{parts.scheme}://{parts.netloc}"
    if match := re.search(r"/records?/(\d+)", parts.path):
        return _understood(doi, f"{origin}/api/records/{match[1]}", _of_zenodo)
    if match := re.search(r"/articles/(?:[^/]+/)*?(\d+)(?:/(\d+))?/?$", parts.path):
        api = (os.environ.get("FIGSHARE_API") or "https://api.figshare.com/v2").rstrip("/")
        return _understood(doi, f"{api}/articles/{match[1]}" + (f"/versions/{match[2]}" if match[2] else ""), _of_figshare)
    if "persistentId=" in parts.query:
        url = f"{origin}/api/datasets/:persistentId/?persistentId=doi:{doi}"
        return _understood(doi, url, lambda answer: _of_dataverse(answer, origin))
    raise CatalogueError(f"doi:{doi} is of {parts.netloc}, which is no Zenodo, figshare or Dataverse: download its files")


def _resolve(doi: str) -> str:
    """The page that a DOI leads to, which is not read."""
    if is_offline():
        raise CatalogueUnavailableError(f"doi:{doi} was not resolved, as DATA_STACK_OFFLINE is set")
    url = f"{(os.environ.get('DOI_RESOLVER') or 'https://doi.org').rstrip('/')}/{doi}"
    for _ in range(_MOST_REDIRECTS):
        try:
            with requests.get(url, timeout=30.0, allow_redirects=False, stream=True) as answer:
                status, location = answer.status_code, answer.headers.get("Location")
        except (requests.RequestException, OSError):
            raise CatalogueUnavailableError(f"doi:{doi} could not be resolved: check the network, then retry") from None
        if location is None or status not in (301, 302, 303, 307, 308):
            break
        target = urljoin(url, location)
        if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
            raise CatalogueError(f"doi:{doi} leads away from https: download its files")
        url = target
    if status == 404:
        raise DatasetNotFoundError(f"there is no DOI {doi}")
    return url


def _understood(doi: str, url: str, understand: Any) -> Record:
    status, answer = ask_json(url, f"{urlsplit(url).netloc} for doi:{doi}")
    if status in (401, 403):
        raise CatalogueAccessError(f"doi:{doi} is restricted: ask its authors for the files")
    if status in (404, 410):
        raise DatasetNotFoundError(f"the repository of doi:{doi} has no such record, or not any more")
    host = urlsplit(url).netloc
    try:
        record: Record = understand(answer)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"the answer of {host} for doi:{doi} is of no form that it documents ({error!r:.100})"
        raise CatalogueError(f"{problem}: update this package") from None
    if url.startswith("https:") and not all(file.url.startswith("https:") for file in record.files):
        raise CatalogueError(f"{host} lists files of doi:{doi} that are not served by https: download them")
    return record


def _of_zenodo(answer: Mapping[str, Any]) -> Record:
    metadata = answer["metadata"]
    files = [
        RecordFile(
            each["key"], each["links"]["self"], int(each["size"]), _md5(str(each.get("checksum", "")).removeprefix("md5:"))
        )
        for each in answer["files"]
    ]
    return _record(metadata["title"], (metadata.get("license") or {}).get("id"), files)


def _of_figshare(answer: Mapping[str, Any]) -> Record:
    files = [
        RecordFile(
            each["name"], each["download_url"], int(each["size"]), _md5(each.get("computed_md5") or each.get("supplied_md5"))
        )
        for each in answer["files"]
    ]
    return _record(answer["title"], (answer.get("license") or {}).get("name"), files)


def _of_dataverse(answer: Mapping[str, Any], origin: str) -> Record:
    version = answer["data"]["latestVersion"]
    fields = version["metadataBlocks"]["citation"]["fields"]
    listed = [(each["label"], each["dataFile"]) for each in version["files"]]
    files = [
        RecordFile(name, f"{origin}/api/access/datafile/{int(data['id'])}", int(data["filesize"]), _md5(data.get("md5")))
        for name, data in listed
    ]
    title = next(field["value"] for field in fields if field["typeName"] == "title")
    return _record(title, (version.get("license") or {}).get("name"), files)


def _record(title: str, licence: str | None, files: Iterable[RecordFile]) -> Record:
    listed = tuple(files)
    if not all(file.name and file.url.startswith(("https://", "http://")) for file in listed):
        raise ValueError("a file without name or URL")
    return Record(str(title), str(licence) if licence else None, listed)


def _md5(text: Any) -> str | None:
    return text if isinstance(text, str) and re.fullmatch("[0-9a-f]{32}", text) else None
