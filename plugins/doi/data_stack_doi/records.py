"""Lists the files of a record by the documented APIs of Zenodo, figshare and Dataverse."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from data_stack.exception import (
    CatalogueAccessError,
    CatalogueError,
    CatalogueUnavailableError,
    DatasetNotFoundError,
)
from data_stack.io.retriever import is_offline
from data_stack.io.web import Exchange, WebError, ask_json, follow, retrying, web_timeout

_DOI: Final = re.compile(r"10\.\d{4,9}/[-._;()/:A-Za-z0-9]+", re.ASCII)
_MAX_REDIRECTS: Final = 10
#: Lengths of digests in hexadecimal digits, by hashlib's names.
_ALGORITHMS: Final = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
_FILE: Final = {"key": str, "links": {"self": str}, "size": int, "checksum?": str}
_ZENODO: Final = {
    "metadata": {"title": str, "license?": {"id?": str}, "access_right?": str},
    "access?": {"files?": str},
    "files?": [_FILE],
}
_FIGSHARE: Final = {
    "title": str,
    "license?": {"name?": str},
    "is_embargoed?": bool,
    "is_confidential?": bool,
    "files": [
        {"name": str, "download_url": str, "size": int, "computed_md5?": str, "supplied_md5?": str}
    ],
}
_DATA_FILE: Final = {
    "id": int,
    "filesize": int,
    "md5?": str,
    "checksum?": {"type": str, "value": str},
    "originalFileName?": str,
    "originalFileSize?": int,
}
_DATAVERSE: Final = {
    "data": {
        "latestVersion": {
            "metadataBlocks": {"citation": {"fields": [{"typeName": str, "value": object}]}},
            "license?": ({"name?": str}, str),
            "files": [
                {"label": str, "directoryLabel?": str, "restricted?": bool, "dataFile": _DATA_FILE}
            ],
        }
    }
}


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of a record.

    Attributes:
        name: the author's name of the file, with its folders.
        url: URL of the file.
        size: size in bytes; None if the repository does not state it.
        algorithm: ``"md5"``, ``"sha1"``, ``"sha256"`` or ``"sha512"``; None if the repository states no digest.
        digest: hexadecimal digest; None likewise.
        listed_as: another name that the repository shows, such as ``table.tab`` for ``table.csv``; or empty.
    """

    name: str
    url: str
    size: int | None
    algorithm: str | None
    digest: str | None
    listed_as: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The answer of a repository for a DOI.

    Attributes:
        title: title, one line.
        license: license as the repository states it; or None.
        files: public files, in the order of the listing.
        restricted: names of the other files.
    """

    title: str
    license: str | None
    files: tuple[RecordFile, ...]
    restricted: tuple[str, ...] = ()

    def find(self, name: str) -> RecordFile | None:
        """Return the file of a name, which may be percent-encoded; None if it does not exist.

        Raises:
            CatalogueAccessError: the file is restricted.
        """
        for wanted in (name, unquote(name)):
            for file in self.files:
                if wanted in (file.name, file.listed_as):
                    return file
            if wanted in self.restricted:
                raise CatalogueAccessError(
                    f"the file {wanted!r:.200} is restricted: ask its authors for access"
                )
        return None

    def describe_files(self) -> str:
        """Return the names of the files, as written after ``#``."""
        return ", ".join(quote(file.name, safe=" /()+,;=!$&':") for file in self.files) or "none"


def find_record(doi: str) -> Record:
    """Return the record of a DOI.

    Raises:
        DatasetNotFoundError: the DOI does not exist, or its repository does not have the record.
        CatalogueAccessError: all files are restricted.
        CatalogueBusyError, CatalogueUnavailableError: as for :func:`~data_stack.io.web.ask_json`.
        CatalogueError: the repository is not supported, or its answer does not follow its documentation.
    """
    if not _DOI.fullmatch(doi):
        raise DatasetNotFoundError(
            f"expected a DOI such as 10.5281/zenodo.4924875, got {doi!r:.80}"
        )
    page = _resolve(doi)
    parts = urlsplit(page)
    origin = f"{parts.scheme}://{parts.netloc}"
    if match := re.search(r"/records?/(\d+)", parts.path):
        return _ask(doi, f"{origin}/api/records/{match[1]}", _ZENODO, _of_zenodo)
    if match := re.search(r"/articles/(?:[^/]+/)*?(\d+)(?:/(\d+))?/?$", parts.path):
        api = (os.environ.get("FIGSHARE_API") or "https://api.figshare.com/v2").rstrip("/")
        url = f"{api}/articles/{match[1]}" + (f"/versions/{match[2]}" if match[2] else "")
        return _ask(doi, url, _FIGSHARE, _of_figshare)
    if "persistentId=" in parts.query:
        url = f"{origin}/api/datasets/:persistentId/?persistentId=doi:{doi}"
        return _ask(doi, url, _DATAVERSE, lambda answer: _of_dataverse(answer, origin))
    raise CatalogueError(
        f"doi:{doi} leads to {parts.netloc}, expected Zenodo, figshare or a Dataverse: download its files"
    )


