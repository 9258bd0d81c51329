"""Rights of a group: what is made in a folder with the setgid bit gets the rights that the folder gives its group.

So several users can write to one store, whatever their umask.
"""

from __future__ import annotations

import contextlib
import os
import stat

from data_stack.util.interrupts import open_descriptor


def share_with_group(handle: int, folder: int | str) -> None:
    """Give a new file or folder the rights of its folder's group, if the folder has the setgid bit.

    Args:
        handle: its descriptor.
        folder: what it is in: a descriptor or a path.
    """
    mode = os.stat(folder).st_mode
    if mode & stat.S_ISGID:
        own = os.fstat(handle).st_mode
        with contextlib.suppress(
            OSError
        ):  # another user made it, or the file system has no such rights
            os.fchmod(handle, stat.S_IMODE(own) | mode & (0o070 if stat.S_ISDIR(own) else 0o060))


def make_folder(path: str, above: int | None = None) -> None:
    """Create a folder.

    Args:
        path: its path; its name in ``above`` if that is given.
        above: a descriptor of the folder that it is in.

    Raises:
        OSError: it exists, or that was not possible.
    """
    os.mkdir(path, dir_fd=above)
    with open_descriptor(path, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above) as handle:
        share_with_group(handle, os.path.dirname(path) if above is None else above)


def make_folders(path: str, *, durably: bool = False) -> None:
    """Create a folder and its parents, those that are missing.

    Args:
        path: its path.
        durably: sync each folder above a new one.
    """
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        make_folders(above, durably=durably)
        with contextlib.suppress(FileExistsError):
            make_folder(path)
        if durably:
            sync_folder(above)


def sync_folder(path: str) -> None:
    """Flush the entries of a folder to disk, after files in it were created, renamed or removed."""
    with open_descriptor(path, os.O_DIRECTORY) as handle:
        os.fsync(handle)
