"""Requests to the Hub, with verified bytes.

The API is that of https://huggingface.co/docs/hub/api; tokens, proxies and certificates are those of huggingface_hub.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from data_stack import ResourceDefinition, StorageConnector, StreamedResource, exception
from data_stack.io.retriever import Limits, SourceError, Transfer, is_offline
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.io.web import ByteRange, Exchange, WebError, ask, ask_json

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo

#: Pauses that the Hub requests are respected up to a minute.
_LIMITS: Final = Limits(n_retries=3, backoff_seconds=0.2, max_wait_seconds=60.0)
#: Of the requests for a file.
_REQUEST_BYTES: Final = 16 << 20
_BLOCK_BYTES: Final = 1 << 16
#: The Hub requires large file storage for files above 10 MB.
_MAX_GIT_BYTES: Final = 64 << 20
_SOURCE: Final = re.compile(
    r"hf://datasets/([^@?]+)@([0-9a-f]{40})/([^?]+)\?etag=([0-9a-f]{40}|[0-9a-f]{64})"
)
_NAME: Final = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_LOG_IN: Final = "log in with `hf auth login`, or set HF_TOKEN"
_LISTED: Final = {"id": str, "cardData?": {}, "description?": str, "mainSize?": int}
_INFO: Final = {
    **_LISTED,
    "sha": str,
    "siblings?": [
        {"rfilename": str, "size?": int, "blobId?": str, "lfs?": {"sha256": str, "size": int}}
    ],
}


def endpoint() -> str:
    """Return the URL of the Hub: ``HF_ENDPOINT``, or huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def dataset_info(repo: str, revision: str) -> DatasetInfo:
    """Return a dataset at a revision, with its files.

    Raises:
        As for :func:`_ask`.
    """
    return _info_of(
        _ask(
            repo, f"{_checked(repo)}/revision/{quote(revision, safe='')}", _INFO, {"blobs": "true"}
        )
    )


def converted_commits(repo: str) -> list[str]:
    """Return the commit of a dataset's Parquet files converted by the Hub; empty if there is none."""
    refs = _ask(
        repo, f"{_checked(repo)}/refs", {"converts?": [{"name": str, "targetCommit": str}]}, {}
    )
    return [ref["targetCommit"] for ref in refs.get("converts") or () if ref["name"] == "parquet"]


def find_datasets(text: str, limit: int) -> list[DatasetInfo]:
    """Return datasets whose names contain the text, with ``main_size``."""
    params = {"search": text, "limit": limit, "expand": ["cardData", "description", "mainSize"]}
    return [_info_of(each) for each in _ask(text, "", [_LISTED], params)[:limit]]


def _info_of(fields: Mapping[str, Any]) -> DatasetInfo:
    from huggingface_hub import DatasetInfo  # here and below, as importing it takes a second

    return DatasetInfo(**fields)  # type: ignore[no-untyped-call]  # untyped in huggingface_hub


def _headers() -> dict[str, str]:
    """The user's token, and what huggingface_hub sends."""
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # not marked so

    return build_hf_headers()


def _checked(repo: str) -> str:
    if _NAME.fullmatch(repo) is None:
        raise _explain(repo, 404, "RepoNotFound", "")
    return f"/{repo}"


def _ask(repo: str, path: str, shape: Any, params: Mapping[str, Any]) -> Any:
    """Return the answer of the API, checked against a shape.

    Raises:
        DatasetNotFoundError: the dataset does not exist; RevisionNotFoundError: the revision or file does not exist.
        CatalogueAccessError: the dataset is gated or disabled.
        CatalogueBusyError: the Hub requests a pause of more than a minute.
        CatalogueUnavailableError: the Hub does not answer, or the network is down.
        CatalogueError: the answer does not follow the Hub's documentation.
    """
    url = f"{endpoint()}/api/datasets{path}"
    answer = ask_json(
        url,
        shape,
        server="the Hub",
        subject=f"hf:{repo}",
        params=params,
        own_headers=_headers(),
    )
    if answer.status != 200:
        raise _explain(
            repo,
            answer.status,
            answer.headers.get("X-Error-Code", ""),
            answer.headers.get("X-Error-Message", ""),
        )
    return answer.value


