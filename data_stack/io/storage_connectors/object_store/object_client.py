"""What a store of objects is asked for, one object at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile


class FileRange(NamedTuple):
    """A part of a file.

    Attributes:
        path: the path of the file.
        start: the first byte.
        stop: the byte behind the last one. The file may end before.
    """

    path: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ListingPage:
    """A part of the list of the objects whose keys begin with a prefix.

    Attributes:
        objects: the objects, each with its ``Key``, ``Size``, ``LastModified`` and ``ETag``.
        folders: the beginnings of longer keys, up to the delimiter.
        next_token: what the next page is asked for by; None: this is the last page.
    """

    objects: Sequence[Mapping[str, Any]]
    folders: Sequence[str]
    next_token: str | None


class Lister(Protocol):
    """Requests pages of listings."""

    def list_page(self, prefix: str, delimiter: str, token: str | None) -> ListingPage:
        """Request a page; see :meth:`.ObjectClient.list_page`."""


class ObjectClient(ABC):
    """Sends requests for the files below a URL, each once.

    :class:`.RemoteFiles` retries them, checks their answers and makes errors of ours. So a client
    raises exceptions of its own: one of ``MISSING_ERRORS`` (:mod:`.file_system`) if there is no
    such file, and any other for what a server refused. All paths are relative to the URL.
    """

    @abstractmethod
    def read_ranges(self, ranges: Sequence[FileRange], etag: str | None) -> Sequence[Any]:
        """Read ranges at once, clipped to the files.

        Args:
            ranges: what to read.
            etag: the ETag that the file of all ranges must have; None: any. Where
                :meth:`reads_generations` says so, it is a generation.

        Returns:
            The bytes of each range, or the exception that says why it could not be read. A range
            that begins behind the end of its file may be either.
        """

    def reads_generations(self, path: str) -> bool:
        """Return whether :meth:`read_ranges` reads a certain generation of a file at Google."""
        return False

    @abstractmethod
    def describe(self, path: str) -> RemoteFile | None:
        """Return the description of a file; None if there is no such file."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write or replace a file atomically."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> None:
        """Write a file unless it exists. Of concurrent attempts, one succeeds.

        Raises:
            FileExistsError: it exists.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def read_version(self, path: str, max_bytes: int) -> tuple[bytes, str | None]:
        """Read a small file with the name of its version.

        Args:
            path: the path of the file.
            max_bytes: how many bytes are returned of a longer file.

        Returns:
            The bytes, and the version for :meth:`put_over` and :meth:`delete_version`; None if
            versions have no names.
        """

    @abstractmethod
    def put_over(self, path: str, data: bytes, version: str) -> None:
        """Replace a file that has this version. Of concurrent attempts, one succeeds.

        Raises:
            OtherVersionError: it has another one. Any of ``MISSING_ERRORS``, or FileExistsError,
                may say so, too.
        """

    @abstractmethod
    def delete_version(self, path: str, version: str) -> None:
        """Remove a file that has this version.

        Raises:
            OtherVersionError: it has another one. FileExistsError may say so, too.
        """

    def list_page(self, prefix: str, delimiter: str, token: str | None) -> ListingPage:
        """Request a page of the list of the objects whose keys begin with a prefix.

        :class:`.BucketFiles` checks that the keys belong into the list, and that the pages end. A
        missing bucket is not an empty one.

        Args:
            prefix: the prefix of the keys in the bucket.
            delimiter: only objects in whose keys this text does not follow the prefix are listed.
                Longer keys are listed up to the text, as folders. Empty: all objects are listed.
            token: what the page before has returned; None: the first page.

        Raises:
            WrongAnswerError: the answer is no listing.
        """
        raise NotImplementedError(f"{type(self).__name__} does not list by prefix")
