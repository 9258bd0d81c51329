"""Publishes the result of a conversion when it is complete."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from data_stack.exception import ConfigError, DataStackError
from data_stack.io.location import Location
from data_stack.io.storage_errors import storage_errors
from data_stack.util.group_rights import sync_folder


@contextlib.contextmanager
def publish(location: Location, *, is_folder: bool) -> Iterator[Location]:
    """Make a place to write a dataset, which is published when the block ends cleanly.

    A block that raises removes what it wrote. A local folder has a temporary name until it is
    complete. A file appears when it is complete; in a store, the last file of a dataset marks it as
    complete.

    Args:
        location: the final place of the dataset.
        is_folder: whether the dataset is a folder.

    Raises:
        ConfigError: the target exists already, or another process is writing it.
    """
    if location.is_file() or location.is_folder():
        raise ConfigError(
            f"{location.full_name} exists already; remove it, or choose another target"
        )
    if location.path is None or not is_folder:
        with _removed_if_failed(location):
            yield location
        return

    path = location.path
    attempt = Location(location.folder, f".{location.name}.part")
    with location.folder.lease(f"{attempt.name}.lock") as lease:
        if not lease.acquire():
            raise ConfigError(f"{location.full_name} is being written by another process")
        # The files of a killed conversion may lie here.
        _remove(attempt)
        with _removed_if_failed(attempt):
            yield attempt
            with storage_errors("make", str(path)):
                os.rename(path.with_name(attempt.name), path)
                sync_folder(str(path.parent))


@contextlib.contextmanager
def _removed_if_failed(location: Location) -> Iterator[None]:
    """Remove a dataset if the block raises."""
    try:
        yield
    except BaseException:
        # A store may be unable to remove it; the first error is the one to raise.
        with contextlib.suppress(DataStackError, OSError):
            _remove(location)
        raise


def _remove(location: Location) -> None:
    """Remove the files of a dataset, if there are any."""
    if location.path is not None and location.path.is_dir():
        with storage_errors("remove", location.path):
            shutil.rmtree(location.path)
        return
    if location.is_file():
        location.folder.delete(location.name)
    folder = location.as_folder()
    for name in folder.list_files():
        folder.delete(name)
