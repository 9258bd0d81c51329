"""Partial files: interrupted downloads, which another process can resume.

The name of a partial file, ``.~partial-KEY-VALIDATOR``, holds a key and the validator (an ETag) of
its bytes, so that a kill leaves both consistent. Its bytes are not trusted: the resuming process
has a digest of the whole. A lock of the operating system, which ends with its process, reserves a
partial file for one process at a time.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
from typing import IO, Final

from data_stack.exception import ChecksumMismatchError, StorageFullError
from data_stack.io.storage_connectors.storable import BUFFER_BYTES
from data_stack.io.storage_connectors.unfinished import PARTIAL
from data_stack.util.group_rights import share_with_group
from data_stack.util.lock_file import try_lock

#: Not through a link, and without waiting if the name is that of a pipe.
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Partial:
    """A partial file that this process owns while ``file`` is open.

    Args:
        folder: the descriptor of its folder.
        name: its name in the folder.
        file: the open and locked file.
        validator: the version of its bytes.

    Attributes:
        name: its name in the folder.
        file: open for reading and writing. It may become a published resource.
        validator: the version of its bytes; None if it is empty or cannot be resumed.
    """

    name: str
    file: IO[bytes]
    validator: str | None
    _folder: int
    _key: str

    def __init__(self, folder: int, name: str, file: IO[bytes], validator: str | None) -> None:
        self.name = name
        self.file = file
        self.validator = validator
        self._folder = folder
        self._key = name.removeprefix(PARTIAL).partition("-")[0]

    @classmethod
    def open(cls, folder: int, key: str) -> Partial | None:
        """Open the partial file of a key, or create it.

        Args:
            folder: the descriptor of the folder.
            key: letters and digits.

        Returns:
            None if another process uses the file, or if it cannot be opened.
        """
        with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as on_refusal:
            name = _find_name(folder, key)
            handle = os.open(name, _FLAGS, 0o666, dir_fd=folder)
            file = on_refusal.enter_context(open(handle, "w+b", buffering=BUFFER_BYTES))
            share_with_group(handle, folder)

            # Without locks, each download starts at the beginning.
            if not try_lock(handle, if_unsupported=False):
                return None

            # keep() and publishing give the file a second name before they remove the first one. If
            # the process was killed in between, the file may be a published resource.
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_nlink > 1:
                os.unlink(name, dir_fd=folder)
                return None

            # Before this process got the lock, another one may have published, renamed or removed
            # the file.
            is_same_file = os.path.samestat(status, os.fstat(handle))
            if not stat.S_ISREG(status.st_mode) or not is_same_file:
                return None

            validator = _decode_validator(name)
            if validator is None:
                os.ftruncate(handle, 0)
            on_refusal.pop_all()
            return cls(folder, name, file, validator)
        return None

    def keep(self, validator: str | None) -> None:
        """Name the version of the bytes that will be written, so that they can be resumed.

        The file is renamed, as its name holds the validator.

        Args:
            validator: the validator, such as an ETag; None: the bytes cannot be resumed.
        """
        name = _make_name(self._key, validator)
        if name == self.name:
            self.validator = validator
            return

        # Not by rename(), which would replace the file of a faster process.
        try:
            os.link(
                self.name,
                name,
                src_dir_fd=self._folder,
                dst_dir_fd=self._folder,
                follow_symlinks=False,
            )
        except OSError:
            # The name exists or is too long, or the file system has no links.
            self.validator = None
            return
        old_name = self.name
        self.name = name
        os.unlink(old_name, dir_fd=self._folder)
        self.validator = validator

    def end(self, error: BaseException) -> None:
        """End the use of the file after an error. It is removed if nobody can resume it.

        All writes must be flushed.

        Args:
            error: why the bytes were not published.
        """
        is_useless = isinstance(error, (ChecksumMismatchError, StorageFullError))
        with contextlib.suppress(OSError):
            is_empty = os.stat(self.name, dir_fd=self._folder).st_size == 0
            if is_useless or is_empty or self.validator is None:
                os.unlink(self.name, dir_fd=self._folder)


def _find_name(folder: int, key: str) -> str:
    """Return the name of the partial file of a key; that of an empty one if there is none."""
    prefix = f"{PARTIAL}{key}-"
    for name in os.listdir(folder):
        if name.startswith(prefix):
            return name
    return prefix


def _make_name(key: str, validator: str | None) -> str:
    """Return the name of the partial file of a key and a validator."""
    encoded = base64.urlsafe_b64encode((validator or "").encode("latin-1")).decode()
    # The hyphen separates the parts of the name.
    encoded = encoded.replace("-", "~")
    return f"{PARTIAL}{key}-{encoded}"


def _decode_validator(name: str) -> str | None:
    """Return the validator in the name of a partial file; None if it has none.

    Raises:
        ValueError: the name is malformed.
    """
    encoded = name.rpartition("-")[2].replace("~", "-")
    return base64.urlsafe_b64decode(encoded).decode("latin-1") or None
