"""Where the files of a record dataset lie: in a folder, in a storage connector, or among the resources of a dataset."""

from __future__ import annotations

import contextlib
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

from data_stack.dataset.prepared import PreparedResources, Resources
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.identifiers import checked_prefix
from data_stack.io.local_files import LocalFile
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.connector import Lease, ResourceWriter, sealing
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.io.storage_errors import storage_error, storage_errors
from data_stack.util.lock_file import locked_file

__all__ = ["TEMPORARY", "LentPlace", "Place", "place_of"]

#: So the names of files begin that are written in a folder of this machine, until they are whole.
TEMPORARY = ".~"
#: What is read whole (a spec, a manifest) has at most this size.
_MAX_SMALL_BYTES = 64 << 20


class Place(ABC):
    """A folder of files, wherever it is. It holds nothing open, pickles as configuration, and threads may share it.

    Attributes:
        name: of the folder, for messages.
        path: of the folder, absolute; None where it is none of this machine.
        checks_reads: whether each read, of a part too, is held against digests by the store itself.
    """

    name: str
    path: Path | None = None
    checks_reads: bool = False

    @abstractmethod
    def exists(self, file: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def open(self, file: str) -> StreamedResource:
        """Open a file to read; the caller closes it.

        Raises:
            ResourceNotFoundError: there is none.
        """

    @abstractmethod
    def names(self) -> list[str]:
        """The files and folders in it, sorted; none if it does not exist.

        Raises:
            UnsupportedStorageOperationError: the store cannot list.
        """

    def tree(self) -> list[str]:
        """The paths of all files in it and in its folders, at any depth, sorted; none if it does not exist.

        Raises:
            UnsupportedStorageOperationError: the store cannot list.
        """
        raise UnsupportedStorageOperationError(f"{type(self).__name__} {self.name!r} cannot list what is in its folders")

    @abstractmethod
    def child(self, name: str) -> Place:
        """A folder in it, whether it exists or not."""

    @abstractmethod
    def create(self, file: str) -> AbstractContextManager[ResourceWriter]:
        """Write a file: it is there, whole and durable, when the block ends cleanly, in the place of an older one.

        Raises:
            UnsupportedStorageOperationError: this place can only be read.
        """

    #: Whether files can be listed and removed, so that what was begun can be gone on with, or cleared away.
    can_remove: bool = False

    def remove(self, file: str) -> None:
        """Remove a file, and folders of this place that it leaves empty. One that is not there is removed already.

        Raises:
            UnsupportedStorageOperationError: this place cannot.
            StorageError: it could not be removed.
        """
        raise UnsupportedStorageOperationError(f"{self.full_name(file)!r} cannot be removed from here")

    def lease(self, file: str) -> AbstractContextManager[Lease]:
        """The right to work on this place alone, under the name of a file that is there meanwhile, perhaps.

        It is given back when the block ends, or when the process does. A store without leases grants all.
        """
        return contextlib.nullcontext(Lease())

    def full_name(self, file: str) -> str:
        """What to call a file in messages."""
        return f"{self.name}/{file}" if self.name else file

    def read(self, file: str) -> bytes:
        """The content of a small file.

        Raises:
            ResourceNotFoundError: there is none.
            DatasetFileCorruptError: it is too large to be what it should be.
        """
        with self.open(file) as resource:
            data = resource.read(_MAX_SMALL_BYTES + 1)
        if len(data) > _MAX_SMALL_BYTES:
            raise DatasetFileCorruptError(f"{self.full_name(file)} is damaged: it has more than {_MAX_SMALL_BYTES:,} bytes")
        return data

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def place_of(source: Any, prefix: str = "") -> Place:
    """The place that ``source`` means.

    Args:
        source: a folder (``str`` or ``PathLike``), a StorageConnector or the URL of one (``"mongodb://host/database"``), the
            Resources that a dataset's ``open()`` gets, the PreparedResources that its ``preprocess()`` gets, or a Place.
        prefix: folder below it, such as ``"preprocessed/train"``; of resources relative to the dataset.

    Raises:
        ConfigError: it is nothing of the kind.
        MalformedIdentifierError: nothing can be stored under that prefix.
    """
    if isinstance(prefix, os.PathLike):
        prefix = os.fspath(prefix)
    if not isinstance(prefix, str):
        raise ConfigError(f"a prefix is a string such as 'preprocessed/train', not {prefix!r:.80}")
    if isinstance(source, str) and "://" in source:
        source = storage_connector_from_url(source)
    if isinstance(source, (str, os.PathLike)):
        path = os.path.expanduser(os.fsdecode(source))
        if not path or "\0" in path + prefix:
            raise ConfigError(f"a record dataset lies in a folder, and {path + prefix!r:.80} is none")
        place: Place = _Folder(path)
    elif isinstance(source, Place):
        place = source
    elif isinstance(source, Resources):
        place = _InResources(source, "")
    elif isinstance(source, StorageConnector) or hasattr(source, "get_resource"):
        place = _InStore(source, "")
    else:
        raise ConfigError(
            f"a record dataset lies in a folder, a storage connector or a dataset's resources, not in {source!r:.80}"
        )
    for segment in prefix.split("/"):
        if segment:
            place = place.child(segment)
    return place


class _Folder(Place):
    """A folder of this machine."""

    def __init__(self, path: str) -> None:
        self._folder = os.path.abspath(path)
        self.name, self.path = self._folder, Path(self._folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Folder, (self._folder,)

    def exists(self, file: str) -> bool:
        return os.path.isfile(os.path.join(self._folder, file))

    def open(self, file: str) -> StreamedResource:
        path = os.path.join(self._folder, file)
        return StreamedResource.sealed(path, LocalFile(path), self)

    def get_resource(self, identifier: str) -> StreamedResource:
        """Open a file by its path again, for a resource that was sent to another process."""
        return self.open(identifier)

    def names(self) -> list[str]:
        try:
            with _errors("list", self._folder):
                return sorted(os.listdir(self._folder))
        except ResourceNotFoundError:
            return []

    def tree(self) -> list[str]:
        paths = []
        with _errors("list", self._folder):
            for folder, _, files in os.walk(self._folder):
                inner = os.path.relpath(folder, self._folder)
                start = "" if inner == "." else inner.replace(os.sep, "/") + "/"
                paths += [start + file for file in files]
        return sorted(paths)

    def child(self, name: str) -> Place:
        return _Folder(os.path.join(self._folder, name))

    can_remove = True

    def remove(self, file: str) -> None:
        path = os.path.join(self._folder, file)
        with contextlib.suppress(ResourceNotFoundError), _errors("remove", path):
            os.unlink(path)
        while "/" in file:
            file = file.rpartition("/")[0]
            try:
                os.rmdir(os.path.join(self._folder, file))
            except OSError:  # there is something else in it
                return

    def lease(self, file: str) -> AbstractContextManager[Lease]:
        return _FolderLease(os.path.join(self._folder, file))

    @contextlib.contextmanager
    def create(self, file: str) -> Iterator[ResourceWriter]:
        path = os.path.join(self._folder, file)
        temporary = os.path.join(self._folder, f"{TEMPORARY}{secrets.token_hex(8)}")
        with _errors("write", path):
            os.makedirs(self._folder, exist_ok=True)
            opened = open(temporary, "x+b")
        try:
            with sealing(_FolderWriter(path, opened)) as writer:
                yield writer
                with _errors("write", path):
                    writer.seal()
                    os.fsync(opened.fileno())
            with _errors("write", path):
                opened.close()
                os.replace(temporary, path)
                folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                opened.close()  # may fail again to write what a full disk refused
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


class _FolderLease(Lease):
    """A lock on a file, which the operating system releases when its process dies; the file goes with the lease."""

    def __init__(self, path: str) -> None:
        self._path, self._handle, self._pid = path, -1, os.getpid()

    def acquire(self) -> bool:
        if self._handle < 0:
            with _errors("write", self._path):
                try:
                    handle = locked_file(self._path)
                except ImportError:  # no such locks on this system
                    return True
            if handle is None:
                return False
            self._handle = handle
        return True

    def __enter__(self) -> _FolderLease:
        return self

    def __exit__(self, *_: object) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            if os.getpid() == self._pid:  # else it is the copy of a fork, and the lease is not ours to give back
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            os.close(handle)


class _FolderWriter(ResourceWriter):
    """A ResourceWriter to a file of a folder; the errors of its disk are ours."""

    def _fail(self, error: OSError) -> NoReturn:
        raise storage_error(f"could not write {self.identifier!r}", error, self.identifier) from error


class _InStore(Place):
    """A folder of a storage connector."""

    def __init__(self, connector: StorageConnector, folder: str) -> None:
        self._connector, self._folder = connector, folder
        self.name, self.checks_reads = folder, getattr(connector, "checks_reads", False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _InStore, (self._connector, self._folder)

    def exists(self, file: str) -> bool:
        return self._connector.has_resource(self.full_name(file))

    def open(self, file: str) -> StreamedResource:
        return self._connector.get_resource(self.full_name(file))

    def names(self) -> list[str]:
        return _direct_children(self._identifiers(), self._folder)

    def tree(self) -> list[str]:
        return _below(self._identifiers(), self._folder)

    def _identifiers(self) -> Iterable[str]:
        if not hasattr(self._connector, "list_resources"):
            raise UnsupportedStorageOperationError(f"{type(self._connector).__name__} cannot list what it stores")
        return self._connector.list_resources(self._folder + "/" if self._folder else "")

    def child(self, name: str) -> Place:
        return _InStore(self._connector, checked_prefix(self.full_name(name)))

    @property
    def can_remove(self) -> bool:  # type: ignore[override]  # depends on the connector
        kind = type(self._connector)
        return all(
            getattr(kind, method, default) is not default
            for method, default in (
                ("delete_resource", StorageConnector.delete_resource),
                ("list_resources", StorageConnector.list_resources),
            )
        )

    def remove(self, file: str) -> None:
        with contextlib.suppress(ResourceNotFoundError):
            self._connector.delete_resource(self.full_name(file))

    def lease(self, file: str) -> AbstractContextManager[Lease]:
        if not hasattr(self._connector, "lease"):
            return super().lease(file)
        return self._connector.lease(self.full_name(file))

    def create(self, file: str) -> AbstractContextManager[ResourceWriter]:
        return self._connector.create(self.full_name(file))


class _InResources(Place):
    """A folder among the resources of a dataset."""

    def __init__(self, resources: Resources, folder: str) -> None:
        self._resources, self._folder = resources, folder
        self.name, self.checks_reads = folder, getattr(resources._storage_connector, "checks_reads", False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _InResources, (self._resources, self._folder)

    def exists(self, file: str) -> bool:
        return self.full_name(file) in self._resources

    def open(self, file: str) -> StreamedResource:
        return self._resources[self.full_name(file)]

    def names(self) -> list[str]:
        return _direct_children(self._resources, self._folder)

    def tree(self) -> list[str]:
        return _below(self._resources, self._folder)

    def child(self, name: str) -> Place:
        return _InResources(self._resources, checked_prefix(self.full_name(name)))

    def create(self, file: str) -> AbstractContextManager[ResourceWriter]:
        if not isinstance(self._resources, PreparedResources):
            raise UnsupportedStorageOperationError(
                f"{self.full_name(file)!r} cannot be written: these resources are for reading. Write in preprocess(), "
                f"to its argument `prepared`"
            )
        return self._resources.create(self.full_name(file))


class LentPlace(Place):
    """The place of one resource that the caller opened, and closes."""

    def __init__(self, resource: StreamedResource) -> None:
        self._resource = resource
        self.name = ""

    def exists(self, file: str) -> bool:
        return file == self._resource.identifier

    def open(self, file: str) -> StreamedResource:
        return self._resource

    def names(self) -> list[str]:
        return [self._resource.identifier]

    def child(self, name: str) -> Place:
        raise ConfigError(f"a resource has no folder {name!r}")

    def create(self, file: str) -> AbstractContextManager[ResourceWriter]:
        raise ConfigError("a resource is lent to be read")


def _below(identifiers: Iterable[str], folder: str) -> list[str]:
    start = folder + "/" if folder else ""
    return sorted(name[len(start) :] for name in identifiers if name.startswith(start))


def _direct_children(identifiers: Iterable[str], folder: str) -> list[str]:
    return sorted({name.partition("/")[0] for name in _below(identifiers, folder)})


@contextlib.contextmanager
def _errors(action: str, path: str) -> Iterator[None]:
    """Errors of the operating system as ours."""
    with storage_errors(action, path):
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            if action == "write":
                raise
            raise ResourceNotFoundError(f"could not {action} {path!r}: there is no such file or folder") from error
