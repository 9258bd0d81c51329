"""A file of the Hub at a commit, whose bytes are verified."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from data_stack import ResourceDefinition, exception
from data_stack.io.retriever import Limits, SourceError, Transfer, is_offline
from data_stack.io.web import ByteRange, Exchange, WebError, ask
from data_stack_huggingface.api import LOG_IN, endpoint, explain_refusal, own_headers

#: Pauses that the Hub requests are respected up to a minute.
_LIMITS: Final = Limits(n_retries=3, backoff_seconds=0.2, max_wait_seconds=60.0)

#: How much one request fetches, where a file is retrieved as a whole.
_REQUEST_BYTES: Final = 16 << 20

#: The largest file that is read without a SHA-256. The Hub requires large file storage, which has
#: one, for files above 10 MB.
_MAX_GIT_BYTES: Final = 64 << 20

#: How a resource definition names a file: repository, commit, path, digest.
_SOURCE: Final = re.compile(
    r"hf://datasets/([^@?]+)@([0-9a-f]{40})/([^?]+)\?etag=([0-9a-f]{40}|[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a dataset at a commit.

    Attributes:
        repo: owner and name of the dataset.
        commit: commit, 40 hex digits.
        path: path in the repository.
        size: size in bytes.
        etag: the digest that the Hub lists, and sends in the header of that name. It is a SHA-256;
            for a file in Git itself, the SHA-1 of its blob.
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
        """Return the definition of the file as a resource of this name."""
        source = f"hf://datasets/{self.repo}@{self.commit}/{quote(self.path)}?etag={self.etag}"
        return ResourceDefinition(identifier, source, sha256=self.sha256, size=self.size)

    def __str__(self) -> str:
        return f"{self.path!r:.200} of hf:{self.repo}@{self.commit}"

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes from ``start`` up to, but not including, ``stop``.

        Raises:
            ChecksumMismatchError: the Hub now has another file.
            DatasetNotFoundError: the Hub no longer has the dataset or the file.
            CatalogueError: the Hub refuses or fails to send the bytes.
        """
        if is_offline():
            raise exception.CatalogueUnavailableError(
                f"cannot ask the Hub for hf:{self.repo}: DATA_STACK_OFFLINE is set"
            )
        url = f"{endpoint()}/datasets/{self.repo}/resolve/{self.commit}/{quote(self.path)}"
        receive = functools.partial(self._receive, start=start, stop=stop)
        try:
            return ask(
                url,
                receive,
                _LIMITS,
                seconds=_LIMITS.max_wait_seconds,
                byte_range=ByteRange(start, stop),
                own_headers=own_headers(),
            )
        except WebError as error:
            raise self._explain(error) from None

    def read_whole(self) -> bytes:
        """Read a file that is stored in Git itself, and verify the SHA-1 of its blob.

        Raises:
            ChecksumMismatchError: the SHA-1 is not the listed one.
            DatasetNotFoundError: the Hub no longer has the dataset or the file.
            CatalogueError: the file is too large, or the Hub refuses or fails to send it.
        """
        if self.size > _MAX_GIT_BYTES:
            raise exception.CatalogueError(
                f"{self} has {self.size:,} bytes but no SHA-256, so it cannot be verified: report "
                f"it to its owner"
            )
        data = self.read(0, self.size)
        blob = b"blob %d\0" % len(data) + data
        digest = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
        if digest != self.etag:
            raise exception.ChecksumMismatchError(
                self.path, str(self), self.etag, digest, "Git blob SHA-1"
            )
        return data

    def _receive(self, answer: Exchange, start: int, stop: int) -> bytes:
        """Check an answer and return its bytes, from ``start`` to ``stop`` of the file.

        Raises:
            WebError: bytes are missing; the request may be repeated.
            ChecksumMismatchError, CatalogueError, DatasetNotFoundError: as for :meth:`read`.
        """
        if answer.status not in (200, 206):
            raise explain_refusal(self.repo, answer.status, answer.headers)

        etag = _etag_of(answer)
        if etag.removeprefix("W/").strip('"') != self.etag:
            raise exception.ChecksumMismatchError(
                self.path, str(self), self.etag, etag or "none", "ETag"
            )

        sent_range = answer.content_range
        if sent_range is None:
            is_requested_part = start == 0 and stop == self.size
        else:
            is_requested_part = sent_range == (start, stop - 1, self.size)
        if not is_requested_part:
            raise exception.CatalogueError(
                f"the Hub sent another part of {self} than requested: update this package"
            )

        data = answer.read(stop - start)
        if len(data) != stop - start:
            raise WebError(f"sent {len(data)} bytes, expected {stop - start}", transient=True)
        return data

    def _explain(self, error: WebError) -> exception.CatalogueError:
        """Return the error for a request that failed."""
        if error.status == 429:
            return exception.CatalogueBusyError(
                f"too many requests to the Hub for {self}: wait, or {LOG_IN}"
            )
        message = f"the Hub did not send {self} ({error.reason}): check the network, then retry"
        if error.transient:
            return exception.CatalogueUnavailableError(message)
        return exception.CatalogueError(message)


def _etag_of(answer: Exchange) -> str:
    """Return the digest that the Hub sends with a file; empty if it sends none.

    The Hub sends it as ``X-Linked-Etag`` with its redirect; the server that it leads to has ETags
    of its own.
    """
    for headers in (*answer.redirects, answer.headers):
        linked_etag = headers.get("X-Linked-Etag")
        if linked_etag:
            return linked_etag
    return answer.headers.get("ETag", "")


def fetch(source: str, transfer: Transfer) -> None:
    """Retrieve a file of the Hub by the source of its definition.

    Args:
        source: ``hf://datasets/OWNER/NAME@COMMIT/PATH?etag=DIGEST``.
        transfer: takes the bytes. Its definition has the size of the file.

    Raises:
        SourceError: the source is malformed, its definition has no size, or the Hub did not send
            the file.
    """
    match = _SOURCE.fullmatch(source)
    if match is None:
        raise SourceError(
            f"expected hf://datasets/OWNER/NAME@COMMIT/PATH?etag=DIGEST, got {source!r:.200}"
        )
    size = transfer.definition.size
    if size is None:
        raise SourceError(
            f"the definition of {source!r:.200} has no size: take the definitions of "
            f"HuggingFaceCatalogue.list_files, or set size to that of the file"
        )
    repo, commit, quoted_path, etag = match.groups()
    file = HubFile(repo, commit, unquote(quoted_path), size, etag)
    try:
        if file.sha256 is None:
            transfer.write(file.read_whole())
            transfer.is_verified = True  # by the SHA-1 of the blob
            return
        transfer.expect("sha256", file.sha256)
        for start in range(0, file.size, _REQUEST_BYTES):
            stop = min(start + _REQUEST_BYTES, file.size)
            transfer.write(file.read(start, stop))
    except (
        exception.CatalogueError,
        exception.DatasetNotFoundError,
        exception.ChecksumMismatchError,
    ) as error:
        raise SourceError(str(error)) from error
