"""Files that appear under their name complete, or not at all."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from data_stack.io.storage_connectors.partial import Partial
from data_stack.io.storage_connectors.storable import BUFFER_BYTES
from data_stack.io.storage_connectors.unfinished import make_temporary_name
from data_stack.io.storage_connectors.writer import Explain, ResourceWriter
from data_stack.io.storage_errors import explaining
from data_stack.util.group_rights import make_folders, share_with_group

_NEW_FILE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def publishing(
    folder: int,
    name: str,
    identifier: str,
    explain: Explain,
    *,
    partial: Partial | None = None,
    before_renaming: Callable[[], None] | None = None,
) -> Iterator[ResourceWriter]:
    """Write a file beside its place, and publish it atomically and durably when the block ends.

    If the block raises, nothing is published.

    The steps are: create a temporary, write, fsync, rename, fsync of the folder. Renaming alone is
    atomic but not durable: after a power cut, ext4 may hold the new name with 0 bytes. A failed
    fsync is never retried, as the kernel has already marked the pages clean (Rebello et al., USENIX
    ATC 2020).

    Args:
        folder: the descriptor of the folder of the file, which the caller closes.
        name: the name of the file in the folder.
        identifier: the name of the file in messages.
        explain: returns the error to raise for an error of the operating system.
        partial: the partial file of a resumed download, to write instead of a temporary.
        before_renaming: called before the file replaces an older one.

    Yields:
        The writer.
    """
    temporary_name = make_temporary_name()
    with explaining(explain):
        if partial is not None:
            file = partial.file
        else:
            handle = os.open(temporary_name, _NEW_FILE_FLAGS, 0o666, dir_fd=folder)
            file = open(handle, "w+b", buffering=BUFFER_BYTES)
        share_with_group(file.fileno(), folder)

    writer = ResourceWriter(identifier, file, partial, explain)
    try:
        yield writer
        writer.close()
        with explaining(explain):
            # Without this, the time is that of the kernel's clock for files, whose steps of 4 ms
            # would hide a second change within a step.
            now_ns = time.time_ns()
            os.utime(file.fileno(), ns=(now_ns, now_ns))
            os.fsync(file.fileno())
            if before_renaming is not None:
                before_renaming()
            written_name = temporary_name if partial is None else partial.name
            os.replace(written_name, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
            writer.status = os.fstat(file.fileno())
            file.close()
    except BaseException as error:
        # Flushing, like closing, may fail once more to write what a full disk has refused.
        with contextlib.suppress(OSError, ValueError):
            file.flush()
        if partial is not None:
            partial.end(error)
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary_name, dir_fd=folder)
        raise


def replace_file(path: str, data: bytes, modified_ns: int | None = None) -> None:
    """Write a small file atomically. Its folder is created if it is missing.

    The file is not synced: after a power cut, it may be missing or empty.

    Args:
        path: the path of the file.
        data: all its bytes.
        modified_ns: its modification time, in nanoseconds; None: now.

    Raises:
        OSError: the file cannot be written.
    """
    folder = os.path.dirname(path)
    temporary_path = os.path.join(folder, make_temporary_name())
    make_folders(folder)
    try:
        with open(temporary_path, "xb") as file:
            share_with_group(file.fileno(), folder)
            file.write(data)
        if modified_ns is not None:
            os.utime(temporary_path, ns=(time.time_ns(), modified_ns))
        os.replace(temporary_path, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary_path)
        raise
