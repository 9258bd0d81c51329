"""Files of interrupted downloads, which another process can resume.

The name of a partial file holds a key and the validator (an ETag) of its bytes, ``.~partial-KEY-VALIDATOR``, so that a kill
leaves both consistent. Its bytes are not trusted: the resuming process has a digest of the whole. A lock of the operating
system, which ends with its process, reserves it for one process at a time.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import time
from typing import Final

from data_stack.exception import ChecksumMismatchError, StorageFullError
from data_stack.util.lock_file import try_lock

#: Prefix of unfinished files; no identifier has it.
TEMPORARY: Final = ".~"
#: Prefix of partial files.
PARTIAL: Final = ".~partial-"
_MAX_NAME_BYTES: Final = 200
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Partial:
    """A partial file that this process owns while ``handle`` is open.

    Attributes:
        name: its name in the folder.
        handle: open for reading and writing; it may become the handle of a published resource.
        validator: version of its bytes; None if it is empty or cannot be resumed.
    """

    def __init__(self, folder: int, name: str, handle: int, validator: str | None) -> None:
        self._folder, self._key = folder, name[len(PARTIAL) :].partition("-")[0]
        self.name, self.handle, self.validator = name, handle, validator

    @classmethod
    def open(cls, folder: int, key: str) -> Partial | None:
        """Open or create the file of ``key`` (letters and digits) in an open folder; None if it is locked or cannot be opened."""
        with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as exits:
            name = next((name for name in os.listdir(folder) if name.startswith(f"{PARTIAL}{key}-")), f"{PARTIAL}{key}-")
            handle = os.open(name, _FLAGS | os.O_CREAT, 0o666, dir_fd=folder)
            exits.callback(os.close, handle)
            _lock(handle)
            # It is not ours if another process published, renamed or removed it before we got the lock, or if it has a second
            # name, as after a kill during renaming.
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_nlink > 1:
                os.unlink(name, dir_fd=folder)
            elif stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.fstat(handle)):
                encoded = name.rpartition("-")[2].replace("~", "-")
                validator = base64.urlsafe_b64decode(encoded).decode("latin-1") or None
                if validator is None:
                    os.ftruncate(handle, 0)
                exits.pop_all()
                return cls(folder, name, handle, validator)
        return None

    def keep(self, validator: str | None) -> None:
        """Rename it to the validator of the bytes to come."""
        encoded = base64.urlsafe_b64encode((validator or "").encode("latin-1")).decode().replace("-", "~")
        name = f"{PARTIAL}{self._key}-{encoded}"
        if len(name) > _MAX_NAME_BYTES:
            self.keep(None)
            return
        if name != self.name:
            # Not by rename(), which would replace the file of a faster process.
            try:
                os.link(self.name, name, src_dir_fd=self._folder, dst_dir_fd=self._folder, follow_symlinks=False)
            except OSError:  # it exists, or the file system has no links
                validator, name = None, self.name
            else:
                old, self.name = self.name, name
                os.unlink(old, dir_fd=self._folder)
        self.validator = validator

    def end(self, error: BaseException | None) -> None:
        """Remove it, unless another process can resume it after this error. All writes must be flushed."""
        is_useless = error is None or isinstance(error, (ChecksumMismatchError, StorageFullError))
        with contextlib.suppress(OSError):
            if is_useless or self.validator is None or not os.stat(self.name, dir_fd=self._folder).st_size:
                os.unlink(self.name, dir_fd=self._folder)


def remove(path: str, least_age_seconds: float, *, dry_run: bool) -> int | None:
    """Remove an unlocked partial file of at least this age and return its size; None if it stays."""
    with contextlib.suppress(OSError):
        handle = os.open(path, _FLAGS)
        try:
            # Locked until it is removed: a waiting process then sees that its name is gone.
            _lock(handle)
            status = os.fstat(handle)
            if time.time() - status.st_mtime >= least_age_seconds:
                if not dry_run:
                    os.unlink(path)
                return status.st_size
        finally:
            os.close(handle)
    return None


def _lock(handle: int) -> None:
    if not try_lock(handle, if_unsupported=False):  # without locks, each download starts at the beginning
        raise OSError("another process uses this partial file")
