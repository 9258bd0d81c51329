"""Finds the files of Spark's URLs, for programs without Spark."""

from __future__ import annotations

import os
from urllib.parse import unquote

from data_stack.io.url import StorageURL

#: Where Databricks mounts its store.
_DBFS_FOLDER = "/dbfs"


def local_path(url: str) -> str | None:
    """Return the local path of a URL or path; None if it is remote."""
    scheme, colon, location = url.partition(":")
    is_path = not colon or "/" in scheme
    if is_path:
        return os.path.abspath(os.path.expanduser(url))
    if scheme.lower() == "dbfs" and os.path.isdir(_DBFS_FOLDER):
        return os.path.join(_DBFS_FOLDER, unquote(location.lstrip("/")))
    storage_url = StorageURL.parse(url)
    if storage_url is None or storage_url.scheme != "file":
        return None
    return os.path.abspath(storage_url.local_path())


def readable_source(url: str) -> str:
    """Return the source for ``ParquetDataset`` of a URL of Spark: a local path, or the URL."""
    return local_path(url) or url
