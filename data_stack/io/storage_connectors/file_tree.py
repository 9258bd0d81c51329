"""The files of a file store, opened without ever leaving its folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from data_stack.exception import MalformedIdentifierError, MaliciousFilePathError
from data_stack.io.identifiers import check_identifier

OWN_FOLDER: Final = ".data_stack"
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileTree:
    """The folder of a store, in which ``a/b`` is the file ``ROOT/a/b``. It raises errors of the operating system as they are.

    Args:
        root_path: absolute path of the folder, created by the first write.
    """

    def __init__(self, root_path: str) -> None:
        self.root_path = root_path

    def check_name(self, identifier: object) -> str:
        """Check an identifier; an absolute path below the root becomes relative.

        Raises:
            MalformedIdentifierError, MaliciousFilePathError: it is malformed, or leads out.
        """
        if type(identifier) is str and identifier.startswith("/"):
            for root in (self.root_path, os.path.realpath(self.root_path)):
                if identifier.startswith(root.rstrip("/") + "/"):
                    return check_identifier(identifier[len(root.rstrip("/")) + 1 :])
            raise MaliciousFilePathError(
                f"identifier {identifier!r} leaves the store at {self.root_path}; give a path relative to it"
            )
        return check_identifier(identifier)

    def find(self, identifier: str) -> tuple[int, str, os.stat_result] | None:
        """The folder (an open handle, which the caller closes), file name and status of a resource; None if it is missing."""
        *folders, name = identifier.split("/")
        folder = -1
        try:
            folder = self._open_folder(folders)
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found, folder = (folder, name, status), -1
                return found
        except (FileNotFoundError, NotADirectoryError):
            pass
        finally:
            if folder >= 0:
                os.close(folder)
        return None

    def _open_folder(self, folders: Sequence[str], create: bool = False) -> int:
        """A handle on a folder below the root. Each step is opened relative to the one before, and must not be a link."""
        if create and not os.path.isdir(self.root_path):
            _make_folders(self.root_path)
        handle = os.open(self.root_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                try:
                    below = os.open(folder, _FOLDER_FLAGS, dir_fd=handle)
                except FileNotFoundError:
                    if not create:
                        raise
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=handle)
                        os.fsync(handle)
                    below = os.open(folder, _FOLDER_FLAGS, dir_fd=handle)
                os.close(handle)
                handle = below
            result, handle = handle, -1
            return result
        finally:
            if handle >= 0:
                os.close(handle)

    def target(self, identifier: str) -> tuple[int, str]:
        """The open folder of a resource, created if missing, and the name of its file."""
        *folders, name = identifier.split("/")
        folder = self._open_folder(folders, create=True)
        with contextlib.suppress(OSError):
            # An empty folder of that name is removed.
            os.rmdir(name, dir_fd=folder)
        return folder, name

    def walk(self, prefix: str) -> Iterator[str]:
        """The identifiers of all files that may begin with ``prefix``, skipping other folders."""
        folder = ""
        with contextlib.suppress(MalformedIdentifierError):
            folder = check_identifier(prefix.rpartition("/")[0])  # others are not even looked at
        links = (os.path.islink(os.path.join(self.root_path, path)) for path in accumulate(folder.split("/"), "{}/{}".format))
        pending = [] if any(links) else [folder]
        while pending:
            above = pending.pop()
            try:
                entries = list(os.scandir(os.path.join(self.root_path, above)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                path = f"{above}/{entry.name}" if above else entry.name
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if path.startswith(prefix) or prefix.startswith(path + "/"):
                        pending.append(path)
                    continue
                if entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(MalformedIdentifierError):
                        yield check_identifier(path)


def _make_folders(path: str) -> None:
    """Create a folder and its parents durably."""
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        _make_folders(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        handle = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
