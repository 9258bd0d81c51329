"""A folder of this machine."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from data_stack.exception import (
    ConfigError,
    MaliciousFilePathError,
)
from data_stack.io.folder.folder import Folder
from data_stack.io.local_files import open_local_file
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import FileLease, Lease
from data_stack.io.storage_connectors.writer import TEMPORARY as TEMPORARY
from data_stack.io.storage_connectors.writer import ResourceWriter, publishing
from data_stack.io.storage_errors import storage_error, storage_errors
from data_stack.io.tree import LeftOut, LinkRule, entries_of, walk_folder
from data_stack.util.group_rights import make_folders
from data_stack.util.interrupts import open_descriptor


class LocalFolder(Folder):
    """A folder of this machine. What its links lead to is listed as :mod:`data_stack.io.tree` says.

    Args:
        path: path of the folder, which the first write creates.
        place: the folder above it that the user named, below which links may lead; itself by default.

    Raises:
        ConfigError: the path is invalid.
    """

    can_delete = True

    def __init__(self, path: str | os.PathLike[str], place: str | None = None) -> None:
        text = os.fsdecode(path)
        if not text or "\0" in text:
            raise ConfigError(f"{text!r:.80} is not a valid path of a folder")
        self.path: Path = Path(os.path.abspath(text))
        self.name = str(self.path)
        self._links = LinkRule(self.name if place is None else place)

    def has_file(self, file: str) -> bool:
        return os.path.isfile(self._inside(file))

    def open(self, file: str) -> StreamedResource:
        path = self.path_of(file)
        return StreamedResource.from_source(path, open_local_file(path), self)

    def path_of(self, file: str) -> str:
        """The path of a file on this machine, to read it.

        Raises:
            MaliciousFilePathError: the name leads out of the folder, or the file is a link that does.
        """
        path = self._inside(file)
        self._links.check(path, file)
        return path

    def list_names(self) -> list[str]:
        return self._names_by_link()[0]

    def linked_out(self) -> list[str]:
        """The names in it of links to folders that are not followed, sorted; :meth:`list_names` lacks them."""
        return self._names_by_link()[1]

    def _names_by_link(self) -> tuple[list[str], list[str]]:
        """The names in the folder, and those of links to folders that are not followed."""
        names: list[str] = []
        linked_out: list[str] = []
        with storage_errors("list", self.name):
            for entry in entries_of(self.name):
                is_linked_folder = entry.is_symlink() and entry.is_dir()
                if is_linked_folder and self._links.leads_out(entry.path):
                    linked_out.append(entry.name)
                else:
                    names.append(entry.name)
        return sorted(names), sorted(linked_out)

    def list_files(self) -> list[str]:
        return self.survey()[0]

    def survey(self) -> tuple[list[str], list[LeftOut]]:
        with storage_errors("list", self.name):
            tree = walk_folder(self.name, links=self._links)
        return tree.files, tree.left_out

    def subfolder(self, name: str) -> Folder:
        return LocalFolder(self._inside(name), self._links.place)

    def delete(self, file: str) -> None:
        path = self._inside(file)
        with (
            storage_errors("delete", path),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
        ):
            os.unlink(path)
        while "/" in file:
            file = file.rpartition("/")[0]
            try:
                os.rmdir(self._inside(file))
            except OSError:  # not empty
                return

    def lease(self, file: str) -> AbstractContextManager[Lease]:
        return contextlib.closing(FileLease(self._inside(file)))

    @contextlib.contextmanager
    def create(self, file: str) -> Iterator[ResourceWriter]:
        path = self._inside(file)
        with contextlib.ExitStack() as exits:
            with storage_errors("write", path):
                make_folders(os.path.dirname(path))
                folder = exits.enter_context(open_descriptor(os.path.dirname(path), os.O_DIRECTORY))
            explain = functools.partial(storage_error, f"could not write {path!r}", path=path)
            yield exits.enter_context(publishing(folder, os.path.basename(path), path, explain))

    def _inside(self, file: str) -> str:
        """The path of a file, whose name is untrusted."""
        if file.startswith("/") or "\0" in file or ".." in file.split("/"):
            raise MaliciousFilePathError(
                f"{file!r:.200} is not a name within the folder {self.name!r}"
            )
        return os.path.join(self.name, file)
