"""Opens files for pyarrow, with the version of the file that was opened."""

from __future__ import annotations

import os
import stat
from typing import Any

import pyarrow as pa

from data_stack.exception import ResourceNotFoundError
from data_stack.formats.parquet.arrow_folder import errors_of_filesystem
from data_stack.io.lent_resource import LentResource
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource
from data_stack.io.versions import LocalVersion, version_of


class _LocalFile(pa.OSFile):  # type: ignore[misc]  # pyarrow has no types
    """A file on a local disk, as pyarrow opens it, with its version.

    Attributes:
        version: the version of the file, which changes when it is replaced or written to.
    """

    version: LocalVersion | None = None


class _StoredFile(pa.PythonFile):  # type: ignore[misc]  # pyarrow has no types
    """A file in a store, read through a Python file, with its version.

    Attributes:
        version: the version of the file, which changes when it is replaced; None if the store has
            no versions.
    """

    version: Any = None


def open_resource(resource: StreamedResource) -> _StoredFile:
    """Open a resource of a store for pyarrow. Closing the file closes the resource.

    A resource that the caller has lent stays open.
    """
    stream: Any = resource
    if isinstance(resource, LentResource):
        # Several readers, threads and forked processes may share the file of the caller.
        stream = PositionalFile(resource)
    file = _StoredFile(stream, mode="r")
    file.version = version_of(resource)
    return file


def open_local(path: str) -> _LocalFile:
    """Open a local file. pyarrow reads it without Python.

    Args:
        path: the path of the file.

    Raises:
        ResourceNotFoundError: the file does not exist, or the path is not that of a file.
        StorageError: the file cannot be opened.
    """
    with errors_of_filesystem(path, "open"):
        return _open_with_version(path)


def _open_with_version(path: str) -> _LocalFile:
    """Open a local file so that its version is certain.

    pyarrow does not return the descriptor of an open file. So the version is asked of the path: a
    file that is replaced between the question and opening would get the version of the old file.
    Therefore the path is asked again after opening. If the version has changed, the file is opened
    again.
    """
    version = _version_of_path(path)
    while True:
        file = _LocalFile(path)
        version_after_opening = _version_of_path(path)
        if version_after_opening.file == version.file:
            file.version = version
            return file
        file.close()
        version = version_after_opening


def _version_of_path(path: str) -> LocalVersion:
    """Return the version of the file at a path.

    Raises:
        ResourceNotFoundError: the path is not that of a file.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait
        raise ResourceNotFoundError(f"could not open {path!r}: it is not a file")
    return LocalVersion.of(status)
