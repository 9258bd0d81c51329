"""Folders of a dataset's files: on this machine, or below a prefix of any store.

A format passes ``source`` and ``prefix`` of its user to :func:`folder_of`, and then opens, lists, publishes and deletes files by
name. Other file systems are further subclasses of :class:`Folder`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MaliciousFilePathError,
    MissingFileError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.identifiers import check_key_prefix, check_prefix
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.cached import uncached
from data_stack.io.storage_connectors.connector import FileLease, Lease, StorageConnector
from data_stack.io.storage_connectors.file_source import OpenedFile
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.io.storage_connectors.writer import TEMPORARY as TEMPORARY
from data_stack.io.storage_connectors.writer import ResourceWriter, publishing
from data_stack.io.storage_errors import storage_error, storage_errors
from data_stack.io.tree import LINK_OF_STORE, LeftOut, LinkRule, entries_of, walk_folder
from data_stack.io.url import StorageURL
from data_stack.util.group_rights import make_folders
from data_stack.util.interrupts import open_descriptor


def open_local_file(path: str) -> OpenedFile:
    """Open a file of this machine.

    Raises:
        MissingFileError: it does not exist, or is a folder, a pipe or a device.
        StorageError: it cannot be opened.
    """
    with storage_errors("open", path):
        try:
            # O_NONBLOCK: do not wait for the writer of a pipe
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(path) from None
    file = OpenedFile(
        handle, functools.partial(storage_error, f"could not read {path!r}", path=path)
    )
    if not stat.S_ISREG(file.status.st_mode):
        file.close()
        is_folder = stat.S_ISDIR(file.status.st_mode)
        raise MissingFileError(
            path,
            "it is a folder; give the path of a file in it"
            if is_folder
            else "it is not a regular file",
        )
    return file


#: Limit of files that are read whole (a spec, a manifest).
_MAX_SMALL_BYTES: Final = 64 << 20


class Folder:
    """A folder of files: a store and a prefix. It holds nothing open, pickles as configuration, and threads may share it.

    A file is named by its path relative to the folder, with ``/`` between the parts. It is published atomically: readers see the
    old file, the new one, or none. A dataset of several files is complete once its manifest, the last one, exists.

    Args:
        store: a storage connector, or the resources of a dataset. It needs ``get_resource`` and ``has_resource``; without one of
            the other methods, what needs it raises UnsupportedStorageOperationError.
        name: the prefix, without a slash at the end; empty for the whole store.

    Attributes:
        name: its name in messages, without credentials.
        path: its absolute path; None if it is not on this machine.
        checks_reads: whether the store verifies each read.
        can_delete: whether files can be listed and deleted, so that an interrupted write can be resumed or removed.
    """

    name: str
    path: Path | None = None
    checks_reads: bool = False
    can_delete: bool = False
    _store: Any = None
    #: Whether the store also knows the files of other tools, by keys that need not be identifiers.
    _has_keys: bool = False

    def __init__(self, store: Any, name: str = "") -> None:
        self._store = store
        self.name = name
        self._has_keys = hasattr(store, "open_key")
        self.checks_reads = getattr(store, "checks_reads", False)
        kind = type(uncached(store))
        own = (StorageConnector.delete_resource, StorageConnector.list_resources)
        self.can_delete = all(getattr(kind, base.__name__, base) is not base for base in own)

    def has_file(self, file: str) -> bool:
        """Whether there is a file (not merely a folder) of that name."""
        name = self.full_name(file)
        return bool(self._store.has_key(name) if self._has_keys else self._store.has_resource(name))

    def open(self, file: str) -> StreamedResource:
        """Open a file for reading; the caller closes it.

        A subclass returns ``StreamedResource.from_source(self.full_name(file), source, self)``; another process opens it again
        with :meth:`get_resource`.

        Raises:
            ResourceNotFoundError: there is no such file.
        """
        name = self.full_name(file)
        method = self._store.open_key if self._has_keys else self._store.get_resource
        return method(name)  # type: ignore[no-any-return]

    def list_names(self) -> list[str]:
        """The names of the files and folders in it, sorted; an empty list if it does not exist.

        Raises:
            UnsupportedStorageOperationError: the store cannot list.
        """
        return sorted({path.partition("/")[0] for path in self.list_files()})

    def list_files(self) -> list[str]:
        """The paths of all files in it and in its folders, at any depth, sorted; an empty list if it does not exist.

        Raises:
            UnsupportedStorageOperationError: the store cannot list.
        """
        start = self.full_name("")
        return sorted(name[len(start) :] for name in self._list(start) if name.startswith(start))

    def survey(self) -> tuple[list[str], list[LeftOut]]:
        """The paths of all files, as :meth:`list_files`, and what is there but is not listed, with the reasons.

        Raises:
            UnsupportedStorageOperationError: the store cannot list.
        """
        links: list[LeftOut] = []
        if self._has_keys:
            start = self.full_name("")
            names = self._ask("list", "list_links", start)
            links = [LeftOut(name[len(start) :], LINK_OF_STORE) for name in names]
        return self.list_files(), links

    def subfolder(self, name: str) -> Folder:
        """A folder in it, which need not exist.

        Raises:
            MalformedIdentifierError: ``name`` leads out of this folder, or nothing can be stored under it.
        """
        return Folder(self._store, self._check_prefix(self.full_name(name)))

    def create(self, file: str) -> AbstractContextManager[ResourceWriter]:
        """Write a file: it is published durably when the block ends cleanly, and replaces an older one.

        Raises:
            UnsupportedStorageOperationError: this folder can only be read.
            StorageError: it could not be written; an older one is unchanged.
        """
        return self._ask("write", "create", self.full_name(file))  # type: ignore[no-any-return]

    def delete(self, file: str) -> None:
        """Delete a file if it exists, and folders within this one that it leaves empty.

        Raises:
            UnsupportedStorageOperationError: this folder cannot delete.
            StorageError: it could not be deleted.
        """
        with contextlib.suppress(ResourceNotFoundError):
            method = "delete_key" if self._has_keys else "delete_resource"
            self._ask("delete", method, self.full_name(file))

    def lease(self, file: str) -> AbstractContextManager[Lease]:
        """A lease of this folder, which uses the name of a file. It ends with the block, or with the process.

        The default is always free.
        """
        if not hasattr(self._store, "lease"):
            return contextlib.nullcontext(Lease())
        return self._store.lease(self.full_name(file))  # type: ignore[no-any-return]

    def full_name(self, file: str) -> str:
        """The name of a file in messages."""
        return f"{self.name.rstrip('/')}/{file}" if self.name else file

    def describe(self, file: str) -> str:
        """The name of a file and its store in messages, without credentials."""
        return self.full_name(file) + (
            f" in {self._store!r}" if isinstance(self._store, StorageConnector) else ""
        )

    def read(self, file: str) -> bytes:
        """The content of a small file.

        Raises:
            ResourceNotFoundError: there is no such file.
            DatasetFileCorruptError: it is larger than 64 MiB.
        """
        with self.open(file) as resource:
            return self.read_small(resource)

    def read_small(self, resource: StreamedResource) -> bytes:
        """The content of an opened small file; raises as :meth:`read`."""
        data = resource.read(_MAX_SMALL_BYTES + 1)
        if len(data) > _MAX_SMALL_BYTES:
            raise DatasetFileCorruptError(
                f"{resource.identifier} is damaged: it has more than {_MAX_SMALL_BYTES:,} bytes"
            )
        return data

    def get_resource(self, identifier: str) -> StreamedResource:
        """Open a file by its full name, for a resource in another process."""
        return self.open(identifier.removeprefix(self.full_name("")))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _list(self, prefix: str) -> list[str]:
        method = "list_keys" if self._has_keys else "list_resources"
        return self._ask("list", method, prefix)  # type: ignore[no-any-return]

    def _check_prefix(self, prefix: str) -> str:
        """Return a prefix if names of the store can begin with it.

        Raises:
            MalformedIdentifierError: they cannot.
        """
        # A connector that overrides no method for keys has only identifiers.
        own = getattr(type(uncached(self._store)), "open_key", StorageConnector.open_key)
        return (
            check_prefix(prefix) if own is StorageConnector.open_key else check_key_prefix(prefix)
        )

    def _ask(self, action: str, method: str, name: str) -> Any:
        if not hasattr(self._store, method):
            raise UnsupportedStorageOperationError(
                f"cannot {action} {name!r}: {type(self._store).__name__} is for reading"
            )
        return getattr(self._store, method)(name)


def folder_of(source: Any, prefix: str = "") -> Folder:
    """The folder that ``source`` names.

    Args:
        source: a path (``str`` or ``PathLike``), a URL (``"mongodb://host/database"``, ``"file:///data"``), a StorageConnector,
            the Resources that a dataset's ``open()`` gets, the PreparedResources that its ``preprocess()`` gets, or a Folder.
        prefix: a folder below it, such as ``"preprocessed/train"``.

    Raises:
        ConfigError: it is something else, or a URL that does not name a store.
        MalformedIdentifierError: nothing can be stored under that prefix.
    """
    if isinstance(prefix, os.PathLike):
        prefix = os.fspath(prefix)
    if not isinstance(prefix, str):
        raise ConfigError(
            f"a prefix must be a string such as 'preprocessed/train', got {prefix!r:.80}"
        )
    folder = source if isinstance(source, Folder) else _folder_of(source)
    for segment in prefix.split("/"):
        if segment:
            folder = folder.subfolder(segment)
    return folder


def _folder_of(source: Any) -> Folder:
    url = StorageURL.parse(source)
    if url is not None and url.scheme == "file" and not url.query:
        return LocalFolder(url.local_path())
    if url is not None or (isinstance(source, str) and "://" in source):
        return Folder(storage_connector_from_url(source))
    if isinstance(source, (str, os.PathLike)):
        return LocalFolder(os.path.expanduser(os.fsdecode(source)))
    if hasattr(source, "get_resource"):
        return Folder(source)
    raise ConfigError(
        f"expected a folder, a storage connector or a dataset's resources, got {source!r:.80}"
    )


class ListedFolder(Folder):
    """A folder of a store that lists its files once, at the first question for a name, and with them those of its subfolders.

    It is for a few questions in a row: what changes later, it does not see. It pickles as an ordinary folder.

    Args:
        store, name: as for :class:`Folder`.
        listed: the names of the files in the store that begin with ``name``; None to list them.
    """

    def __init__(
        self, store: Any, name: str, listed: Callable[[], Collection[str]] | None = None
    ) -> None:
        super().__init__(store, name)
        self._listed = listed or functools.cache(
            lambda: dict.fromkeys(self._list(self.full_name("")))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self._store, self.name)

    def has_file(self, file: str) -> bool:
        return self.full_name(file) in self._listed()

    def list_files(self) -> list[str]:
        start = self.full_name("")
        return sorted(name[len(start) :] for name in self._listed() if name.startswith(start))

    def subfolder(self, name: str) -> Folder:
        return ListedFolder(self._store, self._check_prefix(self.full_name(name)), self._listed)

    @classmethod
    def of(cls, folder: Folder) -> Folder:
        """A folder, listed once if its store can list it; a folder of this machine as it is."""
        return (
            cls(folder._store, folder.name) if folder.can_delete and folder.path is None else folder
        )


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
