"""Rights of a group: what is made in a folder with the setgid bit gets the folder's group rights.

So several users can write to one store, whatever their umask.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from data_stack.util.interrupts import open_descriptor

#: Rights of the group that a folder passes on to folders and to files in it.
_GROUP_RIGHTS_OF_FOLDER: Final = 0o070
_GROUP_RIGHTS_OF_FILE: Final = 0o060


def share_with_group(handle: int, folder: int | str) -> None:
    """Give a new file or folder the rights of its folder's group, if the folder has the setgid bit.

    Args:
        handle: descriptor of the new file or folder.
        folder: what it is in: a descriptor or a path.
    """
    folder_mode = os.stat(folder).st_mode
    if not folder_mode & stat.S_ISGID:
        return
    own_mode = os.fstat(handle).st_mode
    if stat.S_ISDIR(own_mode):
        inherited_rights = folder_mode & _GROUP_RIGHTS_OF_FOLDER
    else:
        inherited_rights = folder_mode & _GROUP_RIGHTS_OF_FILE
    # Another user may have made it, or the file system may have no such rights.
    with contextlib.suppress(OSError):
        os.fchmod(handle, stat.S_IMODE(own_mode) | inherited_rights)


def make_folder(path: str, above: int | None = None) -> None:
    """Create a folder.

    Args:
        path: its path; its name in ``above`` if that is given.
        above: a descriptor of the folder that it is in.

    Raises:
        OSError: it exists, or that was not possible.
    """
    os.mkdir(path, dir_fd=above)
    folder_above: int | str
    if above is None:
        folder_above = os.path.dirname(os.path.abspath(path))
    else:
        folder_above = above
    with open_descriptor(path, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above) as handle:
        share_with_group(handle, folder_above)


def make_folders(path: str, *, durably: bool = False) -> None:
    """Create a folder and those of its parents that are missing.

    Args:
        path: its path.
        durably: sync each folder above a new one.
    """
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folders(above, durably=durably)
    with contextlib.suppress(FileExistsError):
        make_folder(path)
    if durably:
        sync_folder(above)


def sync_folder(path: str) -> None:
    """Flush the entries of a folder to disk, after files in it were made, renamed or removed."""
    with open_descriptor(path, os.O_DIRECTORY) as handle:
        os.fsync(handle)
