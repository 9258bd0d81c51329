"""The files of a file store, opened without ever leaving its folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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

    @contextlib.contextmanager
    def open_folder(self, identifier: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """A handle on the folder of a resource, and the name of its file.

        Each folder is opened relative to the one above, and must not be a link.
        """
        *folders, name = identifier.split("/")
        if create:
            _make_folders(self.root_path)
        handle = os.open(self.root_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                if create:
                    _make_folder(folder, handle)
                above, handle = handle, os.open(folder, _FOLDER_FLAGS, dir_fd=handle)
                os.close(above)
            yield handle, name
        finally:
            os.close(handle)

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
    above, name = os.path.split(path)
    if not os.path.isdir(path):
        _make_folders(above)
        handle = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _make_folder(name, handle)
        finally:
            os.close(handle)


def _make_folder(name: str, above: int) -> None:
    """Create a folder in an open one durably, unless it exists."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
        os.fsync(above)
