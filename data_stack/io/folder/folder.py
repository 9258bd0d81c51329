"""Folders of a dataset's files: on this machine, or below a prefix of any store.

A format passes ``source`` and ``prefix`` of its user to :func:`folder_of`, and then opens, lists, publishes and deletes files by
name. Other file systems are further subclasses of :class:`Folder`.
"""

from __future__ import annotations

import contextlib
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
from data_stack.io.storage_connectors.cached import uncached
from data_stack.io.storage_connectors.connector import Lease, StorageConnector
from data_stack.io.storage_connectors.writer import TEMPORARY as TEMPORARY
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.tree import LINK_OF_STORE, LeftOut

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
