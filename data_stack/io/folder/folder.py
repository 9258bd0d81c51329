"""A folder of files in any store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from data_stack.exception import (
    DatasetFileCorruptError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.identifiers import check_key_prefix, check_prefix
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.tree import LINK_OF_STORE, LeftOut
from data_stack.io.versions import version_of

#: Limit of files that are read whole, such as a spec or a manifest.
_MAX_SMALL_BYTES: Final = 64 << 20


class Folder:
    """A folder of files: a store and a prefix.

    A folder holds nothing open, threads may share it, and pickled it holds its store and prefix. A
    file is named by its path relative to the folder, with ``/`` between the parts. Files are
    published atomically: readers see the old file, the new one, or none. A dataset of several files
    is complete once its manifest exists, which is written last.

    A subclass may be a folder of another file system.

    Args:
        store: a storage connector, or the resources of a dataset. It needs the methods
            ``get_resource`` and ``has_resource``. If it lacks another method of a storage
            connector, the methods of the folder that need it raise
            UnsupportedStorageOperationError.
        name: the prefix, without a slash at the end; empty for the whole store.

    Attributes:
        name: the name of the folder in messages, without credentials.
        path: the absolute path of the folder; None if it is not on this machine.
        checks_reads: whether the store verifies each read.
        can_delete: whether files can be listed and deleted, so that an interrupted write can be
            resumed or removed.
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
        self.can_delete = _implements(store, "delete_resource") and _implements(
            store, "list_resources"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # ------------------------------------------------------------------ names

    def full_name(self, file: str) -> str:
        """Return the name of a file in its store."""
        if not self.name:
            return file
        return f"{self.name.rstrip('/')}/{file}"

    def describe(self, file: str) -> str:
        """Return the name of a file and its store for messages, without credentials."""
        name = self.full_name(file)
        if isinstance(self._store, StorageConnector):
            return f"{name} in {self._store!r}"
        return name

    def subfolder(self, name: str) -> Folder:
        """Return a folder in this one, which need not exist.

        Raises:
            MalformedIdentifierError: ``name`` leads out of this folder, or nothing can be stored
                under it.
        """
        return Folder(self._store, self._check_prefix(self.full_name(name)))

    # ------------------------------------------------------------------ reading

    def has_file(self, file: str) -> bool:
        """Return whether there is a file (not merely a folder) of that name."""
        name = self.full_name(file)
        if self._has_keys:
            return bool(self._store.has_key(name))
        return bool(self._store.has_resource(name))

    def open(self, file: str) -> StreamedResource:
        """Open a file for reading; the caller closes it.

        A subclass returns ``StreamedResource.from_source(self.full_name(file), source, self)``;
        another process opens it again with :meth:`get_resource`.

        Raises:
            ResourceNotFoundError: there is no such file.
        """
        name = self.full_name(file)
        if self._has_keys:
            return self._store.open_key(name)  # type: ignore[no-any-return]  # any store
        return self._store.get_resource(name)  # type: ignore[no-any-return]  # any store

    def get_resource(self, identifier: str) -> StreamedResource:
        """Open a file by its full name. So a resource is opened again in another process."""
        return self.open(identifier.removeprefix(self.full_name("")))

    def read(self, file: str) -> bytes:
        """Return the content of a small file.

        Raises:
            ResourceNotFoundError: there is no such file.
            DatasetFileCorruptError: the file is larger than 64 MiB.
        """
        with self.open(file) as resource:
            return self.read_small(resource)

    def read_whole(self, file: str) -> tuple[bytes, Any]:
        """Return the content of a file of any size, and the version of the file.

        Returns:
            The content; and what :func:`~data_stack.io.versions.version_of` returns.

        Raises:
            ResourceNotFoundError: there is no such file.
        """
        with self.open(file) as resource:
            version = version_of(resource)
            return resource.read(), version

    def read_small(self, resource: StreamedResource) -> bytes:
        """Return the content of an opened small file.

        Raises:
            DatasetFileCorruptError: the file is larger than 64 MiB.
        """
        data = resource.read(_MAX_SMALL_BYTES + 1)
        if len(data) > _MAX_SMALL_BYTES:
            raise DatasetFileCorruptError(
                f"{resource.identifier} is damaged: it has more than {_MAX_SMALL_BYTES:,} bytes"
            )
        return data

    # ------------------------------------------------------------------ listing

    def list_names(self) -> list[str]:
        """Return the names of the files and folders in this one, sorted.

        The list is empty if the folder does not exist.

        Raises:
            UnsupportedStorageOperationError: the store cannot list.
        """
        names = {path.partition("/")[0] for path in self.list_files()}
        return sorted(names)

    def list_files(self) -> list[str]:
        """Return the paths of all files in the folder, at any depth, sorted.

        The list is empty if the folder does not exist.

        Raises:
            UnsupportedStorageOperationError: the store cannot list.
        """
        return paths_below(self.full_name(""), self._list_store())

    def survey(self) -> tuple[list[str], list[LeftOut]]:
        """Return all files, and what a reader may miss among them.

        Returns:
            The paths of the files, as :meth:`list_files` returns them; and the links and other
            things in the folder that are not listed, each with the reason.

        Raises:
            UnsupportedStorageOperationError: the store cannot list.
        """
        left_out = list[LeftOut]()
        if self._has_keys:
            list_links = self._method_of_store("list_links", "list")
            for path in paths_below(self.full_name(""), list_links(self.full_name(""))):
                left_out.append(LeftOut(path, LINK_OF_STORE))
        return self.list_files(), left_out

    # ------------------------------------------------------------------ writing

    def create(self, file: str) -> AbstractContextManager[ResourceWriter]:
        """Write a file.

        It is published durably when the block ends cleanly, and replaces an older one.

        Raises:
            UnsupportedStorageOperationError: this folder can only be read.
            StorageError: the file could not be written; an older one is unchanged.
        """
        create = self._method_of_store("create", "write", file)
        return create(self.full_name(file))  # type: ignore[no-any-return]  # any store

    def delete(self, file: str) -> None:
        """Delete a file if it exists, and folders within this one that it leaves empty.

        Raises:
            UnsupportedStorageOperationError: this folder cannot delete.
            StorageError: the file could not be deleted.
        """
        method_name = "delete_key" if self._has_keys else "delete_resource"
        delete = self._method_of_store(method_name, "delete", file)
        with contextlib.suppress(ResourceNotFoundError):
            delete(self.full_name(file))

    def lease(self, file: str) -> AbstractContextManager[Lease]:
        """Return a lease, by which one process writes to this folder while others wait.

        The lease ends with the block, or with the process. In a store without leases, every process
        gets it.

        Args:
            file: the name under which processes find the lease. It need not be that of a file.
        """
        if not hasattr(self._store, "lease"):
            return contextlib.nullcontext(Lease())
        return self._store.lease(self.full_name(file))  # type: ignore[no-any-return]  # any store

    # ------------------------------------------------------------------ inside

    def _list_store(self) -> list[str]:
        """Return the full names of all files in this folder."""
        method_name = "list_keys" if self._has_keys else "list_resources"
        list_names = self._method_of_store(method_name, "list")
        return list_names(self.full_name(""))  # type: ignore[no-any-return]  # any store

    def _method_of_store(self, method_name: str, action: str, file: str = "") -> Callable[..., Any]:
        """Return a method that a store may lack.

        Args:
            method_name: the name of the method.
            action: what the method is for, for the message: ``"list"``.
            file: the file that it is for, for the message; empty: the folder.

        Raises:
            UnsupportedStorageOperationError: the store lacks the method.
        """
        method = getattr(self._store, method_name, None)
        if method is None:
            raise UnsupportedStorageOperationError(
                f"cannot {action} {self.full_name(file)!r}: "
                f"{type(self._store).__name__} is for reading"
            )
        return method  # type: ignore[no-any-return]  # any store

    def _check_prefix(self, prefix: str) -> str:
        """Return a prefix, checked.

        Raises:
            MalformedIdentifierError: no name in the store can begin with it.
        """
        if _implements(self._store, "open_key"):
            return check_key_prefix(prefix)
        # A store without methods of its own for keys has only identifiers.
        return check_prefix(prefix)


def paths_below(start: str, names: Iterable[str]) -> list[str]:
    """Return the ends of the names that begin with ``start``, sorted."""
    return sorted(name[len(start) :] for name in names if name.startswith(start))


def _implements(store: Any, method_name: str) -> bool:
    """Return whether the class of a store overrides a method of :class:`StorageConnector`.

    Deleting and listing raise UnsupportedStorageOperationError in the base class. A format must
    know before it writes the first file whether they work, so it cannot wait for the error. A cache
    can do what the store behind it can do.
    """
    store_class = type(uncached(store))
    method = getattr(store_class, method_name, None)
    return method is not None and method is not getattr(StorageConnector, method_name)
