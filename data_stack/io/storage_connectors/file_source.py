"""The bytes of a file of a file store, read by position."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from data_stack.exception import DamagedBlockError
from data_stack.io.integrity import ALGORITHM, BLOCK_BYTES, block_digest, digest_of_block
from data_stack.io.resources import ByteSource
from data_stack.io.storage_connectors.digest_notes import FileVersion
from data_stack.util.forks import ForkLock

__all__ = ["FileSource", "OpenedFile"]


class OpenedFile(NamedTuple):
    """A file that is open for reading.

    Attributes:
        handle: its descriptor, for whoever asked for it to close.
        status: as it was then.
        noted: what was noted of the resource last, be it of this file or not.
    """

    handle: int
    status: os.stat_result
    noted: FileVersion | None

    @property
    def version(self) -> FileVersion | None:
        """What is known of this file: None if it was touched since that was noted."""
        return self.noted if self.noted is not None and self.noted.is_of(self.status) else None

    @property
    def published(self) -> FileVersion | None:
        """What this file was published as: None if that is not known."""
        return self.noted if self.noted is not None and self.noted.was_of(self.status) else None


class FileSource(ByteSource):
    """A file that is opened at the first need.

    The handle may be inherited by a fork: positional reads share nothing but the sealed bytes. There is no lock around the
    checks: what another thread does meanwhile costs at most another one.

    Args:
        identifier: the resource.
        store: names the store, for messages.
        open_file: opens the file.
        fail: raises what an error of the operating system means.
        checks_always: whether to hold blocks against their digests also if nothing touched the file.
    """

    def __init__(
        self,
        identifier: str,
        store: str,
        open_file: Callable[[], OpenedFile],
        fail: Callable[[OSError], NoReturn],
        *,
        checks_always: bool,
    ) -> None:
        self._identifier, self._store = identifier, store
        self._open_file, self._fail, self._checks_always = open_file, fail, checks_always
        self._file: OpenedFile | None = None
        self._digests = b""
        self._right = bytearray()  # 1: the block has its digest
        self._opening = ForkLock()

    @property
    def size(self) -> int:
        return self._opened().status.st_size

    @property
    def sha256(self) -> str | None:
        version = self._opened().version
        return None if version is None else version.sha256

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        file = self._file or self._opened()
        if not self._digests:
            return self._readinto(file.handle, offset, buffer)
        size = file.status.st_size
        position, end = offset, min(offset + len(buffer), size)
        while position < end:
            block = position // BLOCK_BYTES
            first, last = block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, size)
            part = buffer[position - offset : min(last, end) - offset]
            if self._right[block]:
                self._readinto(file.handle, position, part)
            else:
                data = memoryview(bytearray(last - first))
                self._check(block, data[: self._readinto(file.handle, first, data)])
                part[:] = data[position - first : position - first + len(part)]
            position += len(part)
        return max(0, end - offset)

    def fileno(self) -> int:
        file = self._opened()
        # Who has the descriptor reads past us.
        scratch = memoryview(bytearray(BLOCK_BYTES))
        for block, is_right in enumerate(self._right):
            if not is_right:
                self.readinto_at(block * BLOCK_BYTES, scratch)
        return file.handle

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file.handle)

    # ------------------------------------------------------------------ inside

    def _opened(self) -> OpenedFile:
        if self._file is None:
            with self._opening:
                if self._file is None:
                    file = self._open_file()
                    if file.version is None or self._checks_always:
                        self._prepare_checks(file)
                    self._file = file  # last: other threads look at this one to see that it is open
        return self._file

    def _readinto(self, handle: int, offset: int, buffer: memoryview) -> int:
        try:
            n_read = os.preadv(handle, [buffer], offset)
            while 0 < n_read < len(buffer):
                more = os.preadv(handle, [buffer[n_read:]], offset + n_read)
                if more == 0:
                    break
                n_read += more
        except OSError as error:
            self._fail(error)
        return n_read

    def _prepare_checks(self, file: OpenedFile) -> None:
        published, size = file.published, file.status.st_size
        if published is None:
            return
        if published.size != size:
            os.close(file.handle)
            raise self._damaged(min(size, published.size) // BLOCK_BYTES, f"{published.size:,} bytes", f"{size:,} bytes", "size")
        self._digests = published.blocks
        self._right = bytearray(-(-size // BLOCK_BYTES))

    def _check(self, block: int, data: memoryview) -> None:
        expected, actual = digest_of_block(self._digests, block), block_digest(data)
        if actual != expected:
            raise self._damaged(block, expected.hex(), actual.hex(), ALGORITHM)
        self._right[block] = 1

    def _damaged(self, block: int, expected: str, actual: str, algorithm: str) -> DamagedBlockError:
        where = (
            f"{self._store} (the file was changed since it was stored; if that was meant, store it again: "
            f"data-stack import-file {self._identifier} FILE --unverified)"
        )
        return DamagedBlockError(self._identifier, where, block, BLOCK_BYTES, expected, actual, algorithm)
