"""The folders of a store, opened one by one without following a link."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from data_stack.exception import StorageConflictError
from data_stack.io.identifiers import is_identifier
from data_stack.util.group_rights import make_folder, make_folders


class StoreFolder:
    """The folder of a store, in which identifiers are paths.

    Args:
        path: the absolute path of the folder. It may be a symbolic link; links inside of it are not
            followed.
    """

    _path: str
    #: Whether the file system is known to tell upper from lower case.
    _tells_case: bool

    def __init__(self, path: str) -> None:
        self._path = path
        self._tells_case = False

    def open_parent(self, identifier: str, *, create: bool = False) -> tuple[int, str]:
        """Open the folder in which the file of a resource lies.

        Each folder is opened relative to the one above, and must not be a link.

        Args:
            identifier: the resource.
            create: whether to create missing folders, as the file will be written.

        Returns:
            The descriptor of the folder, which the caller closes, and the name of the file.

        Raises:
            FileNotFoundError: there is no such folder. Or a folder or file is stored under a name
                that differs in upper and lower case only.
            StorageConflictError: likewise, and the file is to be written.
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
        """Yield the identifiers of all files that may begin with ``prefix``, in any order.

        Folders in which no such file can be are not listed.
        """
        folder = prefix.rpartition("/")[0]
        if not is_identifier(folder):
            folder = ""
        if self._is_behind_link(folder) or not self._has_folder(folder):
            return
        pending = [folder]
        while pending:
            parent = pending.pop()
            # A folder may be removed meanwhile.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for entry in os.scandir(os.path.join(self._path, parent)):
                    path = f"{parent}/{entry.name}" if parent else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        is_hidden = entry.name.startswith(".")
                        if path.startswith(prefix) and not is_hidden:
                            pending.append(path)
                    elif entry.is_file(follow_symlinks=False) and is_identifier(path):
                        yield path

    def _is_behind_link(self, folder: str) -> bool:
        """Return whether a folder, or one above it, is a link."""
        path = self._path
        for name in folder.split("/"):
            path = os.path.join(path, name)
            if os.path.islink(path):
                return True
        return False

    def _has_folder(self, folder: str) -> bool:
        """Return whether a folder has exactly this path, also in upper and lower case."""
        try:
            handle, _ = self.open_parent(f"{folder}/." if folder else ".")
        except OSError:
            return False
        os.close(handle)
        return True

    def _check_case(self, name: str, folder: int, *, is_to_write: bool) -> None:
        """Check that a file or folder has exactly a name, also in upper and lower case.

        On a file system that does not tell cases apart, ``aB`` opens the file ``Ab``, and two
        resources would share it. Such a file system also finds the name with all cases swapped.
        Only then the names in the folder are compared. Once a name was found, and not with its
        cases swapped, the file system is known to tell them apart.

        Args:
            name: a segment of an identifier or key.
            folder: the descriptor of its folder.
            is_to_write: whether it is to be created or replaced.

        Raises:
            FileNotFoundError: another name is stored.
            StorageConflictError: likewise, and it is to be written.
        """
        swapped_name = name.swapcase()
        if self._tells_case or swapped_name == name:
            return
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            # It is missing.
            return
        try:
            swapped_status = os.stat(swapped_name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            self._tells_case = True
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
