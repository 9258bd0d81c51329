"""The files of a bucket of S3, whose answers are checked."""

from __future__ import annotations

from data_stack.exception import StorageError, StorageUnavailableError
from data_stack.io.storage_connectors.object_store import s3
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.remote_files import RemoteFiles
from data_stack.io.web.file_version import FileVersion


class S3Files(RemoteFiles):
    """The files below a folder of a bucket.

    Listing is a request of :mod:`.s3`, not of fsspec. Nor is it one of obstore, which takes the
    page of a gateway for an empty listing and a listing without an end for a whole one, lists
    ``a/`` as ``a``, and fails if there is any key such as ``a//b``.
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

        def request() -> s3.Listing:
            listing: s3.Listing = self._file_system.run_request(
                s3.list_objects, prefix, delimiter=delimiter, is_listing=True
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