def _resolve(doi: str) -> str:
    """Return the URL of the page that a DOI leads to."""
    if is_offline():
        raise CatalogueUnavailableError(f"cannot resolve doi:{doi}: DATA_STACK_OFFLINE is set")
    url = f"{(os.environ.get('DOI_RESOLVER') or 'https://doi.org').rstrip('/')}/{doi}"

    def attempt(deadline: float) -> tuple[int, str]:
        exchange = Exchange(url, max_redirects=_MAX_REDIRECTS, deadline=deadline)
        try:
            with exchange:
                return exchange.status, exchange.url
        except WebError as error:
            if error.status is None or not exchange.redirects:
                raise
            return error.status, exchange.url  # the page may refuse programs, but its API does not

    try:
        status, page = retrying(attempt, deadline=time.monotonic() + web_timeout() + 60.0)
    except WebError as error:
        if error.transient:
            raise CatalogueUnavailableError(
                f"doi:{doi} could not be resolved ({error.reason}): check the network, then retry"
            ) from None
        raise CatalogueError(f"doi:{doi} {error.reason}: download its files") from None
    if status == 404:
        raise DatasetNotFoundError(f"the DOI {doi} does not exist: check it")
    return page


def _ask(doi: str, url: str, shape: Any, understand: Callable[[Any], Record]) -> Record:
    host = urlsplit(url).netloc
    answer = ask_json(url, shape, server=host, subject=f"doi:{doi}")
    if answer.status in (404, 410):
        raise DatasetNotFoundError(
            f"the repository of doi:{doi} does not have the record, or has removed it"
        )
    if answer.status == 200:
        record = understand(answer.value)
        if record.files or not record.restricted:
            try:
                return replace(
                    record,
                    files=tuple(replace(each, url=follow(url, each.url)) for each in record.files),
                )
            except WebError as error:
                raise CatalogueError(
                    f"{host} lists a file of doi:{doi} that {error.reason}: download it"
                ) from None
    if answer.status in (200, 401, 403):
        raise CatalogueAccessError(
            f"the files of doi:{doi} are restricted: ask its authors for access"
        )
    raise CatalogueError(
        f"{host} answered for doi:{doi} with the undocumented status {answer.status}: update this package"
    )


def _of_zenodo(answer: Mapping[str, Any]) -> Record:
    metadata, access = answer["metadata"], answer.get("access") or {}
    files = [
        RecordFile(
            each["key"],
            each["links"]["self"],
            each["size"],
            *_digest(*(each.get("checksum") or "").partition(":")[::2]),
        )
        for each in answer.get("files") or ()
    ]
    is_restricted = access.get("files") == "restricted" or metadata.get("access_right") in (
        "restricted",
        "embargoed",
        "closed",
    )
    license_name = (metadata.get("license") or {}).get("id")
    return Record(
        metadata["title"],
        license_name,
        tuple(files),
        ("all",) if is_restricted and not files else (),
    )


def _of_figshare(answer: Mapping[str, Any]) -> Record:
    files = [
        RecordFile(
            each["name"],
            each["download_url"],
            each["size"],
            *_digest("md5", each.get("computed_md5") or each.get("supplied_md5")),
        )
        for each in answer["files"]
    ]
    is_restricted = not files and (answer.get("is_embargoed") or answer.get("is_confidential"))
    license_name = (answer.get("license") or {}).get("name")
    return Record(answer["title"], license_name, tuple(files), ("all",) if is_restricted else ())


def _of_dataverse(answer: Mapping[str, Any], origin: str) -> Record:
    version = answer["data"]["latestVersion"]
    files, restricted = list[RecordFile](), list[str]()
    for each in version["files"]:
        data, folder = (
            each["dataFile"],
            f"{each['directoryLabel']}/" if each.get("directoryLabel") else "",
        )
        # A Dataverse serves its own version of tables by default, but lists the digest of the author's file.
        original = data.get("originalFileName")
        name, size = (
            (original, data.get("originalFileSize"))
            if original
            else (each["label"], data["filesize"])
        )
        if each.get("restricted"):
            restricted.append(folder + name)
            continue
        url = f"{origin}/api/access/datafile/{data['id']}" + (
            "?format=original" if original else ""
        )
        checksum = data.get("checksum") or {"type": "md5", "value": data.get("md5")}
        files.append(
            RecordFile(
                folder + name,
                url,
                size,
                *_digest(checksum["type"], checksum["value"]),
                folder + each["label"],
            )
        )
    fields = version["metadataBlocks"]["citation"]["fields"]
    title = next((str(field["value"]) for field in fields if field["typeName"] == "title"), "")
    license_name = version.get("license")
    if isinstance(license_name, dict):
        license_name = license_name.get("name")
    return Record(title, license_name, tuple(files), tuple(restricted))


def _digest(algorithm: str, digest: str | None) -> tuple[str | None, str | None]:
    """Return a listed digest with hashlib's name of the algorithm; two None if it is invalid."""
    name = algorithm.lower().replace("-", "")
    is_one = re.fullmatch(r"[0-9a-fA-F]+", digest or "") is not None and len(
        digest or ""
    ) == _ALGORITHMS.get(name)
    return (name, str(digest).lower()) if is_one else (None, None)
