"""The folder of a store, whose folders are opened without following a link."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from data_stack.exception import StorageConflictError
from data_stack.io.identifiers import is_identifier
from data_stack.util.group_rights import make_folder, make_folders


class StoreFolder:
    """The folder of a store. The identifier of a resource is the path of its file in the folder.

    Args:
        path: the absolute path of the folder. It may be a symbolic link; links inside of it are not
            followed.
    """

    _path: str
    #: Whether the file system is known to tell names in upper and lower case apart.
    _is_case_sensitive: bool

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_case_sensitive = False

    def open_parent(self, identifier: str, *, create: bool = False) -> tuple[int, str]:
        """Open the folder in which the file of a resource lies.

        Each folder is opened relative to the one above, and must not be a link.

        Args:
            identifier: the resource.
            create: whether to create missing folders, as the file will be written.

        Returns:
            The descriptor of the folder, which the caller closes, and the name of the file.

        Raises:
            FileNotFoundError: there is no such folder, or its name or that of the file is stored
                with other upper and lower case letters.
            StorageConflictError: the file will be written, and its name or that of a folder is
                stored with other upper and lower case letters.
        """
        *folder_names, file_name = identifier.split("/")
        if create:
            make_folders(self._path, durably=True)
        handle = os.open(self._path, os.O_DIRECTORY)
        try:
            for name in folder_names:
                if create:
                    _make_folder_durably(name, handle)
                self._check_case(name, handle, is_to_write=create)
                parent = handle
                handle = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
                os.close(parent)
            self._check_case(file_name, handle, is_to_write=create)
        except BaseException:
            os.close(handle)
            raise
        return handle, file_name

    def walk(self, prefix: str) -> Iterator[str]:
        """Yield the identifiers of files, in any order: all that begin with ``prefix``, and others.

        Folders without such files are not listed. The caller filters the identifiers.
        """
        folder = prefix.rpartition("/")[0]
        if not is_identifier(folder):
            folder = ""
        if self._is_behind_link(folder) or not self._has_folder(folder):
            return
        unlisted_folders = [folder]
        while unlisted_folders:
            parent = unlisted_folders.pop()
            for path, entry in self._entries_of(parent):
                if entry.is_dir(follow_symlinks=False):
                    is_hidden = entry.name.startswith(".")
                    if path.startswith(prefix) and not is_hidden:
                        unlisted_folders.append(path)
                elif entry.is_file(follow_symlinks=False) and is_identifier(path):
                    yield path

    def _entries_of(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield what is in a folder, with its path below the root; nothing if it was removed."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(os.path.join(self._path, folder)) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    yield path, entry

    def _is_behind_link(self, folder: str) -> bool:
        """Return whether a folder below the root, or one above it, is a link."""
        if not folder:
            # The root itself may be a link.
            return False
        path = self._path
        for name in folder.split("/"):
            path = os.path.join(path, name)
            if os.path.islink(path):
                return True
        return False

    def _has_folder(self, folder: str) -> bool:
        """Return whether a folder has exactly this path, also in upper and lower case."""
        # A name in the folder, so that the folder is its parent.
        any_name = f"{folder}/." if folder else "."
        try:
            handle, _ = self.open_parent(any_name)
        except OSError:
            return False
        os.close(handle)
        return True

    def _check_case(self, name: str, folder: int, *, is_to_write: bool) -> None:
        """Check that a file or folder, if it exists, is stored under exactly this name.

        On a file system that is not case-sensitive, ``aB`` opens the file ``Ab``, and two resources
        would share one file. To notice this without listing each folder, the name is looked up a
        second time with its upper and lower case letters swapped. If only the name itself exists,
        the file system is case-sensitive, and no further name is checked. If both exist, the folder
        is listed.

        Args:
            name: a segment of an identifier or key.
            folder: the descriptor of its folder.
            is_to_write: whether it is to be created or replaced.

        Raises:
            FileNotFoundError: the name is stored with other upper and lower case letters.
            StorageConflictError: likewise, and it is to be written.
        """
        swapped_name = name.swapcase()
        if self._is_case_sensitive or swapped_name == name:
            return
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            # It is missing.
            return
        try:
            swapped_status = os.stat(swapped_name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            self._is_case_sensitive = True
            return

        stored_names = os.listdir(folder)
        if not os.path.samestat(status, swapped_status) or name in stored_names:
            return
        if not is_to_write:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        stored_name = swapped_name
        for other_name in stored_names:
            if other_name.lower() == name.lower():
                stored_name = other_name
                break
        raise StorageConflictError(
            f"could not store {name!r} below {self._path!r}: {stored_name!r} is stored there, and "
            "this file system does not tell the two names apart. Nothing was written; choose a "
            "name that differs in more than upper and lower case",
            errno.EEXIST,
        )


def _make_folder_durably(name: str, parent: int) -> None:
    """Create a folder if it is missing, so that it is still there after a power cut."""
    with contextlib.suppress(FileExistsError):
        make_folder(name, parent)
        os.fsync(parent)
