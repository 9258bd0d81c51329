"""The folder that a path, a URL or a store names."""

from __future__ import annotations

import os
from typing import Any

from data_stack.exception import ConfigError
from data_stack.io.folder.folder import Folder
from data_stack.io.folder.local_folder import LocalFolder
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.io.url import StorageURL


def folder_of(source: Any, prefix: str = "") -> Folder:
    """Return the folder that ``source`` names.

    Args:
        source: a path (``str`` or ``PathLike``), a URL (``"mongodb://host/database"``,
            ``"file:///data"``), a StorageConnector, the Resources that a dataset's ``open()`` gets,
            the PreparedResources that its ``preprocess()`` gets, or a Folder.
        prefix: a folder below it, such as ``"preprocessed/train"``.

    Raises:
        ConfigError: the source is something else, or a URL that does not name a store.
        MalformedIdentifierError: nothing can be stored under that prefix.
    """
    if isinstance(prefix, os.PathLike):
        prefix = os.fspath(prefix)
    if not isinstance(prefix, str):
        raise ConfigError(
            f"a prefix must be a string such as 'preprocessed/train', got {prefix!r:.80}"
        )
    folder = _open_source(source)
    for segment in prefix.split("/"):
        if segment:
            folder = folder.subfolder(segment)
    return folder


def _open_source(source: Any) -> Folder:
    """Return the folder of a source, without a prefix."""
    if isinstance(source, Folder):
        return source

    # A text is a URL or a path. What only looks like a URL is passed on for its error.
    url = StorageURL.parse(source)
    if url is not None and url.scheme == "file" and not url.query:
        return LocalFolder(url.local_path())
    looks_like_url = isinstance(source, str) and "://" in source
    if url is not None or looks_like_url:
        return Folder(storage_connector_from_url(source))
    if isinstance(source, (str, os.PathLike)):
        return LocalFolder(os.path.expanduser(os.fsdecode(source)))

    if hasattr(source, "get_resource"):
        return Folder(source)
    raise ConfigError(
        f"expected a folder, a storage connector or a dataset's resources, got {source!r:.80}"
    )
