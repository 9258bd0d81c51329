"""The files of a bucket or container, whose listings are checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from data_stack.exception import StorageError, StorageUnavailableError
from data_stack.io.storage_connectors.object_store.file_system import RemoteFileSystem
from data_stack.io.storage_connectors.object_store.object_client import ObjectClient
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.remote_files import RemoteFiles
from data_stack.io.storage_connectors.object_store.s3 import Listing
from data_stack.io.web.file_version import FileVersion


class BucketFiles(RemoteFiles):
    """The files below a folder of a bucket.

    Listing is a request of :mod:`.s3` or :mod:`.azure`, not of fsspec. Nor is it one of obstore,
    which takes the page of a gateway for an empty listing and a listing without an end for a whole
    one, lists ``a/`` as ``a``, and fails if there is any key such as ``a//b``.

    Args:
        file_system: the file system.
        objects: the client for single objects.
        list_objects: the request that lists. Its arguments are the file system of fsspec, the
            bucket, a prefix and a delimiter.
        read_only: whether to refuse writing.
    """

    lists_by_prefix = True
    _list_objects: Callable[..., Awaitable[Listing]]

    def __init__(
        self,
        file_system: RemoteFileSystem,
        objects: ObjectClient,
        list_objects: Callable[..., Awaitable[Listing]],
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(file_system, objects, read_only=read_only)
        self._list_objects = list_objects

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

        def request() -> Listing:
            listing: Listing = self._file_system.run_request(
                self._list_objects, prefix, delimiter=delimiter, is_listing=True
            )
            return listing

        listing = self._file_system.retry("list", place, request)
        root_length = len(self._folder_key(""))
        files = []
        for entry in listing.objects:
            path = entry["Key"][root_length:]
            # Consoles mark a folder by an empty object with its name and a slash.
            if path and not path.endswith("/"):
                files.append(RemoteFile.of(path, {**entry, "size": entry["Size"]}))
        folders = [key[root_length:].rstrip("/") for key in listing.folders]
        return files, folders

    def _folder_key(self, folder: str) -> str:
        """Return what the keys of all files below a folder begin with; empty: the root."""
        return self._file_system.key_of(f"{folder}/" if folder else "")