def _explain(repo: str, status: int, code: str, message: str) -> exception.DataStackError:
    """Return the error for an answer; https://github.com/huggingface/huggingface_hub lists the codes."""
    name = f"hf:{repo}"
    if code == "GatedRepo" or message == "Access to this resource is disabled.":
        page = f"https://huggingface.co/datasets/{repo}"
        return exception.CatalogueAccessError(
            f"{name} is gated or disabled: accept its terms at {page}, then {_LOG_IN}"
        )
    if code in ("RevisionNotFound", "EntryNotFound"):
        return exception.RevisionNotFoundError(
            f"the Hub does not have this revision or file of {name}, or has removed it: choose another"
        )
    if code == "RepoNotFound":
        return exception.DatasetNotFoundError(
            f"the Hub has no dataset {name}, or it is private: check the name, or {_LOG_IN}"
        )
    if status in (401, 403):
        return exception.CatalogueAccessError(
            f"the Hub refuses {name} to this user (status {status}): {_LOG_IN}"
        )
    return exception.CatalogueError(
        f"the Hub answered for {name} with the undocumented status {status}: update this package"
    )


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a dataset at a commit.

    Attributes:
        repo: owner and name of the dataset.
        commit: commit, 40 hex digits.
        path: path in the repository.
        size: size in bytes.
        etag: the listed digest: SHA-256, or the SHA-1 of the blob for files in Git itself.
    """

    repo: str
    commit: str
    path: str
    size: int
    etag: str

    @property
    def sha256(self) -> str | None:
        """The listed SHA-256; None for files in Git itself."""
        return self.etag if len(self.etag) == 64 else None

    def define(self, identifier: str) -> ResourceDefinition:
        """Define the resource of this name."""
        source = f"hf://datasets/{self.repo}@{self.commit}/{quote(self.path)}?etag={self.etag}"
        return ResourceDefinition(identifier, source, sha256=self.sha256, size=self.size)

    def __str__(self) -> str:
        return f"{self.path!r:.200} of hf:{self.repo}@{self.commit}"

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from ``start`` to ``stop``.

        Raises:
            ChecksumMismatchError: the Hub now has another file.
            CatalogueError, DatasetNotFoundError: as for the API.
        """
        if is_offline():
            raise exception.CatalogueUnavailableError(
                f"cannot ask the Hub for hf:{self.repo}: DATA_STACK_OFFLINE is set"
            )
        url = f"{endpoint()}/datasets/{self.repo}/resolve/{self.commit}/{quote(self.path)}"
        try:
            return ask(
                url,
                lambda answer: self._receive(answer, start, stop),
                _LIMITS,
                seconds=_LIMITS.max_wait_seconds,
                byte_range=ByteRange(start, stop),
                own_headers=_headers(),
            )
        except WebError as error:
            if error.status == 429:
                raise exception.CatalogueBusyError(
                    f"too many requests to the Hub for {self}: wait, or {_LOG_IN}"
                ) from None
            kind = (
                exception.CatalogueUnavailableError if error.transient else exception.CatalogueError
            )
            raise kind(
                f"the Hub did not send {self} ({error.reason}): check the network, then retry"
            ) from None

    def read_whole(self) -> bytes:
        """Read a file in Git itself, and verify the SHA-1 of its blob.

        Raises:
            ChecksumMismatchError: the SHA-1 is not the listed one.
            CatalogueError, DatasetNotFoundError: as for the API; or the file is too large.
        """
        if self.size > _MAX_GIT_BYTES:
            raise exception.CatalogueError(
                f"{self} has {self.size:,} bytes but no SHA-256, so it cannot be verified: report it to its owner"
            )
        data = self.read(0, self.size)
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        if blob != self.etag:
            raise exception.ChecksumMismatchError(
                self.path, str(self), self.etag, blob, "Git blob SHA-1"
            )
        return data

    def _receive(self, answer: Exchange, start: int, stop: int) -> bytes:
        if answer.status not in (200, 206):
            code, message = (
                answer.headers.get(f"X-Error-{each}", "") for each in ("Code", "Message")
            )
            raise _explain(self.repo, answer.status, code, message)
        tags = [each.get("X-Linked-Etag", "") for each in (*answer.redirects, answer.headers)]
        etag = next(filter(None, tags), answer.headers.get("ETag", ""))
        if etag.removeprefix("W/").strip('"') != self.etag:
            raise exception.ChecksumMismatchError(
                self.path, str(self), self.etag, etag or "none", "ETag"
            )
        sent = answer.content_range
        if sent is None:
            is_part = (start, stop) == (0, self.size)
        else:
            is_part = sent == (start, stop - 1, self.size)
        if not is_part:
            raise exception.CatalogueError(
                f"the Hub sent another part of {self} than requested: update this package"
            )
        data = answer.read(stop - start)
        if len(data) != stop - start:
            raise WebError(f"sent {len(data)} bytes, expected {stop - start}", transient=True)
        return data


