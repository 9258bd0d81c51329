"""Files of the Hub: its errors as ours, pauses that it asks for, and bytes that are what its listing says.

The API is that of https://huggingface.co/docs/hub/api; tokens, proxies and certificates are those of huggingface_hub.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urljoin, urlsplit

import huggingface_hub
from huggingface_hub import errors
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]  # not marked so

from data_stack import ResourceDefinition, StorageConnector, StreamedResource, exception
from data_stack.io.retriever import SourceError, Transfer, is_offline
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks

_ATTEMPTS = 4
#: A pause that the Hub asks for is waited up to so long.
_MOST_WAIT_SECONDS = 60.0
_TIMEOUT_SECONDS = 30.0
#: A file is retrieved in requests that grow up to this size.
_REQUEST_BYTES = 32 << 20
_BLOCK_BYTES = 1 << 16
#: The Hub wants larger files than 10 MB to be in its large file storage.
_MOST_GIT_BYTES = 64 << 20
_SOURCE = re.compile(r"hf://datasets/([^@?]+)@([0-9a-f]{40})/([^?]+)\?etag=([0-9a-f]{40}|[0-9a-f]{64})")
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"

_Answer = TypeVar("_Answer")


def api() -> huggingface_hub.HfApi:
    """The API at ``HF_ENDPOINT``, or at huggingface.co."""
    return huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


def ask(repo: str, request: Callable[[], _Answer]) -> _Answer:
    """The answer to a request about a dataset; repeats it after a pause where that may help.

    Raises:
        DatasetNotFoundError: there is no such dataset; RevisionNotFoundError: no such revision or file of it.
        CatalogueAccessError: it is gated or disabled.
        CatalogueBusyError: the Hub wants a longer pause than a minute.
        CatalogueUnavailableError: the Hub does not answer; there is no network.
        CatalogueError: its answer has another form than is documented.
    """
    if is_offline():
        raise exception.CatalogueUnavailableError(f"the Hub was not asked for hf:{repo}, as DATA_STACK_OFFLINE is set")
    attempt = 0
    while True:
        try:
            return request()
        except exception.DataStackError:
            raise
        except Exception as error:  # noqa: BLE001  # of the HTTP client, which differs between versions of huggingface_hub
            problem, headers = _explain(repo, error), getattr(getattr(error, "response", None), "headers", {})
        attempt += 1
        asked = headers.get("Retry-After") or "".join(re.findall(r";t=(\d+)", headers.get("RateLimit", "")))
        pause = float(asked) if asked.isdigit() else 0.1 * 2**attempt
        if attempt == _ATTEMPTS or pause > _MOST_WAIT_SECONDS or not isinstance(problem, exception.CatalogueUnavailableError):
            raise problem  # without its cause, whose text has signed URLs
        time.sleep(pause)


def _explain(repo: str, error: Exception) -> exception.DataStackError:
    """The error of ours for one of huggingface_hub or its HTTP client."""
    name, status = f"hf:{repo}", getattr(getattr(error, "response", None), "status_code", 0)
    said = f"status {status}" if status else type(error).__name__
    if isinstance(error, (errors.GatedRepoError, errors.DisabledRepoError)):
        page = f"https://huggingface.co/datasets/{repo}"
        return exception.CatalogueAccessError(f"{name} is gated or disabled: accept its terms at {page}, then {_LOG_IN}")
    if isinstance(error, (errors.RepositoryNotFoundError, errors.HFValidationError)):
        return exception.DatasetNotFoundError(f"the Hub has no dataset {name}, or it is private: check the name, or {_LOG_IN}")
    if isinstance(error, (errors.RevisionNotFoundError, errors.EntryNotFoundError)):
        return exception.RevisionNotFoundError(f"the Hub has no such revision or file of {name}, or not any more: choose another")
    if status in (401, 403):
        return exception.CatalogueAccessError(f"the Hub refuses {name} to this user ({said}): {_LOG_IN}")
    if status == 429:
        return exception.CatalogueBusyError(f"the Hub was asked too often for {name}: wait, or {_LOG_IN}, which allows more")
    if status >= 500 or (not status and (isinstance(error, OSError) or type(error).__module__.startswith("httpx"))):
        return exception.CatalogueUnavailableError(f"the Hub did not answer for {name} ({said}): check the network, then retry")
    return exception.CatalogueError(f"the Hub's answer for {name} is of no form that it documents ({said}): update this package")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a dataset at a commit.

    Attributes:
        repo: owner and name of the dataset.
        commit: 40 hex digits.
        path: in the repository.
        size: in bytes.
        etag: its SHA-256, or, of files that Git keeps itself, the SHA-1 of its blob; as the Hub lists it.
    """

    repo: str
    commit: str
    path: str
    size: int
    etag: str

    @property
    def sha256(self) -> str | None:
        """SHA-256 as it is listed; None for a file that Git keeps itself."""
        return self.etag if len(self.etag) == 64 else None

    def define(self, identifier: str) -> ResourceDefinition:
        """The resource of that name in a store."""
        source = f"hf://datasets/{self.repo}@{self.commit}/{quote(self.path)}?etag={self.etag}"
        return ResourceDefinition(identifier, source, sha256=self.sha256, size=self.size)

    def __str__(self) -> str:
        return f"{self.path!r:.200} of hf:{self.repo}@{self.commit}"

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` up to ``stop``, as the Hub has them for this file at this commit.

        Raises:
            ChecksumMismatchError: the Hub has another file there now.
            CatalogueError, DatasetNotFoundError: as for :func:`ask`.
        """
        return ask(self.repo, lambda: self._request(start, stop))

    def read_whole(self) -> bytes:
        """All bytes of a file that Git keeps itself, compared with the SHA-1 of its blob.

        Raises:
            ChecksumMismatchError: they are not those that the Hub lists.
            CatalogueError, DatasetNotFoundError: as for :func:`ask`; or the file is larger than Git may keep.
        """
        if self.size > _MOST_GIT_BYTES:
            raise exception.CatalogueError(f"{self} has {self.size:,} bytes and no SHA-256, so it is not read: tell its owner")
        data = self.read(0, self.size)
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        if blob != self.etag:
            raise exception.ChecksumMismatchError(self.path, str(self), self.etag, blob, "Git blob SHA-1")
        return data

    def _request(self, start: int, stop: int) -> bytes:
        url = f"{api().endpoint}/datasets/{self.repo}/resolve/{self.commit}/{quote(self.path)}"
        headers = build_hf_headers() | {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        etag, session = "", huggingface_hub.get_session()
        for _ in range(5):
            with session.stream("GET", url, headers=headers, follow_redirects=False, timeout=_TIMEOUT_SECONDS) as response:
                hf_raise_for_status(response)
                etag = etag or response.headers.get("X-Linked-Etag", "")
                if not response.has_redirect_location:
                    return self._receive(response, etag or response.headers.get("ETag", ""), start, stop)
            before, url = urlsplit(url), urljoin(url, response.headers["Location"])
            if before.scheme == "https" != urlsplit(url).scheme:
                break
            if before[:2] != urlsplit(url)[:2]:
                headers.pop("authorization", None)  # the token is for the Hub alone
        raise exception.CatalogueError(f"the Hub leads in a circle, or away from https, for {self}; that was not followed")

    def _receive(self, response: Any, etag: str, start: int, stop: int) -> bytes:
        if etag.removeprefix("W/").strip('"') != self.etag:
            raise exception.ChecksumMismatchError(self.path, str(self), self.etag, etag or "none", "ETag")
        is_part = response.headers.get("Content-Range") == f"bytes {start}-{stop - 1}/{self.size}"
        if not (is_part if response.status_code == 206 else (start, stop) == (0, self.size)):
            raise exception.CatalogueError(f"the Hub sent another part of {self} than was asked for: update this package")
        data, deadline = bytearray(), time.monotonic() + _TIMEOUT_SECONDS + (stop - start) / 1024
        for chunk in response.iter_raw():
            data += chunk
            if len(data) > stop - start or time.monotonic() > deadline:
                break
        if len(data) != stop - start:
            raise ConnectionError(f"{len(data)} bytes came where {stop - start} were asked")
        return bytes(data)


def fetch(source: str, transfer: Transfer) -> None:
    """Retrieve a file of the Hub, of the source of its definition.

    Raises:
        SourceError: the source is malformed, or the Hub did not give the file.
    """
    match = _SOURCE.fullmatch(source)
    if match is None:
        raise SourceError("a source on the Hub is hf://datasets/OWNER/NAME@COMMIT/PATH?etag=DIGEST")
    file = HubFile(match[1], match[2], unquote(match[3]), transfer.definition.size or 0, match[4])
    try:
        if file.sha256 is None:
            transfer.write(file.read_whole())
            transfer.is_verified = True  # by the SHA-1 of its blob
            return
        start, stop = 0, min(_BLOCK_BYTES, file.size)
        while start < file.size:
            transfer.write(file.read(start, stop))
            start, stop = stop, min(stop + min(8 * (stop - start), _REQUEST_BYTES), file.size)
    except (exception.CatalogueError, exception.DatasetNotFoundError, exception.ChecksumMismatchError) as error:
        raise SourceError(str(error)) from error


class HubFiles(StorageConnector):
    """Files of the Hub under identifiers, to be read by range; it stores nothing.

    Each answer is of the commit, and of a file with the digest that the Hub lists. A file that Git keeps itself is read whole,
    and compared with its digest.

    Args:
        files: by identifier.
    """

    def __init__(self, files: Mapping[str, HubFile]) -> None:
        self._files = dict(files)

    def get_resource(self, identifier: str, resource_type: Any = None) -> StreamedResource:
        """Open a file as bytes."""
        if identifier not in self._files:
            raise exception.ResourceNotFoundError(identifier, "the Hub")
        return StreamedResource.from_source(identifier, BlockedSource(_FileBlocks(self._files[identifier])), self)

    def has_resource(self, identifier: str) -> bool:
        """Whether there is such a file."""
        return identifier in self._files

    def set_resource(self, identifier: str, resource: Any) -> None:
        """Refused."""
        raise exception.ReadOnlyStorageError(f"{identifier!r:.200} cannot be stored on the Hub: load without lazy=True")


class _FileBlocks(Blocks):
    """Blocks of a file; neighbours are asked for together."""

    ahead_bytes = 0  # readers of Parquet know what they will read

    def __init__(self, file: HubFile) -> None:
        self._file, self.size, self.block_bytes = file, file.size, _BLOCK_BYTES
        self._whole = None if file.sha256 else file.read_whole()
        self.sha256 = hashlib.sha256(self._whole).hexdigest() if self._whole is not None else file.sha256

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Fetch blocks, one request for neighbours."""
        blocks: list[bytes] = []
        for _, neighbours in itertools.groupby(enumerate(numbers), lambda each: each[1] - each[0]):
            run = [number for _, number in neighbours]
            start, stop = run[0] * _BLOCK_BYTES, min((run[-1] + 1) * _BLOCK_BYTES, self.size)
            data = self._file.read(start, stop) if self._whole is None else self._whole[start:stop]
            blocks += [data[at : at + _BLOCK_BYTES] for at in range(0, len(data), _BLOCK_BYTES)]
        return blocks
