"""Where the files of a file store lie, reached without ever leaving its folder."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final

from data_stack.exception import MalformedIdentifierError, MaliciousFilePathError
from data_stack.io.identifiers import checked_identifier

__all__ = ["OWN_FOLDER", "FileTree"]

OWN_FOLDER: Final = ".data_stack"
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileTree:
    """The folder of a store, and which file in it each identifier stands for.

    The file of ``a/b`` is ``ROOT/a/b``. Errors of the operating system go through.

    Args:
        root_path: absolute path of the folder; it is made at the first write.
    """

    def __init__(self, root_path: str) -> None:
        self.root_path = root_path

    def checked(self, identifier: object) -> str:
        """An identifier in the grammar; of an absolute path below the root, what lies below.

        Raises:
            MalformedIdentifierError, MaliciousFilePathError: it is none, or leads out.
        """
        if type(identifier) is str and identifier.startswith("/"):
            for root in (self.root_path, os.path.realpath(self.root_path)):
                if identifier.startswith(root.rstrip("/") + "/"):
                    return checked_identifier(identifier[len(root.rstrip("/")) + 1 :])
            raise MaliciousFilePathError(
                f"identifier {identifier!r} leaves the store at {self.root_path}; give a path relative to it"
            )
        return checked_identifier(identifier)

    def found(self, identifier: str) -> tuple[int, str, os.stat_result] | None:
        """The folder (as an open handle, for the caller to close), file name and status of a resource; None if there is none."""
        *folders, name = identifier.split("/")
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._regular_file(folders, name)
        return None

    def _regular_file(self, folders: Sequence[str], name: str) -> tuple[int, str, os.stat_result]:
        """The open folder, name and status of a regular file, through links that stay inside."""
        folder = self._open_folder(folders)
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                inside, name = self._resolved([*folders, name])
                os.close(folder)
                folder = -1
                folder = self._open_folder(inside)
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, "no regular file", name)
            result, folder = folder, -1
            return result, name, status
        finally:
            if folder >= 0:
                os.close(folder)

    def _open_folder(self, folders: Sequence[str], create: bool = False, resolve: bool = True) -> int:
        """A handle on a folder below the root, reached without ever leaving it.

        Each step is opened relative to the one before and follows no link, so that a link put there
        meanwhile changes nothing. Links that were there before are resolved first, and must stay inside.
        """
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
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR) or not _is_link(folder, handle):
                        raise
                    if not resolve:
                        raise MaliciousFilePathError(
                            f"{'/'.join(folders)!r} changed while it was followed in the store at {self.root_path}"
                        ) from error
                    inside, last = self._resolved(folders)
                    return self._open_folder([*inside, last], create, resolve=False)
                os.close(handle)
                handle = below
            result, handle = handle, -1
            return result
        finally:
            if handle >= 0:
                os.close(handle)

    def _resolved(self, path: Sequence[str]) -> tuple[list[str], str]:
        """The folders and last name that a path through symbolic links leads to; inside of the root, or an error."""
        root = os.path.realpath(self.root_path)
        real = os.path.realpath(os.path.join(root, *path))
        if os.path.commonpath([root, real]) != root or real == root:
            raise MaliciousFilePathError(f"{'/'.join(path)!r} leads out of the store at {self.root_path} through a symbolic link")
        *folders, name = os.path.relpath(real, root).split(os.sep)
        return folders, name

    def target(self, identifier: str) -> tuple[int, str]:
        """An open folder to write a resource in, made if need be, and the name of its file there."""
        *folders, name = identifier.split("/")
        folder = self._open_folder(folders, create=True)
        with contextlib.suppress(OSError):
            # An empty folder is in nobody's way.
            os.rmdir(name, dir_fd=folder)
        return folder, name

    def walk(self, prefix: str) -> Iterator[str]:
        """The identifiers of all files that may begin with ``prefix``; folders that it rules out are not entered."""
        pending = [""]
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
                with contextlib.suppress(MalformedIdentifierError):
                    identifier = checked_identifier(path)
                    if entry.is_symlink():
                        found = self.found(identifier)
                        if found is not None:
                            os.close(found[0])
                            yield identifier
                    elif entry.is_file(follow_symlinks=False):
                        yield identifier


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _make_folders(path: str) -> None:
    """Make a folder and those above it, each durable in its parent."""
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