def fetch(source: str, transfer: Transfer) -> None:
    """Retrieve a file of the Hub by the source of its definition.

    Raises:
        SourceError: the source is malformed, or the Hub did not send the file.
    """
    match = _SOURCE.fullmatch(source)
    if match is None:
        raise SourceError(
            f"expected hf://datasets/OWNER/NAME@COMMIT/PATH?etag=DIGEST, got {source!r:.200}"
        )
    file = HubFile(match[1], match[2], unquote(match[3]), transfer.definition.size or 0, match[4])
    try:
        if file.sha256 is None:
            transfer.write(file.read_whole())
            transfer.is_verified = True  # by the SHA-1 of the blob
            return
        for start in range(0, file.size, _REQUEST_BYTES):
            transfer.write(file.read(start, min(start + _REQUEST_BYTES, file.size)))
    except (
        exception.CatalogueError,
        exception.DatasetNotFoundError,
        exception.ChecksumMismatchError,
    ) as error:
        raise SourceError(str(error)) from error


class HubFiles(StorageConnector):
    """A read-only store of files of the Hub, which are read by range.

    Each answer must have the commit and the listed digest. A file in Git itself is read whole and verified.

    Args:
        files: files by identifier.
    """

    def __init__(self, files: Mapping[str, HubFile]) -> None:
        self._files = dict(files)

    def get_resource(self, identifier: str, resource_type: Any = None) -> StreamedResource:
        """Open a file as bytes."""
        if identifier not in self._files:
            raise exception.ResourceNotFoundError(identifier, "the Hub")
        return StreamedResource.from_source(
            identifier, BlockedSource(_FileBlocks(self._files[identifier])), self
        )

    def has_resource(self, identifier: str) -> bool:
        """Whether the file exists."""
        return identifier in self._files

    def set_resource(self, identifier: str, resource: Any) -> None:
        """Raise: the store is read-only."""
        raise exception.ReadOnlyStorageError(
            f"cannot store {identifier!r:.200} on the Hub: load without lazy=True"
        )


class _FileBlocks(Blocks):
    """Blocks of a file; one request fetches neighbours."""

    ahead_bytes = 0  # Parquet readers prefetch themselves

    def __init__(self, file: HubFile) -> None:
        self._file, self.size, self.block_bytes = file, file.size, _BLOCK_BYTES
        self._whole = None if file.sha256 else file.read_whole()
        self.sha256 = (
            hashlib.sha256(self._whole).hexdigest() if self._whole is not None else file.sha256
        )

    def fetch_run(self, first: int, n_blocks: int) -> list[bytes]:
        """Fetch neighbouring blocks in one request."""
        start, stop = self.range_of(first, n_blocks)
        return self.split(
            self._file.read(start, stop) if self._whole is None else self._whole[start:stop],
            n_blocks,
        )
