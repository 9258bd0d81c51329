"""Rights of a group: what is made in a folder with the setgid bit gets the rights that the folder gives its group.

So several users can write to one store, whatever their umask.
"""

from __future__ import annotations

import contextlib
import os
import stat


def share_with_group(handle: int, folder: int | str) -> None:
    """Give a new file or folder the rights of its folder's group, if the folder has the setgid bit.

    Args:
        handle: its descriptor.
        folder: what it is in: a descriptor or a path.
    """
    mode = os.stat(folder).st_mode
    if mode & stat.S_ISGID:
        own = os.fstat(handle).st_mode
        with contextlib.suppress(PermissionError):  # another user made it
            os.fchmod(handle, stat.S_IMODE(own) | mode & (0o070 if stat.S_ISDIR(own) else 0o060))


def make_folder(name: str, above: int) -> None:
    """Create a folder in an open one.

    Raises:
        OSError: it exists, or that was not possible.
    """
    os.mkdir(name, dir_fd=above)
    handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        share_with_group(handle, above)
    finally:
        os.close(handle)


def make_folders(path: str, *, durably: bool = False) -> None:
    """Create a folder and its parents, those that are missing.

    Args:
        path: its path.
        durably: sync each folder above a new one.
    """
    if not os.path.isdir(path):
        above, name = os.path.split(os.path.abspath(path))
        make_folders(above, durably=durably)
        handle = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileExistsError):
                make_folder(name, handle)
            if durably:
                os.fsync(handle)
        finally:
            os.close(handle)
