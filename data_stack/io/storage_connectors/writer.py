"""The file into which a caller writes a resource."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from data_stack.io.integrity import Digest
from data_stack.io.storage_connectors.partial import Partial
from data_stack.io.storage_connectors.storable import COPY_BYTES
from data_stack.io.storage_errors import explaining, storage_error

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12


#: Returns the error to raise for an error of the operating system.
Explain = Callable[[OSError], Exception]


class ResourceWriter(io.BufferedIOBase):
    """A file that becomes a resource when its ``with`` block ends.

    The bytes are hashed as they are written. If they are not written one after the other, the
    whole file is read and hashed at the end instead.

    Args:
        identifier: the identifier of the resource.
        file: the file to write to.
        partial: the partial file of a resumable download, if ``file`` is one.
        explain: returns the error to raise for an error of the operating system. Every method may
            raise it, as every method may write buffered data.

    Attributes:
        identifier: the identifier of the resource.
        digest: the size and digests of all bytes. It is complete once the writer is closed.
        partial: the partial file of a resumable download; otherwise None.
        status: the status of the published file, if it is on this machine.
    """

    mode = "w+b"
    identifier: str
    digest: Digest
    partial: Partial | None
    status: os.stat_result
    _file: IO[bytes]
    _explain: Explain
    #: Whether all bytes were written one after the other, so that ``digest`` has seen them.
    _is_sequential: bool
    #: Whether writing has ended. It is True until the constructor has run, because ``io`` calls
    #: close() even on an object whose constructor failed.
    _is_finished = True

    def __init__(
        self,
        identifier: str,
        file: IO[bytes],
        partial: Partial | None = None,
        explain: Explain | None = None,
    ) -> None:
        if explain is None:
            explain = functools.partial(storage_error, f"could not write {identifier!r}")
        self.identifier = identifier
        self.digest = Digest()
        self.partial = partial
        self._file = file
        self._explain = explain
        self._is_sequential = True
        self._is_finished = False

    # ------------------------------------------------------------------ writing

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        if self._is_sequential:
            self._is_sequential = self._call(self._file.tell) == self.digest.size
        if self._is_sequential:
            self.digest.update(data)
        # A raw file may write less than it is given.
        n_written = 0
        while n_written < len(view):
            n_written += self._call(self._file.write, view[n_written:])
        return len(view)

    def take_up(self) -> Iterator[bytes]:
        """Yield the bytes that a resumed file has, and add them to ``digest``.

        Call this before any read or write. The next write then continues the file.
        """
        while data := self.read(COPY_BYTES):
            self.digest.update(data)
            yield data

    def truncate(self, size: int | None = None, /) -> int:
        self._is_sequential = False
        return int(self._call(self._file.truncate, size))

    def flush(self) -> None:
        if not self._is_finished:
            self._call(self._file.flush)

    # ------------------------------------------------------------------ reading and seeking

    def read(self, size: int | None = -1, /) -> bytes:
        return bytes(self._call(self._file.read, size))

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return int(self._call(self._file.seek, offset, whence))

    def tell(self) -> int:
        return int(self._call(self._file.tell))

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    # ------------------------------------------------------------------ finishing

    @property
    def closed(self) -> bool:
        """Whether writing has ended."""
        return self._is_finished

    def close(self) -> None:
        """End writing, and complete ``digest``.

        This does not publish the resource: the end of the ``with`` block does. Some libraries close
        the file that they were given.
        """
        # After an error, the file may be closed already: then there is nothing to hash.
        if not self._is_finished and not self._file.closed:
            self._call(self._complete_digest)
            self._is_finished = True

    def _complete_digest(self) -> None:
        self._file.flush()
        has_seen_all = self._is_sequential and self._file.seek(0, os.SEEK_END) == self.digest.size
        if has_seen_all:
            return
        self.digest = Digest()
        self._file.seek(0)
        while chunk := self._file.read(COPY_BYTES):
            self.digest.update(chunk)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the file, and explain an error of the operating system.

        Raises:
            ValueError: writing has ended.
        """
        if self._is_finished:
            raise ValueError(f"write to {self.identifier!r} after it was finished")
        with explaining(self._explain):
            return method(*arguments)


@contextlib.contextmanager
def local_writer(identifier: str, store: Callable[[IO[bytes]], object]) -> Iterator[ResourceWriter]:
    """Write a local temporary file, and store it when the block ends cleanly.

    Args:
        identifier: the identifier of the resource.
        store: called with the complete file, positioned at its first byte, to store it.

    Yields:
        The writer of the temporary file.
    """
    folder = tempfile.gettempdir()
    advice = f"Nothing was published; make room in {folder!r}, or set TMPDIR."
    explain = functools.partial(
        storage_error,
        f"could not store {identifier!r}: its temporary file in {folder!r} failed",
        path=folder,
        if_full=advice,
        otherwise=advice,
    )
    with explaining(explain):
        file = tempfile.TemporaryFile()
    try:
        writer = ResourceWriter(identifier, file, explain=explain)
        yield writer
        writer.close()
        # A set_resource() of a third party may not rewind the file.
        file.seek(0)
        store(file)
    finally:
        # Closing may fail once more to write what a full disk has refused.
        with contextlib.suppress(OSError):
            file.close()
