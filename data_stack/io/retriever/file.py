"""Files of this machine as sources."""

from __future__ import annotations

import contextlib
import os
import stat

from data_stack.exception import ConfigError
from data_stack.io.retriever.transfer import SourceError, Transfer
from data_stack.io.url import StorageURL
from data_stack.util.interrupts import open_descriptor


def fetch_file(source: str, transfer: Transfer) -> None:
    """Copy a file, named by its path or by a ``file://`` URL (percent-encoded, of this host)."""
    url = StorageURL.parse(source)
    try:
        path = source if url is None or url.scheme != "file" else url.local_path()
    except ConfigError as error:
        raise SourceError(str(error)) from None
    copy_file(path, transfer)


def copy_file(path: str, transfer: Transfer) -> None:
    """Copy the regular file at ``path``."""
    with contextlib.ExitStack() as exits:
        try:
            # stat first: opening a device may have effects, opening a fifo waits for a writer.
            _check_regular(os.stat(path).st_mode)
            handle = exits.enter_context(open_descriptor(path, os.O_NONBLOCK))
        except OSError as error:
            raise SourceError(error.strerror or str(error)) from error
        before = os.fstat(handle)
        _check_regular(before.st_mode)
        if transfer.expected_size is not None and transfer.expected_size != before.st_size:
            raise SourceError(f"has {before.st_size:,} bytes, expected {transfer.expected_size:,}")
        transfer.expected_size = before.st_size
        buffer = memoryview(bytearray(min(1 << 20, before.st_size + 1)))
        while n_read := os.readv(handle, [buffer]):
            transfer.write(buffer[:n_read])
        after = os.fstat(handle)
    if (after.st_size, after.st_mtime_ns) != (
        before.st_size,
        before.st_mtime_ns,
    ) or transfer.size != after.st_size:
        raise SourceError("changed while it was read")


def _check_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise SourceError("is a folder; name its files")
    if not stat.S_ISREG(mode):
        raise SourceError("is not a regular file")
