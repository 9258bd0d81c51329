"""One file or folder that a user names by path, URL or store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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
from data_stack.io.storage_connectors.connector import KeyOpener, StorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.io.url import StorageURL, split_url


@dataclass(frozen=True)
class Location:
    """A file or folder, whether it exists or not.

    Attributes:
        folder: the folder that holds it.
        name: its name in that folder.
        contents: this location as a folder, if that is known already.
    """

    folder: Folder
    name: str
    contents: Folder | None = field(default=None, compare=False, repr=False)

    @property
    def path(self) -> Path | None:
        """The path of this location; None if it is not on this machine."""
        if self.folder.path is None:
            return None
        return self.folder.path / self.name

    @property
    def full_name(self) -> str:
        """The name of this location in messages, without credentials."""
        return self.folder.describe(self.name)

    def is_file(self) -> bool:
        """Return whether this location is an existing file."""
        return self.folder.has_file(self.name)

    def is_folder(self) -> bool:
        """Return whether this location is an existing, non-empty folder."""
        return bool(self.as_folder().list_names())

    def open(self) -> StreamedResource:
        """Open the file; the caller closes it."""
        return self.folder.open(self.name)

    def local_file(self) -> str | None:
        """Return the path of the file, to read it; None if it is not on this machine.

        Raises:
            MaliciousFilePathError: the file was found in a folder, and is a link that leads out of
                it.
        """
        if not isinstance(self.folder, LocalFolder):
            return None
        return self.folder.path_of(self.name)

    def as_folder(self) -> Folder:
        """Return this location as a folder."""
        if self.contents is not None:
            return self.contents
        return self.folder.subfolder(self.name)

    def listed(self) -> Location:
        """Return the same location, whose files are listed once.

        See :class:`~data_stack.io.folder.ListedFolder`.
        """
        return replace(self, contents=ListedFolder.of(self.as_folder()))


def location_of(source: Any) -> Location:
    """Return the location that ``source`` names.

    Args:
        source: one of

            - a path;
            - a URL of a store and a name in it (``mongodb://host/database/sets/train``, see
              :func:`~data_stack.io.url.split_url`), also a parsed one;
            - the URL of a file of a web server (``https://example.org/train.csv``);
            - ``(connector or folder, "sets/train")``;
            - a resource or an open binary file that the caller lends.

    Raises:
        ConfigError: the source is something else, or a URL without a name in the store.
    """
    if isinstance(source, Location):
        return source
    if _is_store_and_name(source):
        store, name = source
        return _location_in(store, str(name))
    url = StorageURL.parse(source)
    if url is not None:
        return _location_of_url(url)
    if isinstance(source, str) and "://" in source:
        # The message does not show it, as it may hold a password.
        raise ConfigError("the URL of a store is SCHEME://…; this is not one")
    if isinstance(source, (str, os.PathLike)):
        return _location_at(os.fsdecode(source))
    if hasattr(source, "read"):
        resource = as_resource(source)
        return Location(Folder(OneResource(resource)), resource.identifier)
    raise ConfigError(f"expected a path, a URL, or (connector, name), got {source!r:.80}")


def _is_store_and_name(source: Any) -> bool:
    """Return whether ``source`` is ``(connector or folder, name)``."""
    is_pair = isinstance(source, tuple) and len(source) == 2
    return is_pair and hasattr(source[0], "get_resource")


def _location_of_url(url: StorageURL) -> Location:
    """Return the location that a URL names: a name in a store, or a path.

    Raises:
        ConfigError: the URL has no name in the store.
    """
    if url.is_web:
        return _location_on_web(url)
    store_url, name = split_url(url)
    if store_url is None:
        return _location_at(name)
    if name.startswith("/"):
        # The key of an object has an empty segment: s3://bucket/a//b.
        return Location(Folder(storage_connector_from_url(store_url)), name)
    return _location_in(storage_connector_from_url(store_url), name)


def _location_on_web(url: StorageURL) -> Location:
    """Return the location of a file of a web server, which has no list of its files.

    Raises:
        ConfigError: the URL names no file, or has options of published datasets.
    """
    # Imported when needed: with the modules of HTTP it takes 2 MiB, which few workers need.
    from data_stack.io.web_file_store import WebFileStore

    store = WebFileStore(url)
    folder = Folder(store, store.folder)
    # Nothing is found in the file: a web server has no list of what lies in it.
    contents = Folder(store, folder.full_name(store.file))
    return Location(folder, store.file, contents)


def _location_in(store: Any, name: str) -> Location:
    """Return the location of a name in a connector or folder.

    Raises:
        ConfigError: the name is empty.
    """
    prefix, _, last_part = name.strip("/").rpartition("/")
    if not last_part:
        raise ConfigError(
            f"a dataset in a store needs a name, such as 'sets/train', got {name!r:.80}"
        )
    return Location(folder_of(store, prefix), last_part)


def _location_at(path: str) -> Location:
    """Return the location of a path on this machine.

    Raises:
        ConfigError: the path names neither a file nor a folder.
    """
    # The empty path would become that of the current folder, and the root has no name.
    parent, name = os.path.split(os.path.abspath(os.path.expanduser(path)))
    if not path or not name or "\0" in path:
        raise ConfigError(f"{path!r:.80} does not name a file or folder")
    # The user named this path, so it may be a link to any place below the root. A link inside of
    # the folder may only lead to a place inside of the folder.
    contents = LocalFolder(os.path.join(parent, name))
    return Location(LocalFolder(parent, os.sep), name, contents)


def is_path_or_url(source: Any) -> bool:
    """Return whether ``source`` is a path or a URL, that is a string or an ``os.PathLike``."""
    return isinstance(source, (str, os.PathLike))


def as_resource(source: Any) -> StreamedResource:
    """Return ``source`` as a resource.

    Args:
        source: a path, URL or other argument of :func:`location_of`, which is opened; a resource,
            which is returned (a text resource as its bytes); or an open binary file, which the
            caller closes.

    Raises:
        ConfigError: the URL does not name a file.
        MissingFileError: there is no such file on this machine, or it is a folder.
        ResourceNotFoundError: there is no such file in a store.
        StorageError: the file cannot be opened.
        TypeError: the source is something else.
    """
    if isinstance(source, StreamedTextResource):
        source = source.buffer
    if isinstance(source, StreamedResource):
        return source
    if is_path_or_url(source) or isinstance(source, (tuple, Location)):
        return location_of(source).open()
    if not hasattr(source, "read"):
        raise TypeError(
            f"expected a path, a URL, a resource or an open binary file, got {source!r:.80}"
        )

    return StreamedResource(name_of(source), source)


def name_of(file: Any) -> str:
    """Return the identifier or name of a file-like object, or else its type, for messages."""
    for attribute in ("identifier", "name"):
        name = getattr(file, attribute, None)
        # The name of a file that was opened by its descriptor is a number.
        if isinstance(name, str) and name:
            return name
    return f"<{type(file).__name__}>"


def full_name_of(resource: StreamedResource) -> str:
    """Return the name of a resource and its store for messages, without credentials."""
    store: object = resource.opener
    if isinstance(store, KeyOpener):
        store = store.connector
    if isinstance(store, StorageConnector):
        return f"{resource.identifier} in {store!r}"
    return resource.identifier


@contextlib.contextmanager
def explain_stand_in(location: Location) -> Iterator[None]:
    """Replace the error of a block that cannot read a file, if the file is not the data.

    It may be a pointer of Git LFS or a page in place of the data; see
    :mod:`data_stack.io.stand_ins`.

    Raises:
        DatasetFileCorruptError: the block raised one. If the file is not the data, the error says
            what it is; otherwise it is the error of the block.
    """
    try:
        yield
    except DatasetFileCorruptError:
        with contextlib.suppress(ResourceNotFoundError, StorageError):
            with location.open() as resource:
                head = resource.read_at(0, HEAD_BYTES)
                check_no_stand_in(head, location.full_name, resource.size)
        raise
