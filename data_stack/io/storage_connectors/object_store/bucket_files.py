"""The files of a bucket or container, whose listings are checked."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping
from typing import Any

from data_stack.exception import StorageError, StorageUnavailableError
from data_stack.io.storage_connectors.object_store.object_client import ListingPage
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.remote_files import RemoteFiles
from data_stack.io.storage_connectors.object_store.s3 import (
    NO_END_OF_LISTING,
    WrongAnswerError,
)
from data_stack.io.web.file_version import FileVersion


class BucketFiles(RemoteFiles):
    """The files below a folder of a bucket, which is listed by prefix, page by page.

    Every page is checked: wrong keys, or a list that ends too early, would let garbage collection
    delete data.
    """

    lists_by_prefix = True

    def checks_version(self, file: RemoteFile) -> bool:
        return FileVersion(file.etag).strong_etag is not None

    def info(self, path: str) -> RemoteFile | None:
        try:
            return self._describe(path)
        except StorageUnavailableError:
            raise
        except StorageError:
            # This raises with the reason, for which an answer to HEAD has no room.
            self.read(path, 1)
            raise

    def files(self, folder: str) -> list[RemoteFile]:
        return self._list_keys(self._folder_key(folder), folder)[0]

    def entries(self, folder: str) -> tuple[list[RemoteFile], list[str]]:
        return self._list_keys(self._folder_key(folder), folder, delimiter="/")

    def beginning_with(self, prefix: str) -> list[RemoteFile]:
        return self._list_keys(self._file_system.key_of(prefix), prefix)[0]

    def _list_keys(
        self, prefix: str, place: str, *, delimiter: str = ""
    ) -> tuple[list[RemoteFile], list[str]]:
        """Return the files and folders whose keys begin with a text.

        Args:
            prefix: the text.
            place: what is listed, for messages.
            delimiter: of longer keys, only the part up to this text is returned, as a folder.
        """
        objects = list[Mapping[str, Any]]()
        listed_folders = list[str]()
        for page in self._request_pages(prefix, place, delimiter):
            objects.extend(page.objects)
            listed_folders.extend(page.folders)
        root_length = len(self._folder_key(""))
        files = []
        for entry in objects:
            path = entry["Key"][root_length:]
            # Consoles mark a folder by an empty object with its name and a slash.
            if path and not path.endswith("/"):
                files.append(RemoteFile.of(path, {**entry, "size": entry["Size"]}))
        folders = [key[root_length:].rstrip("/") for key in listed_folders]
        return files, folders

    def _request_pages(self, prefix: str, place: str, delimiter: str) -> Iterator[ListingPage]:
        """Yield the pages of a listing; see :meth:`_list_keys` for the arguments.

        Raises:
            StorageError: a page is no listing or not of this prefix, or the listing has no end.
        """
        deadline = time.monotonic() + self._file_system.max_listing_seconds
        seen_tokens = set[str]()
        token: str | None = None
        while True:
            request = functools.partial(self._objects.list_page, prefix, delimiter, token)
            page = self._file_system.retry("list", place, request)
            self._check_page(page, prefix, place, delimiter)
            yield page
            token = page.next_token
            if token is None:
                return
            if token in seen_tokens:
                self._file_system.fail("list", place, WrongAnswerError(NO_END_OF_LISTING))
            seen_tokens.add(token)
            if time.monotonic() > deadline:
                error = TimeoutError(f"the listing goes on after {len(seen_tokens):,} pages")
                self._file_system.fail("list", place, error, is_away=True)

    def _check_page(self, page: ListingPage, prefix: str, place: str, delimiter: str) -> None:
        """Check that all keys of a page belong into a listing.

        Raises:
            StorageError: a key does not.
        """
        keys = [str(entry["Key"]) for entry in page.objects]
        if delimiter:
            keys += [folder.removesuffix(delimiter) for folder in page.folders]
        for key in keys:
            is_deeper = delimiter != "" and delimiter in key[len(prefix) :].removesuffix(delimiter)
            if not key.startswith(prefix) or is_deeper:
                problem = WrongAnswerError(
                    f"the server lists {key!r:.200} among the objects that begin with "
                    f"{prefix!r:.200}"
                )
                self._file_system.fail("list", place, problem)

    def _folder_key(self, folder: str) -> str:
        """Return what the keys of all files below a folder begin with; empty: the root."""
        return self._file_system.key_of(f"{folder}/" if folder else "")
