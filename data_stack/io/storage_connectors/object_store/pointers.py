"""Reads and publishes the pointers of a store."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from data_stack.exception import ResourceNotFoundError, StorageError, StorageUnavailableError
from data_stack.io.identifiers import check_identifier
from data_stack.io.storage_connectors.object_store.errors import AccessRefusedError
from data_stack.io.storage_connectors.object_store.layout import (
    RESOURCES,
    identifier_of,
    note_path,
    pointer_path,
)
from data_stack.io.storage_connectors.object_store.object_client import FileRange
from data_stack.io.storage_connectors.object_store.pointer import MAX_POINTER_BYTES, Pointer
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.remote_files import RemoteFiles
from data_stack.util.logger import logger
from data_stack.util.untrusted_text import parse_json

#: How many pointers are read at once.
_POINTERS_AT_ONCE: Final = 16
_MAX_NOTE_BYTES: Final = 4096
_SHA256_BYTES: Final = 32
#: The right without which a store answers 403 instead of 404, by scheme. Azure answers 404.
_RIGHTS_TO_LIST: Final[Mapping[str, str]] = {
    "s3": "s3:ListBucket",
    "s3a": "s3:ListBucket",
    "gs": "storage.objects.list",
    "gcs": "storage.objects.list",
}


class Pointers:
    """The pointers of a store.

    Args:
        files: the files of the store.
        store_name: the ``repr`` of the connector, for messages.
    """

    _files: RemoteFiles
    _store_name: str
    #: Whether a warning has said that the store refuses to tell whether there is a pointer.
    _has_warned: bool

    def __init__(self, files: RemoteFiles, store_name: str) -> None:
        self._files = files
        self._store_name = store_name
        self._has_warned = False

    def read(self, identifier: str) -> Pointer | None:
        """Return the pointer of a resource; None if there is none.

        Raises:
            DatasetFileCorruptError: it is damaged.
        """
        check_identifier(identifier)
        document = self._files.read(pointer_path(identifier), MAX_POINTER_BYTES + 1)
        if document is None:
            return None
        return Pointer.from_bytes(document, identifier, self._store_name)

    def read_many(self, paths: Iterable[str]) -> Iterator[Pointer]:
        """Yield the pointers at some paths, read many at a time. Paths of other files are ignored.

        Raises:
            StorageError: a pointer is listed, but cannot be read.
        """
        identifiers = []
        for path in paths:
            identifier = identifier_of(path)
            if identifier is not None:
                identifiers.append(identifier)

        missing_paths = []
        for start in range(0, len(identifiers), _POINTERS_AT_ONCE):
            group = identifiers[start : start + _POINTERS_AT_ONCE]
            ranges = [
                FileRange(pointer_path(identifier), 0, MAX_POINTER_BYTES + 1)
                for identifier in group
            ]
            documents = self._files.read_ranges(ranges)
            for identifier, document in zip(group, documents, strict=True):
                if document is None:
                    missing_paths.append(pointer_path(identifier))
                else:
                    yield Pointer.from_bytes(document, identifier, self._store_name)
        if missing_paths:
            self._check_deleted(missing_paths)

    def look_up(self, identifier: str) -> Pointer:
        """Return the pointer of a resource, or a description of the plain file of another tool.

        Raises:
            ResourceNotFoundError: there is neither.
            AccessRefusedError: neither may be read.
        """
        try:
            pointer = self.read(identifier)
        except AccessRefusedError as refusal:
            if not self.can_read_plain_file(identifier, refusal):
                raise
            pointer = None
        if pointer is not None:
            return pointer
        file = self._files.info(identifier)
        if file is None:
            raise ResourceNotFoundError(identifier, self._store_name)
        return Pointer.adopt(identifier, file, self._read_note(identifier, file))

    def publish(self, pointer: Pointer) -> None:
        """Put a pointer in place, which publishes its resource.

        Raises:
            StorageUnavailableError: the store did not answer. The message says that the outcome is
                unknown.
        """
        path = pointer_path(pointer.identifier)
        document = pointer.to_bytes()
        try:
            self._files.put(path, document)
        except StorageUnavailableError as error:
            # Perhaps only the answer was lost: look whether the pointer is there.
            with contextlib.suppress(StorageError):
                if self._files.read(path, len(document) + 1) == document:
                    return
            raise StorageUnavailableError(
                f"{error} It is unknown whether it was published; "
                "if the request still arrives, it will be, whole.",
                error.errno,
            ) from None

    def can_read_plain_file(self, identifier: str, refusal: AccessRefusedError) -> bool:
        """Return whether there is a plain file, although the store refuses access to a pointer.

        Without the right to list a bucket, S3 answers 403 instead of 404 to a request for what is
        missing. If the plain file may be read, a warning says so once.

        Args:
            identifier: the resource.
            refusal: the answer to the request for its pointer.

        Raises:
            AccessRefusedError: not even the plain file may be read.
        """
        try:
            is_there = self._files.exist([identifier])[0]
        except AccessRefusedError:
            raise AccessRefusedError(f"{refusal}{self._needed_right()}", refusal.errno) from None
        if is_there and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s refuses access to %r; the plain file of this name is read.%s",
                self._store_name,
                pointer_path(identifier),
                self._needed_right(),
            )
        return is_there

    def _needed_right(self) -> str:
        """Return the end of a message that names the right to list; empty for other stores."""
        right = _RIGHTS_TO_LIST.get(self._files.place.partition("://")[0])
        if right is None:
            return ""
        return (
            f" Without the right to list ({right}), a store answers so for what is missing, too: "
            "see docs/how_to/bucket.md."
        )

    def note_digest(self, identifier: str, file: RemoteFile, sha256: str) -> None:
        """Note the digest of a plain file. Errors are ignored: then the file is read once more."""
        note = json.dumps({"tag": file.tag, "sha256": sha256}).encode()
        with contextlib.suppress(StorageError):
            self._files.put(note_path(identifier), note)

    def _read_note(self, identifier: str, file: RemoteFile) -> str | None:
        """Return the SHA-256 that was noted for this version of a plain file; None if none was."""
        try:
            note = self._files.read(note_path(identifier), _MAX_NOTE_BYTES)
        except AccessRefusedError:
            # Without the right to list, a store refuses access to a missing note.
            return None
        if note is None:
            return None
        try:
            fields = parse_json(note)
            sha256 = bytes.fromhex(fields["sha256"])
            is_of_file = fields["tag"] == file.tag
        except (ValueError, KeyError, TypeError):
            return None
        if not is_of_file or len(sha256) != _SHA256_BYTES:
            return None
        return sha256.hex()

    def _check_deleted(self, paths: Iterable[str]) -> None:
        """Check that pointers that could not be read were deleted, and so are listed no more.

        Raises:
            StorageError: one is still listed.
        """
        listed_paths = {file.path for file in self._files.files(RESOURCES)}
        for path in paths:
            if path in listed_paths and not self._files.exist([path])[0]:
                raise StorageError(
                    f"{path!r} is listed in {self._store_name}, but missing when it is read. "
                    "Nothing was removed; try again."
                )
