"""One file or folder that a user names by path, URL or store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.io.folder import Folder, ListedFolder, LocalFolder, folder_of
from data_stack.io.lent_resource import OneResource
from data_stack.io.resources import StreamedResource, StreamedTextResource
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.io.url import scheme_of, split_url


@dataclass(frozen=True)
class Location:
    """A file or folder, whether it exists or not.

    Attributes:
        folder: its parent.
        name: its name in the parent.
        contents: it as a folder, if that is known already.
    """

    folder: Folder
    name: str
    contents: Folder | None = field(default=None, compare=False, repr=False)

    @property
    def path(self) -> Path | None:
        """Its path on this machine; None if it is elsewhere."""
        return None if self.folder.path is None else self.folder.path / self.name

    @property
    def full_name(self) -> str:
        """Its name in messages, without credentials."""
        return self.folder.describe(self.name)

    def is_file(self) -> bool:
        """Whether it is an existing file."""
        return self.folder.has_file(self.name)

    def is_folder(self) -> bool:
        """Whether it is an existing, non-empty folder."""
        return bool(self.as_folder().list_names())

    def open(self) -> StreamedResource:
        """Open the file; the caller closes it."""
        return self.folder.open(self.name)

    def local_file(self) -> str | None:
        """The path of the file, to read it; None if it is not on this machine.

        Raises:
            MaliciousFilePathError: it was found in a folder, and is a link that leads out of it.
        """
        return self.folder.path_of(self.name) if isinstance(self.folder, LocalFolder) else None

    def as_folder(self) -> Folder:
        """It as a folder."""
        return self.contents or self.folder.subfolder(self.name)

    def listed(self) -> Location:
        """The same location, whose files are listed once (:class:`~data_stack.io.folder.ListedFolder`)."""
        return replace(self, contents=ListedFolder.of(self.as_folder()))


def location_of(source: Any) -> Location:
    """The location that ``source`` names.

    Args:
        source: a path, a URL of a store and a name in it (``mongodb://host/database/sets/train``, see
            :func:`~data_stack.io.url.split_url`), ``(connector or folder, "sets/train")``, or a resource or open binary file that
            the caller lends.

    Raises:
        ConfigError: it is something else, or a URL without a name in the store.
    """
    if isinstance(source, Location):
        return source
    if isinstance(source, tuple) and len(source) == 2 and hasattr(source[0], "get_resource"):
        above, _, name = str(source[1]).strip("/").rpartition("/")
        if not name:
            raise ConfigError(
                f"a dataset in a store needs a name, such as 'sets/train', got {source[1]!r:.80}"
            )
        return Location(folder_of(source[0], above), name)
    if isinstance(source, str) and (scheme_of(source) is not None or "://" in source):
        return location_of_url(source, storage_connector_from_url)
    if isinstance(source, (str, os.PathLike)):
        text = os.fsdecode(source)
        folder, name = os.path.split(os.path.abspath(os.path.expanduser(text)))
        if not text or not name or "\0" in text:
            raise ConfigError(f"{source!r:.80} does not name a file or folder")
        # The user named this path, so it is followed wherever it leads; links below it stay below it.
        return Location(LocalFolder(folder, os.sep), name, LocalFolder(os.path.join(folder, name)))
    if hasattr(source, "read"):
        resource = as_resource(source)
        return Location(Folder(OneResource(resource)), resource.identifier)
    raise ConfigError(f"expected a path, a URL, or (connector, name), got {source!r:.80}")


def location_of_url(url: str, connect: Callable[[str], StorageConnector]) -> Location:
    """The location that a URL names: a name in a store, or a path.

    Args:
        url: see :func:`~data_stack.io.url.split_url`.
        connect: makes the connector of a store's URL.

    Raises:
        ConfigError: it has no name in the store.
    """
    store, name = split_url(url)
    if store is None:
        return location_of(name)
    if name.startswith("/"):  # the key of an object has an empty segment: s3://bucket/a//b
        return Location(Folder(connect(store)), name)
    return location_of((connect(store), name))


@contextlib.contextmanager
def naming_stand_in(place: Location) -> Iterator[None]:
    """Say, if a file cannot be read because it is a pointer of Git LFS or a page instead of data, what it is.

    Raises:
        DatasetFileCorruptError: it is; otherwise the error of the block.
    """
    try:
        yield
    except DatasetFileCorruptError:
        with contextlib.suppress(ResourceNotFoundError, StorageError), place.open() as resource:
            check_no_stand_in(resource.read_at(0, HEAD_BYTES), place.full_name, resource.size)
        raise


def is_path(source: Any) -> bool:
    """Whether ``source`` is a path or a URL: a string, or an ``os.PathLike``."""
    return isinstance(source, (str, os.PathLike))


def as_resource(source: Any) -> StreamedResource:
    """``source`` as a resource.

    Args:
        source: a path, URL or other argument of :func:`location_of`, which is opened; a resource, which is returned (a text
            resource as its bytes); or an open binary file, which the caller closes.

    Raises:
        ConfigError: the URL does not name a file.
        MissingFileError: there is no such file on this machine, or it is a folder.
        ResourceNotFoundError: there is no such file in a store.
        StorageError: it cannot be opened.
        TypeError: it is something else.
    """
    if isinstance(source, StreamedTextResource):
        source = source.buffer
    if isinstance(source, StreamedResource):
        return source
    if is_path(source) or isinstance(source, (tuple, Location)):
        return location_of(source).open()
    if not hasattr(source, "read"):
        raise TypeError(
            f"expected a path, a URL, a resource or an open binary file, got {source!r:.80}"
        )
    name = getattr(source, "identifier", None) or getattr(source, "name", None)
    return StreamedResource(
        name if isinstance(name, str) and name else f"<{type(source).__name__}>", source
    )
