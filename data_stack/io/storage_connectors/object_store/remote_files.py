"""The files below a URL, with atomic writes."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from data_stack.exception import ReadOnlyStorageError, StorageError
from data_stack.io.storage_connectors.heartbeat import MAX_VALUE_BYTES
from data_stack.io.storage_connectors.object_store.errors import is_unreachable
from data_stack.io.storage_connectors.object_store.file_system import (
    MISSING_ERRORS,
    RemoteFileSystem,
)
from data_stack.io.storage_connectors.object_store.fsspec_objects import new_temporary_path
from data_stack.io.storage_connectors.object_store.object_client import FileRange, ObjectClient
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.s3 import (
    OtherVersionError,
    WrongAnswerError,
    refusal_of,
)

#: At most so many ranges are requested at once.
_MAX_AT_ONCE: Final = 32
#: How often a file is read again whose conditional replacement has failed.
_MAX_CONFLICTS: Final = 3


class RemoteFiles:
    """The files of a file system.

    Args:
        file_system: the file system, which lists files.
        objects: the client for single files.
        read_only: whether to refuse writing. A file system that can neither put nor rename files
            atomically is always read-only.

    Attributes:
        place: the URL without user and password, for messages.
        read_only: whether writing is refused.
        lists_by_prefix: whether :meth:`beginning_with` lists files.
    """

    lists_by_prefix: bool = False
    place: str
    read_only: bool
    _file_system: RemoteFileSystem
    _objects: ObjectClient
    #: Whether the store has not refused yet to write on a condition.
    _has_conditions: bool

    def __init__(
        self, file_system: RemoteFileSystem, objects: ObjectClient, *, read_only: bool = False
    ) -> None:
        self.place = file_system.place
        self.read_only = read_only or not file_system.can_publish
        self._file_system = file_system
        self._objects = objects
        self._has_conditions = True

    # ------------------------------------------------------------------ reading

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return a file, cut short to ``max_bytes``; None if there is no such file."""
        return self.read_ranges([FileRange(path, 0, max_bytes)])[0]

    def read_ranges(
        self, ranges: Sequence[FileRange], *, version: RemoteFile | None = None
    ) -> list[bytes | None]:
        """Read ranges at once, clipped to the files.

        Args:
            ranges: what to read.
            version: the file of all ranges as it was described. Where :meth:`checks_version` says
                so, it must be unchanged.

        Returns:
            The bytes of each range; None for missing files.

        Raises:
            OtherVersionError: the file has another version.
            StorageError: the file system could not read, or sent something else.
        """
        parts: list[bytes | None] = []
        for start in range(0, len(ranges), _MAX_AT_ONCE):
            group = ranges[start : start + _MAX_AT_ONCE]
            answers = self._ask_for_ranges(group, version)
            for file_range, answer in zip(group, answers, strict=True):
                parts.append(self._bytes_of(file_range, answer))
        return parts

    def checks_version(self, file: RemoteFile) -> bool:
        """Return whether answers to :meth:`read_ranges` say which version of the file they are."""
        return False

    def _version_name(self, file: RemoteFile) -> str:
        """Return what the store calls the version of a file, where it checks versions."""
        return file.etag

    def info(self, path: str) -> RemoteFile | None:
        """Return the description of a file; None if there is no such file."""
        return self._describe(path)

    def exist(self, paths: Sequence[str]) -> list[bool]:
        """Return whether there is a file at each path."""
        if not self._file_system.is_asynchronous:
            return [self.info(path) is not None for path in paths]
        # One request each, at once: for a missing file, info() of an object store also looks for a
        # folder.
        first_bytes = self.read_ranges([FileRange(path, 0, 1) for path in paths])
        return [first_byte is not None for first_byte in first_bytes]

    def has_root(self) -> bool:
        """Return whether the root folder exists.

        An object store has no folders. Without its bucket it cannot be listed.
        """
        if self._file_system.is_atomic:
            return True
        root = self._file_system.name_of("")
        return self._file_system.call("look for", "", "info", root) is not None

    def _ask_for_ranges(
        self, ranges: Sequence[FileRange], version: RemoteFile | None
    ) -> list[bytes | Exception]:
        """Return the answer to each range."""
        etag = None
        if version is not None and self.checks_version(version):
            etag = self._version_name(version)

        def request() -> list[bytes | Exception]:
            answers = []
            for answer in self._objects.read_ranges(ranges, etag):
                self._raise_if_retry_may_help(answer)
                answers.append(answer)
            return answers

        return self._file_system.retry("read", ranges[0].path, request)

    def _raise_if_retry_may_help(self, answer: Any) -> None:
        """Raise the answer to a range if it is an error that may pass, or an interruption."""
        if not isinstance(answer, BaseException) or isinstance(answer, MISSING_ERRORS):
            return
        is_interruption = not isinstance(answer, Exception)
        is_away = is_unreachable(answer) or not self._file_system.is_connected()
        if is_interruption or is_away:
            raise answer

    def _bytes_of(self, file_range: FileRange, answer: bytes | Exception) -> bytes | None:
        """Return the bytes in the answer to a range; None if there is no such file.

        Raises:
            OtherVersionError: the file has another version.
            StorageError: the answer is an error, or too long.
        """
        path = file_range.path
        if isinstance(answer, MISSING_ERRORS):
            return None
        if isinstance(answer, OtherVersionError):
            raise answer
        if isinstance(answer, (WrongAnswerError, PermissionError)):
            self._file_system.fail("read", path, answer)
        if isinstance(answer, Exception):
            if self._is_behind_end(file_range):
                return b""
            if refusal_of(answer).status == 416 and self._describe(path) is None:
                # So Azure answers for a folder, which is no file.
                return None
            self._file_system.fail("read", path, answer)

        n_requested = file_range.stop - file_range.start
        if len(answer) > n_requested:
            problem = WrongAnswerError(
                f"the server sends {len(answer):,} bytes, requested were {n_requested:,}: "
                "it or a cache before it does not support ranges"
            )
            self._file_system.fail("read", path, problem)
        return bytes(answer)

    def _is_behind_end(self, file_range: FileRange) -> bool:
        """Return whether a range begins behind the end of its file.

        Object stores refuse such a range.
        """
        try:
            file = self._describe(file_range.path)
        except StorageError:
            # Its reason is not that of the range.
            return False
        return file is not None and file.size <= file_range.start

    def _describe(self, path: str) -> RemoteFile | None:
        with contextlib.suppress(*MISSING_ERRORS):
            return self._file_system.retry("look for", path, lambda: self._objects.describe(path))
        return None

    # ------------------------------------------------------------------ listing

    def files(self, folder: str) -> list[RemoteFile]:
        """Return all files below a folder, however deep; none if there is no such folder.

        Raises:
            StorageError: the folder, or the bucket, could not be listed. A bucket that does not
                exist is not empty.
        """
        options: dict[str, Any] = {}
        if not self._file_system.is_atomic:
            # By default, fsspec skips unreadable folders silently. (A file system that lists by
            # prefix has none, and does not know the option.)
            options["on_error"] = _raise_unless_missing
        infos = self._list("find", folder, **options) or {}
        return self._check_below(folder, self._files_of(infos.values()))

    def entries(self, folder: str) -> tuple[list[RemoteFile], list[str]]:
        """Return the files and folders in a folder; none if there is no such folder.

        Raises:
            StorageError: the folder, or the bucket, could not be listed.
        """
        infos = self._list("ls", folder) or []
        folders = [
            self._file_system.path_of(info["name"])
            for info in infos
            if info.get("type") == "directory"
        ]
        return self._check_below(folder, self._files_of(infos)), folders

    def links(self, folder: str) -> list[str]:
        """Return the paths of all links below a folder, however deep.

        An object store has no links.
        """
        if self._file_system.is_atomic:
            return []
        name = self._file_system.name_of(folder)
        infos = self._file_system.call(
            "list", folder, "find", name, detail=True, on_error=_raise_unless_missing
        )
        return [
            self._file_system.path_of(info["name"])
            for info in (infos or {}).values()
            if info.get("type") == "link" or info.get("islink")
        ]

    def beginning_with(self, prefix: str) -> list[RemoteFile]:
        """Return all files whose paths begin with a text, also within a name.

        Args:
            prefix: the text, which is not empty.
        """
        raise NotImplementedError(f"{type(self).__name__} does not list by prefix")

    def _list(self, method: str, folder: str, **options: Any) -> Any:
        """Return what a method lists in a folder; None if there is no such folder."""
        name = self._file_system.name_of(folder)
        listing = self._file_system.call("list", folder, method, name, detail=True, **options)
        if not listing and self._file_system.is_asynchronous:
            self._check_bucket()
        return listing

    def _check_bucket(self) -> None:
        """Check that the bucket exists.

        An object store lists nothing for a folder that is missing, and for a bucket as well.
        """
        bucket = self._file_system.root.partition("/")[0]
        if bucket and self._file_system.call("look for", "", "info", bucket) is None:
            problem = WrongAnswerError(f"the bucket {bucket!r} does not exist")
            self._file_system.fail("list", "", problem)

    def _check_below(self, folder: str, files: list[RemoteFile]) -> list[RemoteFile]:
        """Return the files of a listing, without its folder.

        Raises:
            StorageError: a file is not below the folder, so the listing is wrong.
        """
        prefix = f"{folder}/" if folder else ""
        files_below = [file for file in files if file.path != folder]
        for file in files_below:
            if not file.path.startswith(prefix):
                problem = WrongAnswerError(
                    f"the listing has {file.path!r:.200}, which is elsewhere"
                )
                self._file_system.fail("list", folder, problem)
        return files_below

    def _files_of(self, infos: Iterable[Mapping[str, Any]]) -> list[RemoteFile]:
        """Return those files of a listing of fsspec that are not links."""
        files = []
        for info in infos:
            file = self._file_system.file_of(info)
            if file is not None:
                files.append(file)
        return files

    # ------------------------------------------------------------------ writing

    def put(self, path: str, data: bytes | memoryview) -> None:
        """Write or replace a file atomically."""
        self._write(path, data, self._objects.put)

    def create(self, path: str, data: bytes | memoryview) -> bool:
        """Write a file unless it exists. Of concurrent attempts, one succeeds.

        Returns:
            Whether it was written.
        """
        try:
            self._write(path, data, self._objects.create)
        except FileExistsError:
            return False
        return True

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        """Replace a small file unless it has changed.

        Of concurrent attempts, one succeeds, where the store writes on conditions. Elsewhere the
        file is read before it is written, and the last one of attempts at the same moment stays.

        Args:
            path: the path of the file.
            old: its content as :meth:`read` has returned it, of at most ``MAX_VALUE_BYTES``.
            new: the new content, unlike that of any other process.

        Returns:
            Whether it was replaced.
        """
        self._check_writable(path)

        def replace_once() -> bool:
            return self._change_once(
                path,
                old,
                new,
                lambda version: self._objects.put_over(path, new, version),
                lambda: self._objects.put(path, new),
            )

        with contextlib.suppress(*MISSING_ERRORS):
            return self._file_system.retry("store", path, replace_once)
        return False

    def delete_unchanged(self, path: str, content: bytes) -> bool:
        """Remove a small file unless it has changed, as far as the store has such a condition.

        Args:
            path: the path of the file.
            content: its content as :meth:`read` has returned it.

        Returns:
            Whether the file is gone.
        """
        self._check_writable(path)

        def delete_once() -> bool:
            return self._change_once(
                path,
                content,
                None,
                lambda version: self._objects.delete_version(path, version),
                lambda: self._objects.delete(path),
            )

        with contextlib.suppress(*MISSING_ERRORS):
            return self._file_system.retry("delete", path, delete_once)
        return True

    def _change_once(
        self,
        path: str,
        old: bytes,
        new: bytes | None,
        change_version: Callable[[str], None],
        change: Callable[[], None],
    ) -> bool:
        """Change a file if its content is the old one. Return whether it was changed.

        Args:
            path: the path of the file.
            old: the content that it must have. A longer file is compared as far.
            new: the content that it gets; None if it is removed.
            change_version: changes it if it has a version.
            change: changes it whatever its version is.
        """
        max_bytes = max(len(old), MAX_VALUE_BYTES)
        for _ in range(_MAX_CONFLICTS):
            content, version = self._objects.read_version(path, max_bytes)
            if content == new:
                # The answer to an earlier attempt was lost.
                return True
            if content != old:
                return False
            if version is None or not self._has_conditions:
                change()
                return True
            try:
                change_version(version)
            except (OtherVersionError, FileExistsError):
                # Another process has written it, or is about to.
                continue
            except Exception as error:
                if not _says_not_implemented(error):
                    raise
                self._has_conditions = False
                continue
            return True
        return False

    def delete(self, path: str) -> None:
        """Remove a file if it exists."""
        self._check_writable(path)
        with contextlib.suppress(*MISSING_ERRORS):
            self._file_system.retry("delete", path, lambda: self._objects.delete(path))

    def now(self) -> float:
        """Return the time of the file system, in seconds since 1970: that of a new file."""
        path = new_temporary_path()
        self.put(path, b"")
        file = self.info(path)
        self.delete(path)
        if file is None or file.modified is None:
            return time.time()
        return file.modified

    def _write(
        self, path: str, data: bytes | memoryview, write: Callable[[str, bytes], None]
    ) -> None:
        """Write a file, with retries.

        Args:
            path: the path of the file.
            data: its bytes.
            write: the method of the client that writes the file once.
        """
        data = bytes(data)
        self._check_writable(path)
        try:
            self._file_system.retry("store", path, lambda: write(path, data))
        except MISSING_ERRORS as error:
            # There is no bucket, or a file is in the place of a folder.
            self._file_system.fail("store", path, error)

    def _check_writable(self, path: str) -> None:
        if self.read_only:
            raise ReadOnlyStorageError(
                f"cannot change {path!r}: {self.place} was opened for reading only, "
                "or its file system cannot rename",
                errno.EROFS,
            )


def _says_not_implemented(error: Exception) -> bool:
    """Return whether a store refuses a request because it does not write on conditions."""
    refusal = refusal_of(error)
    return refusal.status == 501 or refusal.code == "NotImplemented"


def _raise_unless_missing(error: Exception) -> None:
    """Raise an error of a listing, unless a folder was removed while its parent was listed."""
    if not isinstance(error, FileNotFoundError):
        raise error
