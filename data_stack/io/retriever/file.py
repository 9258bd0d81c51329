"""Fetches files of this machine."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from data_stack.exception import ConfigError
from data_stack.io.retriever.transfer import SourceError, Transfer
from data_stack.io.url import StorageURL
from data_stack.util.interrupts import open_descriptor

_BUFFER_BYTES: Final = 1 << 20


def fetch_file(source: str, transfer: Transfer) -> None:
    """Copy a file, named by its path or by a ``file://`` URL (percent-encoded, of this host).

    Raises:
        SourceError: the URL names no file of this host, or as for :func:`copy_file`.
    """
    url = StorageURL.parse(source)
    path = source
    if url is not None and url.scheme == "file":
        try:
            path = url.local_path()
        except ConfigError as error:
            raise SourceError(str(error)) from None
    copy_file(path, transfer)


def copy_file(path: str, transfer: Transfer) -> None:
    """Copy the regular file at ``path``.

    Raises:
        SourceError: the file cannot be read, is no regular file, has another size than expected, or
            changed while it was read.
    """
    with contextlib.ExitStack() as exits:
        try:
            # Opening a device may have effects, and opening a pipe waits for its writer.
            _check_regular(os.stat(path))
            descriptor = exits.enter_context(open_descriptor(path, os.O_NONBLOCK))
        except OSError as error:
            raise SourceError(error.strerror or str(error)) from error

        # The path may lead to another file by now.
        before = os.fstat(descriptor)
        _check_regular(before)
        if transfer.expected_size is not None and transfer.expected_size != before.st_size:
            raise SourceError(f"has {before.st_size:,} bytes, expected {transfer.expected_size:,}")
        transfer.expected_size = before.st_size

        # One byte more than the file has: a file that grows is noticed.
        buffer = memoryview(bytearray(min(_BUFFER_BYTES, before.st_size + 1)))
        while n_read := os.readv(descriptor, [buffer]):
            transfer.write(buffer[:n_read])
        after = os.fstat(descriptor)

    is_unchanged = after.st_size == before.st_size and after.st_mtime_ns == before.st_mtime_ns
    if not is_unchanged or transfer.size != after.st_size:
        raise SourceError("changed while it was read")


def _check_regular(status: os.stat_result) -> None:
    """Check that a source is a regular file.

    Raises:
        SourceError: it is a folder, a pipe or a device.
    """
    if stat.S_ISDIR(status.st_mode):
        raise SourceError("is a folder; name its files")
    if not stat.S_ISREG(status.st_mode):
        raise SourceError("is not a regular file")
