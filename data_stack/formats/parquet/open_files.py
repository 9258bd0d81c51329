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
    """A file of this machine.

    Attributes:
        version: changes when the file is replaced or written to.
    """

    version: LocalVersion | None = None


class _StoredFile(pa.PythonFile):  # type: ignore[misc]  # pyarrow has no types
    """A file of a store.

    Attributes:
        version: changes when the file is replaced; None where the store has no versions.
    """

    version: Any = None


def open_resource(resource: StreamedResource) -> _StoredFile:
    """Wrap a resource of a store for pyarrow. Closing the file closes the resource."""
    stream: Any = resource
    if isinstance(resource, LentResource):
        stream = PositionalFile(resource)
    file = _StoredFile(stream, mode="r")
    file.version = version_of(resource)
    return file


def open_local(path: str) -> _LocalFile:
    """Open a file of this machine, by pyarrow alone.

    Raises:
        ResourceNotFoundError: it does not exist, or is not a file.
        StorageError: it cannot be opened.
    """
    with errors_of_filesystem(path, "open"):
        return _open_with_version(path)


def _open_with_version(path: str) -> _LocalFile:
    """Open a file, and look at its path before and after, until both see the same version.

    The version is that of the path, because pyarrow 23 does not return the descriptor of an open
    file: a file that is replaced in between would get the version of the other one.
    """
    file: _LocalFile | None = None
    while True:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait
            raise ResourceNotFoundError(f"could not open {path!r}: it is not a file")
        if file is not None and file.version is not None and file.version.is_of(status):
            return file
        file = _LocalFile(path)
        file.version = LocalVersion.of(status)
